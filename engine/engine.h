/*
 * The engine: all that the bridge sees of it (with loop.h). Requests go in as a method and its packed arguments, answers come
 * back packed through function types declared here. One thread, one ring; nothing here blocks.
 *
 * Views passed in are borrowed for the call; buffers passed out through the callbacks are borrowed too, the callee copies or sends.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/call.h"
#include "bridge/wire/messages.h"
#include "bridge/wire/value.h"

struct furca_loop;
struct furca_engine;

/* A connection as the engine knows it: a number the bridge chooses, never 0, never reused. */
typedef uint64_t furca_client_id;

struct furca_engine_config {
	const char *state_dir;	   /* absolute; made 0700 if missing */
	const char *workdir;	   /* where sessions start; absolute */
	unsigned max_sessions;	   /* 20 */
	double timeout_s, grace_s; /* defaults for execute, and between interrupt and kill */
	enum { FURCA_SNAPSHOT_AUTO, FURCA_SNAPSHOT_ALWAYS, FURCA_SNAPSHOT_OFF } snapshots;
	unsigned undo_depth; /* 8 */
	unsigned required;   /* barriers required of every read-only call, bits of enum furca_barrier */
	unsigned
		without; /* barriers that no read-only call gets, whose answers then say so: for benchmarks of what each is for */
	double zygote_idle_s; /* 600: how long the interpreter of an environment that nobody uses is kept; 0: for good */
	double max_memory_bytes; /* of all that the engine starts, together; 0: nine tenths of the machine's; negative: not bounded */
	unsigned max_processes; /* the same in processes and threads; 0: not bounded */
	double copy_disk_bytes; /* what a read-only call may write; 0: 1 GiB */
	bool shared_lanes;	/* capability calls of Python sessions by shared memory (bridge/wire/ring.h) */
	double env_max_bytes;	/* environments not used lately are removed past this; 0: never */
	double env_timeout_s; /* 1800: what building one may take, or looking at its specification; 0: as long as it takes */
};

/* What the engine tells the bridge. `user` is the pointer given to furca_engine_new. */
struct furca_engine_events {
	/*
	 * The answer to a request: `result` is one packed value, `memory` that of arrays in it (taken; NULL: none). Called once for every
	 * furca_engine_request, also from within it.
	 */
	void (*answer)(void *user, furca_client_id client, uint64_t msgid, struct furca_view result,
		       struct furca_fd *memory);
	/* A notification: method "output" or "env_progress", `params` one packed map. */
	void (*notify)(void *user, furca_client_id client, const char *method, struct furca_view params);
	/*
	 * Code calls a capability. The bridge finds who offers it, refuses a write where the call is read-only, and answers with
	 * furca_engine_capability_done(…, call->id, …) exactly once. *call is borrowed but for its descriptor, which may be taken.
	 */
	void (*capability)(void *user, struct furca_caps_request *call);
	/* The client that has been sent that capability call and is to answer it; 0: none has. NULL: not known. */
	furca_client_id (*serves)(void *user, uint64_t id);
	/* The caller of that capability call is gone (call ended, timed out): nobody waits for its answer any more. */
	void (*capability_dropped)(void *user, uint64_t id);
	/* Code has no use any more for a handle that a capability gave it. */
	void (*release)(void *user, struct furca_view handle);
	/* A session has ended, or a process that was none: nothing holds the handles any more that it was given. */
	void (*owner_gone)(void *user, uint64_t owner);
	/* What came of furca_engine_object_call: a packed value, or an error map {type, message, traceback?}; both empty: the code has ended. */
	void (*object_done)(void *user, uint64_t id, struct furca_view value, struct furca_view error);
	/* Packs the array that DESCRIBE answers with under "capabilities" to `out`. */
	void (*describe)(void *user, struct furca_buf *out);
};

/* Starts the engine on a loop: init process, state directory. 0 or -errno. */
int furca_engine_new(struct furca_loop *loop, const struct furca_engine_config *config,
		     const struct furca_engine_events *events, void *user, struct furca_engine **ret,
		     struct furca_err *err);

/* Ends every session and process it started, then calls `done`. The engine must not be used after; freed by itself. */
void furca_engine_stop(struct furca_engine *engine, void (*done)(void *user), void *user);

/*
 * A request: `args` is one packed map (already bounded and well formed). Every method of messages.def but hello and
 * register_capabilities, which are the bridge's, and attach_session, which is below. `memory`: of arrays among a function's arguments, may be
 * taken. Always answered through events.answer; with arrays only where call_function asked for them by `frames`.
 */
void furca_engine_request(struct furca_engine *engine, furca_client_id client, uint64_t msgid, enum furca_method method,
			  struct furca_view args, struct furca_fd *memory);

/*
 * The request attach_session, with the descriptor that came beside it (handed over; none: empty): the engine's end of a SOCK_STREAM socketpair
 * that the process has made which wants to become a session.
 */
void furca_engine_attach(struct furca_engine *engine, furca_client_id client, uint64_t msgid, struct furca_view args,
			 struct furca_fd channel);

/* The client has gone: its executes are cancelled, their answers dropped. */
void furca_engine_client_gone(struct furca_engine *engine, furca_client_id client);

/*
 * The answer to events.capability: a packed value, or `error` a packed map {type, message, traceback?, suggestion?} (then value is empty).
 * `memory`: of the value's arrays, or NULL; taken.
 */
void furca_engine_capability_done(struct furca_engine *engine, uint64_t id, struct furca_view value,
				  struct furca_view error, struct furca_fd *memory);

/*
 * Calls an object of code, in the code of that owner that waits for a capability: the call that call->within names, or any. 0 and the number for
 * events.object_done, which comes exactly once and later; -ENOENT: no such code waits; -EBUSY: too many are under way.
 */
int furca_engine_object_call(struct furca_engine *engine, const struct furca_object_call *call, uint64_t *ret_id);

/* Tells code that an object of its is not held any more; at the latest, its session's end does. */
void furca_engine_object_let_go(struct furca_engine *engine, uint64_t owner, struct furca_view object);

/* Packs the maps that hello answers with under "limits" and "guarantees". */
void furca_engine_limits(struct furca_engine *engine, struct furca_buf *out);
void furca_engine_guarantees(struct furca_engine *engine, struct furca_buf *out);
