/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A promoted snapshot has the session's jobs in its table, but they were children of the process that it replaced: no SIGCHLD
 * tells their end. bash itself copes with waiting for what is no child; what is done here is to notice that they have ended.
 */
#include <errno.h>
#include <signal.h>

#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

static int adopted; /* jobs that may still run */

void furca_bash_jobs_adopt(void)
{
	adopted = 0;
	for (int i = 0; i < js.j_jobslots; i++)
		adopted += jobs[i] && jobs[i]->state != JDEAD;
	furca_bash_jobs_refresh();
}

static bool any_alive(const JOB *job)
{
	const PROCESS *p = job->processes;

	do {
		if (p->running && (kill(p->pid, 0) == 0 || errno != ESRCH))
			return true;
		p = p->next;
	} while (p && p != job->processes);
	return false;
}

/* What bash's waitchld does when the last process of a job has ended; nobody knows with what status. */
static void mark_dead(JOB *job)
{
	PROCESS *p = job->processes;

	do {
		if (p->running) {
			p->running = 0;
			js.c_living--;
			js.c_reaped++;
		}
		p = p->next;
	} while (p && p != job->processes);
	job->state = JDEAD;
	js.j_ndead++;
}

void furca_bash_jobs_refresh(void)
{
	int left = 0;
	sigset_t child, before;

	if (adopted == 0)
		return;
	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &child, &before);
	for (int i = 0; i < js.j_jobslots; i++) {
		if (!jobs[i] || !jobs[i]->processes || jobs[i]->state == JDEAD)
			continue;
		if (any_alive(jobs[i]))
			left++;
		else
			mark_dead(jobs[i]);
	}
	adopted = left;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}
