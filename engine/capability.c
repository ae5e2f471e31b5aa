#include "engine/lane_private.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/memory.h"
#include "engine/call.h"
#include "engine/engine_private.h"
#include "engine/function.h"
#include "engine/nested.h"
#include "engine/session.h"

#include "base/banned.h"

struct drop {
	struct furca_engine *engine;
	struct lane *lane;
};

/* Calls of stored functions that nobody waits for any more are ended; by the loop, since an end takes slots and lanes with it. */
static void end_orphans(void *owner)
{
	struct furca_engine *engine = owner;
	struct furca_call *call = engine->calls;

	engine->orphan_op = FURCA_OP_NONE;
	while (call) {
		if (!call->origin || call->orphan || furca_capability_origin(engine, call->origin, NULL)) {
			call = call->next;
			continue;
		}
		call->orphan = true;
		furca_call_stop(call, FURCA_STOP_CANCEL);
		call = engine->calls; /* it, and others with it, may have gone */
	}
}

static void drop_pending(void *data, void *slot, furca_op_id id)
{
	struct drop *drop = data;
	struct pending *p = slot;

	if (p->lane != drop->lane)
		return;
	p->lane = NULL;
	if (!p->function) {
		drop->engine->events.capability_dropped(drop->engine->user, id);
		furca_ops_remove(drop->engine->capability_calls, id);
	} else if (!drop->engine->orphan_op) {
		/* Its call is ended; the result then finds no lane. */
		(void)furca_loop_defer(drop->engine->loop, end_orphans, drop->engine, &drop->engine->orphan_op);
	}
}

void furca_lane_free(struct lane *lane)
{
	struct furca_lanes *lanes = lane->lanes;

	if (lane->open > 0) {
		struct drop drop = {lanes->engine, lane};

		furca_ops_each(lanes->engine->capability_calls, drop_pending, &drop);
		lanes->open -= lane->open;
	}
	furca_lane_abandon(lane);
	furca_lane_ring_done(lane);
	*lane->prev = lane->next;
	if (lane->next)
		lane->next->prev = lane->prev;
	lanes->count--;
	furca_stream_done(&lane->stream);
	free(lane);
}

void furca_lane_send(struct lane *lane, enum furca_frame number, uint64_t call, struct furca_view body,
		     struct furca_fd *memory)
{
	struct furca_fd fd = memory ? furca_fd_take(memory) : FURCA_FD_NONE;
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;
	size_t at = furca_frame_begin(&buf, &pk, number, call, 0);

	/* The body is a map that is packed already: put in place of the empty one that furca_frame_begin began. */
	buf.len--;
	(void)furca_buf_append(&buf, body.at, furca_view_size(body));
	if (furca_frame_end(&buf, at, fd.n >= 0) < 0) {
		furca_fd_done(&fd);
		buf.failed = -ENOMEM;
	}
	if (fd.n < 0 && !buf.failed && number != FURCA_LANE_LET_GO && furca_lane_ring_send(lane, &buf))
		return;
	int r = furca_stream_send(&lane->stream, &buf, &fd, fd.n >= 0);
	if (r == 0 && lane->ring.memory)
		(void)furca_ring_ring(&lane->ring, true);
	if (r == -ENOBUFS)
		(void)shutdown(lane->stream.fd.n, SHUT_RDWR); /* it reads nothing: the loop sees its end */
	if (r < 0)
		furca_log(FURCA_LOG_DEBUG, "engine", "lane answer not sent call=%llu", (unsigned long long)call);
}

static void fail_call(struct lane *lane, uint64_t call, const char *type, const char *message, const char *suggestion)
{
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &body);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "type");
	furca_pack_text(&pk, type);
	furca_pack_text(&pk, "message");
	furca_pack_text(&pk, message);
	furca_pack_text(&pk, "suggestion");
	furca_pack_text_or_nil(&pk, suggestion);
	furca_lane_send(lane, FURCA_LANE_FAILED, call, furca_buf_view(&body), NULL);
}

