/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Compiled, never run, by check-bash-abi.sh with one release's own headers: what langs/bash/bash_abi.h mirrors must be laid
 * out alike, and what it declares must have the same type.
 */
#include <config.h>

#include "builtins.h"
#include "shell.h"
#include "bashjmp.h"
#include "jobs.h"
#include "alias.h"
#include "common.h"

#include <stddef.h>

/* Ours, under other names. */
#define WORD_DESC ours_WORD_DESC
#define word_desc ours_word_desc
#define WORD_LIST ours_WORD_LIST
#define word_list ours_word_list
#define COMMAND ours_COMMAND
#define command ours_command
#define sh_builtin_func_t ours_sh_builtin_func_t
#define SigHandler ours_SigHandler
#define builtin ours_builtin
#define SHELL_VAR ours_SHELL_VAR
#define variable ours_variable
#define alias_t ours_alias_t
#define alias ours_alias
#define PROCESS ours_PROCESS
#define process ours_process
#define JOB ours_JOB
#define job ours_job
#define jobstats ours_jobstats

enum {
	THEIRS_EXPORTED = att_exported,
	THEIRS_READONLY = att_readonly,
	THEIRS_ARRAY = att_array,
	THEIRS_INTEGER = att_integer,
	THEIRS_ASSOC = att_assoc,
	THEIRS_TRACE = att_trace,
	THEIRS_UPPER = att_uppercase,
	THEIRS_LOWER = att_lowercase,
	THEIRS_CAP = att_capcase,
	THEIRS_NAMEREF = att_nameref,
	THEIRS_INVISIBLE = att_invisible,
	THEIRS_IMPORTED = att_imported,
	THEIRS_RUNNING = JRUNNING,
	THEIRS_STOPPED = JSTOPPED,
	THEIRS_DEAD = JDEAD,
	THEIRS_FOREGROUND = J_FOREGROUND,
	THEIRS_EOF = FORCE_EOF,
	THEIRS_DISCARD = DISCARD,
	THEIRS_EXITPROG = EXITPROG,
	THEIRS_ERREXIT = ERREXIT,
	THEIRS_USAGE = EX_USAGE,
	THEIRS_ENABLED = BUILTIN_ENABLED,
#ifdef EXITBLTIN
	THEIRS_EXITBLTIN = EXITBLTIN,
#else
	THEIRS_EXITBLTIN = 6,
#endif
};
#undef att_exported
#undef att_readonly
#undef att_array
#undef att_integer
#undef att_assoc
#undef att_trace
#undef att_uppercase
#undef att_lowercase
#undef att_capcase
#undef att_nameref
#undef att_invisible
#undef att_imported
#undef J_FOREGROUND
#undef BUILTIN_ENABLED
#undef EXECUTION_SUCCESS
#undef EXECUTION_FAILURE
#undef EX_USAGE
#undef FORCE_EOF
#undef DISCARD
#undef EXITPROG
#undef ERREXIT
#undef EXITBLTIN
#undef SIGEXIT
#undef NOT_JUMPED
#define JRUNNING OURS_JRUNNING
#define JSTOPPED OURS_JSTOPPED
#define JDEAD OURS_JDEAD

/* The types that the functions and variables below are declared with are theirs. */
#define FURCA_BASH_ABI_TYPES_ONLY
#include "langs/bash/bash_abi.h"

#undef WORD_DESC
#undef WORD_LIST
#undef SHELL_VAR
#undef alias_t
#undef PROCESS
#undef JOB
#undef jobstats
#undef builtin

