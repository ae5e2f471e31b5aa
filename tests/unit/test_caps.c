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

#include "tests/unit/harness.h"

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

static void copy(char *to, size_t size, struct furca_view from)
{
	size_t n = furca_view_size(from) < size - 1 ? furca_view_size(from) : size - 1;

	memcpy(to, from.at, n);
	to[n] = '\0';
}

static int on_send(void *user, uint64_t client, uint32_t msgid, struct furca_view params, struct furca_fd *memory)
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

static void on_done(void *user, uint64_t id, struct furca_view value, struct furca_view error, struct furca_fd *memory)
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

static void on_release(void *user, uint64_t client, struct furca_view params)
{
	struct furca_view token;

	ck_assert(furca_map_text(params, "handle", &token));
	seen.released++;
	seen.client = client;
	copy(seen.type, sizeof(seen.type), token);
}

static void on_let_go(void *user, uint64_t owner, struct furca_view object)
{
	seen.let_go++;
	seen.owner = owner;
	copy(seen.object, sizeof(seen.object), object);
}

static int on_object_call(void *user, const struct furca_object_call *object_call, uint64_t *ret_id)
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

static void on_answer(void *user, uint64_t client, uint64_t msgid, struct furca_view result)
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

static void setup(void)
{
	memset(&seen, 0, sizeof(seen));
	caps = furca_caps_new(&events, NULL);
	ck_assert_ptr_nonnull(caps);
}

static void teardown(void)
{
	furca_caps_free(caps);
}

static void text(msgpack_packer *pk, const char *t)
{
	msgpack_pack_str_with_body(pk, t, strlen(t));
}

/* Registers one name; `effect` may be NULL, `extra` adds an unknown key. */
static int offer(uint64_t client, const char *name, const char *effect, const char *extra, struct furca_err *err)
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

static struct furca_view view(const char *bytes, size_t n)
{
	return (struct furca_view){(const uint8_t *)bytes, (const uint8_t *)bytes + n};
}

static void call_with(uint64_t id, uint64_t msgid, const char *name, bool read_only, struct furca_view args)
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

static void call(uint64_t id, uint64_t client, const char *name, bool read_only)
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

static void answer(uint64_t client, uint64_t msgid)
{
	static const uint8_t five = 5;
	struct furca_value v = {.kind = FURCA_UINT, .u = 5, .raw = {&five, &five + 1}};

	furca_caps_answer(caps, client, msgid, &nil, &v, NULL);
}

START_TEST(a_call_goes_to_who_offers_it_and_back)
{
	ck_assert_int_eq(offer(1, "contacts.lookup", "read", NULL, NULL), 1);
	call(100, 1, "contacts.lookup", true);
	ck_assert_uint_eq(seen.sent, 1);
	ck_assert_uint_eq(seen.client, 1);
	ck_assert(seen.has_execute_msgid && seen.execute_msgid == 77);
	answer(2, seen.msgid); /* another client cannot answer */
	answer(1, seen.msgid + 1);
	ck_assert_uint_eq(seen.done, 0);
	answer(1, seen.msgid);
	answer(1, seen.msgid); /* nor twice */
	ck_assert_uint_eq(seen.done, 1);
	ck_assert_uint_eq(seen.id, 100);
	call(101, 9, "contacts.lookup", false); /* code of another client's execute */
	ck_assert_uint_eq(seen.client, 1);
	ck_assert(!seen.has_execute_msgid);
}
END_TEST

START_TEST(the_last_registration_wins_and_goes_with_its_client)
{
	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	ck_assert_int_eq(offer(2, "a", "write", NULL, NULL), 1);
	ck_assert_int_eq(offer(2, "b.c", "read", NULL, NULL), 1);
	call(1, 1, "a", false);
	ck_assert_uint_eq(seen.client, 2);
	furca_caps_client_gone(caps, 1); /* owns nothing */
	ck_assert_uint_eq(seen.failed, 0);
	call(2, 2, "b.c", false);
	furca_caps_client_gone(caps, 2);
	ck_assert_uint_eq(seen.failed, 2); /* both open calls, at once */
	ck_assert_str_eq(seen.type, "ConnectionError");
	ck_assert(seen.suggestion[0]);
	call(3, 1, "a", false);
	ck_assert_str_eq(seen.type, "AttributeError");
}
END_TEST