static struct pending *add_pending(struct lane *lane, uint64_t call, bool function, uint64_t *ret_id)
{
	struct pending *p = lane->lanes->open < FURCA_MAX_CAPABILITIES_OPEN
				    ? furca_ops_add(lane->lanes->engine->capability_calls, ret_id)
				    : NULL;

	if (!p) {
		fail_call(lane, call, "RuntimeError", "too many calls are under way from this session",
			  "Wait for some of them to return.");
		return NULL;
	}
	*p = (struct pending){lane, call, function};
	lane->open++;
	lane->lanes->open++;
	return p;
}

static struct pending *take_pending(struct furca_engine *engine, uint64_t id, struct pending *ret)
{
	struct pending *p = furca_ops_find(engine->capability_calls, id);

	if (!p)
		return NULL;
	*ret = *p;
	furca_ops_remove(engine->capability_calls, id);
	if (ret->lane) {
		ret->lane->open--;
		ret->lane->lanes->open--;
	}
	return ret->lane ? ret : NULL;
}

bool furca_capability_allows(struct furca_view list, struct furca_view name)
{
	struct furca_value array, item;

	/* A handle was given by a capability that might be called; whoever has its name may use it. */
	if (furca_view_size(list) == 0 || (furca_view_size(name) > 0 && *name.at == '@'))
		return true;
	if (furca_value_of(list, &array) < 0 || array.kind != FURCA_ARRAY)
		return false;
	list = furca_value_inside(&array);
	while (furca_value_next(&list, &item) == 0)
		if (item.kind == FURCA_STR && furca_view_size(item.bytes) == furca_view_size(name) &&
		    memcmp(item.bytes.at, name.at, furca_view_size(name)) == 0)
			return true;
	return false;
}

static struct furca_view allowed_of(const struct furca_lanes *lanes)
{
	return furca_buf_view(&lanes->allowed);
}

/* Why a message's memory is not passed on, or NULL. */
static const char *memory_problem(const struct furca_frame_view *frame, const struct furca_fd *fds)
{
	int r = frame->n_fds == 1 ? furca_memory_check(fds[0].n) : 0;

	if (r == -E2BIG)
		return "the arrays of one message may have 1 GiB";
	return r < 0 || frame->n_fds > 1 ? "the memory of arrays must be one sealed memfd" : NULL;
}

static void on_capability(struct lane *lane, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	static const uint8_t no_args[] = {0x90}, no_kwargs[] = {0x80};
	struct furca_lanes *lanes = lane->lanes;
	struct furca_engine *engine = lanes->engine;
	struct furca_value args = {.raw = {no_args, no_args + 1}, .kind = FURCA_ARRAY};
	struct furca_value kwargs = {.raw = {no_kwargs, no_kwargs + 1}, .kind = FURCA_MAP};
	struct furca_value within = {0};
	const char *problem = memory_problem(frame, fds);
	struct furca_view name;
	bool read = false;
	uint64_t id;

	if (problem) {
		fail_call(lane, frame->call, "ValueError", problem, NULL);
		return;
	}
	if (!furca_map_text(frame->body, "name", &name)) {
		fail_call(lane, frame->call, "TypeError", "the call names no capability", NULL);
		return;
	}
	(void)furca_map_get(frame->body, "args", &args);
	(void)furca_map_get(frame->body, "kwargs", &kwargs);
	(void)furca_map_get(frame->body, "allowed", &within);
	(void)furca_map_bool(frame->body, "read", &read);
	if (args.kind != FURCA_ARRAY || kwargs.kind != FURCA_MAP) {
		fail_call(lane, frame->call, "TypeError", "the arguments of a capability are a list and a map", NULL);
		return;
	}
	if (!furca_capability_allows(allowed_of(lanes), name) || !furca_capability_allows(within.raw, name)) {
		engine->stats.capability_refused++;
		char text[256];

		(void)snprintf(text, sizeof(text), "this function may not call the capability '%.*s'",
			       (int)FURCA_MIN(furca_view_size(name), (size_t)128), (const char *)name.at);
		fail_call(lane, frame->call, "PermissionError", text,
			  "Store the function with that name in `capabilities`.");
		return;
	}
	if (lanes->client == 0) {
		fail_call(lane, frame->call, "RuntimeError", "no client has run code in this session yet", NULL);
		return;
	}
	if (!add_pending(lane, frame->call, false, &id))
		return;
	engine->stats.capability_calls++;
	struct furca_caps_request call = {
		.id = id,
		.client = lanes->client,
		.execute_msgid = lanes->msgid,
		.owner = lanes->owner,
		.read_only = lanes->read_only,
		.takes_frames = lane->takes_frames,
		.read = read,
		.name = name,
		.args = args.raw,
		.kwargs = kwargs.raw,
		.memory = frame->n_fds == 1 ? furca_fd_take(&fds[0]) : FURCA_FD_NONE,
	};
	engine->events.capability(engine->user, &call);
	furca_fd_done(&call.memory);
}

