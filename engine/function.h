/*
 * Stored functions: source kept under a name, with its language and environment; checked when it is stored, run like any code at a
 * coordinate. A Python function's source is a module's text that defines the name; a bash function's source is its body.
 *
 * Calls come from clients (call_function) and from code in sessions (FUNCTION on a lane). Both end in events.call: the engine
 * runs HOST RUN with `function` at the coordinate given, as it runs an execute. This module knows no session: it resolves
 * names, checks arguments, and turns result maps into lane answers.
 *
 * The mode where none is given: of the caller's kind for execute (python without environment is stateful, else stateless).
 * A stateful call from a lane whose target is the caller's own session is answered with INLINE: the host runs the source itself,
 * in its own namespace. A stateful call whose target is busy with a call that waits for this one (a cycle) would never
 * start: events.call refuses it, naming the chain.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/env.h"
#include "engine/store.h"
#include "engine/tool.h"

struct furca_functions;

/* A lane's call as the engine knows it; chosen by the engine, never 0. */
typedef uint64_t furca_function_origin;

/* One call of a stored function, to be run. Views are borrowed for the call of events.call. */
struct furca_function_call {
	/*
	 * A packed map with execute's arguments: always language; state_mode, session_id, session_name, venv_id, timeout_s and
	 * others where given. No code. Already known to have the right keys; types and ranges are events.call's to check, by
	 * the rules and the words of execute.
	 */
	struct furca_view args;
	struct furca_view function;	/* packed map {name, source, args, kwargs}, as HOST RUN has it */
	struct furca_view received;	/* what to put under `received` in a refusal: packed map */
	const char *capabilities;	/* JSON list of the capabilities it may call, or NULL: all */
	furca_client_id client;		/* from a client: whose call it is */
	uint64_t msgid;
	furca_function_origin origin;	/* from a lane: which; then client and msgid are 0 */
};

struct furca_functions_events {
	void *user;
	/* The answer to a client's request. */
	void (*answer)(void *user, furca_client_id client, uint64_t msgid, struct furca_view result);
	/*
	 * Runs it. From a client: answered with the result map as execute is. From a lane: the engine calls
	 * furca_functions_finished(…, origin, result map) when it has ended, also when it was refused; its deadline is at most
	 * that of the call the lane belongs to, its capabilities go to that call's client.
	 */
	void (*call)(void *user, const struct furca_function_call *call);
	/*
	 * Of a lane's call: whether (language, venv_id, session) names the session that the lane belongs to, as its live
	 * process. `args` as in furca_function_call.
	 */
	bool (*is_own_session)(void *user, furca_function_origin origin, struct furca_view args);
	/* Sends one frame on the lane of `origin`: `frame` is FURCA_LANE_VALUE, _FAILED or _INLINE, `body` the packed map. */
	void (*reply)(void *user, furca_function_origin origin, enum furca_frame frame, struct furca_view body);
};

int furca_functions_new(struct furca_loop *loop, struct furca_store *store, struct furca_envs *envs,
			const struct furca_envs_config *config, const struct furca_tool_spawner *spawner,
			const struct furca_functions_events *events, struct furca_functions **ret, struct furca_err *err);

/* Cancels checks under way and calls `done` when no child is left. Freed by itself. `done` may come from within. */
void furca_functions_stop(struct furca_functions *functions, void (*done)(void *user), void *user);

/* add_function, list_functions, remove_function, call_function. */
void furca_functions_request(struct furca_functions *functions, furca_client_id client, uint64_t msgid, enum furca_method method,
			     struct furca_view args);
void furca_functions_client_gone(struct furca_functions *functions, furca_client_id client);

/* A FUNCTION frame came on a lane. `body` is its map of fields. Ends in exactly one events.reply. */
void furca_functions_lane(struct furca_functions *functions, furca_function_origin origin, struct furca_view body);
/* The call that events.call began for a lane has ended. `result` is the packed result map. */
void furca_functions_finished(struct furca_functions *functions, furca_function_origin origin, struct furca_view result);

/* Packs the array [{name, language, doc?}] that DESCRIBE answers with under "functions". 0 or -errno. */
int furca_functions_describe(struct furca_functions *functions, struct furca_buf *out);

/* Whether a stored function needs this environment (remove_env is refused then). */
const char *furca_functions_user_of(const struct furca_functions *functions, uint64_t venv_id);
