/* A session whose live process has ended is taken back to its newest commit, or begins anew where there is none. */
#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/operation.h"
#include "engine/session.h"

#include "base/banned.h"

/* A snapshot that does not become live by then is given up, and with it what it stands for. */
#define RESTORE_US 30000000

static void restore_done(struct furca_session *s, const char *state)
{
	struct furca_call *call = s->recovering;

	furca_loop_drop(s->engine->loop, &s->restore_op);
	s->recovering = NULL;
	if (call) {
		call->state = state;
		s->running = NULL;
		if (furca_call_is_operation(call))
			furca_operation_restored(s, call, state);
		else
			furca_call_finish(call);
	}
	furca_session_wake(s);
}

static const char kept[] = "Files that were written and capabilities that were called stay as they are.";
static const char as_asked[] = "on_error='rollback': the session is what it was before the call.";

/* Words for a state that was lost while no call was there to be told of it. */
static void note_lost(struct furca_session *s)
{
	furca_buf_clear(&s->note);
	(void)furca_buf_append_text(
		&s->note, "The session's process had ended between calls and its state was lost: it is empty now.");
	s->behind = "lost";
}

/* The same for a snapshot that is older than the state that was lost. */
static void note_behind(struct furca_session *s, const struct furca_commit *top)
{
	furca_buf_clear(&s->note);
	(void)furca_buf_printf(
		&s->note,
		"The session's process had ended between calls, before its newest state was kept: it was taken back to "
		"its state after call %llu, and what later calls changed is lost.",
		(unsigned long long)top->calls);
	s->behind = "rolled_back";
}

/* Nothing to go back to but an empty session, which begins with the next call. */
static void restore_empty(struct furca_session *s)
{
	struct furca_call *call = s->recovering;
	bool behind = !s->top || s->top->version < s->version;

	furca_session_step(s, FURCA_EV_EMPTY);
	furca_read_unpark(s);
	if (behind) {
		s->engine->stats.lost++;
		furca_commit_drop_all(s);
		s->version = 0;
		furca_commit_pristine(s);
		if (call)
			furca_call_add(call, "The session's state was lost; it is empty now.");
		else
			note_lost(s);
	} else if (call && !call->rolled_back) {
		furca_call_add(call, "The session was rolled back to what it was before the call: empty. %s", kept);
	} else if (call && call->plan.rollback) {
		furca_call_add(call, as_asked);
	}
	s->version = s->top ? s->top->version : 0;
	restore_done(s, behind ? "lost" : "rolled_back");
}

static void restored(struct furca_session *s)
{
	struct furca_call *call = s->recovering;
	struct furca_commit *top = s->top;
	bool behind = top->version < s->version;

	/* The snapshot's host is the live one from now on. */
	s->live = top->host;
	s->live->owner = s;
	s->live->events = &furca_session_host_events;
	furca_lanes_follow(s->live->lanes, s->ran_for, s->ran_msgid, s->owner);
	top->host = NULL;
	top->standing = false;
	if (call && behind)
		furca_call_add(call,
			       "The session was rolled back to its state after call %llu; later changes are lost.",
			       (unsigned long long)top->calls);
	else if (call && !call->rolled_back)
		furca_call_add(call, "The session was rolled back to what it was before the call. %s", kept);
	else if (call && call->plan.rollback)
		furca_call_add(call, as_asked);
	else if (!call && behind)
		note_behind(s, top);
	s->version = top->version;
	furca_commit_promoted(s);
	furca_session_step(s, FURCA_EV_READY);
	furca_commit_make(s, false);
	restore_done(s, "rolled_back");
}

void furca_session_snapshot_ready(void *owner, struct furca_host *host)
{
	struct furca_session *s = owner;

	if (s->state == FURCA_S_RESTORING && s->top && s->top->host == host)
		restored(s);
}

static void restore_stuck(void *owner)
{
	struct furca_session *s = owner;

	s->restore_op = FURCA_OP_NONE;
	if (s->top && s->top->host) {
		struct furca_commit *commit = s->top;

		furca_commit_drop(s, commit);
		furca_session_restore(s, s->recovering);
	}
}

void furca_session_restore(struct furca_session *s, struct furca_call *call)
{
	if (call)
		s->recovering = call;
	/* A snapshot that was still under way has died with its origin. */
	while (s->top && (s->top->asked || (s->top->host && (!s->top->standing || s->top->host->dead))))
		furca_commit_drop(s, s->top);
	if (!s->top || !s->top->host) {
		restore_empty(s);
		return;
	}
	furca_session_step(s, FURCA_EV_LOST);
	furca_read_unpark(s);
	s->engine->stats.repairs++;
	s->top->host->events = &furca_session_host_events;
	s->top->host->owner = s;
	furca_loop_drop(s->engine->loop, &s->restore_op);
	(void)furca_loop_timer(s->engine->loop, furca_now_us() + RESTORE_US, restore_stuck, s, &s->restore_op);
	if (furca_host_tell(s->top->host, FURCA_HOST_PROMOTE) < 0) {
		furca_commit_drop(s, s->top);
		furca_session_restore(s, NULL);
	}
}
