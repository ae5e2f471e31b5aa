/* A call in its host: what RUN says, the pipes it writes to, and what remains of it when its code has ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "engine/call.h"
#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/limits.h"
#include "engine/prefetch.h"
#include "engine/session.h"

#include "base/banned.h"

#define LATE_PASSES 4
#define ENVELOPE 1024U /* bytes around a value that is passed on */

/* Whether a list of the pages it takes is of use to the next copy. */
static bool lists_pages(const struct furca_call *call)
{
	return call->plan.mode == FURCA_READ_ONLY && call->session && call->session->top && call->session->top->host;
}

static size_t begin_run(struct furca_call *call, struct furca_buf *buf, msgpack_packer *pk, const char *label)
{
	bool cwd = call->plan.cwd.at, env = call->plan.env_vars.at, pages = lists_pages(call),
	     frames = call->frames.len;
	size_t at = furca_frame_begin(buf, pk, FURCA_HOST_RUN, call->frame, 5U + cwd + env + pages + frames);

	furca_pack_text(pk, "label");
	furca_pack_text(pk, label);
	furca_pack_text(pk, "read_only");
	furca_pack_bool(pk, call->plan.mode == FURCA_READ_ONLY);
	furca_pack_text(pk, "max_result");
	/* What code gets from a stored function is bounded as what it gets from a capability. */
	msgpack_pack_uint64(pk, call->origin ? FURCA_MAX_CAPABILITY - ENVELOPE : FURCA_MAX_RESULT);
	furca_pack_text(pk, "max_text");
	msgpack_pack_uint64(pk, FURCA_MAX_RESULT);
	furca_pack_text(pk, call->function.len ? "function" : "code");
	if (call->function.len)
		furca_pack_raw(pk, furca_buf_view(&call->function));
	else
		furca_pack_bytes(pk, call->plan.code.at, furca_view_size(call->plan.code));
	if (cwd) {
		furca_pack_text(pk, "cwd");
		furca_pack_bytes(pk, call->plan.cwd.at, furca_view_size(call->plan.cwd));
	}
	if (env) {
		furca_pack_text(pk, "env");
		furca_pack_raw(pk, call->plan.env_vars);
	}
	if (pages) {
		furca_pack_text(pk, "faults");
		msgpack_pack_uint64(pk, FURCA_PREFETCH_FAULTS);
	}
	if (frames) {
		furca_pack_text(pk, "frames");
		furca_pack_bytes(pk, call->frames.data, call->frames.len);
	}
	return at;
}

/* The session's pipes again where nobody else can hold them, else new ones; their write ends, if new, to `fds`. */
static int make_pipes(struct furca_call *call, struct furca_fd fds[2], unsigned *ret_n)
{
	bool stream = call->plan.stream && !call->origin && !call->client_gone;
	struct furca_err err = FURCA_ERR_INIT;

	*ret_n = 0;
	call->newest = call->own_host ? 0 : furca_limits_newest(call->engine);
	/* No process was made since, or only by others: a process of one thread makes none between calls. */
	if (!call->own_host && !call->host->attached && call->session->background.last &&
	    ((call->newest && call->newest == call->session->background.newest) ||
	     furca_limits_threads(call->host->proc.pid) == 1))
		call->pipes = furca_pipes_again(&call->session->background, call->host->tag, call->output, stream,
						call->client, call->msgid);
	if (call->pipes)
		return 0;
	call->pipes = furca_pipes_new(call->engine, call->output, stream, call->client, call->msgid, fds, &err);
	if (!call->pipes) {
		furca_call_fail_err(call, &err);
		return -EMFILE;
	}
	call->pipes->tag = call->host->tag;
	*ret_n = 2;
	return 0;
}

/* Adds the memory of a function's arrays to what goes with RUN; it is kept, since RUN may have to be sent again. 0 or -errno. */
static int add_memory(struct furca_call *call, struct furca_fd *fds, unsigned *n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r = call->memory.n >= 0 ? furca_fd_dup(call->memory.n, 3, &fds[*n_fds]) : 0;

	if (r < 0) {
		(void)furca_fail(&err, FURCA_E_SYSTEM, -r, "cannot pass the function's arrays on");
		furca_call_fail_err(call, &err);
		furca_fds_done(fds, *n_fds);
		return r;
	}
	*n_fds += call->memory.n >= 0;
	return 0;
}

