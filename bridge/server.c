#include "bridge/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <msgpack.h>

#include "base/clock.h"
#include "base/log.h"
#include "bridge/offers.h"
#include "bridge/server_private.h"
#include "bridge/wire/advice.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/memory.h"
#include "bridge/wire/pack.h"

#include "config.h"

#include "base/banned.h"

static struct furca_peer *peer_of(struct furca_server *server, furca_client_id id)
{
	return furca_idmap_get(&server->peers, id);
}

static void linger(struct furca_server *server);

void furca_peer_free(struct furca_peer *peer)
{
	struct furca_server *server = peer->server;

	furca_loop_drop(server->loop, &peer->recv_op);
	furca_loop_drop(server->loop, &peer->send_op);
	furca_loop_drop(server->loop, &peer->flush_op);
	furca_loop_drop(server->loop, &peer->unpause_op);
	(void)furca_idmap_remove(&server->peers, peer->id);
	furca_caps_client_gone(server->caps, peer->id);
	furca_engine_client_gone(server->engine, peer->id);
	furca_conn_done(&peer->conn);
	furca_fd_done(&peer->fd);
	free(peer);
	linger(server);
}

/* -------------------------------------------------------------------------------------------------------------- requests */

static void answer_buf(struct furca_peer *peer, uint64_t msgid, const struct furca_buf *buf)
{
	if (buf->failed)
		(void)furca_conn_refuse(&peer->conn, msgid, "limit", "Memory is out");
	else
		(void)furca_conn_answer(&peer->conn, msgid, furca_buf_view(buf), NULL);
}

/* The refusal form of a request that the bridge itself serves. */
static void answer_refusal(struct furca_peer *peer, uint64_t msgid, const struct furca_err *e, struct furca_view args)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 6);
	furca_pack_text(&pk, "ok");
	msgpack_pack_false(&pk);
	furca_pack_entry(&pk, "error", e->text);
	furca_pack_entry(&pk, "error_type", furca_err_type(e->code));
	furca_pack_entry(&pk, "suggestion", furca_err_suggestion(e));
	furca_pack_entry(&pk, "state", "unchanged");
	furca_pack_text(&pk, "received");
	(void)furca_buf_append(&buf, args.at, furca_view_size(args));
	answer_buf(peer, msgid, &buf);
}

static void serve_hello(struct furca_peer *peer, uint64_t msgid, struct furca_view args)
{
	static const char *const known[] = {"client", "frames"};
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_err e = FURCA_ERR_INIT;
	struct furca_value frames = {.kind = FURCA_NIL};
	msgpack_packer pk;

	int r = furca_keys_check(args, "hello", known, FURCA_COUNT(known), &e);
	if (r == 0 && furca_map_get(args, "frames", &frames) && frames.kind != FURCA_NIL && frames.kind != FURCA_BOOL)
		r = furca_refuse_value(&e, "frames", "true or false");
	if (r == 0 && frames.kind == FURCA_BOOL && frames.b && furca_peer_take_frames(peer) < 0)
		r = furca_fail(&e, FURCA_E_MEMORY, 0, "no memory to take arrays and frames on this connection");
	if (r < 0) {
		answer_refusal(peer, msgid, &e, args);
		return;
	}
	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 7);
	furca_pack_text(&pk, "ok");
	msgpack_pack_true(&pk);
	furca_pack_entry(&pk, "name", "furca");
	furca_pack_entry(&pk, "version", PACKAGE_VERSION);
	furca_pack_text(&pk, "protocol");
	msgpack_pack_int(&pk, 1);
	furca_pack_text(&pk, "pid");
	msgpack_pack_int(&pk, getpid());
	furca_pack_text(&pk, "limits");
	furca_engine_limits(peer->server->engine, &buf);
	furca_pack_text(&pk, "guarantees");
	furca_engine_guarantees(peer->server->engine, &buf);
	answer_buf(peer, msgid, &buf);
}

