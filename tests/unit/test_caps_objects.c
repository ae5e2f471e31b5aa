#include "tests/unit/caps_lab.h"
#include "tests/unit/harness.h"

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

static void add(TCase *tc)
{
	tcase_set_timeout(tc, 4);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_handle_leads_back_to_its_client_and_to_nobody_else);
	tcase_add_test(tc, an_object_of_code_is_the_clients_it_was_given_to);
	tcase_add_test(tc, objects_that_no_client_holds_are_let_go);
	tcase_add_test(tc, a_handle_has_the_effect_of_what_gave_it_and_goes_with_its_client);
	tcase_add_test(tc, handles_of_an_owner_come_back_together);
}

int main(void)
{
	return furca_test_main("caps_objects", add);
}
