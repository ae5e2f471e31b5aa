#include "snapshot/hop.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot/barriers.h"
#include "snapshot/born.h"
#include "snapshot/clone.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define HOP_US 3000000	  /* for what libraries do around libc's fork */
#define STACK_SIZE 262144 /* libraries' atfork handlers may run on one */
#define REAPER_STACK 65536

static struct {
	char *first_stack, *hop_stack;
	struct clone_args args;
	long result;   /* of clone3, or of entering the cell */
	uint32_t over; /* futex: 1, a hop that forks is over */
	int pidfd;     /* of that hop */
} hopping;

int furca_hop_init(struct furca_err *err)
{
	if (!hopping.first_stack) {
		char *stacks = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (stacks == MAP_FAILED)
			return furca_fail(err, FURCA_E_MEMORY, errno, "cannot reserve stacks for clones");
		hopping.first_stack = stacks;
		hopping.hop_stack = stacks + STACK_SIZE;
	}
	return 0;
}

/*
 * clone3, or the older call where a container's filter refuses that one (it cannot look at flags in memory): enough for a process
 * that needs no numbers of its choosing.
 */
static long clone_process(struct clone_args *args, void (*fn)(void *), void *arg)
{
	long r = furca_arch_clone(args, sizeof(*args), fn, arg);

	if (r != -ENOSYS || args->set_tid_size)
		return r;
	return furca_arch_clone_plain(args->flags | args->exit_signal,
				      (char *)(uintptr_t)args->stack + args->stack_size, (int *)(uintptr_t)args->pidfd,
				      fn, arg);
}

bool furca_hop_ended(int pidfd)
{
	struct pollfd wanted = {.fd = pidfd, .events = POLLIN};
	struct timespec now = {0, 0};

	return furca_raw(SYS_ppoll, &wanted, 1, &now, NULL, 8) == 1;
}

/*
 * The hop, where the cell cannot be lent (furca_barriers_lend): a task that shares the caller's memory and descriptors, lasts for some
 * microseconds, and enters the cell, so that the clone is born there and the caller's own namespaces never change. It is a child of the
 * caller's parent like the clone, or of the caller like the clone.
 */
static void hop(void *unused)
{
	(void)unused;
	hopping.result = furca_barriers_enter(furca_born.plan);
	if (hopping.result == 0)
		hopping.result = clone_process(&hopping.args, furca_born_first, NULL);
	furca_raw_exit(0);
}

/* The same for a clone by libc's fork, whose locks and handlers are those of the caller's thread: the hop runs with its TLS. */
static void hop_and_fork(void *ret_pidfd)
{
	long result = furca_barriers_enter(furca_born.plan);

	if (result == 0) {
		pid_t pid = fork();

		if (pid == 0) {
			furca_raw_close(hopping.pidfd);
			furca_born_forked();
		}
		result = pid;
		/* The clone is the child of the nearest subreaper as soon as the hop ends. */
		if (pid > 0)
			*(int *)ret_pidfd = (int)furca_raw(SYS_pidfd_open, pid, 0);
	}
	hopping.result = result;
	furca_store(&hopping.over, 1);
	furca_raw_wake(&hopping.over, 1, FURCA_RAW_PRIVATE);
	furca_raw_exit(0);
}

/*
 * That hop is not waited for by the kernel (CLONE_VFORK), for a library's handler may wait for ever, and nothing may hang. Past its
 * time it is killed; what it held of libc is then lost to this process, whose next call says so by its own time limit.
 */
