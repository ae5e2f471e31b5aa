#include "engine/nested.h"

#include "engine/call.h"
#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

#define MOMENT_US 1000000

static void look(void *owner)
{
	struct furca_call *call = owner;
	struct furca_session *s = call->session;
	struct furca_err err = FURCA_ERR_INIT;

	call->nested_op = FURCA_OP_NONE;
	if (call->phase != FURCA_CALL_WAITING || call->began || !s || !s->running || s->running == call || call->stop != FURCA_STOP_NONE ||
	    !furca_ops_find(call->engine->capability_calls, call->nested_on))
		return;
	(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0,
				 "Answer the capability first, or use state_mode='read_only' (it sees the last commit) or another session.",
				 "The session waits for a capability of this client; a stateful call in it would wait for itself.");
	furca_session_unqueue(s, call);
	furca_call_refuse(call, &err);
	furca_session_wake(s);
}

void furca_nested_watch(struct furca_call *call, struct furca_session *session)
{
	const struct furca_call *running = session->running;

	if (!running || running->client != call->client || call->origin || !session->live || !session->live->lanes)
		return;
	call->nested_on = furca_lanes_waiting(session->live->lanes);
	if (call->nested_on)
		(void)furca_loop_timer(call->engine->loop, furca_now_us() + MOMENT_US, look, call, &call->nested_op);
}
