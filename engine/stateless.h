/* Stateless calls: each in a clone of its zygote that is thrown away. */
#pragma once

#include "engine/call.h"

/* Runs the call and finishes it. */
void furca_stateless_begin(struct furca_call *call);

/*
 * A zygote that a stateless call was cloned from keeps one more clone ready, warm, for the next such call: a spare. It goes with
 * its zygote: before that is let go of.
 */
void furca_spare_end(struct furca_engine *engine, const struct furca_host *zygote);
