#include "engine/env.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/env_private.h"
#include "langs/lang.h"

#include "base/banned.h"

#define MARK "furca-env.json" /* envcheck.py writes it */
#define SAVE_USE_S 60	      /* how stale used_at may be in the store */

const char *furca_env_state_name(enum furca_env_state state)
{
	static const char *const name[FURCA_ENV_STATES] = {
		[FURCA_ENV_DECLARED] = "declared",
		[FURCA_ENV_BUILDING] = "building",
		[FURCA_ENV_READY] = "ready",
		[FURCA_ENV_FAILED] = "failed",
	};

	return name[state];
}

struct furca_env *furca_env_find(const struct furca_envs *envs, uint64_t id)
{
	struct furca_env *env = envs->first;

	while (env && (env->id != id || env->removed))
		env = env->next;
	return env;
}

struct furca_env *furca_env_find_digest(const struct furca_envs *envs, const char *digest)
{
	struct furca_env *env = envs->first;

	while (env && (env->removed || strcmp(env->digest, digest)))
		env = env->next;
	return env;
}

bool furca_env_known(const struct furca_envs *envs, uint64_t venv_id)
{
	return furca_env_find(envs, venv_id) != NULL;
}

const char *furca_env_dir(const struct furca_envs *envs, uint64_t venv_id)
{
	struct furca_env *env = furca_env_find(envs, venv_id);

	return env && env->state == FURCA_ENV_READY ? env->dir : NULL;
}

const char *furca_env_interpreter(const struct furca_envs *envs, uint64_t venv_id)
{
	struct furca_env *env = furca_env_find(envs, venv_id);

	return env ? env->interpreter : NULL;
}

const char *furca_env_preload(const struct furca_envs *envs, uint64_t venv_id)
{
	struct furca_env *env = furca_env_find(envs, venv_id);

	return env ? env->preload : NULL;
}

void furca_env_free(struct furca_env *env)
{
	struct furca_env **link = &env->envs->first;

	while (*link && *link != env)
		link = &(*link)->next;
	if (*link)
		*link = env->next;
	free(env->digest);
	free(env->name);
	free(env->spec);
	free(env->canonical);
	free(env->failure);
	free(env->python);
	free(env->interpreter);
	free(env->preload);
	free(env->dir);
	free(env->site);
	free(env);
}

/* A malloc'ed copy; NULL stays NULL and is no failure. */
static char *copy(const char *text, bool *failed)
{
	char *made = text ? strdup(text) : NULL;

	*failed |= text && !made;
	return made;
}

/* __import__ of each of the list in the canonical specification. */
static char *preload_code(json_t *canonical)
{
	FURCA_AUTO_BUF struct furca_buf code = FURCA_BUF_INIT;
	json_t *list = json_object_get(canonical, "preload"), *module;
	size_t i;

	json_array_foreach (list, i, module)
		(void)furca_buf_printf(&code, "__import__('%s')\n", json_string_value(module));
	return code.len && !code.failed ? strndup((const char *)code.data, code.len) : NULL;
}

/* What the canonical specification says that we need. False: it is not one of ours. */
static bool read_canonical(struct furca_env *env)
{
	json_t *canonical = json_loads(env->canonical, 0, NULL);
	json_t *python = json_object_get(canonical, "python");
	const char *version = json_string_value(json_object_get(python, "version"));
	const char *interpreter = json_string_value(json_object_get(python, "executable"));
	bool ok =
		version && interpreter && asprintf(&env->site, "%s/lib/python%s/site-packages", env->dir, version) >= 0;

	if (ok) {
		env->python = strdup(version);
		env->interpreter = strdup(interpreter);
	} else {
		env->site = NULL;
	}
	env->preload = preload_code(canonical);
	json_decref(canonical);
	return ok && env->python && env->interpreter;
}

struct furca_env *furca_env_add(struct furca_envs *envs, const struct furca_store_env *row)
{
	struct furca_env *env = calloc(1, sizeof(*env)), **last = &envs->first;
	bool failed = false;

