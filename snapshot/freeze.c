#include "snapshot/freeze.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "snapshot/interrupted.h"
#include "snapshot/raw.h"
#include "snapshot/task.h"

#include "base/banned.h"

/* A negative si_code of our own: neither the kernel nor libc sends it. */
#define STOP_CODE (-0x66)

#define ATTEMPT_US 20000 /* how long a sleeping thread may fail to answer, at first */
#define ATTEMPT_MAX_US 500000
#define PAUSE_MAX_US 20000 /* between two attempts */
#define RELEASE_US 20	   /* for threads that are let out for a moment */

struct kernel_sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static struct {
	uint32_t gate; /* futex: twice the generation that stands still, +1 while the roll is called; 0: open */
	uint32_t generation;
	uint32_t arrived, wanted; /* futex: threads that have stopped in this attempt, how many are to */
	uint32_t answered;	  /* futex: threads that have noted their pending signals */
	furca_freeze_reborn_fn *reborn;
	struct kernel_sigaction former; /* libc's */
	char names[16384];		/* of /proc/self/task */
} world;

/* One pass over the threads of the process. */
struct census {
	uint32_t generation, pass;
	long directory;
	pid_t pid, self;
	bool foreign;	  /* /proc shows numbers of an outer namespace */
	bool leader_gone; /* the main thread has ended; its task lasts as long as the process */
	int called;	  /* signalled in this pass */
	int missing;	  /* not stopped yet */
	int asleep;	  /* of those, not on a processor and not about to be */
	pid_t blame;	  /* one of them, as /proc numbers it */
	bool queue_full;  /* the user's limit on queued signals is used up */
};

/* All signals are blocked in the handler, so that what is pending is all there is. */
static void answer(struct furca_thread *thread)
{
	uint64_t pending = 0;

	furca_raw(SYS_rt_sigpending, &pending, 8);
	thread->pending = pending;
	if (furca_add(&world.answered, 1) >= furca_load(&world.wanted))
		furca_raw_wake(&world.answered, 1, FURCA_RAW_PRIVATE);
}

static void stay(struct furca_thread *thread, uint32_t generation)
{
	uint32_t gate;
	bool called = false;

	while ((gate = furca_load(&world.gate)) >> 1 == generation && !furca_load(&thread->released)) {
		if ((gate & 1) && !called) {
			called = true;
			answer(thread);
			continue;
		}
		furca_raw_wait(&world.gate, gate, -1, FURCA_RAW_PRIVATE);
	}
}

/* Waits in the handler while the gate is shut or the thread is parked, then gives the slot back. */
static void wait_at_gate(struct furca_thread *thread)
{
	for (;;) {
		uint64_t word = furca_load(&thread->word);
		uint32_t parked;
		bool was_parked = false;

		stay(thread, furca_thread_generation(word));
		while ((parked = furca_load(&thread->parked)) != FURCA_THREAD_RUNS) {
			was_parked = true;
			furca_raw_wait(&thread->parked, parked, -1, FURCA_RAW_PRIVATE);
		}
		if (was_parked)
			furca_thread_restore_robust(thread);
		/* A new freeze may have taken this thread over meanwhile, for its word is still FROZEN. */
		if (furca_swap_if(&thread->word, word, furca_thread_word(0, FURCA_THREAD_FREE)))
			return;
	}
}

