#include "snapshot/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/wire/host.h"

#include "base/banned.h"

enum step { STEP_SIGNALS, STEP_FDS, STEP_CWD, STEP_EXEC };

static const char *const step_text[] = {
	[STEP_SIGNALS] = "take its parent's end as its own",
	[STEP_FDS] = "arrange its descriptors",
	[STEP_CWD] = "enter its working directory",
	[STEP_EXEC] = "be executed",
};

struct failure {
	int step, sys;
};

static void default_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction act = {.sa_handler = SIG_DFL};

		(void)sigaction(sig, &act, NULL); /* refused for KILL, STOP and libc's own, which is right */
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Moves the three descriptors above everything they will be put on, then down. `report` comes out at 5. */
static int arrange_fds(const struct furca_spawn *spawn, int report)
{
	int from[4] = {spawn->err, spawn->control, spawn->capability, report};
	static const int to[4] = {2, FURCA_HOST_CONTROL_FD, FURCA_HOST_CAPABILITY_FD, FURCA_HOST_CAPABILITY_FD + 1};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (size_t i = 0; i < FURCA_COUNT(from); i++) {
		from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 32);
		if (from[i] < 0)
			return -errno;
	}
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0)
		return -errno;
	for (size_t i = 0; i < FURCA_COUNT(from); i++)
		if (dup3(from[i], to[i], i == 3 ? O_CLOEXEC : 0) < 0)
			return -errno;
	return furca_fd_close_rest(to, FURCA_COUNT(to));
}

__attribute__((noreturn)) static void run_child(const struct furca_spawn *spawn, int report, pid_t parent)
{
	struct failure failure = {STEP_SIGNALS, 0};

	default_signals();
	(void)setsid();
	/* The second look closes the gap in which the parent may have ended before the first call. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) {
		failure.sys = errno ? errno : ESRCH;
		goto fail;
	}
	failure.step = STEP_FDS;
	failure.sys = -arrange_fds(spawn, report);
	if (failure.sys)
		goto fail;
	report = FURCA_HOST_CAPABILITY_FD + 1;
	failure.step = STEP_CWD;
	if (chdir(spawn->cwd) < 0) {
		failure.sys = errno;
		goto fail;
	}
	failure.step = STEP_EXEC;
	environ = (char **)(uintptr_t)spawn->env;
	(void)execvp(spawn->argv[0], spawn->argv);
	failure.sys = errno;
fail:
	(void)furca_fd_write_all(report, &failure, sizeof(failure));
	_exit(127);
}

int furca_spawn(const struct furca_spawn *spawn, struct furca_proc *ret, struct furca_err *err)
{
	int ends[2];
	struct failure failure;
	pid_t parent = getpid();

	if (pipe2(ends, O_CLOEXEC) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a pipe");
	FURCA_AUTO_FD struct furca_fd in = furca_fd_own(ends[0]);
	struct furca_fd out = furca_fd_own(ends[1]);

	pid_t pid = fork();
	if (pid == 0)
		run_child(spawn, out.n, parent);
	furca_fd_done(&out);
	if (pid < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot fork");

	ssize_t n = furca_fd_read_full(in.n, &failure, sizeof(failure));
	if (n == 0) {
		int r = furca_proc_open(pid, ret);
		if (r == 0)
			return 0;
		(void)kill(pid, SIGKILL); /* our child, not waited for: the number is still its own */
		failure = (struct failure){STEP_EXEC, -r};
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (n != 0 && n != (ssize_t)sizeof(failure))
		return furca_fail(err, FURCA_E_SYSTEM, 0, "the program '%s' ended before it was executed",
				  spawn->argv[0]);
	return furca_fail(err, FURCA_E_SYSTEM, failure.sys, "the program '%s' could not %s (%s)", spawn->argv[0],
			  step_text[failure.step], strerror(failure.sys));
}
