/* The end of a session: what waits is ended, its process gets the chance to end in order, then all is freed. */
#include <malloc.h>
#include <stdlib.h>

#include "engine/capability.h"
#include "engine/cells.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/lost.h"
#include "engine/operation.h"
#include "engine/session.h"

#include "base/banned.h"

#define CLOSE_US 1000000 /* for EXIT traps and atexit */

void furca_session_free(struct furca_session *s)
{
	struct furca_engine *engine = s->engine;

	for (struct furca_session **at = &engine->closing; *at; at = &(*at)->next_closing) {
		if (*at == s) {
			*at = s->next_closing;
			break;
		}
	}
	furca_loop_drop(engine->loop, &s->restore_op);
	furca_loop_drop(engine->loop, &s->close_op);
	furca_loop_drop(engine->loop, &s->pump_op);
	furca_read_unpark(s);
	furca_retire_end(s);
	furca_commit_drop_all(s);
	furca_host_drop(s->live);
	engine->events.owner_gone(engine->user, s->owner);
	furca_launch_end(s->launch);
	furca_background_done(&s->background);
	furca_buf_done(&s->parked_isolation);
	furca_prefetch_done(&s->prefetch);
	furca_buf_done(&s->note);
	if (s->env_held)
		furca_env_release(engine->envs, s->entry.key.venv);
	void (*closed)(void *) = s->closed;
	void *owner = s->closed_owner;
	free(s);
	if (closed)
		closed(owner);
	if (engine->registry.count == 0 && !engine->closing)
		(void)malloc_trim(0); /* what many sessions needed is not kept for none */
	furca_engine_check_stopped(engine);
}

static void close_late(void *owner)
{
	struct furca_session *s = owner;

	s->close_op = FURCA_OP_NONE;
	furca_host_kill(s->live);
}

static void close_later(void *owner)
{
	furca_session_free(owner);
}

static void stop_calls(struct furca_session *s)
{
	struct furca_call *call = s->running;

	while (s->first) {
		struct furca_call *waiting = s->first;

		waiting->stop = FURCA_STOP_NONE;
		furca_call_stop(waiting, FURCA_STOP_CLOSE);
	}
	if (!call)
		return;
	s->recovering = NULL;
	if (furca_call_is_operation(call)) {
		furca_operation_lost(call, "The session was closed.");
		return;
	}
	s->running = NULL;
	call->state = "lost";
	call->stop = FURCA_STOP_CLOSE;
	call->killed = true;
	if (call->host) {
		furca_call_died(call, call->host);
		call->host = NULL;
	}
	furca_call_finish(call);
}

void furca_session_close(struct furca_session *s, void (*closed)(void *owner), void *owner)
{
	struct furca_engine *engine = s->engine;
	bool busy = s->running != NULL;

	furca_session_step(s, FURCA_EV_CLOSE);
	s->closed = closed;
	s->closed_owner = owner;
	furca_lost_forget(s);
	furca_registry_remove(&engine->registry, &s->entry);
	s->next_closing = engine->closing;
	engine->closing = s;
	stop_calls(s);
	furca_read_detach(s);
	furca_read_unpark(s);
	furca_commit_drop_all(s);
	furca_loop_drop(engine->loop, &s->restore_op);
	furca_loop_drop(engine->loop, &s->pump_op);
	if (!s->live || s->live->dead) {
		(void)furca_loop_defer(engine->loop, close_later, s, &s->close_op);
		return;
	}
	if (busy || furca_host_tell(s->live, FURCA_HOST_CLOSE) < 0)
		furca_host_kill(s->live);
	(void)furca_loop_timer(engine->loop, furca_now_us() + CLOSE_US, close_late, s, &s->close_op);
}

void furca_session_undo(struct furca_session *s)
{
	furca_registry_undo(&s->engine->registry, &s->entry);
	furca_session_close(s, NULL, NULL);
}
