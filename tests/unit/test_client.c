/* The client library against a peer in a thread: conn.h on the other end of a socket pair, answering as each test wants. */
#include <check.h>
#include <errno.h>
#include <msgpack.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bridge/client.h"
#include "bridge/conn.h"
#include "bridge/wire/limits.h"

static struct {
	struct furca_conn conn;
	int sock;
	pthread_t thread;
	uint64_t waiting;   /* msgid of an execute whose answer is held back */
	unsigned responses; /* to capability requests */
	uint64_t nested;    /* msgid of the execute whose code calls a capability */
	uint64_t within;    /* what the last execute said; NOT_SAID: nothing */
	char error_type[32];
} peer;

#define NOT_SAID UINT64_MAX

static struct furca_client *client;

static void text(msgpack_packer *pk, const char *t)
{
	msgpack_pack_str_with_body(pk, t, strlen(t));
}

/* A result map with that stdout. */
static void answer_execute(uint64_t msgid, const char *out)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 6);
	text(&pk, "ok");
	msgpack_pack_true(&pk);
	text(&pk, "stdout");
	text(&pk, out);
	text(&pk, "exit_code");
	msgpack_pack_int(&pk, 3);
	text(&pk, "error");
	msgpack_pack_nil(&pk);
	text(&pk, "state");
	text(&pk, "committed");
	text(&pk, "session");
	msgpack_pack_map(&pk, 3);
	text(&pk, "language");
	text(&pk, "python");
	text(&pk, "session_id");
	msgpack_pack_int(&pk, 4);
	text(&pk, "session_name");
	text(&pk, "audit");
	ck_assert_int_eq(furca_conn_answer(&peer.conn, msgid, furca_buf_view(&buf), NULL), 0);
	furca_buf_done(&buf);
}

static void notify_output(uint64_t msgid, const char *data)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 3);
	text(&pk, "execute_msgid");
	msgpack_pack_uint64(&pk, msgid);
	text(&pk, "stream");
	text(&pk, "stdout");
	text(&pk, "data");
	text(&pk, data);
	ck_assert_int_eq(furca_conn_notify(&peer.conn, "output", furca_buf_view(&buf)), 0);
	furca_buf_done(&buf);
}

static void call_capability(uint64_t execute_msgid, uint32_t n, const char *name)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 5);
	text(&pk, "execute_msgid");
	msgpack_pack_uint64(&pk, execute_msgid);
	text(&pk, "call_id");
	msgpack_pack_int(&pk, 1);
	text(&pk, "name");
	text(&pk, name);
	text(&pk, "args");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_int(&pk, 21);
	text(&pk, "kwargs");
	msgpack_pack_map(&pk, 0);
	ck_assert_int_eq(furca_conn_request(&peer.conn, n, "capability", furca_buf_view(&buf), NULL), 0);
	furca_buf_done(&buf);
}

/* The code says what its execute does: "hold", "stream", "echo", "capability", "end". */
static void on_execute(uint64_t msgid, struct furca_view args)
{
	struct furca_view code;

	ck_assert(furca_map_text(args, "code", &code));
	if (!furca_map_uint(args, "within", &peer.within))
		peer.within = NOT_SAID;
	if (furca_view_is(code, "hold")) {
		peer.waiting = msgid;
	} else if (furca_view_is(code, "stream")) {
		notify_output(msgid, "one ");
		notify_output(msgid, "two");
		answer_execute(msgid, "one two");
	} else if (furca_view_is(code, "capability")) {
		peer.nested = msgid;
		call_capability(msgid, 900, "double");
	} else if (furca_view_is(code, "unknown capability")) {
		peer.nested = msgid;
		call_capability(msgid, 900, "nobody.offers");
	} else if (furca_view_is(code, "end")) {
		furca_conn_step(&peer.conn, FURCA_CONN_GONE);
	} else {
		char *copy = furca_view_dup(code);

		answer_execute(msgid, copy);
		free(copy);
	}
}

