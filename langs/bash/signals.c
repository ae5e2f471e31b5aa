/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Signals that would end a non-interactive bash end the call instead, and the interrupt ends it whatever it does.
 *
 * The interrupt (signal 58, sent to this process only) works where SIGINT is trapped or ignored. It sets what bash's own
 * SIGINT handler sets, so that bash leaves at its next QUIT, and passes SIGINT on to the call's foreground processes. A timer
 * brings it again while the call goes on; the foreground processes that are still there then get SIGKILL. Background jobs are
 * spared: without job control they ignore SIGINT, with it they are not in our process group, and the job table tells them apart.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/wire/host.h"
#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define AGAIN_US 300000	     /* from one passage of an interrupt to the next */
#define KILL_AFTER_US 700000 /* from the interrupt to SIGKILL of what is in the foreground */
#define MAX_FAMILY 512	     /* processes that one passage looks at */

static const int ending[] = {SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2, SIGPIPE, SIGXCPU, SIGXFSZ, SIGVTALRM};

/* bash's handlers of these would run the EXIT trap, whose effects would outlive the return to the last commit. */
static const int crashing[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};

static bool armed;
static int timer = -1;		  /* kernel timer of this process */
static int64_t interrupted_at_us; /* when this call's first interrupt came */

/* Ends the call at bash's next look. Async-signal-safe. */
static void end_call(int sig)
{
	if (interrupt_state == 0)
		interrupt_state = 1;
	if (&wait_intr_flag && wait_intr_flag) { /* in the wait builtin */
		last_command_exit_value = 128 + sig;
		if (&wait_signal_received)
			wait_signal_received = sig;
	}
}

/* A forked child of the shell dies of the signal, as it would without us. */
static void die_of(int sig)
{
	struct sigaction act = {.sa_handler = SIG_DFL};
	sigset_t set;

	(void)sigaction(sig, &act, NULL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, sig);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	(void)kill(getpid(), sig);
}

static void on_ending(int sig)
{
	int saved = errno;

	if (!furca_bash_is_host()) {
		die_of(sig);
	} else if (furca_bash.phase != FURCA_BASH_IDLE) {
		furca_bash.ended_by = sig;
		end_call(sig);
	}
	errno = saved;
}

/* Everything below is raw: it runs in a signal handler. */

static size_t put_number(char *to, unsigned long n)
{
	char digits[20];
	size_t k = 0;

	do
		digits[k++] = (char)('0' + n % 10);
	while (n /= 10);
	for (size_t i = 0; i < k; i++)
		to[i] = digits[k - 1 - i];
	return k;
}

static size_t put_text(char *to, const char *text)
{
	size_t n = strlen(text);

	memcpy(to, text, n);
	return n;
}

/* The start of /proc/<pid>/<name>; its length, 0 where it cannot be read. */
static size_t read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];
	size_t n = put_text(path, "/proc/");

	n += put_number(path + n, (unsigned long)pid);
	n += put_text(path + n, name);
	path[n] = '\0';
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, buf, size - 1);
	(void)close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

/* Appends the children of `pid` to `list`. */
static size_t add_children(pid_t pid, pid_t *list, size_t n)
{
	static char buf[4096];
	char name[40];
	size_t k = put_text(name, "/task/");

	k += put_number(name + k, (unsigned long)pid);
	k += put_text(name + k, "/children");
	name[k] = '\0';
	if (read_proc(pid, name, buf, sizeof(buf)) == 0)
		return n;
	for (const char *p = buf; *p && n < MAX_FAMILY;) {
		char *end;
		long child = strtol(p, &end, 10);

		if (end == p)
			break;
		if (child > 0)
			list[n++] = (pid_t)child;
		p = end;
	}
	return n;
}

static bool ignores_sigint(pid_t pid)
{
	static char buf[2048];
	const char *p;

	if (read_proc(pid, "/status", buf, sizeof(buf)) == 0)
		return true;
	p = strstr(buf, "SigIgn:");
	return p && (strtoull(p + 7, NULL, 16) >> (SIGINT - 1) & 1);
}

/* Whether a child of the shell belongs to the call's foreground. */
static bool in_foreground(pid_t child)
{
	int job = get_job_by_pid(child, 0, NULL);

	if (job >= 0)
		return jobs[job]->flags & J_FOREGROUND;
	if (child == last_command_subst_pid)
		return true;
	return getpgid(child) == getpgrp() && !ignores_sigint(child);
}

