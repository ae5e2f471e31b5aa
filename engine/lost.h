/*
 * Sessions of an engine that ended without closing them: noted in the store while they live, read by the next engine, and told in the
 * first answer of a session of the same name or number.
 */
#pragma once

#include "engine/session.h"

struct furca_lost;

/* Reads what the last engine left, and clears it. NULL: nothing (or no memory). */
struct furca_lost *furca_lost_read(struct furca_engine *engine);
void furca_lost_free(struct furca_lost *lost);

/* A new session: if one like it was lost, the words go to its note, once. */
void furca_lost_tell(struct furca_engine *engine, struct furca_session *session, struct furca_view name);

/* Notes that it lives: when it is made, and now and then after. Writes at most every ten seconds. */
void furca_lost_note(struct furca_session *session);
/* It was closed in order. */
void furca_lost_forget(struct furca_session *session);
