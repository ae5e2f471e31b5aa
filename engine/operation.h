/*
 * Operations on a session's states: undo, checkpoint, restore, branch_session. They wait in the session's queue as calls do, and each answers its call in
 * the end, or is refused.
 */
#pragma once

#include "engine/call.h"

struct furca_commit;

/* Its turn has come; the session is idle. */
void furca_operation_begin(struct furca_session *session, struct furca_call *call);

/* The snapshot that it had asked for is there. */
void furca_operation_stands(struct furca_session *session, struct furca_commit *commit, struct furca_call *call);

/* The restore that it asked for has ended. `state`: rolled_back or lost. What was added to the call is told as a note. */
void furca_operation_restored(struct furca_session *session, struct furca_call *call, const char *state);

/* Refuses and frees one that has begun: what it had asked for is let go of, and the session is idle again, unless it has come to another state. */
void furca_operation_give_up(struct furca_call *call, const struct furca_err *err);

/* The same for one whose process does not answer, and for one whose session or process has gone. */
void furca_operation_silent(struct furca_call *call);
void furca_operation_lost(struct furca_call *call, const char *why);
