/* The end of every unit test: one suite with one case, run forked, its status as main wants it. */
#pragma once

#include <check.h>

static inline int furca_test_main(const char *name, void (*add)(TCase *))
{
	Suite *suite = suite_create(name);
	TCase *tests = tcase_create(name);

	tcase_set_timeout(tests, 60);
	add(tests);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