static void serve_register(struct furca_peer *peer, uint64_t msgid, struct furca_view args)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_err e = FURCA_ERR_INIT;
	msgpack_packer pk;
	int n = furca_caps_register(peer->server->caps, peer->id, args, &e);

	if (n < 0) {
		answer_refusal(peer, msgid, &e, args);
		return;
	}
	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "ok");
	msgpack_pack_true(&pk);
	furca_pack_text(&pk, "registered");
	msgpack_pack_int(&pk, n);
	answer_buf(peer, msgid, &buf);
}

static void serve_object(struct furca_peer *peer, uint64_t msgid, enum furca_method method, struct furca_view args)
{
	static const uint8_t done[] = {0x81, 0xa2, 'o', 'k', 0xc3};
	struct furca_caps *caps = peer->server->caps;
	struct furca_err e = FURCA_ERR_INIT;
	bool calls = method == FURCA_METHOD_call_object;
	int r = calls ? furca_caps_object_call(caps, peer->id, msgid, args, &e)
		      : furca_caps_object_release(caps, peer->id, args, &e);

	if (r < 0)
		answer_refusal(peer, msgid, &e, args);
	else if (!calls)
		(void)furca_conn_answer(&peer->conn, msgid, (struct furca_view){done, done + sizeof(done)}, NULL);
}

/* A function's arguments may hold arrays, and so may its value, where the client takes some. */
static int check_frames(struct furca_peer *peer, struct furca_view args, struct furca_err *err)
{
	struct furca_fd *memory = &peer->conn.memory;
	struct furca_value frames;

	if (memory->n >= 0 && furca_memory_check(memory->n) < 0)
		furca_fd_done(memory); /* then it is missing */
	if (furca_value_has_ext(args, FURCA_EXT_FRAME) && memory->n < 0)
		return furca_fail(err, FURCA_E_VALIDATION, 0,
				  "An array came without its memory: a sealed memfd beside the message.");
	if (!peer->frames && furca_map_get(args, "frames", &frames) && frames.kind != FURCA_NIL)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Remove frames (or say frames: true in hello first).",
					  "This connection takes no arrays, which frames asks for.");
	return 0;
}

static void serve_function(struct furca_peer *peer, uint64_t msgid, struct furca_view args)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (check_frames(peer, args, &err) < 0)
		answer_refusal(peer, msgid, &err, args);
	else
		furca_engine_request(peer->server->engine, peer->id, msgid, FURCA_METHOD_call_function, args,
				     &peer->conn.memory);
}

static void on_request(void *user, uint64_t msgid, enum furca_method method, struct furca_view args)
{
	struct furca_peer *peer = user;

	if (method == FURCA_METHOD_hello)
		serve_hello(peer, msgid, args);
	else if (method == FURCA_METHOD_register_capabilities)
		serve_register(peer, msgid, args);
	else if (method == FURCA_METHOD_call_object || method == FURCA_METHOD_release_object)
		serve_object(peer, msgid, method, args);
	else if (method == FURCA_METHOD_attach_session)
		furca_engine_attach(peer->server->engine, peer->id, msgid, args, furca_fd_take(&peer->conn.memory));
	else if (method == FURCA_METHOD_call_function)
		serve_function(peer, msgid, args);
	else
		furca_engine_request(peer->server->engine, peer->id, msgid, method, args, NULL);
}

static void on_response(void *user, uint64_t msgid, const struct furca_value *error, const struct furca_value *result)
{
	struct furca_peer *peer = user;

	if (peer->conn.memory.n >= 0 && furca_memory_check(peer->conn.memory.n) < 0)
		furca_fd_done(&peer->conn.memory); /* then it is missing */
	furca_caps_answer(peer->server->caps, peer->id, msgid, error, result, &peer->conn.memory);
}

static const struct furca_conn_events conn_events = {.request = on_request, .response = on_response};

/* ------------------------------------------------------------------------------------------------- what the engine says */

static void engine_answer(void *user, furca_client_id client, uint64_t msgid, struct furca_view result,
			  struct furca_fd *memory)
{
	struct furca_peer *peer = peer_of(user, client);

	if (peer) {
		(void)furca_conn_answer(&peer->conn, msgid, result, memory);
		furca_peer_flush_soon(peer);
	}
}

