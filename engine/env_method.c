/* Environments: the requests of clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/wire/limits.h"
#include "engine/env_private.h"
#include "engine/method.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

static void answer(struct furca_envs *envs, furca_client_id client, uint64_t msgid, struct furca_buf *out)
{
	envs->events.answer(envs->events.user, client, msgid, furca_buf_view(out));
}

static void refuse(struct furca_envs *envs, furca_client_id client, uint64_t msgid, const struct furca_err *err,
		   const char *lines, struct furca_view received)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

	furca_method_refuse(&out, err, lines, received);
	answer(envs, client, msgid, &out);
}

/* The keys that tell of one environment, `more` further ones to follow. */
static void pack_env(msgpack_packer *pk, const struct furca_env *env, uint32_t more)
{
	msgpack_pack_map(pk, 5 + more);
	furca_pack_text(pk, "venv_id");
	msgpack_pack_uint64(pk, env->id);
	furca_pack_text(pk, "digest");
	furca_pack_text(pk, env->digest);
	furca_pack_text(pk, "name");
	furca_pack_text_or_nil(pk, env->name);
	furca_pack_text(pk, "state");
	furca_pack_text(pk, furca_env_state_name(env->state));
	furca_pack_text(pk, "python");
	furca_pack_text(pk, env->python);
}

static void pack_ok(msgpack_packer *pk)
{
	furca_pack_text(pk, "ok");
	msgpack_pack_true(pk);
}

static void answer_env(struct furca_env *env, furca_client_id client, uint64_t msgid)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	pack_env(&pk, env, 1);
	pack_ok(&pk);
	answer(env->envs, client, msgid, &out);
}

static void request_free(struct furca_env_request *request)
{
	struct furca_env_request **link = &request->envs->requests;

	while (*link && *link != request)
		link = &(*link)->next;
	if (*link)
		*link = request->next;
	free(request->spec);
	free(request->name);
	furca_buf_done(&request->received);
	free(request);
}

/* The environment of that digest, made if there is none. NULL with *err. */
static struct furca_env *declare(struct furca_env_request *request, json_t *result, struct furca_err *err)
{
	const char *digest = json_string_value(json_object_get(result, "digest"));
	const char *own = json_string_value(json_object_get(result, "name"));
	struct furca_store_env row = {
		.digest = digest,
		.name = request->name ? request->name : own,
		.spec = request->spec,
		.canonical = json_string_value(json_object_get(result, "canonical")),
		.created_at = furca_wall_s(),
	};
	struct furca_env *env;

	if (!digest || !row.canonical) {
		(void)furca_fail(err, FURCA_E_INTERNAL, 0, "the environment tool answered without a digest");
		return NULL;
	}
	env = furca_env_find_digest(request->envs, digest);
	if (env) {
		if (!env->tool && env->state == FURCA_ENV_READY && !furca_env_whole(env))
			env->state = FURCA_ENV_DECLARED;
		return env;
	}
	if (furca_store_env_put(request->envs->store, &row, &row.id, err) < 0)
		return NULL;
	env = furca_env_add(request->envs, &row);
	if (!env)
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the environment");
	return env;
}

static void on_normalised(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	struct furca_env_request *request = user;
	struct furca_envs *envs = request->envs;
	struct furca_err failed = FURCA_ERR_INIT;
	struct furca_env *env = result ? declare(request, result, &failed) : NULL;

	if (!result)
		failed = furca_env_error(envs, "Looking at the specification", err);
	if (!request->dropped && env)
		answer_env(env, request->client, request->msgid);
	else if (!request->dropped)
		refuse(envs, request->client, request->msgid, &failed, NULL, furca_buf_view(&request->received));
	request_free(request);
	furca_envs_maybe_stopped(envs);
}

static int start_create(struct furca_envs *envs, furca_client_id client, uint64_t msgid, struct furca_view args,
			struct furca_err *err)
{
	static const char *const known[] = {"spec", "name"};
	struct furca_view spec, name = {0};
	int r = furca_method_known(args, known, FURCA_COUNT(known), err);

