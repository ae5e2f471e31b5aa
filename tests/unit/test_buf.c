/* base/buf: growth, the bound, sticky failure. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"

#include "tests/unit/harness.h"

START_TEST(grows_and_keeps_what_it_has)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;

	for (int i = 0; i < 10000; i++)
		ck_assert_int_eq(furca_buf_append(&buf, &i, sizeof(i)), 0);
	ck_assert_uint_eq(buf.len, 10000 * sizeof(int));
	for (int i = 0; i < 10000; i++) {
		int got;

		memcpy(&got, buf.data + (size_t)i * sizeof(int), sizeof(got));
		ck_assert_int_eq(got, i);
	}
}
END_TEST

START_TEST(the_bound_is_exact_and_failure_is_kept)
{
	FURCA_AUTO_BUF struct furca_buf buf = {.max = 10};

	ck_assert_int_eq(furca_buf_append_text(&buf, "0123456789"), 0);
	ck_assert_int_eq(furca_buf_append(&buf, "", 0), 0);
	ck_assert_int_eq(furca_buf_append_text(&buf, "x"), -E2BIG);
	ck_assert_uint_eq(buf.len, 10);
	ck_assert_int_eq(buf.failed, -E2BIG);
	furca_buf_consume(&buf, 5);
	ck_assert_int_eq(furca_buf_append_text(&buf, "x"), -E2BIG);
	furca_buf_clear(&buf);
	ck_assert_int_eq(furca_buf_append_text(&buf, "x"), 0);
}
END_TEST

START_TEST(a_size_that_overflows_is_refused)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;

	ck_assert_int_eq(furca_buf_append_text(&buf, "x"), 0);
	ck_assert_int_eq(furca_buf_reserve(&buf, (size_t)-1), -E2BIG);
	ck_assert_uint_eq(buf.len, 1);
}
END_TEST

START_TEST(consume_take_and_print)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;

	ck_assert_int_eq(furca_buf_printf(&buf, "%s=%d", "answer", 42), 0);
	furca_buf_consume(&buf, 7);
	ck_assert_uint_eq(buf.len, 2);
	ck_assert_mem_eq(buf.data, "42", 2);
	FURCA_AUTO_BUF struct furca_buf taken = furca_buf_take(&buf);
	ck_assert_ptr_null(buf.data);
	ck_assert_uint_eq(taken.len, 2);
	furca_buf_consume(&taken, 99);
	ck_assert_uint_eq(taken.len, 0);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, grows_and_keeps_what_it_has);
	tcase_add_test(tests, the_bound_is_exact_and_failure_is_kept);
	tcase_add_test(tests, a_size_that_overflows_is_refused);
	tcase_add_test(tests, consume_take_and_print);
}

int main(void)
{
	return furca_test_main("buf", add);
}
