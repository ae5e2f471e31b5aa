#include "engine/nested.h"

#include "engine/call.h"
#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

#define MOMENT_US 1000000

bool furca_nested_waits(const struct furca_session *session, enum furca_mode mode)
{
	return mode == FURCA_STATEFUL || (mode == FURCA_READ_ONLY && session->attached);
}

static int refuse(const struct furca_session *session, struct furca_err *err)
{
	if (session->attached)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0, "Answer the capability first, or use another session.",
			"The session waits for a capability of this client; a call of the process that attached itself would wait for itself.");
	return furca_fail_suggest(
		err, FURCA_E_VALIDATION, 0,
		"Answer the capability first, or use state_mode='read_only' (it sees the last commit) or another session.",
		"The session waits for a capability of this client; a stateful call in it would wait for itself.");
}

static void look(void *owner)
{
	struct furca_call *call = owner;
	struct furca_session *s = call->session;
	struct furca_err err = FURCA_ERR_INIT;

	call->nested_op = FURCA_OP_NONE;
	if (call->phase != FURCA_CALL_WAITING || call->began || !s || !s->running || s->running == call ||
	    call->stop != FURCA_STOP_NONE || !furca_ops_find(call->engine->capability_calls, call->nested_on))
		return;
	(void)refuse(s, &err);
	furca_session_unqueue(s, call);
	furca_call_refuse(call, &err);
	furca_session_wake(s);
}

/* Whether it is the call's client that is to answer what the session waits for. */
static bool serves(const struct furca_call *call, const struct furca_call *running)
{
	const struct furca_engine *engine = call->engine;

	return engine->events.serves ? engine->events.serves(engine->user, call->nested_on) == call->client
				     : running->client == call->client;
}

int furca_nested_watch(struct furca_call *call, struct furca_session *session, struct furca_err *err)
{
	const struct furca_call *running = session->running;

	if (!running || call->origin)
		return 0;
	if (call->plan.within_given)
		return furca_capability_holds(call->engine, call->plan.within, running) ? refuse(session, err) : 0;
	if (!session->live || !session->live->lanes)
		return 0;
	call->nested_on = furca_lanes_waiting(session->live->lanes);
	if (call->nested_on && serves(call, running))
		(void)furca_loop_timer(call->engine->loop, furca_now_us() + MOMENT_US, look, call, &call->nested_op);
	return 0;
}
