/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the parts of furca-bash.so share: the one process-wide state, and the functions each part gives to the others. All of
 * it runs on bash's only thread; handlers and hooks touch only what is marked so.
 *
 *   builtin.c     the builtin `furca_host`: what the host loop (langs/host.h) calls
 *   call.c        one block of code run at top level, and how it ended
 *   signals.c     signals that end a call, the interrupt
 *   hooks.c       bash's own calls of exit, execve, close ... that must not end the session
 *   setup.c       cwd and environment of a call
 *   jobs.c        jobs that a clone has in its table but not as children
 *   inspect.c     the description of the shell's state
 *   given.c       what of it was there before the first call
 *   warm.c        a waiting copy takes its page faults in advance
 *   capability.c  the builtins `capability` and `furca-fn`
 */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/value.h"
#include "langs/host.h"

/* How a block of code ended; the words of DONE's `how` stand in call.c. */
enum furca_bash_how {
	FURCA_BASH_OK,
	FURCA_BASH_EXIT,
	FURCA_BASH_ERREXIT,
	FURCA_BASH_FATAL,
	FURCA_BASH_SYNTAX,
	FURCA_BASH_SIGNAL,
	FURCA_BASH_EXEC,
	FURCA_BASH_INTERRUPTED,
};

enum furca_bash_phase {
	FURCA_BASH_IDLE, /* between calls */
	FURCA_BASH_CALL, /* code runs, `top` may be jumped to */
	FURCA_BASH_TRAP, /* the EXIT trap runs: interrupts reach it, `top` is no place to go */
};

struct furca_bash {
	struct furca_host host;		/* the loop; its channels are hidden from code */
	bool copy;			/* a clone whose EXIT trap was its session's */
	char *exit_trap;		/* the session's EXIT trap while disarmed, for trap -p; owned by bash's table */
	volatile sig_atomic_t phase;	/* enum furca_bash_phase; read by handlers */
	volatile sig_atomic_t ended_by; /* the signal that ended the call, or 0; written by handlers */
	volatile sig_atomic_t call,
		interrupted; /* furca_host_interrupt_value: of the call under way, and the last that was interrupted */
	volatile sig_atomic_t interrupts; /* how often this call was interrupted; written by handlers */
	volatile sig_atomic_t
		hung;	/* the interrupt found the DEBUG trap running, and no command had run; written by handlers */
	unsigned hangs; /* calls in a row of which that is so */
	volatile sig_atomic_t handlers_changed; /* by bash, since ours were put in place */
	volatile sig_atomic_t waiting;		/* in waitpid */
	volatile sig_atomic_t mask_changed;	/* signals may be blocked that are not between calls */
	bool foreign;				/* objects were loaded: code that is not bash's may have run */
	unsigned commands;			/* of this call that have run to their end, at top level */
	int ended_as;				/* enum furca_bash_how, set by a hook; 0: none did */
	int saved[3];	/* 0, 1, 2 as they were when the call began; -1: not changed since, or closed */
	bool saves[3];	/* whether `saved` has been looked at in this call */
	sigjmp_buf top; /* of the call; bash moves its own about */
};
extern struct furca_bash furca_bash;

/* Whether this process is the host, and no child that bash forked. Async-signal-safe. */
static inline bool furca_bash_is_host(void)
{
	return furca_host_is_self(&furca_bash.host);
}

/* What a call's end looks like. */
struct furca_bash_end {
	enum furca_bash_how how;
	int status;
	int term_signal;   /* with SIGNAL */
	bool trap_removed; /* a DEBUG trap that ended every call was dropped */
};

/* call.c */

/* Runs NUL-terminated, malloc'ed or static `code` as the lines of a script; `code` is borrowed. Blocks while it runs. */
void furca_bash_run(char *code, struct furca_bash_end *ret);
/* Runs the EXIT trap, where there is one, after a call that ended so; its exit status replaces the call's. */
void furca_bash_run_exit_trap(struct furca_bash_end *end);
/* The word of DONE's `how`, and a sentence for a model (a static or thread-unsafe buffer), NULL for an orderly end. */
const char *furca_bash_how_word(enum furca_bash_how how);
const char *furca_bash_how_text(const struct furca_bash_end *end);

/* builtin.c: whether objects were loaded into this process since the first call. */
bool furca_bash_has_loaded(void);

/* signals.c */

/* Once, in the zygote. */
void furca_bash_signals_init(void);
/* Before each call, and after bash has changed handlers. */
void furca_bash_signals_arm(void);
/* When the call is under way: an interrupt for it may have come already. */
void furca_bash_signals_begin(void);
/* After each call: no escalation goes on, no trap of an interrupt is left for the next call. */
void furca_bash_signals_rest(void);
/* In a new clone: timers are not inherited. Raw. */
void furca_bash_signals_cloned(void);

/* hooks.c */

/* Redirects bash's own procedure linkage slots. Their number, or -ENOTSUP where bash's ELF form is unknown. */
int furca_bash_hooks_init(struct furca_err *err);
/* Code has its own limit of open descriptors only while it runs; between calls the host has all that can be had. */
void furca_bash_limit_begin(void);
void furca_bash_limit_end(void);
/* The session's EXIT trap does not run in clones that are not the session; PROMOTE arms it again. */
void furca_bash_disarm_exit_trap(void);
void furca_bash_rearm_exit_trap(void);

/* jobs.c */

/* Once, in the zygote: `wait` says why it cannot wait for what is no child. */
void furca_bash_jobs_init(void);
/* In a clone that keeps its session's jobs, which are not its children: nobody will know with what status they ended. */
void furca_bash_jobs_cloned(void);
/* Such a clone is the session from now on. */
void furca_bash_jobs_adopt(void);
/* Before a call: adopted jobs that have ended are told as done. */
void furca_bash_jobs_refresh(void);

/*
 * setup.c: RUN's `cwd` and `env` (views of the frame), before the code. 0 or -errno with *err: FURCA_E_VALIDATION where nothing was changed.
 * The environment is checked before it is set.
 */
int furca_bash_check_env(struct furca_view map, struct furca_err *err);
int furca_bash_set_cwd(struct furca_view path, struct furca_err *err);
int furca_bash_set_env(struct furca_view map, struct furca_err *err);
/* Code that defines and calls a stored function: RUN's `function`. malloc'ed, or NULL with *err. */
char *furca_bash_function_code(struct furca_view function, struct furca_err *err);

/* inspect.c: packs the state to `out`; `detail` is "summary", "names" or "full". For a copy: runs no user code. */
void furca_bash_inspect(struct furca_buf *out, struct furca_view detail, struct furca_view name);

/* given.c */

typedef struct variable SHELL_VAR; /* bash_abi.h */

/* Once, in the zygote, when all is as the first call finds it. */
void furca_bash_given_init(void);
/* Whether it was there then with this value and these attributes, or is one that bash changes by itself. */
bool furca_bash_is_given(const SHELL_VAR *var);
/* The text of its value, NULL where it has none; *ret_list (free()) holds that of an array. */
const char *furca_bash_value(const SHELL_VAR *var, char **ret_list);
/* Calls `take` for each option of set and shopt that is on and was off then, or the other way about. */
void furca_bash_options_changed(void (*take)(void *user, const char *word, size_t n), void *user);

/* warm.c */
void furca_bash_warm(void);