START_TEST(a_write_is_refused_in_a_read_only_call)
{
	ck_assert_int_eq(offer(1, "counter", "write", NULL, NULL), 1);
	ck_assert_int_eq(offer(1, "untold", NULL, NULL, NULL), 1);
	call(1, 1, "counter", true);
	call(2, 1, "untold", true);
	ck_assert_uint_eq(seen.sent, 0);
	ck_assert_uint_eq(seen.failed, 2);
	ck_assert_str_eq(seen.type, "PermissionError");
	call(3, 1, "counter", false);
	ck_assert_uint_eq(seen.sent, 1);
}
END_TEST

START_TEST(an_unknown_name_is_told_the_nearest)
{
	ck_assert_int_eq(offer(1, "contacts.lookup", "read", NULL, NULL), 1);
	ck_assert_int_eq(offer(1, "mail.send", "write", NULL, NULL), 1);
	call(1, 1, "contacts.lokup", false);
	ck_assert_str_eq(seen.type, "AttributeError");
	ck_assert_ptr_nonnull(strstr(seen.suggestion, "'contacts.lookup'"));
	call(2, 1, "\xff\xfe", false);
	ck_assert_uint_eq(seen.failed, 2);
}
END_TEST

START_TEST(what_cannot_be_sent_fails_at_once)
{
	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	seen.send_result = -ENOBUFS;
	call(1, 1, "a", false);
	ck_assert_str_eq(seen.type, "BlockingIOError");
	seen.send_result = 0;
	call(1, 1, "a", false); /* the number is free again */
	ck_assert_uint_eq(seen.sent, 1);
}
END_TEST

START_TEST(a_dropped_call_hears_no_late_answer)
{
	struct furca_caps_stats stats;

	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	call(1, 1, "a", false);
	furca_caps_drop(caps, 1);
	furca_caps_drop(caps, 1);
	answer(1, seen.msgid);
	ck_assert_uint_eq(seen.done + seen.failed, 0);
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.open, 0);
	ck_assert_uint_eq(stats.stale_answers, 1);
}
END_TEST

static const char *const bad_names[] = {"", ".", "a.", ".a", "a..b", "a b", "a\n", "a\xff"};

START_TEST(a_bad_name_registers_nothing)
{
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_int_lt(offer(1, bad_names[_i], "read", NULL, &err), 0);
	ck_assert_int_eq(err.code, FURCA_E_VALIDATION);
}
END_TEST

START_TEST(an_unknown_key_is_named_with_the_nearest)
{
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_int_lt(offer(1, "a", NULL, "efect", &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "'efect'"));
	ck_assert_ptr_nonnull(strstr(err.suggestion, "'effect'"));
	err = FURCA_ERR_INIT;
	ck_assert_int_lt(offer(1, "a", "maybe", NULL, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "'read' or 'write'"));
}
END_TEST

START_TEST(thousands_are_open_at_once_and_answered_in_any_order)
{
	enum { N = 20000 };
	uint32_t *msgids = calloc(N, sizeof(*msgids));
	unsigned seed = 7;

	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	for (unsigned i = 0; i < N; i++) {
		call(i + 1, 1, "a", false);
		msgids[i] = seen.msgid;
	}
	for (unsigned i = N - 1; i > 0; i--) {
		unsigned j = (unsigned)rand_r(&seed) % (i + 1);
		uint32_t t = msgids[i];

		msgids[i] = msgids[j];
		msgids[j] = t;
	}
	for (unsigned i = 0; i < N; i++)
		answer(1, msgids[i]);
	ck_assert_uint_eq(seen.done, N);
	free(msgids);
}
END_TEST

