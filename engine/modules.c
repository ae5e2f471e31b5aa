#include "engine/modules.h"

#include <stdlib.h>

#include "engine/call.h"
#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/function.h"
#include "engine/lost.h"
#include "engine/session.h"
#include "engine/store.h"

#include "base/banned.h"

static void answer(void *user, furca_client_id client, uint64_t msgid, struct furca_view result)
{
	struct furca_engine *engine = user;

	engine->events.answer(engine->user, client, msgid, result, NULL);
}

static void progress(void *user, furca_client_id client, uint64_t venv_id, const char *text)
{
	struct furca_engine *engine = user;
	FURCA_AUTO_BUF struct furca_buf params = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &params);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "venv_id");
	msgpack_pack_uint64(&pk, venv_id);
	furca_pack_text(&pk, "text");
	furca_pack_text(&pk, text);
	if (client && !params.failed)
		engine->events.notify(engine->user, client, "env_progress", furca_buf_view(&params));
}

static void retire(void *user, uint64_t venv_id)
{
	furca_zygote_retire(user, venv_id);
}

struct spawning {
	void (*spawned)(void *tool, struct furca_proc proc, const struct furca_err *err);
	void *tool;
};

static void on_spawned(void *owner, struct furca_proc proc, const struct furca_err *err)
{
	struct spawning *s = owner;

	s->spawned(s->tool, proc, err);
	free(s);
}

static void spawn(void *user, char *const *argv, char *const *env, const char *cwd, struct furca_fd channel,
		  struct furca_fd errors,
		  void (*spawned)(void *tool, struct furca_proc proc, const struct furca_err *err), void *tool)
{
	struct furca_engine *engine = user;
	struct furca_fd fds[3] = {channel, FURCA_FD_NONE, errors};
	struct spawning *s = calloc(1, sizeof(*s));
	struct furca_err err = FURCA_ERR_INIT;

	if (s)
		*s = (struct spawning){spawned, tool};
	/* Descriptor 4 is the capability socket of hosts; a tool has none and finds its errors there again. */
	if (s && furca_fd_dup(errors.n, 3, &fds[1]) == 0 &&
	    furca_init_spawn(engine->surface, argv, env, cwd, fds, on_spawned, s) == 0)
		return;
	furca_fds_done(fds, 3);
	free(s);
	(void)furca_fail(&err, FURCA_E_SYSTEM, 0, "cannot start %s", argv[0]);
	spawned(tool, FURCA_PROC_NONE, &err);
}

static void function_call(void *user, const struct furca_function_call *function)
{
	struct furca_engine *engine = user;
	struct furca_call_request request = {
		.method = FURCA_METHOD_call_function,
		.client = function->client,
		.msgid = function->msgid,
		.origin = function->origin,
		.args = function->args,
		.function = function->function,
		.received = function->received,
		.frames = function->frames,
		.memory = function->memory,
		.capabilities = function->capabilities,
		.within[1] = function->within,
		.deadline_us = FURCA_NEVER,
		.harmless = function->harmless,
	};

	struct furca_err err = FURCA_ERR_INIT;
	struct furca_call *caller = NULL;

	if (function->origin && furca_capability_origin(engine, function->origin, &caller))
		request.depth = caller ? caller->depth + 1 : 1;
	if (request.depth > FURCA_MAX_NESTED)
		(void)furca_fail_suggest(&err, FURCA_E_LIMIT, 0, "Call the function within one process, or in a loop.",
					 "Stored functions call one another more than %d deep.", FURCA_MAX_NESTED);
	else if (function->origin && !furca_capability_adopt(engine, function->origin, &request))
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0,
					 "Call it with .stateless() or .read_only(), or in another session.",
					 "The function's session is busy with a call that waits for this one.");
	if (err.code) {
		FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

		furca_result_refusal(function->args, NULL, &err, true, &out);
		furca_functions_finished(engine->functions, function->origin, furca_buf_view(&out),
					 (struct furca_view){0}, NULL);
		return;
	}
	furca_call_begin(engine, &request);
}

/* The session that a host belongs to: as its live process, or as a copy that serves `call`. */
static struct furca_session *session_of(struct furca_engine *engine, const struct furca_host *host,
					const struct furca_call *call)
{
	if (call && call->session)
		return call->session;
	for (struct furca_entry *e = engine->registry.first; e; e = e->next)
		if (furca_session_of(e)->live == host)
			return furca_session_of(e);
	return NULL;
}

