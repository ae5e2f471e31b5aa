#include "snapshot/clone.h"

#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "snapshot/barriers.h"
#include "snapshot/born.h"
#include "snapshot/detect.h"
#include "snapshot/fds.h"
#include "snapshot/freeze.h"
#include "snapshot/hop.h"
#include "snapshot/inside.h"
#include "snapshot/interrupted.h"
#include "snapshot/offsets.h"
#include "snapshot/raw.h"
#include "snapshot/timers.h"

#include "base/banned.h"

#define TIMEOUT_US 2000000
#define CUT_US                                                                                                         \
	5000000 /* for the clone to make descriptors and mappings its own, while the caller's threads stand still */
#define COMPLETE_US 5000000 /* for the clone to make its threads, while the caller's run */
#define SETTLE_US 20000	    /* for threads to leave libc before they are parked */
#define SETTLE_PAUSE_US 100
#define PAGE_SIZE 4096

_Static_assert(sizeof(struct furca_born_page) <= PAGE_SIZE, "the clone reports on one page");

static uint32_t lock; /* futex: 1, a clone is being made; 2, and somebody waits */

static struct {
	bool barred;  /* the cell could not be entered, or no clone made in it */
	bool threads; /* it was the other threads that could not be stopped or made again */
} making;

static void take_lock(void)
{
	uint32_t none = 0;

	if (__atomic_compare_exchange_n(&lock, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	while (__atomic_exchange_n(&lock, 2, __ATOMIC_ACQ_REL) != 0)
		furca_raw_wait(&lock, 2, -1, FURCA_RAW_PRIVATE);
}

static void release_lock(void)
{
	if (__atomic_exchange_n(&lock, 0, __ATOMIC_ACQ_REL) == 2)
		furca_raw_wake(&lock, 1, FURCA_RAW_PRIVATE);
}

int furca_clone_init(struct furca_err *err)
{
	int r = furca_hop_init(err);

	if (r < 0)
		return r;
	furca_inside_init();
	furca_barriers_init();
	return furca_freeze_init(furca_born_thread, err);
}

/* The caller's own slot; the other threads filled theirs in the handler. */
static int record_caller(void)
{
	struct furca_thread *thread =
		furca_threads_take(furca_thread_word(furca_freeze_generation(), FURCA_THREAD_TAKEN));

	if (!thread)
		return -E2BIG;
	thread->parked = 0;
	thread->released = 0;
	thread->proc_tid = 0;
	thread->pending = 0;
	thread->frame = NULL;
	furca_thread_record(thread);
	if (!thread->robust) {
		thread->robust = furca_born_unpromoted.robust;
		thread->robust_size = furca_born_unpromoted.robust_size;
	}
	furca_raw(SYS_sigaltstack, NULL, &thread->altstack);
	furca_store(&thread->word, furca_thread_word(furca_freeze_generation(), FURCA_THREAD_FROZEN));
	furca_born.caller = thread;
	return 0;
}

/* Without numbers of their own choosing, clones of threads that own a lock would not own it. */
static int may_renumber(struct furca_err *err)
{
	uint64_t word = furca_thread_word(furca_freeze_generation(), FURCA_THREAD_FROZEN);

	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		const struct furca_thread *thread = furca_threads_at(i);

		if (thread->word == word && furca_detect_robust_held(thread))
			return furca_fail_suggest(err, FURCA_E_CLONE, 0,
						  "Make the clone in a cell, which keeps thread numbers.",
						  "thread %d (%s) holds a robust mutex, which names it by number",
						  thread->tid, thread->name);
	}
	return 0;
}

/* Waits until *word is not 0. 0, -ETIMEDOUT, or -ECHILD where the clone has ended. Raw. */
static int wait_for(const uint32_t *word, int pidfd, int64_t deadline_us)
{
	while (!furca_load(word)) {
		int64_t left_us = deadline_us - furca_raw_now_us();

		if (left_us <= 0)
			return -ETIMEDOUT;
		furca_raw_wait(word, 0, left_us < 20000 ? left_us : 20000, FURCA_RAW_SHARED);
		if (!furca_load(word) && furca_hop_ended(pidfd))
			return furca_load(word) ? 0 : -ECHILD;
	}
	return 0;
}

static const char *const step_text[] = {
#define STEP(name, what) what,
	FURCA_BORN_STEPS(STEP)
#undef STEP
};

static int explain_call(long r, struct furca_err *err)
{
	switch (r) {
	case -EEXIST:
		return furca_fail_suggest(err, FURCA_E_CLONE, EEXIST, "Make a new cell for each clone.",
					  "the number %d is in use in that cell", (int)furca_born.leader);
	case -ESRCH:
		return furca_fail_suggest(err, FURCA_E_ISOLATION, ESRCH, "Ask for another cell.", "the cell has ended");
	case -EPERM:
		return furca_fail_suggest(err, FURCA_E_CLONE, EPERM,
					  "Run furca as root or allow user namespaces; `furca doctor` tells.",
					  "the cell cannot be entered or the process's number cannot be kept in it");
	case -ENOSPC:
		return furca_fail_suggest(err, FURCA_E_CLONE, ENOSPC, "Make the clone in a cell nearer to the surface.",
					  "pid namespaces nest too deep or there are too many");
	case -ETIMEDOUT:
		return furca_fail_suggest(err, FURCA_E_CLONE, ETIMEDOUT,
					  "Close the session if it hangs now; allow user namespaces.",
					  "a library's handler around fork did not return");
	case -EAGAIN:
		return furca_fail_suggest(err, FURCA_E_MEMORY, EAGAIN,
					  "End some processes, or raise the limit (ulimit -u, pids.max).",
					  "cannot start a process: a limit on processes is reached");
	case -ENOMEM:
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "there is not enough memory for a clone");
	default:
		return furca_fail(err, FURCA_E_CLONE, (int)-r, "the process cannot be cloned");
	}
}

