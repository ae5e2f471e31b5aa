/*
 * What stands mounted here, and the few mount operations a cell needs. For a cell's init only: single-threaded, inside a
 * mount namespace of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/fd.h"

enum furca_mount_kind {
	FURCA_MOUNT_FILES, /* holds files of people: needs an overlay */
	FURCA_MOUNT_PROC,
	FURCA_MOUNT_KERNEL, /* a window on the kernel or on devices: a cell has its own, a read-only view, or none */
};

struct furca_mount {
	uint64_t id;
	char *at; /* mount point */
	enum furca_mount_kind kind;
	bool read_only, noexec;
};

struct furca_mounts {
	struct furca_mount *list; /* in the order of mounting: parents before children */
	size_t n;
};

/* The mounts that can be seen from here (one that lies under another is left out). 0 or -errno; furca_mounts_done. */
int furca_mounts_read(struct furca_mounts *ret, struct furca_err *err);
void furca_mounts_done(struct furca_mounts *mounts);

/* Whether `path` is `dir` or lies below it. */
bool furca_path_below(const char *path, const char *dir);
/* Whether a mount point lies below `dir` (not counting `dir` itself), or is exactly `path`. */
bool furca_mounts_below(const struct furca_mounts *mounts, const char *dir);
bool furca_mounts_at(const struct furca_mounts *mounts, const char *path);

/* Bits for furca_mount_tree. */
#define FURCA_TREE_READ_ONLY 1U
#define FURCA_TREE_NOSUID 2U
#define FURCA_TREE_NODEV 4U

/*
 * Copies the mount at `path` (with those below it, if `recursive`) into a detached tree with these attributes added; attach with
 * furca_mount_attach. 0 or -errno.
 */
int furca_mount_tree(const char *path, bool recursive, unsigned attributes, struct furca_fd *ret);
int furca_mount_attach(int tree, const char *at);

/*
 * A private /dev at `dev` (an existing directory): null, zero, full, random, urandom, tty, pts of its own, links; `shm` is an
 * empty directory, filled by a private tmpfs where `own_shm`. mqueue where the ipc namespace is new. `nodes` says that device
 * nodes can be made; else those of the present /dev are bound. `mark`: bytes for the file ".furca". Read-only at the end.
 */
struct furca_dev {
	bool nodes, own_shm, mqueue;
	const void *mark;
	size_t mark_size;
};
int furca_mount_dev(const char *dev, const struct furca_dev *how, struct furca_err *err);
