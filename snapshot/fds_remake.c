#include "snapshot/fds_remake.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define REOPEN_FLAGS                                                                                                   \
	(O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_DSYNC | O_NOATIME | O_DIRECTORY | O_PATH | O_LARGEFILE |       \
	 O_ASYNC)
#define STATUS_FLAGS (O_APPEND | O_NONBLOCK)

static char *fd_path(char *path, const char *dir, int fd)
{
	(void)furca_raw_decimal(furca_raw_text(path, dir), (unsigned long)fd);
	return path;
}

/* Whether `fd` is open on what `e` was. In an overlay a file may show another inode's number, but hardly another with the same size and time. */
static bool shows(const struct furca_fds_entry *e, int fd)
{
	struct stat st;

	return furca_raw(SYS_fstat, fd, &st) == 0 && (st.st_mode & S_IFMT) == (e->mode & S_IFMT) &&
	       (st.st_ino == e->ino || (st.st_size == e->size && st.st_mtim.tv_sec == e->mtime.tv_sec &&
					st.st_mtim.tv_nsec == e->mtime.tv_nsec));
}

long furca_fds_link(struct furca_fds *fds, int fd)
{
	char path[64];
	long n = furca_raw(SYS_readlinkat, AT_FDCWD, fd_path(path, "/proc/self/fd/", fd), fds->path,
			   sizeof(fds->path) - 1);

	fds->path[n > 0 ? n : 0] = '\0';
	return n;
}

/* Reads fdinfo into fds->text. Enough for all but epoll. */
static long info(struct furca_fds *fds, int fd)
{
	char path[64];

	return furca_raw_read_file(fd_path(path, "/proc/self/fdinfo/", fd), fds->text, sizeof(fds->text));
}

/* In the place of an old description. A number at or over the limit is none, for the kernel. */
static long place(const struct furca_fds_entry *e, int fd)
{
	long r = furca_raw(SYS_dup3, fd, e->fd, e->cloexec ? O_CLOEXEC : 0);

	return r == -EBADF ? -EMFILE : r;
}

int furca_fds_put(struct furca_fds *fds, size_t i, int fd)
{
	long r = 0;

	for (size_t k = i; k < fds->n; k++) {
		struct furca_fds_entry *e = &fds->entries[k];

		if (e->first != (int)i)
			continue;
		r = place(e, fd);
		if (r < 0)
			break;
		e->done = true;
	}
	furca_raw_close(fd);
	return r < 0 ? (int)r : 0;
}

