#include "snapshot/born.h"

#include <errno.h>
#include <limits.h>

#include "base/fault.h"
#include "snapshot/freeze.h"
#include "snapshot/interrupted.h"
#include "snapshot/offsets.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define EXIT_HALF_MADE 125

struct furca_born furca_born;
struct furca_thread furca_born_unpromoted;

static _Noreturn void give_up(enum furca_born_step step, int r, pid_t tid)
{
	struct furca_born_page *page = furca_born.page;

	page->step = (int32_t)step;
	page->sys = -r;
	page->tid = tid;
	furca_store(&page->complete, 2);
	furca_raw_wake(&page->complete, INT_MAX, FURCA_RAW_SHARED);
	furca_store(&page->cut, 1);
	furca_raw_wake(&page->cut, INT_MAX, FURCA_RAW_SHARED);
	furca_raw_exit(EXIT_HALF_MADE);
}

static bool stands(const struct furca_thread *thread)
{
	return thread->word == furca_thread_word(furca_freeze_generation(), FURCA_THREAD_FROZEN);
}

uint32_t furca_born_parking(const struct furca_thread *thread)
{
	const struct furca_clone_args *args = furca_born.args;

	if (thread->parked == FURCA_THREAD_HELD)
		return FURCA_THREAD_HELD;
	if (args->role == FURCA_CLONE_SNAPSHOT)
		return FURCA_THREAD_SUSPENDED;
	if (args->park && args->park(args->park_data, furca_thread_pthread(thread), furca_interrupted_call(thread)))
		return FURCA_THREAD_HELD;
	return FURCA_THREAD_RUNS;
}

static void choose_parked(void)
{
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		if (stands(thread) && thread != furca_born.caller)
			thread->parked = furca_born_parking(thread);
	}
}

static struct furca_thread *make_threads(void)
{
	struct furca_thread *leader = NULL;
	uint32_t others = 0;

	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		if (!stands(thread))
			continue;
		if (thread->tid == furca_born.leader)
			leader = thread;
		if (thread != furca_born.caller)
			others++;
	}
	furca_born.back = 0;
	furca_born.expected = others;
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);
		pid_t tid = thread->tid;

		if (!stands(thread) || thread == leader)
			continue;
		int r = furca_thread_spawn(thread, furca_born.keep_tids);
		if (r < 0)
			give_up(FURCA_BORN_THREADS, r, tid);
	}
	furca_born.page->threads = others + 1;
	return leader;
}

/* Whether the original keeps memory from its clones: their first access to it would end them, and a rolled back session with it. */
static bool lacks_memory(void)
{
	char buf[128];
	const char *at = buf;

	return furca_raw_read_file("/proc/self/statm", buf, sizeof(buf)) > 0 &&
	       furca_raw_number(&at, 10) < furca_born.page->pages;
}

/* Past the moment when the caller's process may go on. */
static void cut_off(void)
{
	struct furca_born_page *page = furca_born.page;
	int r;

	page->born_us = furca_raw_now_us();
	if (furca_born.joins && (r = furca_barriers_join(furca_born.plan)) < 0)
		give_up(FURCA_BORN_ENTER, r, 0);
	if (furca_born.way != FURCA_WAY_FORK && lacks_memory())
		give_up(FURCA_BORN_MEMORY, -ENOMEM, 0);
	if ((r = furca_fault(FURCA_FAULT_CLONE_CHILD)) < 0)
		give_up(FURCA_BORN_START, r, 0);
	furca_freeze_adopt();
	/* kill(0) must not lead back to the original's process group; a session leader keeps its numbers. */
	furca_raw(SYS_setsid);
	if ((r = furca_barriers_apply(furca_born.plan, &page->barriers)) < 0)
		give_up(FURCA_BORN_BARRIERS, r, 0);
	if (furca_born.args->role == FURCA_CLONE_SNAPSHOT && (r = furca_offsets_note()) < 0)
		give_up(FURCA_BORN_OFFSETS, r, 0);
	page->cut_us = furca_raw_now_us();
	furca_store(&page->cut, 1);
	furca_raw_wake(&page->cut, 1, FURCA_RAW_SHARED);
	/* The caller's threads run again meanwhile; the clone's do not exist yet, and inherit what is left. */
	if ((r = furca_barriers_lower(furca_born.plan, &page->barriers)) < 0)
		give_up(FURCA_BORN_BARRIERS, r, 0);
}

void furca_born_first(void *unused)
{
	(void)unused;
	cut_off();
	choose_parked();
	struct furca_thread *leader = make_threads();
	/* The main thread had ended by pthread_exit; its task stays as it was, a zombie. */
	if (!leader)
		for (;;)
			furca_raw(SYS_exit, 0);
	furca_thread_become(leader, furca_born.caller, furca_born.keep_tids);
}

void furca_born_forked(void)
{
	cut_off();
	furca_born.back = furca_born.expected = 0;
	furca_born.page->threads = 1;
	furca_arch_jump(&furca_born.caller->context, 1);
}

void furca_born_thread(struct furca_thread *thread)
{
	int r;

	furca_thread_restore(thread, furca_born.caller, furca_born.args->role == FURCA_CLONE_SNAPSHOT);
	if ((r = furca_barriers_seal_thread(furca_born.plan)) < 0)
		give_up(FURCA_BORN_SEAL, r, thread->tid);
	if (furca_add(&furca_born.back, 1) >= furca_born.expected)
		furca_raw_wake(&furca_born.back, 1, FURCA_RAW_PRIVATE);
}

void furca_born_complete(void)
{
	struct furca_thread *caller = furca_born.caller;
	struct furca_born_page *page = furca_born.page;
	bool later = furca_born.args->role == FURCA_CLONE_SNAPSHOT;
	uint32_t back;
	int r;

	furca_thread_restore(caller, caller, later);
	furca_born_unpromoted = later ? *caller : (struct furca_thread){0};
	if (caller->altstack.ss_sp)
		furca_raw(SYS_sigaltstack, &caller->altstack, NULL);
	while ((back = furca_load(&furca_born.back)) < furca_born.expected)
		furca_raw_wait(&furca_born.back, back, -1, FURCA_RAW_PRIVATE);
	if ((r = furca_fault(FURCA_FAULT_CLONE_BARRIERS)) < 0)
		give_up(FURCA_BORN_COMPLETE, r, 0);
	if ((r = furca_barriers_seal(furca_born.plan, &page->barriers)) < 0)
		give_up(FURCA_BORN_SEAL, r, 0);
	page->parked = (uint32_t)furca_freeze_parked();
	furca_store(&caller->word, furca_thread_word(0, FURCA_THREAD_FREE));
	furca_freeze_thaw();
	page->complete_us = furca_raw_now_us();
	furca_store(&page->complete, 1);
	furca_raw_wake(&page->complete, INT_MAX, FURCA_RAW_SHARED);
}
