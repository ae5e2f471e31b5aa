/*
 * A channel of frames (bridge/wire/frame.h) on the loop, descriptors riding along both ways: to hosts, to init processes, and
 * lanes. Never blocks; what the peer does not take waits here, up to a bound.
 */
#pragma once

#include "bridge/wire/frame.h"
#include "engine/loop.h"

struct furca_stream;

/*
 * One frame has come. `fds` are the frame->n_fds descriptors that came with it; those the callee does not take are
 * closed after. n_fds is 0 where this process had no descriptor left for them, whatever was sent. The callee may close the stream.
 */
typedef void furca_stream_frame_fn(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds);

/* The peer has gone (0: end of file) or broke the protocol (-errno). Called once; the stream is dead but still open. */
typedef void furca_stream_end_fn(void *owner, int reason);

/* The peer has made room, and some of what had to wait for that has been sent. Must not close the stream. */
typedef void furca_stream_sent_fn(void *owner);

struct furca_stream_piece; /* bytes that wait to be sent */

/* Bytes that several streams of one peer hold together, of frames that have not come whole and of answers that are not read, and what else its owner
 * counts there. */
struct furca_stream_group {
	size_t held, max;
};

struct furca_stream {
	struct furca_loop *loop;
	struct furca_fd fd;
	furca_op_id read_op, write_op, flush_op;
	struct furca_buf in;
	size_t need; /* bytes of the frame that is coming, as far as known */
	struct furca_fd fds[4 * FURCA_FDS_MAX];
	size_t n_fds;
	struct furca_stream_piece *first, *newest, **last;
	size_t waiting, max_bytes;
	bool ended, gathers;
	bool cut; /* the descriptors of a frame that is to come were lost, for want of any left here */
	struct furca_stream_group *group; /* or NULL */
	unsigned *open_mark;		  /* tells a loop on the stack that the stream was closed by the callee */
	furca_stream_frame_fn *frame;
	furca_stream_end_fn *end;
	furca_stream_sent_fn *sent; /* or NULL */
	void *owner;
};

/*
 * Opens on a socket (handed over, made nonblocking). `max_bytes` bounds one frame's payload, and twice that what waits to be
 * sent. *stream must stay where it is. 0 or -errno.
 */
int furca_stream_open(struct furca_stream *stream, struct furca_loop *loop, struct furca_fd fd, size_t max_bytes,
		      furca_stream_frame_fn *frame, furca_stream_end_fn *end, void *owner);

/*
 * From now on what is sent in one turn of the loop goes out together at its end, which saves system calls where many frames pass. What waits for that when the
 * stream is closed is sent as far as the socket takes it.
 */
void furca_stream_gather(struct furca_stream *stream);

/* From now on counts what it holds in a group, borrowed for the stream's life: over the group's bound the stream ends, with -ENOBUFS. */
void furca_stream_bound(struct furca_stream *stream, struct furca_stream_group *group);

/* From now on tells what is sent late. */
void furca_stream_tell_sent(struct furca_stream *stream, furca_stream_sent_fn *sent);

/* Times that the streams of this process have called the kernel to send or receive. */
uint64_t furca_stream_calls(void);

/* Closes. Accepts one that is zeroed or closed already. */
void furca_stream_done(struct furca_stream *stream);

static inline bool furca_stream_is_open(const struct furca_stream *stream)
{
	return stream->loop != NULL && !stream->ended;
}

/*
 * Sends finished frames with the descriptors that ride on the first (all handed over, also on failure; *buf is left empty).
 * 0, or -EPIPE where the peer has gone, or -ENOBUFS where too much waits already. Does not call back.
 */
int furca_stream_send(struct furca_stream *stream, struct furca_buf *buf, struct furca_fd *fds, size_t n_fds);

/* Reads what is there now, calling back as the loop would. */
void furca_stream_read_now(struct furca_stream *stream);
