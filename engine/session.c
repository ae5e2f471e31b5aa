#include "engine/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/wire/limits.h"
#include "engine/capability.h"
#include "engine/cells.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/lost.h"
#include "engine/operation.h"

#include "base/banned.h"

#define MAX_ATTEMPTS 3 /* clones tried, where the zygote dies before they stand */

static void pump(struct furca_session *session);

void furca_session_step(struct furca_session *s, enum furca_session_event event)
{
	int next = furca_session_next(s->state, event);

	if (next < 0) {
		furca_log(FURCA_LOG_ALERT, "engine", "impossible session=%llu state=%s event=%s",
			  (unsigned long long)s->entry.key.id, furca_session_state_name(s->state),
			  furca_session_event_name(event));
		assert(next >= 0);
		return;
	}
	s->state = (enum furca_session_state)next;
}

struct furca_session *furca_session_new(struct furca_engine *engine, const struct furca_key *key, struct furca_err *err)
{
	struct furca_session *s = calloc(1, sizeof(*s));

	if (!s) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for another session");
		return NULL;
	}
	s->entry.key = *key;
	s->engine = engine;
	s->last = &s->first;
	s->created_at = s->used_at = furca_wall_s();
	furca_background_init(&s->background);
	if (furca_registry_add(&engine->registry, &s->entry, err) < 0) {
		furca_background_done(&s->background);
		free(s);
		return NULL;
	}
	s->owner = furca_engine_next(engine);
	furca_commit_pristine(s);
	return s;
}

static void woken(void *owner)
{
	struct furca_session *s = owner;

	s->pump_op = FURCA_OP_NONE;
	pump(s);
}

void furca_session_wake(struct furca_session *s)
{
	if (!s->pump_op && (s->first || s->state == FURCA_S_NEW || s->state == FURCA_S_STARTING))
		(void)furca_loop_defer(s->engine->loop, woken, s, &s->pump_op);
}

int furca_session_enqueue(struct furca_session *s, struct furca_call *call, struct furca_err *err)
{
	call->session = s;
	if (s->queued >= FURCA_MAX_QUEUE)
		return furca_fail_suggest(
			err, FURCA_E_BUSY, 0,
			"Call again when calls under way have ended, or use state_mode='stateless' and remove session_id and "
			"session_name, or use another session.",
			"%u calls are waiting for this session, which is the limit", s->queued);
	*s->last = call;
	s->last = &call->queue_next;
	call->queue_next = NULL;
	s->queued++;
	call->nth = ++s->asked;
	pump(s);
	return 0;
}

void furca_session_unqueue(struct furca_session *s, struct furca_call *call)
{
	for (struct furca_call **at = &s->first; *at; at = &(*at)->queue_next) {
		if (*at != call)
			continue;
		*at = call->queue_next;
		if (!call->queue_next)
			s->last = at;
		call->queue_next = NULL;
		s->queued--;
		break;
	}
	if (s->running == call)
		s->running = NULL;
}

/* No process could be made: the call that asked for it is told, and a session that never lived goes again. */
static void start_failed(struct furca_session *s, const struct furca_err *err)
{
	struct furca_call *call = s->first;

	FURCA_AUTO_FREE char *lines =
		s->launch && furca_launch_lines(s->launch) ? strdup(furca_launch_lines(s->launch)) : NULL;

	furca_session_step(s, FURCA_EV_EMPTY);
	furca_launch_end(s->launch);
	s->launch = NULL;
	while (call && call->plan.mode == FURCA_READ_ONLY)
		call = call->queue_next;
	if (!call)
		call = s->first; /* only reads wait */
	if (call) {
		furca_session_unqueue(s, call);
		if (!furca_call_is_operation(call)) {
			furca_call_fail_err(call, err);
			if (lines)
				furca_call_lines(call, lines);
			call->state = s->ever_live && call->plan.mode == FURCA_STATEFUL ? "lost" : "unchanged";
			call->session = s->ever_live ? s : NULL;
			call->created = false;
			furca_call_finish(call);
		} else {
			furca_call_refuse(call, err);
		}
	}
	furca_session_wake(s);
}

static void live_cloned(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_session *s = owner;

	if (err) {
		furca_host_drop(host);
		s->live = NULL;
		if (s->state == FURCA_S_CLOSING) {
			furca_session_free(s);
		} else if (err->code == FURCA_E_GONE && s->start_attempts++ < MAX_ATTEMPTS) {
			furca_session_step(s, FURCA_EV_EMPTY); /* the zygote has just died; another is started */
			furca_session_wake(s);
		} else {
			start_failed(s, err);
		}
		return;
	}
	if (s->state == FURCA_S_CLOSING)
		return;
	struct furca_err failure = FURCA_ERR_INIT;
	if (s->has_limits && furca_limits_apply(host, &s->limits, NULL, &failure) < 0) {
		furca_host_drop(host);
		s->live = NULL;
		start_failed(s, &failure);
		return;
	}
	s->ever_live = true;
	s->start_attempts = 0;
	furca_session_step(s, FURCA_EV_READY);
	furca_cells_warm(s->engine->cells);
	furca_read_park(s);
	furca_session_wake(s);
}

