/*
 * Read-only calls and inspections: each in a copy of the session's newest commit (or, where there is no snapshot, of its idle live
 * process), in a cell of its own that is thrown away. A copy may be parked ahead, so that a read only hands it the code.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cells.h"
#include "engine/engine_private.h"
#include "engine/session.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define IN_THE_SESSION "Use state_mode='stateful' to run it in the session itself (what it changes is kept)."
#define MAX_FILES 200	   /* paths of each kind in `changes.files` */
#define MAX_ATTEMPTS 3	   /* copies tried, where their origin dies before they stand */
#define PARK_AGAIN_US 1000 /* after a read: its client has the answer first */
#define PARK_LONG_US                                                                                                   \
	20000 /* after a call began that has not ended: making the next copy would compete with a short one for the CPU */
#define PARK_US 10000 /* after a commit: calls that follow each other closely park nothing */

/* Whether what is mounted for the session is what was when this cell, and those around it that it does not live in itself, were made. */
static bool shows_mounts(const struct furca_session *s, const struct furca_init *cell)
{
	const struct furca_init *home = s->live ? furca_host_init_of(s->live) : NULL;

	for (; cell && cell != home && cell->parent; cell = cell->parent)
		if (!furca_init_is_current(cell))
			return false;
	return true;
}

struct furca_host *furca_read_source(const struct furca_session *s)
{
	const struct furca_commit *top = s->top;

	switch (s->state) {
	case FURCA_S_IDLE:
	case FURCA_S_BUSY:
		if (top && top->host && top->standing && top->version == s->version &&
		    (s->state == FURCA_S_BUSY || shows_mounts(s, furca_host_init_of(top->host))))
			return top->host;
		if (s->state == FURCA_S_IDLE)
			return s->live;
		if (top && !top->host && !top->asked && top->version == s->version)
			return furca_zygote_find(s->engine, s->entry.key.lang, s->entry.key.venv);
		return NULL;
	case FURCA_S_NEW:
	case FURCA_S_STARTING:
	case FURCA_S_RESTORING:
	case FURCA_S_CLOSING:
	case FURCA_S_DEAD:
	case FURCA_S_STATES:
		break;
	}
	return NULL;
}

static unsigned wanted(const struct furca_call *call)
{
	return furca_engine_barriers(call->engine) & ~(call->plan.network ? FURCA_BARRIER_NETWORK : 0U);
}

static unsigned required(const struct furca_call *call)
{
	return call->method == FURCA_METHOD_inspect_session ? FURCA_BARRIER_MEMORY : call->plan.required;
}

/* What hinders the clone stands in the process, where code must remove it; what can be done about the call alone is the same for all. */
static void refuse_copy(struct furca_call *call, const struct furca_err *err)
{
	char advice[2 * FURCA_ERR_TEXT_MAX], text[FURCA_ERR_TEXT_MAX + 128];

	(void)snprintf(advice, sizeof(advice), "%s %s", furca_err_suggestion(err), IN_THE_SESSION);
	furca_call_fail(call, furca_err_type(err->code), advice, "%s", furca_err_describe(err, text, sizeof(text)));
	furca_call_finish(call);
}

static void refuse(struct furca_call *call, const struct furca_err *err)
{
	if (err->code == FURCA_E_CLONE && call->method == FURCA_METHOD_execute) {
		refuse_copy(call, err);
		return;
	}
	if (call->method == FURCA_METHOD_inspect_session) {
		furca_call_refuse(call, err);
		return;
	}
	furca_call_fail_err(call, err);
	furca_call_finish(call);
}