	if (!env)
		return NULL;
	*env = (struct furca_env){.envs = envs,
				  .id = row->id,
				  .created_at = row->created_at,
				  .built_at = row->built_at,
				  .used_at = row->used_at,
				  .stored_use = row->used_at,
				  .bytes = row->bytes};
	env->digest = copy(row->digest, &failed);
	env->name = copy(row->name, &failed);
	env->spec = copy(row->spec, &failed);
	env->canonical = copy(row->canonical, &failed);
	env->failure = copy(row->failure, &failed);
	failed |= strlen(row->digest) < FURCA_ENV_KEY;
	if (!failed && asprintf(&env->dir, "%s/%.*s", envs->root, FURCA_ENV_KEY, row->digest) < 0)
		env->dir = NULL;
	if (failed || !env->dir || !read_canonical(env)) {
		furca_env_free(env);
		return NULL;
	}
	env->state = env->failure ? FURCA_ENV_FAILED : FURCA_ENV_DECLARED;
	if (env->built_at > 0 && furca_env_whole(env))
		env->state = FURCA_ENV_READY;
	while (*last)
		last = &(*last)->next;
	*last = env;
	return env;
}

void furca_env_save(struct furca_env *env)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_store_env row = {
		.id = env->id,
		.digest = env->digest,
		.name = env->name,
		.spec = env->spec,
		.canonical = env->canonical,
		.created_at = env->created_at,
		.built_at = env->built_at,
		.used_at = env->used_at,
		.bytes = env->bytes,
		.failure = env->failure,
	};

	if (env->removed)
		return;
	env->stored_use = env->used_at;
	if (furca_store_env_put(env->envs->store, &row, NULL, &err) < 0)
		furca_log_err("engine", "environment", &err);
}

static int64_t changed_ns(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? -1 : st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
}

void furca_env_note_site(struct furca_env *env)
{
	env->site_ns = changed_ns(env->site);
}

bool furca_env_whole(struct furca_env *env)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/" MARK, env->dir);
	if (access(path, R_OK) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "%s/bin/python", env->dir);
	if (access(path, X_OK) < 0)
		return false;
	/* A package was added or removed: not damage yet, but the files are to be looked at again. */
	if (env->proven && changed_ns(env->site) != env->site_ns)
		env->proven = false;
	return true;
}

struct furca_env_waiter *furca_env_wait(struct furca_env *env, furca_client_id client, uint64_t msgid,
					furca_env_ready_fn *ready, void *user)
{
	struct furca_env_waiter *waiter = calloc(1, sizeof(*waiter)), **last = &env->envs->waiters;

	if (!waiter)
		return NULL;
	*waiter = (struct furca_env_waiter){.env = env,
					    .ticket = ++env->envs->next_ticket,
					    .client = client,
					    .msgid = msgid,
					    .ready = ready,
					    .user = user,
					    .since = furca_wall_s()};
	while (*last)
		last = &(*last)->next;
	*last = waiter;
	return waiter;
}

bool furca_env_awaited(const struct furca_env *env)
{
	for (struct furca_env_waiter *waiter = env->envs->waiters; waiter; waiter = waiter->next)
		if (waiter->env == env)
			return true;
	return false;
}

static struct furca_env_waiter *take_due(struct furca_env *env)
{
	struct furca_env_waiter **link = &env->envs->waiters, *waiter;

	while ((waiter = *link) && (waiter->env != env || !waiter->due))
		link = &waiter->next;
	if (waiter)
		*link = waiter->next;
	return waiter;
}

/* Whoever is told may ask again or give others up, so the list is looked through from its start after each. */
void furca_env_settle(struct furca_env *env, const struct furca_err *err, const char *lines)
{
	struct furca_env_waiter *waiter;

	for (waiter = env->envs->waiters; waiter; waiter = waiter->next)
		waiter->due |= waiter->env == env;
	while ((waiter = take_due(env))) {
		if (waiter->ready)
			waiter->ready(waiter->user, err ? NULL : env->dir, err, lines);
		else
			furca_env_answer_built(env, waiter, err, lines);
		free(waiter);
	}
}

