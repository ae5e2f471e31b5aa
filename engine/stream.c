#include "engine/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#include "base/banned.h"

#define READ_SIZE 65536
#define KEEP_SIZE (1U << 20) /* an empty buffer larger than this is given back */

#define CROWDED_US 20000 /* until descriptors are tried again */

#define GATHER_SIZE 65536 /* frames are put together up to this */

static uint64_t kernel_calls;

struct furca_stream_piece {
	struct furca_stream_piece *next;
	struct furca_buf bytes;
	size_t sent;
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds;
};

static void piece_free(struct furca_stream_piece *piece)
{
	furca_fds_done(piece->fds, piece->n_fds);
	furca_buf_done(&piece->bytes);
	free(piece);
}

static void hold(struct furca_stream *s, size_t n)
{
	if (s->group)
		s->group->held += n;
}

static void let_go(struct furca_stream *s, size_t n)
{
	if (s->group)
		s->group->held -= n;
}

static bool over_bound(const struct furca_stream *s)
{
	return s->group && s->group->held > s->group->max;
}

static void end(struct furca_stream *s, int reason)
{
	if (s->ended)
		return;
	s->ended = true;
	furca_loop_drop(s->loop, &s->read_op);
	furca_loop_drop(s->loop, &s->write_op);
	furca_loop_drop(s->loop, &s->flush_op);
	s->end(s->owner, reason);
}

/* Apart, because the compiler takes the mark for a pointer that outlives its variable: deliver clears it, or the stream is gone. */
static __attribute__((noinline)) void set_mark(struct furca_stream *s, unsigned *mark)
{
	s->open_mark = mark;
}

/*
 * Descriptors of a frame have not come: it is handed out without any, if they were cut off here, and whoever waits for it learns so. One receive
 * brings the descriptors of one frame.
 */
static int without_fds(struct furca_stream *s, struct furca_frame_view *frame)
{
	if (!s->cut)
		return -EPROTO;
	furca_log(FURCA_LOG_WARN, "engine", "no descriptor is left limit=RLIMIT_NOFILE");
	s->cut = false;
	frame->n_fds = 0;
	return 1;
}

/* Hands out the whole frames in `in`. False where the stream was closed meanwhile. */
static bool deliver(struct furca_stream *s)
{
	size_t at = 0;
	unsigned open = 1;

	set_mark(s, &open);
	while (open && !s->ended) {
		struct furca_frame_view frame;
		struct furca_fd fds[FURCA_FDS_MAX];
		int r = furca_frame_parse(s->in.data + at, s->in.len - at, s->max_bytes, &frame, &s->need, NULL);

		if (r == 1 && frame.n_fds > s->n_fds)
			r = without_fds(s, &frame);
		if (r <= 0) {
			if (r < 0)
				end(s, r);
			break;
		}
		if (frame.n_fds > 0) {
			memcpy(fds, s->fds, frame.n_fds * sizeof(*fds));
			s->n_fds -= frame.n_fds;
			memmove(s->fds, s->fds + frame.n_fds, s->n_fds * sizeof(*s->fds));
		}
		at += frame.size;
		s->need = 0;
		s->frame(s->owner, &frame, fds);
		furca_fds_done(fds, frame.n_fds);
	}
	if (!open)
		return false;
	set_mark(s, NULL);
	furca_buf_consume(&s->in, at);
	let_go(s, at);
	if (s->in.len == 0 && s->in.cap > KEEP_SIZE)
		furca_buf_done(&s->in);
	return !s->ended;
}

/* What one receive may take: the rest of a large frame at once, but of what the group may still hold only a little more, to see that it is over. */
static size_t wanted(const struct furca_stream *s)
{
	size_t want = s->need > s->in.len ? FURCA_MAX(s->need - s->in.len, READ_SIZE) : READ_SIZE;

	if (!s->group)
		return want;
	size_t room = s->group->max > s->group->held ? s->group->max - s->group->held : 0;
	return FURCA_MIN(want, room + READ_SIZE);
}