static void on_request(void *user, uint64_t msgid, enum furca_method method, struct furca_view args)
{
	static const uint8_t cancelled[] = "\x81\xa9"
					   "cancelled\xc3";
	static const uint8_t registered[] = "\x81\xaa"
					    "registered\x01";

	if (method == FURCA_METHOD_execute) {
		on_execute(msgid, args);
	} else if (method == FURCA_METHOD_cancel) {
		ck_assert_int_eq(furca_conn_answer(&peer.conn, msgid,
						   (struct furca_view){cancelled, cancelled + sizeof(cancelled) - 1},
						   NULL),
				 0);
		answer_execute(peer.waiting, "cancelled");
	} else if (method == FURCA_METHOD_register_capabilities) {
		ck_assert_int_eq(furca_conn_answer(&peer.conn, msgid,
						   (struct furca_view){registered, registered + sizeof(registered) - 1},
						   NULL),
				 0);
	} else if (method == FURCA_METHOD_stats) {
		/* never answered */
	} else {
		ck_assert_int_eq(furca_conn_answer(&peer.conn, msgid, args, NULL), 0);
	}
}

static void on_response(void *user, uint64_t msgid, const struct furca_value *error, const struct furca_value *result)
{
	char out[32];
	struct furca_view type;

	peer.responses++;
	ck_assert_uint_eq(msgid, 900);
	if (error->kind == FURCA_NIL)
		(void)snprintf(out, sizeof(out), "%llu", (unsigned long long)result->u);
	else if (furca_map_text(error->raw, "type", &type))
		(void)snprintf(out, sizeof(out), "%.*s", (int)furca_view_size(type), (const char *)type.at);
	answer_execute(peer.nested, out);
}

static const struct furca_conn_events events = {on_request, on_response};

static void *run_peer(void *arg)
{
	uint8_t data[65536];
	ssize_t n;

	while (peer.conn.state == FURCA_CONN_OPEN && (n = read(peer.sock, data, sizeof(data))) > 0) {
		furca_conn_feed(&peer.conn, data, (size_t)n);
		if (peer.conn.out.len > 0)
			(void)furca_fd_write_all(peer.sock, peer.conn.out.data, peer.conn.out.len);
		furca_buf_clear(&peer.conn.out);
	}
	(void)shutdown(peer.sock, SHUT_RDWR);
	return NULL;
}

static void setup(void)
{
	int pair[2];

	memset(&peer, 0, sizeof(peer));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	peer.sock = pair[1];
	furca_conn_init(&peer.conn, &events, NULL);
	ck_assert_int_eq(pthread_create(&peer.thread, NULL, run_peer, NULL), 0);
	ck_assert_int_eq(furca_client_new(furca_fd_own(pair[0]), &client), 0);
}

static void teardown(void)
{
	furca_close(client);
	ck_assert_int_eq(pthread_join(peer.thread, NULL), 0);
	(void)close(peer.sock);
	furca_conn_done(&peer.conn);
}

START_TEST(an_execute_comes_back_as_a_struct)
{
	struct furca_execute args = FURCA_EXECUTE("python", "hello");
	struct furca_result r;
	struct furca_error err;

	ck_assert_int_eq(furca_execute(client, &args, &r, &err), 0);
	ck_assert(r.ok);
	ck_assert_str_eq(r.out, "hello");
	ck_assert_uint_eq(r.out_size, 5);
	ck_assert_str_eq(r.err, "");
	ck_assert_ptr_null(r.error);
	ck_assert(r.has_exit_code && r.exit_code == 3);
	ck_assert_str_eq(r.session_name, "audit");
	ck_assert_int_eq(r.session_id, 4);
	ck_assert_int_eq(r.venv_id, FURCA_NONE);
	char *json = furca_json(r.packed, r.packed_size);
	ck_assert_ptr_nonnull(strstr(json, "\"exit_code\":3"));
	free(json);
	furca_result_done(&r);
}
END_TEST

static void collect(void *user, const char *stream, const char *data, size_t size)
{
	ck_assert_str_eq(stream, "stdout");
	(void)strncat(user, data, size);
}

START_TEST(output_streams_before_the_answer)
{
	struct furca_execute args = FURCA_EXECUTE("python", "stream");
	struct furca_result r;
	char got[64] = "";

	args.on_output = collect;
	args.user = got;
	ck_assert_int_eq(furca_execute(client, &args, &r, NULL), 0);
	ck_assert_str_eq(got, "one two");
	furca_result_done(&r);
}
END_TEST

