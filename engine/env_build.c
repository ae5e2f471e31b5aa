/* Environments: the children that verify, build and clear away. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/env_private.h"

#include "base/banned.h"

static void proceed_or_rest(struct furca_env *env);

static void free_json(char **text)
{
	free(*text);
}

int furca_env_run_tool(struct furca_envs *envs, json_t *request, const struct furca_tool_request *how,
		       struct furca_tool **ret, struct furca_err *err)
{
	/* -I: neither the user's site-packages nor PYTHONPATH nor a module in the working directory can get in. */
	char *argv[] = {(char *)FURCA_PYTHON, (char *)"-I", (char *)"-B", envs->tool_path, NULL};
	FURCA_AUTO(free_json) char *line = json_dumps(request, JSON_COMPACT);
	struct furca_tool_request full = *how;

	if (!line)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to ask the environment tool");
	full.argv = argv;
	full.cwd = envs->workdir;
	full.request = line;
	return furca_tool_start(envs->loop, &envs->spawner, &full, ret, err);
}

struct furca_err furca_env_error(const struct furca_envs *envs, const char *what, const struct furca_err *err)
{
	struct furca_err told = FURCA_ERR_INIT;

	if (err->code != FURCA_E_TIMEOUT)
		return *err;
	(void)furca_fail_suggest(
		&told, FURCA_E_ENVIRONMENT, 0,
		"Call again if a slow disk or index was the cause, or start the engine with a higher env_timeout_s in its configuration.",
		"%s was ended after env_timeout_s=%.10g seconds, the time that the engine's configuration gives it.",
		what, envs->timeout_s);
	return told;
}

static void free_request(json_t **request)
{
	json_decref(*request);
}

#define AUTO_JSON FURCA_AUTO(free_request)

/* The removed one has waited for its child only. */
static bool end_if_removed(struct furca_env *env)
{
	struct furca_envs *envs = env->envs;

	if (!env->removed)
		return false;
	if (!furca_env_find_digest(envs, env->digest))
		furca_env_trash(env); /* a build that was done before it heard of its end */
	furca_env_free(env);
	furca_envs_maybe_stopped(envs);
	return true;
}

/* A child has ended: whoever came while it was being cancelled, or found damage, has it go on. */
static void proceed_or_rest(struct furca_env *env)
{
	if (env->envs->stopping)
		furca_envs_maybe_stopped(env->envs);
	else if (furca_env_awaited(env))
		furca_env_proceed(env);
}

static void on_progress(void *user, const char *text)
{
	struct furca_env *env = user;
	struct furca_envs *envs = env->envs;

	for (struct furca_env_waiter *waiter = envs->waiters; waiter; waiter = waiter->next) {
		bool told = waiter->env != env || !waiter->client;

		/* Once to each client, however many of its calls wait. */
		for (struct furca_env_waiter *other = envs->waiters; other != waiter && !told; other = other->next)
			told = other->env == env && other->client == waiter->client;
		if (!told)
			envs->events.progress(envs->events.user, waiter->client, env->id, text);
	}
}

static void note_built(struct furca_env *env, json_t *result)
{
	env->state = FURCA_ENV_READY;
	env->proven = true;
	env->bytes = (uint64_t)json_integer_value(json_object_get(result, "bytes"));
	env->built_at = env->used_at = furca_wall_s();
	free(FURCA_TAKE(env->failure));
	furca_env_note_site(env);
	furca_env_save(env);
}

static void on_built(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	struct furca_env *env = user;
	struct furca_envs *envs = env->envs;
	const char *lines = json_string_value(json_object_get(report, "lines"));
	bool cancelled = env->cancelled;

	env->tool = NULL;
	env->building = env->cancelled = false;
	env->state = FURCA_ENV_DECLARED;
	if (end_if_removed(env))
		return;
	if (result) {
		note_built(env, result);
		furca_log(FURCA_LOG_INFO, "engine", "built environment=%llu bytes=%llu", (unsigned long long)env->id,
			  (unsigned long long)env->bytes);
		furca_env_settle(env, NULL, NULL);
		if (!envs->stopping)
			furca_env_collect(envs, env);
	} else if (!cancelled) {
		const struct furca_err told = furca_env_error(envs, "Building the environment", err);

		env->state = FURCA_ENV_FAILED;
		free(env->failure);
		env->failure = strdup(told.text);
		furca_env_save(env);
		furca_log_err("engine", "environment", &told);
		if (err->code == FURCA_E_TIMEOUT) /* it may have been killed before it had cleared its scratch away */
			furca_envs_discard(envs);
		furca_env_settle(env, &told, lines);
	}
	proceed_or_rest(env);
}

