/* Environments: what env.c (who waits, what is ready), env_build.c (children) and env_method.c (requests) share. */
#pragma once

#include "engine/env.h"
#include "engine/loop.h"

#define FURCA_ENV_MAX_SPEC (1U << 20) /* bytes of a specification */
#define FURCA_ENV_KEY 20	      /* characters of the digest that name the directory; envcheck.py has the same */

struct furca_env {
	struct furca_env *next;
	struct furca_envs *envs;
	uint64_t id;
	char *digest, *name, *spec, *canonical, *failure;
	char *python; /* "3.11" */
	char *interpreter;
	char *preload; /* code, or NULL */
	char *dir, *site;
	double created_at, built_at, used_at, stored_use;
	uint64_t bytes;
	enum furca_env_state state;
	unsigned holds;
	bool proven;	 /* looked at whole since the engine started, and nothing has changed at its top since */
	int64_t site_ns; /* when site-packages was last changed, as it was then */
	struct furca_tool *tool; /* verifies or builds */
	bool building, cancelled, removed;
};

/* Someone who waits for an environment: the engine (ready), or a client's build_env. */
struct furca_env_waiter {
	struct furca_env_waiter *next;
	struct furca_env *env;
	uint64_t ticket;
	furca_client_id client;
	uint64_t msgid;
	furca_env_ready_fn *ready; /* NULL: build_env */
	void *user;
	double since;
	bool due; /* belongs to the end that is being told */
};

/* A create_env whose specification is being normalised. */
struct furca_env_request {
	struct furca_env_request *next;
	struct furca_envs *envs;
	furca_client_id client;
	uint64_t msgid;
	char *spec, *name;
	struct furca_buf received;
	struct furca_tool *tool;
	bool dropped;
};

struct furca_envs {
	struct furca_loop *loop;
	struct furca_store *store;
	struct furca_tool_spawner spawner;
	struct furca_envs_events events;
	char *root, *workdir, *tool_path, *cache;
	uint64_t max_bytes, next_ticket;
	double timeout_s;
	struct furca_env *first;
	struct furca_env_waiter *waiters;
	struct furca_env_request *requests;
	struct furca_tool *discarding;
	bool discard_again;
	uint64_t trashed;
	bool stopping;
	furca_op_id ending;
	void (*stopped)(void *user);
	void *stopped_user;
};

/* env.c */
struct furca_env *furca_env_find(const struct furca_envs *envs, uint64_t id);
struct furca_env *furca_env_find_digest(const struct furca_envs *envs, const char *digest);
/* Adds one from a row (copied); NULL: no memory, or a row that makes no sense. */
struct furca_env *furca_env_add(struct furca_envs *envs, const struct furca_store_env *row);
/* Writes it to the store; failures are logged, the environment itself is unharmed. */
void furca_env_save(struct furca_env *env);
void furca_env_free(struct furca_env *env);
bool furca_env_whole(struct furca_env *env); /* cheap look: mark, interpreter, site-packages unchanged since proven */
void furca_env_note_site(struct furca_env *env);
/* Puts somebody in the list; NULL: no memory. */
struct furca_env_waiter *furca_env_wait(struct furca_env *env, furca_client_id client, uint64_t msgid,
					furca_env_ready_fn *ready, void *user);
bool furca_env_awaited(const struct furca_env *env);
/* Tells all who wait now: ready (err NULL), or why not. */
void furca_env_settle(struct furca_env *env, const struct furca_err *err, const char *lines);
/* Throws the directory away: the engine's zygote goes, the directory is renamed and removed by a child. */
void furca_env_trash(struct furca_env *env);
void furca_env_collect(struct furca_envs *envs, const struct furca_env *keep);
/* Nothing left to do while stopping: ends. */
void furca_envs_maybe_stopped(struct furca_envs *envs);

/* env_build.c */
/* Verifies or builds, whichever is due; if that is under way, nothing. Failing at once, it settles. */
void furca_env_proceed(struct furca_env *env);
void furca_envs_discard(struct furca_envs *envs);
/* Starts the environment tool with a request object (borrowed); `how` has user, progress, done and timeout_s. 0 or -errno. */
int furca_env_run_tool(struct furca_envs *envs, json_t *request, const struct furca_tool_request *how,
		       struct furca_tool **ret, struct furca_err *err);
/* A child's error in the words of who waits: where its time was over, what took so long ("Building the environment") and which option bounds it. */
struct furca_err furca_env_error(const struct furca_envs *envs, const char *what, const struct furca_err *err);

/* env_method.c */
void furca_env_answer_built(struct furca_env *env, const struct furca_env_waiter *waiter, const struct furca_err *err,
			    const char *lines);
