#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "engine/call.h"
#include "engine/capability.h"
#include "engine/cells.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/function.h"
#include "engine/limits.h"
#include "engine/modules.h"
#include "engine/session.h"
#include "snapshot/init.h"

#include "base/banned.h"

#define MAX_DESCRIPTORS 65536
#define SURFACE_ENDS_MS 2000

void furca_engine_answer_with(struct furca_engine *engine, furca_client_id client, uint64_t msgid,
			      const struct furca_buf *buf, struct furca_fd *memory)
{
	if (buf->failed) {
		FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
		struct furca_err err = FURCA_ERR_INIT;

		(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory for the answer");
		furca_result_refusal((struct furca_view){NULL, NULL}, NULL, &err, true, &out);
		engine->events.answer(engine->user, client, msgid, furca_buf_view(&out), NULL);
		return;
	}
	engine->events.answer(engine->user, client, msgid, furca_buf_view(buf), memory);
}

void furca_engine_answer(struct furca_engine *engine, furca_client_id client, uint64_t msgid,
			 const struct furca_buf *buf)
{
	furca_engine_answer_with(engine, client, msgid, buf, NULL);
}

/*
 * All that the machine lets this process have: each session takes a dozen, and where none is left descriptors that others pass are lost. To be called
 * when the init stands, whose children have the limit that this process was given.
 */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = FURCA_MIN(limit.rlim_max, (rlim_t)MAX_DESCRIPTORS);
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static bool venv_known(void *user, uint64_t venv)
{
	const struct furca_engine *engine = user;

	return engine->envs && furca_env_known(engine->envs, venv);
}

void furca_engine_coordinates(struct furca_engine *engine, struct furca_coordinates *ret)
{
	*ret = (struct furca_coordinates){
		.registry = &engine->registry,
		.default_timeout_us = engine->default_timeout_us,
		.required = engine->config.required,
		.without = engine->config.without,
		.venv_known = venv_known,
		.user = engine,
	};
}

static void surface_exited(void *owner, uint64_t pid, int status, uint64_t cpu_us, uint64_t max_rss)
{
	furca_host_exited(owner, pid, status, cpu_us, max_rss);
}

/*
 * Without its init the engine can start nothing and nobody would end what it started: it does so itself, ends, and says why. Two passes, for
 * what was being started during the first.
 */
static void surface_gone(void *owner)
{
	struct furca_engine *engine = owner;

	if (engine->stopping)
		return;
	furca_log(FURCA_LOG_WARN, "engine",
		  "the init process was ended from outside; all sessions are lost, the engine ends");
	for (int pass = 0; pass < 2; pass++) {
		for (struct furca_host *host = engine->hosts; host; host = host->next) {
			furca_host_kill(host);
			if (host->tag)
				furca_limits_sweep(engine, host->tag);
		}
	}
	furca_loop_end(engine->loop);
}

static int make_dirs(struct furca_engine *engine, struct furca_err *err)
{
	if (mkdir(engine->state_dir, 0700) < 0 && errno != EEXIST)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make the state directory %s", engine->state_dir);
	if (asprintf(&engine->spill_dir, "%s/output", engine->state_dir) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a path");
	if (mkdir(engine->spill_dir, 0700) < 0 && errno != EEXIST)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make the directory %s", engine->spill_dir);
	return 0;
}

/* It ends whatever is below it still, as it would if this process died, and then itself: killed, it would leave that to the machine's init. */
static void end_surface(struct furca_init *surface)
{
	struct pollfd ended = {.events = POLLIN};

	if (!surface)
		return;
	ended.fd = surface->proc.pidfd.n;
	(void)shutdown(surface->control.fd.n, SHUT_RDWR); /* closed, the ring would still hold it */
	(void)poll(&ended, 1, SURFACE_ENDS_MS);
}

static void engine_free(struct furca_engine *engine)
{
	furca_loop_drop(engine->loop, &engine->stop_op);
	furca_loop_drop(engine->loop, &engine->orphan_op);
	furca_loop_drop(engine->loop, &engine->watch_op);
	furca_kept_free(engine);
	furca_cells_free(engine->cells);
	end_surface(engine->surface);
	furca_init_unref(engine->surface);
	furca_ops_free(engine->capability_calls);
	furca_ops_free(engine->object_calls);
	furca_registry_done(&engine->registry);
	furca_fd_done(&engine->loadavg);
	furca_cgroups_free(engine->cgroups);
	free(engine->state_dir);
	free(engine->workdir);
	free(engine->spill_dir);
	free(engine);
}

static int engine_start(struct furca_engine *engine, struct furca_err *err)
{
	struct furca_proc init = FURCA_PROC_NONE;
	struct furca_fd control = FURCA_FD_NONE;

	if (setenv(FURCA_LANES_VARIABLE, engine->config.shared_lanes ? "shared" : "socket", 1) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the engine");
	int r = make_dirs(engine, err);
	if (r == 0)
		r = furca_init_start(&init, &control, err);
	if (r < 0)
		return r;
	raise_descriptors();
	engine->surface = furca_init_link(engine, init, control);
	if (!engine->surface)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the init process's channel");
	engine->surface->exited = surface_exited;
	engine->surface->gone = surface_gone;
	engine->surface->owner = engine;
	furca_limits_bound_all(engine);
	engine->cells = furca_cells_new(engine);
	if (!engine->cells || furca_ops_new(64, FURCA_MAX_CAPABILITIES_OPEN * 4, &engine->capability_calls) < 0 ||
	    furca_ops_new(sizeof(void *), FURCA_MAX_CAPABILITIES_OPEN, &engine->object_calls) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the engine");
	return furca_modules_start(engine, err);
}

int furca_engine_new(struct furca_loop *loop, const struct furca_engine_config *config,
		     const struct furca_engine_events *events, void *user, struct furca_engine **ret,
		     struct furca_err *err)
{
	struct furca_engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the engine");
	engine->loop = loop;
	engine->config = *config;
	engine->events = *events;
	engine->user = user;
	engine->state_dir = strdup(config->state_dir);
	engine->workdir = strdup(config->workdir);
	engine->default_timeout_us = (int64_t)(config->timeout_s * 1e6);
	engine->loadavg = furca_fd_own(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
	furca_registry_init(&engine->registry, config->max_sessions ? config->max_sessions : FURCA_DEFAULT_SESSIONS);
	(void)!getrandom(&engine->instance, sizeof(engine->instance), 0);
	engine->instance &= 0x3fffffff;
	furca_limits_start(engine);
	int r = engine->state_dir && engine->workdir ? engine_start(engine, err)
						     : furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the engine");
	if (r < 0) {
		furca_modules_free(engine);
		engine_free(engine);
		return r;
	}
	*ret = engine;
	return 0;
}

static bool all_ended(const struct furca_engine *engine)
{
	return !engine->hosts && !engine->closing && !engine->calls && engine->sweeps == 0 && engine->modules_ended;
}

static void stopped(void *owner)
{
	struct furca_engine *engine = owner;
	void (*done)(void *) = engine->stopped;
	void *user = engine->stopped_user;

	engine->stop_op = FURCA_OP_NONE;
	furca_modules_free(engine);
	engine_free(engine);
	done(user);
}

void furca_engine_check_stopped(struct furca_engine *engine)
{
	if (engine->stopping && !engine->stop_op && all_ended(engine))
		(void)furca_loop_defer(engine->loop, stopped, engine, &engine->stop_op);
}

static void modules_ended(void *user)
{
	struct furca_engine *engine = user;

	engine->modules_ended = true;
	furca_engine_check_stopped(engine);
}

void furca_engine_stop(struct furca_engine *engine, void (*done)(void *user), void *user)
{
	if (engine->stopping)
		return;
	engine->stopping = true;
	engine->stopped = done;
	engine->stopped_user = user;
	while (engine->registry.first)
		furca_session_close(furca_session_of(engine->registry.first), NULL, NULL);
	while (engine->calls) {
		struct furca_call *call = engine->calls;

		call->stop = FURCA_STOP_CLOSE;
		furca_call_fail(call, "interrupted", NULL, "The engine is stopping.");
		furca_call_finish(call);
	}
	furca_zygotes_close(engine);
	furca_cells_drain(engine->cells);
	furca_modules_stop(engine, modules_ended, engine);
	furca_engine_check_stopped(engine);
}

void furca_engine_client_gone(struct furca_engine *engine, furca_client_id client)
{
	furca_calls_client_gone(engine, client);
	furca_kept_client_gone(engine, client);
	furca_modules_client_gone(engine, client);
}

void furca_engine_capability_done(struct furca_engine *engine, uint64_t id, struct furca_view value,
				  struct furca_view error, struct furca_fd *memory)
{
	furca_capability_answered(engine, id, value, error, memory);
}
