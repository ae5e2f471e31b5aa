#include <check.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/conn.h"
#include "bridge/wire/limits.h"

#include "tests/unit/harness.h"

/* What came out of a connection. */
static struct {
	unsigned requests, responses;
	uint64_t msgid;
	enum furca_method method;
	size_t args_size;
	bool answer_at_once;
} seen;

static struct furca_conn conn;

static void on_request(void *user, uint64_t msgid, enum furca_method method, struct furca_view args)
{
	seen.requests++;
	seen.msgid = msgid;
	seen.method = method;
	seen.args_size = furca_view_size(args);
	if (seen.answer_at_once)
		ck_assert_int_eq(furca_conn_answer(user, msgid, args, NULL), 0);
}

static void on_response(void *user, uint64_t msgid, const struct furca_value *error, const struct furca_value *result)
{
	seen.responses++;
	seen.msgid = msgid;
}

static const struct furca_conn_events events = {on_request, on_response};

static void setup(void)
{
	memset(&seen, 0, sizeof(seen));
	furca_conn_init(&conn, &events, &conn);
}

static void teardown(void)
{
	furca_conn_done(&conn);
}

static struct furca_buf request(uint64_t msgid, const char *method, size_t text)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;
	char *filler = calloc(1, text + 1);

	memset(filler, 'x', text);
	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, 0);
	msgpack_pack_uint64(&pk, msgid);
	msgpack_pack_str_with_body(&pk, method, strlen(method));
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 1);
	msgpack_pack_str_with_body(&pk, "code", 4);
	msgpack_pack_str_with_body(&pk, filler, text);
	free(filler);
	return buf;
}

static void feed_hex(const char *hex)
{
	uint8_t bytes[256];
	size_t n = 0;

	for (; hex[0] && hex[1]; hex += 2) {
		unsigned b;

		ck_assert_int_eq(sscanf(hex, "%2x", &b), 1);
		bytes[n++] = (uint8_t)b;
	}
	furca_conn_feed(&conn, bytes, n);
}

/* The one answer that is queued: its msgid (or -1 for nil) and the error's code ("" for none). */
static int64_t answer(char *code, size_t size)
{
	struct furca_view out = {conn.out.data, conn.out.data + conn.out.len}, inside, text;
	struct furca_value m, type, id, error;

	ck_assert_int_eq(furca_value_check(out, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
	ck_assert_int_eq(furca_value_of(out, &m), 0);
	ck_assert_uint_eq(m.count, 4);
	inside = furca_value_inside(&m);
	ck_assert(furca_value_next(&inside, &type) == 0 && type.u == 1);
	ck_assert(furca_value_next(&inside, &id) == 0);
	ck_assert(furca_value_next(&inside, &error) == 0);
	code[0] = '\0';
	if (error.kind != FURCA_NIL) {
		ck_assert(furca_map_text(error.raw, "code", &text));
		ck_assert(furca_view_size(text) < size);
		memcpy(code, text.at, furca_view_size(text));
		code[furca_view_size(text)] = '\0';
		ck_assert(furca_map_text(error.raw, "message", &text));
	}
	return id.kind == FURCA_NIL ? -1 : (int64_t)id.u;
}

START_TEST(a_request_is_heard_and_answered)
{
	struct furca_buf buf = request(7, "execute", 5);
	char code[32];

	furca_conn_feed(&conn, buf.data, buf.len);
	ck_assert_uint_eq(seen.requests, 1);
	ck_assert_int_eq(seen.method, FURCA_METHOD_execute);
	ck_assert_uint_eq(conn.in_flight.count, 1);
	ck_assert_int_eq(furca_conn_answer(&conn, 7,
					   (struct furca_view){(const uint8_t *)"\xc3", (const uint8_t *)"\xc3" + 1},
					   NULL),
			 0);
	ck_assert_int_eq(answer(code, sizeof(code)), 7);
	ck_assert_str_eq(code, "");
	size_t n = conn.out.len;
	ck_assert_int_eq(furca_conn_answer(&conn, 7,
					   (struct furca_view){(const uint8_t *)"\xc3", (const uint8_t *)"\xc3" + 1},
					   NULL),
			 0);
	ck_assert_uint_eq(conn.out.len, n); /* once */
	furca_buf_done(&buf);
}
END_TEST

START_TEST(bytes_may_come_one_by_one)
{
	struct furca_buf a = request(1, "execute", 300), b = request(2, "stats", 3);

	ck_assert_int_eq(furca_buf_append(&a, b.data, b.len), 0);
	for (size_t i = 0; i < a.len; i++)
		furca_conn_feed(&conn, a.data + i, 1);
	ck_assert_uint_eq(seen.requests, 2);
	ck_assert_uint_eq(seen.msgid, 2);
	ck_assert_uint_eq(conn.in.len, 0);
	furca_buf_done(&a);
	furca_buf_done(&b);
}
END_TEST

START_TEST(many_in_one_piece)
{
	struct furca_buf all = FURCA_BUF_INIT;

	seen.answer_at_once = true;
	for (unsigned i = 0; i < 5000; i++) {
		struct furca_buf one = request(i, "execute", i % 50);

		ck_assert_int_eq(furca_buf_append(&all, one.data, one.len), 0);
		furca_buf_done(&one);
	}
	furca_conn_feed(&conn, all.data, all.len - 10);
	furca_conn_feed(&conn, all.data + all.len - 10, 10);
	ck_assert_uint_eq(seen.requests, 5000);
	ck_assert_uint_eq(conn.in_flight.count, 0);
	furca_buf_done(&all);
}
END_TEST

/* A large message in small pieces must not be looked at from its start each time. */
START_TEST(a_large_message_in_pieces_takes_linear_time)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, 0);
	msgpack_pack_int(&pk, 1);
	msgpack_pack_str_with_body(&pk, "execute", 7);
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 1);
	msgpack_pack_str_with_body(&pk, "code", 4);
	msgpack_pack_array(&pk, 3000000);
	for (unsigned i = 0; i < 3000000; i++)
		msgpack_pack_int(&pk, 5);
	for (size_t i = 0; i < buf.len; i += 512)
		furca_conn_feed(&conn, buf.data + i, buf.len - i < 512 ? buf.len - i : 512);
	ck_assert_uint_eq(seen.requests, 1);
	furca_buf_done(&buf);
}
END_TEST