/* The context saved here is where the thread comes back in a clone. */
static __attribute__((noinline)) void stand_still(struct furca_thread *thread, uint32_t generation)
{
	if (furca_arch_save(&thread->context) == 0) {
		furca_store(&thread->word, furca_thread_word(generation, FURCA_THREAD_FROZEN));
		if (furca_add(&world.arrived, 1) >= furca_load(&world.wanted))
			furca_raw_wake(&world.arrived, 1, FURCA_RAW_PRIVATE);
	} else {
		world.reborn(thread);
	}
	wait_at_gate(thread);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	if (info->si_code == SI_TIMER) {
		furca_interrupted_learn_one(context);
		return;
	}
	if (info->si_code != STOP_CODE || info->si_pid != (pid_t)furca_raw(SYS_getpid)) {
		if (world.former.handler)
			((void (*)(int, siginfo_t *, void *))world.former.handler)(sig, info, context);
		return;
	}
	uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
	uint32_t generation = (uint32_t)(value >> 32), index = (uint32_t)value;

	if (index >= FURCA_THREADS_MAX)
		return;
	struct furca_thread *thread = furca_threads_at(index);
	/* Fails where that attempt has been given up. */
	if (!furca_swap_if(&thread->word, furca_thread_word(generation, FURCA_THREAD_CALLED),
			   furca_thread_word(generation, FURCA_THREAD_ARRIVED)))
		return;
	furca_thread_record(thread);
	bool rewound = furca_interrupted_repair(&thread->call, context);
	thread->frame = context;
	stand_still(thread, generation);
	/* The slot is another's from here on. */
	furca_interrupted_release(context, rewound);
}

int furca_freeze_init(furca_freeze_reborn_fn *reborn, struct furca_err *err)
{
	struct kernel_sigaction now, ours;
	int r = furca_threads_init();

	if (r < 0)
		return furca_fail(err, FURCA_E_MEMORY, -r, "cannot reserve the table of threads");
	memset(&now, 0, sizeof(now));
	furca_raw(SYS_rt_sigaction, FURCA_FREEZE_SIGNAL, NULL, &now, 8);
	world.reborn = reborn;
	if (now.handler == (void *)handler)
		return 0;
	memset(&ours, 0, sizeof(ours));
	ours.handler = (void *)handler;
	ours.flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	ours.mask = ~0ULL;
#ifdef FURCA_ARCH_SA_RESTORER
	ours.flags |= FURCA_ARCH_SA_RESTORER;
	ours.restorer = (void *)furca_arch_restorer;
#endif
	world.former = now;
	long e = furca_raw(SYS_rt_sigaction, FURCA_FREEZE_SIGNAL, &ours, NULL, 8);
	if (e < 0)
		return furca_fail(err, FURCA_E_SYSTEM, (int)-e, "cannot take signal %d to stop threads with",
				  FURCA_FREEZE_SIGNAL);
	return 0;
}

uint32_t furca_freeze_generation(void)
{
	return world.generation;
}

int furca_freeze_count(void)
{
	struct stat st;

	long r = furca_raw(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0);

	/* procfs counts the threads among the directory's links. */
	return r < 0 ? (int)r : (int)st.st_nlink - 2;
}

static int count_frozen(uint32_t generation)
{
	uint64_t word = furca_thread_word(generation, FURCA_THREAD_FROZEN);
	int n = 0;

	for (uint32_t i = 0; i < furca_threads_high(); i++)
		n += furca_load(&furca_threads_at(i)->word) == word;
	return n;
}

/* Threads that are parked, or still on their way out of the gate, have not left the handler: they need no signal. */
static void take_over(uint32_t generation)
{
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);
		uint64_t word = furca_load(&thread->word);

		if (furca_thread_state(word) == FURCA_THREAD_FROZEN && furca_thread_generation(word) != generation &&
		    !thread->released &&
		    furca_swap_if(&thread->word, word, furca_thread_word(generation, FURCA_THREAD_FROZEN)))
			furca_add(&world.arrived, 1);
	}
}

/* The slot in use for that thread, or NULL. Slots are taken in the order of the list, so the one behind the last is tried first. */
static struct furca_thread *find(pid_t tid, uint32_t *hint)
{
	uint32_t high = furca_threads_high();

	for (uint32_t i = 0; i < high; i++) {
		uint32_t index = (*hint + i) % high;
		struct furca_thread *thread = furca_threads_at(index);

		if (thread->tid == tid && furca_thread_state(furca_load(&thread->word)) != FURCA_THREAD_FREE) {
			*hint = index + 1;
			return thread;
		}
	}
	return NULL;
}

