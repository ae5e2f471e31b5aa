/* Page faults that a clone tells and its next twin takes in advance. The clones are plain forks, whose memory is shared as a copy's is. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/pages.h"
#include "tests/unit/harness.h"

#include "base/banned.h"

enum { PAGE = 4096, PAGES = 64, EVERY = 4, FEW = PAGES / EVERY }; /* FEW: the test's own faults, of a sanitizer's too */

static char *memory, *file;

static void set_up(void)
{
	char name[] = "/tmp/furca-pages-XXXXXX", bytes[PAGE];
	int fd = mkstemp(name);

	memset(bytes, 'f', sizeof(bytes));
	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < PAGES; i++)
		ck_assert_int_eq(write(fd, bytes, PAGE), PAGE);
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	file = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	ck_assert(memory != MAP_FAILED && file != MAP_FAILED);
	(void)madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
	memset(memory, 'm', PAGES * PAGE);
	(void)unlink(name);
	(void)close(fd);
}

static long faults(void)
{
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_minflt;
}

/* A sanitizer would look at a page of its own for it. */
__attribute__((no_sanitize("address"))) static void write_to(volatile char *at)
{
	*at = 1;
}

/* Writes to one page in EVERY and looks at all of the file. */
static long touch(void)
{
	long before = faults();
	volatile char *at = memory, *of_file = file;

	for (int i = 0; i < PAGES; i++)
		if (i % EVERY == 0 ? (at[i * PAGE] = 'c', of_file[i * PAGE] != 'f') : of_file[i * PAGE] != 'f')
			_exit(9);
	return faults() - before;
}

static bool covers(const struct furca_buf *list, const void *at)
{
	const struct furca_page_range *range = (const void *)list->data;

	for (size_t i = 0; i < list->len / sizeof(*range); i++)
		if (range[i].start <= (uintptr_t)at && (uintptr_t)at < range[i].end)
			return true;
	return false;
}

/* In a clone. */
static void tell(int out)
{
	struct furca_pages pages;

	if (touch() <= PAGES / EVERY || furca_pages_touched(&pages) < 0)
		_exit(2);
	for (int i = 0; i < PAGES; i++)
		if (covers(&pages.written, memory + i * PAGE) != (i % EVERY == 0) ||
		    !covers(&pages.mapped, file + i * PAGE))
			_exit(3);
	if (furca_fd_write_all(out, &pages.written.len, sizeof(size_t)) < 0 ||
	    furca_fd_write_all(out, pages.written.data, pages.written.len) < 0 ||
	    furca_fd_write_all(out, &pages.mapped.len, sizeof(size_t)) < 0 ||
	    furca_fd_write_all(out, pages.mapped.data, pages.mapped.len) < 0)
		_exit(4);
	furca_pages_done(&pages);
	_exit(0);
}

static int wait_for(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void receive(int in, struct furca_buf *list)
{
	size_t n;

	ck_assert_int_eq(furca_fd_read_full(in, &n, sizeof(n)), sizeof(n));
	ck_assert_int_eq(furca_buf_reserve(list, n), 0);
	ck_assert_int_eq(furca_fd_read_full(in, list->data, n), (ssize_t)n);
	list->len = n;
}

START_TEST(test_twin_takes_what_a_clone_told)
{
	struct furca_pages pages = {FURCA_BUF_INIT, FURCA_BUF_INIT, false};
	int ends[2];

	set_up();
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0)
		tell(ends[1]);
	(void)close(ends[1]);
	receive(ends[0], &pages.written);
	receive(ends[0], &pages.mapped);
	ck_assert_int_eq(wait_for(pid), 0);
	pid = fork();
	if (pid == 0) {
		furca_pages_take(furca_buf_view(&pages.written), true);
		furca_pages_take(furca_buf_view(&pages.mapped), false);
		if (memory[0] != 'm')
			_exit(5); /* what is in the pages has not changed */
		_exit(touch() < FEW ? 0 : 6);
	}
	ck_assert_int_eq(wait_for(pid), 0);
	ck_assert_int_eq(memory[0], 'm');
	furca_pages_done(&pages);
}
END_TEST

