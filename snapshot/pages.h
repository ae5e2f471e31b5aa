/*
 * Page faults taken in advance. A clone shares its memory with its origin and has no page tables of mapped files: each page's first write, or first look,
 * is a fault. What one copy of a session has touched its next copy will touch too; it can have these pages before its call comes.
 *
 * A list is an array of struct furca_page_range: ascending, apart from each other, and good for processes that were cloned from the same one. It says
 * nothing of what is in the pages, and nothing is lost by an old one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

struct furca_page_range {
	uint64_t start, end; /* addresses of whole pages; `end` is the first one behind */
};

/* What is listed and taken at most, in bytes: pages written cost memory, pages of files only entries of tables. */
#define FURCA_PAGES_WRITTEN ((uint64_t)16 << 20)
#define FURCA_PAGES_MAPPED ((uint64_t)64 << 20)

struct furca_pages {
	struct furca_buf written, mapped; /* lists; freed with furca_pages_done */
	bool cut;			  /* more pages are written than are listed */
};

/*
 * Lists the pages that this clone has for itself, and those of files that it has in its tables. Looks at 2 GB of mappings at most, some
 * 5 ms of work at that size, and leaves out what is beyond the limits. Not for two threads at once. 0 or -errno: /proc does not tell; the lists are empty then.
 */
int furca_pages_touched(struct furca_pages *ret);

/* Appends to `ret` the list of what is in both lists, `max` bytes of pages at most. */
void furca_pages_both(struct furca_view a, struct furca_view b, uint64_t max, struct furca_buf *ret);

/*
 * Appends to `ret` what of a list is this process's memory still. Where a process has run code since, a file or shared memory may be mapped in another's
 * place: to write there would change times, fill holes and take memory that others see. Not in a copy, whose mappings are all private.
 */
void furca_pages_own(struct furca_view list, struct furca_buf *ret);

/*
 * Takes the faults of a list: `write` makes the pages private, else they are mapped. What is not mapped here any more, what is no list and what is beyond the
 * limit is left out; where the kernel cannot (before Linux 5.14) nothing happens. Small pages only. Contents do not change.
 */
void furca_pages_take(struct furca_view list, bool write);

void furca_pages_done(struct furca_pages *pages);