static void on_describe(struct lane *lane, const struct furca_frame_view *frame)
{
	struct furca_engine *engine = lane->lanes->engine;
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &body);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "value");
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "capabilities");
	engine->events.describe(engine->user, &body);
	furca_pack_text(&pk, "functions");
	if (!engine->functions || furca_functions_describe(engine->functions, &body) < 0)
		msgpack_pack_array(&pk, 0);
	furca_lane_send(lane, FURCA_LANE_VALUE, frame->call, furca_buf_view(&body), NULL);
}

static void on_function(struct lane *lane, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_engine *engine = lane->lanes->engine;
	const char *problem = memory_problem(frame, fds);
	uint64_t id;

	if (problem)
		fail_call(lane, frame->call, "ValueError", problem, NULL);
	else if (!engine->functions)
		fail_call(lane, frame->call, "RuntimeError", "stored functions are not available", NULL);
	else if (add_pending(lane, frame->call, true, &id))
		furca_functions_lane(engine->functions, id, frame->body, frame->n_fds == 1 ? &fds[0] : NULL);
}

void furca_lane_frame(struct lane *lane, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_engine *engine = lane->lanes->engine;
	struct furca_view handle;

	switch (frame->number) {
	case FURCA_LANE_CAPABILITY:
		on_capability(lane, frame, fds);
		break;
	case FURCA_LANE_FUNCTION:
		on_function(lane, frame, fds);
		break;
	case FURCA_LANE_DESCRIBE:
		on_describe(lane, frame);
		break;
	case FURCA_LANE_RELEASE:
		if (furca_map_text(frame->body, "handle", &handle))
			engine->events.release(engine->user, handle);
		break;
	case FURCA_LANE_BELL:
		break; /* that it came is all that it says */
	case FURCA_LANE_ANSWER:
	case FURCA_LANE_RAISED:
		if (!furca_lane_answered(lane, frame))
			furca_lane_free(lane);
		break;
	default:
		furca_lane_free(lane); /* no message of a lane: the sender is not one of our hosts */
	}
}

/* A frame of the socket. What the ring has was written before it. */
static void on_frame(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	if (furca_lane_ring_turn(owner))
		furca_lane_frame(owner, frame, fds);
}

static void on_end(void *owner, int reason)
{
	furca_lane_free(owner);
}

/* The socket was full when the bell rang for it: whoever has looked meanwhile has found less than comes now. */
static void on_sent(void *owner)
{
	struct lane *lane = owner;

	if (lane->ring.memory)
		(void)furca_ring_ring(&lane->ring, true);
}