	if (r < 0 || (r = furca_method_text(args, "spec", true, FURCA_ENV_MAX_SPEC, &spec, err)) < 0 ||
	    (r = furca_method_text(args, "name", false, 4 * FURCA_MAX_NAME, &name, err)) < 0)
		return r;
	struct furca_env_request *request = calloc(1, sizeof(*request));
	if (!request)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the request");
	*request = (struct furca_env_request){.envs = envs,
					      .client = client,
					      .msgid = msgid,
					      .spec = furca_view_dup(spec),
					      .name = furca_view_size(name) ? furca_view_dup(name) : NULL};
	(void)furca_buf_append(&request->received, args.at, furca_view_size(args));
	request->next = envs->requests;
	envs->requests = request;
	json_t *ask = json_pack("{s:s, s:s, s:s}", "op", "normalise", "spec", request->spec ? request->spec : "",
				"cache", envs->cache);
	const struct furca_tool_request how = {.user = request, .done = on_normalised, .timeout_s = envs->timeout_s};
	r = request->spec && ask && !request->received.failed
		    ? furca_env_run_tool(envs, ask, &how, &request->tool, err)
		    : furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the request");
	json_decref(ask);
	if (r < 0)
		request_free(request);
	return r;
}

/* The environment that the argument venv_id names, or NULL with *err. */
static struct furca_env *named(struct furca_envs *envs, struct furca_view args, struct furca_err *err)
{
	static const char *const known[] = {"venv_id"};
	uint64_t id;

	if (furca_method_known(args, known, FURCA_COUNT(known), err) < 0 ||
	    furca_method_uint(args, "venv_id", true, &id, err) < 0)
		return NULL;
	struct furca_env *env = furca_env_find(envs, id);
	char advice[256] =
		"Call create_env with spec='[project]\\nname = \"env\"\\nversion = \"0\"' first and use its venv_id; no environment exists.";
	if (envs->first)
		(void)snprintf(advice, sizeof(advice),
			       "Give the venv_id that create_env gave or list_envs shows, for example venv_id=%llu.",
			       (unsigned long long)envs->first->id);
	if (!env)
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice,
					 "There is no environment with venv_id=%llu.", (unsigned long long)id);
	return env;
}

void furca_env_answer_built(struct furca_env *env, const struct furca_env_waiter *waiter, const struct furca_err *err,
			    const char *lines)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	FURCA_AUTO_BUF struct furca_buf received = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (err) {
		furca_packer(&pk, &received);
		msgpack_pack_map(&pk, 1);
		furca_pack_text(&pk, "venv_id");
		msgpack_pack_uint64(&pk, env->id);
		refuse(env->envs, waiter->client, waiter->msgid, err, lines, furca_buf_view(&received));
		return;
	}
	furca_packer(&pk, &out);
	pack_env(&pk, env, 3);
	pack_ok(&pk);
	furca_pack_text(&pk, "bytes");
	msgpack_pack_uint64(&pk, env->bytes);
	furca_pack_text(&pk, "waited_s");
	msgpack_pack_double(&pk, furca_wall_s() - waiter->since);
	answer(env->envs, waiter->client, waiter->msgid, &out);
}

static int start_build(struct furca_envs *envs, furca_client_id client, uint64_t msgid, struct furca_view args,
		       struct furca_err *err)
{
	struct furca_env *env = named(envs, args, err);

	if (!env)
		return -EINVAL;
	if (!furca_env_wait(env, client, msgid, NULL, NULL))
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to wait for the environment");
	env->used_at = furca_wall_s();
	furca_env_proceed(env);
	return 0;
}

