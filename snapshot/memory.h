/*
 * Making a clone's shared mappings private, at the same addresses. Mappings that can never be written stay. Of the others:
 *
 *   of a file or memfd that fds.c has replaced   mapped anew, shared, from the private file: they stay one
 *   of a named file in an overlay, up to FURCA_FDS_COPY_UP   mapped anew, shared, from the cell's own copy of the file
 *   of memory (anonymous, memfd, SysV, POSIX), FURCA_MEMORY_COPY of it in all   a new shared mapping with the same content; of
 *             large ones only the pages that exist are copied and count (all, where swap is in use: what is swapped out does not show)
 *   of a larger file on disk   a private view: what others write to the file later can be seen, as on the disk, nothing is written
 *             through
 *   of more memory   the same, and `viewed` counts it: the barrier does not hold, for the original's later writes show
 *   of devices and rings   zeros, so that stray writes hurt nobody
 *
 * "Shared" is shared with children of the clone alone. For the clone while it has one thread; raw calls only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/fds.h"

#define FURCA_MEMORY_COPY ((uint64_t)256 << 20)

struct furca_memory {
	const void *skip; /* a mapping to be left alone, or NULL */
	uint64_t skip_size;
	const struct furca_fds *fds; /* after furca_fds_privatise; NULL: descriptors stay shared */
	unsigned copied;	     /* how many mappings were copied or mapped anew */
	unsigned viewed;	     /* how many follow the original, being too much to copy */
	uint64_t bytes;		     /* copied so far */
	uint64_t failed_at;	     /* where it failed */
	bool unreadable;	     /* for the kernel refuses to read it (memfd_secret) */
	char name[4352], text[16384];
};

/* 0 or -errno: a mapping at failed_at is still shared. */
int furca_memory_privatise(struct furca_memory *memory);
