#include "snapshot/fds.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "bridge/wire/host.h"
#include "snapshot/fds_remake.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define SPARE 256		/* descriptors that may be opened between planning and the census */
#define FEW 256			/* descriptors, for comparing each with each */
#define F_DUPFD_SAME (1024 + 3) /* F_DUPFD_QUERY, Linux 6.10: whether two numbers share one description */

struct dirent_raw {
	uint64_t ino;
	int64_t off;
	unsigned short size;
	unsigned char type;
	char name[];
};

/* Calls fn for each number in the directory of descriptors. Raw. */
static long each_listed(struct furca_fds *fds, int listing, int (*fn)(struct furca_fds *fds, int fd))
{
	long n;

	furca_raw(SYS_lseek, listing, 0, SEEK_SET);
	while ((n = furca_raw(SYS_getdents64, listing, fds->text, sizeof(fds->text))) > 0) {
		const struct dirent_raw *entry;

		for (long at = 0; at < n; at += entry->size) {
			const char *name;
			int r;

			entry = (const struct dirent_raw *)(const void *)(fds->text + at);
			name = entry->name;
			if (*name < '0' || *name > '9')
				continue;
			r = fn(fds, (int)furca_raw_number(&name, 10));
			if (r < 0)
				return r;
		}
	}
	return n;
}

static int count_one(struct furca_fds *fds, int fd)
{
	(void)fd;
	fds->room++;
	return 0;
}