/* Nonsense, what is not mapped, and too much: left out, without harm. */
START_TEST(test_other_lists_do_no_harm)
{
	uint64_t size = 2 * FURCA_PAGES_WRITTEN;

	set_up();
	char *big = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(big != MAP_FAILED);
	(void)madvise(big, size, MADV_NOHUGEPAGE);
	struct furca_page_range list[] = {
		{0, PAGE},
		{PAGE, 0},
		{UINT64_MAX - PAGE, UINT64_MAX},
		{(uintptr_t)big, (uintptr_t)big + size},
		{(uintptr_t)file, (uintptr_t)file + PAGE}, /* not to be written */
		{(uintptr_t)big, (uintptr_t)big + PAGE},
	};
	long before = faults();

	furca_pages_take((struct furca_view){(uint8_t *)list, (uint8_t *)list + sizeof(list) - 3}, true);
	ck_assert_int_lt(faults() - before, FEW);
	furca_pages_take((struct furca_view){(uint8_t *)list, (uint8_t *)(list + 6)}, true);
	before = faults();
	write_to(big);
	ck_assert_int_eq(faults() - before, 0);
	write_to(big + PAGE); /* of the range that was too large */
	ck_assert_int_ge(faults() - before, 1);
	ck_assert_int_eq(file[0], 'f');
}
END_TEST

/* A list of small pages takes no huge ones, where nothing was before. */
START_TEST(test_huge_pages_are_not_taken)
{
	uint64_t huge = (uint64_t)2 << 20, size = 64 * huge;
	struct furca_page_range list[32];
	char *big = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage before, after;

	ck_assert(big != MAP_FAILED);
	(void)madvise(big, size, MADV_HUGEPAGE);
	for (unsigned i = 0; i < 32; i++) {
		uint64_t at = (((uintptr_t)big + huge - 1) & -huge) + i * huge;

		list[i] = (struct furca_page_range){at, at + PAGE};
	}
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	furca_pages_take((struct furca_view){(uint8_t *)list, (uint8_t *)(list + 32)}, true);
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
	ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 8 << 10); /* kB; 64 << 10 with huge pages */
	ck_assert_int_eq(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
}
END_TEST

/* Of private memory, of a file, and of what was never there, only the first is written in advance. */
START_TEST(test_what_is_this_process_memory)
{
	char *own = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	FURCA_AUTO_BUF struct furca_buf ret = FURCA_BUF_INIT;

	ck_assert(own != MAP_FAILED && shared != MAP_FAILED);
	write_to(own + PAGE);
	write_to(own + 2 * PAGE);
	memset(shared, 's', 2 * PAGE);
	const struct furca_page_range list[] = {{(uintptr_t)own, (uintptr_t)own + 4 * PAGE},
						{(uintptr_t)shared, (uintptr_t)shared + 4 * PAGE},
						{(uintptr_t)file, (uintptr_t)file + 4 * PAGE}},
				      want = {(uintptr_t)own + PAGE, (uintptr_t)own + 3 * PAGE};

	furca_pages_own((struct furca_view){(const uint8_t *)list, (const uint8_t *)(list + FURCA_COUNT(list))}, &ret);
	ck_assert_mem_eq(ret.data, &want, sizeof(want));
	ck_assert_uint_eq(ret.len, sizeof(want));
}
END_TEST

START_TEST(test_what_is_in_both_lists)
{
	const struct furca_page_range a[] = {{0x1000, 0x5000}, {0x8000, 0x9000}, {0xa000, 0xf000}},
				      b[] = {{0x2000, 0x3000}, {0x4000, 0x6000}, {0x9000, 0xa000}, {0xb000, 0xc000}},
				      both[] = {{0x2000, 0x3000}, {0x4000, 0x5000}, {0xb000, 0xc000}};
	const struct furca_view x = {(const uint8_t *)a, (const uint8_t *)(a + 3)},
				y = {(const uint8_t *)b, (const uint8_t *)(b + 4)};
	struct furca_buf ret = FURCA_BUF_INIT;

	furca_pages_both(x, y, UINT64_MAX, &ret);
	ck_assert_uint_eq(ret.len, sizeof(both));
	ck_assert_mem_eq(ret.data, both, sizeof(both));
	furca_buf_clear(&ret);
	furca_pages_both(y, x, 0x2000, &ret); /* what is more is left out */
	ck_assert_uint_eq(ret.len, 2 * sizeof(*both));
	ck_assert_mem_eq(ret.data, both, 2 * sizeof(*both));
	furca_buf_clear(&ret);
	furca_pages_both(x, (struct furca_view){y.at, y.at}, UINT64_MAX, &ret);
	ck_assert_uint_eq(ret.len, 0);
	furca_buf_done(&ret);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, test_what_is_in_both_lists);
	tcase_add_test(tests, test_what_is_this_process_memory);
	tcase_add_test(tests, test_twin_takes_what_a_clone_told);
	tcase_add_test(tests, test_other_lists_do_no_harm);
	tcase_add_test(tests, test_huge_pages_are_not_taken);
}

int main(void)
{
	return furca_test_main("pages", add);
}
