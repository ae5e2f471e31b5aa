#include "snapshot/changes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"

#include "base/banned.h"

#define MAX_DEPTH 200	    /* of directories; a deeper tree counts as one change at that depth */
#define COMPARED_US 2000000 /* for all contents together: a call waits for its list */

struct listing {
	const struct furca_overlay *overlay;
	uint64_t max, count;
	int64_t compared_until; /* what is not compared by then counts as modified */
	furca_change_fn *fn;
	void *data;
	size_t top; /* length of the layer's own path */
	char path[8192];
};

static void tell(struct listing *listing, enum furca_change change)
{
	if (listing->count++ < listing->max)
		listing->fn(listing->data, change, listing->path[0] ? listing->path : "/");
}

/* Makes the path that of an entry; its end before that is returned, or 0 where it is too long. */
static size_t step(struct listing *listing, const char *name)
{
	size_t n = strlen(listing->path);
	int put = snprintf(listing->path + n, sizeof(listing->path) - n, "/%s", name);

	if (put > 0 && (size_t)put < sizeof(listing->path) - n)
		return n + 1;
	listing->path[n] = '\0';
	return 0;
}

/* The value's first byte of an attribute of overlayfs, or 0. */
static char mark_of(const struct listing *listing, int fd, const char *name)
{
	char full[64], value[256];

	(void)snprintf(full, sizeof(full), "%s.overlay.%s", listing->overlay->user_namespace ? "user" : "trusted",
		       name);
	ssize_t n = fgetxattr(fd, full, value, sizeof(value));
	return n > 0 ? value[0] : n == 0 || errno == ERANGE ? 1 : 0;
}

/* Attributes that code sets, and lists of access. Those of overlayfs and of the system are not compared: a copy may lack them. */
static bool is_compared(const char *name)
{
	return (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0) ||
	       strncmp(name, "system.posix_acl_", 17) == 0;
}

/* Whether `b` has all attributes of `a`. Where its file system has none at all, it is not known to differ. */
static bool has_attributes(int a, int b)
{
	static char names[65536], values[2][65536]; /* the kernel's bounds */
	ssize_t n = flistxattr(a, names, sizeof(names));

	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		if (!is_compared(name))
			continue;
		ssize_t size = fgetxattr(a, name, values[0], sizeof(values[0]));
		ssize_t other = fgetxattr(b, name, values[1], sizeof(values[1]));
		if (other < 0 && errno == EOPNOTSUPP)
			continue;
		if (size >= 0 && (other != size || memcmp(values[0], values[1], (size_t)size) != 0))
			return false;
	}
	return true;
}

/* Where the next bytes are that are not a hole in both; `size` where there are none. */
static off_t next_data(int a, int b, off_t at, off_t size)
{
	off_t next = size;

	for (int side = 0; side < 2; side++) {
		off_t data = lseek(side ? b : a, at, SEEK_DATA);

		if (data < 0 && errno != ENXIO)
			return at; /* not every file system tells */
		if (data >= 0 && data < next)
			next = data;
	}
	return next;
}

/* Two files of the same size. */
static bool same_bytes(const struct listing *listing, int a, int b, off_t size)
{
	static char bytes[2][65536];

	for (off_t at = 0; (at = next_data(a, b, at, size)) < size;) {
		ssize_t n = pread(a, bytes[0], sizeof(bytes[0]), at);

		if (n <= 0 || pread(b, bytes[1], sizeof(bytes[1]), at) != n ||
		    memcmp(bytes[0], bytes[1], (size_t)n) != 0 || furca_now_us() > listing->compared_until)
			return false;
		at += n;
	}
	return true;
}

/* Without a trace: nobody has read it. Directories of others refuse that, and need it only where they are listed. */
static struct furca_fd open_quietly(int dir, const char *name, bool directory)
{
	return furca_fd_own(openat(
		dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (directory ? O_DIRECTORY : O_NOATIME)));
}

/* Whether an upper file without data has that of the file below: it may have been renamed, or linked, which notes a way to the same. */
static bool own_data_below(const struct listing *listing, int fd, const char *name)
{
	char full[64], to[4096];

	(void)snprintf(full, sizeof(full), "%s.overlay.redirect",
		       listing->overlay->user_namespace ? "user" : "trusted");
	ssize_t n = fgetxattr(fd, full, to, sizeof(to) - 1);
	if (n < 0)
		return errno == ENODATA;
	to[n] = '\0';
	return strcmp(to, to[0] == '/' ? listing->path + listing->top : name) == 0;
}

