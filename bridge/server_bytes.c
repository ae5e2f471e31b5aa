/* The bytes of a connection: in with back-pressure, out in as few sends as can be, descriptors beside them for peers that asked. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "bridge/server_private.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

static void on_unpaused(void *owner);

/* Reading stops while the client does not take what is queued for it, and goes on at half. */
static void back_pressure(struct furca_peer *peer)
{
	size_t queued = furca_conn_queued(&peer->conn);
	bool pause = peer->paused ? queued > FURCA_MAX_QUEUED_OUT / 2 : queued > FURCA_MAX_QUEUED_OUT;

	if (pause == peer->paused || !peer->recv_op)
		return;
	peer->paused = pause;
	if (!peer->frames)
		furca_loop_recv_pause(peer->server->loop, peer->recv_op, pause);
	else if (!pause && !peer->receiving)
		(void)furca_loop_defer(peer->server->loop, on_unpaused, peer, &peer->unpause_op);
}

static void on_sent(void *owner, int result, struct furca_buf *buf);
static void on_writable(void *owner, unsigned revents);
static void on_drained(void *owner);

/* Bytes of `out` up to the next that has a memory with it; the first may have one. */
static size_t next_piece(const struct furca_conn *conn)
{
	for (unsigned i = 0; i < conn->n_out_memories; i++)
		if (conn->out_memories[i].at > 0)
			return conn->out_memories[i].at;
	return conn->out.len;
}

/* Begins to send pieces with memory beside them, and what is between them. 0 or -errno. */
static int push_pieces(struct furca_peer *peer)
{
	struct furca_loop *loop = peer->server->loop;
	struct furca_conn *conn = &peer->conn;

	while (conn->n_out_memories > 0 && conn->out_memories[0].at == 0) {
		ssize_t n = furca_fd_send(peer->fd.n, conn->out.data, next_piece(conn), &conn->out_memories[0].fd.n, 1);

		if (n == -EAGAIN)
			return furca_loop_poll(loop, peer->fd.n, POLLOUT, on_writable, peer, &peer->send_op);
		if (n <= 0)
			return n < 0 ? (int)n : -EPIPE;
		furca_conn_sent(conn, (size_t)n);
	}
	if (conn->out.len == 0)
		return furca_loop_defer(loop, on_drained, peer, &peer->send_op);
	struct furca_buf piece = {.max = conn->out.max};
	size_t n = next_piece(conn);
	int r = furca_buf_append(&piece, conn->out.data, n);
	if (r == 0)
		r = furca_loop_send(loop, peer->fd.n, &piece, on_sent, peer, &peer->send_op);
	furca_buf_done(&piece);
	if (r == 0) {
		furca_conn_sent(conn, n);
		conn->sending = n;
	}
	return r;
}

/* Begins to send what is queued. 0 or -errno. */
static int push_out(struct furca_peer *peer)
{
	size_t n = peer->conn.out.len;

	if (peer->conn.n_out_memories > 0)
		return push_pieces(peer);
	int r = furca_loop_send(peer->server->loop, peer->fd.n, &peer->conn.out, on_sent, peer, &peer->send_op);
	if (r == 0)
		peer->conn.sending = n;
	return r;
}

/*
 * What the socket takes at once, which is nearly always all: a send through the ring would end the loop's next wait only to say so.
 * True where nothing is left.
 */
static bool send_now(struct furca_peer *peer)
{
	struct furca_conn *conn = &peer->conn;

	if (conn->n_out_memories > 0)
		return false;
	ssize_t n = send(peer->fd.n, conn->out.data, conn->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n <= 0)
		return false; /* the ring finds out what is wrong */
	furca_buf_consume(&conn->out, (size_t)n);
	if (conn->out.len > 0)
		return false;
	if (conn->out.cap > (1U << 20)) {
		size_t max = conn->out.max;

		furca_buf_done(&conn->out);
		conn->out.max = max;
	}
	furca_caps_writable(peer->server->caps, peer->id);
	return conn->out.len == 0;
}

/* Sends what is queued, if nothing is under way. Frees the peer where it is done: the caller must not use it after. */
static void push(struct furca_peer *peer)
{
	struct furca_conn *conn = &peer->conn;

	if (peer->receiving && conn->state == FURCA_CONN_OPEN)
		return; /* who has the answer to its hello may send descriptors */
	if (conn->state != FURCA_CONN_CLOSED && !peer->send_op && conn->out.len > 0 && !send_now(peer) &&
	    push_out(peer) < 0)
		furca_conn_step(conn, FURCA_CONN_GONE);
	if (conn->state == FURCA_CONN_ENDING && !peer->send_op && conn->out.len == 0)
		furca_conn_step(conn, FURCA_CONN_FLUSHED);
	if (conn->state == FURCA_CONN_CLOSED)
		furca_peer_free(peer);
	else
		back_pressure(peer);
}