/*
 * A client that does not read loses notifications once FURCA_MAX_QUEUED_OUT bytes wait for it; the answer has the output, and
 * read_output the rest.
 */
static void engine_notify(void *user, furca_client_id client, const char *method, struct furca_view params)
{
	struct furca_peer *peer = peer_of(user, client);

	if (peer && furca_conn_notify(&peer->conn, method, params) == 0)
		furca_peer_flush_soon(peer);
}

static void engine_capability(void *user, struct furca_caps_request *call)
{
	struct furca_server *server = user;

	furca_caps_call(server->caps, call);
}

static furca_client_id engine_serves(void *user, uint64_t id)
{
	struct furca_server *server = user;

	return furca_caps_serves(server->caps, id);
}

static void engine_dropped(void *user, uint64_t id)
{
	struct furca_server *server = user;

	furca_caps_drop(server->caps, id);
}

static void engine_release(void *user, struct furca_view handle)
{
	struct furca_server *server = user;

	furca_caps_release(server->caps, handle);
}

static void engine_owner_gone(void *user, uint64_t owner)
{
	struct furca_server *server = user;

	furca_caps_owner_gone(server->caps, owner);
}

static void engine_object_done(void *user, uint64_t id, struct furca_view value, struct furca_view error)
{
	struct furca_server *server = user;

	furca_caps_object_done(server->caps, id, value, error);
}

static void engine_describe(void *user, struct furca_buf *out)
{
	struct furca_server *server = user;

	furca_caps_describe(server->caps, out);
}

const struct furca_engine_events furca_server_events = {
	.answer = engine_answer,
	.notify = engine_notify,
	.capability = engine_capability,
	.serves = engine_serves,
	.capability_dropped = engine_dropped,
	.release = engine_release,
	.owner_gone = engine_owner_gone,
	.object_done = engine_object_done,
	.describe = engine_describe,
};

static int caps_send(void *user, uint64_t client, uint32_t msgid, struct furca_view params, struct furca_fd *memory)
{
	struct furca_server *server = user;
	struct furca_peer *peer = peer_of(server, client);

	if (!peer)
		return -EPIPE;
	if (memory->n >= 0 && !peer->frames)
		return -EOPNOTSUPP;
	if (furca_conn_queued(&peer->conn) > FURCA_SEND_AHEAD)
		return -EAGAIN;
	int r = furca_conn_request(&peer->conn, msgid, "capability", params, memory);
	if (r == 0)
		furca_peer_flush_soon(peer);
	return r;
}

static void caps_done(void *user, uint64_t id, struct furca_view value, struct furca_view error,
		      struct furca_fd *memory)
{
	struct furca_server *server = user;

	furca_engine_capability_done(server->engine, id, value, error, memory);
}

static void caps_answer(void *user, uint64_t client, uint64_t msgid, struct furca_view result)
{
	engine_answer(user, client, msgid, result, NULL);
}

static void caps_release(void *user, uint64_t client, struct furca_view params)
{
	engine_notify(user, client, "release", params);
}

static void caps_let_go(void *user, uint64_t owner, struct furca_view object)
{
	struct furca_server *server = user;

	furca_engine_object_let_go(server->engine, owner, object);
}

static int caps_object_call(void *user, const struct furca_object_call *call, uint64_t *ret_id)
{
	struct furca_server *server = user;

	return furca_engine_object_call(server->engine, call, ret_id);
}

static const struct furca_caps_events caps_events = {.send = caps_send,
						     .release = caps_release,
						     .let_go = caps_let_go,
						     .object_call = caps_object_call,
						     .answer = caps_answer,
						     .done = caps_done};

/* ------------------------------------------------------------------------------------------------------------- accepting */

/* Whether the process at the other end runs as us or as root. */
static bool peer_allowed(int fd)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t n = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return false;
	if (cred.uid == geteuid() || cred.uid == 0)
		return true;
	furca_log(FURCA_LOG_WARN, "bridge", "refused reason=uid uid=%u pid=%d", cred.uid, (int)cred.pid);
	return false;
}

