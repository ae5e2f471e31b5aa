/* Environments and stored functions, put together with the engine: env.h and function.h behind four functions. */
#pragma once

#include "base/err.h"
#include "engine/engine.h"

/* Opens the store and starts both. 0 or -errno; furca_modules_free is due in any case. */
int furca_modules_start(struct furca_engine *engine, struct furca_err *err);

/* Ends what they have under way, then calls `done`. */
void furca_modules_stop(struct furca_engine *engine, void (*done)(void *user), void *user);
void furca_modules_free(struct furca_engine *engine);
void furca_modules_client_gone(struct furca_engine *engine, furca_client_id client);
