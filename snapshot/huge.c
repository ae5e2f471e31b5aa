#include "snapshot/huge.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/madvise.h"
#include "snapshot/pagemap.h"

#include "base/banned.h"

#define HUGE_PAGE ((uint64_t)2 << 20)
#define TOGETHER (8 * HUGE_PAGE) /* in one call, for each one waits for all CPUs */
/* A mapping larger than that reserves addresses, and to find what of it is memory takes too long. */
#define ADDRESSES ((uint64_t)64 << 30)

struct join {
	struct furca_pagemap map;
	uint64_t at;
	int64_t until_us;
};

bool furca_huge_wanted(void)
{
	FURCA_AUTO_FD struct furca_fd enabled =
		furca_fd_own(open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC));
	char text[64] = "";
	ssize_t n = enabled.n < 0 ? -1 : read(enabled.n, text, sizeof(text) - 1);

	return n > 0 && !strstr(text, "[never]") && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0;
}

/* Whether the 2 MB from `at` on are all there, and all shared with a clone. */
static bool is_whole(const struct join *join, uint64_t at)
{
	uint64_t words[128], end = at + HUGE_PAGE;

	while (at < end) {
		ssize_t n = furca_pagemap_words(&join->map, at, end, words, FURCA_COUNT(words));

		if (n <= 0)
			return false;
		for (ssize_t i = 0; i < n; i++, at += join->map.page)
			if ((words[i] & (FURCA_PAGE_PRESENT | FURCA_PAGE_FILE_OR_SHARED | FURCA_PAGE_EXCLUSIVE)) !=
			    FURCA_PAGE_PRESENT)
				return false;
	}
	return true;
}

/* What the kernel cannot join, for pages of it are in use otherwise, stays as it is. */
static void join_pieces(uint64_t start, uint64_t end)
{
	if (start < end)
		(void)madvise((void *)(uintptr_t)start, (size_t)(end - start), MADV_COLLAPSE);
}

static int join_mapping(void *data, const struct furca_mapping *mapping)
{
	struct join *join = data;
	uint64_t start = FURCA_MAX(mapping->start, join->at), from;

	start = (start + HUGE_PAGE - 1) & -HUGE_PAGE;
	if (!mapping->writable || !mapping->anonymous || mapping->end - mapping->start > ADDRESSES)
		return 0;
	while (start + HUGE_PAGE <= mapping->end) {
		for (from = start; start + HUGE_PAGE <= mapping->end && start - from < TOGETHER; start += HUGE_PAGE)
			if (!is_whole(join, start))
				break;
		join_pieces(from, start);
		if (start == from)
			start += HUGE_PAGE;
		join->at = start;
		if (furca_now_us() >= join->until_us)
			return 1;
	}
	return 0;
}

uint64_t furca_huge_join(uint64_t at, int64_t us)
{
	struct join join = {.at = at, .until_us = furca_now_us() + us};
	int r = furca_pagemap_open(&join.map);

	if (r == 0)
		r = furca_pagemap_mappings(join_mapping, &join);
	furca_pagemap_done(&join.map);
	return r > 0 ? join.at : 0;
}
