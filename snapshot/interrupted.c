#include "snapshot/interrupted.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "snapshot/raw.h"
#include "snapshot/task.h"

#include "base/banned.h"

/* How a call says that it waits without a relative time. */
enum condition {
	ALWAYS = 1,	/* it has none */
	NEGATIVE,	/* the argument is an int below 0 */
	NO_POINTER,	/* the argument is NULL */
	ABSOLUTE_FLAG,	/* the argument has bit 0, TIMER_ABSTIME */
	FUTEX_ABSOLUTE, /* a futex operation that takes a fixed time */
};

static const struct {
	long nr;
	enum condition condition;
	int argument;
} restartable[] = {
#ifdef SYS_poll
	{SYS_poll, NEGATIVE, 2},
#endif
	{SYS_ppoll, NO_POINTER, 2},
#ifdef SYS_select
	{SYS_select, NO_POINTER, 4},
#endif
	{SYS_pselect6, NO_POINTER, 4},
#ifdef SYS_epoll_wait
	{SYS_epoll_wait, NEGATIVE, 3},
#endif
	{SYS_epoll_pwait, NEGATIVE, 3},
#ifdef SYS_epoll_pwait2
	{SYS_epoll_pwait2, NO_POINTER, 3},
#endif
	{SYS_clock_nanosleep, ABSOLUTE_FLAG, 1},
	{SYS_rt_sigtimedwait, NO_POINTER, 2},
	{SYS_semtimedop, NO_POINTER, 3},
	{SYS_io_getevents, NO_POINTER, 4},
#ifdef SYS_pause
	{SYS_pause, ALWAYS, 0},
#endif
	{SYS_rt_sigsuspend, ALWAYS, 0},
	{SYS_msgrcv, ALWAYS, 0},
	{SYS_msgsnd, ALWAYS, 0},
	{SYS_semop, ALWAYS, 0},
	{SYS_futex, FUTEX_ABSOLUTE, 1},
};

static bool may_restart(const struct furca_thread_call *call)
{
	for (size_t i = 0; i < sizeof(restartable) / sizeof(restartable[0]); i++) {
		if (restartable[i].nr != call->nr)
			continue;
		unsigned long argument = call->argument[restartable[i].argument];
		switch (restartable[i].condition) {
		case ALWAYS:
			return true;
		case NEGATIVE:
			return (int)argument < 0;
		case NO_POINTER:
			return argument == 0;
		case ABSOLUTE_FLAG:
			return argument & 1;
		case FUTEX_ABSOLUTE:
			argument &= FUTEX_CMD_MASK;
			return argument == FUTEX_WAIT_BITSET || argument == FUTEX_LOCK_PI ||
			       argument == 13 /* LOCK_PI2 */ || argument == FUTEX_WAIT_REQUEUE_PI;
		}
	}
	return false;
}

static bool notes_needed;

#define LEARN_EVERY_NS 50000 /* an instant long enough to get into the call most of the time */

static struct {
	bool seen; /* the signal has found the call */
	long nr;   /* what the call is taken for; -1: it cannot be told */
	int epoll;
	struct epoll_event event;
} learnt;

static bool returned_eintr(const ucontext_t *frame)
{
	return furca_arch_frame_result(frame) == -EINTR &&
	       furca_arch_is_syscall(furca_arch_frame_pc(frame) - FURCA_ARCH_SYSCALL_LENGTH);
}

void furca_interrupted_learn_one(const ucontext_t *frame)
{
	unsigned long argument[6];

	/* It came before the call began, or after: the next one will find it. */
	if (!returned_eintr(frame))
		return;
	if (!furca_arch_frame_call(frame, &learnt.nr, argument))
		learnt.nr = -1;
	learnt.seen = true;
}

/* Each with libc's function, whose code may differ; nothing comes but the signal. */
static int wait_in_poll(void)
{
	return poll(NULL, 0, -1);
}
static int wait_in_ppoll(void)
{
	return ppoll(NULL, 0, NULL, NULL);
}
static int wait_in_select(void)
{
	return select(0, NULL, NULL, NULL, NULL);
}
static int wait_in_pselect(void)
{
	return pselect(0, NULL, NULL, NULL, NULL, NULL);
}

static int wait_in_epoll(void)
{
	return epoll_wait(learnt.epoll, &learnt.event, 1, -1);
}
static int wait_in_epoll_pwait(void)
{
	return epoll_pwait(learnt.epoll, &learnt.event, 1, -1, NULL);
}

static int wait_in_sigwait(void)
{
	sigset_t none;

	sigemptyset(&none);
	return sigwaitinfo(&none, NULL);
}

static int wait_in_sleep(void)
{
	struct timespec never = {.tv_sec = INT32_MAX};

	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &never, NULL);
	return errno ? -1 : 0;
}

static int wait_in_semaphore(void)
{
	struct timespec never = {.tv_sec = INT32_MAX};
	sem_t semaphore;

	return sem_init(&semaphore, 0, 0) < 0 ? -1 : sem_timedwait(&semaphore, &never);
}

