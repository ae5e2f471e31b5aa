/* base/proc: processes by pidfd. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proc.h"

#include "tests/unit/harness.h"

static struct furca_proc child(int status)
{
	struct furca_proc proc = FURCA_PROC_NONE;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (status < 0)
			for (;;)
				(void)pause();
		_exit(status);
	}
	ck_assert_int_eq(furca_proc_open(pid, &proc), 0);
	return proc;
}

START_TEST(waits_as_waitpid_does)
{
	FURCA_AUTO_PROC struct furca_proc proc = child(7);
	int status = 0;

	ck_assert_int_eq(furca_proc_wait(&proc, 1, &status), 1);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	ck_assert_int_eq(furca_proc_wait(&proc, 1, &status), -ECHILD);
	ck_assert_int_eq(furca_proc_signal(&proc, SIGTERM), -ESRCH);
}
END_TEST

START_TEST(a_signal_ends_it)
{
	FURCA_AUTO_PROC struct furca_proc proc = child(-1);
	int status = 0;

	ck_assert_int_eq(furca_proc_wait(&proc, 0, &status), 0);
	ck_assert_int_eq(furca_proc_pid_of(proc.pidfd.n), proc.pid);
	ck_assert_int_eq(furca_proc_signal(&proc, SIGKILL), 0);
	ck_assert_int_eq(furca_proc_wait(&proc, 1, &status), 1);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_int_eq(furca_proc_pid_of(proc.pidfd.n), 0);
}
END_TEST

START_TEST(what_is_no_process_is_said)
{
	struct furca_proc proc = FURCA_PROC_NONE;

	ck_assert_int_eq(furca_proc_open(1 << 30, &proc), -ESRCH);
	ck_assert_int_eq(proc.pidfd.n, -1);
	ck_assert_int_lt(furca_proc_pid_of(0), 0);
	furca_proc_done(&proc);
}
END_TEST

START_TEST(taking_empties)
{
	struct furca_proc proc = child(0), taken = furca_proc_take(&proc);

	ck_assert_int_eq(proc.pid, 0);
	ck_assert_int_eq(proc.pidfd.n, -1);
	ck_assert_int_eq(furca_proc_wait(&taken, 1, NULL), 1);
	furca_proc_done(&taken);
}
END_TEST

START_TEST(others_learn_how_it_ended)
{
	struct furca_proc proc = child(7);
	int status = furca_proc_ended(&proc);

	ck_assert_int_eq(status, -1); /* not waited for yet */
	ck_assert_int_eq(furca_proc_wait(&proc, 1, NULL), 1);
	status = furca_proc_ended(&proc);
	ck_assert(status == -1 /* an older kernel */ || (WIFEXITED(status) && WEXITSTATUS(status) == 7));
	furca_proc_done(&proc);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, waits_as_waitpid_does);
	tcase_add_test(tests, a_signal_ends_it);
	tcase_add_test(tests, what_is_no_process_is_said);
	tcase_add_test(tests, taking_empties);
	tcase_add_test(tests, others_learn_how_it_ended);
}

int main(void)
{
	return furca_test_main("proc", add);
}
