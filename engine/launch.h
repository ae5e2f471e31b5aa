/*
 * Zygotes: one pristine host for each language and environment, from which sessions and stateless calls are cloned. Started on first use
 * and kept; replaced when it has died. An environment's imports what its specification preloads, and goes when nobody has used
 * it for zygote_idle_s of the configuration.
 */
#pragma once

#include "engine/engine.h"
#include "engine/host_proc.h"

struct furca_launch;

/*
 * The zygote, ready and alive; or NULL with the reason. Called exactly once unless cancelled, never from within
 * furca_launch_begin.
 */
typedef void furca_launch_fn(void *owner, struct furca_host *zygote, const struct furca_err *err);

/*
 * Makes the environment ready (venv 0: the own interpreter) and its zygote with it. `client` hears of a build's progress. The
 * environment is held until furca_launch_end, which is due in any case, once: it cancels where nothing was called yet.
 * NULL: no memory, fn is not called.
 */
struct furca_launch *furca_launch_begin(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
					furca_client_id client, furca_launch_fn *fn, void *owner);
void furca_launch_end(struct furca_launch *launch);

/* Whether it is still waiting for an environment to be built. */
bool furca_launch_building(const struct furca_launch *launch);

/* What the build of its environment said last, where that failed; NULL otherwise. */
const char *furca_launch_lines(const struct furca_launch *launch);

/* The zygote of a coordinate if it stands now, else NULL. */
struct furca_host *furca_zygote_find(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv);

/* Ends the zygote of an environment that is going. */
void furca_zygote_retire(struct furca_engine *engine, uint64_t venv);

/* Ends those of environments that nobody uses right now: all work is done. */
void furca_zygotes_rest(struct furca_engine *engine);

/* Ends all. */
void furca_zygotes_close(struct furca_engine *engine);
