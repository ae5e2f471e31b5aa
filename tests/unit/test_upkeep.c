/* Huge pages that a session's commits have split are joined again. The snapshots are plain forks, whose memory is shared as a snapshot's is. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "langs/upkeep.h"
#include "snapshot/huge.h"
#include "tests/unit/harness.h"

#include "base/banned.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define MUCH ((uint64_t)1 << 30) /* bytes */
enum { PAGE = 4096, PIECES = 24, SKIPPED = 77, SLOW_US = 1000000 };

static struct furca_upkeep upkeep;
static pid_t snapshots[4];
static size_t n_snapshots;
static char *memory;

/* 2 MB pieces of the test's memory that are huge pages. */
static long huge_pieces(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	unsigned long start, end, kb;
	char line[512];
	bool ours = false;
	long sum = 0;

	ck_assert_ptr_nonnull(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = start < (uintptr_t)memory + PIECES * HUGE_PAGE && end > (uintptr_t)memory;
		else if (ours && sscanf(line, "AnonHugePages: %lu kB", &kb) == 1)
			sum += (long)(kb / 2048);
	}
	(void)fclose(smaps);
	return sum;
}

static void commit(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		for (;;)
			(void)pause();
	snapshots[n_snapshots++] = pid;
}

static void end_snapshots(void)
{
	while (n_snapshots > 0) {
		(void)kill(snapshots[--n_snapshots], SIGKILL);
		(void)waitpid(snapshots[n_snapshots], NULL, 0);
	}
}

/* All small pages, each as it was filled. */
static void split(void)
{
	for (size_t i = 0; i < PIECES * HUGE_PAGE; i += PAGE)
		memory[i] = (char)(i / PAGE);
}

static void step_to_the_end(void)
{
	for (int i = 0; i < 1000 && furca_upkeep_wait(&upkeep) >= 0; i++)
		furca_upkeep_step(&upkeep);
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
}

static void set_up(void)
{
	char *at = mmap(NULL, (PIECES + 1) * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert(at != MAP_FAILED);
	memory = (char *)(((uintptr_t)at + HUGE_PAGE - 1) & -HUGE_PAGE);
	(void)madvise(memory, PIECES * HUGE_PAGE, MADV_HUGEPAGE);
	memset(memory, 'm', PIECES * HUGE_PAGE);
	ck_assert_int_gt(huge_pieces(), PIECES / 2);
	commit();
	split();
	ck_assert_int_eq(huge_pieces(), 0);
	furca_upkeep_init(&upkeep);
}

START_TEST(test_what_stopped_changing_is_joined)
{
	commit();
	furca_upkeep_commit(&upkeep, MUCH, SLOW_US, true);
	ck_assert_int_eq(furca_upkeep_wait(&upkeep), FURCA_UPKEEP_IDLE_MS);
	furca_upkeep_step(&upkeep);
	ck_assert_int_eq(furca_upkeep_wait(&upkeep), FURCA_UPKEEP_STEP_MS);
	furca_upkeep_stop(&upkeep);
	ck_assert_int_eq(furca_upkeep_wait(&upkeep), FURCA_UPKEEP_IDLE_MS);
	step_to_the_end();
	ck_assert_int_gt(huge_pieces(), PIECES / 2);
	for (size_t i = 0; i < PIECES * HUGE_PAGE; i += PAGE)
		ck_assert(memory[i] == (char)(i / PAGE) && memory[i + 1] == 'm');
}
END_TEST

/* What has been written since the last commit is what the session writes, and what is not all there would take more memory. */
START_TEST(test_what_changes_is_left)
{
	(void)madvise(memory + 8 * HUGE_PAGE + 7 * PAGE, PAGE, MADV_DONTNEED);
	commit();
	for (size_t i = 0; i < PIECES; i += 2)
		memory[i * HUGE_PAGE + 3 * PAGE] = 'w';
	memory[9 * HUGE_PAGE] = 'w';
	furca_upkeep_commit(&upkeep, MUCH, SLOW_US, true);
	step_to_the_end();
	ck_assert_int_le(huge_pieces(), PIECES / 2 - 1);
	ck_assert_int_gt(huge_pieces(), 2);
}
END_TEST

START_TEST(test_no_more_is_spent_than_clones_took)
{
	commit();
	furca_upkeep_commit(&upkeep, MUCH, 300, true);
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
	furca_upkeep_commit(&upkeep, 50 << 20, SLOW_US, true); /* a small process's, on a busy machine */
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
	furca_upkeep_commit(&upkeep, MUCH, 900, true); /* one step's worth */
	ck_assert_int_ge(furca_upkeep_wait(&upkeep), 0);
	furca_upkeep_step(&upkeep);
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
	ck_assert_int_lt(huge_pieces(), PIECES);
}
END_TEST

START_TEST(test_not_unless_it_is_allowed)
{
	commit();
	furca_upkeep_commit(&upkeep, MUCH, SLOW_US, false);
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
	(void)setenv("FURCA_HUGE_PAGES", "0", 1);
	furca_upkeep_init(&upkeep);
	furca_upkeep_commit(&upkeep, MUCH, SLOW_US, true);
	ck_assert_int_lt(furca_upkeep_wait(&upkeep), 0);
	ck_assert_int_eq(huge_pieces(), 0);
	furca_upkeep_done(&upkeep);
	ck_assert(upkeep.off && upkeep.credit_us == 0);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_checked_fixture(tests, set_up, end_snapshots);
	tcase_add_test(tests, test_what_stopped_changing_is_joined);
	tcase_add_test(tests, test_what_changes_is_left);
	tcase_add_test(tests, test_no_more_is_spent_than_clones_took);
	tcase_add_test(tests, test_not_unless_it_is_allowed);
}

int main(void)
{
	if (!furca_huge_wanted()) {
		(void)fprintf(stderr, "skipped: no huge pages on this machine\n");
		return SKIPPED;
	}
	return furca_test_main("upkeep", add);
}
