/* The engine's own rooms' shared state; nobody outside engine/ includes it. */
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/host_proc.h"
#include "engine/init_link.h"
#include "engine/loop.h"
#include "engine/op.h"
#include "bridge/wire/pack.h"
#include "engine/registry.h"
#include "engine/stats.h"

struct furca_call;
struct furca_session;
struct furca_zygote;
struct furca_spare;
struct furca_kept;
struct furca_lost;
struct furca_cells;
struct furca_store;
struct furca_envs;
struct furca_functions;

/* A process whose end was told before the clone was: EXITED and CLONED come from different places. */
struct furca_early_exit {
	uint64_t pid;
	int status;
	uint64_t cpu_us, max_rss;
};

/* Where none is left for what others pass. */
#define FURCA_ADVICE_DESCRIPTORS                                                                                       \
	"End sessions or threads that call capabilities, or raise the engine's limit of open files (ulimit -n)."

struct furca_engine {
	struct furca_loop *loop;
	struct furca_engine_config config;
	struct furca_engine_events events;
	void *user;
	char *state_dir, *workdir, *spill_dir;

	struct furca_cgroups *cgroups; /* NULL: there are none */
	uint64_t oom_kills;	       /* of the machine, when last looked at */
	int64_t memory_looked_us;      /* when these were read, in bytes: */
	uint64_t memory_available, memory_total;
	furca_op_id watch_op;	 /* the next look at hosts that no control group bounds */
	struct furca_fd loadavg; /* /proc/loadavg */

	struct furca_init *surface;
	struct furca_host *hosts; /* all of them */
	struct furca_zygote *zygotes;
	struct furca_spare *spares;
	struct furca_cells *cells;
	struct furca_early_exit early[64];
	unsigned early_at;

	struct furca_registry registry;
	struct furca_call *calls; /* under way */
	struct furca_kept *kept;  /* output of those that ended, newest first */
	size_t kept_bytes;
	struct furca_ops *capability_calls;
	struct furca_ops *object_calls; /* calls of code's objects: engine/object.c */
	struct furca_session *closing;	/* out of the registry, not ended yet */

	struct furca_store *store;
	struct furca_lost *lost; /* sessions of the last engine */
	struct furca_envs *envs;
	struct furca_functions *functions;
	bool modules_ended;
	int64_t default_timeout_us;

	uint64_t next_call, next_tag, instance;
	struct furca_stats stats;

	unsigned sweeps; /* under way */
	bool stopping;
	furca_op_id orphan_op;
	bool resting; /* all sessions were closed, and nothing was begun since */
	void (*stopped)(void *user);
	void *stopped_user;
	furca_op_id stop_op;
};

/* A number for a frame, never 0. */
static inline uint64_t furca_engine_next(struct furca_engine *engine)
{
	return ++engine->next_call;
}

struct furca_coordinates;
/* What plans are checked against now. */
void furca_engine_coordinates(struct furca_engine *engine, struct furca_coordinates *ret);

/* Answers a request with what `buf` holds. */
void furca_engine_answer(struct furca_engine *engine, furca_client_id client, uint64_t msgid,
			 const struct furca_buf *buf);

/* The same with the memory of arrays in it (taken; none: empty). */
void furca_engine_answer_with(struct furca_engine *engine, furca_client_id client, uint64_t msgid,
			      const struct furca_buf *buf, struct furca_fd *memory);

/* Called whenever a process or session may have been the last one, while stopping. */
void furca_engine_check_stopped(struct furca_engine *engine);

/* The barriers that a read-only call gets, and those without which it is refused unless its caller waives them. */
static inline unsigned furca_engine_barriers(const struct furca_engine *engine)
{
	return FURCA_BARRIERS_ALL & ~engine->config.without;
}

static inline unsigned furca_engine_required(const struct furca_engine *engine)
{
	return (furca_barriers_required() & ~engine->config.without) | engine->config.required;
}
