/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The builtin `furca_host`: makes the bash process that calls it a host and never returns. bash is started as
 *
 *   bash --norc --noprofile -p -c 'enable -f "$1" furca_host capability furca-fn furca-reset && furca_host' bash PATH
 *
 * -p keeps functions, SHELLOPTS and BASH_ENV of the environment out; the builtin turns it off again.
 */
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "bridge/wire/host.h"
#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define EXPORT __attribute__((visibility("default"), used))

struct furca_bash furca_bash = {
	.host = {.control = {-1}, .capability = {-1}},
	.saved = {-1, -1, -1},
	.mask_changed = 1,
};

static void tell_error(struct furca_host_done *done, const struct furca_err *err)
{
	bool refused = err->code == FURCA_E_VALIDATION;

	done->how = refused ? FURCA_HOST_HOW_REFUSED : "exception";
	done->changed = !refused;
	done->exit_code = EXECUTION_FAILURE;
	(void)furca_buf_append_text(&done->error, err->text);
	(void)furca_buf_append_text(&done->suggestion, furca_err_suggestion(err));
}

/* The code of a call, malloc'ed, after its cwd and environment are in place; NULL with *err. What is refused is so before anything is changed. */
static char *prepare(const struct furca_host_run *run, struct furca_err *err)
{
	FURCA_AUTO_FREE char *code = NULL;
	bool cwd = furca_view_size(run->cwd) > 0, env = furca_view_size(run->env) > 0;

	if (memchr(run->code.at, 0, furca_view_size(run->code))) {
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Write the byte as $'\\0' or \\000 of printf",
					 "the code contains a NUL byte, which bash cannot hold");
		return NULL;
	}
	if (env && furca_bash_check_env(run->env, err) < 0)
		return NULL;
	if (furca_view_size(run->function))
		code = furca_bash_function_code(run->function, err);
	else if (!(code = furca_view_dup(run->code)))
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the code");
	if (!code || (cwd && furca_bash_set_cwd(run->cwd, err) < 0) || (env && furca_bash_set_env(run->env, err) < 0))
		return NULL;
	return FURCA_TAKE(code);
}

/* What code cannot see: that its output goes nowhere where it would be read. */
static const char *redirected_text(void)
{
	static const char *const text[] = {
		NULL,
		"stdout of this session leads elsewhere (exec >FILE) and is not in the answer; furca-reset puts it back",
		"stderr of this session leads elsewhere (exec 2>FILE) and is not in the answer; furca-reset puts it back",
		"stdout and stderr of this session lead elsewhere (exec) and are not in the answer; furca-reset puts them back",
	};

	return text[furca_output_redirected(&furca_bash.host.output)];
}

static void bash_run(void *data, const struct furca_host_run *run, struct furca_host_done *ret)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_bash_end end;
	enum furca_clone_role role = furca_bash.host.role;
	FURCA_AUTO_FREE char *code = prepare(run, &err);
	const char *text;
	uint8_t result[2] = {0xcc, 0}; /* an 8-bit integer of msgpack */

	if (!code) {
		tell_error(ret, &err);
		return;
	}
	if (role == FURCA_CLONE_STATELESS)
		shell_start_time = time(NULL); /* it may have waited for its call */
	if (role != FURCA_CLONE_COPY)	       /* its pid namespace does not show them */
		furca_bash_jobs_refresh();
	furca_bash.call = furca_host_interrupt_value(run->call);
	furca_bash_run(code, &end);
	if (role == FURCA_CLONE_STATELESS || role == FURCA_CLONE_COPY) /* its session ends with the call */
		furca_bash_run_exit_trap(&end);
	ret->how = furca_bash_how_word(end.how);
	ret->exit_code = end.status;
	result[1] = (uint8_t)end.status; /* a block of bash has no other value */
	(void)furca_buf_append(&ret->result, result, sizeof(result));
	if (redirected_text())
		(void)furca_buf_append_text(&ret->suggestion, redirected_text());
	text = furca_bash_how_text(&end);
	if (text)
		(void)furca_buf_append_text(&ret->error, text);
}

