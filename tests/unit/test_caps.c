#include "tests/unit/caps_lab.h"
#include "tests/unit/harness.h"

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
	tcase_add_test(tc, calls_that_wait_are_sent_in_turn);
	tcase_add_test(tc, who_floods_is_refused_and_others_are_not);
	tcase_add_test(tc, an_array_goes_only_with_its_memory);
	tcase_add_test(tc, describe_lists_all_by_name);
	tcase_add_test(tc, idmap_keeps_what_an_array_keeps);
}

int main(void)
{
	return furca_test_main("caps", add);
}
