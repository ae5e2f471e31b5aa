/* bridge/wire/messages and nearest: names both ways, and the nearest known word. */
#include <string.h>

#include "bridge/wire/messages.h"
#include "bridge/wire/nearest.h"

#include "tests/unit/harness.h"

START_TEST(every_method_is_found_by_its_name)
{
	int known = 0;

	for (int i = 1; i < FURCA_METHOD_LIMIT; i++) {
		const char *name = furca_method_name((enum furca_method)i);

		if (strcmp(name, "?") == 0)
			continue;
		ck_assert_int_eq(furca_method_find(name, strlen(name)), i);
		ck_assert_int_eq(furca_method_find(name, strlen(name) - 1), FURCA_METHOD_UNKNOWN);
		known++;
	}
	ck_assert_int_ge(known, 22);
}
END_TEST

START_TEST(unknown_numbers_have_a_name_too)
{
	ck_assert_str_eq(furca_method_name((enum furca_method)9999), "?");
	ck_assert_str_eq(furca_method_name(FURCA_METHOD_UNKNOWN), "?");
	ck_assert_str_eq(furca_frame_name((enum furca_frame)9999), "?");
	ck_assert_str_eq(furca_frame_name((enum furca_frame)31), "?");
	ck_assert_str_eq(furca_frame_name(FURCA_HOST_RUN), "RUN");
	ck_assert_str_eq(furca_frame_name(FURCA_INIT_CHANGED), "CHANGED");
	ck_assert_int_eq(furca_method_find("", 0), FURCA_METHOD_UNKNOWN);
}
END_TEST

START_TEST(the_nearest_word_is_suggested)
{
	static const char *const words[] = {"state_mode", NULL, "session_id", "session_name", "timeout_s"};

	ck_assert_str_eq(furca_method_nearest("exceute", 7), "execute");
	ck_assert_str_eq(furca_method_nearest("list_session", 12), "list_sessions");
	ck_assert_str_eq(furca_nearest("mode", 4, words, 5), "state_mode");
	ck_assert_str_eq(furca_nearest("timeout", 7, words, 5), "timeout_s");
	ck_assert_ptr_nonnull(furca_nearest("", 0, words, 5));
	ck_assert_ptr_null(furca_nearest("x", 1, words, 0));
	char longer[4096];
	memset(longer, 'a', sizeof(longer));
	ck_assert_ptr_nonnull(furca_nearest(longer, sizeof(longer), words, 5));
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, every_method_is_found_by_its_name);
	tcase_add_test(tests, unknown_numbers_have_a_name_too);
	tcase_add_test(tests, the_nearest_word_is_suggested);
}

int main(void)
{
	return furca_test_main("messages", add);
}