static const struct {
	long nr, also; /* the number, and another one that libc may choose for it */
	int (*wait)(void);
} learning[] = {
#ifdef SYS_poll
	{SYS_poll, SYS_ppoll, wait_in_poll},
	{SYS_select, SYS_pselect6, wait_in_select},
	{SYS_epoll_wait, SYS_epoll_pwait, wait_in_epoll},
#endif
	{SYS_ppoll, SYS_ppoll, wait_in_ppoll},
	{SYS_pselect6, SYS_pselect6, wait_in_pselect},
	{SYS_epoll_pwait, SYS_epoll_pwait, wait_in_epoll_pwait},
	{SYS_rt_sigtimedwait, SYS_rt_sigtimedwait, wait_in_sigwait},
	{SYS_clock_nanosleep, SYS_clock_nanosleep, wait_in_sleep},
	{SYS_futex, SYS_futex, wait_in_semaphore},
};

/* Whether all can be told; false also where the calls are refused, as by a container's filter. */
static bool learn_all(void)
{
	for (size_t i = 0; i < sizeof(learning) / sizeof(learning[0]); i++) {
		learnt.seen = false;
		while (!learnt.seen)
			if (learning[i].wait() >= 0 || errno != EINTR)
				return false;
		if (learnt.nr != learning[i].nr && learnt.nr != learning[i].also)
			return false;
	}
	return true;
}

void furca_interrupted_learn(int sig)
{
	static bool done;
	const struct itimerspec often = {{0, LEARN_EVERY_NS}, {0, LEARN_EVERY_NS}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL | SIGEV_THREAD_ID, .sigev_signo = sig};
	uint64_t blocked = 0;
	int timer, former = errno;

	if (done)
		return;
	done = true;
	furca_store(&notes_needed, true);
	event._sigev_un._tid = (pid_t)furca_raw(SYS_gettid);
	furca_raw(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &blocked, 8);
	/* libc's functions do not let signal 33 be used. */
	if (blocked >> (sig - 1) & 1 || furca_raw(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) < 0)
		return;
	learnt.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (furca_raw(SYS_timer_settime, timer, 0, &often, NULL) == 0)
		furca_store(&notes_needed, !learn_all());
	furca_raw(SYS_timer_delete, timer);
	if (learnt.epoll >= 0)
		(void)close(learnt.epoll);
	errno = former;
}

void furca_interrupted_note(struct furca_thread_call *call, pid_t proc_tid)
{
	char buf[256];
	const char *p = buf;

	call->nr = -1;
	/* "running", "-1 sp pc", or the number, six arguments, sp and pc. */
	if (!furca_load(&notes_needed) || furca_task_syscall(proc_tid, buf, sizeof(buf)) <= 0 || *p < '0' || *p > '9')
		return;
	long nr = (long)furca_raw_number(&p, 10);
	for (int i = 0; i < 6; i++)
		call->argument[i] = furca_raw_number(&p, 16);
	call->sp = furca_raw_number(&p, 16);
	call->pc = furca_raw_number(&p, 16);
	call->nr = nr;
}

bool furca_interrupted_repair(struct furca_thread_call *call, ucontext_t *frame)
{
	if (!returned_eintr(frame))
		return false;
	if (call->nr >= 0) {
		/* Where the call is another by now than the one noted, it has an EINTR of its own. */
		if (call->pc != furca_arch_frame_pc(frame) || call->sp != furca_arch_frame_sp(frame)) {
			call->nr = -1;
			return false;
		}
	} else if (!furca_arch_frame_call(frame, &call->nr, call->argument)) {
		furca_store(&notes_needed, true);
		return false;
	}
	if (!may_restart(call))
		return false;
	furca_arch_frame_rewind(frame, call->nr, call->argument[0]);
	return true;
}

long furca_interrupted_call(const struct furca_thread *thread)
{
	const ucontext_t *frame = thread->frame;
	unsigned long pc = furca_arch_frame_pc(frame);

	if (furca_arch_is_syscall(pc))
		return furca_arch_frame_number(frame);
	return returned_eintr(frame) ? thread->call.nr : -1;
}

/* Calls that the kernel restarts after our handler, and that a handler without SA_RESTART would have ended. */
static bool is_slow(long nr)
{
	static const long slow[] = {SYS_read,	SYS_readv,   SYS_write,	  SYS_writev, SYS_recvfrom, SYS_recvmsg,
				    SYS_sendto, SYS_sendmsg, SYS_accept4, SYS_wait4,  SYS_waitid,   SYS_flock};

	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++)
		if (slow[i] == nr)
			return true;
	return false;
}

void furca_interrupted_release(ucontext_t *frame, bool rewound)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} action = {0};
	uint64_t pending = 0, blocked = *(const uint64_t *)&frame->uc_sigmask;

	furca_raw(SYS_rt_sigpending, &pending, 8);
	pending &= ~blocked & ~(3ULL << 31); /* 32 and 33 are libc's */
	if (!pending || !furca_arch_is_syscall(furca_arch_frame_pc(frame)))
		return;
	/* The lowest is delivered first. */
	furca_raw(SYS_rt_sigaction, __builtin_ctzll(pending) + 1, NULL, &action, 8);
	if (action.handler == (void *)SIG_DFL || action.handler == (void *)SIG_IGN)
		return;
	if (rewound || (!(action.flags & SA_RESTART) && is_slow(furca_arch_frame_number(frame))))
		furca_arch_frame_interrupt(frame);
}