static const struct {
	const char *hex, *code;
	int64_t msgid;
} hostile[] = {
	{"c1", "malformed", -1},
	{"01", "malformed", -1},
	{"90", "malformed", -1},
	{"9403a16100c0", "malformed", -1},    /* type 3 */
	{"9400ff", "malformed", -1},	      /* msgid -1, then short: see below */
	{"940005c0c0", "malformed", -1},      /* no name */
	{"940005a161dbffffffff", "limit", 5}, /* 4 GiB of text announced */
	{"940005a161ddffffffff", "limit", 5}, /* 4 G items announced */
	{"940005a161dfffffffff", "limit", 5},
	{"940005a161c6ffffffff", "limit", 5},
	{"940005a161c9ffffffff", "limit", 5},
	{"ddffffffff", "limit", -1},
	{"940005c1", "malformed", 5},
};

START_TEST(hostile_heads_end_the_connection_and_take_no_memory)
{
	char code[32];

	feed_hex(hostile[_i].hex);
	if (conn.state == FURCA_CONN_OPEN) /* not whole yet */
		feed_hex("c0c0");
	ck_assert_int_eq(conn.state, FURCA_CONN_ENDING);
	ck_assert_int_eq(answer(code, sizeof(code)), hostile[_i].msgid);
	ck_assert_str_eq(code, hostile[_i].code);
	ck_assert_uint_eq(conn.in.cap, 0);
	ck_assert_uint_eq(seen.requests, 0);
	feed_hex("9400070190"); /* ignored */
	ck_assert_uint_eq(seen.requests, 0);
	furca_conn_step(&conn, FURCA_CONN_FLUSHED);
	ck_assert_int_eq(conn.state, FURCA_CONN_CLOSED);
}
END_TEST

START_TEST(a_depth_bomb_is_refused)
{
	uint8_t bomb[4096];

	memset(bomb, 0x91, sizeof(bomb));
	furca_conn_feed(&conn, bomb, sizeof(bomb));
	ck_assert_int_eq(conn.state, FURCA_CONN_ENDING);
}
END_TEST

static const struct {
	const char *hex, *code;
	enum furca_conn_state state;
} wrong[] = {
	{"940009a46e6f706590", "unknown_method", FURCA_CONN_OPEN}, /* nope */
	{"940009a2fffe90", "unknown_method", FURCA_CONN_OPEN},	   /* not UTF-8 */
	{"940009a57374617473a178", "params", FURCA_CONN_OPEN},	   /* stats "x" */
	{"940009a5737461747392c0c0", "params", FURCA_CONN_OPEN},   /* stats [nil, nil] */
	{"940009a5737461747391c0", "params", FURCA_CONN_OPEN},	   /* stats [nil] */
};

START_TEST(a_wrong_request_costs_only_itself)
{
	char code[32];

	feed_hex(wrong[_i].hex);
	ck_assert_int_eq(conn.state, wrong[_i].state);
	ck_assert_int_eq(answer(code, sizeof(code)), 9);
	ck_assert_str_eq(code, wrong[_i].code);
	ck_assert_uint_eq(conn.in_flight.count, 0);
	feed_hex("94000aa5737461747390"); /* stats [] */
	feed_hex("94000ba57374617473c0"); /* stats nil */
	ck_assert_uint_eq(seen.requests, 2);
	ck_assert_uint_eq(seen.args_size, 1);
}
END_TEST