/* The content and attributes of two files or directories that look the same: times can be set back. */
static bool same_inside(const struct listing *listing, int upper, int lower, const char *name, bool directory,
			off_t size)
{
	FURCA_AUTO_FD struct furca_fd up = open_quietly(upper, name, directory);
	FURCA_AUTO_FD struct furca_fd low = open_quietly(lower, name, directory);
	/* Not so those that were made with the cell, which have no attributes: a layer's top, and in a user namespace others. */
	bool copied = !directory || (!listing->overlay->user_namespace && strcmp(name, ".") != 0);

	if (up.n < 0 || low.n < 0)
		return directory; /* a user namespace's directory of somebody else: its mode was compared */
	if (!has_attributes(up.n, low.n) || (copied && !has_attributes(low.n, up.n)))
		return false;
	if (directory)
		return true;
	if (mark_of(listing, up.n, "metacopy"))
		return own_data_below(listing, up.n, name);
	return same_bytes(listing, up.n, low.n, size);
}

static bool same_link(int upper, int lower, const char *name)
{
	char to[2][4096];
	ssize_t n = readlinkat(upper, name, to[0], sizeof(to[0]));

	return n >= 0 && readlinkat(lower, name, to[1], sizeof(to[1])) == n && memcmp(to[0], to[1], (size_t)n) == 0;
}

