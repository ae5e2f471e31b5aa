#include "bridge/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <msgpack.h>

#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

enum { RPC_REQUEST, RPC_RESPONSE, RPC_NOTIFICATION };

static const unsigned char next_state[FURCA_CONN_MAX][FURCA_CONN_EVENT_MAX] = {
	/* BROKEN, FLUSHED, GONE */
	[FURCA_CONN_OPEN] = {FURCA_CONN_ENDING, FURCA_CONN_OPEN, FURCA_CONN_CLOSED},
	[FURCA_CONN_ENDING] = {FURCA_CONN_ENDING, FURCA_CONN_CLOSED, FURCA_CONN_CLOSED},
	[FURCA_CONN_CLOSED] = {FURCA_CONN_CLOSED, FURCA_CONN_CLOSED, FURCA_CONN_CLOSED},
};

void furca_conn_step(struct furca_conn *conn, enum furca_conn_event event)
{
	conn->state = (enum furca_conn_state)next_state[conn->state][event];
	if (conn->state != FURCA_CONN_OPEN)
		furca_buf_done(&conn->in);
	if (conn->state == FURCA_CONN_CLOSED)
		furca_buf_done(&conn->out);
}

static void memories_done(struct furca_conn *conn)
{
	for (unsigned i = 0; i < conn->n_out_memories; i++)
		furca_fd_done(&conn->out_memories[i].fd);
	furca_fds_done(conn->in_memories, conn->n_in_memories);
	furca_fd_done(&conn->memory);
	conn->n_out_memories = conn->n_in_memories = 0;
}

void furca_conn_init(struct furca_conn *conn, const struct furca_conn_events *events, void *user)
{
	*conn = (struct furca_conn){
		.events = events,
		.user = user,
		.scan = {.max_depth = FURCA_MAX_DEPTH, .max_items = FURCA_MAX_ITEMS, .max_bytes = FURCA_MAX_MESSAGE},
		.in.max = FURCA_MAX_MESSAGE,
		.out.max = (size_t)FURCA_MAX_QUEUED_OUT + FURCA_MAX_ANSWER,
		.memory = FURCA_FD_NONE,
	};
	furca_scan_reset(&conn->scan);
}

void furca_conn_done(struct furca_conn *conn)
{
	furca_buf_done(&conn->in);
	furca_buf_done(&conn->out);
	furca_idmap_done(&conn->in_flight);
	memories_done(conn);
}

/* ------------------------------------------------------------------------------------------------------------------- out */

/* Ends a message begun at `mark`: on failure takes its bytes back, so that the peer never sees half a message. */
static int end_message(struct furca_conn *conn, size_t mark)
{
	int failed = conn->out.failed;

	if (failed) {
		conn->out.len = mark;
		conn->out.failed = 0;
		return failed;
	}
	conn->messages_out++;
	return 0;
}

static int queue_error(struct furca_conn *conn, const uint64_t *msgid, const char *code, const char *message)
{
	size_t mark = conn->out.len, n = strlen(message);
	msgpack_packer pk;

	furca_packer(&pk, &conn->out);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, RPC_RESPONSE);
	if (msgid)
		msgpack_pack_uint64(&pk, *msgid);
	else
		msgpack_pack_nil(&pk);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "code");
	furca_pack_text(&pk, code);
	furca_pack_text(&pk, "message");
	msgpack_pack_str_with_body(&pk, message, n);
	msgpack_pack_nil(&pk);
	conn->refused++;
	return end_message(conn, mark);
}

int furca_conn_refuse(struct furca_conn *conn, uint64_t msgid, const char *code, const char *format, ...)
{
	char text[FURCA_ERR_TEXT_MAX];
	va_list ap;

	if (!furca_idmap_remove(&conn->in_flight, msgid) || conn->state != FURCA_CONN_OPEN)
		return 0;
	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return queue_error(conn, &msgid, code, text);
}

/* What goes with the message that begins at `mark`. */
static void attach(struct furca_conn *conn, size_t mark, struct furca_fd *memory)
{
	if (memory && memory->n >= 0)
		conn->out_memories[conn->n_out_memories++] = (struct furca_conn_memory){mark, furca_fd_take(memory)};
}