static int call(struct census *census, pid_t tid, pid_t proc_tid)
{
	struct furca_thread *thread = furca_threads_take(furca_thread_word(census->generation, FURCA_THREAD_TAKEN));
	siginfo_t info;

	if (!thread)
		return -E2BIG;
	thread->tid = tid;
	thread->proc_tid = proc_tid;
	thread->parked = 0;
	thread->released = 0;
	thread->pending = 0;
	thread->scan = census->pass;
	furca_interrupted_note(&thread->call, proc_tid);
	furca_store(&thread->word, furca_thread_word(census->generation, FURCA_THREAD_CALLED));
	memset(&info, 0, sizeof(info));
	info.si_signo = FURCA_FREEZE_SIGNAL;
	info.si_code = STOP_CODE;
	info.si_pid = census->pid;
	info.si_value.sival_ptr = (void *)(uintptr_t)((uint64_t)census->generation << 32 | furca_threads_index(thread));
	long e = furca_raw(SYS_rt_tgsigqueueinfo, census->pid, tid, FURCA_FREEZE_SIGNAL, &info);
	if (e == 0) {
		census->called++;
		census->missing++;
		return 0;
	}
	furca_store(&thread->word, furca_thread_word(0, FURCA_THREAD_FREE));
	if (e == -ESRCH)
		return 0;
	census->queue_full = e == -EAGAIN;
	census->missing++;
	census->asleep++;
	census->blame = proc_tid;
	return 0;
}

/* A thread that was called and has not stopped yet. */
static int look_at(struct census *census, const struct furca_thread *thread, pid_t proc_tid)
{
	struct furca_task task;

	if (furca_task_read(proc_tid, &task) < 0 || task.state == 'X')
		return 0;
	if (task.kernel_worker) {
		census->blame = proc_tid;
		return -EOPNOTSUPP;
	}
	if (task.state == 'Z') {
		census->leader_gone |= thread->tid == census->pid;
		return 0;
	}
	/* It may sleep at the gate already. */
	if (furca_load(&thread->word) == furca_thread_word(census->generation, FURCA_THREAD_FROZEN))
		return 0;
	census->missing++;
	if (task.state != 'R')
		census->asleep++;
	if (task.state != 'R' || !census->blame)
		census->blame = proc_tid;
	return 0;
}

static int visit(struct census *census, pid_t proc_tid, uint32_t *hint)
{
	pid_t tid = census->foreign ? furca_task_tid(proc_tid) : proc_tid;

	if (tid == census->self || tid <= 0)
		return 0;
	struct furca_thread *thread = find(tid, hint);
	if (!thread)
		return call(census, tid, proc_tid);
	thread->proc_tid = proc_tid;
	if (furca_load(&thread->word) == furca_thread_word(census->generation, FURCA_THREAD_FROZEN))
		return 0;
	return look_at(census, thread, proc_tid);
}

/* Reads the list of threads once; calls those that were not called. */
static int pass(struct census *census)
{
	uint32_t hint = 0;

	census->pass++;
	census->called = census->missing = census->asleep = 0;
	census->blame = 0;
	census->queue_full = false;
	furca_raw(SYS_lseek, census->directory, 0, SEEK_SET);
	for (;;) {
		long n = furca_raw(SYS_getdents64, census->directory, world.names, sizeof(world.names));

		if (n <= 0)
			return (int)n;
		for (long at = 0; at < n;) {
			const struct dirent64 *entry = (const void *)(world.names + at);
			const char *digits = entry->d_name;
			int r;

			at += entry->d_reclen;
			if (*digits < '0' || *digits > '9')
				continue;
			r = visit(census, (pid_t)furca_raw_number(&digits, 10), &hint);
			if (r < 0)
				return r;
		}
	}
}

static void open_gate(void)
{
	furca_store(&world.gate, 0);
	furca_raw_wake(&world.gate, INT_MAX, FURCA_RAW_PRIVATE);
}

