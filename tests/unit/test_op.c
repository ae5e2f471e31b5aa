#include <check.h>
#include <stdlib.h>

#include "engine/op.h"

#include "tests/unit/harness.h"

START_TEST(slots_are_reused_with_another_generation)
{
	struct furca_ops *ops;
	furca_op_id a, b, c;

	ck_assert_int_eq(furca_ops_new(sizeof(int), 2, &ops), 0);
	int *p = furca_ops_add(ops, &a);
	ck_assert_ptr_nonnull(p);
	*p = 7;
	ck_assert_ptr_nonnull(furca_ops_add(ops, &b));
	ck_assert_ptr_null(furca_ops_add(ops, &c)); /* full */
	ck_assert_int_eq(*(int *)furca_ops_find(ops, a), 7);

	furca_ops_remove(ops, a);
	furca_ops_remove(ops, a);
	ck_assert_ptr_null(furca_ops_find(ops, a));
	ck_assert_uint_eq(furca_ops_stale(ops), 1);
	ck_assert_ptr_null(furca_ops_find(ops, FURCA_OP_NONE));
	ck_assert_uint_eq(furca_ops_stale(ops), 1);

	p = furca_ops_add(ops, &c);
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(*p, 0);
	ck_assert_uint_eq((uint32_t)a, (uint32_t)c);
	ck_assert(a != c);
	ck_assert_uint_eq(furca_ops_count(ops), 2);
	furca_ops_free(ops);
}
END_TEST

START_TEST(slots_stay_where_they_are)
{
	struct furca_ops *ops;
	furca_op_id id, first;

	ck_assert_int_eq(furca_ops_new(24, 1000, &ops), 0);
	void *at = furca_ops_add(ops, &first);
	for (int i = 1; i < 1000; i++)
		ck_assert_ptr_nonnull(furca_ops_add(ops, &id));
	ck_assert_ptr_null(furca_ops_add(ops, &id));
	ck_assert_ptr_eq(furca_ops_find(ops, first), at);
	furca_ops_free(ops);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_test(t, slots_are_reused_with_another_generation);
	tcase_add_test(t, slots_stay_where_they_are);
}

int main(void)
{
	return furca_test_main("op", add);
}