static int add_peer(struct furca_server *server, struct furca_fd fd)
{
	FURCA_AUTO_FD struct furca_fd mine = fd;
	struct furca_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return -ENOMEM;
	peer->server = server;
	peer->id = ++server->last_id;
	furca_conn_init(&peer->conn, &conn_events, peer);
	if (furca_idmap_add(&server->peers, peer->id, peer) < 0) {
		free(peer);
		return -ENOMEM;
	}
	peer->fd = furca_fd_take(&mine);
	furca_loop_drop(server->loop, &server->linger_op);
	int r = furca_peer_receive(peer);
	if (r < 0)
		furca_peer_free(peer);
	return r;
}

static void on_accept(void *owner, struct furca_fd fd)
{
	FURCA_AUTO_FD struct furca_fd mine = fd;
	struct furca_server *server = owner;

	if (!peer_allowed(mine.n))
		return;
	if (server->peers.count >= FURCA_MAX_CLIENTS)
		furca_log(FURCA_LOG_WARN, "bridge", "refused reason=clients limit=%d", FURCA_MAX_CLIENTS);
	else if (add_peer(server, furca_fd_take(&mine)) < 0)
		furca_log(FURCA_LOG_WARN, "bridge", "refused reason=memory");
}

int furca_server_adopt(struct furca_server *server, struct furca_engine *engine, struct furca_fd fd,
		       struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd mine = fd;

	server->engine = engine;
	int r = furca_fd_cloexec(mine.n, 1);
	if (r == 0)
		r = furca_fd_nonblock(mine.n, 1);
	if (r == 0)
		r = peer_allowed(mine.n) ? add_peer(server, furca_fd_take(&mine)) : -EPERM;
	return r < 0 ? furca_fail(err, FURCA_E_SYSTEM, -r, "cannot serve the inherited connection") : 0;
}

static void on_linger(void *owner)
{
	struct furca_server *server = owner;

	server->linger_op = FURCA_OP_NONE;
	server->idle(server->idle_user);
}

/* Starts the wait for the next client, where there is none and somebody wants to know. */
static void linger(struct furca_server *server)
{
	if (!server->idle || server->stopped || server->peers.count > 0)
		return;
	furca_loop_drop(server->loop, &server->linger_op);
	(void)furca_loop_timer(server->loop, furca_deadline_us(server->idle_us), on_linger, server, &server->linger_op);
}

int furca_server_linger(struct furca_server *server, int64_t idle_us, void (*fn)(void *user), void *user)
{
	server->idle_us = idle_us;
	server->idle = fn;
	server->idle_user = user;
	linger(server);
	return 0;
}

int furca_server_new(struct furca_loop *loop, struct furca_server **ret, struct furca_err *err)
{
	struct furca_server *server = calloc(1, sizeof(*server));

	if (server)
		server->caps = furca_caps_new(&caps_events, server);
	if (!server || !server->caps) {
		free(server);
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the server");
	}
	server->loop = loop;
	*ret = server;
	return 0;
}

int furca_server_start(struct furca_server *server, struct furca_engine *engine, const struct furca_listener *listener,
		       struct furca_err *err)
{
	server->engine = engine;
	int r = furca_loop_accept(server->loop, listener->socket.n, on_accept, server, &server->accept_op);
	return r < 0 ? furca_fail(err, FURCA_E_SYSTEM, -r, "cannot accept connections") : 0;
}

void furca_server_stop(struct furca_server *server)
{
	size_t at = 0;
	uint64_t id;
	struct furca_peer *peer;

	server->stopped = true;
	furca_loop_drop(server->loop, &server->accept_op);
	furca_loop_drop(server->loop, &server->linger_op);
	while ((peer = furca_idmap_next(&server->peers, &at, &id))) {
		furca_peer_free(peer);
		at = 0; /* the table has changed */
	}
}

void furca_server_free(struct furca_server *server)
{
	if (!server)
		return;
	furca_caps_free(server->caps);
	furca_idmap_done(&server->peers);
	free(server);
}