START_TEST(calls_that_wait_are_sent_in_turn)
{
	struct furca_caps_stats stats;
	unsigned from[3] = {0};

	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	seen.send_result = -EAGAIN;
	for (unsigned i = 0; i < 90; i++) /* the first execute floods, the others come late */
		call_with(1 + i, i < 80 ? 70 : i < 85 ? 71 : 72, "a", false, view("\x90", 1));
	ck_assert_uint_eq(seen.sent, 0);
	furca_caps_drop(caps, 1); /* whoever asked has gone: never sent */
	furca_caps_drop(caps, 40);
	furca_caps_writable(caps, 1);
	ck_assert_uint_eq(seen.sent, 0);
	seen.limit = 15;
	seen.send_result = 0;
	for (unsigned i = 0; i < 15; i++) {
		seen.limit = i + 1;
		furca_caps_writable(caps, 1);
		from[seen.execute_msgid - 70]++;
	}
	ck_assert_uint_eq(from[0], 5);
	ck_assert_uint_eq(from[1], 5);
	ck_assert_uint_eq(from[2], 5);
	seen.limit = 0;
	furca_caps_writable(caps, 1);
	ck_assert_uint_eq(seen.sent, 88);
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.waiting, 0);
	ck_assert_uint_eq(stats.open, 88);

	seen.send_result = -EAGAIN;
	call(500, 1, "a", false);
	furca_caps_client_gone(caps, 1);
	ck_assert_uint_eq(seen.failed, 89);
}
END_TEST

START_TEST(who_floods_is_refused_and_others_are_not)
{
	enum { N = 32 << 20 };
	char *big = calloc(1, N + 6);

	memcpy(big, "\x91\xc6\x02\x00\x00\x00", 6); /* [bin of 32 MiB] */
	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	seen.send_result = -EAGAIN;
	for (unsigned i = 0; i < 10; i++)
		call_with(1 + i, 70, "a", false, view(big, N + 6));
	ck_assert_uint_eq(seen.failed, 8);
	ck_assert_str_eq(seen.type, "BlockingIOError");
	call(100, 1, "a", false);
	ck_assert_uint_eq(seen.failed, 8);
	free(big);
}
END_TEST

/* Arguments with an array, with its memory and without; one whose client did not ask. */
START_TEST(an_array_goes_only_with_its_memory)
{
	static const char array[] = "\x91\xc7\x01\x03x";
	struct furca_caps_request from = {.id = 1,
					  .client = 1,
					  .execute_msgid = 77,
					  .name = view("a", 1),
					  .args = view(array, 5),
					  .kwargs = view("\x80", 1),
					  .memory = FURCA_FD_NONE};

	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	furca_caps_call(caps, &from);
	ck_assert_uint_eq(seen.sent, 0);
	ck_assert_str_eq(seen.type, "TypeError");
	from.memory = furca_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	seen.send_result = -EOPNOTSUPP;
	furca_caps_call(caps, &from);
	ck_assert_uint_eq(seen.failed, 2);
	seen.send_result = 0;
	from.id = 2;
	furca_caps_call(caps, &from);
	ck_assert_uint_eq(seen.sent, 1);
	/* It is answered with one by a client that sends no memory. */
	struct furca_value v = {.raw = view(array, 5)};
	furca_caps_answer(caps, 1, seen.msgid, &nil, &v, NULL);
	ck_assert_str_eq(seen.type, "TypeError");
	/* Such calls wait in small numbers only: each holds a descriptor. */
	seen.send_result = -EAGAIN;
	for (unsigned i = 0; i < FURCA_MAX_MEMORIES + 1; i++) {
		if (from.memory.n < 0)
			from.memory = furca_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
		from.id = 10 + i;
		furca_caps_call(caps, &from);
	}
	ck_assert_str_eq(seen.type, "BlockingIOError");
	furca_caps_client_gone(caps, 1);
	furca_fd_done(&from.memory);
}
END_TEST

