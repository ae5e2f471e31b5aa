/* What capability.c and object.c share; nobody else includes it. */
#pragma once

#include "bridge/wire/ring.h"
#include "engine/capability.h"
#include "engine/engine.h"

struct lane {
	struct furca_lanes *lanes;
	struct lane *next, **prev;
	struct furca_stream stream;
	unsigned open;	  /* its calls that were not answered */
	unsigned serving; /* calls of objects that it was sent */
	bool takes_frames;
	struct furca_ring ring; /* shared memory, where it has any */
	furca_op_id ring_op;
	bool *turning; /* on the stack of a turn of the ring; cleared where the lane goes */
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
void furca_lane_send(struct lane *lane, enum furca_frame number, uint64_t call, struct furca_view body,
		     struct furca_fd *memory);

/* An ANSWER or RAISED has come. False: to no call that this lane was sent. */
bool furca_lane_answered(struct lane *lane, const struct furca_frame_view *frame);

/* The lane goes: calls of objects that it was sent end. */
void furca_lane_abandon(struct lane *lane);

/* A frame of the lane, however it came. May free the lane. */
void furca_lane_frame(struct lane *lane, const struct furca_frame_view *frame, struct furca_fd *fds);
void furca_lane_free(struct lane *lane);

/* engine/lane_ring.c. Takes the shared memory of a lane into use (borrowed); 0 or -errno, then the lane is as before. */
int furca_lane_ring_open(struct lane *lane, int memory);
/* Whether a finished frame went by the ring. */
bool furca_lane_ring_send(struct lane *lane, const struct furca_buf *frame);
/* Takes what is in the ring, and waits for more. False: the lane has gone. To be called before a frame of the socket is looked at. */
bool furca_lane_ring_turn(struct lane *lane);
void furca_lane_ring_done(struct lane *lane);
