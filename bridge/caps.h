/*
 * The agent's capabilities: who offers which name, and each call of one, from the engine to the client that registered it and
 * back. Knows nothing of sockets; server.h joins it to connections and the engine.
 *
 * A name belongs to the client that registered it last. All names of a client go with its connection, and its open calls
 * fail at once. Every call is answered exactly once, through furca_caps_events.done, unless its caller dropped it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/call.h"
#include "bridge/wire/value.h"

struct furca_caps;

struct furca_caps_events {
	/*
	 * Sends a request "capability" to a client, with the memory of its arrays where there are any (taken on success). 0; -EAGAIN where it does not
	 * read fast enough: furca_caps_writable is called once it has; or -EOPNOTSUPP where it did not ask for arrays, -ENOBUFS, -EPIPE, -ENOMEM where
	 * it cannot go out.
	 */
	int (*send)(void *user, uint64_t client, uint32_t msgid, struct furca_view params, struct furca_fd *memory);
	/* Tells a client that code gave a handle of its back: a notification "release". */
	void (*release)(void *user, uint64_t client, struct furca_view params);
	/* Code's object is not held any more by the client it was given to. `object` is code's own text. */
	void (*let_go)(void *user, uint64_t owner, struct furca_view object);
	/* Sends a client's call of an object to the code that gave it. 0 and its number, for furca_caps_object_done; -ENOENT: no code of that owner
	 * waits, that could run it; -EBUSY. */
	int (*object_call)(void *user, const struct furca_object_call *call, uint64_t *ret_id);
	/* The answer to a client's own request: one packed map. */
	void (*answer)(void *user, uint64_t client, uint64_t msgid, struct furca_view result);
	/* The answer to the call `id`: a packed value, or an error map {type, message, traceback?, suggestion?}; the other is empty.
	 * `memory`: of the value's arrays, taken; or NULL. */
	void (*done)(void *user, uint64_t id, struct furca_view value, struct furca_view error,
		     struct furca_fd *memory);
};

struct furca_caps_stats {
	uint64_t names, open, handles, waiting; /* now; `waiting`: bytes */
	uint64_t calls, refused, stale_answers; /* since the start */
};

/* NULL where memory is out. */
struct furca_caps *furca_caps_new(const struct furca_caps_events *events, void *user);
/* Open calls are forgotten, not answered. */
void furca_caps_free(struct furca_caps *caps);

/*
 * register_capabilities: `args` is the packed map of its arguments. All or none. The number registered, or -errno with *err
 * (a refusal: which key, the nearest known one).
 */
int furca_caps_register(struct furca_caps *caps, uint64_t client, struct furca_view args, struct furca_err *err);

/*
 * A call from code. A write in a read-only one, an unknown name, a client that does not read, and arrays for one that did not ask for them are
 * refused at once: nothing reaches the client. `execute_msgid` is passed on where the offering client is the one that executes, else nil is.
 */
void furca_caps_call(struct furca_caps *caps, struct furca_caps_request *from);

/* The client has read: calls that wait for it go out, those of each execute in turn. */
void furca_caps_writable(struct furca_caps *caps, uint64_t client);

/* A client's response, and the memory of its arrays (taken; NULL: none). One to a call that is not open, or is another client's, is counted and
 * dropped. */
void furca_caps_answer(struct furca_caps *caps, uint64_t client, uint64_t msgid, const struct furca_value *error,
		       const struct furca_value *result, struct furca_fd *memory);

/* Code gave a handle back (bridge/handles.h). Unknown ones are ignored. */
void furca_caps_release(struct furca_caps *caps, struct furca_view handle);

/* Nothing holds the handles any more that were given to that owner: their clients are told. */
void furca_caps_owner_gone(struct furca_caps *caps, uint64_t owner);

/*
 * call_object and release_object: `args` is the packed map of the arguments. 0, or -errno with *err. The first is answered by events.answer, with
 * {ok, value}, or {ok, error, type, message, traceback} for what the code raised.
 */
int furca_caps_object_call(struct furca_caps *caps, uint64_t client, uint64_t msgid, struct furca_view args,
			   struct furca_err *err);
int furca_caps_object_release(struct furca_caps *caps, uint64_t client, struct furca_view args, struct furca_err *err);

/* What came of events.object_call: a packed value, or an error map; both empty: the code has ended. */
void furca_caps_object_done(struct furca_caps *caps, uint64_t id, struct furca_view value, struct furca_view error);

/* The client that has been sent that call, 0 for none. */
uint64_t furca_caps_serves(const struct furca_caps *caps, uint64_t id);

/* Nobody waits for that call any more: a late answer is dropped. */
void furca_caps_drop(struct furca_caps *caps, uint64_t id);

/* The client's names go and its open calls fail. */
void furca_caps_client_gone(struct furca_caps *caps, uint64_t client);

/* Packs the array of {name, effect, doc?, params?} of all that is registered, by name. */
void furca_caps_describe(const struct furca_caps *caps, struct furca_buf *out);

void furca_caps_stats(const struct furca_caps *caps, struct furca_caps_stats *ret);