/* The list with its paths as text: a name may hold any bytes, and a client that is strict about UTF-8 would hang up. */
static void take_files(struct furca_buf *out, struct furca_view body)
{
	struct furca_value v;
	msgpack_packer pk;

	furca_packer(&pk, out);
	while (furca_value_enter(&body, &v) == 0) {
		FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

		if (v.kind == FURCA_MAP) {
			msgpack_pack_map(&pk, v.count);
		} else if (v.kind == FURCA_ARRAY) {
			msgpack_pack_array(&pk, v.count);
		} else if (v.kind == FURCA_STR) {
			furca_utf8_lossy(&text, v.bytes.at, furca_view_size(v.bytes));
			furca_pack_bytes(&pk, text.data, text.len);
		} else {
			furca_pack_raw(&pk, v.raw);
		}
	}
}

static void park_in(struct furca_session *s, int64_t us);

static void answer(struct furca_call *call)
{
	park_in(call->session, PARK_AGAIN_US);
	furca_call_finish(call);
}

static void listed(void *owner, struct furca_view body, const struct furca_err *err)
{
	struct furca_call *call = owner;

	if (!err)
		take_files(&call->files, body);
	answer(call);
}

/* CHANGED's map, of a call that has written nothing. */
static void no_files(struct furca_buf *out)
{
	static const char *const kinds[] = {"added", "modified", "deleted"};
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, FURCA_COUNT(kinds) + 1);
	for (size_t i = 0; i < FURCA_COUNT(kinds); i++) {
		furca_pack_text(&pk, kinds[i]);
		msgpack_pack_array(&pk, 0);
	}
	furca_pack_text(&pk, "count");
	msgpack_pack_uint64(&pk, 0);
}

static void on_done(void *owner, struct furca_host *host, uint64_t number, struct furca_view body,
		    struct furca_fd *memory)
{
	struct furca_call *call = owner;

	if (call->phase != FURCA_CALL_RUNNING || number != call->frame)
		return;
	furca_call_hear(call, body);
	furca_call_done(call, memory);
	call->state = "unchanged";
	call->phase = FURCA_CALL_LISTING;
	if (host->cell && furca_init_untouched(host->cell))
		no_files(&call->files);
	else if (host->cell && furca_init_changes(host->cell, MAX_FILES, listed, call) == 0)
		return;
	answer(call);
}

/* Once more, from a new copy. */
static void again(struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host *host = call->host;

	furca_pipes_free(call->pipes);
	call->pipes = NULL;
	call->host = NULL;
	call->own_host = false;
	call->began = false;
	call->attempts++;
	call->phase = FURCA_CALL_WAITING;
	furca_host_drop(host);
	if (furca_session_enqueue(call->session, call, &err) < 0)
		refuse(call, &err);
}

static void on_dead(void *owner, struct furca_host *host)
{
	struct furca_call *call = owner;
	bool safe = !call->began || host->unread;

	if (call->phase == FURCA_CALL_LISTING)
		return; /* its cell is being asked still */
	if (call->phase == FURCA_CALL_RUNNING && !call->killed && call->stop == FURCA_STOP_NONE &&
	    call->attempts == 0 &&
	    ((safe && call->plan.retry != FURCA_RETRY_NEVER) || call->plan.retry == FURCA_RETRY_ALWAYS)) {
		call->retried = true;
		again(call);
		return;
	}
	furca_call_died(call, host);
	furca_call_add(call, "It was a copy; the session itself is unchanged.");
	call->state = "unchanged";
	furca_call_finish(call);
}

static const struct furca_host_events copy_events = {.done = on_done, .dead = on_dead};

static void inspected(void *owner, struct furca_view body, const struct furca_err *err)
{
	struct furca_call *call = owner;
	struct furca_value state = {.raw = {NULL, NULL}};
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (err) {
		furca_call_refuse(call, err);
		return;
	}
	if (!furca_map_get(body, "state", &state) || state.kind == FURCA_NIL) {
		struct furca_err failure = FURCA_ERR_INIT;

		(void)furca_fail(&failure, FURCA_E_SYSTEM, 0, "the session could not be described");
		furca_call_refuse(call, &failure);
		return;
	}
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "session");
	furca_result_session(&pk, &call->session->entry);
	furca_pack_text(&pk, "state");
	furca_pack_raw(&pk, state.raw);
	furca_call_answer(call, &out);
}

