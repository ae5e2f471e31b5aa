#include <check.h>

#include "bridge/wire/pack.h"
#include "engine/done.h"

#include "tests/unit/harness.h"

static struct furca_buf buf;
static msgpack_packer pk;

static void begin(uint32_t fields)
{
	furca_buf_clear(&buf);
	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, fields);
}

static struct furca_done end(void)
{
	struct furca_done done;

	furca_done_read(furca_buf_view(&buf), &done);
	return done;
}

START_TEST(fields_are_found_in_any_order)
{
	begin(6);
	furca_pack_entry(&pk, "remedy", "none");
	furca_pack_text(&pk, "run_us");
	msgpack_pack_uint64(&pk, 70000);
	furca_pack_text(&pk, "of a later release");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 0);
	furca_pack_text(&pk, "exit_code");
	msgpack_pack_int(&pk, -3);
	furca_pack_text(&pk, "changed");
	msgpack_pack_false(&pk);
	furca_pack_entry(&pk, "how", "ok");
	struct furca_done done = end();
	ck_assert(furca_view_is(done.how, "ok"));
	ck_assert(furca_view_is(done.remedy, "none"));
	ck_assert_uint_eq(done.run_us, 70000);
	ck_assert_int_eq(furca_done_status(&done, 9), -3);
	ck_assert(!done.changed && done.redirected && !done.pages);
	ck_assert_ptr_null(done.error.at);
}
END_TEST

START_TEST(values_are_passed_on_as_they_are)
{
	begin(3);
	furca_pack_text(&pk, "changes");
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "added");
	msgpack_pack_array(&pk, 1);
	furca_pack_text(&pk, "x");
	furca_pack_text(&pk, "result");
	msgpack_pack_nil(&pk);
	furca_pack_text(&pk, "display");
	msgpack_pack_array(&pk, 0);
	struct furca_done done = end();
	ck_assert_uint_eq(furca_view_size(done.changes), 1 + 6 + 1 + 2);
	ck_assert_uint_eq(furca_view_size(done.result), 1);
	ck_assert_uint_eq(furca_view_size(done.display), 1);
}
END_TEST

START_TEST(another_kind_is_as_missing)
{
	begin(5);
	furca_pack_entry(&pk, "run_us", "long");
	furca_pack_entry(&pk, "changed", "no");
	furca_pack_entry(&pk, "changes", "all");
	furca_pack_entry(&pk, "exit_code", "0");
	furca_pack_text(&pk, "error");
	msgpack_pack_nil(&pk);
	struct furca_done done = end();
	ck_assert_uint_eq(done.run_us, 0);
	ck_assert(done.changed);
	ck_assert_ptr_null(done.changes.at);
	ck_assert_ptr_null(done.error.at);
	ck_assert_int_eq(furca_done_status(&done, 9), 9);
	begin(0);
	done = end();
	ck_assert_int_eq(furca_done_status(&done, 9), 9);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, fields_are_found_in_any_order);
	tcase_add_test(t, values_are_passed_on_as_they_are);
	tcase_add_test(t, another_kind_is_as_missing);
}

int main(void)
{
	return furca_test_main("done", add);
}