static int compare_int(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int copy_list(int **ret, const int *list, size_t n)
{
	*ret = malloc((n + 1) * sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	if (n)
		memcpy(*ret, list, n * sizeof(*list));
	qsort(*ret, n, sizeof(**ret), compare_int);
	return 0;
}

static int hide(int fd)
{
	struct furca_fd own = furca_fd_own(fd), high = FURCA_FD_NONE;

	if (fd < 0)
		return -errno;
	/* Where the limit is low there is no high number; any will do then. */
	if (furca_fd_dup(fd, FURCA_HIDDEN_FD, &high) < 0)
		return fd;
	furca_fd_done(&own);
	return high.n;
}

int furca_fds_plan(struct furca_fds *fds, const int *keep, size_t n_keep, const int *drop, size_t n_drop,
		   struct furca_err *err)
{
	fds->listing = fds->netlink = fds->dead_socket = fds->dead_path = -1;
	fds->n_keep = n_keep;
	fds->n_drop = n_drop;
	if (copy_list(&fds->keep, keep, n_keep) < 0 || copy_list(&fds->drop, drop, n_drop) < 0)
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "cannot plan the descriptors of a clone");
	fds->listing = hide(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fds->listing < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -fds->listing, "cannot list the open descriptors");
	/* Asked in the clone, it still answers for the original's network, where socket pairs were made. */
	fds->netlink = hide(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
	long r = each_listed(fds, fds->listing, count_one);
	fds->room += SPARE;
	fds->entries = r < 0 ? NULL : calloc(fds->room, sizeof(*fds->entries));
	fds->order = r < 0 ? NULL : calloc(fds->room, sizeof(*fds->order));
	if (!fds->entries || !fds->order)
		return furca_fail(err, FURCA_E_MEMORY, r < 0 ? (int)-r : ENOMEM,
				  "cannot plan the descriptors of a clone");
	return 0;
}

void furca_fds_free(struct furca_fds *fds)
{
	if (fds->listing > 0)
		(void)close(fds->listing);
	if (fds->netlink > 0)
		(void)close(fds->netlink);
	fds->listing = fds->netlink = -1;
	free(fds->entries);
	free(fds->order);
	free(fds->keep);
	free(fds->drop);
	fds->entries = NULL;
	fds->order = NULL;
	fds->keep = fds->drop = NULL;
}

static bool listed(const int *list, size_t n, int fd)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (list[middle] == fd)
			return true;
		if (list[middle] < fd)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int take_one(struct furca_fds *fds, int fd)
{
	size_t at = fds->n;

	if (fd == fds->listing || fd == fds->netlink || listed(fds->drop, fds->n_drop, fd))
		return 0;
	if (fds->n == fds->room)
		return -EMFILE;
	/* /proc lists them in order, but nobody promised. */
	for (; at > 0 && fds->entries[at - 1].fd > fd; at--)
		fds->entries[at] = fds->entries[at - 1];
	fds->entries[at] = (struct furca_fds_entry){.fd = fd, .saved = -1};
	fds->n++;
	return 0;
}

int furca_fds_census(struct furca_fds *fds)
{
	fds->n = 0;
	return (int)each_listed(fds, fds->listing, take_one);
}

void furca_fds_drop(struct furca_fds *fds)
{
	for (size_t i = 0; i < fds->n_drop; i++)
		if (!listed(fds->keep, fds->n_keep, fds->drop[i]))
			furca_raw_close(fds->drop[i]);
	if (fds->listing >= 0)
		furca_raw_close(fds->listing);
	fds->listing = -1;
}

/* What is not in the census is not ours: the number was taken by the clone's own making. */
static void close_gaps(const struct furca_fds *fds)
{
	unsigned from = 0;

	for (size_t i = 0; i <= fds->n; i++) {
		unsigned to = i < fds->n ? (unsigned)fds->entries[i].fd : ~0U;

		/* The netlink socket lies in one of the gaps and is needed for a while. */
		if (fds->netlink >= 0 && (unsigned)fds->netlink >= from && (unsigned)fds->netlink < to) {
			if ((unsigned)fds->netlink > from)
				furca_raw(SYS_close_range, from, fds->netlink - 1, 0);
			from = (unsigned)fds->netlink + 1;
		}
		if (i == fds->n)
			furca_raw(SYS_close_range, from, to, 0);
		else if (to > from)
			furca_raw(SYS_close_range, from, to - 1, 0);
		from = to + 1;
	}
}

static uint8_t kind_of_link(const struct furca_fds_entry *e, const char *link)
{
	static const struct {
		const char *link;
		uint8_t kind;
	} anonymous[] = {{"anon_inode:[eventfd]", FURCA_FDS_EVENT},
			 {"anon_inode:[timerfd]", FURCA_FDS_TIMER},
			 {"anon_inode:[signalfd]", FURCA_FDS_SIGNAL},
			 {"anon_inode:[eventpoll]", FURCA_FDS_EPOLL}};

	if (link[0] != '/') {
		for (size_t i = 0; i < FURCA_COUNT(anonymous); i++)
			if (furca_raw_same(link, anonymous[i].link))
				return anonymous[i].kind;
		return FURCA_FDS_OTHER;
	}
	if (e->flags & O_PATH)
		return FURCA_FDS_DIRECTORY;
	if (S_ISDIR(e->mode))
		return FURCA_FDS_DIRECTORY;
	if (S_ISREG(e->mode))
		return e->links == 0 ? FURCA_FDS_GONE : FURCA_FDS_FILE;
	return S_ISCHR(e->mode) ? FURCA_FDS_DEVICE : FURCA_FDS_OTHER;
}

static void classify(struct furca_fds *fds, struct furca_fds_entry *e)
{
	struct stat st;

	e->kind = FURCA_FDS_OTHER;
	if (listed(fds->keep, fds->n_keep, e->fd)) {
		e->kind = FURCA_FDS_KEEP;
		e->done = true;
		return;
	}
	e->flags = (int)furca_raw(SYS_fcntl, e->fd, F_GETFL);
	e->cloexec = (furca_raw(SYS_fcntl, e->fd, F_GETFD) & FD_CLOEXEC) != 0;
	if (e->flags < 0 || furca_raw(SYS_fstat, e->fd, &st) < 0)
		return;
	e->dev = st.st_dev;
	e->ino = st.st_ino;
	e->mode = st.st_mode;
	e->links = st.st_nlink;
	e->size = st.st_size;
	e->device = st.st_rdev;
	e->mtime = st.st_mtim;
	if (!(e->flags & O_PATH) && S_ISSOCK(st.st_mode))
		e->kind = FURCA_FDS_SOCKET;
	else if (!(e->flags & O_PATH) && S_ISFIFO(st.st_mode))
		e->kind = FURCA_FDS_PIPE;
	else if (furca_fds_link(fds, e->fd) > 0)
		e->kind = kind_of_link(e, fds->path);
	e->adrift = e->kind == FURCA_FDS_DIRECTORY && !furca_fds_leads_back(fds, e);
}

static bool same_description(int pid, int a, int b)
{
	long r = furca_raw(SYS_fcntl, a, F_DUPFD_SAME, b);

	return r >= 0 ? r == 1 : furca_raw(SYS_kcmp, pid, pid, KCMP_FILE, a, b) == 0;
}

/* Each with each, which for a few is the least. */
static void group_pairs(struct furca_fds *fds, int pid)
{
	for (size_t i = 0; i < fds->n; i++) {
		struct furca_fds_entry *e = &fds->entries[i];

		e->first = (int)i;
		for (size_t k = 0; k < i && e->kind != FURCA_FDS_KEEP; k++) {
			const struct furca_fds_entry *f = &fds->entries[k];

			if (f->first == (int)k && f->kind == e->kind && f->ino == e->ino && f->dev == e->dev &&
			    f->flags == e->flags && same_description(pid, f->fd, e->fd)) {
				e->first = (int)k;
				break;
			}
		}
	}
}

/* The kernel has an order of descriptions. -1, 0, 1, or 2 where it does not tell. */
static int compare_descriptions(int pid, const struct furca_fds_entry *a, const struct furca_fds_entry *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	if (a->dev != b->dev)
		return a->dev < b->dev ? -1 : 1;
	if (a->flags != b->flags)
		return a->flags < b->flags ? -1 : 1;
	long r = furca_raw(SYS_kcmp, pid, pid, KCMP_FILE, a->fd, b->fd);

	return r == 0 ? 0 : r == 1 ? -1 : r == 2 ? 1 : 2;
}

/* As compare_descriptions, the lower number first among those of one description. */
static int compare_places(struct furca_fds *fds, int pid, int a, int b)
{
	int r = compare_descriptions(pid, &fds->entries[a], &fds->entries[b]);

	return r ? r : a < b ? -1 : a > b;
}

/* Lets what is at `at` of a heap of `n` sink to its place (qsort may allocate, which a clone here must not). False where the kernel does not tell the order. */
static bool sink(struct furca_fds *fds, int pid, size_t at, size_t n)
{
	int *order = fds->order;

	for (size_t child; (child = 2 * at + 1) < n; at = child) {
		int r = child + 1 < n ? compare_places(fds, pid, order[child], order[child + 1]) : 1;

		if (r == 2)
			return false;
		if (r < 0)
			child++;
		r = compare_places(fds, pid, order[at], order[child]);
		if (r == 2)
			return false;
		if (r > 0)
			break;
		int low = order[at];
		order[at] = order[child];
		order[child] = low;
	}
	return true;
}

/* Sorted, so that those of one description stand side by side. False where that cannot be had. */
static bool group_sorted(struct furca_fds *fds, int pid)
{
	int *order = fds->order;

	for (size_t i = 0; i < fds->n; i++)
		order[i] = (int)i;
	for (size_t i = fds->n / 2; i-- > 0;)
		if (!sink(fds, pid, i, fds->n))
			return false;
	for (size_t n = fds->n; n-- > 1;) {
		int highest = order[0];

		order[0] = order[n];
		order[n] = highest;
		if (!sink(fds, pid, 0, n))
			return false;
	}
	for (size_t i = 0; i < fds->n; i++) {
		struct furca_fds_entry *e = &fds->entries[order[i]];
		const struct furca_fds_entry *before = i > 0 ? &fds->entries[order[i - 1]] : NULL;
		int r = before && e->kind != FURCA_FDS_KEEP ? compare_descriptions(pid, before, e) : 1;

		if (r == 2)
			return false;
		e->first = r == 0 ? before->first : order[i];
	}
	return true;
}

/* Finds numbers that share one description. Only those of one inode and the same flags can. */
static void group(struct furca_fds *fds)
{
	int pid = (int)furca_raw(SYS_getpid);

	if (fds->n <= FEW || !group_sorted(fds, pid))
		group_pairs(fds, pid);
}

/* Terminals have two ends, and one sees that the other was closed. */
static bool is_pty(const struct furca_fds_entry *e)
{
	return S_ISCHR(e->mode) && ((major(e->device) >= 136 && major(e->device) <= 143) || e->device == makedev(5, 2));
}

/* Whether a pipe leads to where descriptor 1 or 2 leads: to the engine, which does not wait for its end. */
static bool is_output(const struct furca_fds *fds, const struct furca_fds_entry *e)
{
	for (size_t i = 0; i < fds->n && fds->entries[i].fd <= 2; i++)
		if (fds->entries[i].fd >= 1 && fds->entries[i].ino == e->ino && fds->entries[i].dev == e->dev)
			return true;
	return false;
}

static bool kept_standing(const struct furca_fds *fds, const struct furca_fds_entry *e)
{
	switch ((enum furca_fd_kind)e->kind) {
	case FURCA_FDS_KEEP:
	case FURCA_FDS_GONE:
	case FURCA_FDS_DIRECTORY:
	case FURCA_FDS_OTHER:
		return true;
	case FURCA_FDS_DEVICE:
		return !is_pty(e);
	case FURCA_FDS_PIPE:
		return is_output(fds, e);
	case FURCA_FDS_FILE:
	case FURCA_FDS_SOCKET:
	case FURCA_FDS_EVENT:
	case FURCA_FDS_TIMER:
	case FURCA_FDS_SIGNAL:
	case FURCA_FDS_EPOLL:
		break;
	}
	return false;
}

static int remake(struct furca_fds *fds, size_t i)
{
	struct furca_fds_entry *e = &fds->entries[i];

	if (fds->standing && kept_standing(fds, e)) {
		e->done = true;
		return 0;
	}
	switch ((enum furca_fd_kind)e->kind) {
	case FURCA_FDS_KEEP:
	case FURCA_FDS_EPOLL:
		return 0;
	case FURCA_FDS_FILE:
	case FURCA_FDS_GONE:
		return furca_fds_file(fds, i);
	case FURCA_FDS_DIRECTORY:
		return furca_fds_directory(fds, i);
	case FURCA_FDS_DEVICE:
		return furca_fds_device(fds, i);
	case FURCA_FDS_PIPE:
		return furca_fds_pipe(fds, i);
	case FURCA_FDS_SOCKET:
		return furca_fds_socket(fds, i);
	case FURCA_FDS_EVENT:
		return furca_fds_event(fds, i);
	case FURCA_FDS_TIMER:
		return furca_fds_timer(fds, i);
	case FURCA_FDS_SIGNAL:
		return furca_fds_signal(fds, i);
	case FURCA_FDS_OTHER:
		break;
	}
	return furca_fds_bury(fds, i, false);
}

static bool opens_for_writing(const struct furca_fds_entry *e)
{
	return e->kind == FURCA_FDS_FILE && (e->flags & O_ACCMODE) != O_RDONLY;
}

/* One pass over the descriptions that are not done yet and match. */
static int pass(struct furca_fds *fds, bool writers_only)
{
	for (size_t i = 0; i < fds->n; i++) {
		struct furca_fds_entry *e = &fds->entries[i];

		if (e->done || e->first != (int)i || (writers_only && !opens_for_writing(e)))
			continue;
		int r = remake(fds, i);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Code may have lowered its limit below numbers that are open, and the host has some high ones: nothing could be put in their place. Raises it as far as
 * may be, for the while. *ret_own: what to give back.
 */
static void widen_limit(const struct furca_fds *fds, struct rlimit *ret_own)
{
	struct rlimit wide;
	rlim_t want = (fds->n > 0 ? (rlim_t)fds->entries[fds->n - 1].fd : 0) + SPARE;

	if (furca_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, ret_own) < 0 || ret_own->rlim_cur >= want) {
		ret_own->rlim_cur = RLIM_INFINITY;
		return;
	}
	wide = (struct rlimit){want, FURCA_MAX(want, ret_own->rlim_max)};
	if (furca_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, &wide, 0) == 0)
		return;
	wide.rlim_cur = wide.rlim_max = ret_own->rlim_max;
	furca_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, &wide, 0);
}

static void give_limit_back(const struct rlimit *own)
{
	if (own->rlim_cur != RLIM_INFINITY)
		furca_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, own, 0);
}