/* Whether that answer means that the cell lets nobody in, or no clone be made in it. */
static bool bars(long r)
{
	return r == -EPERM || r == -EACCES || r == -EINVAL || r == -ENOSYS;
}

/* Words for a clone that did not come to be. */
static int explain(const struct furca_born_page *page, int r, struct furca_err *err)
{
	if (furca_load(&page->complete) == 2) {
		if (page->step == FURCA_BORN_ENTER) {
			making.barred = bars(-page->sys);
			return explain_call(-page->sys, err);
		}
		if (page->step == FURCA_BORN_MEMORY)
			return furca_fail_suggest(
				err, FURCA_E_CLONE, 0, "Let clones have it (MADV_DOFORK), or unmap it.",
				"the process keeps some of its memory from its clones (MADV_DONTFORK)");
		if (page->step == FURCA_BORN_BARRIERS || (page->step == FURCA_BORN_SEAL && page->barriers.sys))
			return furca_barriers_fail(furca_born.plan, &page->barriers, err);
		making.threads = page->step == FURCA_BORN_THREADS;
		if (page->tid)
			return furca_fail(err, FURCA_E_CLONE, page->sys, "the clone could not %s (thread %d)",
					  step_text[page->step], page->tid);
		return furca_fail(err, FURCA_E_CLONE, page->sys, "the clone could not %s", step_text[page->step]);
	}
	if (r == -ETIMEDOUT)
		return furca_fail_suggest(err, FURCA_E_CLONE, ETIMEDOUT, "Try again when the machine is less busy.",
					  "the clone was not complete in time");
	return furca_fail_suggest(err, FURCA_E_CLONE, -r, "Try again; if memory is short, free some.",
				  "the clone ended before it was complete");
}