static void launched(void *owner, struct furca_host *zygote, const struct furca_err *err)
{
	struct furca_session *s = owner;
	struct furca_err failure = FURCA_ERR_INIT;
	char label[96];

	if (s->state == FURCA_S_CLOSING)
		return;
	if (!zygote) {
		start_failed(s, err);
		return;
	}
	(void)snprintf(label, sizeof(label), "session %llu", (unsigned long long)s->entry.key.id);
	struct furca_host_clone args = {
		.role = FURCA_CLONE_SESSION,
		.tag = furca_limits_new_tag(s->engine),
		.label = s->entry.n_names ? s->entry.names[0] : label,
		.cloned = live_cloned,
		.events = &furca_session_host_events,
		.owner = s,
	};
	s->live = furca_host_clone(zygote, &args, &failure);
	if (!s->live)
		start_failed(s, &failure);
}

void furca_session_adopt(struct furca_session *s, struct furca_host *live)
{
	s->live = live;
	live->owner = s;
	live->events = &furca_session_host_events;
	s->ever_live = true;
	furca_session_step(s, FURCA_EV_START);
	furca_session_step(s, FURCA_EV_READY);
	furca_commit_make(s, false);
}

static void begin_start(struct furca_session *s, furca_client_id client)
{
	struct furca_launch *old = s->launch;

	furca_session_step(s, FURCA_EV_START);
	s->launch = furca_launch_begin(s->engine, s->entry.key.lang, s->entry.key.venv, client, launched, s);
	furca_launch_end(old); /* after the new one, so that the environment stays held */
	if (!s->launch) {
		struct furca_err err = FURCA_ERR_INIT;

		(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory to start the session");
		start_failed(s, &err);
	}
}

/* Words for the first answer after a loss that no call was told of. */
static void note_repair(struct furca_session *s, struct furca_call *call)
{
	if (s->repaired)
		call->retried = true;
	s->repaired = false;
	if (s->note.len)
		(void)furca_buf_append(&call->suggestion, s->note.data, s->note.len);
	furca_buf_clear(&s->note);
}

/*
 * A call that was written for a state that is lost must not run on an older one unaware: it is told instead, once, unless it asked to
 * be run whatever happens.
 */
static bool told_of_loss(struct furca_session *s, struct furca_call *call)
{
	const char *state = s->behind;

	s->behind = NULL;
	if (!state || call->plan.retry == FURCA_RETRY_ALWAYS)
		return false;
	furca_call_fail(call, "crashed",
			"Look at what the session holds, build again what is missing, then run the call again.",
			"%.*s The call did not run.", (int)s->note.len, (const char *)s->note.data);
	furca_buf_clear(&s->note);
	s->repaired = false;
	call->state = state;
	furca_call_finish(call);
	return true;
}

/* Whether the newest commit is of the present state; it may be under way still. */
static bool is_kept(const struct furca_session *s)
{
	return s->top && s->top->version == s->version;
}

/* A call that must be able to be rolled back does not run on a state that cannot be kept. */
static bool cannot_roll_back(struct furca_session *s, struct furca_call *call)
{
	char text[FURCA_ERR_TEXT_MAX + 128];
	const struct furca_err *why = &s->why_unkept;

	if (!call->plan.rollback || is_kept(s))
		return false;
	furca_call_fail(
		call, furca_err_type(why->code),
		"Remove on_error to run it all the same, or remove what hinders snapshots of the session first.",
		"The session cannot be kept as it is now, so the call could not be rolled back and did not run: %s.",
		furca_err_describe(why, text, sizeof(text)));
	call->state = "unchanged";
	furca_call_finish(call);
	return true;
}

static void run_stateful(struct furca_session *s, struct furca_call *call)
{
	bool operation = furca_call_is_operation(call);

	furca_session_unqueue(s, call);
	if (!operation && (told_of_loss(s, call) || cannot_roll_back(s, call))) {
		furca_session_wake(s);
		return;
	}
	furca_session_step(s, FURCA_EV_CALL);
	s->running = call;
	if (operation) {
		furca_call_bound(call, FURCA_OPERATION_US);
		furca_operation_begin(s, call);
		return;
	}
	s->calls++;
	s->ran_for = call->client;
	s->ran_msgid = call->msgid;
	s->used_at = furca_wall_s();
	if (!s->attached)
		furca_lost_note(s);
	call->host = s->live;
	note_repair(s, call);
	furca_background_take(&s->background, &call->background);
	if (furca_call_run(call) < 0 && call->error_type) {
		s->running = NULL;
		furca_session_step(s, FURCA_EV_DONE);
		furca_call_finish(call);
		furca_session_wake(s);
	}
}

/*
 * Whether the live process may run the call now. A commit that is being made comes first; one is made, whatever the policy
 * says, where the call may have to be rolled back, and tried again where the last call's failed: if this call dies, that one's changes are to stay.
 */
static bool may_run(struct furca_session *s, struct furca_call *call)
{
	if (call->plan.rollback && !call->committed_first && !furca_commit_waits(s) && !is_kept(s)) {
		call->committed_first = true;
		furca_commit_make(s, true);
	}
	furca_commit_again(s);
	/* What it is to be rolled back to must stand: whether the clone succeeds is not known before. */
	if (call->plan.rollback && is_kept(s) && !s->top->standing)
		return false;
	return !furca_commit_waits(s);
}

/* The first call in the queue that wants the live process. */
static struct furca_call *next_stateful(struct furca_session *s)
{
	struct furca_call *call = s->first;

	while (call && call->plan.mode == FURCA_READ_ONLY)
		call = call->queue_next;
	return call;
}

static void pump_reads(struct furca_session *s)
{
	struct furca_call *next;

	for (struct furca_call *call = s->first; call; call = next) {
		next = call->queue_next;
		if (call->plan.mode == FURCA_READ_ONLY && !call->waits_copy)
			(void)furca_read_start(s, call, call == s->first);
	}
}

/* Nothing was made, and nobody waits for it any more: a build of its environment has no reason to go on. */
static bool was_for_nothing(const struct furca_session *s)
{
	if (s->first || s->ever_live || s->running || s->recovering)
		return false;
	return s->state == FURCA_S_NEW ||
	       (s->state == FURCA_S_STARTING && s->launch && furca_launch_building(s->launch));
}

static void pump(struct furca_session *s)
{
	if (s->state == FURCA_S_CLOSING || s->state == FURCA_S_DEAD)
		return;
	if (s->pumping) {
		s->pump_again = true;
		return;
	}
	s->pumping = true;
	do {
		s->pump_again = false;
		pump_reads(s);
		struct furca_call *call = next_stateful(s);
		if (call && s->state == FURCA_S_IDLE) {
			if (may_run(s, call))
				run_stateful(s, call);
		} else if (s->first && s->state == FURCA_S_NEW) {
			begin_start(s, s->first->client);
		}
	} while (s->pump_again && s->state != FURCA_S_CLOSING);
	s->pumping = false;
	if (was_for_nothing(s))
		furca_session_undo(s);
}

/* What has changed lives in the process alone: whoever reads `committed` is to know. */
static void note_hindrance(struct furca_session *s, struct furca_call *call)
{
	struct furca_view why = call->said.hindrance, remedy = call->said.remedy;
	char text[FURCA_ERR_TEXT_MAX + 128];

	s->foreseen = why.at != NULL;
	if (s->engine->config.snapshots == FURCA_SNAPSHOT_OFF)
		return;
	if (!why.at && s->unkeepable) /* nobody saw it coming */
		(void)furca_buf_printf(
			furca_call_suggest(call),
			"The last snapshot of this session failed, and what it holds is lost if the process ends: %s. %s",
			furca_err_describe(&s->why_unkept, text, sizeof(text)), furca_err_suggestion(&s->why_unkept));
	else if (why.at)
		(void)furca_buf_printf(
			furca_call_suggest(call),
			"No snapshot can be made of this state, which is lost if the process ends: %.*s. %.*s",
			(int)furca_view_size(why), (const char *)why.at, (int)furca_view_size(remedy),
			(const char *)remedy.at);
}

/* What a refused call made for itself is the next one's that waits: if that is refused as well, nothing of it stays. */
static void hand_on(const struct furca_call *call, struct furca_call *next)
{
	if (!next)
		return;
	next->created |= call->created;
	next->bound |= call->bound && furca_view_size(call->plan.name) == furca_view_size(next->plan.name) &&
		       memcmp(call->plan.name.at, next->plan.name.at, furca_view_size(next->plan.name)) == 0;
}

/*
 * Its host would not begin it: it leaves nothing behind, no session that was made for it and no name. Unless others have come to the session meanwhile: what
 * they did, or were told of, is in it and under that name.
 */
static void finish_refused(struct furca_session *s, struct furca_call *call)
{
	bool alone = call->nth == s->asked, created = call->created;

	s->calls--;
	s->running = NULL;
	furca_session_step(s, FURCA_EV_DONE);
	if (!alone)
		hand_on(call, s->first);
	else if (call->bound && !created)
		furca_registry_unbind(&s->entry, call->plan.name);
	call->state = "unchanged";
	call->session = NULL;
	call->created = false;
	furca_call_finish(call);
	if (created && alone)
		furca_session_undo(s);
	else
		furca_session_wake(s);
}

static void finish_stateful(struct furca_session *s, struct furca_call *call, struct furca_fd *memory)
{
	bool changed = call->said.changed;

	furca_call_done(call, memory);
	if (call->refused) {
		finish_refused(s, call);
		return;
	}
	if (call->error_type && call->plan.rollback) {
		call->rolled_back = true;
		call->phase = FURCA_CALL_RECOVERY;
		s->engine->stats.rollbacks++;
		call->host = NULL; /* it may be gone before the call is */
		furca_host_drop(s->live);
		s->live = NULL;
		furca_session_restore(s, call);
		return;
	}
	if (changed) {
		s->version++;
		note_hindrance(s, call);
	}
	call->state = "committed";
	s->running = NULL;
	furca_session_step(s, FURCA_EV_DONE);
	furca_call_finish(call); /* answer first, snapshot after */
	if (changed)
		furca_commit_make(s, false);
	furca_session_wake(s);
}

static void on_done(void *owner, struct furca_host *host, uint64_t number, struct furca_view body,
		    struct furca_fd *memory)
{
	struct furca_session *s = owner;
	struct furca_call *call = s->running;

	if (host != s->live || !call || call->phase != FURCA_CALL_RUNNING || number != call->frame)
		return;
	furca_call_hear(call, body);
	if (!furca_call_wants_pipes(call))
		finish_stateful(s, call, memory);
}

static bool may_run_again(const struct furca_call *call, const struct furca_host *host)
{
	if (call->killed || call->stop != FURCA_STOP_NONE || call->attempts > 0)
		return false;
	return call->plan.retry == FURCA_RETRY_ALWAYS ||
	       (call->plan.retry == FURCA_RETRY_SAFE && (!call->began || host->unread));
}

/* Back to the head of the queue: the code has not begun, or may run again. */
static void requeue(struct furca_session *s, struct furca_call *call)
{
	furca_pipes_free(call->pipes);
	call->pipes = NULL;
	call->host = NULL;
	call->attempts++;
	call->retried = true;
	call->began = false;
	call->phase = FURCA_CALL_WAITING;
	s->running = NULL;
	call->queue_next = s->first;
	s->first = call;
	if (!call->queue_next)
		s->last = &call->queue_next;
	s->queued++;
}

/* The process has ended or wants to be a session no more. There is nothing to go back to. */
static void attached_gone(struct furca_session *s)
{
	struct furca_call *call = s->running;

	s->running = NULL;
	if (call && call->phase == FURCA_CALL_RUNNING) {
		furca_call_died(call, s->live);
		call->host = NULL;
		call->state = "lost";
		furca_call_finish(call);
	}
	furca_session_close(s, NULL, NULL);
}

static void on_dead(void *owner, struct furca_host *host)
{
	struct furca_session *s = owner;
	struct furca_call *call = s->running;

	if (s->top && s->top->host == host) { /* a snapshot that was being promoted */
		furca_commit_drop(s, s->top);
		furca_session_restore(s, NULL);
		return;
	}
	if (host != s->live)
		return;
	if (s->attached && s->state != FURCA_S_CLOSING) {
		attached_gone(s);
		return;
	}
	if (call && furca_call_is_operation(call) && call->phase == FURCA_CALL_WAITING) {
		furca_operation_lost(call, "The session's process has ended.");
		call = NULL;
	}
	s->live = NULL;
	if (s->state == FURCA_S_CLOSING) {
		furca_host_drop(host);
		furca_session_free(s);
		return;
	}
	if (s->state == FURCA_S_STARTING) {
		struct furca_err err = FURCA_ERR_INIT;

		(void)furca_fail(&err, FURCA_E_GONE, 0, "The session's process ended while it was being made");
		furca_host_drop(host);
		start_failed(s, &err);
		return;
	}
	if (call && call->phase == FURCA_CALL_RUNNING && may_run_again(call, host)) {
		requeue(s, call);
		call = NULL;
	} else if (call && call->phase == FURCA_CALL_RUNNING) {
		furca_call_died(call, host);
		call->host = NULL;
		call->phase = FURCA_CALL_RECOVERY;
	} else {
		s->repaired = true;
		call = NULL;
	}
	furca_host_drop(host);
	furca_session_restore(s, call);
}

const struct furca_host_events furca_session_host_events = {
	.ready = furca_session_snapshot_ready, .done = on_done, .dead = on_dead};