static int start_build(struct furca_env *env, struct furca_err *err)
{
	AUTO_JSON json_t *request = json_pack("{s:s, s:s, s:s, s:s}", "op", "build", "root", env->envs->root, "digest",
					      env->digest, "canonical", env->canonical);
	const struct furca_tool_request how = {
		.user = env, .progress = on_progress, .done = on_built, .timeout_s = env->envs->timeout_s};
	int r = furca_env_run_tool(env->envs, request, &how, &env->tool, err);

	if (r < 0)
		return r;
	env->building = true;
	env->state = FURCA_ENV_BUILDING;
	return 0;
}

static void on_verified(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	struct furca_env *env = user;
	struct furca_envs *envs = env->envs;
	const char *damage = json_string_value(json_object_get(result, "damage"));
	bool cancelled = env->cancelled;

	env->tool = NULL;
	env->cancelled = false;
	if (end_if_removed(env))
		return;
	if (result && json_is_true(json_object_get(result, "sound"))) {
		env->proven = true;
		furca_env_note_site(env);
		furca_env_settle(env, NULL, NULL);
		if (!envs->stopping)
			furca_env_collect(envs, env);
	} else if (result) {
		furca_log(FURCA_LOG_WARN, "engine", "damaged environment=%llu why=\"%s\"", (unsigned long long)env->id,
			  damage ? damage : "?");
		envs->events.retire(envs->events.user, env->id);
		env->state = FURCA_ENV_DECLARED; /* whoever waits has it built; the build moves the damaged one away */
	} else if (!cancelled) {
		const struct furca_err told = furca_env_error(envs, "Looking at the environment's files", err);

		furca_env_settle(env, &told, NULL);
	}
	proceed_or_rest(env);
}

static int start_verify(struct furca_env *env, struct furca_err *err)
{
	AUTO_JSON json_t *request =
		json_pack("{s:s, s:s, s:s}", "op", "verify", "dir", env->dir, "digest", env->digest);
	const struct furca_tool_request how = {.user = env, .done = on_verified, .timeout_s = env->envs->timeout_s};

	return furca_env_run_tool(env->envs, request, &how, &env->tool, err);
}

void furca_env_proceed(struct furca_env *env)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r;

	if (env->tool)
		return;
	if (env->state == FURCA_ENV_READY && !furca_env_whole(env)) {
		furca_log(FURCA_LOG_WARN, "engine",
			  "damaged environment=%llu why=\"its interpreter or ready mark is gone\"",
			  (unsigned long long)env->id);
		env->envs->events.retire(env->envs->events.user, env->id);
		env->state = FURCA_ENV_DECLARED;
	}
	if (env->state == FURCA_ENV_READY && env->proven) {
		furca_env_settle(env, NULL, NULL);
		return;
	}
	r = env->state == FURCA_ENV_READY ? start_verify(env, &err) : start_build(env, &err);
	if (r < 0)
		furca_env_settle(env, &err, NULL);
}

static void on_discarded(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	struct furca_envs *envs = user;

	envs->discarding = NULL;
	if (err && !envs->stopping)
		furca_log_err("engine", "environments", err);
	if (envs->discard_again && !envs->stopping)
		furca_envs_discard(envs);
	else
		furca_envs_maybe_stopped(envs);
}

void furca_envs_discard(struct furca_envs *envs)
{
	struct furca_err err = FURCA_ERR_INIT;
	AUTO_JSON json_t *request = json_pack("{s:s, s:s}", "op", "discard", "root", envs->root);

	envs->discard_again = envs->discarding != NULL;
	if (envs->discarding || envs->stopping)
		return;
	const struct furca_tool_request how = {.user = envs, .done = on_discarded}; /* no one waits for it */
	if (furca_env_run_tool(envs, request, &how, &envs->discarding, &err) < 0)
		furca_log_err("engine", "environments", &err);
}
