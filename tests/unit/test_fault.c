/* base/fault: which passage of which point does what. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"

#include "tests/unit/harness.h"

#ifndef FURCA_NO_FAULTS
static void arm(const char *text)
{
	ck_assert_int_eq(setenv("FURCA_FAULT", text, 1), 0);
	furca_fault_init();
}

START_TEST(nothing_happens_unless_armed)
{
	(void)unsetenv("FURCA_FAULT");
	furca_fault_init();
	for (int i = 0; i < FURCA_FAULT_MAX; i++)
		ck_assert_int_eq(furca_fault((enum furca_fault)i), 0);
	arm("no_such_point");
	for (int i = 0; i < FURCA_FAULT_MAX; i++)
		ck_assert_int_eq(furca_fault((enum furca_fault)i), 0);
}
END_TEST

START_TEST(fails_at_the_passage_named_and_only_there)
{
	arm("run_before:3:fail");
	ck_assert_int_eq(furca_fault(FURCA_FAULT_RUN_BEFORE), 0);
	ck_assert_int_eq(furca_fault(FURCA_FAULT_RUN_AFTER), 0);
	ck_assert_int_eq(furca_fault(FURCA_FAULT_RUN_BEFORE), 0);
	ck_assert_int_eq(furca_fault(FURCA_FAULT_RUN_BEFORE), -EIO);
	ck_assert_int_eq(furca_fault(FURCA_FAULT_RUN_BEFORE), 0);
}
END_TEST

START_TEST(kills_by_default)
{
	arm("PROMOTE");
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)furca_fault(FURCA_FAULT_PROMOTE);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST
#endif

START_TEST(every_point_has_a_name_and_a_place)
{
	for (int i = 0; i < FURCA_FAULT_MAX; i++) {
		ck_assert_str_ne(furca_fault_name((enum furca_fault)i), "");
		ck_assert_str_ne(furca_fault_where((enum furca_fault)i), "");
	}
}
END_TEST

static void add(TCase *tests)
{
#ifndef FURCA_NO_FAULTS
	tcase_add_test(tests, nothing_happens_unless_armed);
	tcase_add_test(tests, fails_at_the_passage_named_and_only_there);
	tcase_add_test(tests, kills_by_default);
#endif
	tcase_add_test(tests, every_point_has_a_name_and_a_place);
}

int main(void)
{
	return furca_test_main("fault", add);
}