/* In a user namespace directories may be ours, without the special bits, because we made them beforehand (overlay.c). */
static bool same_directory(const struct listing *listing, const struct stat *a, const struct stat *b)
{
	return listing->overlay->user_namespace
		       ? ((a->st_mode ^ b->st_mode) & 0777) == 0
		       : a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

static bool same_file(const struct listing *listing, int upper, const struct stat *a, int lower, const struct stat *b,
		      const char *name)
{
	if (S_ISDIR(a->st_mode) && S_ISDIR(b->st_mode))
		return same_directory(listing, a, b) && same_inside(listing, upper, lower, name, true, 0);
	if (a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid || a->st_size != b->st_size ||
	    a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec)
		return false;
	if (S_ISLNK(a->st_mode))
		return same_link(upper, lower, name);
	return S_ISREG(a->st_mode) ? same_inside(listing, upper, lower, name, false, a->st_size)
				   : a->st_rdev == b->st_rdev;
}

static void walk(struct listing *listing, int upper, int lower, int depth);

/* A directory that is new, and all that it holds. */
static void added(struct listing *listing, int upper, const char *name, int depth)
{
	FURCA_AUTO_FD struct furca_fd up =
		furca_fd_own(openat(upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	tell(listing, FURCA_CHANGE_ADDED); /* also where it cannot be opened */
	if (up.n >= 0 && depth < MAX_DEPTH)
		walk(listing, up.n, -1, depth + 1);
}

/* A directory that is in both layers. An opaque one was deleted and made again: what it held is gone. */
static void merged(struct listing *listing, int upper, int lower, const char *name, int depth)
{
	FURCA_AUTO_FD struct furca_fd up =
		furca_fd_own(openat(upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	FURCA_AUTO_FD struct furca_fd low =
		furca_fd_own(openat(lower, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	if (up.n < 0 || low.n < 0 || depth >= MAX_DEPTH || mark_of(listing, up.n, "opaque") == 'y' ||
	    mark_of(listing, up.n, "redirect")) {
		tell(listing, FURCA_CHANGE_DELETED);
		added(listing, upper, name, depth);
		return;
	}
	walk(listing, up.n, low.n, depth + 1);
}

static void entry(struct listing *listing, int upper, int lower, const char *name, int depth)
{
	struct stat up, low;
	size_t end = step(listing, name);
	bool below = lower >= 0 && fstatat(lower, name, &low, AT_SYMLINK_NOFOLLOW) == 0;

	if (!end) {
		tell(listing, FURCA_CHANGE_MODIFIED); /* the directory, for what has no path that could be told */
	} else if (fstatat(upper, name, &up, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISCHR(up.st_mode) && up.st_rdev == makedev(0, 0)) { /* a whiteout */
			if (below)
				tell(listing, FURCA_CHANGE_DELETED);
		} else if (!below || S_ISDIR(up.st_mode) != S_ISDIR(low.st_mode)) {
			if (below)
				tell(listing, FURCA_CHANGE_DELETED);
			if (S_ISDIR(up.st_mode))
				added(listing, upper, name, depth);
			else
				tell(listing, FURCA_CHANGE_ADDED);
		} else {
			if (!same_file(listing, upper, &up, lower, &low, name))
				tell(listing, FURCA_CHANGE_MODIFIED);
			if (S_ISDIR(up.st_mode))
				merged(listing, upper, lower, name, depth);
		}
	}
	if (end)
		listing->path[end - 1] = '\0';
}

static void walk(struct listing *listing, int upper, int lower, int depth)
{
	int fd = fcntl(upper, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		tell(listing, FURCA_CHANGE_MODIFIED); /* what it holds cannot be told, but it is in the upper layer */
		return;
	}
	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			entry(listing, upper, lower, e->d_name, depth);
	(void)closedir(dir);
}

static bool same_entry(const struct stat *a, const struct stat *b)
{
	/* A directory is a mount's place, which stands as long as that, or listed for itself. */
	return S_ISDIR(a->st_mode)
		       ? S_ISDIR(b->st_mode)
		       : a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_size == b->st_size &&
				 a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static const struct furca_upper_entry *find(const struct furca_buf *entries, const char *name)
{
	const struct furca_upper_entry *e = (const struct furca_upper_entry *)(const void *)entries->data;

	for (size_t i = 0; i < entries->len / sizeof(*e); i++)
		if (strcmp(e[i].name, name) == 0)
			return &e[i];
	return NULL;
}

/* Of a directory that was made without any. */
static bool attributes_were_set(int dir)
{
	char names[4096];
	ssize_t n = flistxattr(dir, names, sizeof(names));

	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1)
		if (is_compared(name))
			return true;
	return n < 0 && errno == ERANGE;
}

/* Nothing is below such a directory; it is compared with what it held when it was built. */
static void rebuilt(struct listing *listing, const struct furca_rebuilt *was)
{
	FURCA_AUTO_BUF struct furca_buf now = FURCA_BUF_INIT;
	struct stat st;

	if ((fstat(was->dir.n, &st) == 0 && st.st_mode != was->mode) || attributes_were_set(was->dir.n))
		tell(listing, FURCA_CHANGE_MODIFIED);
	if (furca_upper_entries(was->dir.n, &now) < 0) {
		tell(listing, FURCA_CHANGE_MODIFIED);
		return;
	}
	const struct furca_buf *const both[] = {&was->entries, &now};
	for (size_t side = 0; side < FURCA_COUNT(both); side++) {
		const struct furca_upper_entry *e = (const struct furca_upper_entry *)(const void *)both[side]->data;

		for (size_t i = 0; i < both[side]->len / sizeof(*e); i++) {
			const struct furca_upper_entry *other = find(both[!side], e[i].name);
			size_t end = step(listing, e[i].name);

			if (!end)
				continue;
			if (side == 0 && !other)
				tell(listing, FURCA_CHANGE_DELETED);
			else if (side == 0 && !same_entry(&e[i].st, &other->st))
				tell(listing, FURCA_CHANGE_MODIFIED);
			else if (side == 1 && !other)
				added(listing, was->dir.n, e[i].name, 0);
			listing->path[end - 1] = '\0';
		}
	}
}

/* Its own attributes: those of what is mounted there. */
static void top(struct listing *listing, const struct furca_layer *layer)
{
	struct stat up, low;

	if (fstat(layer->upper.n, &up) == 0 && fstat(layer->lower.n, &low) == 0 &&
	    (!same_directory(listing, &up, &low) ||
	     !same_inside(listing, layer->upper.n, layer->lower.n, ".", true, 0)))
		tell(listing, FURCA_CHANGE_MODIFIED);
}

static bool begin(struct listing *listing, const char *at)
{
	at = strcmp(at, "/") == 0 ? "" : at;
	listing->top = strlen(at);
	return snprintf(listing->path, sizeof(listing->path), "%s", at) < (int)sizeof(listing->path) / 2;
}

uint64_t furca_changes_list(const struct furca_overlay *overlay, uint64_t max, furca_change_fn *fn, void *data)
{
	struct listing listing = {
		.overlay = overlay, .max = max, .compared_until = furca_now_us() + COMPARED_US, .fn = fn, .data = data};

	for (size_t i = 0; i < overlay->n_rebuilt; i++)
		if (begin(&listing, overlay->rebuilt[i].at))
			rebuilt(&listing, &overlay->rebuilt[i]);
	for (size_t i = 0; i < overlay->n; i++) {
		const struct furca_layer *layer = &overlay->layers[i];

		if (!layer->writable || !begin(&listing, layer->at))
			continue;
		top(&listing, layer);
		walk(&listing, layer->upper.n, layer->lower.n, 0);
	}
	return listing.count;
}