/* Slots of threads that were called and never came, in a process or in a clone of it. */
static void forget_called(void)
{
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);
		uint64_t word = furca_load(&thread->word);

		if (furca_thread_state(word) == FURCA_THREAD_CALLED)
			furca_swap_if(&thread->word, word, furca_thread_word(0, FURCA_THREAD_FREE));
	}
}

/* 0: all stand still, 1: somebody does not answer, or -errno. */
static int attempt(struct census *census, int64_t patience_us, int64_t deadline_us)
{
	furca_store(&world.arrived, (uint32_t)count_frozen(census->generation));
	furca_store(&world.wanted, INT_MAX);
	furca_store(&world.gate, census->generation << 1);
	take_over(census->generation);
	for (int tries = 0;; tries++) {
		int frozen = count_frozen(census->generation);

		/* Nobody who stands still makes or ends a thread, so equal numbers mean that only the caller runs. */
		if (!(census->foreign && census->pass == 0) && frozen + 1 + census->leader_gone == furca_freeze_count())
			return 0;
		int r = pass(census);
		if (r < 0)
			return r;
		if (census->missing) {
			uint32_t want = (uint32_t)(count_frozen(census->generation) + census->missing);

			furca_store(&world.wanted, want);
			uint32_t arrived = furca_load(&world.arrived);
			if (arrived < want)
				furca_raw_wait(&world.arrived, arrived, tries < 3 ? 500 : 2000, FURCA_RAW_PRIVATE);
		}
		int64_t now = furca_raw_now_us();
		if (now > deadline_us || (census->asleep && now > patience_us))
			return 1;
	}
}

static int blame(const struct census *census, int r, struct furca_err *err)
{
	struct furca_task_blame why;

	if (r == -E2BIG)
		return furca_fail_suggest(err, FURCA_E_CLONE, 0, "Use fewer threads in this session.",
					  "the process has more than %d threads", FURCA_THREADS_MAX);
	if (census->queue_full)
		return furca_fail_suggest(err, FURCA_E_CLONE, EAGAIN,
					  "Raise the limit (ulimit -i), or let pending signals be handled.",
					  "the limit on queued signals is used up, so that threads cannot be stopped");
	if (!census->blame)
		return furca_fail_suggest(err, FURCA_E_CLONE, r < 0 ? -r : ETIMEDOUT,
					  "Try again when fewer threads are being made.",
					  "the threads of the process could not be stopped");
	furca_task_explain(census->blame, FURCA_FREEZE_SIGNAL, &why);
	return furca_fail_suggest(err, FURCA_E_CLONE, r < 0 ? -r : ETIMEDOUT, why.suggestion, "thread %d (%s) %s",
				  (int)census->blame, why.name, why.what);
}

static int begin(struct census *census, struct furca_err *err)
{
	*census = (struct census){.pid = (pid_t)furca_raw(SYS_getpid), .self = (pid_t)furca_raw(SYS_gettid)};
	census->foreign = furca_task_foreign(census->pid);
	census->directory = furca_raw_open("/proc/self/task", O_RDONLY | O_DIRECTORY);
	return census->directory < 0 ? furca_fail(err, FURCA_E_SYSTEM, (int)-census->directory,
						  "cannot list the threads of the process")
				     : 0;
}

int furca_freeze(int64_t deadline_us, struct furca_err *err)
{
	struct census census;
	int64_t patience_us = ATTEMPT_US;
	int r = begin(&census, err);

	if (r < 0)
		return r;
	for (;;) {
		/* 31 bits, for the gate has one more; never 0. */
		world.generation = (world.generation + 1) & 0x7fffffffU;
		if (world.generation == 0)
			world.generation = 1;
		census.generation = world.generation;
		census.pass = 0;
		r = attempt(&census, furca_raw_now_us() + patience_us, deadline_us);
		if (r == 0)
			break;
		open_gate();
		forget_called();
		if (r < 0 || furca_raw_now_us() > deadline_us)
			break;
		/* All go on, for the one that is missing may need one that stood still. */
		furca_raw_sleep_us(patience_us < PAUSE_MAX_US ? patience_us : PAUSE_MAX_US);
		if (patience_us < ATTEMPT_MAX_US)
			patience_us *= 2;
	}
	furca_raw_close(census.directory);
	if (r == 0) {
		forget_called();
		return 0;
	}
	return blame(&census, r, err);
}

