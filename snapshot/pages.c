#include "snapshot/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/madvise.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

/* Of an entry of /proc/PID/pagemap, which is one word a page. */
#define PRESENT (1ULL << 63)
#define FILE_OR_SHARED (1ULL << 61)
#define EXCLUSIVE (1ULL << 56)

#define LOOKED_AT ((uint64_t)2 << 30) /* bytes of mappings */
enum { WORDS = 4096 };		      /* read at once */

struct scan {
	int pagemap;
	uint64_t page, left; /* bytes: of a page, that may be looked at still */
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

static int scan_mapping(struct scan *scan, uint64_t start, uint64_t end)
{
	static uint64_t words[WORDS];

	if (end - start > scan->left) {
		scan->pages->cut = true;
		return 0;
	}
	scan->left -= end - start;
	while (start < end) {
		size_t want = (size_t)FURCA_MIN((end - start) / scan->page, (uint64_t)WORDS);
		ssize_t n = pread(scan->pagemap, words, want * sizeof(*words),
				  (off_t)(start / scan->page * sizeof(*words)));

		if (n <= 0)
			return n < 0 ? -errno : 0;
		for (size_t i = 0; i < (size_t)n / sizeof(*words); i++, start += scan->page) {
			if (!(words[i] & PRESENT))
				continue;
			if (words[i] & FILE_OR_SHARED)
				(void)note(&scan->pages->mapped, &scan->mapped, FURCA_PAGES_MAPPED, start, scan->page);
			else if (words[i] & EXCLUSIVE)
				scan->pages->cut |= !note(&scan->pages->written, &scan->written, FURCA_PAGES_WRITTEN,
							  start, scan->page);
		}
	}
	return 0;
}

int furca_pages_touched(struct furca_pages *ret)
{
	FURCA_AUTO_FD struct furca_fd pagemap = furca_fd_own(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	FILE *maps = pagemap.n < 0 ? NULL : fopen("/proc/self/maps", "re");
	char line[512];
	int r = maps ? 0 : -errno;

	*ret = (struct furca_pages){FURCA_BUF_INIT, FURCA_BUF_INIT, false};
	struct scan scan = {
		.pagemap = pagemap.n, .page = (uint64_t)sysconf(_SC_PAGESIZE), .left = LOOKED_AT, .pages = ret};
	while (r == 0 && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char mode[5];

		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) != 3 || mode[0] != 'r' || mode[3] != 'p')
			continue;	  /* shared mappings are never shared with a clone */
		if (!strstr(line, " [v")) /* [vdso], [vvar], [vsyscall]: the kernel's */
			r = scan_mapping(&scan, start, end);
	}
	if (maps)
		(void)fclose(maps);
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
	FURCA_AUTO_FD struct furca_fd pagemap = furca_fd_own(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = 0, words[64];
	struct furca_page_range range;

	for (size_t i = 0; pagemap.n >= 0 && range_at(list, i, &range); i++) {
		while (range.start < range.end) {
			size_t want = (size_t)FURCA_MIN((range.end - range.start) / page, (uint64_t)FURCA_COUNT(words));
			ssize_t n = pread(pagemap.n, words, want * sizeof(*words),
					  (off_t)(range.start / page * sizeof(*words)));

			if (n < (ssize_t)sizeof(*words))
				break;
			for (size_t k = 0; k < (size_t)n / sizeof(*words); k++, range.start += page)
				if ((words[k] & PRESENT) && !(words[k] & FILE_OR_SHARED))
					(void)note(ret, &bytes, FURCA_PAGES_WRITTEN, range.start, page);
		}
	}
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
