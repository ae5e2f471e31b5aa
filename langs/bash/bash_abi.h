/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The part of bash's internal interface that the builtin uses, written by hand: furca-bash.so builds without bash headers,
 * and one binary loads into bash 5.0 to 5.3. tests/check-bash-abi.sh compares it with the headers of an installed bash-builtins
 * package. Structures are mirrored only as far as they are read.
 *
 * Strong symbols are bound at load time (-z now): a bash that lacks one refuses `enable -f`. Symbols that are not in every
 * release are weak, so that their address is null where they are missing.
 */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define FURCA_BASH_OLDEST 500 /* 4.4 would hand foreign functions of the environment on to children */
#define FURCA_BASH_NEWEST 503 /* 5.3 */

typedef struct word_desc {
	char *word;
	int flags;
} WORD_DESC;

typedef struct word_list {
	struct word_list *next;
	WORD_DESC *word;
} WORD_LIST;

typedef struct command COMMAND; /* opaque */

typedef int sh_builtin_func_t(WORD_LIST *);
typedef void SigHandler(int);

struct builtin {
	char *name;
	sh_builtin_func_t *function;
	int flags;
	char *const *long_doc;
	const char *short_doc;
	char *handle;
};
#define BUILTIN_ENABLED 0x01

typedef struct variable {
	char *name;
	char *value; /* or what the attributes say: an array, a function's body */
	char *exportstr;
	struct variable *(*dynamic_value)(struct variable *);
	struct variable *(*assign_func)(struct variable *, char *, intmax_t, char *);
	int attributes;
	int context;
} SHELL_VAR;

#define att_exported 0x0000001
#define att_readonly 0x0000002
#define att_array 0x0000004
#define att_integer 0x0000010
#define att_assoc 0x0000040
#define att_trace 0x0000080
#define att_uppercase 0x0000100
#define att_lowercase 0x0000200
#define att_capcase 0x0000400
#define att_nameref 0x0000800
#define att_invisible 0x0001000
#define att_imported 0x0008000

typedef struct alias {
	char *name;
	char *value;
	char flags;
} alias_t;

typedef struct process {
	struct process *next; /* a ring */
	pid_t pid;
	int status;
	int running; /* 0 done, 1 running, 2 stopped */
	char *command;
} PROCESS;

typedef struct job {
	char *wd;
	PROCESS *processes;
	pid_t pgrp;
	int state; /* enum below */
	int flags;
} JOB;
struct jobstats {
	long c_childmax;
	int c_living, c_reaped, c_injobs, c_totforked, c_totreaped;
	int j_jobslots; /* length of `jobs`, which has holes */
	int j_lastj, j_firstj, j_njobs, j_ndead;
};
enum { JRUNNING = 1, JSTOPPED = 2, JDEAD = 4 };
#define J_FOREGROUND 0x01

/* longjmp codes (bashjmp.h). 5.1 and before have no EXITBLTIN: exit uses EXITPROG. */
enum { NOT_JUMPED, FORCE_EOF, DISCARD, EXITPROG, ERREXIT, SIGEXIT, EXITBLTIN };

#define EXECUTION_SUCCESS 0
#define EXECUTION_FAILURE 1
#define EX_USAGE 258

#define FURCA_WEAK __attribute__((weak))

#ifndef FURCA_BASH_ABI_TYPES_ONLY /* the check has bash's own declarations of what follows */

/* parser and executor */
extern int parse_command(void);
extern int execute_command(COMMAND *);
extern void dispose_command(COMMAND *);
extern void with_input_from_string(char *, const char *);
extern void reset_parser(void);
extern COMMAND *global_command;
extern int EOF_Reached, line_number, current_command_line_count;
extern int executing, indirection_level, stdin_redir;
extern int parse_and_execute_level, startup_state;
extern int read_but_dont_execute, shell_initialized;
extern void *temporary_env; /* opaque */
extern void dispose_used_env_vars(void);
extern void unset_bash_input(int);

/* ends that jump */
extern sigjmp_buf top_level;
extern void top_level_cleanup(void);
extern void throw_to_top_level(void);
extern sigset_t top_level_mask;
extern volatile sig_atomic_t interrupt_state, terminating_signal;
extern void exit_shell(int) __attribute__((noreturn));

/* status and identity */
extern volatile int last_command_exit_value;
extern pid_t dollar_dollar_pid, shell_pgrp;
extern char *dollar_vars[], *this_command_name, *command_execution_string;
extern int want_pending_command, executing_builtin;
extern int funcnest_max;
extern sh_builtin_func_t *this_shell_builtin, *last_shell_builtin;
extern time_t shell_start_time;
extern void remember_args(WORD_LIST *, int);
extern char *shell_version_string(void);

/* signals, traps, jobs */
extern SigHandler *set_signal_handler(int, SigHandler *);
extern void set_original_signal(int, SigHandler *);
extern void initialize_terminating_signals(void);
extern void initialize_signals(int), initialize_traps(void);
extern void sigint_sighandler(int);
extern int signal_is_trapped(int), signal_is_ignored(int);
extern void set_signal(int, const char *);
extern char *trap_list[], *signal_name(int);
extern void restore_default_signal(int);
extern int run_exit_trap(void);
extern void coproc_closeall(void);
extern void restart_job_control(void);
extern int job_control;
extern JOB **jobs;
extern struct jobstats js;
extern void delete_all_jobs(int);
extern int get_job_by_pid(pid_t, int, PROCESS **);
extern pid_t last_command_subst_pid;

/* options */
extern int change_flag(int, int);
extern int shopt_setopt(char *, int);
extern void set_shellopts(void);
extern int privileged_mode;
extern void adjust_shell_level(int);

/* variables and builtins */
extern SHELL_VAR *bind_variable(const char *, char *, int);
extern SHELL_VAR *find_variable(const char *);
extern int unbind_variable(const char *);
extern int legal_identifier(const char *);
extern SHELL_VAR **all_shell_variables(void), **all_shell_functions(void);
extern char *named_function_string(char *, COMMAND *, int);
extern char *array_to_assign(void *, int), *assoc_to_assign(void *, int);
extern alias_t **all_aliases(void);
extern WORD_LIST *get_directory_stack(int);
extern void stupidly_hack_special_variables(char *);
extern int array_needs_making;
extern int cd_builtin(WORD_LIST *), wait_builtin(WORD_LIST *);
extern void builtin_error(const char *, ...) __attribute__((format(printf, 1, 2)));
extern void builtin_usage(void);
extern WORD_DESC *make_word(const char *);
extern WORD_LIST *make_word_list(WORD_DESC *, WORD_LIST *);
extern void dispose_words(WORD_LIST *);
extern struct builtin *shell_builtins;
extern int num_shell_builtins;

/* not in every release */
extern void clear_pending_traps(void) FURCA_WEAK; /* 5.1 and later */
extern void seedrand(void) FURCA_WEAK;		  /* 5.1 and later */
extern void restore_traps(void) FURCA_WEAK;	  /* 5.2 and later */
extern void *invalid_env FURCA_WEAK;		  /* a hash table: environment entries that can be no variables */
extern void *hash_remove(const char *, void *, int) FURCA_WEAK;
extern int running_trap FURCA_WEAK; /* the signal whose trap runs, plus one */
#define DEBUG_TRAP NSIG		    /* trap.h */

static inline bool in_debug_trap(void)
{
	return &running_trap && running_trap == DEBUG_TRAP + 1;
}

extern int wait_intr_flag FURCA_WEAK, wait_signal_received FURCA_WEAK;
extern int evalnest_max FURCA_WEAK, sourcenest_max FURCA_WEAK;

#endif