int furca_call_run(struct furca_call *call)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_fd fds[3];
	msgpack_packer pk;
	char label[32];
	unsigned n_fds;

	if (make_pipes(call, fds, &n_fds) < 0 || add_memory(call, fds, &n_fds) < 0)
		return -EMFILE;
	(void)snprintf(label, sizeof(label), "%llu", call->session ? (unsigned long long)call->session->calls : 1ULL);
	call->frame = furca_engine_next(call->engine);
	size_t at = begin_run(call, &buf, &pk, label);
	(void)furca_frame_end(&buf, at, n_fds);
	call->phase = FURCA_CALL_RUNNING;
	call->started_us = furca_now_us();
	if (call->queue_us == 0)
		call->queue_us = (uint64_t)(call->started_us - call->asked_us);
	furca_lanes_serve(call->host->lanes, call, call->plan.mode == FURCA_READ_ONLY || call->harmless,
			  furca_buf_view(&call->allowed));
	int r = furca_host_send(call->host, &buf, fds, n_fds);
	call->began = r == 0;
	return r;
}

void furca_call_hear(struct furca_call *call, struct furca_view body)
{
	furca_buf_clear(&call->done);
	(void)furca_buf_append(&call->done, body.at, furca_view_size(body));
	furca_done_read(furca_buf_view(&call->done), &call->said);
}

/* No word of its host's goes into the answer. */
static void unhear(struct furca_call *call)
{
	furca_buf_clear(&call->done);
	call->said = (struct furca_done){0};
}

bool furca_call_wants_pipes(struct furca_call *call)
{
	if (!furca_view_is(call->said.how, FURCA_HOST_HOW_PIPES) || !call->pipes || !call->session)
		return false;
	unhear(call);
	/* What is in them was written between the calls. */
	call->pipes->output = NULL;
	call->pipes->stream = false;
	furca_pipes_keep(call->pipes, &call->session->background, false);
	call->pipes = NULL;
	furca_background_take(&call->session->background, &call->background);
	if (furca_call_run(call) < 0 && call->error_type)
		return false;
	if (call->interrupted)
		(void)furca_host_interrupt(call->host, call->frame); /* the one that was sent names the first attempt */
	return true;
}

/*
 * `alive`: its host lives. Nobody but the host holds the pipes where no process was made while the call ran and descriptors 1
 * and 2 stand as they did: then the next call may have them too.
 */
static void end_output(struct furca_call *call, bool alive, bool redirected)
{
	if (!call->pipes)
		return;
	furca_pipes_finish(call->pipes);
	if (call->session && !call->own_host) {
		struct furca_background *background = &call->session->background;

		background->newest = furca_limits_newest(call->engine);
		furca_pipes_keep(call->pipes, background,
				 alive && !redirected && call->newest != 0 && call->newest == background->newest);
	} else {
		furca_pipes_free(call->pipes);
	}
	call->pipes = NULL;
}

/*
 * What the code started while the interrupt was under way, or its children did: no call of the session has begun since. Where others
 * are found these may just have made more.
 */
static void interrupt_late(struct furca_call *call)
{
	for (int i = 0; i < LATE_PASSES; i++)
		if (furca_limits_signal_children(call->host, SIGINT, call->started_us, &call->signalled) == 0)
			break;
}

void furca_call_done(struct furca_call *call, struct furca_fd *memory)
{
	call->refused = furca_view_is(call->said.how, FURCA_HOST_HOW_REFUSED) ||
			furca_view_is(call->said.how, FURCA_HOST_HOW_FULL);
	call->result_memory = furca_fd_take(memory);
	furca_loop_drop(call->engine->loop, &call->grace_op);
	furca_loop_drop(call->engine->loop, &call->deadline_op);
	call->run_us = call->said.run_us;
	call->ran_us = furca_now_us();
	if (call->interrupted && !call->own_host && !call->host->attached)
		interrupt_late(call);
	end_output(call, true, call->said.redirected);
	furca_call_judge(call);
	if (call->refused) /* its answer is a refusal's, as the engine gives them */
		unhear(call);
}

void furca_call_died(struct furca_call *call, const struct furca_host *host)
{
	furca_loop_drop(call->engine->loop, &call->grace_op);
	furca_loop_drop(call->engine->loop, &call->deadline_op);
	end_output(call, false, true);
	furca_call_judge_end(call, host);
}
