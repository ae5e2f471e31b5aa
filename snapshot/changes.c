#include "snapshot/changes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/banned.h"

#define MAX_DEPTH 200 /* of directories; a deeper tree counts as one change at that depth */

struct listing {
	const struct furca_overlay *overlay;
	uint64_t max, count;
	furca_change_fn *fn;
	void *data;
	char path[8192];
};

static void tell(struct listing *listing, enum furca_change change)
{
	if (listing->count++ < listing->max)
		listing->fn(listing->data, change, listing->path);
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

static bool same_file(const struct stat *a, const struct stat *b)
{
	if (a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		return false;
	if (S_ISDIR(a->st_mode))
		return true;
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void walk(struct listing *listing, int upper, int lower, int depth);

/* A directory that is new, and all that it holds. */
static void added(struct listing *listing, int upper, const char *name, int depth)
{
	FURCA_AUTO_FD struct furca_fd up =
		furca_fd_own(openat(upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

	tell(listing, FURCA_CHANGE_ADDED);
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

/* In a user namespace directories may be ours, without the special bits, because we made them beforehand (overlay.c). */
static void entry(struct listing *listing, int upper, int lower, const char *name, int depth)
{
	struct stat up, low;
	size_t n = strlen(listing->path);
	int put = snprintf(listing->path + n, sizeof(listing->path) - n, "/%s", name);
	bool below = lower >= 0 && fstatat(lower, name, &low, AT_SYMLINK_NOFOLLOW) == 0;

	if (put > 0 && (size_t)put < sizeof(listing->path) - n && fstatat(upper, name, &up, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISCHR(up.st_mode) && up.st_rdev == makedev(0, 0)) { /* a whiteout */
			if (below)
				tell(listing, FURCA_CHANGE_DELETED);
		} else if (!below && S_ISDIR(up.st_mode)) {
			added(listing, upper, name, depth);
		} else if (!below) {
			tell(listing, FURCA_CHANGE_ADDED);
		} else if (S_ISDIR(up.st_mode) && S_ISDIR(low.st_mode)) {
			if (listing->overlay->user_namespace ? (up.st_mode ^ low.st_mode) & 0777
							     : !same_file(&up, &low))
				tell(listing, FURCA_CHANGE_MODIFIED);
			merged(listing, upper, lower, name, depth);
		} else if (!same_file(&up, &low)) {
			tell(listing, FURCA_CHANGE_MODIFIED);
		}
	}
	listing->path[n] = '\0';
}

static void walk(struct listing *listing, int upper, int lower, int depth)
{
	int fd = fcntl(upper, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			entry(listing, upper, lower, e->d_name, depth);
	(void)closedir(dir);
}

uint64_t furca_changes_list(const struct furca_overlay *overlay, uint64_t max, furca_change_fn *fn, void *data)
{
	struct listing listing = {.overlay = overlay, .max = max, .fn = fn, .data = data};

	for (size_t i = 0; i < overlay->n; i++) {
		const struct furca_layer *layer = &overlay->layers[i];

		if (!layer->writable ||
		    snprintf(listing.path, sizeof(listing.path), "%s", strcmp(layer->at, "/") == 0 ? "" : layer->at) >=
			    (int)sizeof(listing.path) / 2)
			continue;
		walk(&listing, layer->upper.n, layer->lower.n, 0);
	}
	return listing.count;
}
