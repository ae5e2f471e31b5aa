/* What capability.c and object.c share; nobody else includes it. */
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"

struct lane {
	struct furca_lanes *lanes;
	struct lane *next, **prev;
	struct furca_stream stream;
	unsigned open;	  /* its calls that were not answered */
	unsigned serving; /* calls of objects that it was sent */
	bool takes_frames;
};

/* A call on a lane that has not been answered: a slot of engine->capability_calls. */
struct pending {
	struct lane *lane;
	uint64_t call; /* the caller's number */
	bool function;
};

struct furca_lanes {
	struct furca_engine *engine;
	struct furca_host *host;
	struct furca_fd socket;
	furca_op_id op;
	struct lane *first;
	struct furca_stream_group held; /* by the lanes together */
	unsigned count, open;
	bool closed, read_only;
	struct furca_call *call;
	furca_client_id client;
	uint64_t msgid, owner, own_owner; /* of handles: the session's, or of this process alone (0: none yet) */
	struct furca_buf allowed;
};

/* Sends one frame on a lane: `body` is the packed map of its fields; `memory`: of its arrays, or NULL; taken. */
void furca_lane_send(struct lane *lane, enum furca_frame number, uint64_t call, struct furca_view body, struct furca_fd *memory);

/* An ANSWER or RAISED has come. False: to no call that this lane was sent. */
bool furca_lane_answered(struct lane *lane, const struct furca_frame_view *frame);

/* The lane goes: calls of objects that it was sent end. */
void furca_lane_abandon(struct lane *lane);
