/* How a call's code ended, in words and as an error_type: from what the host says, or from how it died. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "bridge/wire/host.h"
#include "engine/call.h"
#include "engine/engine_private.h"
#include "engine/exceeded.h"
#include "engine/limits.h"

#include "base/banned.h"

#define MAX_WHY ((size_t)1000) /* bytes of a host's own words */

static void add_suggestion(struct furca_call *call, struct furca_view suggestion)
{
	if (furca_view_size(suggestion))
		(void)furca_buf_append(furca_call_suggest(call), suggestion.at, furca_view_size(suggestion));
}

/* What DONE says about how the code ended, as error and error_type. */
static void judge_done(struct furca_call *call)
{
	struct furca_view how = call->said.how, error = call->said.error, suggestion = call->said.suggestion;
	int n = (int)FURCA_MIN(furca_view_size(error), (size_t)1 << 20);
	bool interrupted = how.at && furca_view_is(how, "interrupted");
	const char *kept = call->plan.mode == FURCA_STATEFUL ? "; what had run is kept." : ".";

	if (interrupted && call->stop == FURCA_STOP_TIMEOUT) {
		furca_call_fail(call, "timeout", "Give a longer timeout_s, or split the work into shorter calls.",
				"The code was interrupted when its time of %.3g s was over%s",
				(double)call->plan.timeout_us / 1e6, kept);
	} else if (interrupted && call->stop != FURCA_STOP_NONE) {
		furca_call_fail(call, "interrupted", NULL, "The call was cancelled and its code interrupted%s", kept);
	} else if (how.at && furca_view_is(how, "ok")) {
		add_suggestion(call, suggestion);
		return;
	} else {
		bool exit = how.at &&
			    (furca_view_is(how, "exit") || furca_view_is(how, "errexit") || furca_view_is(how, "exec"));

		if (exit && furca_done_status(&call->said, 1) == 0)
			return; /* exit 0 is a way to be done */
		call->error_type = how.at && furca_view_is(how, FURCA_HOST_HOW_FULL) ? "limit"
				   : call->refused				     ? "validation"
				   : interrupted				     ? "interrupted"
				   : exit					     ? "exit"
										     : "exception";
		(void)furca_buf_append(&call->error, error.at, (size_t)n);
		if (n == 0)
			(void)furca_buf_printf(&call->error, "The code ended with '%.*s'.", (int)furca_view_size(how),
					       (const char *)how.at);
		add_suggestion(call, suggestion);
		return;
	}
	if (n > 0) {
		(void)furca_buf_append_text(&call->error, "\n");
		(void)furca_buf_append(&call->error, error.at, (size_t)n);
	}
}

/* Why a client that takes arrays has the text of the value alone. */
static void note_unsent(struct furca_call *call)
{
	struct furca_view why = call->said.unsent;

	if (!call->origin && furca_view_size(why))
		(void)furca_buf_printf(furca_call_suggest(call), "The value was not sent, only its text: %.*s",
				       (int)FURCA_MIN(furca_view_size(why), MAX_WHY), (const char *)why.at);
}

void furca_call_judge(struct furca_call *call)
{
	judge_done(call);
	note_unsent(call);
	if (call->host)
		furca_exceeded_explain(call, call->host);
}

static const char *signal_text(int sig)
{
	static const struct {
		int sig;
		const char *text;
	} known[] = {{SIGSEGV, "SIGSEGV (segmentation fault)"},
		     {SIGABRT, "SIGABRT (abort)"},
		     {SIGBUS, "SIGBUS (bus error)"},
		     {SIGFPE, "SIGFPE (arithmetic fault)"},
		     {SIGILL, "SIGILL (illegal instruction)"},
		     {SIGKILL, "SIGKILL"},
		     {SIGTERM, "SIGTERM"},
		     {SIGXCPU, "SIGXCPU (cpu time limit)"},
		     {SIGTRAP, "SIGTRAP"},
		     {SIGSYS, "SIGSYS (forbidden system call)"},
		     {SIGHUP, "SIGHUP"},
		     {SIGINT, "SIGINT"},
		     {SIGPIPE, "SIGPIPE"},
		     {SIGXFSZ, "SIGXFSZ (file size limit)"}};

	for (size_t i = 0; i < FURCA_COUNT(known); i++)
		if (known[i].sig == sig)
			return known[i].text;
	return NULL;
}

