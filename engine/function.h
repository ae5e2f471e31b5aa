/*
 * Stored functions: source kept under a name, with its language and environment; checked when it is stored, run like any code at a
 * coordinate. A Python function's source is a module's text that defines the name; a bash function's source is its body.
 *
 * Calls come from clients (call_function) and from code in sessions (FUNCTION on a lane). Both end in events.call: the engine
 * runs HOST RUN with `function` at the coordinate given, as it runs an execute. This module knows no session: it resolves
 * names, checks arguments, and turns result maps into lane answers.
 *
 * The mode where none is given: as for execute, python without environment is stateful, everything else stateless; on a lane it is
 * stateful only in the caller's own namespace, or where a session is named. Stateful on a lane, in the caller's own language and environment, with no session named or the caller's own: answered with INLINE, the host
 * runs the source in its own namespace, be that a session's, a copy's or a stateless call's. From a read-only call nothing else
 * may be stateful, and what is stateless must run without effect (`harmless`). A stateful call whose target waits for this very call
 * (a cycle) would never start: events.call refuses it.
 *
 * The value of a Python function is what it returns; of a bash function what it prints, as $(…) gives it.
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
	struct furca_view function; /* packed map {name, source, args, kwargs}, as HOST RUN has it */
	struct furca_view frames;   /* RUN's: the versions of who reads arrays in its value; empty: it takes none */
	struct furca_fd *memory;    /* of arrays among its arguments: taken; NULL: none */
	struct furca_view received; /* what to put under `received` in a refusal: packed map */
	const char *capabilities;   /* JSON list of the capabilities it may call, or NULL: all */
	struct furca_view
		within; /* packed array of those that the code which calls it may, within its process; empty: all */
	furca_client_id client; /* from a client: whose call it is */
	uint64_t msgid;
	furca_function_origin origin; /* from a lane: which; then client and msgid are 0 */
	bool harmless;		      /* from a read-only call: nothing it does may last */
};

/* What runs on the lane of an origin. */
struct furca_function_from {
	const char *language;
	uint64_t venv_id;
	bool read_only;	  /* a read-only call, directly or because the call that called it is one */
	bool own_session; /* the arguments name the session that runs it, as its live process */
	bool has_session; /* it belongs to a session, as its process or as a copy: this one */
	uint64_t session_id;
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
	/* Who calls on that lane; `args` as in furca_function_call. False: it has gone, and waits for no answer. */
	bool (*from)(void *user, furca_function_origin origin, struct furca_view args, struct furca_function_from *ret);
	/*
	 * Sends one frame on the lane of `origin`: `frame` is FURCA_LANE_VALUE, _FAILED or _INLINE, `body` the packed map. `memory`: of the
	 * value's arrays, or NULL; taken.
	 */
	void (*reply)(void *user, furca_function_origin origin, enum furca_frame frame, struct furca_view body,
		      struct furca_fd *memory);
};

int furca_functions_new(struct furca_loop *loop, struct furca_store *store, struct furca_envs *envs,
			const struct furca_envs_config *config, const struct furca_tool_spawner *spawner,
			const struct furca_functions_events *events, struct furca_functions **ret,
			struct furca_err *err);

/* Cancels checks under way and calls `done` when no child is left. Freed by itself. `done` may come from within. */
void furca_functions_stop(struct furca_functions *functions, void (*done)(void *user), void *user);

/* The name of one that runs in that environment; NULL: none. */
const char *furca_functions_in(const struct furca_functions *functions, uint64_t venv_id);

/* add_function, list_functions, remove_function, call_function, whose arguments' arrays are in `memory` (may be taken; NULL: none). */
void furca_functions_request(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
			     enum furca_method method, struct furca_view args, struct furca_fd *memory);
void furca_functions_client_gone(struct furca_functions *functions, furca_client_id client);

/*
 * A FUNCTION frame came on a lane. `body` is its map of fields, `memory` that of arrays among the arguments, taken or left to be closed (NULL:
 * none). Ends in exactly one events.reply.
 */
void furca_functions_lane(struct furca_functions *functions, furca_function_origin origin, struct furca_view body,
			  struct furca_fd *memory);
/*
 * The call that events.call began for a lane has ended. `result` is the packed result map, `done` DONE's, or empty where no code ran; `memory`
 * that of the value's arrays, or NULL; taken.
 */
void furca_functions_finished(struct furca_functions *functions, furca_function_origin origin, struct furca_view result,
			      struct furca_view done, struct furca_fd *memory);

/* Packs the array [{name, language, doc?}] that DESCRIBE answers with under "functions". 0 or -errno. */
int furca_functions_describe(struct furca_functions *functions, struct furca_buf *out);

/* Whether a stored function needs this environment (remove_env is refused then). */
const char *furca_functions_user_of(const struct furca_functions *functions, uint64_t venv_id);