static bool from(void *user, furca_function_origin origin, struct furca_view args, struct furca_function_from *ret)
{
	struct furca_engine *engine = user;
	struct furca_coordinates at;
	struct furca_plan plan;
	struct furca_call *call = NULL;
	uint64_t id = 0;
	struct furca_host *host = furca_capability_origin(engine, origin, &call);

	if (!host)
		return false;
	struct furca_session *session = session_of(engine, host, call);
	*ret = (struct furca_function_from){
		.language = host->lang->name,
		.venv_id = host->venv,
		.read_only = host->role == FURCA_CLONE_COPY || (call && call->harmless),
		.has_session = session != NULL,
		.session_id = session ? session->entry.key.id : 0,
	};
	furca_engine_coordinates(engine, &at);
	if (furca_coordinate_plan(&at, args, true, &plan, NULL) == 0 && plan.mode == FURCA_STATEFUL) {
		struct furca_entry *entry = furca_coordinate_session(&at, &plan, &id);

		ret->own_session = entry && furca_session_of(entry)->live == host;
	}
	return true;
}

static void reply(void *user, furca_function_origin origin, enum furca_frame frame, struct furca_view body,
		  struct furca_fd *memory)
{
	furca_capability_reply(user, origin, frame, body, memory);
}

static bool holder(void *user, uint64_t venv_id, char *buf, size_t size)
{
	const struct furca_engine *engine = user;
	char place[FURCA_ADVICE_TEXT];

	for (const struct furca_entry *entry = engine->registry.first; entry; entry = entry->next)
		if (entry->key.venv == venv_id) {
			(void)snprintf(buf, size, "%s", furca_coordinate_place(place, &entry->key));
			return true;
		}
	return false;
}

static const char *function_in(void *user, uint64_t venv_id)
{
	const struct furca_engine *engine = user;

	return engine->functions ? furca_functions_in(engine->functions, venv_id) : NULL;
}

int furca_modules_start(struct furca_engine *engine, struct furca_err *err)
{
	const struct furca_envs_config config = {.state_dir = engine->state_dir,
						 .workdir = engine->workdir,
						 .max_bytes = (uint64_t)engine->config.env_max_bytes,
						 .timeout_s = engine->config.env_timeout_s};
	const struct furca_tool_spawner spawner = {engine, spawn};
	const struct furca_envs_events env_events = {engine, answer, progress, retire, holder, function_in};
	const struct furca_functions_events events = {engine, answer, function_call, from, reply};
	FURCA_AUTO_FREE char *notice = NULL;
	int r = furca_store_open(engine->state_dir, &engine->store, &notice, err);

	if (r == 0 && notice)
		furca_log(FURCA_LOG_WARN, "engine", "store notice=\"%s\"", notice);
	if (r == 0)
		engine->lost = furca_lost_read(engine);
	if (r == 0)
		r = furca_envs_new(engine->loop, engine->store, &config, &spawner, &env_events, &engine->envs, err);
	if (r == 0)
		r = furca_functions_new(engine->loop, engine->store, engine->envs, &config, &spawner, &events,
					&engine->functions, err);
	return r;
}

struct stopping {
	struct furca_engine *engine;
	void (*done)(void *user);
	void *user;
};

static void envs_ended(void *user)
{
	struct stopping *s = user;

	s->engine->envs = NULL;
	s->done(s->user);
	free(s);
}

static void functions_ended(void *user)
{
	struct stopping *s = user;

	s->engine->functions = NULL;
	furca_envs_stop(s->engine->envs, envs_ended, s);
}

void furca_modules_stop(struct furca_engine *engine, void (*done)(void *user), void *user)
{
	struct stopping *s = calloc(1, sizeof(*s));

	if (!s) {
		done(user); /* their children end with the init */
		return;
	}
	*s = (struct stopping){engine, done, user};
	furca_functions_stop(engine->functions, functions_ended, s);
}

void furca_modules_free(struct furca_engine *engine)
{
	furca_lost_free(engine->lost);
	engine->lost = NULL;
	furca_store_free(engine->store);
	engine->store = NULL;
}

void furca_modules_client_gone(struct furca_engine *engine, furca_client_id client)
{
	if (engine->envs)
		furca_envs_client_gone(engine->envs, client);
	if (engine->functions)
		furca_functions_client_gone(engine->functions, client);
}