static bool is_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP ||
	       sig == SIGSYS;
}

static void judge_signal(struct furca_call *call, const struct furca_host *host, int sig)
{
	const char *text = signal_text(sig);
	char number[32];

	if (!text) {
		(void)snprintf(number, sizeof(number), "signal %d", sig);
		text = number;
	}
	if (sig == SIGXCPU || (sig == SIGKILL && furca_exceeded_over_cpu(call, host)))
		furca_exceeded_cpu(call, host);
	else if (sig == SIGKILL && furca_limits_oom(call->engine, host))
		furca_exceeded_memory(call, host);
	else if (is_fault(sig))
		furca_call_fail(
			call, "crashed",
			"Look for native code at fault; run the risky part in state_mode='read_only' or 'stateless'.",
			"The process crashed with %s.", text);
	else
		furca_call_fail(call, "killed",
				"Something outside ended the process; run the call again if that was not meant.",
				"The process was killed by %s.", text);
}

/* It was let go, or has let go itself. */
static void judge_attached(struct furca_call *call)
{
	bool late = call->stop == FURCA_STOP_TIMEOUT;

	if (call->killed)
		furca_call_fail(
			call, late ? "timeout" : "interrupted",
			"Give a longer timeout_s, and attach the process again when it is free.",
			"The code %s and did not react to an interrupt within %.3g s. It goes on in the process that had attached itself, which was "
			"let go and is no session any more.",
			late ? "ran over its time" : "was to end", call->engine->config.grace_s);
	else
		furca_call_fail(call, "crashed", "Attach a process again.",
				"The process that had attached itself has ended or let go while the code ran.");
}

/* The interrupt ended it, or the engine did when its channel was closed: that is what a program does which the code ran in its place. */
static void judge_replaced(struct furca_call *call, const struct furca_host *host)
{
	static const char advice[] =
		"Do not end the interpreter's own process (os._exit, exec) or close its descriptors; run programs in processes of their own.";

	if (host->severed)
		furca_call_fail(
			call, "crashed", advice,
			"The code ran another program in its process's place, or closed or spoiled its channel to the engine, and the process was ended.");
	else
		furca_call_fail(
			call, call->stop == FURCA_STOP_TIMEOUT ? "timeout" : "interrupted", advice,
			"The call was interrupted, which ended its process: the code had run another program in its place.");
}

void furca_call_judge_end(struct furca_call *call, const struct furca_host *host)
{
	int status = host->status;

	if (host->attached)
		judge_attached(call);
	else if (call->killed && call->stop == FURCA_STOP_TIMEOUT)
		furca_call_fail(
			call, "timeout", "Give a longer timeout_s, or split the work into shorter calls.",
			"The code ran over its time of %.3g s, did not react to an interrupt within %.3g s, and was killed.",
			(double)call->plan.timeout_us / 1e6, call->engine->config.grace_s);
	else if (call->killed && call->stop == FURCA_STOP_CLOSE)
		furca_call_fail(call, "interrupted", NULL,
				"The session was closed while the code was running, and its process was killed.");
	else if (call->killed)
		furca_call_fail(call, "interrupted", NULL,
				"The call was cancelled, did not react to an interrupt within %.3g s, and was killed.",
				call->engine->config.grace_s);
	else if (call->stop != FURCA_STOP_NONE && (!call->began || host->unread))
		furca_call_fail(call, call->stop == FURCA_STOP_TIMEOUT ? "timeout" : "interrupted",
				"Run the call again.",
				"The call was stopped before its code began; its process had been killed meanwhile.");
	else if (host->severed || (call->stop != FURCA_STOP_NONE && status >= 0 && WIFSIGNALED(status) &&
				   WTERMSIG(status) == FURCA_HOST_INTERRUPT))
		judge_replaced(call, host);
	else if (status >= 0 && WIFSIGNALED(status))
		judge_signal(call, host, WTERMSIG(status));
	else if (status >= 0 && WIFEXITED(status))
		furca_call_fail(call, "crashed",
				"Do not end the interpreter's own process (os._exit, exec); use sys.exit or exit.",
				"The code ended its own process with status %d.", WEXITSTATUS(status));
	else
		furca_call_fail(call, "crashed", NULL, "The process has ended in an unknown way.");
}
