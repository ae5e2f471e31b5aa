/*
 * Helper programs: a child of the surface init that gets one request on its control descriptor and answers with lines of JSON on
 * it. Used for what must not run in the engine: normalising and building environments, checking the syntax of a function.
 *
 * The channel is a socketpair; the program finds its end as descriptor 3. The request is one line of JSON. Each line that comes
 * back is one JSON object: {"progress": text}, as many as it likes, then exactly one {"result": …} or {"error": text, …}. The
 * end of the channel without such a line is a failure that says so. Cancelling shuts the channel: a tool ends then, with all it
 * started; one that has not ended after FURCA_TOOL_GRACE_US is killed.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proc.h"

struct furca_loop;
struct furca_tool;

#define FURCA_TOOL_GRACE_US 2000000

/* How the engine starts a program as a child of the surface init (INIT SPAWN). */
struct furca_tool_spawner {
	void *user;
	/*
	 * argv and env are NULL-terminated and borrowed for the call; `channel` and `errors` are handed over and become
	 * descriptors 3 and 2 of the program (descriptor 4 may be anything). Calls `spawned` exactly once, at once or later:
	 * `proc` is handed over; with `err` set it is empty.
	 */
	void (*spawn)(void *user, char *const *argv, char *const *env, const char *cwd, struct furca_fd channel,
		      struct furca_fd errors,
		      void (*spawned)(void *tool, struct furca_proc proc, const struct furca_err *err), void *tool);
};

struct furca_tool_request {
	char *const *argv; /* borrowed for the call */
	char *const *env;  /* NULL: the engine's own environment */
	const char *cwd;
	const char *request; /* one line of JSON; borrowed for the call */
	double timeout_s;    /* then it is cancelled, and its error is FURCA_E_TIMEOUT; 0: never */
	void *user;
	void (*progress)(void *user, const char *text); /* may be NULL */
	/*
	 * The end, exactly once and never from within furca_tool_start: `result` is what the tool answered with (borrowed), or
	 * NULL with `err` set; where the tool itself reported the error, `report` is its whole last line, else NULL.
	 */
	void (*done)(void *user, json_t *result, const struct furca_err *err, json_t *report);
};

/* Starts. The tool frees itself after `done`. 0 or -errno (then `done` is not called). */
int furca_tool_start(struct furca_loop *loop, const struct furca_tool_spawner *spawner,
		     const struct furca_tool_request *request, struct furca_tool **ret, struct furca_err *err);

/* Ends it early; `done` still comes, once, when the process has gone. Nothing of it runs after that. */
void furca_tool_cancel(struct furca_tool *tool);