/* `memory`: borrowed, of a lane with shared memory; -1: none. */
static void open_lane(struct furca_lanes *lanes, char kind, struct furca_fd fd, int memory)
{
	FURCA_AUTO_FD struct furca_fd socket = fd;
	struct lane *lane;

	if (lanes->count >= FURCA_MAX_LANES)
		return; /* the caller sees its lane end */
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return;
	lane->lanes = lanes;
	lane->takes_frames = kind != FURCA_LANE_OPEN;
	if (furca_stream_open(&lane->stream, lanes->engine->loop, furca_fd_take(&socket), FURCA_MAX_CAPABILITY,
			      on_frame, on_end, lane) < 0) {
		free(lane);
		return;
	}
	if (memory < 0)
		furca_stream_gather(
			&lane->stream); /* with a ring few frames come here, and the bell must not ring before they are sent */
	furca_stream_bound(&lane->stream, &lanes->held);
	lane->prev = &lanes->first;
	lane->next = lanes->first;
	if (lane->next)
		lane->next->prev = &lane->next;
	lanes->first = lane;
	lanes->count++;
	if (memory >= 0)
		furca_stream_tell_sent(&lane->stream, on_sent);
	if (memory >= 0 && furca_lane_ring_open(lane, memory) < 0)
		furca_lane_free(lane);
}

static void on_socket(void *owner, unsigned revents)
{
	struct furca_lanes *lanes = owner;

	while (!lanes->closed) {
		struct furca_fd fds[FURCA_FDS_MAX];
		size_t n_fds = FURCA_COUNT(fds);
		char byte;
		ssize_t n = furca_fd_recv(lanes->socket.n, &byte, 1, fds, &n_fds);

		if (n == -EAGAIN)
			return;
		if (n == -EMSGSIZE)
			continue; /* a message of somebody else's making */
		if (n <= 0) {
			furca_loop_drop(lanes->engine->loop, &lanes->op);
			return;
		}
		if ((byte == FURCA_LANE_OPEN || byte == FURCA_LANE_OPEN_FRAMES) && n_fds == 1)
			open_lane(lanes, byte, furca_fd_take(&fds[0]), -1);
		else if (byte == FURCA_LANE_OPEN_SHARED && n_fds == 2 && lanes->engine->config.shared_lanes)
			open_lane(lanes, byte, furca_fd_take(&fds[0]), fds[1].n);
		furca_fds_done(fds, n_fds);
	}
}

struct furca_lanes *furca_lanes_new(struct furca_engine *engine, struct furca_host *host, struct furca_fd socket)
{
	FURCA_AUTO_FD struct furca_fd fd = socket;
	struct furca_lanes *lanes = calloc(1, sizeof(*lanes));

	if (!lanes)
		return NULL;
	lanes->engine = engine;
	lanes->host = host;
	lanes->held.max = FURCA_MAX_LANES_HELD;
	if (furca_fd_nonblock(fd.n, 1) < 0 ||
	    furca_loop_poll(engine->loop, fd.n, POLLIN | POLLRDHUP, on_socket, lanes, &lanes->op) < 0) {
		free(lanes);
		return NULL;
	}
	lanes->socket = furca_fd_take(&fd);
	return lanes;
}

void furca_lanes_close(struct furca_lanes *lanes)
{
	if (!lanes || lanes->closed)
		return;
	lanes->closed = true;
	lanes->call = NULL;
	furca_loop_drop(lanes->engine->loop, &lanes->op);
	while (lanes->first)
		furca_lane_free(lanes->first);
	furca_fd_done(&lanes->socket);
	if (lanes->own_owner)
		lanes->engine->events.owner_gone(lanes->engine->user, lanes->own_owner);
}

void furca_lanes_free(struct furca_lanes *lanes)
{
	if (!lanes)
		return;
	furca_lanes_close(lanes);
	furca_buf_done(&lanes->allowed);
	free(lanes);
}

void furca_lanes_serve(struct furca_lanes *lanes, struct furca_call *call, bool read_only, struct furca_view allowed)
{
	lanes->call = call;
	if (!call)
		return;
	lanes->client = call->client;
	lanes->msgid = call->msgid;
	lanes->read_only = read_only;
	if (call->session && call->plan.mode == FURCA_STATEFUL)
		lanes->owner = call->session->owner;
	else if (!lanes->own_owner)
		lanes->owner = lanes->own_owner = furca_engine_next(lanes->engine);
	furca_buf_clear(&lanes->allowed);
	(void)furca_buf_append(&lanes->allowed, allowed.at, furca_view_size(allowed));
}

void furca_lanes_follow(struct furca_lanes *lanes, uint64_t client, uint64_t msgid, uint64_t owner)
{
	lanes->client = client;
	lanes->msgid = msgid;
	lanes->owner = owner;
}