START_TEST(a_wait_times_out_and_can_be_taken_up_again)
{
	struct furca_execute args = FURCA_EXECUTE("python", "hold");
	struct furca_result r;
	struct furca_error err;
	uint64_t id;

	ck_assert_int_eq(furca_start(client, &args, &id, &err), 0);
	ck_assert_int_eq(furca_wait(client, id, 0.05, &r, &err), -ETIMEDOUT);
	ck_assert_int_eq(furca_cancel(client, id, &err), 1);
	ck_assert_int_eq(furca_wait(client, id, FURCA_FOREVER, &r, &err), 0);
	ck_assert_str_eq(r.out, "cancelled");
	furca_result_done(&r);
	ck_assert_int_eq(furca_wait(client, id, FURCA_FOREVER, &r, &err), -ENOENT);
}
END_TEST

static uint64_t said_by(void)
{
	struct furca_execute nested = FURCA_EXECUTE("bash", "nested");
	struct furca_result r;

	ck_assert_int_eq(furca_execute(client, &nested, &r, NULL), 0);
	furca_result_done(&r);
	return peer.within;
}

static void *another_thread(void *ret)
{
	*(uint64_t *)ret = said_by();
	return NULL;
}

static void double_it(void *user, const struct furca_capability_call *call)
{
	struct furca_view args = {call->args, (const uint8_t *)call->args + call->args_size}, inside;
	struct furca_execute nested = FURCA_EXECUTE("bash", "nested");
	struct furca_value list, n;
	struct furca_result r;
	uint8_t packed;

	ck_assert_str_eq(call->name, "double");
	ck_assert(call->ours);
	ck_assert_int_eq(furca_execute(client, &nested, &r, NULL), 0); /* a callback may call */
	ck_assert_str_eq(r.out, "nested");
	furca_result_done(&r);
	/* It says for whom, and says nothing where it cannot know. */
	pthread_t thread;
	uint64_t elsewhere = 0;
	ck_assert_uint_eq(call->call_id, 1);
	ck_assert_uint_eq(peer.within, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, another_thread, &elsewhere), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(elsewhere, NOT_SAID);
	ck_assert_int_eq(furca_value_of(args, &list), 0);
	inside = furca_value_inside(&list);
	ck_assert_int_eq(furca_value_next(&inside, &n), 0);
	packed = (uint8_t)(2 * n.u);
	furca_answer_value(call, &packed, 1);
}

START_TEST(a_capability_is_served_while_its_caller_waits)
{
	struct furca_execute args = FURCA_EXECUTE("python", "capability");
	struct furca_result r;
	struct furca_error err;

	ck_assert_int_eq(furca_capability_register(client, "double", "read", "doubles", NULL, 0, double_it, NULL, &err),
			 0);
	ck_assert_int_eq(furca_execute(client, &args, &r, &err), 0);
	ck_assert_str_eq(r.out, "42");
	furca_result_done(&r);
	args.code = "unknown capability";
	ck_assert_int_eq(furca_execute(client, &args, &r, &err), 0);
	ck_assert_str_eq(r.out, "AttributeError");
	furca_result_done(&r);
	ck_assert_uint_eq(said_by(), 0);
}
END_TEST

START_TEST(who_waits_hears_of_the_end)
{
	struct furca_execute hold = FURCA_EXECUTE("python", "hold"), end = FURCA_EXECUTE("python", "end");
	struct furca_result r;
	struct furca_error err;
	uint64_t a, b;

	ck_assert_int_eq(furca_start(client, &hold, &a, &err), 0);
	ck_assert_int_eq(furca_start(client, &end, &b, &err), 0);
	ck_assert_int_eq(furca_wait(client, a, FURCA_FOREVER, &r, &err), -EPIPE);
	ck_assert_int_eq(furca_wait(client, b, FURCA_FOREVER, &r, &err), -EPIPE);
	ck_assert_int_eq(furca_start(client, &hold, &a, &err), -EPIPE);
}
END_TEST

START_TEST(a_call_times_out_and_a_protocol_error_is_told)
{
	struct furca_error err;
	void *answer;
	size_t size;

	ck_assert_int_eq(furca_call(client, "stats", NULL, 0, 0.05, &answer, &size, &err), -ETIMEDOUT);
	ck_assert_int_eq(furca_call(client, "nope", NULL, 0, FURCA_FOREVER, &answer, &size, &err), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err.message, "No method 'nope'"));
	ck_assert_int_eq(furca_list_sessions(client, &answer, &size, &err), 0);
	free(answer);
}
END_TEST

