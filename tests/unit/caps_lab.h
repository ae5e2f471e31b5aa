/* The capability registry with a client and an engine that note what they are told: for the tests of calls and of objects. */
#pragma once

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/caps.h"
#include "bridge/idmap.h"
#include "bridge/wire/limits.h"

static struct {
	unsigned sent, done, failed, released, limit;
	char handle[32]; /* the name that code got */
	char token[32];	 /* the handle in a call's arguments, or of the call itself */
	uint64_t client, id, execute_msgid;
	bool has_execute_msgid;
	uint32_t msgid;
	int send_result;
	char type[32], suggestion[512];
	char object[32]; /* of code: what a client sees of it, or what code is told of it */
	unsigned let_go, answers;
	uint64_t owner;
	bool ok;
} seen;

static inline void copy(char *to, size_t size, struct furca_view from)
{
	size_t n = furca_view_size(from) < size - 1 ? furca_view_size(from) : size - 1;

	memcpy(to, from.at, n);
	to[n] = '\0';
}

static inline int on_send(void *user, uint64_t client, uint32_t msgid, struct furca_view params,
			  struct furca_fd *memory)
{
	if (seen.send_result < 0)
		return seen.send_result;
	if (seen.limit && seen.sent >= seen.limit)
		return -EAGAIN;
	seen.sent++;
	seen.client = client;
	seen.msgid = msgid;
	ck_assert_int_eq(furca_value_check(params, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
	seen.has_execute_msgid = furca_map_uint(params, "execute_msgid", &seen.execute_msgid);
	struct furca_view token, name;
	struct furca_value args, v;

	if (furca_map_text(params, "handle", &token) && furca_map_text(params, "name", &name)) {
		copy(seen.token, sizeof(seen.token), token);
		ck_assert(furca_view_is(name, "method"));
	}
	ck_assert(furca_map_get(params, "args", &args));
	for (struct furca_view at = args.raw; at.at < at.end && furca_value_enter(&at, &v) == 0;)
		if (v.kind == FURCA_EXT && v.ext == 2)
			copy(seen.token, sizeof(seen.token), v.bytes);
	return 0;
}

static inline void on_done(void *user, uint64_t id, struct furca_view value, struct furca_view error,
			   struct furca_fd *memory)
{
	struct furca_view text;

	seen.id = id;
	if (furca_view_size(error) == 0) {
		struct furca_value v;

		seen.done++;
		ck_assert_int_eq(furca_value_check(value, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
		while (value.at < value.end && furca_value_enter(&value, &v) == 0)
			if (v.kind == FURCA_EXT && v.ext == 2)
				copy(seen.handle, sizeof(seen.handle), v.bytes);
		return;
	}
	seen.failed++;
	ck_assert_int_eq(furca_value_check(error, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
	ck_assert(furca_map_text(error, "type", &text));
	copy(seen.type, sizeof(seen.type), text);
	if (furca_map_text(error, "suggestion", &text))
		copy(seen.suggestion, sizeof(seen.suggestion), text);
}

static inline void on_release(void *user, uint64_t client, struct furca_view params)
{
	struct furca_view token;

	ck_assert(furca_map_text(params, "handle", &token));
	seen.released++;
	seen.client = client;
	copy(seen.type, sizeof(seen.type), token);
}

static inline void on_let_go(void *user, uint64_t owner, struct furca_view object)
{
	seen.let_go++;
	seen.owner = owner;
	copy(seen.object, sizeof(seen.object), object);
}

static inline int on_object_call(void *user, const struct furca_object_call *object_call, uint64_t *ret_id)
{
	struct furca_value v;

	seen.owner = object_call->owner;
	copy(seen.object, sizeof(seen.object), object_call->object);
	for (struct furca_view at = object_call->args; at.at < at.end && furca_value_enter(&at, &v) == 0;)
		if (v.kind == FURCA_EXT && v.ext == 2)
			copy(seen.token, sizeof(seen.token), v.bytes);
	*ret_id = 900;
	return seen.send_result;
}

static inline void on_answer(void *user, uint64_t client, uint64_t msgid, struct furca_view result)
{
	seen.answers++;
	seen.client = client;
	ck_assert_int_eq(furca_value_check(result, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
	ck_assert(furca_map_bool(result, "ok", &seen.ok));
}

static const struct furca_caps_events events = {.send = on_send,
						.release = on_release,
						.let_go = on_let_go,
						.object_call = on_object_call,
						.answer = on_answer,
						.done = on_done};
static struct furca_caps *caps;

static inline void setup(void)
{
	memset(&seen, 0, sizeof(seen));
	caps = furca_caps_new(&events, NULL);
	ck_assert_ptr_nonnull(caps);
}

static inline void teardown(void)
{
	furca_caps_free(caps);
}

static inline void text(msgpack_packer *pk, const char *t)
{
	msgpack_pack_str_with_body(pk, t, strlen(t));
}

/* Registers one name; `effect` may be NULL, `extra` adds an unknown key. */
static inline int offer(uint64_t client, const char *name, const char *effect, const char *extra, struct furca_err *err)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 1);
	text(&pk, "capabilities");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 1 + (effect != NULL) + (extra != NULL));
	text(&pk, "name");
	text(&pk, name);
	if (effect) {
		text(&pk, "effect");
		text(&pk, effect);
	}
	if (extra) {
		text(&pk, extra);
		msgpack_pack_nil(&pk);
	}
	int r = furca_caps_register(caps, client, furca_buf_view(&buf), err);
	furca_buf_done(&buf);
	return r;
}

static inline struct furca_view view(const char *bytes, size_t n)
{
	return (struct furca_view){(const uint8_t *)bytes, (const uint8_t *)bytes + n};
}

static inline void call_with(uint64_t id, uint64_t msgid, const char *name, bool read_only, struct furca_view args)
{
	struct furca_caps_request from = {
		.id = id,
		.client = 1,
		.execute_msgid = msgid,
		.read_only = read_only,
		.name = view(name, strlen(name)),
		.args = args,
		.kwargs = view("\x80", 1),
		.memory = FURCA_FD_NONE,
	};

	furca_caps_call(caps, &from);
}

static inline void call(uint64_t id, uint64_t client, const char *name, bool read_only)
{
	struct furca_caps_request from = {
		.id = id,
		.client = client,
		.execute_msgid = 77,
		.read_only = read_only,
		.name = view(name, strlen(name)),
		.args = view("\x90", 1),
		.kwargs = view("\x80", 1),
		.memory = FURCA_FD_NONE,
	};

	furca_caps_call(caps, &from);
}

static const struct furca_value nil = {.kind = FURCA_NIL};

static inline void answer(uint64_t client, uint64_t msgid)
{
	static const uint8_t five = 5;
	struct furca_value v = {.kind = FURCA_UINT, .u = 5, .raw = {&five, &five + 1}};

	furca_caps_answer(caps, client, msgid, &nil, &v, NULL);
}
