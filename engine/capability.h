/*
 * The lanes of one process image (bridge/wire/lane.h): accepts them from its capability socket, passes calls of capabilities up to the
 * bridge, calls of stored functions to function.h, and brings the answers back by lane and number. A call belongs to the execute that its
 * host runs, or ran last.
 */
#pragma once

#include "engine/stream.h"

struct furca_call;
struct furca_engine;
struct furca_host;
struct furca_lanes;

/* `socket` is the engine's end, handed over. NULL: no memory. */
struct furca_lanes *furca_lanes_new(struct furca_engine *engine, struct furca_host *host, struct furca_fd socket);

/* Closes the lanes; who waits for an answer has ended, and the bridge is told. May be repeated. Accepts NULL. */
void furca_lanes_close(struct furca_lanes *lanes);
void furca_lanes_free(struct furca_lanes *lanes);

/*
 * Calls from now on belong to this execute. `allowed`: a packed array of the capability names it may call; empty: all.
 * `call` may be NULL: none is under way, but the client and number stay, for what runs on in the background.
 */
void furca_lanes_serve(struct furca_lanes *lanes, struct furca_call *call, bool read_only, struct furca_view allowed);

/* The same until code runs, for a process that goes on where another's code was: what of it runs in the background is that client's. */
void furca_lanes_follow(struct furca_lanes *lanes, uint64_t client, uint64_t msgid, uint64_t owner);

/* Whether a packed array of names (as for furca_lanes_serve) has that name; a list that is no array allows nothing. */
bool furca_capability_allows(struct furca_view list, struct furca_view name);

/* Whether a call is open on them: code waits for an answer. */
unsigned furca_lanes_open(const struct furca_lanes *lanes);

/*
 * Whether `running` waits for the call on a lane `id`: made by it, or by a call that was made, on a lane or by the client that serves a capability of it, while
 * it waited.
 */
bool furca_capability_holds(struct furca_engine *engine, uint64_t id, const struct furca_call *running);

/* One of the capability calls open on them, for furca_ops_find in engine->capability_calls; 0: none. */
uint64_t furca_lanes_waiting(const struct furca_lanes *lanes);

/* The answer of the bridge to events.capability; stale ids are ignored. `memory`: of the value's arrays, or NULL; taken. */
void furca_capability_answered(struct furca_engine *engine, uint64_t id, struct furca_view value,
			       struct furca_view error, struct furca_fd *memory);

/* Of a function's call (furca_function_origin): the host it came from, its execute (may be NULL); NULL where it has gone. */
struct furca_host *furca_capability_origin(struct furca_engine *engine, uint64_t origin, struct furca_call **ret_call);

struct furca_call_request;
/*
 * Makes a function's call from a lane a part of the call that the lane belongs to: its client, number, deadline and the capabilities that it
 * may call (request->within[0], borrowed from the lane). False where the lane has
 * gone, or where the call would wait for itself.
 */
bool furca_capability_adopt(struct furca_engine *engine, uint64_t origin, struct furca_call_request *request);

/* Sends a frame on the lane of that origin and forgets it. `memory`: of the value's arrays, or NULL; taken. */
void furca_capability_reply(struct furca_engine *engine, uint64_t origin, enum furca_frame frame,
			    struct furca_view body, struct furca_fd *memory);
