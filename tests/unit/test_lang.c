/* The table of languages: names, arguments of zygotes, their environment. */
#include "langs/lang.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

#include "tests/unit/harness.h"

START_TEST(names)
{
	ck_assert_str_eq(furca_lang_find("python", 6)->name, "python");
	ck_assert_str_eq(furca_lang_find("bash", 4)->name, "bash");
	ck_assert_ptr_null(furca_lang_find("pytho", 5));
	ck_assert_ptr_null(furca_lang_at(2));
}
END_TEST

START_TEST(missing_host_is_told)
{
	struct furca_err err = FURCA_ERR_INIT;
	char **argv = NULL;

	ck_assert_int_eq(setenv("FURCA_LIBEXEC", "/nonexistent", 1), 0);
	ck_assert_int_eq(furca_lang_at(0)->argv(NULL, &argv, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/furca-python"));
}
END_TEST

static const char *variable(char **environment, const char *start)
{
	for (size_t i = 0; environment[i]; i++)
		if (!strncmp(environment[i], start, strlen(start)))
			return environment[i];
	return NULL;
}

START_TEST(environment_merges)
{
	char *base[] = {(char[]){"A=1"}, (char[]){"GLIBC_TUNABLES=x=2"}, NULL};
	char *plain[] = {(char[]){"FURCA_HUGE_PAGES=0"}, NULL};
	char **environment = furca_lang_env(furca_lang_at(0), base);

	ck_assert_str_eq(variable(environment, "A="), "A=1");
	ck_assert_str_eq(variable(environment, "GLIBC_TUNABLES="), "GLIBC_TUNABLES=x=2:glibc.malloc.hugetlb=1");
	ck_assert_ptr_null(environment[2]);
	furca_lang_argv_free(environment);
	environment = furca_lang_env(furca_lang_at(0), plain);
	ck_assert_ptr_null(variable(environment, "GLIBC_TUNABLES="));
	furca_lang_argv_free(environment);
}
END_TEST

static void add(TCase *cases)
{
	tcase_set_timeout(cases, 4);
	tcase_add_test(cases, names);
	tcase_add_test(cases, missing_host_is_told);
	tcase_add_test(cases, environment_merges);
}

int main(void)
{
	return furca_test_main("lang", add);
}