static bool room_for(const struct furca_conn *conn, const struct furca_fd *memory)
{
	return !memory || memory->n < 0 || conn->n_out_memories < FURCA_MAX_MEMORIES;
}

int furca_conn_answer(struct furca_conn *conn, uint64_t msgid, struct furca_view result, struct furca_fd *memory)
{
	size_t mark = conn->out.len;
	msgpack_packer pk;

	if (furca_view_size(result) > FURCA_MAX_ANSWER)
		return furca_conn_refuse(conn, msgid, "limit", "The answer has %zu bytes, at most %u are sent",
					 furca_view_size(result), FURCA_MAX_ANSWER);
	if (!room_for(conn, memory))
		return furca_conn_refuse(conn, msgid, "limit",
					 "Arrays of %u answers wait to be read; read them, then call again",
					 FURCA_MAX_MEMORIES);
	if (!furca_idmap_remove(&conn->in_flight, msgid) || conn->state != FURCA_CONN_OPEN)
		return 0;
	furca_packer(&pk, &conn->out);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, RPC_RESPONSE);
	msgpack_pack_uint64(&pk, msgid);
	msgpack_pack_nil(&pk);
	(void)furca_buf_append(&conn->out, result.at, furca_view_size(result));
	int r = end_message(conn, mark);
	/* An answer that cannot be queued would leave its caller waiting for ever: better no connection than a silent one. */
	if (r < 0)
		furca_conn_step(conn, FURCA_CONN_GONE);
	else
		attach(conn, mark, memory);
	return r;
}

static int queue_call(struct furca_conn *conn, const uint32_t *msgid, const char *method, struct furca_view params,
		      struct furca_fd *memory)
{
	size_t mark = conn->out.len;
	msgpack_packer pk;

	if (conn->state != FURCA_CONN_OPEN)
		return -EPIPE;
	if (furca_conn_queued(conn) + furca_view_size(params) > FURCA_MAX_QUEUED_OUT)
		return -ENOBUFS;
	if (!room_for(conn, memory))
		return -EAGAIN;
	furca_packer(&pk, &conn->out);
	msgpack_pack_array(&pk, msgid ? 4 : 3);
	msgpack_pack_int(&pk, msgid ? RPC_REQUEST : RPC_NOTIFICATION);
	if (msgid)
		msgpack_pack_uint32(&pk, *msgid);
	furca_pack_text(&pk, method);
	msgpack_pack_array(&pk, 1);
	(void)furca_buf_append(&conn->out, params.at, furca_view_size(params));
	int r = end_message(conn, mark);
	if (r == 0)
		attach(conn, mark, memory);
	return r;
}

void furca_conn_sent(struct furca_conn *conn, size_t n)
{
	if (conn->n_out_memories > 0 && conn->out_memories[0].at == 0) {
		furca_fd_done(&conn->out_memories[0].fd);
		conn->n_out_memories--;
		memmove(conn->out_memories, conn->out_memories + 1, conn->n_out_memories * sizeof(*conn->out_memories));
	}
	for (unsigned i = 0; i < conn->n_out_memories; i++)
		conn->out_memories[i].at -= n;
	furca_buf_consume(&conn->out, n);
}

int furca_conn_notify(struct furca_conn *conn, const char *method, struct furca_view params)
{
	return queue_call(conn, NULL, method, params, NULL);
}

int furca_conn_request(struct furca_conn *conn, uint32_t msgid, const char *method, struct furca_view params,
		       struct furca_fd *memory)
{
	return queue_call(conn, &msgid, method, params, memory);
}

/* -------------------------------------------------------------------------------------------------------------------- in */

/* The peer's last word from us: what was wrong. */
static void broken(struct furca_conn *conn, const uint64_t *msgid, const char *code, const char *message)
{
	(void)queue_error(conn, msgid, code, message);
	furca_conn_step(conn, FURCA_CONN_BROKEN);
}