int furca_fds_bury(struct furca_fds *fds, size_t i, bool sock)
{
	int *dead = sock ? &fds->dead_socket : &fds->dead_path;

	if (*dead < 0 && sock) {
		int pair[2];
		long r = furca_raw(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

		if (r < 0)
			return (int)r;
		furca_raw_close(pair[1]);
		*dead = pair[0];
	} else if (*dead < 0) {
		/* An O_PATH descriptor answers read, write and ioctl with EBADF. */
		*dead = (int)furca_raw_open("/dev/null", O_PATH);
		if (*dead < 0)
			*dead = (int)furca_raw_open("/", O_PATH);
		if (*dead < 0)
			return *dead;
	}
	fds->buried++;
	for (size_t k = i; k < fds->n; k++) {
		struct furca_fds_entry *e = &fds->entries[k];
		long r = e->first == (int)i ? place(e, *dead) : 0;

		if (r < 0)
			return (int)r;
		e->done |= e->first == (int)i;
	}
	return 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static long reopen(int fd, int flags)
{
	char path[64];

	return furca_raw_open(fd_path(path, "/proc/self/fd/", fd), flags);
}

/* Copies data and leaves holes. `own`: the source's offset is ours to move. */
static long copy_content(int from, bool own, int to, int64_t size)
{
	int64_t at = 0;
	long r = furca_raw(SYS_ftruncate, to, size);

	while (r >= 0 && at < size) {
		int64_t end = size;
		int64_t data = own ? furca_raw(SYS_lseek, from, at, SEEK_DATA) : at;

		if (data == -ENXIO)
			break;
		if (data >= 0 && own) {
			at = data;
			end = furca_raw(SYS_lseek, from, at, SEEK_HOLE);
			if (end < 0 || end > size)
				end = size;
		}
		while (r >= 0 && at < end) {
			furca_raw(SYS_lseek, to, at, SEEK_SET);
			r = furca_raw(SYS_sendfile, to, from, &at, end - at);
			if (r == 0)
				return 0; /* shorter than it said */
		}
	}
	return r < 0 ? r : 0;
}

/* The private file of an earlier entry that stood for the same file, or -1. */
static int earlier_copy(const struct furca_fds *fds, const struct furca_fds_entry *e)
{
	return furca_fds_find(fds, e->dev, e->ino);
}

/* The name of a memfd as its maker gave it, from "/memfd:name (deleted)" in fds->path. */
static const char *memfd_name(struct furca_fds *fds)
{
	const char *name = furca_raw_after(fds->path, "/memfd:");
	char *end;

	if (!name)
		return "copy";
	end = fds->path + strlen(fds->path);
	if (end - name > 10 && strcmp(end - 10, " (deleted)") == 0)
		end[-10] = '\0';
	return name;
}

/* A memfd with the content of entry `e`, opened as it was. Sets e->writable_copy. The descriptor or -errno. */
static long copy_file(struct furca_fds *fds, struct furca_fds_entry *e)
{
	int access = e->flags & O_ACCMODE, earlier = earlier_copy(fds, e);
	long seals, r, copy, from;

	if (earlier >= 0)
		return reopen(earlier, access | (e->flags & STATUS_FLAGS));
	if (e->size > FURCA_FDS_COPY)
		return -EFBIG;
	(void)furca_fds_link(fds, e->fd);
	copy = furca_raw(SYS_memfd_create, memfd_name(fds), MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return copy;
	from = reopen(e->fd, O_RDONLY | O_NONBLOCK);
	r = from >= 0		 ? copy_content((int)from, true, (int)copy, e->size)
	    : access == O_WRONLY ? from
				 : copy_content(e->fd, false, (int)copy, e->size);
	if (from >= 0)
		furca_raw_close(from);
	/* While it is open for writing, and after what is written. Only F_SEAL_SEAL: it never took any. */
	seals = furca_raw(SYS_fcntl, e->fd, F_GET_SEALS);
	if (r >= 0 && seals > 0)
		furca_raw(SYS_fcntl, copy, F_ADD_SEALS, seals);
	if (r >= 0 && access != O_RDWR) {
		r = reopen((int)copy, access | (e->flags & STATUS_FLAGS));
		furca_raw_close(copy);
		copy = r;
	} else if (r >= 0) {
		furca_raw(SYS_fcntl, copy, F_SETFL, e->flags & STATUS_FLAGS);
		e->writable_copy = true;
	} else {
		furca_raw_close(copy);
		copy = r;
	}
	fds->copied += copy >= 0;
	return copy;
}

/* Content that cannot be read through this descriptor needs no copy: an empty file of that size will do. */
static long stand_in(const struct furca_fds_entry *e)
{
	long fd = furca_raw(SYS_memfd_create, "large", MFD_CLOEXEC);
	long r = fd < 0 ? fd : furca_raw(SYS_ftruncate, fd, e->size);

	if (r < 0)
		return r;
	furca_raw(SYS_fcntl, fd, F_SETFL, e->flags & STATUS_FLAGS);
	return fd;
}

/*
 * Opens fds->path; -ESTALE where another file has that name now. -EAGAIN where a lease on it is being broken: its holder may be the process that waits for
 * the clone.
 */
static long open_named(struct furca_fds *fds, const struct furca_fds_entry *e, int flags)
{
	long fd = furca_raw_open(fds->path, flags | O_NOCTTY | O_NONBLOCK);

	if (fd == -EPERM && (flags & O_NOATIME)) {
		flags &= ~O_NOATIME;
		fd = furca_raw_open(fds->path, flags | O_NOCTTY | O_NONBLOCK);
	}
	if (fd < 0)
		return fd;
	if (!(flags & O_NONBLOCK))
		furca_raw(SYS_fcntl, fd, F_SETFL, flags);
	if (!shows(e, (int)fd)) {
		furca_raw_close(fd);
		return -ESTALE;
	}
	return fd;
}

static long named_file(struct furca_fds *fds, struct furca_fds_entry *e)
{
	int flags = e->flags & REOPEN_FLAGS;
	bool writes = (flags & O_ACCMODE) != O_RDONLY;

	if (writes && !fds->own_files) {
		if (!fds->overlay && e->size <= FURCA_FDS_COPY_UP)
			return copy_file(fds, e);
		if (e->size > FURCA_FDS_COPY_UP && (flags & O_ACCMODE) == O_WRONLY)
			return stand_in(e);
		if (!fds->overlay || e->size > FURCA_FDS_COPY_UP)
			flags = (flags & ~(O_ACCMODE | O_APPEND)) | O_RDONLY;
	}
	if (furca_fds_link(fds, e->fd) <= 0)
		return -ENOENT;
	long fd = open_named(fds, e, flags);
	if (fd < 0)
		return fds->standing ? fd : copy_file(fds, e);
	e->writable_copy = fds->overlay && (flags & O_ACCMODE) == O_RDWR;
	return fd;
}

int furca_fds_file(struct furca_fds *fds, size_t i)
{
	struct furca_fds_entry *e = &fds->entries[i];
	long at = furca_raw(SYS_lseek, e->fd, 0, SEEK_CUR);
	long fd = e->kind == FURCA_FDS_GONE ? copy_file(fds, e) : named_file(fds, e);

	if (fd < 0 && fds->standing) { /* it has lost its name: the original description is better than none */
		e->done = true;
		return 0;
	}
	if (fd < 0)
		return furca_fds_bury(fds, i, false);
	if (at > 0)
		furca_raw(SYS_lseek, fd, at, SEEK_SET);
	return furca_fds_put(fds, i, (int)fd);
}

static bool born_together(int a, int b)
{
	struct statx x, y;

	return furca_raw(SYS_statx, a, "", AT_EMPTY_PATH, STATX_BTIME, &x) == 0 &&
	       furca_raw(SYS_statx, b, "", AT_EMPTY_PATH, STATX_BTIME, &y) == 0 &&
	       (x.stx_mask & y.stx_mask & STATX_BTIME) && x.stx_btime.tv_sec == y.stx_btime.tv_sec &&
	       x.stx_btime.tv_nsec == y.stx_btime.tv_nsec;
}

/* Of a file system that shows the kernel a cell has one of its own, whose directories are others. */
static bool both_show_the_kernel(int a, int b)
{
	static const long windows[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEVPTS_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
				       0x19800202 /* mqueue */};
	struct statfs x, y;

	if (furca_raw(SYS_fstatfs, a, &x) < 0 || furca_raw(SYS_fstatfs, b, &y) < 0 || x.f_type != y.f_type)
		return false;
	for (size_t i = 0; i < FURCA_COUNT(windows); i++)
		if (x.f_type == windows[i])
			return true;
	return false;
}

/*
 * A directory that others write to meanwhile has another time, but was born when it was. (Where a mount has no place any more, the path of what is open on
 * it is another's.)
 */
bool furca_fds_leads_back(const struct furca_fds *fds, const struct furca_fds_entry *e)
{
	long fd = furca_raw_open(fds->path, O_PATH | (S_ISLNK(e->mode) ? O_NOFOLLOW : 0));
	bool ret =
		fd >= 0 && (shows(e, (int)fd) || born_together(e->fd, (int)fd) || both_show_the_kernel(e->fd, (int)fd));

	if (fd >= 0)
		furca_raw_close(fd);
	return ret;
}

int furca_fds_directory(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	int follow = S_ISLNK(e->mode) ? O_NOFOLLOW : 0;
	long fd = !e->adrift && furca_fds_link(fds, e->fd) > 0
			  ? furca_raw_open(fds->path, (e->flags & REOPEN_FLAGS) | follow)
			  : -ENOENT;
	struct stat st;

	if (fd >= 0 && (furca_raw(SYS_fstat, fd, &st) < 0 || (st.st_mode & S_IFMT) != (e->mode & S_IFMT))) {
		furca_raw_close(fd);
		fd = -ESTALE;
	}
	return fd < 0 ? furca_fds_bury(fds, i, false) : furca_fds_put(fds, i, (int)fd);
}

int furca_fds_device(struct furca_fds *fds, size_t i)
{
	static const char *const harmless[] = {
		[3] = "/dev/null", [5] = "/dev/zero", [7] = "/dev/full", [8] = "/dev/random", [9] = "/dev/urandom"};
	const struct furca_fds_entry *e = &fds->entries[i];
	unsigned number = minor(e->device);
	long fd = -ENODEV;

	if (major(e->device) == 1 && number < FURCA_COUNT(harmless) && harmless[number])
		fd = furca_raw_open(harmless[number], e->flags & REOPEN_FLAGS);
	return fd < 0 ? furca_fds_bury(fds, i, false) : furca_fds_put(fds, i, (int)fd);
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

static bool other_end(const struct furca_fds_entry *a, const struct furca_fds_entry *b)
{
	return b->kind == FURCA_FDS_PIPE && !b->done && a->ino == b->ino && a->dev == b->dev &&
	       (a->flags & O_ACCMODE) != (b->flags & O_ACCMODE);
}

int furca_fds_pipe(struct furca_fds *fds, size_t i)
{
	struct furca_fds_entry *e = &fds->entries[i];
	int access = e->flags & O_ACCMODE, ends[2];
	size_t mate = fds->n;
	long r;

	for (size_t k = i + 1; k < fds->n && mate == fds->n; k++)
		if (fds->entries[k].first == (int)k && other_end(e, &fds->entries[k]))
			mate = k;
	if (mate == fds->n && access == O_WRONLY)
		return furca_fds_bury(fds, i, false);
	r = furca_raw(SYS_pipe2, ends, O_CLOEXEC | (e->flags & O_DIRECT));
	if (r < 0)
		return (int)r;
	size_t reader = access == O_WRONLY ? mate : i, writer = access == O_WRONLY ? i : mate;
	r = furca_raw(SYS_fcntl, e->fd, F_GETPIPE_SZ);
	if (r > 0)
		furca_raw(SYS_fcntl, ends[1], F_SETPIPE_SZ, r);
	/* Takes over what is in it and leaves it where it is. */
	furca_raw(SYS_tee, fds->entries[reader].fd, ends[1], 1 << 30, 2 /* SPLICE_F_NONBLOCK */);
	if (access == O_RDWR) { /* a FIFO opened both ways */
		r = reopen(ends[0], O_RDWR | (e->flags & O_NONBLOCK));
		furca_raw_close(ends[0]);
		furca_raw_close(ends[1]);
		return r < 0 ? furca_fds_bury(fds, i, false) : furca_fds_put(fds, i, (int)r);
	}
	furca_raw(SYS_fcntl, ends[0], F_SETFL, fds->entries[reader].flags & O_NONBLOCK);
	r = furca_fds_put(fds, reader, ends[0]);
	if (r == 0 && writer < fds->n) {
		furca_raw(SYS_fcntl, ends[1], F_SETFL, fds->entries[writer].flags & (O_NONBLOCK | O_DIRECT));
		r = furca_fds_put(fds, writer, ends[1]);
	} else {
		furca_raw_close(ends[1]);
	}
	return (int)r;
}

/* ---- counters and timers ----------------------------------------------------------------------------------------- */

static unsigned long number_after(const struct furca_fds *fds, const char *key, unsigned base)
{
	const char *at = furca_raw_after(fds->text, key);

	return at ? furca_raw_number(&at, base) : 0;
}

int furca_fds_event(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	uint64_t count = 0;
	bool semaphore = false;

	if (info(fds, e->fd) > 0) {
		count = number_after(fds, "eventfd-count:", 16);
		semaphore = number_after(fds, "eventfd-semaphore:", 10) != 0;
	}
	long fd =
		furca_raw(SYS_eventfd2, 0,
			  EFD_CLOEXEC | (semaphore ? EFD_SEMAPHORE : 0) | ((e->flags & O_NONBLOCK) ? EFD_NONBLOCK : 0));
	if (fd < 0)
		return (int)fd;
	if (count)
		furca_raw(SYS_write, fd, &count, sizeof(count));
	return furca_fds_put(fds, i, (int)fd);
}

int furca_fds_timer(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	struct itimerspec timer = {{0, 0}, {0, 0}};
	unsigned long clock = CLOCK_MONOTONIC, expired = 0;

	if (info(fds, e->fd) > 0) {
		clock = number_after(fds, "clockid:", 10);
		expired = number_after(fds, "ticks:", 10);
	}
	long fd = furca_raw(SYS_timerfd_create, clock, TFD_CLOEXEC | ((e->flags & O_NONBLOCK) ? TFD_NONBLOCK : 0));
	if (fd < 0)
		return furca_fds_bury(fds, i, false);
	furca_raw(SYS_timerfd_gettime, e->fd, &timer);
	if (expired) /* unread: the new one expires at once, too */
		timer.it_value = (struct timespec){0, 1};
	furca_raw(SYS_timerfd_settime, fd, 0, &timer, NULL);
	return furca_fds_put(fds, i, (int)fd);
}

int furca_fds_signal(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	uint64_t mask = info(fds, e->fd) > 0 ? number_after(fds, "sigmask:", 16) : 0;
	long fd = furca_raw(SYS_signalfd4, -1, &mask, sizeof(mask),
			    SFD_CLOEXEC | ((e->flags & O_NONBLOCK) ? SFD_NONBLOCK : 0));

	return fd < 0 ? (int)fd : furca_fds_put(fds, i, (int)fd);
}

/* ---- epoll ------------------------------------------------------------------------------------------------------- */

/* One line of fdinfo: "tfd: 5 events: 19 data: 5 …". What cannot be watched any more (EBADF, EPERM) is left out. */
static void watch(int epoll, const char *line)
{
	const char *fd = furca_raw_after(line, "tfd:"), *events = furca_raw_after(line, "events:"),
		   *data = furca_raw_after(line, "data:");
	struct epoll_event event;

	if (!fd || !events || !data)
		return;
	event.events = (uint32_t)furca_raw_number(&events, 16);
	event.data.u64 = furca_raw_number(&data, 16);
	furca_raw(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, furca_raw_number(&fd, 10), &event);
}

/* Reads the fdinfo of `from` line by line, however long it is. */
static void refill(struct furca_fds *fds, int from, int to)
{
	char path[64];
	long file = furca_raw_open(fd_path(path, "/proc/self/fdinfo/", from), O_RDONLY), n;
	size_t have = 0;

	while (file >= 0 && (n = furca_raw(SYS_read, file, fds->text + have, sizeof(fds->text) - 1 - have)) > 0) {
		char *line = fds->text, *end;

		have += (size_t)n;
		fds->text[have] = '\0';
		while ((end = memchr(line, '\n', have - (size_t)(line - fds->text)))) {
			*end = '\0';
			watch(to, line);
			line = end + 1;
		}
		have -= (size_t)(line - fds->text);
		memmove(fds->text, line, have);
	}
	if (file >= 0)
		furca_raw_close(file);
}

int furca_fds_epolls(struct furca_fds *fds)
{
	/* First all of them, empty, with the old ones set aside: one may watch another. */
	for (size_t i = 0; i < fds->n; i++) {
		struct furca_fds_entry *e = &fds->entries[i];

		if (e->kind != FURCA_FDS_EPOLL || e->first != (int)i)
			continue;
		e->saved = (int)furca_raw(SYS_fcntl, e->fd, F_DUPFD_CLOEXEC, 3);
		long fd = e->saved < 0 ? e->saved : furca_raw(SYS_epoll_create1, EPOLL_CLOEXEC);
		int r = fd < 0 ? (int)fd : furca_fds_put(fds, i, (int)fd);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < fds->n; i++) {
		struct furca_fds_entry *e = &fds->entries[i];

		if (e->saved < 0)
			continue;
		refill(fds, e->saved, e->fd);
		furca_raw_close(e->saved);
		e->saved = -1;
	}
	return 0;
}