START_TEST(handles_of_an_owner_come_back_together)
{
	enum { EACH = 3000 };
	static const uint8_t value[] = "\xc7\x03\x02obj";
	struct furca_value v = {.raw = {value, value + sizeof(value) - 1}};
	struct furca_caps_request from = {.client = 1,
					  .execute_msgid = 77,
					  .name = view("a", 1),
					  .args = view("\x90", 1),
					  .kwargs = view("\x80", 1),
					  .memory = FURCA_FD_NONE};
	struct furca_caps_stats stats;

	ck_assert_int_eq(offer(1, "a", "read", NULL, NULL), 1);
	for (unsigned i = 0; i < 2 * EACH; i++) {
		from.id = i + 1;
		from.owner = 5 + i % 2;
		furca_caps_call(caps, &from);
		furca_caps_answer(caps, 1, seen.msgid, &nil, &v, NULL);
	}
	furca_caps_owner_gone(caps, 5);
	ck_assert_uint_eq(seen.released, EACH);
	furca_caps_owner_gone(caps, 5);
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.handles, EACH);
	furca_caps_owner_gone(caps, 6);
	ck_assert_uint_eq(seen.released, 2 * EACH);
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.handles, 0);
}
END_TEST

/* An answer [nil, handle "obj"]. */
static void answer_handle(uint64_t client, uint64_t msgid)
{
	static const uint8_t value[] = "\x92\xc0\xc7\x03\x02obj";
	struct furca_value v = {.kind = FURCA_ARRAY, .count = 2, .raw = {value, value + sizeof(value) - 1}};

	furca_caps_answer(caps, client, msgid, &nil, &v, NULL);
}

START_TEST(a_handle_leads_back_to_its_client_and_to_nobody_else)
{
	struct furca_caps_stats stats;
	char name[64], args[40] = "\x91\xc7\x11\x02";

	ck_assert_int_eq(offer(1, "open", "read", NULL, NULL), 1);
	ck_assert_int_eq(offer(2, "take", "read", NULL, NULL), 1);
	call(1, 1, "open", true);
	answer_handle(1, seen.msgid);
	ck_assert(seen.handle[0] == '@' && strlen(seen.handle) == 17); /* not the client's own text */
	(void)snprintf(name, sizeof(name), "%s.method", seen.handle);
	call(2, 2, name, true);
	ck_assert_uint_eq(seen.client, 1);
	ck_assert_str_eq(seen.token, "obj");
	answer(1, seen.msgid);
	ck_assert_uint_eq(seen.done, 2);

	/* As an argument: to its own client by its own text, to another as an unknown name. */
	memcpy(args + 4, seen.handle, 17);
	call_with(3, 77, "open", false, view(args, 21));
	ck_assert_str_eq(seen.token, "obj");
	call_with(4, 77, "take", false, view(args, 21));
	ck_assert_str_eq(seen.token, seen.handle);

	furca_caps_release(caps, view(seen.handle, 17));
	furca_caps_release(caps, view(seen.handle, 17));
	ck_assert_uint_eq(seen.released, 1);
	ck_assert_uint_eq(seen.client, 1);
	ck_assert_str_eq(seen.type, "obj");
	call(5, 1, name, false);
	ck_assert_str_eq(seen.type, "ReferenceError");
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.handles, 0);
}
END_TEST

START_TEST(a_handle_has_the_effect_of_what_gave_it_and_goes_with_its_client)
{
	struct furca_caps_stats stats;
	char name[64];

	ck_assert_int_eq(offer(1, "open", "write", NULL, NULL), 1);
	call(1, 1, "open", false);
	answer_handle(1, seen.msgid);
	(void)snprintf(name, sizeof(name), "%s.method", seen.handle);
	call(2, 1, name, true);
	ck_assert_str_eq(seen.type, "PermissionError");
	for (unsigned i = 0; i < 100; i++) {
		call(10 + i, 1, "open", false);
		answer_handle(1, seen.msgid);
	}
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.handles, 101);
	furca_caps_client_gone(caps, 1);
	furca_caps_stats(caps, &stats);
	ck_assert_uint_eq(stats.handles, 0);
	call(3, 1, name, false);
	ck_assert_str_eq(seen.type, "ReferenceError");
}
END_TEST

