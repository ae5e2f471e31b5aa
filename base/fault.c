#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/banned.h"

static const struct {
	const char *name, *where;
} points[FURCA_FAULT_MAX] = {
#define FAULT(name, where) [FURCA_FAULT_##name] = {#name, where},
#include "base/fault.def"
#undef FAULT
};

const char *furca_fault_name(enum furca_fault point)
{
	return points[point].name;
}

const char *furca_fault_where(enum furca_fault point)
{
	return points[point].where;
}

#ifndef FURCA_NO_FAULTS
static int armed = -1;
static long passages;
static enum { ACTION_KILL, ACTION_FAIL, ACTION_STOP } action;

void furca_fault_init(void)
{
	const char *text = getenv("FURCA_FAULT");

	armed = -1;
	if (!text)
		return;
	size_t n = strcspn(text, ":");
	for (int i = 0; i < FURCA_FAULT_MAX; i++)
		if (strlen(points[i].name) == n && strncasecmp(points[i].name, text, n) == 0)
			armed = i;
	passages = 1;
	action = ACTION_KILL;
	for (text += n; *text == ':'; text += n) {
		text++;
		n = strcspn(text, ":");
		if (*text >= '0' && *text <= '9')
			passages = strtol(text, NULL, 10);
		else
			action = strncmp(text, "fail", n) == 0	 ? ACTION_FAIL
				 : strncmp(text, "stop", n) == 0 ? ACTION_STOP
								 : ACTION_KILL;
	}
}

int furca_fault(enum furca_fault point)
{
	if ((int)point != armed || --passages != 0)
		return 0;
	if (action == ACTION_FAIL)
		return -EIO;
	(void)kill(getpid(), action == ACTION_STOP ? SIGSTOP : SIGKILL);
	if (action == ACTION_KILL)
		_exit(128 + SIGKILL); /* pid 1 of a namespace does not receive its own */
	return 0;
}
#endif