struct waiting {
	const struct furca_lanes *lanes;
	uint64_t id;
};

static void find_waiting(void *data, void *slot, furca_op_id id)
{
	struct waiting *w = data;
	const struct pending *p = slot;

	if (p->lane && p->lane->lanes == w->lanes && !p->function)
		w->id = id;
}

uint64_t furca_lanes_waiting(const struct furca_lanes *lanes)
{
	struct waiting w = {lanes, 0};

	if (lanes->open > 0)
		furca_ops_each(lanes->engine->capability_calls, find_waiting, &w);
	return w.id;
}

unsigned furca_lanes_open(const struct furca_lanes *lanes)
{
	return lanes->open;
}

void furca_capability_answered(struct furca_engine *engine, uint64_t id, struct furca_view value,
			       struct furca_view error, struct furca_fd *memory)
{
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;
	struct pending p;
	msgpack_packer pk;

	if (!take_pending(engine, id, &p))
		return;
	if (error.at) {
		furca_lane_send(p.lane, FURCA_LANE_FAILED, p.call, error, NULL);
		return;
	}
	furca_packer(&pk, &body);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "value");
	furca_pack_raw(&pk, value);
	if (body.len > FURCA_MAX_CAPABILITY)
		fail_call(p.lane, p.call, "OverflowError", "the capability's answer is larger than 64 MiB",
			  "Ask for less at once.");
	else
		furca_lane_send(p.lane, FURCA_LANE_VALUE, p.call, furca_buf_view(&body), memory);
}

struct furca_host *furca_capability_origin(struct furca_engine *engine, uint64_t origin, struct furca_call **ret_call)
{
	struct pending *p = furca_ops_find(engine->capability_calls, origin);

	if (!p || !p->lane)
		return NULL;
	if (ret_call)
		*ret_call = p->lane->lanes->call;
	return p->lane->lanes->host;
}

bool furca_capability_holds(struct furca_engine *engine, uint64_t id, const struct furca_call *running)
{
	while (id) {
		const struct pending *p = furca_ops_find(engine->capability_calls, id);
		const struct furca_call *caller = p && p->lane ? p->lane->lanes->call : NULL;

		if (!caller || caller == running)
			return caller != NULL;
		id = caller->origin ? caller->origin : caller->plan.within;
	}
	return false;
}

/* Whether the session that the request means runs a call which waits, over lanes, for this one. */
static bool would_wait_for_itself(struct furca_engine *engine, uint64_t origin,
				  const struct furca_call_request *request)
{
	struct furca_coordinates at;
	struct furca_plan plan;
	uint64_t id = 0;

	furca_engine_coordinates(engine, &at);
	if (furca_coordinate_plan(&at, request->args, true, &plan, NULL) < 0 || plan.mode == FURCA_STATELESS)
		return false;
	struct furca_entry *entry = furca_coordinate_session(&at, &plan, &id);
	const struct furca_session *s = entry ? furca_session_of(entry) : NULL;
	const struct furca_call *running = s && furca_nested_waits(s, plan.mode) ? s->running : NULL;
	return running && furca_capability_holds(engine, origin, running);
}

bool furca_capability_adopt(struct furca_engine *engine, uint64_t origin, struct furca_call_request *request)
{
	const struct pending *p = furca_ops_find(engine->capability_calls, origin);

	if (!p || !p->lane)
		return false;
	request->client = p->lane->lanes->client;
	request->msgid = p->lane->lanes->msgid;
	request->within[0] = allowed_of(p->lane->lanes);
	if (p->lane->lanes->call)
		request->deadline_us = p->lane->lanes->call->deadline_us;
	return !would_wait_for_itself(engine, origin, request);
}

void furca_capability_reply(struct furca_engine *engine, uint64_t origin, enum furca_frame frame,
			    struct furca_view body, struct furca_fd *memory)
{
	struct pending p;

	if (take_pending(engine, origin, &p))
		furca_lane_send(p.lane, frame, p.call, body, memory);
}
