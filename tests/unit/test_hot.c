/* What a session writes in every call, told from what it writes once. The snapshots are plain forks, whose memory is shared as a snapshot's is. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "langs/hot.h"
#include "tests/unit/harness.h"

#include "base/banned.h"

enum { PAGE = 4096, PAGES = 64, FEW = 16, CALLS = 200 }; /* FEW: the test's own faults */

static char *always, *sometimes;
static struct furca_hot hot;
static pid_t snapshot;

static char *map(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert(at != MAP_FAILED);
	(void)madvise(at, size, MADV_NOHUGEPAGE);
	memset(at, 'm', size);
	return at;
}

static long write_pages(char *at, int n)
{
	struct rusage before, after;

	(void)getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < n; i++)
		at[i * PAGE]++;
	(void)getrusage(RUSAGE_SELF, &after);
	return after.ru_minflt - before.ru_minflt;
}

static void end_snapshot(void)
{
	if (snapshot > 0) {
		(void)kill(snapshot, SIGKILL);
		(void)waitpid(snapshot, NULL, 0);
	}
}

/* As the host does it: the older snapshot ends when the next one stands. */
static void commit(void)
{
	furca_hot_learn(&hot);
	pid_t next = fork();

	ck_assert_int_ge(next, 0);
	if (next == 0)
		for (;;)
			(void)pause();
	end_snapshot();
	snapshot = next;
	furca_hot_commit(&hot);
	if (hot.due)
		furca_hot_take(&hot);
}

START_TEST(test_what_every_call_writes_is_taken)
{
	always = map(PAGES * PAGE);
	sometimes = map(PAGES * PAGE);
	commit(); /* from now on it shows what is written */
	ck_assert_int_ge(write_pages(always, PAGES), PAGES);
	(void)write_pages(sometimes, PAGES);
	commit();
	ck_assert_int_ge(write_pages(always, PAGES), PAGES);
	commit();
	ck_assert_int_lt(write_pages(always, PAGES), FEW);
	ck_assert_int_ge(write_pages(sometimes, PAGES), PAGES);
	end_snapshot();
}
END_TEST

/* What is no longer written is forgotten, and what is written now is learnt. */
START_TEST(test_it_is_learnt_anew)
{
	int cheap = 0;

	always = map(PAGES * PAGE);
	sometimes = map(PAGES * PAGE);
	for (int i = 0; i < 4; i++) {
		commit();
		(void)write_pages(always, PAGES);
	}
	for (int i = 0; i < CALLS; i++) {
		commit();
		cheap += write_pages(sometimes, PAGES) < FEW;
	}
	ck_assert_int_ge(cheap, CALLS / 2);
	commit();
	ck_assert_int_ge(write_pages(always, PAGES), PAGES);
	end_snapshot();
}
END_TEST

/* More than is listed is new data; nothing is made of a part of it. */
START_TEST(test_much_new_data_is_not_taken)
{
	enum { MUCH = 8192 };
	char *much = map((size_t)MUCH * PAGE);

	always = map(PAGES * PAGE);
	for (int i = 0; i < 3; i++) {
		commit();
		(void)write_pages(always, PAGES);
		(void)write_pages(much, MUCH);
	}
	commit();
	ck_assert_uint_eq(hot.pages.len, 0);
	for (int i = 0; i < 2; i++) {
		(void)write_pages(always, PAGES);
		commit();
	}
	ck_assert_int_lt(write_pages(always, PAGES), FEW);
	end_snapshot();
	furca_hot_done(&hot);
	ck_assert(!hot.shared && !hot.due && hot.pages.len == 0);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, test_what_every_call_writes_is_taken);
	tcase_add_test(tests, test_it_is_learnt_anew);
	tcase_add_test(tests, test_much_new_data_is_not_taken);
}

int main(void)
{
	return furca_test_main("hot", add);
}