static int privatise(struct furca_fds *fds)
{
	int r;

	close_gaps(fds);
	for (size_t i = 0; i < fds->n; i++)
		classify(fds, &fds->entries[i]);
	group(fds);
	/* Writers first: a file that is opened for writing moves to the upper layer, and readers opened later follow it there. */
	r = pass(fds, true);
	if (r == 0)
		r = pass(fds, false);
	if (r == 0)
		r = furca_fds_epolls(fds);
	for (int i = 0; i < 2; i++) {
		int *fd = i ? &fds->dead_socket : &fds->dead_path;

		if (*fd >= 0)
			furca_raw_close(*fd);
		*fd = -1;
	}
	if (fds->netlink >= 0)
		furca_raw_close(fds->netlink);
	fds->netlink = -1;
	return r;
}

int furca_fds_privatise(struct furca_fds *fds)
{
	struct rlimit own;

	widen_limit(fds, &own);
	int r = privatise(fds);
	give_limit_back(&own);
	return r;
}

int furca_fds_find(const struct furca_fds *fds, dev_t dev, ino_t ino)
{
	for (size_t i = 0; i < fds->n; i++) {
		const struct furca_fds_entry *e = &fds->entries[i];

		if (e->writable_copy && e->dev == dev && e->ino == ino)
			return e->fd;
	}
	return -1;
}
