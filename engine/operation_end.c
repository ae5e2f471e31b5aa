/* The end of an operation (undo, checkpoint, restore, branch_session) that does not come to its own: its session is closed, or its process is silent. */
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

static struct furca_commit *commit_of(struct furca_commit *commits, const struct furca_call *call)
{
	while (commits && commits->call != call)
		commits = commits->below;
	return commits;
}

void furca_operation_give_up(struct furca_call *call, const struct furca_err *err)
{
	struct furca_session *s = call->session;
	struct furca_commit *commit = commit_of(s->top, call);

	if (!commit)
		commit = commit_of(s->labelled, call);
	if (commit && call->method == FURCA_METHOD_restore)
		s->version = commit->version - 1; /* it was to be the newest */
	if (commit)
		furca_commit_drop(s, commit);
	if (s->running == call) {
		s->running = NULL;
		if (s->state == FURCA_S_BUSY)
			furca_session_step(s, FURCA_EV_DONE);
	}
	furca_call_refuse(call, err); /* and lets go of a branch that is under way */
	furca_session_wake(s);
}

void furca_operation_silent(struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail_suggest(
		&err, FURCA_E_TIMEOUT, 0,
		"Call execute with state_mode='stateful': a process that does not run that either is ended, "
		"and the session taken back to its last commit.",
		"The session's process does not answer.");
	furca_operation_give_up(call, &err);
}

void furca_operation_lost(struct furca_call *call, const char *why)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_GONE, 0, "%s", why);
	furca_operation_give_up(call, &err);
}
