/*
 * PROCMAP_QUERY (Linux 6.11) on a descriptor of /proc/PID/maps: finds the next shared mapping without listing all the others. Declared here, for the
 * headers may be older than the kernel. -1 with ENOTTY on an older kernel, ENOENT after the last one.
 */
#pragma once

#include <stdint.h>
#include <sys/ioctl.h>

struct furca_map_query {
	uint64_t size, flags, address, start, end, vma_flags, page_size, offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name, build_id;
};
#define FURCA_MAP_QUERY _IOWR('f', 17, struct furca_map_query)

/* Of `flags` and `vma_flags`; NEXT: the one at `address` or, where there is none, the first one behind it. */
enum {
	FURCA_MAP_READABLE = 1,
	FURCA_MAP_WRITABLE = 2,
	FURCA_MAP_EXECUTABLE = 4,
	FURCA_MAP_SHARED = 8,
	FURCA_MAP_NEXT = 16,
};
