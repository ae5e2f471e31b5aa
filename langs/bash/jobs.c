/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A copy and a promoted snapshot have the session's jobs in their table, but these are children of another process: no SIGCHLD
 * tells their end, and nobody can wait for them. In a promoted snapshot their end is noticed here; `wait` for one that has not
 * ended, which gives -1 in bash, is an error that says why.
 */
#include <errno.h>
#include <signal.h>

#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define STATUS_UNKNOWN 127 /* as for a process that is no child of the shell */

static int adopted; /* jobs that may still run */

void furca_bash_jobs_cloned(void)
{
	for (int i = 0; i < js.j_jobslots; i++) {
		PROCESS *first = jobs[i] ? jobs[i]->processes : NULL, *p = first;

		while (p) {
			if (p->running == 1) /* else it says how it ended, or what stopped it */
				p->status = STATUS_UNKNOWN << 8;
			p = p->next == first ? NULL : p->next;
		}
	}
}

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

/* What bash's waitchld does when the last process of a job has ended. */
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

/* Under bash's own name, which its signal handlers compare with. */
static int wait_for_jobs(WORD_LIST *list)
{
	this_shell_builtin = wait_builtin;
	int status = wait_builtin(list);

	if (status != -1)
		return status;
	builtin_error(
		furca_bash.host.role == FURCA_CLONE_COPY
			? "a job of the session is no child of the copy that a read-only call runs in"
			: "the job was started before the session went back to its last commit: it is no child any more");
	return STATUS_UNKNOWN;
}

void furca_bash_jobs_init(void)
{
	for (int i = 0; i < num_shell_builtins; i++)
		if (shell_builtins[i].function == wait_builtin)
			shell_builtins[i].function = wait_for_jobs;
}