/* Opens the gate for some alone, and waits until they have left the handler. False: one did not. */
static bool let_out(uint32_t generation, bool (*which)(const struct furca_thread *))
{
	uint64_t word = furca_thread_word(generation, FURCA_THREAD_FROZEN);
	int64_t deadline_us = furca_raw_now_us() + ATTEMPT_US;
	bool left = false;

	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		if (thread->word == word && !thread->parked && which(thread))
			furca_store(&thread->released, 1);
	}
	furca_raw_wake(&world.gate, INT_MAX, FURCA_RAW_PRIVATE);
	while (!left && furca_raw_now_us() < deadline_us) {
		left = true;
		for (uint32_t i = 0; i < furca_threads_high(); i++) {
			const struct furca_thread *thread = furca_threads_at(i);

			left &= !thread->released || furca_load(&thread->word) != word;
		}
		if (!left)
			furca_raw_sleep_us(RELEASE_US);
	}
	return left;
}

int furca_freeze_again(bool (*which)(const struct furca_thread *thread), int64_t deadline_us, struct furca_err *err)
{
	struct census census;
	int r = begin(&census, err);

	if (r == 0) {
		census.generation = world.generation;
		r = let_out(census.generation, which) ? attempt(&census, furca_raw_now_us() + ATTEMPT_US, deadline_us)
						      : 1;
		furca_raw_close(census.directory);
	}
	if (r == 0) {
		forget_called();
		return 0;
	}
	open_gate();
	forget_called();
	return r < 0 && err && err->code ? r : blame(&census, r, err);
}

/* A parked thread is not asked: nobody may have sent it anything, unless others run. */
static bool is_asked(const struct furca_thread *thread, const struct furca_thread *caller)
{
	return thread->word == furca_thread_word(world.generation, FURCA_THREAD_FROZEN) && !thread->parked &&
	       thread != caller;
}

int furca_freeze_roll_call(const struct furca_thread *caller, int64_t deadline_us)
{
	uint32_t want = 0, answered;

	for (uint32_t i = 0; i < furca_threads_high(); i++)
		want += is_asked(furca_threads_at(i), caller);
	furca_store(&world.answered, 0);
	furca_store(&world.wanted, want);
	furca_store(&world.gate, world.generation << 1 | 1);
	furca_raw_wake(&world.gate, INT_MAX, FURCA_RAW_PRIVATE);
	while ((answered = furca_load(&world.answered)) < want) {
		if (furca_raw_now_us() > deadline_us)
			return -ETIMEDOUT;
		furca_raw_wait(&world.answered, answered, 1000, FURCA_RAW_PRIVATE);
	}
	return 0;
}

void furca_freeze_thaw(void)
{
	open_gate();
}

void furca_freeze_adopt(void)
{
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		thread->proc_tid = 0;
		if (thread->word != furca_thread_word(world.generation, FURCA_THREAD_FROZEN))
			thread->word = furca_thread_word(0, FURCA_THREAD_FREE);
	}
}

int furca_freeze_unpark(uint32_t which)
{
	int n = 0;

	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		if (furca_thread_state(furca_load(&thread->word)) != FURCA_THREAD_FROZEN ||
		    !(1U << furca_load(&thread->parked) & which))
			continue;
		furca_store(&thread->parked, FURCA_THREAD_RUNS);
		furca_raw_wake(&thread->parked, 1, FURCA_RAW_PRIVATE);
		n++;
	}
	return n;
}

int furca_freeze_parked(void)
{
	int n = 0;

	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		n += furca_thread_state(furca_load(&thread->word)) == FURCA_THREAD_FROZEN &&
		     furca_load(&thread->parked);
	}
	return n;
}
