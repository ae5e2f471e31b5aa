/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One block of code, parsed and run as bash's reader_loop runs a script's lines; what would make a script exit ends the call.
 *
 * parse_and_execute is not used: it drops unwind frames when it expects to exit, so that after `set -e; f() { false; };
 * { f; } >/dev/null` the session's stdout would stay on /dev/null for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define HANGS 2 /* calls in a row that a DEBUG trap may keep from their code */

static const char *const how_word[] = {
	[FURCA_BASH_OK] = "ok",		  [FURCA_BASH_EXIT] = "exit",
	[FURCA_BASH_ERREXIT] = "errexit", [FURCA_BASH_FATAL] = "fatal",
	[FURCA_BASH_SYNTAX] = "syntax",	  [FURCA_BASH_SIGNAL] = "signal",
	[FURCA_BASH_EXEC] = "exec",	  [FURCA_BASH_INTERRUPTED] = "interrupted",
};

const char *furca_bash_how_word(enum furca_bash_how how)
{
	return how_word[how];
}

const char *furca_bash_how_text(const struct furca_bash_end *end)
{
	static char text[160];

	if (end->trap_removed)
		return "The DEBUG trap failed, or did not return, and ended the call before its code; it was removed so that the session can be used";
	switch (end->how) {
	case FURCA_BASH_OK:
		return NULL;
	case FURCA_BASH_EXIT:
		if (end->status == 0)
			return NULL;
		(void)snprintf(text, sizeof(text), "exit ended the call with status %d", end->status);
		return text;
	case FURCA_BASH_ERREXIT:
		(void)snprintf(text, sizeof(text), "A command failed with status %d while set -e is on in this session",
			       end->status);
		return text;
	case FURCA_BASH_FATAL:
		return "An expansion or a shell error ended the call (see stderr), as it would end a script";
	case FURCA_BASH_SYNTAX:
		return "Syntax error (see stderr); the commands before it have run";
	case FURCA_BASH_SIGNAL:
		(void)snprintf(text, sizeof(text), "The shell received SIG%s, which ended the call",
			       sigabbrev_np(end->term_signal) ?: "?");
		return text;
	case FURCA_BASH_EXEC:
		if (end->status == 0)
			return NULL;
		(void)snprintf(text, sizeof(text),
			       "exec ran the program in place of the rest of the call; it ended with status %d",
			       end->status);
		return text;
	case FURCA_BASH_INTERRUPTED: /* by whom and why, the engine says */
		return NULL;
	}
	return NULL;
}

static void call_begin(char *code)
{
	struct furca_bash *s = &furca_bash;

	interrupt_state = 0;
	terminating_signal = 0;
	s->ended_by = 0;
	s->ended_as = 0;
	s->interrupts = 0;
	s->hung = 0;
	s->commands = 0;
	furca_bash_limit_begin();
	s->phase = FURCA_BASH_CALL;
	read_but_dont_execute = 0; /* set -n would be for ever */
	furca_bash_signals_arm();
	if (!sigisemptyset(&top_level_mask))
		s->mask_changed = 1;
	if (s->mask_changed)
		(void)sigprocmask(SIG_SETMASK, &top_level_mask, NULL);

	with_input_from_string(code, dollar_vars[0]);
	reset_parser();
	line_number = 0;
	current_command_line_count = 0;
	indirection_level = 1;
	parse_and_execute_level = 0;
	EOF_Reached = 0;
	furca_bash_signals_begin();
}

static void block_nothing(void)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	furca_bash.mask_changed = 0;
}

/*
 * A DEBUG trap that never returns keeps every call from its code, also the one that would remove it. It is told from one that was interrupted within a
 * first command of many by its doing so again.
 */
static bool remove_hung_trap(void)
{
	furca_bash.hangs = furca_bash.hung ? furca_bash.hangs + 1 : 0;
	if (furca_bash.hangs < HANGS)
		return false;
	furca_bash.hangs = 0;
	restore_default_signal(DEBUG_TRAP);
	return true;
}

static void call_end(struct furca_bash_end *end)
{
	struct furca_bash *s = &furca_bash;

	end->trap_removed |= remove_hung_trap();
	s->phase = FURCA_BASH_IDLE;
	s->foreign = furca_bash_has_loaded();
	furca_bash_limit_end();
	for (int fd = 0; fd < 3; fd++) {
		if (s->saved[fd] >= 0)
			(void)close(s->saved[fd]);
		s->saved[fd] = -1;
		s->saves[fd] = false;
	}
	executing = 0;
	reset_parser();
	EOF_Reached = 0;
	if (s->mask_changed || s->foreign)
		block_nothing();
	furca_bash_signals_rest();
	interrupt_state = 0;
	(void)fflush(stdout);
	clearerr(stdout);
	(void)fflush(stderr);

	if (s->interrupts) /* also where the command that was killed was the last */
		end->how = FURCA_BASH_INTERRUPTED;
	if (end->how == FURCA_BASH_INTERRUPTED)
		last_command_exit_value = 128 + SIGINT;
	else if (end->how == FURCA_BASH_SIGNAL && s->ended_by)
		last_command_exit_value = 128 + s->ended_by;
	else if (end->how == FURCA_BASH_SYNTAX)
		last_command_exit_value = 2;
	end->term_signal = s->ended_by ? s->ended_by : SIGINT;
	end->status = last_command_exit_value & 0xff;
}

/* What a jump to the call's top means. */
static enum furca_bash_how jump_means(int jump, bool parsing)
{
	const struct furca_bash *s = &furca_bash;