/* One recvmsg. 1 where there may be more, 2 where it took all there was, 0 where there is nothing now, or -errno; -EPIPE at the end of file. */
static int read_some(struct furca_stream *s)
{
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t want = wanted(s), n_fds = FURCA_COUNT(fds);

	if (furca_buf_reserve(&s->in, want) < 0)
		return -ENOMEM;
	kernel_calls++;
	bool cut;
	ssize_t n = furca_fd_recv_cut(s->fd.n, s->in.data + s->in.len, want, fds, &n_fds, &cut);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	if (s->n_fds + n_fds > FURCA_COUNT(s->fds)) {
		furca_fds_done(fds, n_fds);
		return -EPROTO;
	}
	s->cut |= cut;
	memcpy(s->fds + s->n_fds, fds, n_fds * sizeof(*fds));
	s->n_fds += n_fds;
	s->in.len += (size_t)n;
	hold(s, (size_t)n);
	if (over_bound(s))
		return -ENOBUFS;
	/* A receive stops short behind a message's descriptors too, with more to come. */
	return (size_t)n < want && n_fds == 0 && !cut ? 2 : 1;
}

static void readable(void *owner, unsigned revents)
{
	struct furca_stream *s = owner;

	if (s->open_mark)
		return; /* from within a frame's function: the loop above goes on */
	for (;;) {
		int r = read_some(s);

		if (r == 0)
			return;
		if (r < 0) {
			end(s, r == -EPIPE ? 0 : r);
			return;
		}
		if (!deliver(s) || (r == 2 && revents == POLLIN))
			return; /* what comes later is told anew */
	}
}

static int send_piece(struct furca_stream *s, struct furca_stream_piece *piece)
{
	while (piece->sent < piece->bytes.len) {
		int raw[FURCA_FDS_MAX];

		for (size_t i = 0; i < piece->n_fds; i++)
			raw[i] = piece->fds[i].n;
		kernel_calls++;
		ssize_t n = furca_fd_send(s->fd.n, piece->bytes.data + piece->sent, piece->bytes.len - piece->sent, raw,
					  piece->n_fds);
		if (n < 0)
			return (int)n;
		piece->sent += (size_t)n;
		s->waiting -= (size_t)n;
		let_go(s, (size_t)n);
		furca_fds_done(piece->fds, piece->n_fds);
		piece->n_fds = 0;
	}
	return 0;
}

/* Sends what the socket takes. 0 where all went, -EAGAIN, or another -errno. */
static int flush(struct furca_stream *s)
{
	while (s->first) {
		struct furca_stream_piece *piece = s->first;
		int r = send_piece(s, piece);

		if (r < 0)
			return r;
		s->first = piece->next;
		if (!s->first) {
			s->last = &s->first;
			s->newest = NULL;
		}
		piece_free(piece);
	}
	return 0;
}

static void writable(void *owner, unsigned revents);
static void on_flush(void *owner);

/* Sends what the socket takes, and sees to it that the rest goes later. 0 or -errno, which the reading side sees as well. */
static int flush_on(struct furca_stream *s)
{
	int r = flush(s);

	if (r != -EAGAIN)
		furca_loop_drop(s->loop, &s->write_op);
	if (r == -EAGAIN)
		return s->write_op ? 0 : furca_loop_poll(s->loop, s->fd.n, POLLOUT, writable, s, &s->write_op);
	/* No room of the socket's is missing: too many descriptors of this user are on their way, and nobody tells when they have come. */
	if (r == -ETOOMANYREFS)
		return furca_loop_timer(s->loop, furca_now_us() + CROWDED_US, on_flush, s, &s->flush_op);
	return r;
}

static void writable(void *owner, unsigned revents)
{
	struct furca_stream *s = owner;
	size_t waited = s->waiting;

	(void)flush_on(s);
	if (s->sent && s->waiting < waited)
		s->sent(s->owner);
	/* A peer that has gone is told by the reading side, after what it had still sent was read. */
}

static void on_flush(void *owner)
{
	struct furca_stream *s = owner;

	s->flush_op = FURCA_OP_NONE;
	if (!s->write_op)
		(void)flush_on(s);
}

void furca_stream_gather(struct furca_stream *s)
{
	s->gathers = true;
}