/* Registers a name whose client takes objects. */
static void offer_taking(uint64_t client, const char *name)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 1);
	text(&pk, "capabilities");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 3);
	text(&pk, "name");
	text(&pk, name);
	text(&pk, "effect");
	text(&pk, "read");
	text(&pk, "objects");
	msgpack_pack_true(&pk);
	ck_assert_int_eq(furca_caps_register(caps, client, furca_buf_view(&buf), NULL), 1);
}

/* call_object or release_object on `handle`, with the handle among its own arguments. */
static int on_object(uint64_t client, const char *handle, bool release, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, release ? 1 : 2);
	text(&pk, "handle");
	text(&pk, handle);
	if (!release) {
		text(&pk, "args");
		msgpack_pack_array(&pk, 1);
		msgpack_pack_ext_with_body(&pk, handle, strlen(handle), 2);
	}
	return release ? furca_caps_object_release(caps, client, furca_buf_view(&buf), err)
		       : furca_caps_object_call(caps, client, 3, furca_buf_view(&buf), err);
}

/* Code's object "o1" in the arguments of a call. */
static const char with_object[] = "\x91\xd5\x02o1";

START_TEST(an_object_of_code_is_the_clients_it_was_given_to)
{
	static const char nothing[] = "\xc0";
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_view none = {0};
	char name[32];

	offer_taking(1, "take");
	call_with(1, 77, "take", false, view(with_object, sizeof(with_object) - 1));
	ck_assert_int_eq(seen.sent, 1);
	ck_assert(seen.token[0] == '#' && strlen(seen.token) == 18); /* not code's own text */
	copy(name, sizeof(name), view(seen.token, strlen(seen.token)));
	ck_assert_int_eq(on_object(1, name, false, &err), 0);
	ck_assert_str_eq(seen.object, "o1");
	ck_assert_str_eq(seen.token, "o1"); /* it came home */
	furca_caps_object_done(caps, 900, view(nothing, 1), none);
	ck_assert(seen.ok && seen.client == 1);
	furca_caps_object_done(caps, 900, view(nothing, 1), none);
	ck_assert_uint_eq(seen.answers, 1);
	ck_assert_int_lt(on_object(2, name, false, &err), 0); /* another client's */
	ck_assert_int_lt(on_object(1, "#0123456789abcdefa", false, NULL), 0);
	ck_assert_int_lt(on_object(1, "o1", false, NULL), 0);

	/* The code ended, or waits for nothing. */
	ck_assert_int_eq(on_object(1, name, false, NULL), 0);
	furca_caps_object_done(caps, 900, none, none);
	ck_assert(!seen.ok);
	seen.send_result = -ENOENT;
	ck_assert_int_lt(on_object(1, name, false, NULL), 0);
	seen.send_result = 0;

	ck_assert_int_eq(on_object(1, name, true, NULL), 0);
	ck_assert_uint_eq(seen.let_go, 1);
	ck_assert_int_lt(on_object(1, name, true, NULL), 0);
}
END_TEST

START_TEST(objects_that_no_client_holds_are_let_go)
{
	struct furca_view args = view(with_object, sizeof(with_object) - 1);

	ck_assert_int_eq(offer(1, "plain", "read", NULL, NULL), 1);
	ck_assert_int_eq(offer(1, "change", "write", NULL, NULL), 1);
	offer_taking(2, "take");
	call_with(1, 77, "plain", false, args);
	ck_assert_str_eq(seen.type, "TypeError");
	ck_assert_uint_eq(seen.let_go, 1);
	call_with(2, 77, "change", true, args);
	call_with(3, 77, "unknown", false, args);
	ck_assert_uint_eq(seen.let_go, 3);
	seen.send_result = -EPIPE;
	call_with(4, 77, "take", false, args);
	ck_assert_uint_eq(seen.let_go, 4);
	seen.send_result = 0;
	call_with(5, 77, "take", false, args);
	ck_assert_uint_eq(seen.let_go, 4);
	furca_caps_client_gone(caps, 2);
	ck_assert_uint_eq(seen.let_go, 5);
	ck_assert_str_eq(seen.object, "o1");
}
END_TEST