/* The copy stands: hands it the code. */
static void run(struct furca_call *call)
{
	if (call->method == FURCA_METHOD_inspect_session) {
		FURCA_AUTO_FREE char *detail = call->selector.detail.at ? furca_view_dup(call->selector.detail) : NULL;
		const char *name = call->selector.word.at ? (const char *)call->word.data : NULL;
		struct furca_err failure = FURCA_ERR_INIT;

		call->phase = FURCA_CALL_LISTING;
		if (furca_host_inspect(call->host, detail ? detail : "names", name, inspected, call) < 0) {
			(void)furca_fail(&failure, FURCA_E_GONE, 0, "the copy that was to be inspected has ended");
			furca_call_refuse(call, &failure);
		}
		return;
	}
	struct furca_err err = FURCA_ERR_INIT;

	const struct furca_limits *above = call->session && call->session->has_limits ? &call->session->limits : NULL;

	if (call->plan.has_limits && furca_limits_apply(call->host, &call->plan.limits, above, &err) < 0) {
		furca_call_fail(call, "limit", furca_err_suggestion(&err), "%s.", err.text);
		furca_call_finish(call);
		return;
	}
	if (furca_call_run(call) < 0 && call->error_type)
		furca_call_finish(call);
}

static void take_isolation(struct furca_buf *out, struct furca_view body)
{
	struct furca_value v;

	furca_buf_clear(out);
	if (furca_map_get(body, "isolation", &v) && v.kind == FURCA_MAP)
		(void)furca_buf_append(out, v.raw.at, furca_view_size(v.raw));
}

static void cloned(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_call *call = owner;

	if (err && err->code == FURCA_E_GONE && call->attempts < MAX_ATTEMPTS &&
	    call->plan.retry != FURCA_RETRY_NEVER) {
		again(call); /* what was to be copied has just died; the session is being repaired */
		return;
	}
	if (err) {
		refuse(call, err);
		return;
	}
	(void)furca_map_uint(body, "clone_us", &call->fork_us);
	(void)furca_map_uint(body, "isolate_us", &call->isolate_us);
	take_isolation(&call->isolation, body);
	run(call);
}

static void leave_queue(struct furca_session *s, struct furca_call *call)
{
	furca_session_unqueue(s, call);
	call->asked_clone_us = furca_now_us();
	call->queue_us = (uint64_t)(call->asked_clone_us - call->asked_us);
	s->used_at = furca_wall_s();
	(void)furca_buf_append(&call->suggestion, s->note.data,
			       s->note.len); /* what was lost; the next stateful call is told too */
	call->own_host = true;
	if (call->method == FURCA_METHOD_inspect_session)
		furca_call_bound(call, FURCA_OPERATION_US);
}

static void cell_made(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct furca_call *call = owner;

	call->waits_copy = false;
	call->cell = cell;
	call->no_cell = cell == NULL; /* what cannot be had without one is said by the clone */
	call->asked_of = NULL;
	furca_session_wake(call->session);
}

/* True where the call has its cell, or is known to do without. */
static bool have_cell(struct furca_session *s, struct furca_call *call, struct furca_init *init)
{
	struct furca_cell_kind kind = {wanted(call), call->plan.network, 0};

	/* The session was promoted meanwhile, or something was mounted. */
	if (call->cell && (call->cell->parent != init || !furca_init_is_current(call->cell))) {
		furca_init_unref(call->cell);
		call->cell = NULL;
	}
	if (call->cell || call->no_cell)
		return true;
	call->cell = furca_cells_take(s->engine->cells, init, &kind);
	if (call->cell)
		return true;
	if (furca_cells_ask(s->engine->cells, init, &kind, cell_made, call) < 0) {
		call->no_cell = true;
		return true;
	}
	call->waits_copy = true;
	call->asked_of = init;
	return false;
}

