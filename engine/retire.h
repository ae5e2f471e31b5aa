/*
 * Copies that have answered and are to tell which pages they took (prefetch.h): they live on for that moment. Listing before the answer would make the
 * call wait for the sake of later ones.
 */
#pragma once

#include <stdbool.h>

#include "engine/op.h"

struct furca_call;
struct furca_host;
struct furca_session;

struct furca_retired {
	struct furca_host *host; /* or NULL */
	furca_op_id op;
};

/* Whether the call's process has something to tell when it is over. */
bool furca_retire_may(const struct furca_call *call);

/* Takes the process over from its call, which has answered. One that was there before is let go of. */
void furca_retire(struct furca_call *call);

/* Lets go of what is left. */
void furca_retire_end(struct furca_session *session);
