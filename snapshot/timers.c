#include "snapshot/timers.h"

#include <stdbool.h>
#include <sys/time.h>

#include "snapshot/raw.h"

#include "base/banned.h"

static const int kinds[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

static struct {
	struct itimerval left[3];
	bool still; /* they are noted and not set */
} timers;

void furca_timers_note(void)
{
	for (int i = 0; i < 3 && !timers.still; i++)
		furca_raw(SYS_getitimer, kinds[i], &timers.left[i]);
}

void furca_timers_born(void)
{
	timers.still = true;
}

void furca_timers_start(void)
{
	for (int i = 0; i < 3 && timers.still; i++)
		if (timers.left[i].it_value.tv_sec || timers.left[i].it_value.tv_usec)
			furca_raw(SYS_setitimer, kinds[i], &timers.left[i], NULL);
	timers.still = false;
}