START_TEST(a_msgid_in_flight_cannot_be_used_again)
{
	feed_hex("94000aa5737461747390");
	ck_assert_uint_eq(seen.requests, 1);
	feed_hex("94000aa5737461747390");
	ck_assert_uint_eq(seen.requests, 1);
	ck_assert_int_eq(conn.state, FURCA_CONN_ENDING);
}
END_TEST

START_TEST(too_many_in_flight_are_refused_one_by_one)
{
	char code[32];

	for (unsigned i = 0; i < FURCA_MAX_IN_FLIGHT; i++) {
		struct furca_buf one = request(i, "execute", 1);

		furca_conn_feed(&conn, one.data, one.len);
		furca_buf_done(&one);
	}
	ck_assert_uint_eq(conn.out.len, 0);
	struct furca_buf one = request(99999, "execute", 1);
	furca_conn_feed(&conn, one.data, one.len);
	ck_assert_int_eq(answer(code, sizeof(code)), 99999);
	ck_assert_str_eq(code, "limit");
	ck_assert_int_eq(conn.state, FURCA_CONN_OPEN);
	ck_assert_uint_eq(seen.requests, FURCA_MAX_IN_FLIGHT);
	furca_buf_done(&one);
}
END_TEST

START_TEST(what_a_peer_does_not_read_is_bounded)
{
	size_t n = 16U << 20;
	uint8_t *big = calloc(1, n + 5);
	struct furca_view params = {big, big + n + 5};
	int r = 0;
	unsigned sent = 0;

	big[0] = 0xc6; /* bin of n bytes */
	big[1] = (uint8_t)(n >> 24);
	big[2] = (uint8_t)(n >> 16);
	while (sent < 100 && (r = furca_conn_notify(&conn, "output", params)) == 0)
		sent++;
	ck_assert_int_eq(r, -ENOBUFS);
	ck_assert_uint_le(furca_conn_queued(&conn), FURCA_MAX_QUEUED_OUT);
	ck_assert_uint_ge(sent, 16);
	ck_assert_int_eq(furca_conn_request(&conn, 1, "capability", params, NULL), -ENOBUFS);
	free(big);
}
END_TEST

/* Seeded: random cuts of valid traffic with random bytes changed. It must neither crash nor grow nor call events with nonsense. */
START_TEST(random_bytes_do_no_harm)
{
	unsigned seed = 20260101U + (unsigned)_i;

	seen.answer_at_once = true;
	for (unsigned round = 0; round < 400; round++) {
		struct furca_buf all = FURCA_BUF_INIT;

		furca_conn_done(&conn);
		furca_conn_init(&conn, &events, &conn);
		for (unsigned i = 0; i < 6; i++) {
			struct furca_buf one = request((unsigned)rand_r(&seed) % 8, i % 2 ? "execute" : "cancel",
						       (unsigned)rand_r(&seed) % 90);

			ck_assert_int_eq(furca_buf_append(&all, one.data, one.len), 0);
			furca_buf_done(&one);
		}
		for (unsigned i = 0; i < round % 5; i++)
			all.data[(size_t)rand_r(&seed) % all.len] = (uint8_t)rand_r(&seed);
		for (size_t at = 0; at < all.len;) {
			size_t n = 1 + (size_t)rand_r(&seed) % 40;

			n = n < all.len - at ? n : all.len - at;
			furca_conn_feed(&conn, all.data + at, n);
			at += n;
		}
		ck_assert_uint_le(conn.in.cap, 4096);
		struct furca_view out = furca_buf_view(&conn.out);
		struct furca_value v;
		while (out.at < out.end) {
			ck_assert_int_gt(furca_value_size(out, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS), 0);
			ck_assert_int_eq(furca_value_next(&out, &v), 0);
		}
		furca_buf_done(&all);
	}
}
END_TEST

static void add(TCase *tc)
{
	tcase_set_timeout(tc, 4);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_request_is_heard_and_answered);
	tcase_add_test(tc, bytes_may_come_one_by_one);
	tcase_add_test(tc, many_in_one_piece);
	tcase_add_test(tc, a_large_message_in_pieces_takes_linear_time);
	tcase_add_loop_test(tc, hostile_heads_end_the_connection_and_take_no_memory, 0,
			    sizeof(hostile) / sizeof(hostile[0]));
	tcase_add_test(tc, a_depth_bomb_is_refused);
	tcase_add_loop_test(tc, a_wrong_request_costs_only_itself, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(tc, a_msgid_in_flight_cannot_be_used_again);
	tcase_add_test(tc, too_many_in_flight_are_refused_one_by_one);
	tcase_add_test(tc, what_a_peer_does_not_read_is_bounded);
	tcase_add_loop_test(tc, random_bytes_do_no_harm, 0, 5);
}

int main(void)
{
	return furca_test_main("conn", add);
}