START_TEST(describe_lists_all_by_name)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_value list;

	ck_assert_int_eq(offer(1, "b", "read", NULL, NULL), 1);
	ck_assert_int_eq(offer(1, "a", NULL, NULL, NULL), 1);
	furca_caps_describe(caps, &buf);
	struct furca_view v = {buf.data, buf.data + buf.len}, inside, name;
	ck_assert_int_eq(furca_value_check(v, 8, 1000), 0);
	ck_assert_int_eq(furca_value_of(v, &list), 0);
	ck_assert_uint_eq(list.count, 2);
	inside = furca_value_inside(&list);
	ck_assert_int_eq(furca_value_next(&inside, &list), 0);
	ck_assert(furca_map_text(list.raw, "name", &name) && furca_view_is(name, "a"));
	ck_assert(furca_map_text(list.raw, "effect", &name) && furca_view_is(name, "write"));
	furca_buf_done(&buf);
}
END_TEST

/* Seeded: the map against a plain array. */
START_TEST(idmap_keeps_what_an_array_keeps)
{
	enum { KEYS = 300 };
	static int there[KEYS];
	struct furca_idmap map = FURCA_IDMAP_INIT;
	unsigned seed = 11, count = 0;

	for (unsigned round = 0; round < 50000; round++) {
		unsigned k = (unsigned)rand_r(&seed) % KEYS;
		uint64_t key = (uint64_t)k << (k % 3 * 20);

		if (rand_r(&seed) % 2) {
			ck_assert_int_eq(furca_idmap_add(&map, key, &there[k]), there[k] ? -EEXIST : 0);
			count += !there[k];
			there[k] = 1;
		} else {
			ck_assert_ptr_eq(furca_idmap_remove(&map, key), there[k] ? &there[k] : NULL);
			count -= there[k] != 0;
			there[k] = 0;
		}
		ck_assert_uint_eq(map.count, count);
		k = (unsigned)rand_r(&seed) % KEYS;
		ck_assert_ptr_eq(furca_idmap_get(&map, (uint64_t)k << (k % 3 * 20)), there[k] ? &there[k] : NULL);
	}
	furca_idmap_done(&map);
}
END_TEST

static void add(TCase *tc)
{
	tcase_set_timeout(tc, 4);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_call_goes_to_who_offers_it_and_back);
	tcase_add_test(tc, the_last_registration_wins_and_goes_with_its_client);
	tcase_add_test(tc, a_write_is_refused_in_a_read_only_call);
	tcase_add_test(tc, an_unknown_name_is_told_the_nearest);
	tcase_add_test(tc, what_cannot_be_sent_fails_at_once);
	tcase_add_test(tc, a_dropped_call_hears_no_late_answer);
	tcase_add_loop_test(tc, a_bad_name_registers_nothing, 0, sizeof(bad_names) / sizeof(bad_names[0]));
	tcase_add_test(tc, an_unknown_key_is_named_with_the_nearest);
	tcase_add_test(tc, thousands_are_open_at_once_and_answered_in_any_order);
	tcase_add_test(tc, a_handle_leads_back_to_its_client_and_to_nobody_else);
	tcase_add_test(tc, an_object_of_code_is_the_clients_it_was_given_to);
	tcase_add_test(tc, objects_that_no_client_holds_are_let_go);
	tcase_add_test(tc, a_handle_has_the_effect_of_what_gave_it_and_goes_with_its_client);
	tcase_add_test(tc, calls_that_wait_are_sent_in_turn);
	tcase_add_test(tc, who_floods_is_refused_and_others_are_not);
	tcase_add_test(tc, an_array_goes_only_with_its_memory);
	tcase_add_test(tc, handles_of_an_owner_come_back_together);
	tcase_add_test(tc, describe_lists_all_by_name);
	tcase_add_test(tc, idmap_keeps_what_an_array_keeps);
}

int main(void)
{
	return furca_test_main("caps", add);
}
