#include "snapshot/thread.h"

#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "snapshot/raw.h"

#include "base/banned.h"

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

#define CAPABILITY_VERSION 0x20080522 /* _LINUX_CAPABILITY_VERSION_3 */
#define RSEQ_UNREGISTER 1
#define RSEQ_SIZE_MIN 32
#define IOPRIO_WHO_PROCESS 1

/* libc 2.35 and later register an rseq area for each thread at this distance from the thread pointer. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static struct furca_thread *table;
static uint32_t high;
static unsigned long descriptor_distance; /* from pthread_t to the thread pointer; 0 on x86-64 */

int furca_threads_init(void)
{
	if (table)
		return 0;
	void *memory = mmap(NULL, sizeof(struct furca_thread) * FURCA_THREADS_MAX, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	descriptor_distance = furca_arch_tls() - (unsigned long)pthread_self();
	table = memory;
	return 0;
}

struct furca_thread *furca_threads_at(uint32_t index)
{
	return &table[index];
}

uint32_t furca_threads_high(void)
{
	return high;
}

uint32_t furca_threads_index(const struct furca_thread *thread)
{
	return (uint32_t)(thread - table);
}

struct furca_thread *furca_threads_take(uint64_t word)
{
	for (uint32_t i = 0; i < FURCA_THREADS_MAX; i++) {
		uint64_t seen = i < high ? furca_load(&table[i].word) : FURCA_THREAD_FREE;

		if (furca_thread_state(seen) != FURCA_THREAD_FREE || !furca_swap_if(&table[i].word, seen, word))
			continue;
		if (i >= high)
			high = i + 1;
		return &table[i];
	}
	return NULL;
}

uint64_t furca_thread_pthread(const struct furca_thread *thread)
{
	return thread->tls - descriptor_distance;
}

static void record_rseq(struct furca_thread *thread)
{
	thread->rseq = NULL;
	if (!&__rseq_size || !__rseq_size || !thread->tls)
		return;
	/* The second word is cpu_id; negative while nothing is registered. */
	int32_t *area = (int32_t *)(thread->tls + (unsigned long)__rseq_offset);
	if (area[1] < 0)
		return;
	thread->rseq = area;
	thread->rseq_size = __rseq_size < RSEQ_SIZE_MIN ? RSEQ_SIZE_MIN : __rseq_size;
}

static void record_credentials(struct furca_thread_credentials *ret)
{
	struct {
		uint32_t version;
		int32_t pid;
	} header = {CAPABILITY_VERSION, 0};
	struct {
		uint32_t effective, permitted, inheritable;
	} sets[2] = {{0}};

	furca_raw(SYS_getresuid, &ret->uid[0], &ret->uid[1], &ret->uid[2]);
	furca_raw(SYS_getresgid, &ret->gid[0], &ret->gid[1], &ret->gid[2]);
	/* An impossible number only asks. */
	ret->uid[3] = (uid_t)furca_raw(SYS_setfsuid, -1);
	ret->gid[3] = (gid_t)furca_raw(SYS_setfsgid, -1);
	furca_raw(SYS_capget, &header, sets);
	for (int i = 0; i < 2; i++) {
		ret->effective[i] = sets[i].effective;
		ret->permitted[i] = sets[i].permitted;
	}
	ret->no_new_privs = (int32_t)furca_raw(SYS_prctl, PR_GET_NO_NEW_PRIVS);
	ret->seccomp = (int32_t)furca_raw(SYS_prctl, PR_GET_SECCOMP);
}

void furca_thread_record(struct furca_thread *thread)
{
	thread->tid = (pid_t)furca_raw(SYS_gettid);
	thread->tls = furca_arch_tls();
	thread->gs = furca_arch_gs();
	thread->clear_tid = NULL;
	furca_raw(SYS_prctl, PR_GET_TID_ADDRESS, &thread->clear_tid);
	/* A thread of a snapshot has no list registered but keeps in its slot the one to come; see furca_thread_restore. */
	void *robust = NULL;
	size_t size = 0;
	furca_raw(SYS_get_robust_list, 0, &robust, &size);
	thread->robust = robust;
	thread->robust_size = size;
	record_rseq(thread);
	record_credentials(&thread->credentials);
	furca_raw(SYS_prctl, PR_GET_NAME, thread->name);
	thread->timer_slack = (unsigned long)furca_raw(SYS_prctl, PR_GET_TIMERSLACK);
	thread->sched.size = sizeof(thread->sched);
	furca_raw(SYS_sched_getattr, 0, &thread->sched, sizeof(thread->sched), 0);
	long n = furca_raw(SYS_sched_getaffinity, 0, sizeof(thread->affinity), thread->affinity);
	thread->affinity_size = n > 0 ? (uint32_t)n : 0;
	thread->io_priority = furca_raw(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
}

int furca_thread_spawn(struct furca_thread *thread, bool keep_tid)
{
	struct clone_args args;
	pid_t tid = thread->tid;

	memset(&args, 0, sizeof(args));
	args.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;
	args.tls = thread->tls;
	if (thread->clear_tid) {
		args.flags |= CLONE_CHILD_CLEARTID;
		args.child_tid = (uintptr_t)thread->clear_tid;
	}
	if (keep_tid) {
		args.set_tid = (uintptr_t)&tid;
		args.set_tid_size = 1;
	} else if (thread->clear_tid) {
		/* Where the kernel clears the number is where libc keeps it. */
		args.flags |= CLONE_PARENT_SETTID;
		args.parent_tid = (uintptr_t)thread->clear_tid;
	}
	long r = furca_arch_clone_at(&args, sizeof(args), &thread->context);
	/* Where a container's filter refuses clone3, the older call will do: only the choice of numbers is new. */
	if (r == -ENOSYS && !keep_tid)
		r = furca_arch_clone_at_plain(args.flags, NULL, thread->clear_tid, thread->clear_tid, thread->tls,
					      &thread->context);
	if (r < 0)
		return (int)r;
	thread->tid = (pid_t)r;
	return 0;
}

void furca_thread_become(struct furca_thread *thread, const struct furca_thread *caller, bool keep_tid)
{
	furca_raw(SYS_set_tid_address, thread->clear_tid);
	if (!keep_tid) {
		thread->tid = (pid_t)furca_raw(SYS_getpid);
		if (thread->clear_tid)
			*thread->clear_tid = (uint32_t)thread->tid;
	}
	/* A registration handed on by the clone names the caller's area. */
	if (caller->rseq)
		furca_raw(SYS_rseq, caller->rseq, caller->rseq_size, RSEQ_UNREGISTER, FURCA_ARCH_RSEQ_SIGNATURE);
	if (thread != caller)
		furca_arch_set_tls(thread->tls);
	furca_arch_jump(&thread->context, 1);
}

/*
 * A new task has nothing pending, but somebody may wait for the effect of a signal that had been sent to this very thread
 * (pthread_kill, pthread_cancel, libc's setuid broadcast). Signals are blocked now; they come when the old mask is back.
 */
static void requeue(const struct furca_thread *thread)
{
	pid_t pid = (pid_t)furca_raw(SYS_getpid);

	for (int sig = 1; sig <= 64; sig++) {
		siginfo_t info;

		if (!(thread->pending >> (sig - 1) & 1))
			continue;
		memset(&info, 0, sizeof(info));
		info.si_signo = sig;
		info.si_code = SI_TKILL;
		info.si_pid = pid;
		info.si_uid = (uid_t)furca_raw(SYS_getuid);
		furca_raw(SYS_rt_tgsigqueueinfo, pid, thread->tid, sig, &info);
	}
}

static void restore_scheduling(const struct furca_thread *thread, const struct furca_thread *first)
{
	if (thread->timer_slack != first->timer_slack)
		furca_raw(SYS_prctl, PR_SET_TIMERSLACK, thread->timer_slack);
	if (thread->sched.policy != first->sched.policy || thread->sched.nice != first->sched.nice ||
	    thread->sched.priority != first->sched.priority || thread->sched.flags != first->sched.flags)
		furca_raw(SYS_sched_setattr, 0, &thread->sched, 0);
	if (memcmp(thread->affinity, first->affinity, thread->affinity_size) != 0)
		furca_raw(SYS_sched_setaffinity, 0, thread->affinity_size, thread->affinity);
	if (thread->io_priority != first->io_priority)
		furca_raw(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, thread->io_priority);
}

void furca_thread_restore_robust(const struct furca_thread *thread)
{
	if (thread->robust)
		furca_raw(SYS_set_robust_list, thread->robust, thread->robust_size);
}

void furca_thread_restore(struct furca_thread *thread, const struct furca_thread *first, bool later)
{
	furca_arch_set_gs(thread->gs);
	if (!later)
		furca_thread_restore_robust(thread);
	if (thread->rseq)
		furca_raw(SYS_rseq, thread->rseq, thread->rseq_size, 0, FURCA_ARCH_RSEQ_SIGNATURE);
	if (thread != first) {
		if (memcmp(thread->name, first->name, sizeof(thread->name)) != 0)
			furca_raw(SYS_prctl, PR_SET_NAME, thread->name);
		restore_scheduling(thread, first);
	}
	requeue(thread);
}