static bool use_parked(struct furca_session *s, struct furca_call *call)
{
	if (s->parked && s->parked_ready && !shows_mounts(s, s->parked->cell))
		furca_read_unpark(s);
	if (!s->parked || !s->parked_ready || !s->top || call->plan.has_limits || call->plan.network ||
	    (required(call) & ~s->parked_held) != 0 || furca_read_source(s) == NULL || s->top->version != s->version)
		return false;
	leave_queue(s, call);
	call->host = s->parked;
	call->host->owner = call;
	call->host->events = &copy_events;
	call->isolation = furca_buf_take(&s->parked_isolation);
	s->parked = NULL;
	s->parked_ready = false;
	s->engine->stats.parked_used++;
	park_in(s, PARK_LONG_US);
	run(call);
	return true;
}

/*
 * Where no process may be started a read is refused, also where a copy is parked: whether it is answered must not hang on one having
 * been made in time.
 */
static bool refused(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (furca_clone_possible())
		return false;
	leave_queue(s, call);
	call->own_host = false;
	(void)furca_fail_suggest(&err, FURCA_E_ISOLATION, 0,
				 "End some processes, or raise the limit (ulimit -u, pids.max).",
				 "cannot start a process for the copy: a limit on processes is reached");
	refuse(call, &err);
	return true;
}

bool furca_read_start(struct furca_session *s, struct furca_call *call, bool first_in_queue)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host *from = furca_read_source(s);

	if (!from ||
	    (from == s->live && !first_in_queue && (s->attached || s->engine->config.snapshots == FURCA_SNAPSHOT_OFF)))
		return false;
	if (refused(s, call) || use_parked(s, call))
		return true;
	if (!have_cell(s, call, furca_host_init_of(from)))
		return false;
	struct furca_host_clone args = {
		.role = FURCA_CLONE_COPY,
		.barriers = wanted(call),
		.required = required(call),
		.cell = call->cell,
		.tag = furca_limits_new_tag(s->engine),
		.label = "read-only copy",
		.cloned = cloned,
		.events = &copy_events,
		.owner = call,
	};
	leave_queue(s, call);
	s->engine->stats.copies_on_demand++;
	call->host = furca_host_clone(from, &args, &err);
	furca_init_unref(call->cell); /* the host holds it now */
	call->cell = NULL;
	if (!call->host) {
		call->own_host = false;
		refuse(call, &err);
	}
	return true;
}

void furca_read_forget(struct furca_call *call)
{
	if (call->asked_of)
		furca_cells_forget(call->engine->cells, call->asked_of, call);
	call->asked_of = NULL;
	if (call->host && call->own_host) {
		/* Whatever phase the call has come to: its cell may be listing the changes still, and would answer to freed memory. */
		if (call->host->cell)
			furca_init_forget(call->host->cell, call);
		furca_host_forget(call->host, call);
	}
	furca_init_unref(call->cell);
	call->cell = NULL;
}

void furca_read_give_up(struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (call->method != FURCA_METHOD_inspect_session) {
		(void)furca_buf_append_text(furca_call_suggest(call),
					    "The files that it changed could not be listed in time.");
		answer(call);
		return;
	}
	if (call->stop == FURCA_STOP_CANCEL)
		(void)furca_fail(&err, FURCA_E_INTERRUPTED, 0, "It was cancelled.");
	else
		(void)furca_fail_suggest(&err, FURCA_E_TIMEOUT, 0, "Inspect a name alone, or without detail.",
					 "The session was not described in time.");
	furca_call_refuse(call, &err);
}

