/*
 * The disk of a cell: every mount that holds files becomes an overlay whose upper layer is a bounded tmpfs and is thrown away
 * with the cell. New /proc (read-only), private /dev, read-only /sys. For a cell's init only: single-threaded, in a mount
 * namespace of its own, before anything else runs in the cell. What was written is listed by snapshot/changes.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fd.h"
#include "snapshot/upper.h"

struct furca_overlay_args {
	bool user_namespace; /* ours is not the first: no trusted.* attributes, mounts that came along are locked */
	bool new_proc; /* the pid namespace is new: a /proc of its own, else a read-only view of the present one */
	bool new_ipc;  /* the ipc namespace is new: a /dev/mqueue of its own */
	uint64_t upper_bytes; /* bound of everything written, 0: 2 GiB */
	const char *const
		*places;  /* NULL-terminated: absolute paths that must be writable where copying a foreign directory up
				       would fail (user namespace); NULL: none */
	const void *mark; /* bytes for /dev/.furca */
	size_t mark_size;
};

/* One overlay: where it stands, and its two layers, held open. */
struct furca_layer {
	char *at; /* its mount point inside the cell */
	struct furca_fd lower, upper;
	bool writable;
};

/*
 * A directory of the new root that no mount covers: one that was rebuilt around mount points, or stands where something is left out. What is written there
 * stays in it.
 */
struct furca_rebuilt {
	char *at;
	struct furca_fd dir; /* shows what it holds itself, not what is mounted there */
	mode_t mode;
	struct furca_buf entries; /* of struct furca_upper_entry, as it was built */
};

struct furca_overlay {
	struct furca_layer *layers;
	size_t n;
	struct furca_rebuilt *rebuilt;
	size_t n_rebuilt;
	struct furca_upper upper; /* of all of them */
	uint64_t mark;		  /* of that, before anything ran here */
	size_t left_out; /* mounts that cannot be shown safely; the cell has empty directories in their place */
	bool user_namespace;
};

/*
 * Builds the tree and makes it the root of this mount namespace. *ret is freed with furca_overlay_done. 0 or -errno; on failure the
 * namespace is of no use any more.
 */
int furca_overlay_build(const struct furca_overlay_args *args, struct furca_overlay *ret, struct furca_err *err);
void furca_overlay_done(struct furca_overlay *overlay);