	switch (jump) {
	case DISCARD: /* an error that a script survives, unless a signal came */
		return interrupt_state || s->ended_by ? FURCA_BASH_SIGNAL : FURCA_BASH_OK;
	case ERREXIT:
		return FURCA_BASH_ERREXIT;
	case FORCE_EOF:
		return parsing ? FURCA_BASH_SYNTAX : FURCA_BASH_FATAL;
	case EXITBLTIN:
		return FURCA_BASH_EXIT;
	default: /* EXITPROG: a hook, throw_to_top_level after a signal, or exit before 5.2 */
		if (s->ended_as)
			return (enum furca_bash_how)s->ended_as;
		return s->ended_by || last_command_exit_value == 128 + SIGINT ? FURCA_BASH_SIGNAL : FURCA_BASH_EXIT;
	}
}

/*
 * Puts the shell back to top level after a jump; true where the call goes on with the next command. bash leaves the unwinding
 * out when it is about to exit: redirections, function contexts and temporary assignments would stay.
 */
static bool jump_landed(int jump, bool parsing, bool *trap_removed, enum furca_bash_how *ret)
{
	indirection_level = 1;
	*ret = jump_means(jump, parsing);
	if (*ret == FURCA_BASH_OK) {
		top_level_cleanup(); /* some of bash's own errors leave it out: `return` would then jump into a dead frame */
		if (last_command_exit_value == 0)
			last_command_exit_value = EXECUTION_FAILURE;
		(void)sigprocmask(SIG_SETMASK, &top_level_mask, NULL);
		return true;
	}
	/*
	 * set -u with a DEBUG trap that names an unset variable would end every call, also the one that removes the trap; so would a
	 * trap that kills the shell, or that has to be interrupted. What was interrupted later was not in the trap's way.
	 */
	if ((*ret != FURCA_BASH_SIGNAL || furca_bash.commands == 0) && in_debug_trap()) {
		restore_default_signal(DEBUG_TRAP);
		*trap_removed = true;
	}
	top_level_cleanup();
	if (&running_trap)
		running_trap = 0;
	return false;
}

/* A child that bash forked (an asynchronous command whose expansion failed, say) must never become a second host. */
static void leave_if_child(void)
{
	if (!furca_bash_is_host())
		exit_shell(last_command_exit_value);
}

/* Parses and runs the next command; false where the call has ended, with *ret set. */
static bool run_next(COMMAND *volatile *command, volatile bool *parsing, volatile enum furca_bash_how *ret)
{
	executing = 0;
	if (temporary_env) /* left by a jump out of v=1 cmd */
		dispose_used_env_vars();
	if (interrupt_state)
		throw_to_top_level();
	global_command = NULL;
	current_command_line_count = 0;
	*parsing = true;
	if (parse_command() != 0) {
		*ret = FURCA_BASH_SYNTAX;
		return false;
	}
	*parsing = false;
	*command = global_command;
	if (*command) {
		global_command = NULL;
		executing = 1;
		stdin_redir = 0;
		(void)execute_command(*command);
		leave_if_child();
		furca_bash.commands++;
		dispose_command(*command);
		*command = NULL;
	}
	if (read_but_dont_execute) /* set -n: the rest is only parsed */
		read_but_dont_execute = 1;
	return true;
}

/* With extdebug a DEBUG trap that fails skips every command, also the one that would remove it: this call always works. */
static void reset_alone(const char *code)
{
	static const char word[] = "furca-reset";
	const char *at = code + strspn(code, " \t\n");

	if (strncmp(at, word, sizeof(word) - 1) != 0 || signal_is_trapped(DEBUG_TRAP) == 0)
		return;
	at += sizeof(word) - 1;
	if (at[strspn(at, " \t\n")] == '\0')
		restore_default_signal(DEBUG_TRAP);
}

void furca_bash_run(char *code, struct furca_bash_end *ret)
{
	COMMAND *volatile command = NULL;
	volatile enum furca_bash_how how = FURCA_BASH_OK;
	volatile bool parsing = false;
	volatile bool trap_removed = false;

	reset_alone(code);
	call_begin(code);
	while (!EOF_Reached) {
		int jump = sigsetjmp(furca_bash.top, 0);

		memcpy(&top_level, &furca_bash.top, sizeof(top_level));
		leave_if_child();
		if (jump != NOT_JUMPED) {
			enum furca_bash_how means = FURCA_BASH_OK;
			bool removed = false;
			bool goes_on = jump_landed(jump, parsing, &removed, &means);

			furca_bash.mask_changed = 1; /* it may have come from within a handler */
			if (command)
				dispose_command(command);
			command = NULL;
			executing = 0;
			how = means;
			trap_removed = removed;
			if (!goes_on)
				break;
			continue;
		}
		if (!run_next(&command, &parsing, &how))
			break;
	}
	*ret = (struct furca_bash_end){.how = how, .trap_removed = trap_removed};
	call_end(ret);
}

void furca_bash_run_exit_trap(struct furca_bash_end *end)
{
	if (!signal_is_trapped(0))
		return;
	last_command_exit_value = end->status;
	furca_bash.phase = FURCA_BASH_TRAP;
	end->status = run_exit_trap() & 0xff;
	furca_bash.phase = FURCA_BASH_IDLE;
	furca_bash_signals_rest();
	top_level_cleanup();
	reset_parser();
	(void)fflush(stdout);
	(void)fflush(stderr);
}