/* The map of named arguments in params: [] and nil stand for an empty one. False where it is something else. */
static bool arguments(const struct furca_value *params, struct furca_view *ret)
{
	static const uint8_t empty_map = 0x80;
	struct furca_view inside = furca_value_inside(params);
	struct furca_value args;

	*ret = (struct furca_view){&empty_map, &empty_map + 1};
	if (params->kind == FURCA_NIL || (params->kind == FURCA_ARRAY && params->count == 0))
		return true;
	if (params->kind != FURCA_ARRAY || params->count != 1 || furca_value_next(&inside, &args) < 0 ||
	    args.kind != FURCA_MAP)
		return false;
	*ret = args.raw;
	return true;
}

static void request(struct furca_conn *conn, uint64_t msgid, const struct furca_value *name,
		    const struct furca_value *params)
{
	struct furca_view args;
	enum furca_method method;
	int n = (int)FURCA_MIN(furca_view_size(name->bytes), (size_t)64);
	const char *text = (const char *)name->bytes.at;

	if (conn->in_flight.count >= FURCA_MAX_IN_FLIGHT) {
		char message[96];

		(void)snprintf(message, sizeof(message), "Over %d requests are unanswered on this connection",
			       FURCA_MAX_IN_FLIGHT);
		(void)queue_error(conn, &msgid, "limit", message);
		return;
	}
	method = furca_method_find(text, furca_view_size(name->bytes));
	int r = furca_idmap_add(&conn->in_flight, msgid, (void *)(uintptr_t)(method + 1));
	if (r == -EEXIST) {
		broken(conn, &msgid, "malformed",
		       "This msgid is in flight already; its answers could not be told apart");
		return;
	}
	if (r < 0)
		(void)queue_error(conn, &msgid, "limit", "Memory is out");
	else if (method == FURCA_METHOD_UNKNOWN && !furca_view_is_utf8(name->bytes))
		(void)furca_conn_refuse(conn, msgid, "unknown_method", "The method's name is not UTF-8");
	else if (method == FURCA_METHOD_UNKNOWN)
		(void)furca_conn_refuse(conn, msgid, "unknown_method", "No method '%.*s'; the nearest is '%s'", n, text,
					furca_method_nearest(text, furca_view_size(name->bytes)));
	else if (!arguments(params, &args))
		(void)furca_conn_refuse(conn, msgid, "params",
					"The params of '%s' must be an array of one map of named arguments",
					furca_method_name(method));
	else
		conn->events->request(conn->user, msgid, method, args);
}

void furca_conn_feed_memories(struct furca_conn *conn, struct furca_fd *fds, size_t n)
{
	for (size_t i = 0; i < n && conn->state == FURCA_CONN_OPEN; i++) {
		if (conn->n_in_memories == FURCA_MAX_MEMORIES)
			broken(conn, NULL, "limit", "More descriptors came than messages with arrays");
		else
			conn->in_memories[conn->n_in_memories++] = furca_fd_take(&fds[i]);
	}
	furca_fds_done(fds, n);
}

/* The descriptor that belongs to a message: each one with arrays has one, and one whose argument it is. */
static void take_memory(struct furca_conn *conn, struct furca_view view)
{
	if (conn->n_in_memories == 0 ||
	    (!furca_value_has_ext(view, FURCA_EXT_FRAME) && !furca_value_has_ext(view, FURCA_EXT_DESCRIPTOR)))
		return;
	furca_fd_done(&conn->memory);
	conn->memory = furca_fd_take(&conn->in_memories[0]);
	conn->n_in_memories--;
	memmove(conn->in_memories, conn->in_memories + 1, conn->n_in_memories * sizeof(*conn->in_memories));
}

