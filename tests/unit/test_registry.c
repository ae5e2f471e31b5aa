#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/registry.h"

#include "tests/unit/harness.h"

static const struct furca_lang *lang(const char *name)
{
	return furca_lang_find(name, strlen(name));
}

START_TEST(ids_are_the_lowest_never_used)
{
	struct furca_registry r;
	struct furca_entry a = {.key = {lang("python"), 0, 1}}, b = {.key = {lang("python"), 0, 3}},
			   c = {.key = {lang("python"), 0, 2}};

	furca_registry_init(&r, 20);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 0), 1);
	ck_assert_int_eq(furca_registry_add(&r, &b, NULL), 0);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 0), 1);
	ck_assert_int_eq(furca_registry_add(&r, &a, NULL), 0);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 0), 2);
	ck_assert_int_eq(furca_registry_add(&r, &c, NULL), 0);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 0), 4);
	furca_registry_remove(&r, &a);
	furca_registry_remove(&r, &b);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 0), 4); /* used once is used for good */
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("bash"), 0), 1);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("python"), 7), 1);
	furca_registry_remove(&r, &c);
	furca_registry_done(&r);
}
END_TEST

START_TEST(an_id_that_came_of_nothing_is_unused)
{
	struct furca_registry r;
	struct furca_entry e[4];

	memset(e, 0, sizeof(e));
	furca_registry_init(&r, 20);
	for (unsigned i = 0; i < 4; i++) {
		e[i].key = (struct furca_key){lang("bash"), 0, i == 3 ? 9 : i + 1};
		ck_assert_int_eq(furca_registry_add(&r, &e[i], NULL), 0);
	}
	furca_registry_undo(&r, &e[1]);
	furca_registry_undo(&r, &e[3]);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("bash"), 0), 2);
	ck_assert_ptr_null(furca_registry_by_id(&r, &e[1].key));
	ck_assert_int_eq(furca_registry_add(&r, &e[1], NULL), 0);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("bash"), 0), 4);
	furca_registry_remove(&r, &e[0]);
	ck_assert_int_eq(furca_registry_add(&r, &e[0], NULL), 0); /* which was used before */
	furca_registry_undo(&r, &e[0]);
	ck_assert_uint_eq(furca_registry_free_id(&r, lang("bash"), 0), 4);
	furca_registry_remove(&r, &e[1]);
	furca_registry_remove(&r, &e[2]);
	furca_registry_done(&r);
}
END_TEST

START_TEST(names_belong_to_one_session)
{
	struct furca_registry r;
	struct furca_entry a = {.key = {lang("python"), 0, 1}}, b = {.key = {lang("bash"), 0, 1}};

	furca_registry_init(&r, 20);
	ck_assert_int_eq(furca_registry_add(&r, &a, NULL), 0);
	ck_assert_int_eq(furca_registry_add(&r, &b, NULL), 0);
	ck_assert_int_eq(furca_registry_bind(&r, &a, furca_text_view("audit")), 0);
	ck_assert_int_eq(furca_registry_bind(&r, &a, furca_text_view("audit")), 0);
	ck_assert_int_eq(furca_registry_bind(&r, &a, furca_text_view("books")), 0);
	ck_assert_uint_eq(a.n_names, 2);
	ck_assert_ptr_eq(furca_registry_by_name(&r, furca_text_view("audit")), &a);
	ck_assert_ptr_eq(furca_registry_by_name(&r, furca_text_view("books")), &a);
	ck_assert_ptr_null(furca_registry_by_name(&r, furca_text_view("book")));
	ck_assert_ptr_eq(furca_registry_by_id(&r, &b.key), &b);
	furca_registry_unbind(&a, furca_text_view("audit"));
	furca_registry_unbind(&a, furca_text_view("audit"));
	ck_assert_uint_eq(a.n_names, 1);
	ck_assert_str_eq(a.names[0], "books");
	ck_assert_ptr_null(furca_registry_by_name(&r, furca_text_view("audit")));
	ck_assert_int_eq(furca_registry_bind(&r, &b, furca_text_view("audit")), 0);
	furca_registry_remove(&r, &a);
	furca_registry_unbind(&b, furca_text_view("audit"));
	ck_assert_ptr_null(furca_registry_by_name(&r, furca_text_view("audit")));
	furca_registry_remove(&r, &b);
	furca_registry_done(&r);
}
END_TEST

START_TEST(the_limit_holds)
{
	struct furca_registry r;
	struct furca_entry entries[3];
	struct furca_err err = FURCA_ERR_INIT;

	memset(entries, 0, sizeof(entries));
	furca_registry_init(&r, 2);
	for (unsigned i = 0; i < 3; i++) {
		entries[i].key = (struct furca_key){lang("python"), 0, i};
		int rc = furca_registry_add(&r, &entries[i], &err);
		ck_assert_int_eq(rc < 0, i == 2);
	}
	ck_assert_ptr_nonnull(strstr(err.suggestion, "close_session"));
	for (unsigned i = 0; i < 2; i++)
		furca_registry_remove(&r, &entries[i]);
	furca_registry_done(&r);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_test(t, ids_are_the_lowest_never_used);
	tcase_add_test(t, an_id_that_came_of_nothing_is_unused);
	tcase_add_test(t, names_belong_to_one_session);
	tcase_add_test(t, the_limit_holds);
}

int main(void)
{
	return furca_test_main("registry", add);
}
