/* base/err: the table, first failure wins, nothing overflows. */
#include <errno.h>
#include <string.h>

#include "base/err.h"

#include "tests/unit/harness.h"

START_TEST(returns_the_errno_of_the_code_or_of_the_system)
{
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_int_eq(furca_fail(NULL, FURCA_E_VALIDATION, 0, "no"), -EINVAL);
	ck_assert_int_eq(furca_fail(&err, FURCA_E_SYSTEM, ENOSPC, "cannot write '%s'", "x"), -ENOSPC);
	ck_assert_int_eq(err.code, FURCA_E_SYSTEM);
	ck_assert_int_eq(err.sys, ENOSPC);
	ck_assert_str_eq(err.text, "cannot write 'x'");
}
END_TEST

START_TEST(the_first_failure_wins)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail_suggest(&err, FURCA_E_LIMIT, 0, "close one", "too many");
	ck_assert_int_eq(furca_fail(&err, FURCA_E_SYSTEM, EIO, "outer words"), -EIO);
	ck_assert_int_eq(err.code, FURCA_E_LIMIT);
	ck_assert_str_eq(err.text, "too many");
	ck_assert_str_eq(furca_err_suggestion(&err), "close one");
}
END_TEST

START_TEST(the_code_gives_a_suggestion_where_none_is_said)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_TIMEOUT, 0, "late");
	ck_assert_ptr_nonnull(strstr(furca_err_suggestion(&err), "timeout_s"));
	ck_assert_str_eq(furca_err_type(FURCA_E_TIMEOUT), "timeout");
	ck_assert_str_eq(furca_err_name(FURCA_E_TIMEOUT), "FURCA_E_TIMEOUT");
}
END_TEST

START_TEST(long_text_is_cut)
{
	struct furca_err err = FURCA_ERR_INIT;
	char longer[4 * FURCA_ERR_TEXT_MAX], out[32];

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	(void)furca_fail_suggest(&err, FURCA_E_SYSTEM, ENOENT, longer, "%s", longer);
	ck_assert_uint_eq(strlen(err.text), FURCA_ERR_TEXT_MAX - 1);
	ck_assert_uint_eq(strlen(furca_err_suggestion(&err)), FURCA_ERR_TEXT_MAX - 1);
	ck_assert_uint_eq(strlen(furca_err_describe(&err, out, sizeof(out))), sizeof(out) - 1);
}
END_TEST

START_TEST(describing_adds_the_systems_words)
{
	struct furca_err err = FURCA_ERR_INIT;
	char out[128];

	(void)furca_fail(&err, FURCA_E_SYSTEM, ENOENT, "cannot open 'a'");
	ck_assert_str_eq(furca_err_describe(&err, out, sizeof(out)), "cannot open 'a': No such file or directory");
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, returns_the_errno_of_the_code_or_of_the_system);
	tcase_add_test(tests, the_first_failure_wins);
	tcase_add_test(tests, the_code_gives_a_suggestion_where_none_is_said);
	tcase_add_test(tests, long_text_is_cut);
	tcase_add_test(tests, describing_adds_the_systems_words);
}

int main(void)
{
	return furca_test_main("err", add);
}
