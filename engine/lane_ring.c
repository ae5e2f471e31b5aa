/* The shared memory of a lane (bridge/wire/ring.h), beside its socket. */
#include <errno.h>

#include "bridge/wire/limits.h"
#include "engine/engine_private.h"
#include "engine/lane_private.h"

#include "base/banned.h"

#define ROUNDS 4 /* of one turn, so that a lane that never rests leaves time for others */

/* Hands out the frames that were copied out of the ring. False: the lane has gone, or is to go. */
static bool deliver(struct lane *lane, const uint8_t *data, size_t n)
{
	bool there = true;
	size_t at = 0;

	lane->turning = &there;
	while (there && at < n) {
		struct furca_frame_view frame;
		size_t need;

		/* Frames come whole and without descriptors. */
		if (furca_frame_parse(data + at, n - at, FURCA_RING_BYTES, &frame, &need, NULL) != 1 ||
		    frame.n_fds > 0 || frame.number == FURCA_LANE_BELL)
			break;
		at += frame.size;
		furca_lane_frame(lane, &frame, NULL);
	}
	if (there)
		lane->turning = NULL;
	if (there && at < n)
		furca_lane_free(lane);
	return there && at == n;
}

static void on_bell(void *owner)
{
	struct lane *lane = owner;

	lane->ring_op = FURCA_OP_NONE;
	(void)furca_lane_ring_turn(lane);
}

static void wait_for_bell(struct lane *lane, bool asleep)
{
	struct furca_loop *loop = lane->lanes->engine->loop;

	/* A bell that has changed already ends the wait at once; where the kernel cannot wait for it, the socket brings a BELL. */
	if (lane->ring_op)
		return;
	if (furca_loop_has_futex(loop))
		(void)furca_loop_futex(loop, (const uint32_t *)&lane->ring.in->bell, lane->ring.seen, on_bell, lane,
				       &lane->ring_op);
	else if (!asleep)
		(void)furca_loop_defer(loop, on_bell, lane, &lane->ring_op);
}

bool furca_lane_ring_turn(struct lane *lane)
{
	static uint8_t bytes[FURCA_RING_BYTES];
	bool by_socket, asleep = false;

	if (!lane->ring.memory || lane->turning)
		return true;
	enum furca_ring_sleep how =
		furca_loop_has_futex(lane->lanes->engine->loop) ? FURCA_RING_FUTEX : FURCA_RING_SOCKET;
	for (unsigned i = 0; i < ROUNDS && !asleep; i++) {
		(void)furca_ring_heard(&lane->ring, &by_socket);
		ssize_t n = furca_ring_read(&lane->ring, bytes);

		if (n < 0) {
			furca_lane_free(lane);
			return false;
		}
		if (!deliver(lane, bytes, (size_t)n))
			return false;
		asleep = furca_ring_sleep(&lane->ring, how);
	}
	wait_for_bell(lane, asleep);
	return true;
}

int furca_lane_ring_open(struct lane *lane, int memory)
{
	struct furca_stream_group *group = &lane->lanes->held;
	int r = group->held + FURCA_RING_MEMORY > group->max ? -ENOBUFS : furca_ring_open(&lane->ring, memory);

	if (r < 0)
		return r;
	group->held += FURCA_RING_MEMORY;
	/* Not at once: what is in it already may end the lane, which its caller has only begun. */
	return furca_loop_defer(lane->lanes->engine->loop, on_bell, lane, &lane->ring_op);
}

bool furca_lane_ring_send(struct lane *lane, const struct furca_buf *frame)
{
	/* What waits for the socket goes first; an index that is impossible is left to the next turn. */
	if (!lane->ring.memory || lane->stream.waiting > 0 ||
	    furca_ring_write(&lane->ring, frame->data, frame->len) != 1)
		return false;
	(void)furca_ring_ring(&lane->ring, false);
	return true;
}

void furca_lane_ring_done(struct lane *lane)
{
	if (!lane->ring.memory)
		return;
	if (lane->turning)
		*lane->turning = false;
	furca_loop_drop(lane->lanes->engine->loop, &lane->ring_op);
	(void)furca_ring_ring(&lane->ring, true); /* the end shows on the socket */
	furca_ring_done(&lane->ring);
	lane->lanes->held.held -= FURCA_RING_MEMORY;
}
