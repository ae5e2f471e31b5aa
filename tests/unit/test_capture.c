#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/output.h"

#include "tests/unit/harness.h"

static void text_is(const struct furca_output *o, const char *want, uint64_t left_out)
{
	struct furca_buf text = FURCA_BUF_INIT;

	ck_assert_uint_eq(furca_output_text(o, &text), left_out);
	ck_assert_uint_eq(text.len, strlen(want));
	ck_assert_int_eq(memcmp(text.data ? (const char *)text.data : "", want, text.len), 0);
	furca_buf_done(&text);
}

static void add(struct furca_output *o, const char *text)
{
	furca_output_add(o, (const uint8_t *)text, strlen(text));
}

START_TEST(short_output_is_kept_whole)
{
	struct furca_output o;

	furca_output_init(&o, 16, NULL, 0);
	text_is(&o, "", 0);
	add(&o, "0123456789");
	add(&o, "abcdef");
	text_is(&o, "0123456789abcdef", 0);
	furca_output_done(&o);
}
END_TEST

START_TEST(long_output_keeps_head_and_tail)
{
	struct furca_output o;
	struct furca_buf bytes = FURCA_BUF_INIT;

	furca_output_init(&o, 16, "/tmp", 1 << 20);
	for (int i = 0; i < 100; i++)
		add(&o, "0123456789");
	add(&o, "end");
	text_is(&o, "0123456756789end", 1003 - 16);
	ck_assert_uint_eq(o.total, 1003);
	furca_output_seal(&o);
	ck_assert_int_lt(o.spill.n, 0); /* kept without a descriptor */
	ck_assert_uint_eq(furca_output_read(&o, 498, 4, &bytes), 4);
	ck_assert_int_eq(memcmp(bytes.data, "8901", 4), 0);
	ck_assert_uint_eq(furca_output_read(&o, 1000, 100, &bytes), 3);
	ck_assert_int_eq(memcmp(bytes.data + 4, "end", 3), 0);
	ck_assert_uint_eq(furca_output_read(&o, 5000, 10, &bytes), 0);
	furca_buf_done(&bytes);
	furca_output_done(&o);
}
END_TEST

START_TEST(a_full_spill_keeps_the_tail)
{
	struct furca_output o;
	struct furca_buf bytes = FURCA_BUF_INIT;

	furca_output_init(&o, 16, "/tmp", 100);
	for (int i = 0; i < 100; i++)
		add(&o, "0123456789");
	text_is(&o, "0123456723456789", 1000 - 16);
	furca_output_seal(&o);
	ck_assert_uint_eq(furca_output_read(&o, 90, 20, &bytes), 10);
	ck_assert_uint_eq(furca_output_read(&o, 995, 20, &bytes), 5);
	ck_assert_int_eq(memcmp(bytes.data + 10, "56789", 5), 0);
	furca_buf_done(&bytes);
	furca_output_done(&o);
}
END_TEST

START_TEST(the_cut_falls_between_characters)
{
	struct furca_output o;

	furca_output_init(&o, 16, NULL, 0);
	for (int i = 0; i < 10; i++)
		add(&o, "äöü"); /* two bytes each */
	text_is(&o, "äöüäüäöü", 60 - 16);
	furca_output_done(&o);
	furca_output_init(&o, 16, NULL, 0);
	add(&o, "x"); /* now the head ends within a character */
	for (int i = 0; i < 10; i++)
		add(&o, "äöü");
	text_is(&o, "xäöüüäöü", 61 - 7 - 8);
	furca_output_done(&o);
}
END_TEST

START_TEST(what_is_no_utf8_is_replaced)
{
	static const struct {
		const char *bytes, *text;
	} cases[] = {
		{"a\xff"
		 "b",
		 "a\xef\xbf\xbd"
		 "b"},
		{"\xe2\x82", "\xef\xbf\xbd"}, /* cut off: one mark */
		{"\xe2\x82"
		 "x",
		 "\xef\xbf\xbd"
		 "x"},
		{"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
		{"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},		  /* overlong */
		{"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
		{"\xf5", "\xef\xbf\xbd"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct furca_buf out = FURCA_BUF_INIT;

		furca_utf8_lossy(&out, (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes));
		ck_assert_uint_eq(out.len, strlen(cases[i].text));
		ck_assert_int_eq(memcmp(out.data, cases[i].text, out.len), 0);
		furca_buf_done(&out);
	}
}
END_TEST

START_TEST(a_character_that_is_coming_waits)
{
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"ab\xe2\x82", 4), 2);
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"ab\xe2\x82\xac", 5), 5);
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"ab\xf0\x9f\x98", 5), 2);
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"ab\xff", 3), 3);
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"", 0), 0);
	ck_assert_uint_eq(furca_utf8_whole((const uint8_t *)"\xc3", 1), 0);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_test(t, short_output_is_kept_whole);
	tcase_add_test(t, long_output_keeps_head_and_tail);
	tcase_add_test(t, a_full_spill_keeps_the_tail);
	tcase_add_test(t, the_cut_falls_between_characters);
	tcase_add_test(t, what_is_no_utf8_is_replaced);
	tcase_add_test(t, a_character_that_is_coming_waits);
}

int main(void)
{
	return furca_test_main("capture", add_tests);
}
