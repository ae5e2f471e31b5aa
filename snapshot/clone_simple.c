/*
 * A clone of a single-threaded process without barriers; stands in for the all-thread clone until that is linked. A process with
 * several threads, and a barrier that is required, are refused.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define WEAK __attribute__((weak))

WEAK const char *furca_barrier_word(int bit)
{
	static const char *const word[FURCA_BARRIERS] = {
#define BARRIER(name, number, text, required, what) [number] = text,
#include "snapshot/barrier.def"
#undef BARRIER
	};

	return word[bit];
}

static unsigned thread_count(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned n = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	(void)closedir(dir);
	return n;
}

WEAK int furca_clone_init(struct furca_err *err)
{
	(void)err;
	return 0;
}

WEAK int furca_clone(const struct furca_clone_args *args, struct furca_clone_report *ret, struct furca_fd *ret_pidfd,
		     struct furca_err *err)
{
	int64_t begin = furca_now_us();
	int pidfd = -1;
	pid_t *tid = NULL;
	long r;

	*ret = (struct furca_clone_report){.way = FURCA_WAY_ONE_THREAD, .threads = thread_count()};
	if (args->required)
		return furca_fail(err, FURCA_E_ISOLATION, 0, "this build puts up no barriers");
	if (ret->threads != 1)
		return furca_fail(err, FURCA_E_UNSUPPORTED, 0, "this build clones only processes with one thread");
	/* libc keeps the thread's number there; the kernel writes the clone's own. */
	if (prctl(PR_GET_TID_ADDRESS, &tid) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot find where libc keeps the thread's number");
	ret->held = 1U << 0;
	ret->mechanism[0] = "clone";
	struct clone_args a = {.flags = CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
			       .pidfd = (uint64_t)(uintptr_t)&pidfd, .child_tid = (uint64_t)(uintptr_t)tid};
	r = syscall(SYS_clone3, &a, sizeof(a));
	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot clone the process");
	if (r == 0) {
		for (size_t i = 0; i < args->n_drop; i++)
			(void)close(args->drop[i]);
		return 0;
	}
	ret->pid = (pid_t)r;
	ret->clone_us = furca_now_us() - begin;
	*ret_pidfd = furca_fd_own(pidfd);
	return 1;
}

WEAK int furca_clone_promote(struct furca_err *err)
{
	(void)err;
	return 0;
}

WEAK void furca_clone_unpark(void)
{
}
