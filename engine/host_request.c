/* What is asked of a host and answered by a frame of its own: CLONE and INSPECT. Its side of the process is in host_proc.c. */
#include <errno.h>
#include <stdlib.h>

#include "bridge/wire/limits.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/host_private.h"

#include "base/banned.h"

#define STUCK_US 30000000 /* for a snapshot, which runs no code, to make a clone, which bounds itself to less */

struct furca_host_request {
	struct furca_host_request *next;
	uint64_t call;
	enum furca_frame kind;
	struct furca_host *clone;
	union {
		furca_cloned_fn *cloned;
		furca_inspected_fn *inspected;
	};
	void *owner; /* NULL: forgotten */
};

static void finish_clone(struct furca_host_request *q, struct furca_view body, const struct furca_err *err)
{
	struct furca_host *clone = q->clone;

	if (err) {
		clone->dead = true;
		clone->status = -1;
		furca_stream_done(&clone->control);
	}
	if (!clone->dropped)
		q->cloned(q->owner, clone, body, err);
	else if (err)
		furca_host_free(clone); /* its owner has let go of it long ago */
}

static void finish_request(struct furca_host_request *q, struct furca_view body, const struct furca_err *err)
{
	if (q->kind == FURCA_HOST_CLONE) {
		finish_clone(q, body, err);
	} else if (q->owner) {
		q->inspected(q->owner, body, err);
	}
}

static struct furca_host_request *take_request(struct furca_host *host, uint64_t call, enum furca_frame kind)
{
	for (struct furca_host_request **at = &host->first; *at; at = &(*at)->next) {
		struct furca_host_request *q = *at;

		if (q->call != call || q->kind != kind)
			continue;
		*at = q->next;
		if (!q->next)
			host->last = at;
		return q;
	}
	return NULL;
}

void furca_host_fail_requests(struct furca_host *host, const char *why)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_GONE, 0, "%s", why);
	while (host->first) {
		struct furca_host_request *q = host->first;

		host->first = q->next;
		if (!host->first)
			host->last = &host->first;
		finish_request(q, (struct furca_view){NULL, NULL}, &err);
		free(q);
	}
}

static void note_clone(struct furca_engine *engine, struct furca_view body)
{
	uint64_t freeze = 0, clone = 0, isolate = 0, shared = 0;

	(void)furca_map_uint(body, "freeze_us", &freeze);
	(void)furca_map_uint(body, "clone_us", &clone);
	(void)furca_map_uint(body, "isolate_us", &isolate);
	(void)furca_map_uint(body, "bytes_shared", &shared);
	engine->stats.freeze_us += freeze;
	engine->stats.clone_us += clone;
	engine->stats.isolate_us += isolate;
	engine->stats.last_clone_us = freeze + clone + isolate;
	engine->stats.last_bytes_shared = shared;
}

/* A snapshot that does not answer hangs, in a lock that one of its parked threads holds: others must serve. */
static void stuck(void *owner)
{
	struct furca_host *host = owner;

	host->stuck_op = FURCA_OP_NONE;
	furca_log(FURCA_LOG_WARN, "engine", "a snapshot does not answer pid=%d", (int)host->proc.pid);
	furca_host_kill(host);
}

static void watch(struct furca_host *host)
{
	furca_loop_drop(host->engine->loop, &host->stuck_op);
	if (host->first && host->role == FURCA_CLONE_SNAPSHOT && !host->dead)
		(void)furca_loop_timer(host->engine->loop, furca_now_us() + STUCK_US, stuck, host, &host->stuck_op);
}

/* The clone was made where its original is: what ends with the cell does not end with the clone. */
static void put_outside(struct furca_host *clone, const struct furca_host *from)
{
	struct furca_init *home = from->cell ? furca_init_ref(from->cell) : NULL;

	furca_init_unref(clone->cell);
	clone->cell = home;
	if (home)
		home->lived_in = true;
	clone->outside = true;
}

static void on_cloned(struct furca_host *from, struct furca_host_request *q, const struct furca_frame_view *frame,
		      struct furca_fd *fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_view text, suggestion = {NULL, NULL}, stage = {NULL, NULL};
	bool outside = false;

	if (furca_map_text(frame->body, "error", &text)) {
		(void)furca_map_text(frame->body, "suggestion", &suggestion);
		FURCA_AUTO_FREE char *advice = suggestion.at ? furca_view_dup(suggestion) : NULL;
		bool itself = furca_map_text(frame->body, "stage", &stage) && furca_view_is(stage, "process");
		(void)furca_fail_suggest(&err, itself ? FURCA_E_CLONE : FURCA_E_ISOLATION, 0, advice, "%.*s",
					 (int)FURCA_MIN(furca_view_size(text), 400), (const char *)text.at);
	} else if (frame->n_fds != 1) {
		(void)furca_fail_suggest(&err, FURCA_E_LIMIT, 0, FURCA_ADVICE_DESCRIPTORS,
					 "no descriptor is left for the clone");
	}
	if (err.code) {
		q->clone->engine->stats.clone_failures++;
		finish_request(q, frame->body, &err);
		return;
	}
	struct furca_proc proc = {furca_proc_pid_of(fds[0].n), furca_fd_take(&fds[0])};
	struct furca_host *clone = q->clone;

	note_clone(clone->engine, frame->body);
	if (furca_map_bool(frame->body, "outside", &outside) && outside)
		put_outside(clone, from);
	if (proc.pid > 0)
		furca_host_know(clone, proc);
	finish_request(q, frame->body, NULL);
	/* The owner may have let go of it just now, but it is not freed before its end. */
	if (proc.pid > 0)
		furca_host_know_end(clone);
	else {
		furca_proc_done(&proc);
		furca_host_ended(clone, -1);
	}
}

