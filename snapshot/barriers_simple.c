/* No barriers; stands in until the modules that put them up are linked. Whatever is required is refused. */
#include "snapshot/barriers.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "snapshot/raw.h"

#include "base/banned.h"

#define WEAK __attribute__((weak))

struct furca_barriers {
	struct furca_barriers_args args;
};

WEAK int furca_barriers_plan(const struct furca_barriers_args *args, struct furca_barriers **ret, struct furca_err *err)
{
	struct furca_barriers *plan;

	if (args->required)
		return furca_fail(err, FURCA_E_ISOLATION, 0, "no barriers can be put up in this build");
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "cannot plan the barriers");
	plan->args = *args;
	*ret = plan;
	return 0;
}

WEAK int furca_barriers_census(struct furca_barriers *plan)
{
	(void)plan;
	return 0;
}

WEAK bool furca_barriers_new_pids(const struct furca_barriers *plan)
{
	return plan->args.cell >= 0;
}

WEAK int furca_barriers_enter(struct furca_barriers *plan)
{
	return plan->args.cell < 0 ? 0 : (int)furca_raw(SYS_setns, plan->args.cell, CLONE_NEWPID | CLONE_NEWNS);
}

WEAK int furca_barriers_apply(struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	(void)ret;
	for (size_t i = 0; i < plan->args.n_drop; i++)
		furca_raw_close(plan->args.drop[i]);
	return 0;
}

WEAK int furca_barriers_seal_thread(const struct furca_barriers *plan)
{
	(void)plan;
	return 0;
}

WEAK int furca_barriers_seal(const struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	(void)plan;
	(void)ret;
	return 0;
}

WEAK int furca_barriers_fail(const struct furca_barriers *plan, const struct furca_barriers_result *result, struct furca_err *err)
{
	(void)plan;
	return furca_fail(err, FURCA_E_ISOLATION, result->sys, "the barriers could not be put up");
}

WEAK void furca_barriers_free(struct furca_barriers *plan)
{
	free(plan);
}
