/*
 * Environments: specifications as data, their builds and their directories. An environment is keyed by the digest of its
 * normalised specification with the interpreter chosen; the same digest has the same venv_id, also after the engine was
 * started again. It is built on first use, by a child process (langs/python/envtool.py), once for all who wait.
 *
 * A build's life: scratch directory under a lock, packages, ready mark, rename. Only a directory with a ready mark of its digest
 * counts, so a build that was interrupted leaves nothing. The last one who stops waiting cancels the build, and so does its time
 * when it is over (env_timeout_s); what was built by then is cleared away, and the next use begins anew. An environment is
 * checked before each use, and built again where it is damaged.
 *
 * What it leaves to others: sessions and zygotes (engine.c holds and releases what they use), the progress bar (bridge).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/store.h"
#include "engine/tool.h"

struct furca_envs;

enum furca_env_state {
	FURCA_ENV_DECLARED, /* known, not built (or collected, or found damaged) */
	FURCA_ENV_BUILDING,
	FURCA_ENV_READY,
	FURCA_ENV_FAILED, /* the last build failed; the next use tries again */
	FURCA_ENV_STATES
};

/* "declared", … */
const char *furca_env_state_name(enum furca_env_state state);

struct furca_envs_config {
	const char *state_dir; /* environments lie in STATE_DIR/envs */
	const char *workdir;
	uint64_t max_bytes; /* least recently used ones are collected past this; 0: no bound */
	double timeout_s;   /* of each child: a build, a look at a specification or at what was built; 0: none */
};

struct furca_envs_events {
	void *user;
	/* The answer to a request of furca_envs_request: one packed value. */
	void (*answer)(void *user, furca_client_id client, uint64_t msgid, struct furca_view result);
	/* A line about a build that `client` waits for: to be sent as env_progress. */
	void (*progress)(void *user, furca_client_id client, uint64_t venv_id, const char *text);
	/* The environment's directory is about to go (removed, collected, damaged): end its idle zygote. Nothing holds it. */
	void (*retire)(void *user, uint64_t venv_id);
	/* For a suggestion: writes the arguments that name a session which uses it. False where none does, but a call. May be NULL. */
	bool (*holder)(void *user, uint64_t venv_id, char *buf, size_t size);
	/* The name of a stored function that runs in it; NULL: none does. May be NULL. */
	const char *(*function)(void *user, uint64_t venv_id);
};

/* Reads what the store knows and clears away what an interrupted build left. 0 or -errno. */
int furca_envs_new(struct furca_loop *loop, struct furca_store *store, const struct furca_envs_config *config,
		   const struct furca_tool_spawner *spawner, const struct furca_envs_events *events,
		   struct furca_envs **ret, struct furca_err *err);

/* Cancels builds, fails who waits, and calls `done` when no child is left. Freed by itself. `done` may come from within. */
void furca_envs_stop(struct furca_envs *envs, void (*done)(void *user), void *user);

/* create_env, build_env, list_envs, remove_env: answered through events.answer, at once or later. */
void furca_envs_request(struct furca_envs *envs, furca_client_id client, uint64_t msgid, enum furca_method method,
			struct furca_view args);

/* Requests of this client that wait are dropped. */
void furca_envs_client_gone(struct furca_envs *envs, furca_client_id client);

/* Whether there is such an environment (the refusal "unknown venv_id" is the caller's). */
bool furca_env_known(const struct furca_envs *envs, uint64_t venv_id);

/* The directory where it is ready, as last known; NULL otherwise. Valid until control returns to the loop. */
const char *furca_env_dir(const struct furca_envs *envs, uint64_t venv_id);

/*
 * Asks that it be usable. `ready` is called exactly once unless furca_env_unwant comes first: with its directory (borrowed),
 * checked; or with NULL and an error of type environment, `lines` then being the build tool's last ones (NULL: none), to stand
 * below the error's text. Already ready and known sound: `ready` comes from within and 0 is returned. Otherwise returns a ticket, never 0; a build may begin, and its
 * progress goes to `client` (0: nobody). From `ready` on the directory stays only while it is held: hold it in there.
 */
typedef void furca_env_ready_fn(void *user, const char *dir, const struct furca_err *err, const char *lines);
uint64_t furca_env_want(struct furca_envs *envs, uint64_t venv_id, furca_client_id client, furca_env_ready_fn *ready,
			void *user);

/* Nobody waits on that ticket any more (timed out, cancelled); `ready` is not called. The last one cancels the build. */
void furca_env_unwant(struct furca_envs *envs, uint64_t ticket);

/*
 * Holds and releases: each session, and each stateless call under way, in an environment holds it once. While held it is neither
 * removed nor collected. A zygote alone does not hold (events.retire ends it).
 */
void furca_env_hold(struct furca_envs *envs, uint64_t venv_id);
void furca_env_release(struct furca_envs *envs, uint64_t venv_id);

/* A zygote of it did not come up: the next use looks at every file before it is taken for sound. */
void furca_env_suspect(struct furca_envs *envs, uint64_t venv_id);

/* The path of the interpreter it is made from, ready or not; NULL: no such environment. Borrowed. */
const char *furca_env_interpreter(const struct furca_envs *envs, uint64_t venv_id);

/* Python code that a fresh zygote of it runs before its first clone ([tool.furca] preload); NULL: none. Borrowed. */
const char *furca_env_preload(const struct furca_envs *envs, uint64_t venv_id);

/*
 * The variables that activate an environment (VIRTUAL_ENV, PATH with its bin first, PYTHONHOME gone), put over `base` (a
 * NULL-terminated environ). A malloc'ed NULL-terminated array of malloc'ed strings, for furca_env_vars_free; NULL: no memory.
 */
char **furca_env_vars(const char *dir, char *const *base);
void furca_env_vars_free(char **vars);