uint64_t furca_env_want(struct furca_envs *envs, uint64_t venv_id, furca_client_id client, furca_env_ready_fn *ready,
			void *user)
{
	struct furca_env *env = furca_env_find(envs, venv_id);
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_env_waiter *waiter = NULL;

	if (!env || envs->stopping)
		(void)furca_fail(&err, FURCA_E_ENVIRONMENT, 0,
				 env ? "the engine is stopping" : "the environment has been removed");
	else if (!(env->state == FURCA_ENV_READY && !env->tool && furca_env_whole(env) && env->proven) &&
		 !(waiter = furca_env_wait(env, client, 0, ready, user)))
		(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory to wait for the environment");
	if (!env || err.code) {
		ready(user, NULL, &err, NULL);
		return 0;
	}
	env->used_at = furca_wall_s();
	if (waiter) {
		uint64_t ticket = waiter->ticket;

		furca_env_proceed(env);
		return ticket;
	}
	if (env->used_at - env->stored_use > SAVE_USE_S)
		furca_env_save(env);
	ready(user, env->dir, NULL, NULL);
	return 0;
}

/* Takes a waiter out; where it was the last one, the build has no reason any more. */
static void give_up(struct furca_envs *envs, struct furca_env_waiter **link)
{
	struct furca_env_waiter *waiter = *link;
	struct furca_env *env = waiter->env;

	*link = waiter->next;
	free(waiter);
	if (env->tool && !furca_env_awaited(env)) {
		env->cancelled = true;
		furca_tool_cancel(env->tool);
	}
}

void furca_env_unwant(struct furca_envs *envs, uint64_t ticket)
{
	if (!envs)
		return;
	for (struct furca_env_waiter **link = &envs->waiters; ticket && *link; link = &(*link)->next) {
		if ((*link)->ticket == ticket) {
			give_up(envs, link);
			return;
		}
	}
}

void furca_envs_client_gone(struct furca_envs *envs, furca_client_id client)
{
	struct furca_env_waiter **link = &envs->waiters;

	while (*link) {
		if (!(*link)->ready && (*link)->client == client)
			give_up(envs, link);
		else
			link = &(*link)->next;
	}
	for (struct furca_env_request *request = envs->requests; request; request = request->next)
		request->dropped |= request->client == client;
}

void furca_env_hold(struct furca_envs *envs, uint64_t venv_id)
{
	struct furca_env *env = furca_env_find(envs, venv_id);

	if (env)
		env->holds++;
}

void furca_env_release(struct furca_envs *envs, uint64_t venv_id)
{
	/* The last processes of an engine that stops end after its environments have been closed. */
	struct furca_env *env = envs ? furca_env_find(envs, venv_id) : NULL;

	if (!env || !env->holds)
		return;
	env->used_at = furca_wall_s();
	if (--env->holds == 0 && !envs->stopping)
		furca_env_collect(envs, NULL);
}

void furca_env_suspect(struct furca_envs *envs, uint64_t venv_id)
{
	struct furca_env *env = furca_env_find(envs, venv_id);

	if (env)
		env->proven = false;
}

void furca_env_trash(struct furca_env *env)
{
	struct furca_envs *envs = env->envs;
	char path[4096];

	envs->events.retire(envs->events.user, env->id);
	(void)snprintf(path, sizeof(path), "%s/.trash-%.*s-%d-%llu", envs->root, FURCA_ENV_KEY, env->digest,
		       (int)getpid(), (unsigned long long)++envs->trashed);
	env->proven = false;
	env->bytes = 0;
	env->built_at = 0;
	env->state = FURCA_ENV_DECLARED;
	if (rename(env->dir, path) == 0)
		furca_envs_discard(envs);
	else if (errno != ENOENT)
		furca_log(FURCA_LOG_WARN, "engine", "cannot remove environment=%llu errno=%d",
			  (unsigned long long)env->id, errno);
}

void furca_env_collect(struct furca_envs *envs, const struct furca_env *keep)
{
	while (envs->max_bytes) {
		struct furca_env *oldest = NULL;
		uint64_t sum = 0;

		for (struct furca_env *env = envs->first; env; env = env->next) {
			sum += env->state == FURCA_ENV_READY ? env->bytes : 0;
			if (env->state == FURCA_ENV_READY && env != keep && !env->holds && !env->tool &&
			    !furca_env_awaited(env) && (!oldest || env->used_at < oldest->used_at))
				oldest = env;
		}
		if (sum <= envs->max_bytes || !oldest)
			return;
		furca_log(FURCA_LOG_INFO, "engine", "collected environment=%llu bytes=%llu",
			  (unsigned long long)oldest->id, (unsigned long long)oldest->bytes);
		furca_env_trash(oldest);
		furca_env_save(oldest);
	}
}

static void envs_free(struct furca_envs *envs)
{
	while (envs->first)
		furca_env_free(envs->first);
	furca_loop_drop(envs->loop, &envs->ending);
	free(envs->root);
	free(envs->workdir);
	free(envs->tool_path);
	free(envs->cache);
	free(envs);
}

static int load(void *user, const struct furca_store_env *row)
{
	if (!furca_env_add(user, row))
		furca_log(FURCA_LOG_WARN, "engine", "unreadable environment=%llu", (unsigned long long)row->id);
	return 0;
}

static bool is_key(const char *name)
{
	return strlen(name) == FURCA_ENV_KEY && strspn(name, "0123456789abcdef") == FURCA_ENV_KEY;
}

static bool has_row(const struct furca_envs *envs, const char *key)
{
	struct furca_env *env = envs->first;

	while (env && strncmp(env->digest, key, FURCA_ENV_KEY))
		env = env->next;
	return env != NULL;
}

/* Directories that no row knows, and what interrupted builds and removals left, are cleared away by a child. */
static void sweep(struct furca_envs *envs)
{
	DIR *dir = opendir(envs->root);
	struct dirent *entry;
	bool dirt = false;

	while (dir && (entry = readdir(dir))) {
		char from[4096], to[4096];

		dirt |= !strncmp(entry->d_name, ".trash-", 7) ||
			(entry->d_name[0] == '.' && strlen(entry->d_name) >= FURCA_ENV_KEY);
		if (!is_key(entry->d_name) || has_row(envs, entry->d_name))
			continue;
		(void)snprintf(from, sizeof(from), "%s/%s", envs->root, entry->d_name);
		(void)snprintf(to, sizeof(to), "%s/.trash-%s", envs->root, entry->d_name);
		dirt |= rename(from, to) == 0;
	}
	if (dir)
		(void)closedir(dir);
	if (dirt)
		furca_envs_discard(envs);
}

int furca_envs_new(struct furca_loop *loop, struct furca_store *store, const struct furca_envs_config *config,
		   const struct furca_tool_spawner *spawner, const struct furca_envs_events *events,
		   struct furca_envs **ret, struct furca_err *err)
{
	struct furca_envs *envs = calloc(1, sizeof(*envs));
	int r = 0;

	if (!envs)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for environments");
	*envs = (struct furca_envs){.loop = loop,
				    .store = store,
				    .spawner = *spawner,
				    .events = *events,
				    .max_bytes = config->max_bytes,
				    .timeout_s = config->timeout_s};
	envs->workdir = strdup(config->workdir);
	if (asprintf(&envs->root, "%s/envs", config->state_dir) < 0 ||
	    asprintf(&envs->cache, "%s/interpreters.json", config->state_dir) < 0 ||
	    asprintf(&envs->tool_path, "%s/envtool.py", furca_lang_libexec()) < 0 || !envs->workdir)
		r = furca_fail(err, FURCA_E_MEMORY, 0, "no memory for environments");
	else if (mkdir(envs->root, 0700) < 0 && errno != EEXIST)
		r = furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make the directory %s", envs->root);
	if (r == 0)
		r = furca_store_env_each(store, load, envs, err);
	if (r < 0) {
		envs_free(envs);
		return r;
	}
	sweep(envs);
	*ret = envs;
	return 0;
}

static void finish(void *owner)
{
	struct furca_envs *envs = owner;
	void (*stopped)(void *user) = envs->stopped;
	void *user = envs->stopped_user;

	envs->ending = FURCA_OP_NONE;
	envs_free(envs);
	stopped(user);
}

void furca_envs_maybe_stopped(struct furca_envs *envs)
{
	bool busy = envs->discarding || envs->requests;

	for (struct furca_env *env = envs->first; env; env = env->next)
		busy |= env->tool != NULL;
	if (!envs->stopping || busy || envs->ending)
		return;
	/* By the loop, so that nobody on the stack holds what is freed. */
	if (furca_loop_defer(envs->loop, finish, envs, &envs->ending) < 0)
		furca_log(FURCA_LOG_ALERT, "engine", "no slot to end the environments");
}

void furca_envs_stop(struct furca_envs *envs, void (*done)(void *user), void *user)
{
	struct furca_err err = FURCA_ERR_INIT;

	envs->stopping = true;
	envs->stopped = done;
	envs->stopped_user = user;
	(void)furca_fail(&err, FURCA_E_ENVIRONMENT, 0, "the engine is stopping");
	for (struct furca_env *env = envs->first; env; env = env->next) {
		if (env->used_at > env->stored_use)
			furca_env_save(env);
		furca_env_settle(env, &err, NULL);
		env->cancelled = true;
		if (env->tool)
			furca_tool_cancel(env->tool);
	}
	for (struct furca_env_request *request = envs->requests; request; request = request->next)
		furca_tool_cancel(request->tool);
	if (envs->discarding)
		furca_tool_cancel(envs->discarding);
	furca_envs_maybe_stopped(envs);
}