void furca_read_detach(struct furca_session *s)
{
	struct furca_call *call = s->engine->calls;

	while (call) {
		struct furca_call *next = call->next;

		if (call->session == s && call->own_host && call->plan.mode == FURCA_READ_ONLY) {
			struct furca_err err = FURCA_ERR_INIT;

			call->stop = FURCA_STOP_CLOSE;
			call->killed = true;
			(void)furca_fail(&err, FURCA_E_GONE, 0, "The session was closed while it was being read.");
			furca_call_fail(call, "interrupted", NULL, "%s", err.text);
			call->state = "unchanged";
			if (call->method == FURCA_METHOD_inspect_session)
				furca_call_refuse(call, &err);
			else
				furca_call_finish(call);
			next = s->engine->calls; /* the list has changed */
		}
		call = next;
	}
}

static void parked_dead(void *owner, struct furca_host *host)
{
	struct furca_session *s = owner;

	if (s->parked == host)
		furca_read_unpark(s);
}

static const struct furca_host_events parked_events = {.dead = parked_dead};

static void parked(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_session *s = owner;

	if (err) {
		furca_log_err("engine", "parked copy", err);
		furca_host_drop(host);
		s->parked = NULL;
		return;
	}
	s->parked_ready = true;
	s->parked_held = furca_engine_required(s->engine);
	furca_prefetch_tell(&s->prefetch, host);
	take_isolation(&s->parked_isolation, body);
}

static void park_with(struct furca_session *s, struct furca_init *cell)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host_clone args = {
		.role = FURCA_CLONE_COPY,
		.barriers = FURCA_BARRIERS_ALL,
		.required = furca_engine_required(s->engine),
		.cell = cell,
		.tag = furca_limits_new_tag(s->engine),
		.label = "parked copy",
		.cloned = parked,
		.events = &parked_events,
		.owner = s,
	};

	s->parked = furca_host_clone(s->top->host, &args, &err);
	furca_init_unref(cell);
}

static bool may_park(const struct furca_session *s)
{
	return !s->parked && s->top && !s->engine->config.without && s->top->host && s->top->standing &&
	       s->top->version == s->version && (s->state == FURCA_S_IDLE || s->state == FURCA_S_BUSY) &&
	       s->engine->config.snapshots != FURCA_SNAPSHOT_OFF && !s->engine->stopping;
}

static void park_cell(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct furca_session *s = owner;

	s->park_init = NULL;
	if (cell && may_park(s) && cell->parent == furca_host_init_of(s->top->host))
		park_with(s, cell);
	else
		furca_init_unref(cell);
}

static void park_now(void *owner)
{
	struct furca_session *s = owner;

	s->park_op = FURCA_OP_NONE;
	if (!may_park(s) || s->park_init || !shows_mounts(s, furca_host_init_of(s->top->host)))
		return;
	/* And the commit after a short call would throw the copy away. */
	if (s->running && furca_now_us() - s->running->started_us < PARK_LONG_US) {
		park_in(s, PARK_LONG_US);
		return;
	}
	struct furca_init *init = furca_host_init_of(s->top->host),
			  *cell = furca_cells_take(s->engine->cells, init, &furca_cell_for_copy);

	if (cell)
		park_with(s, cell);
	else if (furca_cells_ask(s->engine->cells, init, &furca_cell_for_copy, park_cell, s) == 0)
		s->park_init = init;
}

static void park_in(struct furca_session *s, int64_t us)
{
	furca_loop_drop(s->engine->loop, &s->park_op);
	if (may_park(s))
		(void)furca_loop_timer(s->engine->loop, furca_now_us() + us, park_now, s, &s->park_op);
}

void furca_read_park(struct furca_session *s)
{
	park_in(s, PARK_US);
}

void furca_read_unpark(struct furca_session *s)
{
	furca_loop_drop(s->engine->loop, &s->park_op);
	if (s->park_init)
		furca_cells_forget(s->engine->cells, s->park_init, s);
	s->park_init = NULL;
	furca_host_drop(s->parked);
	s->parked = NULL;
	s->parked_ready = false;
	furca_buf_clear(&s->parked_isolation);
}