/* One whole message. Its bytes are well formed and within bounds; its meaning is still the peer's. */
static void message(struct furca_conn *conn, struct furca_view view)
{
	struct furca_value m, type, id = {0}, a, b;
	bool ok = furca_value_enter(&view, &m) == 0 && m.kind == FURCA_ARRAY && m.count >= 3;
	struct furca_view inside = view;

	conn->messages_in++;
	ok = ok && furca_value_next(&inside, &type) == 0 && type.kind == FURCA_UINT && type.u <= RPC_NOTIFICATION &&
	     m.count == (type.u == RPC_NOTIFICATION ? 3 : 4);
	if (ok && type.u != RPC_NOTIFICATION)
		ok = furca_value_next(&inside, &id) == 0 && id.kind == FURCA_UINT;
	ok = ok && furca_value_next(&inside, &a) == 0 && furca_value_next(&inside, &b) == 0;
	if (ok && type.u != RPC_RESPONSE)
		ok = a.kind == FURCA_STR;
	if (!ok) {
		broken(conn, NULL, "malformed",
		       "This is no msgpack-rpc message: [0, msgid, method, params], [1, msgid, error, result] or "
		       "[2, method, params]");
		return;
	}
	if (type.u == RPC_REQUEST)
		request(conn, id.u, &a, &b);
	else if (type.u == RPC_RESPONSE)
		conn->events->response(conn->user, id.u, &a, &b);
	/* Clients have no notifications to send yet; the public spec has unknown ones ignored. */
}

/* The msgid of a request that cannot be read to its end, so that its caller learns what was wrong. */
static bool early_msgid(struct furca_view view, uint64_t *ret)
{
	struct furca_value m, type, id;

	if (furca_value_enter(&view, &m) < 0 || m.kind != FURCA_ARRAY || m.count != 4 ||
	    furca_value_enter(&view, &type) < 0 || type.kind != FURCA_UINT || type.u != RPC_REQUEST ||
	    furca_value_enter(&view, &id) < 0 || id.kind != FURCA_UINT)
		return false;
	*ret = id.u;
	return true;
}

static void unreadable(struct furca_conn *conn, struct furca_view view, int64_t why)
{
	char text[160];
	uint64_t msgid;
	bool known = early_msgid(view, &msgid);

	if (why == -E2BIG)
		(void)snprintf(text, sizeof(text),
			       "A message may have %u bytes, %u values and %d levels; this one announces more",
			       FURCA_MAX_MESSAGE, FURCA_MAX_ITEMS, FURCA_MAX_DEPTH);
	else
		(void)snprintf(text, sizeof(text), "The bytes are no msgpack");
	broken(conn, known ? &msgid : NULL, why == -E2BIG ? "limit" : "malformed", text);
}

/* Serves every whole message in `view`. Returns the bytes used. */
static size_t serve(struct furca_conn *conn, struct furca_view view)
{
	const uint8_t *start = view.at;

	while (conn->state == FURCA_CONN_OPEN && view.at < view.end) {
		int64_t n = furca_scan_step(&conn->scan, view);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			unreadable(conn, view, n);
			break;
		}
		furca_scan_reset(&conn->scan);
		take_memory(conn, (struct furca_view){view.at, view.at + n});
		message(conn, (struct furca_view){view.at, view.at + n});
		furca_fd_done(&conn->memory);
		view.at += n;
	}
	return (size_t)(view.at - start);
}

void furca_conn_feed(struct furca_conn *conn, const uint8_t *data, size_t n)
{
	if (conn->state != FURCA_CONN_OPEN)
		return;
	/* The common case: whole messages, served where they lie. */
	if (conn->in.len == 0) {
		size_t used = serve(conn, (struct furca_view){data, data + n});

		data += used;
		n -= used;
	}
	if (n == 0 || conn->state != FURCA_CONN_OPEN)
		return;
	bool rest = conn->in.len > 0;
	/* The bound is on a message; the bytes behind it in this piece come on top. */
	conn->in.max = (size_t)FURCA_MAX_MESSAGE + n;
	if (furca_buf_append(&conn->in, data, n) < 0) {
		broken(conn, NULL, "limit", "Memory is out");
		return;
	}
	if (!rest)
		return;
	/* Messages are served from a buffer that no event can move or free. */
	struct furca_buf in = furca_buf_take(&conn->in);
	size_t used = serve(conn, furca_buf_view(&in));
	if (conn->state != FURCA_CONN_OPEN) {
		furca_buf_done(&in);
		return;
	}
	furca_buf_consume(&in, used);
	/* A large message's memory is not kept for the small ones after it. */
	if (in.len == 0 && in.cap > (1U << 20))
		furca_buf_done(&in);
	conn->in = in;
}