static int list(struct furca_envs *envs, furca_client_id client, uint64_t msgid, struct furca_view args,
		struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	double now = furca_wall_s();
	msgpack_packer pk;
	uint32_t count = 0;
	int r = furca_method_known(args, NULL, 0, err);

	if (r < 0)
		return r;
	for (struct furca_env *env = envs->first; env; env = env->next)
		count += !env->removed;
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 2);
	pack_ok(&pk);
	furca_pack_text(&pk, "envs");
	msgpack_pack_array(&pk, count);
	for (struct furca_env *env = envs->first; env; env = env->next) {
		if (env->removed)
			continue;
		pack_env(&pk, env, 7);
		furca_pack_text(&pk, "spec");
		furca_pack_text(&pk, env->spec);
		furca_pack_text(&pk, "bytes");
		msgpack_pack_uint64(&pk, env->bytes);
		furca_pack_text(&pk, "sessions");
		msgpack_pack_uint64(&pk, env->holds);
		furca_pack_text(&pk, "created_at");
		msgpack_pack_double(&pk, env->created_at);
		furca_pack_text(&pk, "age_s");
		msgpack_pack_double(&pk, env->built_at > 0 ? now - env->built_at : 0);
		furca_pack_text(&pk, "last_used_at");
		msgpack_pack_double(&pk, env->used_at);
		furca_pack_text(&pk, "failure");
		furca_pack_text_or_nil(&pk, env->failure);
	}
	answer(envs, client, msgid, &out);
	return 0;
}

/* Its sessions and calls, and the stored functions that run in it, which would fail from then on. */
static int refuse_used(struct furca_envs *envs, const struct furca_env *env, struct furca_err *err)
{
	const char *function = envs->events.function ? envs->events.function(envs->events.user, env->id) : NULL;
	char advice[FURCA_ERR_TEXT_MAX] = "Call again when the calls in it have ended.", place[224];

	if (env->holds || furca_env_awaited(env)) {
		if (envs->events.holder && envs->events.holder(envs->events.user, env->id, place, sizeof(place)))
			(void)snprintf(
				advice, sizeof(advice),
				"Close its sessions (list_sessions shows them), for example call close_session with %s first.",
				place);
		return furca_fail_suggest(err, FURCA_E_BUSY, 0, advice,
					  "Environment %llu is in use by %u sessions or calls.",
					  (unsigned long long)env->id, env->holds ? env->holds : 1);
	}
	if (!function)
		return 0;
	(void)snprintf(advice, sizeof(advice), "Call remove_function with name='%s' first.", function);
	return furca_fail_suggest(err, FURCA_E_BUSY, 0, advice, "The stored function '%s' runs in environment %llu.",
				  function, (unsigned long long)env->id);
}

static int remove_env(struct furca_envs *envs, furca_client_id client, uint64_t msgid, struct furca_view args,
		      struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_env *env = named(envs, args, err);
	msgpack_packer pk;
	int r;

	if (!env)
		return -EINVAL;
	r = refuse_used(envs, env, err);
	if (r < 0)
		return r;
	r = furca_store_env_remove(envs->store, env->id, err);
	if (r < 0)
		return r;
	if (env->tool)
		furca_tool_cancel(env->tool);
	furca_env_trash(env);
	env->removed = true;
	if (!env->tool)
		furca_env_free(env); /* else when its child has ended */
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 2);
	pack_ok(&pk);
	furca_pack_text(&pk, "removed");
	msgpack_pack_true(&pk);
	answer(envs, client, msgid, &out);
	return 0;
}

void furca_envs_request(struct furca_envs *envs, furca_client_id client, uint64_t msgid, enum furca_method method,
			struct furca_view args)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r = -EINVAL;

	if (envs->stopping)
		(void)furca_fail(&err, FURCA_E_BUSY, 0, "the engine is stopping");
	else if (method == FURCA_METHOD_create_env)
		r = start_create(envs, client, msgid, args, &err);
	else if (method == FURCA_METHOD_build_env)
		r = start_build(envs, client, msgid, args, &err);
	else if (method == FURCA_METHOD_list_envs)
		r = list(envs, client, msgid, args, &err);
	else
		r = remove_env(envs, client, msgid, args, &err);
	if (r < 0)
		refuse(envs, client, msgid, &err, NULL, args);
}