static void bash_inspect(void *data, struct furca_view detail, struct furca_view name, struct furca_buf *out)
{
	furca_bash_inspect(out, detail, name);
}

static void bash_warm(void *data)
{
	furca_bash_warm();
}

static unsigned long long loaded_at_start; /* objects, before any code ran */

static int count_objects(struct dl_phdr_info *object, size_t size, void *loads)
{
	*(unsigned long long *)loads = object->dlpi_adds;
	return 1; /* each is told the same number */
}

/* Objects that were loaded into this process, ever. */
static unsigned long long objects_loaded(void)
{
	unsigned long long loads = 0;

	(void)dl_iterate_phdr(count_objects, &loads);
	return loads;
}

bool furca_bash_has_loaded(void)
{
	return objects_loaded() != loaded_at_start;
}

/* Bash itself makes no timers, rings and mappings of devices; a builtin that was loaded might. */
static bool bash_may_hinder(void *data)
{
	return furca_bash.foreign;
}

static void bash_clone_begin(void *data, enum furca_clone_role role)
{
	(void)fflush(stdout);
	(void)fflush(stderr);
}

static void reseed(void)
{
	char seed[24];

	if (seedrand) {
		seedrand();
		return;
	}
	(void)snprintf(seed, sizeof(seed), "%u",
		       (unsigned)furca_bash.host.pid * 2654435761U ^ (unsigned)furca_now_us());
	(void)bind_variable("RANDOM", seed, 0);
}

static void bash_cloned(void *data, enum furca_clone_role role, const struct furca_clone_report *report)
{
	furca_bash_signals_cloned();
	if (setsid() < 0) /* kill 0 must not reach the original */
		(void)setpgid(0, 0);
	shell_pgrp = getpgrp();
	if (clear_pending_traps)
		clear_pending_traps();
	switch (role) {
	case FURCA_CLONE_SESSION:
	case FURCA_CLONE_STATELESS:
		dollar_dollar_pid = furca_bash.host.pid;
		shell_start_time = time(NULL);
		reseed();
		break;
	case FURCA_CLONE_COPY: /* $$ stays the session's */
	case FURCA_CLONE_SNAPSHOT:
		furca_bash_jobs_cloned();
		furca_bash_disarm_exit_trap();
		break;
	case FURCA_CLONE_BRANCH:
		dollar_dollar_pid = furca_bash.host.pid;
		delete_all_jobs(0); /* kill %1 would reach the original's */
		furca_bash_rearm_exit_trap();
		break;
	}
}

static void bash_promoted(void *data)
{
	dollar_dollar_pid = furca_bash.host.pid;
	furca_bash_jobs_adopt();
	furca_bash_rearm_exit_trap();
}

static void bash_close(void *data)
{
	struct furca_bash_end end = {.status = last_command_exit_value & 0xff};

	furca_bash_signals_arm();
	furca_bash_run_exit_trap(&end);
}

static struct furca_host_lang lang = {
	.language = "bash",
	.closed_stays = true,
	.run = bash_run,
	.inspect = bash_inspect,
	.warm = bash_warm,
	.may_hinder = bash_may_hinder,
	.clone_begin = bash_clone_begin,
	.cloned = bash_cloned,
	.promoted = bash_promoted,
	.close = bash_close,
};

/* Refuses a bash whose internals are not known. */
static int check_version(struct furca_err *err)
{
	const char *version = shell_version_string();
	char *end;
	long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	long number = major * 100 + minor;

	if (number < FURCA_BASH_OLDEST || number > FURCA_BASH_NEWEST)
		return furca_fail(err, FURCA_E_UNSUPPORTED, 0, "bash %s is not served: it must be %d.%d to %d.%d",
				  version, FURCA_BASH_OLDEST / 100, FURCA_BASH_OLDEST % 100, FURCA_BASH_NEWEST / 100,
				  FURCA_BASH_NEWEST % 100);
	lang.version = version;
	return 0;
}

