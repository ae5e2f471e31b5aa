/*
 * What a client sends: the first byte chooses how the rest is cut into pieces. Requests are answered with their own arguments, so that
 * the way out is walked too; what goes out must always be whole messages, and memory held must stay below what came in.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "bridge/caps.h"
#include "bridge/conn.h"
#include "bridge/wire/limits.h"

struct world {
	struct furca_conn conn;
	struct furca_caps *caps;
	uint64_t calls;
};

static int on_send(void *user, uint64_t client, uint32_t msgid, struct furca_view params, struct furca_fd *memory)
{
	struct world *w = user;

	return furca_conn_request(&w->conn, msgid, "capability", params, memory);
}

static void on_done(void *user, uint64_t id, struct furca_view value, struct furca_view error, struct furca_fd *memory)
{
	struct furca_view answer = furca_view_size(error) ? error : value;

	assert(furca_value_check(answer, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS) == 0);
}

static void on_request(void *user, uint64_t msgid, enum furca_method method, struct furca_view args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct world *w = user;
	struct furca_value name;

	if (method == FURCA_METHOD_register_capabilities)
		(void)furca_caps_register(w->caps, 1, args, &err);
	if (method == FURCA_METHOD_execute && furca_map_get(args, "code", &name) && name.kind == FURCA_STR) {
		w->calls++;
		struct furca_caps_request from = {
			.id = w->calls,
			.client = 1,
			.execute_msgid = msgid,
			.read_only = w->calls & 1,
			.takes_frames = w->calls & 2,
			.name = name.bytes,
			.args = args,
			.kwargs = args,
			.memory = FURCA_FD_NONE,
		};
		furca_caps_call(w->caps, &from);
	}
	if (method == FURCA_METHOD_cancel && furca_map_get(args, "handle", &name) && name.kind == FURCA_STR)
		furca_caps_release(w->caps, name.bytes);
	(void)furca_conn_answer(&w->conn, msgid, args, NULL);
}

static void on_response(void *user, uint64_t msgid, const struct furca_value *error, const struct furca_value *result)
{
	struct world *w = user;

	furca_caps_answer(w->caps, 1, msgid, error, result, NULL);
}

static const struct furca_conn_events conn_events = {on_request, on_response};
static void on_release(void *user, uint64_t client, struct furca_view params)
{
	assert(furca_value_check(params, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS) == 0);
}

static const struct furca_caps_events caps_events = {.send = on_send, .release = on_release, .done = on_done};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.calls = 0};
	size_t piece = size ? (size_t)data[0] + 1 : 1;
	struct furca_value v;

	w.caps = furca_caps_new(&caps_events, &w);
	if (!w.caps)
		return 0;
	furca_conn_init(&w.conn, &conn_events, &w);
	for (size_t at = 1; at < size; at += piece) {
		size_t n = size - at < piece ? size - at : piece;

		furca_conn_feed(&w.conn, data + at, n);
		assert(w.conn.in.len <= size);
	}
	struct furca_view out = furca_buf_view(&w.conn.out);
	while (out.at < out.end) {
		assert(furca_value_size(out, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS) > 0);
		if (furca_value_next(&out, &v) < 0)
			abort();
	}
	furca_caps_client_gone(w.caps, 1);
	furca_caps_free(w.caps);
	furca_conn_done(&w.conn);
	return 0;
}