static void kill_clone(int pidfd)
{
	furca_raw(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* What of one clone lives on the caller's stack. */
struct attempt {
	struct furca_clone_report *report;
	struct furca_err *err;
	int64_t begin_us, stopped_us, cloned_us, thawed_us, deadline_us;
	int pidfd;
	bool frozen;
};

/* Whether this thread, which would stay parked in the clone, may hold a lock that the clone needs. */
static bool parks_inside(const struct furca_thread *thread)
{
	return thread->parked == FURCA_THREAD_RUNS && furca_born_parking(thread) != FURCA_THREAD_RUNS &&
	       furca_inside(thread->frame);
}

static bool any_parks_inside(void)
{
	uint64_t word = furca_thread_word(furca_freeze_generation(), FURCA_THREAD_FROZEN);

	for (uint32_t i = 0; i < furca_threads_high(); i++)
		if (furca_threads_at(i)->word == word && parks_inside(furca_threads_at(i)))
			return true;
	return false;
}

/*
 * Stops the other threads, if possible where none that will be parked is in the middle of libc: those that are go on for a moment
 * while the rest stays. One that needs something of the rest does not come back; then all go on for a moment. 0 or -errno.
 */
static int freeze(struct attempt *a)
{
	int64_t settle_us = furca_raw_now_us() + SETTLE_US;
	int r;

	for (;;) {
		struct furca_err ignored = FURCA_ERR_INIT;

		if ((r = furca_freeze(a->deadline_us, a->err)) < 0)
			return r;
		a->frozen = true;
		while (r == 0 && any_parks_inside() && furca_raw_now_us() < settle_us)
			r = furca_freeze_again(parks_inside, a->deadline_us, &ignored);
		if (r == 0)
			return 0;
		a->frozen = false;
		furca_raw_sleep_us(SETTLE_PAUSE_US);
	}
}

#define MAX_BLANKS 256

/* Places that are mapped anew in clones; never forgotten, but those that are used again count once. */
static struct {
	_Atomic uintptr_t at;
	_Atomic size_t size;
} blanks[MAX_BLANKS];

bool furca_clone_blank(const void *at, size_t size)
{
	for (size_t i = 0; i < MAX_BLANKS; i++) {
		uintptr_t none = 0;

		if (blanks[i].at == (uintptr_t)at && blanks[i].size == size)
			return true;
		if (blanks[i].at == 0 && atomic_compare_exchange_strong(&blanks[i].at, &none, (uintptr_t)at)) {
			blanks[i].size = size;
			return true;
		}
	}
	return false;
}

/* How much of the process's memory is at such places now. */
static uint64_t blank_pages(void)
{
	uint64_t pages = 0;
	unsigned char there;

	for (size_t i = 0; i < MAX_BLANKS && blanks[i].at; i++)
		if (furca_raw(SYS_mincore, blanks[i].at, PAGE_SIZE, &there) != -ENOMEM)
			pages += blanks[i].size / PAGE_SIZE;
	return pages;
}

/* With the other threads stopped: how much memory there is, and how much of it a clone must have. */
static void note_memory(struct furca_clone_report *report)
{
	char buf[128];
	const char *at = buf;

	if (furca_raw_read_file("/proc/self/statm", buf, sizeof(buf)) <= 0)
		return;
	uint64_t pages = furca_raw_number(&at, 10), blank = blank_pages();
	furca_born.page->pages = pages > blank ? pages - blank : 0;
	report->bytes_shared = furca_raw_number(&at, 10) * PAGE_SIZE;
}

/* With all signals blocked: stops the other threads and looks at them. 0 or -errno; a->frozen says whether to thaw. */
static int stop_others(struct attempt *a)
{
	int r;

	furca_timers_note();
	making.threads = true;
	if (furca_born.way == FURCA_WAY_ALL_THREADS && (r = freeze(a)) < 0)
		return r;
	if ((r = record_caller()) < 0)
		return furca_fail(a->err, FURCA_E_CLONE, -r, "the process has more than %d threads", FURCA_THREADS_MAX);
	if (a->frozen && (r = furca_detect_threads(furca_born.caller, a->deadline_us, a->err)) < 0)
		return r;
	if (a->frozen && !furca_born.keep_tids && (r = may_renumber(a->err)) < 0)
		return r;
	making.threads = false;
	note_memory(a->report);
	if ((r = furca_barriers_census(furca_born.plan)) < 0)
		return furca_fail(a->err, FURCA_E_CLONE, -r, "the open descriptors cannot be listed");
	return 0;
}

/*
 * Returns 0 in the clone, as the caller's thread, and 1 or -errno in the caller. A function of its own, because it returns twice:
 * nothing that changes between is kept in a local variable.
 */
static __attribute__((noinline)) int fork_off(struct attempt *a)
{
	if (furca_arch_save(&furca_born.caller->context) != 0)
		return 0;
	a->stopped_us = furca_raw_now_us();
	long pid = furca_hop_clone(furca_born.args->cell >= 0, &a->pidfd);
	a->cloned_us = furca_raw_now_us();
	making.barred = furca_born.args->cell >= 0 && bars(pid);
	if (pid < 0)
		return explain_call(pid, a->err);
	a->report->pid = (pid_t)pid;
	int r = wait_for(&furca_born.page->cut, a->pidfd, a->cloned_us + CUT_US);
	if (r == 0 && furca_load(&furca_born.page->complete) != 2)
		return 1;
	kill_clone(a->pidfd);
	return explain(furca_born.page, r, a->err);
}

static void fill_report(struct attempt *a)
{
	const struct furca_born_page *page = furca_born.page;
	struct furca_clone_report *report = a->report;

	report->way = furca_born.way;
	report->threads = page->threads;
	report->parked = page->parked;
	report->held = page->barriers.held;
	for (int i = 0; i < FURCA_BARRIERS; i++)
		report->mechanism[i] = furca_mechanism_word(page->barriers.mechanism[i]);
	/* Where libc's fork served, the threads are gone. */
	if (furca_born.args->barriers & FURCA_BARRIER_THREADS && furca_born.way != FURCA_WAY_FORK) {
		report->held |= FURCA_BARRIER_THREADS;
		for (int i = 0; i < FURCA_BARRIERS; i++)
			if (1U << i == FURCA_BARRIER_THREADS)
				report->mechanism[i] = "clone";
	}
	report->freeze_us = a->stopped_us - a->begin_us;
	report->clone_us = (a->cloned_us ? a->cloned_us : page->born_us) - a->stopped_us;
	report->isolate_us = page->complete_us - page->born_us;
	report->thaw_us = (a->thawed_us ? a->thawed_us : page->complete_us) - a->begin_us;
}

/* The caller's side once the clone is cut off: everybody goes on, then the clone's completion is awaited. */
static int await(struct attempt *a)
{
	int64_t deadline_us = furca_raw_now_us() + COMPLETE_US;
	struct furca_born_page *page = furca_born.page;
	int r = wait_for(&page->complete, a->pidfd, deadline_us);

	if (r == 0 && furca_load(&page->complete) == 1)
		return 1;
	kill_clone(a->pidfd);
	return explain(page, r, a->err);
}

/* What has been unmapped meanwhile may be others' memory now: only a hole is filled. */
static void fill_blanks(void)
{
	for (size_t i = 0; i < MAX_BLANKS && blanks[i].at; i++)
		(void)furca_raw(SYS_mmap, blanks[i].at, blanks[i].size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static int in_clone(void)
{
	fill_blanks();
	furca_born_complete();
	furca_timers_born();
	if (furca_born.args->role != FURCA_CLONE_SNAPSHOT && furca_born.args->role != FURCA_CLONE_COPY)
		furca_timers_start();
	return 0;
}

/* From blocking signals to unblocking them, on both sides. */
static int run(struct attempt *a)
{
	uint64_t all = ~0ULL, before = 0;
	int r;

	a->begin_us = furca_raw_now_us();
	furca_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8);
	r = stop_others(a);
	if (r == 0) {
		r = fork_off(a);
		if (r == 0) {
			r = in_clone();
			furca_raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
			return r;
		}
	}
	if (furca_born.caller)
		furca_store(&furca_born.caller->word, furca_thread_word(0, FURCA_THREAD_FREE));
	if (a->frozen)
		furca_freeze_thaw();
	furca_raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
	if (r < 0)
		return r;
	a->thawed_us = furca_raw_now_us();
	if (furca_fault(FURCA_FAULT_CLONE_PARENT) < 0) {
		kill_clone(a->pidfd);
		return furca_fail(a->err, FURCA_E_CLONE, EIO, "failure point clone_parent");
	}
	return await(a);
}

static int prepare(const struct furca_clone_args *args, bool forks, struct furca_clone_report *report,
		   struct furca_err *err)
{
	const struct furca_barriers_args wanted = {.barriers = args->barriers & ~FURCA_BARRIER_THREADS,
						   .required = args->required & ~FURCA_BARRIER_THREADS,
						   .cell = args->cell,
						   .namespaces = args->namespaces,
						   .keep = args->keep,
						   .n_keep = args->n_keep,
						   .drop = args->drop,
						   .n_drop = args->n_drop,
						   .standing = args->role == FURCA_CLONE_SNAPSHOT,
						   .shared = furca_born.page,
						   .shared_size = PAGE_SIZE};
	int threads, r;

	if ((r = furca_fault(FURCA_FAULT_CLONE_BEFORE)) < 0)
		return furca_fail(err, FURCA_E_CLONE, EIO, "failure point clone_before");
	if ((threads = furca_freeze_count()) < 1)
		return furca_fail_suggest(err, FURCA_E_CLONE, -threads, "Mount /proc.",
					  "the threads of the process cannot be counted");
	furca_born.leader = getpid();
	if ((r = furca_detect_process(threads, err)) < 0)
		return r;
	if (threads > 1)
		furca_interrupted_learn(FURCA_FREEZE_SIGNAL);
	if ((r = furca_barriers_plan(&wanted, &furca_born.plan, err)) < 0) {
		making.barred = r == -EXDEV;
		return r;
	}
	furca_born.keep_tids = furca_barriers_new_pids(furca_born.plan);
	if (threads == 1)
		furca_born.way = FURCA_WAY_ONE_THREAD;
	else if (args->role == FURCA_CLONE_COPY && args->barriers && !(args->barriers & FURCA_BARRIER_THREADS) &&
		 furca_freeze_parked() == 0)
		furca_born.way = FURCA_WAY_FORK; /* told to leave the threads out */
	else
		furca_born.way = forks ? FURCA_WAY_FORK : FURCA_WAY_ALL_THREADS;
	if (furca_born.way == FURCA_WAY_FORK && args->required & FURCA_BARRIER_THREADS)
		return furca_fail(err, FURCA_E_ISOLATION, 0,
				  "the threads of the process cannot be copied without a pid namespace");
	return 0;
}

static void release(void)
{
	if (furca_born.plan)
		furca_barriers_free(furca_born.plan);
	furca_born.plan = NULL;
	(void)munmap(furca_born.page, PAGE_SIZE);
	furca_born.page = NULL;
	furca_born.args = NULL;
}

/* One attempt, with the lock held. As furca_clone. */
static int make(const struct furca_clone_args *args, bool forks, struct furca_clone_report *ret,
		struct furca_fd *ret_pidfd, struct furca_err *err)
{
	struct furca_clone_report report = {.pid = 0};
	struct attempt a = {.report = &report, .err = err, .pidfd = -1};
	int r;

	furca_born.args = args;
	furca_born.plan = NULL;
	furca_born.caller = NULL;
	making.barred = making.threads = false;
	furca_born.page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (furca_born.page == MAP_FAILED)
		return furca_fail(err, FURCA_E_MEMORY, errno, "cannot map the page on which a clone reports");
	a.deadline_us = furca_raw_now_us() + (args->timeout_us > 0 ? args->timeout_us : TIMEOUT_US);
	r = prepare(args, forks, &report, err);
	if (r == 0)
		r = run(&a);
	if (r >= 0) {
		if (r == 0)
			report.pid = getpid();
		fill_report(&a);
		*ret = report;
	}
	release();
	if (r != 0 && args->own_child && a.pidfd >= 0)
		furca_hop_reap(report.pid);
	if (r == 1)
		*ret_pidfd = furca_fd_own(a.pidfd);
	else if (r < 0 && a.pidfd >= 0)
		(void)close(a.pidfd);
	return r;
}

/* libc's fork wants the other threads to run, for its handlers may wait for them. */
static bool may_fork(const struct furca_clone_args *args)
{
	return making.threads && args->role == FURCA_CLONE_COPY && !(args->required & FURCA_BARRIER_THREADS) &&
	       !furca_born.keep_tids && furca_freeze_parked() == 0;
}

int furca_clone(const struct furca_clone_args *args, struct furca_clone_report *ret, struct furca_fd *ret_pidfd,
		struct furca_err *err)
{
	struct furca_err first = FURCA_ERR_INIT, later = FURCA_ERR_INIT;
	struct furca_clone_args now = *args;
	int r = furca_clone_init(err);

	if (r < 0)
		return r;
	take_lock();
	r = make(&now, false, ret, ret_pidfd, &first);
	/* A cell that lets nobody in is as good as none: what else holds the barriers serves, or says that it cannot. */
	if (r < 0 && making.barred) {
		now.cell = -1;
		r = make(&now, false, ret, ret_pidfd, &later);
	}
	if (r < 0 && may_fork(&now)) {
		later = FURCA_ERR_INIT;
		r = make(&now, true, ret, ret_pidfd, &later);
	}
	release_lock();
	if (r >= 0)
		ret->outside = now.cell != args->cell;
	if (r < 0 && err && !err->code)
		*err = first;
	return r;
}

void furca_clone_unpark(void)
{
	furca_freeze_unpark(1U << FURCA_THREAD_HELD);
}

void furca_clone_start_timers(void)
{
	furca_timers_start();
}

int furca_clone_promote(struct furca_err *err)
{
	int r = furca_fault(FURCA_FAULT_PROMOTE);

	if (r < 0)
		return furca_fail(err, FURCA_E_CLONE, EIO, "failure point promote");
	take_lock();
	furca_offsets_restore();
	furca_fds_promote();
	furca_timers_start();
	furca_thread_restore_robust(&furca_born_unpromoted);
	furca_born_unpromoted = (struct furca_thread){0};
	furca_freeze_unpark(1U << FURCA_THREAD_SUSPENDED);
	release_lock();
	return 0;
}