/* The frames that bash used to get here are taken down: what runs from now on is at top level, as a script's lines are. */
static void leave_command_string(void)
{
	top_level_cleanup();
	reset_parser();
	this_command_name = NULL;
	this_shell_builtin = last_shell_builtin = NULL;
	executing_builtin = 0;
	shell_initialized = 1; /* functions come from "main" */
	unset_bash_input(0);
	startup_state = 0;	  /* 2 lets the last command of -c run in place of the shell */
	want_pending_command = 0; /* no c in $- */
	command_execution_string = NULL;
	(void)unbind_variable("BASH_EXECUTION_STRING");
	remember_args(NULL, 1);
}

/* -p keeps exported functions from being defined, but hands them on to children as entries that are no variables. */
static void drop_foreign_functions(void)
{
	static const char prefix[] = "BASH_FUNC_";

	for (char **entry = environ; *entry; entry++) {
		size_t n = strcspn(*entry, "=");
		FURCA_AUTO_FREE char *name =
			strncmp(*entry, prefix, sizeof(prefix) - 1) == 0 ? strndup(*entry, n) : NULL;

		if (name && &invalid_env && invalid_env && hash_remove)
			(void)hash_remove(name, invalid_env, 0);
	}
	array_needs_making = 1;
}

static void be_pristine(void)
{
	static const char *const foreign[] = {"BASH_ENV", "ENV"};

	for (size_t i = 0; i < FURCA_COUNT(foreign); i++)
		(void)unbind_variable(foreign[i]);
	drop_foreign_functions();
	if (privileged_mode)
		(void)change_flag('p', '+');
	set_shellopts();
	(void)shopt_setopt((char *)"expand_aliases", 1);
	if (funcnest_max == 0)
		funcnest_max = 2000; /* f() { f; } must not overflow the stack; $FUNCNEST may change it */
	if (&evalnest_max && evalnest_max == 0)
		evalnest_max = 1000;
	if (&sourcenest_max && sourcenest_max == 0)
		sourcenest_max = 1000;
}

/* The loop is nothing for code to call or remove. */
static void hide_builtin(sh_builtin_func_t *function)
{
	for (int i = 0; i < num_shell_builtins; i++)
		if (shell_builtins[i].function == function) {
			memmove(shell_builtins + i, shell_builtins + i + 1,
				(size_t)(num_shell_builtins - i) * sizeof(*shell_builtins));
			num_shell_builtins--;
			return;
		}
}

static int host_builtin(WORD_LIST *list)
{
	struct furca_err err = FURCA_ERR_INIT;

	furca_fault_init();
	if (check_version(&err) < 0 || furca_host_init(&furca_bash.host, &lang, NULL, &err) < 0 ||
	    furca_bash_hooks_init(&err) < 0) {
		builtin_error("%s", err.text);
		return EXECUTION_FAILURE;
	}
	furca_bash.host.output.tracked = true; /* by hooks.c */
	leave_command_string();
	be_pristine();
	hide_builtin(host_builtin);
	furca_bash_jobs_init();
	furca_bash_given_init();
	loaded_at_start = objects_loaded();
	(void)setsid();
	shell_pgrp = getpgrp();
	furca_bash_signals_init();
	last_command_exit_value = 0;
	(void)furca_host_serve(&furca_bash.host);
	(void)fflush(stdout);
	(void)fflush(stderr);
	_exit(0);
}

static char *const host_doc[] = {(char *)"Serve an engine on the descriptors it left.", NULL};

EXPORT struct builtin furca_host_struct = {
	(char *)"furca_host", host_builtin, BUILTIN_ENABLED, host_doc, "furca_host", NULL,
};