static long fork_in_hop(struct clone_args *task, int *ret_pidfd)
{
	int64_t deadline_us = furca_raw_now_us() + HOP_US;

	task->flags = (task->flags & ~(uint64_t)CLONE_VFORK) | CLONE_PIDFD;
	task->pidfd = (uintptr_t)&hopping.pidfd;
	hopping.over = 0;
	hopping.result = -ETIMEDOUT;
	long r = clone_process(task, hop_and_fork, ret_pidfd);
	if (r < 0)
		return r;
	while (!furca_load(&hopping.over) && furca_raw_now_us() < deadline_us && !furca_hop_ended(hopping.pidfd))
		furca_raw_wait(&hopping.over, 0, 20000, FURCA_RAW_PRIVATE);
	if (!furca_load(&hopping.over))
		furca_raw(SYS_pidfd_send_signal, hopping.pidfd, SIGKILL, NULL, 0);
	/* The hop's stack and the caller's TLS are free when it has ended. */
	while (!furca_hop_ended(hopping.pidfd))
		furca_raw_sleep_us(10);
	furca_raw_close(hopping.pidfd);
	if (furca_born.args->own_child)
		furca_raw(SYS_wait4, r, NULL, __WALL, NULL);
	return hopping.result;
}

long furca_hop_clone(bool cell, int *ret_pidfd)
{
	static pid_t number;
	struct clone_args *args = &hopping.args;
	uint64_t parent = furca_born.args->own_child ? 0 : CLONE_PARENT;

	number = furca_born.leader;
	memset(args, 0, sizeof(*args));
	/*
	 * A child that is the caller's own has no signal for its end; that of a hop's is the hop's, so it has none either. Who traces
	 * the caller and whatever it starts (`strace -f`) is outside of the clone, and neither sees nor stops it.
	 */
	furca_born.joins = cell && furca_born.way != FURCA_WAY_FORK && furca_barriers_lend(furca_born.plan) == 0;
	args->flags = (cell && !furca_born.joins ? CLONE_PARENT : parent) | CLONE_PIDFD | CLONE_UNTRACED;
	args->pidfd = (uintptr_t)ret_pidfd;
	args->stack = (uintptr_t)hopping.first_stack;
	args->stack_size = STACK_SIZE;
	if (furca_born.keep_tids) {
		args->set_tid = (uintptr_t)&number;
		args->set_tid_size = 1;
	}
	if (furca_born.joins) {
		long r = clone_process(args, furca_born_first, NULL);

		furca_barriers_take_back(furca_born.plan);
		return r;
	}
	if (!cell && furca_born.way != FURCA_WAY_FORK)
		return clone_process(args, furca_born_first, NULL);
	struct clone_args task = {.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_UNTRACED | parent,
				  .stack = (uintptr_t)hopping.hop_stack,
				  .stack_size = STACK_SIZE};
	if (furca_born.way == FURCA_WAY_FORK)
		return fork_in_hop(&task, ret_pidfd);
	hopping.result = -ECANCELED;
	long r = clone_process(&task, hop, ret_pidfd);
	if (r > 0 && furca_born.args->own_child)
		furca_raw(SYS_wait4, r, NULL, __WALL, NULL);
	return r < 0 ? r : hopping.result;
}

static void *reap(void *data)
{
	/* In a clone of this process it is no child, and the wait ends at once. */
	while (waitpid((pid_t)(intptr_t)data, NULL, __WALL) < 0 && errno == EINTR)
		;
	return NULL;
}

void furca_hop_reap(pid_t pid)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;

	(void)sigfillset(&all);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, REAPER_STACK);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	/* Where no thread can be made the child stays a zombie until this process ends, and harms nobody. */
	(void)pthread_create(&thread, &attr, reap, (void *)(intptr_t)pid);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
}

static void end_at_once(void *unused)
{
	(void)unused;
	for (;;)
		furca_raw(SYS_exit, 0); /* this thread alone */
}

bool furca_clone_possible(void)
{
	static _Alignas(16) char stack[4096];

	/* A thread, for it needs no reaping; the caller goes on when it has ended. It has the caller's TLS and touches none of it. */
	return furca_arch_clone_plain(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
					      CLONE_VFORK,
				      stack + sizeof(stack), NULL, end_at_once, NULL) > 0;
}
