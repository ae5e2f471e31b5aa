#include "snapshot/pages.h"

#include <string.h>
#include <sys/prctl.h>

#include "base/auto.h"
#include "base/madvise.h"
#include "bridge/wire/limits.h"
#include "snapshot/pagemap.h"

#include "base/banned.h"

#define LOOKED_AT ((uint64_t)2 << 30) /* bytes of mappings */
enum { WORDS = 4096 };		      /* read at once */

struct scan {
	struct furca_pagemap map;
	uint64_t left; /* bytes that may be looked at still */
	uint64_t written, mapped;
	struct furca_pages *pages;
};

/* False: the list is full. */
static bool note(struct furca_buf *list, uint64_t *bytes, uint64_t max, uint64_t at, uint64_t page)
{
	struct furca_page_range *last = NULL, next = {at, at + page};

	if (*bytes + page > max)
		return false;
	*bytes += page;
	if (list->len)
		last = (struct furca_page_range *)(void *)(list->data + list->len) - 1;
	if (last && last->end == at) {
		last->end += page;
		return true;
	}
	return list->len / sizeof(next) < FURCA_MAX_PAGE_RANGES && furca_buf_append(list, &next, sizeof(next)) == 0;
}

static int scan_mapping(void *data, const struct furca_mapping *mapping)
{
	static uint64_t words[WORDS];
	struct scan *scan = data;
	uint64_t at = mapping->start, page = scan->map.page;

	if (mapping->end - at > scan->left) {
		scan->pages->cut = true;
		return 0;
	}
	scan->left -= mapping->end - at;
	while (at < mapping->end) {
		ssize_t n = furca_pagemap_words(&scan->map, at, mapping->end, words, WORDS);

		if (n <= 0)
			return (int)n;
		for (ssize_t i = 0; i < n; i++, at += page) {
			if (!(words[i] & FURCA_PAGE_PRESENT))
				continue;
			if (words[i] & FURCA_PAGE_FILE_OR_SHARED)
				(void)note(&scan->pages->mapped, &scan->mapped, FURCA_PAGES_MAPPED, at, page);
			else if (words[i] & FURCA_PAGE_EXCLUSIVE)
				scan->pages->cut |=
					!note(&scan->pages->written, &scan->written, FURCA_PAGES_WRITTEN, at, page);
		}
	}
	return 0;
}

int furca_pages_touched(struct furca_pages *ret)
{
	struct scan scan = {.left = LOOKED_AT, .pages = ret};

	*ret = (struct furca_pages){FURCA_BUF_INIT, FURCA_BUF_INIT, false};
	int r = furca_pagemap_open(&scan.map);
	if (r == 0)
		r = furca_pagemap_mappings(scan_mapping, &scan); /* shared mappings are never shared with a clone */
	furca_pagemap_done(&scan.map);
	if (r < 0)
		furca_pages_done(ret);
	return r;
}

static bool range_at(struct furca_view list, size_t i, struct furca_page_range *ret)
{
	if (i >= furca_view_size(list) / sizeof(*ret))
		return false;
	memcpy(ret, list.at + i * sizeof(*ret), sizeof(*ret));
	return true;
}

void furca_pages_both(struct furca_view a, struct furca_view b, uint64_t max, struct furca_buf *ret)
{
	struct furca_page_range x, y;
	size_t i = 0, k = 0;

	while (range_at(a, i, &x) && range_at(b, k, &y)) {
		struct furca_page_range both = {FURCA_MAX(x.start, y.start), FURCA_MIN(x.end, y.end)};

		if (both.start < both.end) {
			if (both.end - both.start > max || furca_buf_append(ret, &both, sizeof(both)) < 0)
				return;
			max -= both.end - both.start;
		}
		if (x.end < y.end)
			i++;
		else
			k++;
	}
}

void furca_pages_own(struct furca_view list, struct furca_buf *ret)
{
	struct furca_page_range range;
	struct furca_pagemap map;
	uint64_t bytes = 0, words[64];

	if (furca_pagemap_open(&map) < 0)
		return;
	for (size_t i = 0; range_at(list, i, &range); i++) {
		while (range.start < range.end) {
			ssize_t n = furca_pagemap_words(&map, range.start, range.end, words, FURCA_COUNT(words));

			if (n <= 0)
				break;
			for (ssize_t k = 0; k < n; k++, range.start += map.page)
				if ((words[k] & FURCA_PAGE_PRESENT) && !(words[k] & FURCA_PAGE_FILE_OR_SHARED))
					(void)note(ret, &bytes, FURCA_PAGES_WRITTEN, range.start, map.page);
		}
	}
	furca_pagemap_done(&map);
}

void furca_pages_take(struct furca_view list, bool write)
{
	uint64_t left = write ? FURCA_PAGES_WRITTEN : FURCA_PAGES_MAPPED;
	struct furca_page_range range;
	int off = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);

	/* Where a huge page could be had, a fault for one small page would take it: 512 times what the list says. */
	if (!range_at(list, 0, &range) || off < 0 || (off == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0))
		return;
	for (size_t i = 0; i < FURCA_MAX_PAGE_RANGES && range_at(list, i, &range); i++) {
		if (range.end <= range.start || range.end - range.start > left)
			continue;
		left -= range.end - range.start;
		(void)madvise((void *)(uintptr_t)range.start, (size_t)(range.end - range.start),
			      write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	}
	if (off == 0)
		(void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

void furca_pages_done(struct furca_pages *pages)
{
	furca_buf_done(&pages->written);
	furca_buf_done(&pages->mapped);
}