/* SIGINT, or SIGKILL, to the foreground children of the shell and, with SIGKILL, all below them. */
static void pass_on(int sig)
{
	static pid_t children[MAX_FAMILY], family[MAX_FAMILY];
	size_t n = add_children(getpid(), children, 0);

	for (size_t i = 0; i < n; i++) {
		pid_t group;
		size_t m = 0;

		if (!in_foreground(children[i]))
			continue;
		group = getpgid(children[i]);
		if (sig != SIGKILL) {
			if (group != getpgrp()) /* the rest has been reached by kill(0) */
				(void)kill(group == children[i] ? -group : children[i], sig);
			(void)kill(children[i], SIGCONT);
			continue;
		}
		family[m++] = children[i];
		for (size_t k = 0; k < m; k++)
			m = add_children(family[k], family, m);
		while (m > 0)
			(void)kill(family[--m], SIGKILL);
	}
}

static void timer_set(int64_t us)
{
	struct itimerspec t = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = FURCA_HOST_INTERRUPT};

	if (timer < 0 && us > 0 && syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) < 0)
		timer = -1;
	if (timer >= 0)
		(void)syscall(SYS_timer_settime, timer, 0, &t, NULL);
}

/* A process with a POSIX timer is not cloned, for clones would not have it. */
static void timer_end(void)
{
	if (timer >= 0)
		(void)syscall(SYS_timer_delete, timer);
	timer = -1;
}

/*
 * To the whole process group but us: a trap of the session's on SIGINT would make bash forget the interrupt. All signals are
 * blocked here, and our own one is taken back before it is delivered.
 */
static void group_sigint(void)
{
	static const struct timespec now;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)kill(0, SIGINT);
	(void)sigtimedwait(&set, NULL, &now);
}

static void on_interrupt(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	int saved = errno;
	int64_t now_us = furca_now_us();

	if (!furca_bash_is_host()) {
		die_of(sig);
		errno = saved;
		return;
	}
	if (info->si_code == SI_QUEUE)
		furca_bash.interrupted = info->si_value.sival_int;
	/* Between calls, or for one that has ended; one for a call that is about to begin is found by furca_bash_signals_begin. */
	if (furca_bash.phase == FURCA_BASH_IDLE ||
	    (info->si_code == SI_QUEUE && info->si_value.sival_int != furca_bash.call)) {
		errno = saved;
		return;
	}
	if (furca_bash.interrupts == 0) {
		interrupted_at_us = now_us;
		furca_bash.hung = furca_bash.commands == 0 && in_debug_trap();
	}
	furca_bash.interrupts = furca_bash.interrupts + 1;
	end_call(SIGINT);
	if (now_us - interrupted_at_us < KILL_AFTER_US)
		group_sigint();
	/* While bash has SIGCHLD blocked its job table may be half changed: the timer comes back. */
	if (furca_bash.waiting || !sigismember(&interrupted->uc_sigmask, SIGCHLD))
		pass_on(now_us - interrupted_at_us < KILL_AFTER_US ? SIGINT : SIGKILL);
	timer_set(AGAIN_US);
	errno = saved;
}

void furca_bash_signals_begin(void)
{
	if (furca_bash.interrupts || !furca_bash.call || furca_bash.interrupted != furca_bash.call)
		return;
	furca_bash.interrupts = 1;
	end_call(SIGINT);
}

void furca_bash_signals_arm(void)
{
	struct sigaction act = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO};

	if (armed && !furca_bash.handlers_changed)
		return;
	for (size_t i = 0; i < FURCA_COUNT(ending); i++)
		if (!signal_is_trapped(ending[i]))
			(void)set_signal_handler(ending[i], on_ending);
	if (!signal_is_trapped(SIGINT))
		(void)set_signal_handler(SIGINT, sigint_sighandler);
	for (size_t i = 0; i < FURCA_COUNT(crashing); i++)
		if (!signal_is_trapped(crashing[i]))
			(void)set_signal_handler(crashing[i], SIG_DFL);
	/* Not restarting: bash has to come back from waitpid and from opening a fifo. */
	(void)sigfillset(&act.sa_mask);
	(void)sigaction(FURCA_HOST_INTERRUPT, &act, NULL);
	armed = true;
	furca_bash.handlers_changed = 0;
}

void furca_bash_signals_init(void)
{
	/*
	 * The order matters. Our handlers become the original ones, so that `trap - TERM` comes back to them; then bash
	 * installs the handlers that it would install at the first `trap ... EXIT`, which it does only once; then ours go over
	 * them.
	 */
	for (size_t i = 0; i < FURCA_COUNT(ending); i++)
		set_original_signal(ending[i], on_ending);
	set_original_signal(SIGINT, sigint_sighandler);
	initialize_terminating_signals();
	furca_bash_signals_arm();
}

void furca_bash_signals_rest(void)
{
	if (furca_bash.interrupts == 0)
		return;
	timer_end();
	if (clear_pending_traps) /* the SIGINT that reached us too */
		clear_pending_traps();
}

void furca_bash_signals_cloned(void)
{
	timer = -1;
}
