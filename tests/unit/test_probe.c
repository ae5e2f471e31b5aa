/* What the probe says is there can be used; what a filter takes away is said to be missing. */
#include <check.h>
#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/barriers.h"
#include "snapshot/landlock.h"
#include "snapshot/probe.h"

#include "base/banned.h"

#include "tests/unit/harness.h"

static const struct furca_probe_row *row_of(const struct furca_probe *probe, const char *feature)
{
	for (int i = 0; i < probe->rows; i++)
		if (strcmp(probe->row[i].feature, feature) == 0)
			return &probe->row[i];
	ck_abort_msg("no row %s", feature);
	return NULL;
}

START_TEST(rows_are_complete)
{
	const struct furca_probe *probe, *again;
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_int_eq(furca_probe(&probe, &err), 0);
	ck_assert_int_eq(furca_probe(&again, &err), 0);
	ck_assert_ptr_eq(probe, again);
	ck_assert_int_ge(probe->rows, 15);
	for (int i = 0; i < probe->rows; i++) {
		const struct furca_probe_row *row = &probe->row[i];

		printf("%-36s %-12s %-4s %s\n", row->feature, row->guarantee, row->there ? "yes" : "no", row->detail);
		ck_assert(row->feature && row->lost && row->lost[strlen(row->lost) - 1] == '.');
		ck_assert(strcmp(row->guarantee, "speed") == 0 ||
			  furca_barrier_bit(row->guarantee, strlen(row->guarantee)) >= 0);
		ck_assert(row->there || row->detail[0]);
	}
	printf("barriers 0x%x\n", probe->barriers);
	ck_assert_uint_eq(probe->barriers & FURCA_BARRIER_MEMORY, FURCA_BARRIER_MEMORY);
}
END_TEST

/* Refuses new namespaces, as a container's own filter does. */
static void forbid_namespaces(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	static const unsigned flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,
					 CLONE_NEWNET,	CLONE_NEWIPC, CLONE_NEWUTS};

	ck_assert_ptr_nonnull(filter);
	for (size_t i = 0; i < FURCA_COUNT(flags); i++) {
		ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
						  SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i])),
				 0);
		ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
						  SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i])),
				 0);
	}
	ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), 0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

START_TEST(without_namespaces_landlock_stands_in)
{
	const struct furca_probe *probe;
	struct furca_err err = FURCA_ERR_INIT;

	forbid_namespaces();
	ck_assert_int_eq(furca_probe(&probe, &err), 0);
	ck_assert(!row_of(probe, "user namespaces")->there);
	ck_assert(!row_of(probe, "overlayfs in a cell")->there);
	ck_assert(!row_of(probe, "clone3 set_tid")->there);
	ck_assert_uint_eq(probe->barriers & FURCA_BARRIER_THREADS, 0);
	ck_assert_int_eq((probe->barriers & FURCA_BARRIER_DISK) != 0, furca_landlock_abi() >= FURCA_LANDLOCK_DISK);
}
END_TEST

static void add(TCase *all)
{
	tcase_set_timeout(all, 30);
	tcase_add_test(all, rows_are_complete);
	tcase_add_test(all, without_namespaces_landlock_stands_in);
}

int main(void)
{
	return furca_test_main("probe", add);
}