static void *many(void *arg)
{
	char code[32];
	unsigned bad = 0;

	for (unsigned i = 0; i < 200; i++) {
		struct furca_execute args = FURCA_EXECUTE("python", code);
		struct furca_result r;

		(void)snprintf(code, sizeof(code), "%u-%u", (unsigned)(uintptr_t)arg, i);
		if (furca_execute(client, &args, &r, NULL) < 0 || strcmp(r.out, code) != 0)
			bad++;
		furca_result_done(&r);
	}
	return (void *)(uintptr_t)bad;
}

START_TEST(threads_share_a_client_and_get_their_own_answers)
{
	pthread_t threads[8];

	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, many, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < 8; i++) {
		void *bad;

		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

START_TEST(large_code_goes_and_comes_back)
{
	enum { N = 8 << 20 };
	char *big = malloc(N + 1);
	struct furca_execute args = FURCA_EXECUTE("python", big);
	struct furca_result r;

	memset(big, 'x', N);
	big[N] = '\0';
	ck_assert_int_eq(furca_execute(client, &args, &r, NULL), 0);
	ck_assert_uint_eq(r.out_size, N);
	furca_result_done(&r);
	free(big);
}
END_TEST

START_TEST(nobody_listens)
{
	struct furca_client *other;
	struct furca_error err;

	ck_assert_int_eq(furca_connect("/nonexistent/furca.sock", &other, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.message, "/nonexistent/furca.sock"));
	ck_assert(err.suggestion[0]);
	struct furca_private options = {.program = "/nonexistent/furca"};
	ck_assert_int_lt(furca_open_private(&options, &other, &err), 0);
	options.program = "/bin/false";
	ck_assert_int_eq(furca_open_private(&options, &other, &err), -EPIPE);
}
END_TEST

static const struct {
	const char *packed;
	size_t size;
	const char *json;
} json_cases[] = {
#define CASE(packed, json)                                                                                             \
	{                                                                                                              \
		packed, sizeof(packed) - 1, json                                                                       \
	}
	CASE("\xc0", "null"),
	CASE("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", "1.0"),
	CASE("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
	CASE("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "null"),
	CASE("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
	CASE("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "-9223372036854775808"),
	CASE("\xc7\x09\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
	CASE("\xc7\x09\x01\xff\x00\x00\x00\x00\x00\x00\x00\x00", "-18446744073709551616"),
	CASE("\xd4\x01\x00", "0"),
	CASE("\xc4\x03"
	     "abc",
	     "\"YWJj\""),
	CASE("\xc4\x01\xff", "\"/w==\""),
	CASE("\xa4"
	     "a\"\n\x01",
	     "\"a\\\"\\n\\u0001\""),
	CASE("\xa3"
	     "a\xff"
	     "b",
	     "\"a\xef\xbf\xbd"
	     "b\""),
	CASE("\x82\x01\xa1x\xa1y\x92\xc3\xc2", "{\"1\":\"x\",\"y\":[true,false]}"),
	CASE("\x80", "{}"),
	CASE("\xd5\x02h1", "{\"handle\":\"h1\"}"),
	CASE("\xd4\x05\xff", "{\"ext\":5,\"base64\":\"/w==\"}"),
};

START_TEST(values_become_json)
{
	char *json = furca_json(json_cases[_i].packed, json_cases[_i].size);

	ck_assert_str_eq(json, json_cases[_i].json);
	free(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client");
	TCase *tc = tcase_create("client"), *json = tcase_create("json");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, an_execute_comes_back_as_a_struct);
	tcase_add_test(tc, output_streams_before_the_answer);
	tcase_add_test(tc, a_wait_times_out_and_can_be_taken_up_again);
	tcase_add_test(tc, a_capability_is_served_while_its_caller_waits);
	tcase_add_test(tc, who_waits_hears_of_the_end);
	tcase_add_test(tc, a_call_times_out_and_a_protocol_error_is_told);
	tcase_add_test(tc, threads_share_a_client_and_get_their_own_answers);
	tcase_add_test(tc, large_code_goes_and_comes_back);
	tcase_add_test(tc, nobody_listens);
	tcase_add_loop_test(json, values_become_json, 0, sizeof(json_cases) / sizeof(json_cases[0]));
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, json);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