static void on_sent(void *owner, int result, struct furca_buf *buf)
{
	struct furca_peer *peer = owner;

	peer->send_op = FURCA_OP_NONE;
	peer->conn.sending = 0;
	/* The memory serves the next messages, unless it is much or they have begun elsewhere. */
	if (peer->conn.out.len == 0 && peer->conn.out.cap == 0 && buf->cap <= (1U << 20)) {
		size_t max = peer->conn.out.max;

		furca_buf_clear(buf);
		peer->conn.out = furca_buf_take(buf);
		peer->conn.out.max = max;
	}
	if (result < 0)
		furca_conn_step(&peer->conn, FURCA_CONN_GONE);
	else
		furca_caps_writable(peer->server->caps, peer->id);
	push(peer);
}

/* What had memory beside it has gone out, without a wait. */
static void on_drained(void *owner)
{
	struct furca_peer *peer = owner;

	peer->send_op = FURCA_OP_NONE;
	furca_caps_writable(peer->server->caps, peer->id);
	push(peer);
}

static void on_writable(void *owner, unsigned revents)
{
	struct furca_peer *peer = owner;

	furca_loop_drop(peer->server->loop, &peer->send_op);
	push(peer);
}

static void on_flush(void *owner)
{
	struct furca_peer *peer = owner;

	peer->flush_op = FURCA_OP_NONE;
	push(peer);
}

void furca_peer_flush_soon(struct furca_peer *peer)
{
	if (!peer->flush_op && (!peer->send_op || peer->conn.state != FURCA_CONN_OPEN))
		(void)furca_loop_defer(peer->server->loop, on_flush, peer, &peer->flush_op);
}

/* What was fed may have made an answer, or ended the connection. */
static void received(struct furca_peer *peer)
{
	if (peer->conn.state == FURCA_CONN_OPEN)
		furca_peer_flush_soon(peer);
	else
		push(peer);
}

static void on_received(void *owner, const uint8_t *data, ssize_t n)
{
	struct furca_peer *peer = owner;

	if (n <= 0) {
		peer->recv_op = FURCA_OP_NONE;
		furca_conn_step(&peer->conn, FURCA_CONN_GONE);
	} else {
		furca_conn_feed(&peer->conn, data, (size_t)n);
	}
	received(peer);
}

/* Of a peer that asked for arrays: reads what is there, with what came beside it. */
static void on_readable(void *owner, unsigned revents)
{
	static uint8_t data[1U << 16]; /* one thread */
	struct furca_peer *peer = owner;

	while (!peer->paused && peer->conn.state == FURCA_CONN_OPEN) {
		struct furca_fd fds[FURCA_FDS_MAX];
		size_t n_fds = FURCA_COUNT(fds);
		ssize_t n = furca_fd_recv(peer->fd.n, data, sizeof(data), fds, &n_fds);

		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			furca_loop_drop(peer->server->loop, &peer->recv_op);
			furca_conn_step(&peer->conn, FURCA_CONN_GONE);
			break;
		}
		furca_conn_feed_memories(&peer->conn, fds, n_fds);
		furca_conn_feed(&peer->conn, data, (size_t)n);
		back_pressure(peer);
	}
	received(peer);
}

static void on_unpaused(void *owner)
{
	struct furca_peer *peer = owner;

	peer->unpause_op = FURCA_OP_NONE;
	on_readable(peer, 0);
}

/* The ring has handed over all that it took, so that nothing is lost or overtaken. */
static void on_receive_stopped(void *owner)
{
	struct furca_peer *peer = owner;

	peer->receiving = false;
	peer->recv_op = FURCA_OP_NONE;
	if (furca_loop_poll(peer->server->loop, peer->fd.n, POLLIN | POLLRDHUP, on_readable, peer, &peer->recv_op) < 0)
		furca_conn_step(&peer->conn, FURCA_CONN_GONE);
	push(peer);
}

int furca_peer_take_frames(struct furca_peer *peer)
{
	if (peer->frames)
		return 0;
	peer->frames = peer->receiving = true;
	int r = furca_loop_recv_stop(peer->server->loop, &peer->recv_op, on_receive_stopped);
	if (r < 0) {
		peer->receiving = false;
		furca_conn_step(&peer->conn, FURCA_CONN_GONE);
	}
	return r;
}

int furca_peer_receive(struct furca_peer *peer)
{
	return furca_loop_recv(peer->server->loop, peer->fd.n, on_received, peer, &peer->recv_op);
}
