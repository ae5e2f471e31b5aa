#include "langs/upkeep.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "snapshot/huge.h"

#include "base/banned.h"

#define SMALL_US 500 /* the clone of a process without much memory; there is nothing to gain */
/* Below that a clone that took longer shows a busy machine, and what such a session shares with its zygote stays shared. */
#define SMALL_BYTES ((uint64_t)100 << 20)
#define CREDIT_US 2000000 /* at most */
enum {
	STEP_US = 2000, /* before the last pages of a step */
	REST_COMMITS = 16
}; /* from one look at all memory to the next */

void furca_upkeep_init(struct furca_upkeep *upkeep)
{
	const char *wanted = getenv("FURCA_HUGE_PAGES");

	upkeep->off = (wanted && !strcmp(wanted, "0")) || !furca_huge_wanted();
}

void furca_upkeep_commit(struct furca_upkeep *upkeep, uint64_t bytes, int64_t clone_us, bool allowed)
{
	if (bytes >= SMALL_BYTES && clone_us > SMALL_US)
		upkeep->credit_us = FURCA_MIN(upkeep->credit_us + clone_us - SMALL_US, (int64_t)CREDIT_US);
	if (upkeep->rest > 0)
		upkeep->rest--;
	upkeep->allowed = allowed;
}

int furca_upkeep_wait(const struct furca_upkeep *upkeep)
{
	if (upkeep->off || !upkeep->allowed || upkeep->rest > 0 || upkeep->credit_us <= 0)
		return -1;
	return upkeep->begun ? FURCA_UPKEEP_STEP_MS : FURCA_UPKEEP_IDLE_MS;
}

void furca_upkeep_step(struct furca_upkeep *upkeep)
{
	int64_t begin_us = furca_now_us();

	upkeep->begun = true;
	upkeep->at = furca_huge_join(upkeep->at, STEP_US);
	upkeep->credit_us -= furca_now_us() - begin_us;
	if (upkeep->at == 0)
		upkeep->rest = REST_COMMITS;
}

void furca_upkeep_stop(struct furca_upkeep *upkeep)
{
	upkeep->begun = false;
}

void furca_upkeep_done(struct furca_upkeep *upkeep)
{
	*upkeep = (struct furca_upkeep){.off = upkeep->off};
}