void furca_host_answered(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	enum furca_frame kind = frame->number == FURCA_HOST_CLONED ? FURCA_HOST_CLONE : FURCA_HOST_INSPECT;
	FURCA_AUTO_FREE struct furca_host_request *q = take_request(host, frame->call, kind);
	if (!q)
		return;
	watch(host);
	if (kind == FURCA_HOST_CLONE)
		on_cloned(host, q, frame, fds);
	else
		finish_request(q, frame->body, NULL);
}

/* Packs CLONE and sends it with the new host's ends. */
static int send_clone(struct furca_host *from, const struct furca_host_clone *args, uint64_t call,
		      struct furca_fd ends[2])
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_fd fds[3] = {furca_fd_take(&ends[0]), furca_fd_take(&ends[1]), FURCA_FD_NONE};
	unsigned n_fds = 2;
	msgpack_packer pk;

	if (args->cell) {
		if (furca_fd_dup(args->cell->proc.pidfd.n, 3, &fds[2]) < 0) {
			furca_fds_done(fds, 3);
			return -EMFILE;
		}
		n_fds = 3;
	}
	size_t at =
		furca_frame_begin(&buf, &pk, FURCA_HOST_CLONE, call, 4 + args->hot + args->huge + (args->cell != NULL));
	furca_pack_text(&pk, "role");
	msgpack_pack_uint64(&pk, args->role);
	furca_pack_text(&pk, "barriers");
	msgpack_pack_uint64(&pk, args->barriers);
	furca_pack_text(&pk, "required");
	msgpack_pack_uint64(&pk, args->required);
	furca_pack_text(&pk, "label");
	furca_pack_text(&pk, args->label ? args->label : "");
	if (args->cell) {
		furca_pack_text(&pk, "namespaces");
		(void)msgpack_pack_bin(&pk, sizeof(args->cell->namespaces));
		(void)msgpack_pack_bin_body(&pk, &args->cell->namespaces, sizeof(args->cell->namespaces));
	}
	if (args->hot) {
		furca_pack_text(&pk, "hot");
		furca_pack_bool(&pk, true);
	}
	if (args->huge) {
		furca_pack_text(&pk, "huge");
		furca_pack_bool(&pk, true);
	}
	(void)furca_frame_end(&buf, at, n_fds);
	return furca_stream_send(&from->control, &buf, fds, n_fds);
}

static void note_request(struct furca_host *host, struct furca_host_request *q)
{
	*host->last = q;
	host->last = &q->next;
}

struct furca_host *furca_host_clone(struct furca_host *from, const struct furca_host_clone *args, struct furca_err *err)
{
	struct furca_fd ends[2];
	uint64_t call = furca_engine_next(from->engine);

	if (from->dead || !furca_stream_is_open(&from->control)) {
		(void)furca_fail(err, FURCA_E_GONE, 0, "the process to be cloned has ended");
		return NULL;
	}
	FURCA_AUTO_FREE struct furca_host_request *q = calloc(1, sizeof(*q));
	struct furca_host *host = q ? furca_host_new(from->engine, from->lang, from->venv, ends, err) : NULL;
	if (!host)
		return NULL;
	host->role = (int)args->role;
	host->events = args->events;
	host->owner = args->owner;
	host->tag = args->tag;
	host->cgroup = furca_cgroup_ref(from->cgroup);
	host->memory_limit = from->memory_limit;
	/* Without a cell of its own it is born in the pid namespace of its origin, whose cell must outlive it. */
	struct furca_init *cell = args->cell ? args->cell : from->cell;
	host->cell = cell ? furca_init_ref(cell) : NULL;
	if (cell && (!args->cell || args->role != FURCA_CLONE_SNAPSHOT))
		cell->lived_in = true;
	int r = send_clone(from, args, call, ends);
	if (r < 0) {
		if (r == -EMFILE)
			(void)furca_fail_suggest(err, FURCA_E_LIMIT, 0, FURCA_ADVICE_DESCRIPTORS,
						 "no descriptor is left for the clone");
		else
			(void)furca_fail(err, FURCA_E_GONE, 0, "the process to be cloned has ended");
		host->dead = true;
		furca_host_drop(host);
		return NULL;
	}
	q->call = call;
	q->kind = FURCA_HOST_CLONE;
	q->clone = host;
	q->cloned = args->cloned;
	q->owner = args->owner;
	note_request(from, FURCA_TAKE(q));
	if (!from->stuck_op)
		watch(from);
	from->engine->stats.clones++;
	return host;
}

int furca_host_inspect(struct furca_host *host, const char *detail, const char *name, furca_inspected_fn *fn,
		       void *owner)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	FURCA_AUTO_FREE struct furca_host_request *q = calloc(1, sizeof(*q));
	uint64_t call = furca_engine_next(host->engine);
	msgpack_packer pk;

	if (!q)
		return -ENOMEM;
	size_t at = furca_frame_begin(&buf, &pk, FURCA_HOST_INSPECT, call, 2);
	furca_pack_text(&pk, "detail");
	furca_pack_text(&pk, detail);
	furca_pack_text(&pk, "name");
	furca_pack_text_or_nil(&pk, name);
	(void)furca_frame_end(&buf, at, 0);
	int r = furca_stream_send(&host->control, &buf, NULL, 0);
	if (r < 0)
		return r;
	q->call = call;
	q->kind = FURCA_HOST_INSPECT;
	q->inspected = fn;
	q->owner = owner;
	note_request(host, FURCA_TAKE(q));
	return 0;
}

void furca_host_forget(struct furca_host *host, void *owner)
{
	for (struct furca_host_request *q = host->first; q; q = q->next)
		if (q->owner == owner)
			q->owner = NULL;
}
