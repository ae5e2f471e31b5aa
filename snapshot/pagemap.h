/* The calling process's private mappings, and what the kernel says of each page (/proc/self/pagemap, one word a page). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fd.h"

/* Of a word (Documentation/admin-guide/mm/pagemap.rst). */
#define FURCA_PAGE_PRESENT (1ULL << 63)
#define FURCA_PAGE_FILE_OR_SHARED (1ULL << 61)
#define FURCA_PAGE_EXCLUSIVE (1ULL << 56) /* in no other process's tables: written since the last clone */

struct furca_pagemap {
	struct furca_fd file;
	uint64_t page; /* bytes of one */
};

/* 0 or -errno: /proc does not tell. */
int furca_pagemap_open(struct furca_pagemap *ret);
void furca_pagemap_done(struct furca_pagemap *map);

/* The words of the pages from `start` to `end`, `max` at most, into `ret`. How many, 0 where there is no memory, or -errno. */
ssize_t furca_pagemap_words(const struct furca_pagemap *map, uint64_t start, uint64_t end, uint64_t *ret, size_t max);

struct furca_mapping {
	uint64_t start, end;
	bool writable, anonymous; /* no file's, as malloc's */
};

/*
 * Calls `fn` for each mapping that is readable and private, ascending, until it gives other than 0: that, or -errno. Not the kernel's own ([vdso] and the like).
 */
int furca_pagemap_mappings(int (*fn)(void *data, const struct furca_mapping *mapping), void *data);
