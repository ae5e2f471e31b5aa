/*
 * Copies that have answered. Ending a process takes the kernel as long as many a look at a session, and on one CPU the client would wait for it: so a copy
 * in a cell, which can change nothing outside, is killed when the loop has sent its answer. One that took many page faults lists them before (prefetch.h).
 * All others are killed before the answer is sent: what they do would be seen.
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

/* Whether the call's process may live on until its answer was sent. */
bool furca_retire_may(const struct furca_call *call);

/* Takes the process over from its call, which has answered. One that was there before is killed. */
void furca_retire(struct furca_call *call);

/* Kills what is left, now. */
void furca_retire_end(struct furca_session *session);