void furca_stream_bound(struct furca_stream *s, struct furca_stream_group *group)
{
	s->group = group;
	hold(s, s->in.len + s->waiting);
}

uint64_t furca_stream_calls(void)
{
	return kernel_calls;
}

/* Puts the bytes behind those of the last piece, where that may be. */
static bool gather(struct furca_stream *s, struct furca_buf *buf, size_t n_fds)
{
	struct furca_stream_piece *last = s->newest;

	if (!last || n_fds > 0 || last->sent > 0 || last->bytes.len + buf->len > GATHER_SIZE ||
	    furca_buf_append(&last->bytes, buf->data, buf->len) < 0)
		return false;
	s->waiting += buf->len;
	hold(s, buf->len);
	furca_buf_clear(buf);
	return true;
}

int furca_stream_open(struct furca_stream *s, struct furca_loop *loop, struct furca_fd fd, size_t max_bytes,
		      furca_stream_frame_fn *frame, furca_stream_end_fn *end_fn, void *owner)
{
	int r = furca_fd_nonblock(fd.n, 1);

	memset(s, 0, sizeof(*s));
	s->fd = fd;
	s->max_bytes = max_bytes;
	s->in.max = max_bytes + FURCA_FRAME_HEADER + 2 * (size_t)READ_SIZE;
	s->last = &s->first;
	s->frame = frame;
	s->end = end_fn;
	s->owner = owner;
	if (r == 0)
		r = furca_loop_poll(loop, fd.n, POLLIN | POLLRDHUP, readable, s, &s->read_op);
	if (r < 0) {
		furca_fd_done(&s->fd);
		return r;
	}
	s->loop = loop;
	return 0;
}

void furca_stream_tell_sent(struct furca_stream *s, furca_stream_sent_fn *sent)
{
	s->sent = sent;
}

void furca_stream_done(struct furca_stream *s)
{
	if (!s->loop)
		return;
	if (s->open_mark)
		*s->open_mark = 0;
	if (s->flush_op && !s->write_op && !s->ended)
		(void)flush(s);
	furca_loop_drop(s->loop, &s->read_op);
	furca_loop_drop(s->loop, &s->write_op);
	furca_loop_drop(s->loop, &s->flush_op);
	while (s->first) {
		struct furca_stream_piece *piece = s->first;

		s->first = piece->next;
		piece_free(piece);
	}
	furca_fds_done(s->fds, s->n_fds);
	let_go(s, s->in.len + s->waiting);
	furca_buf_done(&s->in);
	furca_fd_done(&s->fd);
	s->loop = NULL;
}

int furca_stream_send(struct furca_stream *s, struct furca_buf *buf, struct furca_fd *fds, size_t n_fds)
{
	struct furca_stream_piece *piece = NULL;
	int r = 0;

	if (!furca_stream_is_open(s))
		r = -EPIPE;
	else if (buf->failed)
		r = buf->failed;
	else if (s->waiting + buf->len > 2 * s->max_bytes || over_bound(s))
		r = -ENOBUFS;
	else if (s->gathers && s->flush_op && gather(s, buf, n_fds))
		return 0;
	else if (!(piece = calloc(1, sizeof(*piece))))
		r = -ENOMEM;
	if (!piece) {
		furca_fds_done(fds, n_fds);
		furca_buf_clear(buf);
		return r;
	}
	piece->bytes = furca_buf_take(buf);
	for (size_t i = 0; i < n_fds; i++)
		piece->fds[i] = furca_fd_take(&fds[i]);
	piece->n_fds = n_fds;
	s->waiting += piece->bytes.len;
	hold(s, piece->bytes.len);
	*s->last = piece;
	s->last = &piece->next;
	s->newest = piece;
	if (s->write_op || s->flush_op)
		return 0; /* in its turn */
	if (s->gathers && furca_loop_defer(s->loop, on_flush, s, &s->flush_op) == 0)
		return 0;
	r = flush_on(s);
	return r == -ECONNRESET ? -EPIPE : r;
}

void furca_stream_read_now(struct furca_stream *s)
{
	if (furca_stream_is_open(s))
		readable(s, 0);
}