#define SAME(theirs, field, ours, name)                                                                                \
	_Static_assert(offsetof(theirs, field) == offsetof(ours, name), #theirs "." #field);                           \
	_Static_assert(sizeof(((theirs *)0)->field) == sizeof(((ours *)0)->name), "size of " #theirs "." #field)
#define VALUE(theirs, ours) _Static_assert((int)(theirs) == (int)(ours), #ours)
#define TYPE(thing, type) _Static_assert(__builtin_types_compatible_p(__typeof__(thing), __typeof__(type)), #thing)

SAME(WORD_DESC, word, ours_WORD_DESC, word);
SAME(WORD_LIST, next, ours_WORD_LIST, next);
SAME(WORD_LIST, word, ours_WORD_LIST, word);
SAME(struct builtin, name, struct ours_builtin, name);
SAME(struct builtin, function, struct ours_builtin, function);
SAME(struct builtin, flags, struct ours_builtin, flags);
SAME(struct builtin, long_doc, struct ours_builtin, long_doc);
SAME(struct builtin, short_doc, struct ours_builtin, short_doc);
SAME(struct builtin, handle, struct ours_builtin, handle);
_Static_assert(sizeof(struct builtin) == sizeof(struct ours_builtin), "the table of builtins");
SAME(SHELL_VAR, name, ours_SHELL_VAR, name);
SAME(SHELL_VAR, value, ours_SHELL_VAR, value);
SAME(SHELL_VAR, dynamic_value, ours_SHELL_VAR, dynamic_value);
SAME(SHELL_VAR, attributes, ours_SHELL_VAR, attributes);
SAME(alias_t, name, ours_alias_t, name);
SAME(alias_t, value, ours_alias_t, value);
SAME(PROCESS, next, ours_PROCESS, next);
SAME(PROCESS, pid, ours_PROCESS, pid);
SAME(PROCESS, running, ours_PROCESS, running);
#undef command
SAME(PROCESS, command, ours_PROCESS, ours_command);
SAME(JOB, pipe, ours_JOB, processes);
SAME(JOB, pgrp, ours_JOB, pgrp);
SAME(JOB, state, ours_JOB, state);
SAME(JOB, flags, ours_JOB, flags);
SAME(struct jobstats, c_living, struct ours_jobstats, c_living);
SAME(struct jobstats, c_reaped, struct ours_jobstats, c_reaped);
SAME(struct jobstats, j_jobslots, struct ours_jobstats, j_jobslots);
SAME(struct jobstats, j_ndead, struct ours_jobstats, j_ndead);

VALUE(THEIRS_EXPORTED, att_exported);
VALUE(THEIRS_READONLY, att_readonly);
VALUE(THEIRS_ARRAY, att_array);
VALUE(THEIRS_INTEGER, att_integer);
VALUE(THEIRS_ASSOC, att_assoc);
VALUE(THEIRS_TRACE, att_trace);
VALUE(THEIRS_UPPER, att_uppercase);
VALUE(THEIRS_LOWER, att_lowercase);
VALUE(THEIRS_CAP, att_capcase);
VALUE(THEIRS_NAMEREF, att_nameref);
VALUE(THEIRS_INVISIBLE, att_invisible);
VALUE(THEIRS_IMPORTED, att_imported);
VALUE(THEIRS_RUNNING, OURS_JRUNNING);
VALUE(THEIRS_STOPPED, OURS_JSTOPPED);
VALUE(THEIRS_DEAD, OURS_JDEAD);
VALUE(THEIRS_FOREGROUND, J_FOREGROUND);
VALUE(THEIRS_EOF, FORCE_EOF);
VALUE(THEIRS_DISCARD, DISCARD);
VALUE(THEIRS_EXITPROG, EXITPROG);
VALUE(THEIRS_ERREXIT, ERREXIT);
VALUE(THEIRS_EXITBLTIN, EXITBLTIN);
VALUE(THEIRS_USAGE, EX_USAGE);
VALUE(THEIRS_ENABLED, BUILTIN_ENABLED);

_Static_assert(sizeof(procenv_t) == sizeof(sigjmp_buf), "top_level");
TYPE(interrupt_state, (volatile sig_atomic_t){0});
TYPE(startup_state, (int){0});
TYPE(shell_pgrp, (pid_t){0});
TYPE(last_command_subst_pid, (pid_t){0});
TYPE(jobs, (JOB **){0});
TYPE(js, (struct jobstats){0});
