#include "engine/init_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "bridge/wire/limits.h"
#include "engine/engine_private.h"

#include "base/banned.h"

struct furca_init_request {
	struct furca_init_request *next;
	uint64_t call;
	enum furca_frame kind;
	union {
		furca_spawned_fn *spawned;
		furca_cell_fn *cell;
		furca_changed_fn *changed;
	};
	void *owner;	    /* NULL: forgotten */
	uint64_t mounts_at; /* INIT_CELL: as struct furca_init has it */
};

static void fail_request(struct furca_init_request *q, const struct furca_err *err)
{
	if (!q->owner)
		return;
	if (q->kind == FURCA_INIT_SPAWN)
		q->spawned(q->owner, FURCA_PROC_NONE, err);
	else if (q->kind == FURCA_INIT_CELL)
		q->cell(q->owner, NULL, err);
	else
		q->changed(q->owner, (struct furca_view){NULL, NULL}, err);
}

static struct furca_init_request *take_request(struct furca_init *init, uint64_t call)
{
	for (struct furca_init_request **at = &init->first; *at; at = &(*at)->next) {
		struct furca_init_request *q = *at;

		if (q->call != call)
			continue;
		*at = q->next;
		if (!q->next)
			init->last = at;
		return q;
	}
	return NULL;
}

static void fail_all(struct furca_init *init, const char *why)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_GONE, 0, "%s", why);
	while (init->first) {
		struct furca_init_request *q = init->first;

		init->first = q->next;
		if (!init->first)
			init->last = &init->first;
		fail_request(q, &err);
		free(q);
	}
}

static bool failed_field(const struct furca_frame_view *frame, const char *what, struct furca_err *err)
{
	struct furca_view text;

	if (!furca_map_text(frame->body, "error", &text))
		return false;
	(void)furca_fail(err, FURCA_E_SYSTEM, 0, "%s: %.*s", what, (int)FURCA_MIN(furca_view_size(text), 300),
			 (const char *)text.at);
	return true;
}

static void on_spawned(struct furca_init_request *q, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_proc proc = FURCA_PROC_NONE;
	uint64_t pid = 0;

	if (!failed_field(frame, "cannot start the program", &err) &&
	    (frame->n_fds != 1 || !furca_map_uint(frame->body, "pid", &pid)))
		(void)furca_fail_suggest(&err, FURCA_E_LIMIT, 0, FURCA_ADVICE_DESCRIPTORS,
					 "no descriptor is left for the process");
	if (!err.code)
		proc = (struct furca_proc){(pid_t)pid, furca_fd_take(&fds[0])};
	if (q->owner) {
		q->spawned(q->owner, proc, err.code ? &err : NULL);
		return;
	}
	if (!err.code)
		(void)furca_proc_signal(&proc, SIGKILL);
	furca_proc_done(&proc);
}

static void on_cell(struct furca_init *init, struct furca_init_request *q, const struct furca_frame_view *frame,
		    struct furca_fd *fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_init *cell = NULL;
	uint64_t held = 0;
	pid_t pid = 0;

	if (!failed_field(frame, "cannot make a cell", &err) &&
	    (frame->n_fds != 2 || (pid = furca_proc_pid_of(fds[0].n)) <= 0)) /* asking takes one more */
		(void)furca_fail_suggest(&err, FURCA_E_LIMIT, 0, FURCA_ADVICE_DESCRIPTORS,
					 "no descriptor is left for the cell");
	if (!err.code) {
		struct furca_proc proc = {pid, furca_fd_take(&fds[0])};

		cell = furca_init_link(init->engine, proc, furca_fd_take(&fds[1]));
		if (!cell)
			(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory for a cell");
	}
	if (cell) {
		(void)furca_map_struct(frame->body, "namespaces", &cell->namespaces, sizeof(cell->namespaces));
		(void)furca_map_uint(frame->body, "held", &held);
		cell->held = (unsigned)held;
		cell->parent = furca_init_ref(init);
		cell->mounts_at = q->mounts_at;
		cell->depth = init->depth + 1;
	}
	if (q->owner)
		q->cell(q->owner, cell, err.code ? &err : NULL);
	else
		furca_init_unref(cell);
}

static void on_upper(struct furca_init *init, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_value names;

	if (frame->n_fds != 1 || init->upper.top.n >= 0 || !furca_map_uint(frame->body, "mark", &init->mark) ||
	    !furca_map_get(frame->body, "directories", &names) || names.kind != FURCA_BIN ||
	    furca_buf_append(&init->upper.directories, names.bytes.at, furca_view_size(names.bytes)) < 0)
		return;
	init->upper.top = furca_fd_take(&fds[0]);
}

static void on_frame(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_init *init = owner;

	if (frame->number == FURCA_INIT_EXITED) {
		uint64_t pid = 0, status = 0, cpu = 0, rss = 0;

		(void)furca_map_uint(frame->body, "pid", &pid);
		(void)furca_map_uint(frame->body, "status", &status);
		(void)furca_map_uint(frame->body, "cpu_us", &cpu);
		(void)furca_map_uint(frame->body, "max_rss_bytes", &rss);
		if (init->exited)
			init->exited(init->owner, pid, (int)status, cpu, rss);
		return;
	}
	if (frame->number == FURCA_INIT_UPPER) {
		on_upper(init, frame, fds);
		return;
	}
	FURCA_AUTO_FREE struct furca_init_request *q = take_request(init, frame->call);
	if (!q)
		return;
	furca_init_ref(init); /* a callee may let go of it */
	if (frame->number == FURCA_INIT_SPAWNED && q->kind == FURCA_INIT_SPAWN) {
		on_spawned(q, frame, fds);
	} else if (frame->number == FURCA_INIT_CELL_READY && q->kind == FURCA_INIT_CELL) {
		on_cell(init, q, frame, fds);
	} else if (frame->number == FURCA_INIT_CHANGED && q->kind == FURCA_INIT_CHANGES) {
		if (q->owner)
			q->changed(q->owner, frame->body, NULL);
	} else {
		struct furca_err err = FURCA_ERR_INIT;

		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0, "the init process answered %s with %s",
				 furca_frame_name(q->kind), furca_frame_name(frame->number));
		fail_request(q, &err);
	}
	furca_init_unref(init);
}

static void on_end(void *owner, int reason)
{
	struct furca_init *init = owner;

	furca_init_ref(init);
	fail_all(init, "the init process has ended");
	if (init->gone)
		init->gone(init->owner);
	furca_init_unref(init);
}

struct furca_init *furca_init_link(struct furca_engine *engine, struct furca_proc proc, struct furca_fd control)
{
	struct furca_init *init = calloc(1, sizeof(*init));

	if (!init) {
		furca_proc_done(&proc);
		furca_fd_done(&control);
		return NULL;
	}
	init->engine = engine;
	init->refs = 1;
	init->last = &init->first;
	init->proc = proc;
	init->upper.top = FURCA_FD_NONE;
	init->mounts = FURCA_FD_NONE;
	if (furca_stream_open(&init->control, engine->loop, control, FURCA_MAX_HOST_FRAME, on_frame, on_end, init) <
	    0) {
		(void)furca_proc_signal(&init->proc, SIGKILL);
		furca_proc_done(&init->proc);
		free(init);
		return NULL;
	}
	engine->stats.inits++;
	return init;
}

struct furca_init *furca_init_ref(struct furca_init *init)
{
	init->refs++;
	return init;
}

void furca_init_unref(struct furca_init *init)
{
	if (!init || --init->refs > 0)
		return;
	init->refs = 1; /* while what was asked is failed */
	fail_all(init, "the cell was closed");
	init->engine->stats.inits--;
	furca_stream_done(&init->control);
	(void)furca_proc_signal(&init->proc, SIGKILL);
	furca_proc_done(&init->proc);
	furca_upper_done(&init->upper);
	furca_fd_done(&init->mounts);
	furca_init_unref(init->parent);
	free(init);
}

/* Sends and notes the request. Descriptors are handed over in every case. */
static int ask(struct furca_init *init, struct furca_buf *buf, uint64_t call, enum furca_frame kind,
	       struct furca_fd *fds, size_t n_fds, void (*fn)(void), void *owner)
{
	struct furca_init_request *q = calloc(1, sizeof(*q));
	int r = q ? furca_stream_send(&init->control, buf, fds, n_fds) : -ENOMEM;

	if (!q)
		furca_fds_done(fds, n_fds);
	if (r < 0) {
		free(q);
		return r;
	}
	*q = (struct furca_init_request){.call = call,
					 .kind = kind,
					 .spawned = (furca_spawned_fn *)fn,
					 .owner = owner,
					 .mounts_at = init->mounts_changed};
	*init->last = q;
	init->last = &q->next;
	return 0;
}

static void pack_list(msgpack_packer *pk, const char *key, char *const *list)
{
	uint32_t n = 0;

	while (list[n])
		n++;
	furca_pack_text(pk, key);
	msgpack_pack_array(pk, n);
	for (uint32_t i = 0; i < n; i++)
		furca_pack_text(pk, list[i]);
}

int furca_init_spawn(struct furca_init *init, char *const *argv, char *const *env, const char *cwd,
		     struct furca_fd fds[3], furca_spawned_fn *fn, void *owner)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	uint64_t call = furca_engine_next(init->engine);
	msgpack_packer pk;

	size_t at = furca_frame_begin(&buf, &pk, FURCA_INIT_SPAWN, call, 3);
	pack_list(&pk, "argv", argv);
	pack_list(&pk, "env", env);
	furca_pack_text(&pk, "cwd");
	furca_pack_text(&pk, cwd);
	(void)furca_frame_end(&buf, at, 3);
	return ask(init, &buf, call, FURCA_INIT_SPAWN, fds, 3, (void (*)(void))fn, owner);
}

/*
 * The kernel says once to each who has mountinfo open that something was mounted or unmounted there (proc_pid_mountinfo(5)). In a cell where nobody lives
 * nothing is.
 */
static void look_at_mounts(struct furca_init *init)
{
	struct pollfd mounts = {.fd = init->mounts.n, .events = POLLPRI};
	char path[64];

	if (init->parent && !init->lived_in)
		return;
	if (init->mounts.n < 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", init->proc.pid);
		init->mounts = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
		init->mounts_changed++; /* before it was open */
	} else if (poll(&mounts, 1, 0) > 0) {
		init->mounts_changed++;
	}
}

bool furca_init_is_current(const struct furca_init *cell)
{
	look_at_mounts(cell->parent);
	return cell->mounts_at == cell->parent->mounts_changed;
}

int furca_init_cell(struct furca_init *init, unsigned namespaces, bool network, uint64_t upper_bytes, uint64_t keep_pid,
		    furca_cell_fn *fn, void *owner)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	uint64_t call = furca_engine_next(init->engine);
	msgpack_packer pk;

	look_at_mounts(init);
	size_t at = furca_frame_begin(&buf, &pk, FURCA_INIT_CELL, call, 4);
	furca_pack_text(&pk, "namespaces");
	msgpack_pack_uint64(&pk, namespaces);
	furca_pack_text(&pk, "network");
	furca_pack_bool(&pk, network);
	furca_pack_text(&pk, "upper_bytes");
	msgpack_pack_uint64(&pk, upper_bytes);
	furca_pack_text(&pk, "keep_pid");
	msgpack_pack_uint64(&pk, keep_pid);
	(void)furca_frame_end(&buf, at, 0);
	return ask(init, &buf, call, FURCA_INIT_CELL, NULL, 0, (void (*)(void))fn, owner);
}

int furca_init_changes(struct furca_init *cell, uint64_t max, furca_changed_fn *fn, void *owner)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	uint64_t call = furca_engine_next(cell->engine);
	msgpack_packer pk;

	size_t at = furca_frame_begin(&buf, &pk, FURCA_INIT_CHANGES, call, 1);
	furca_pack_text(&pk, "max");
	msgpack_pack_uint64(&pk, max);
	(void)furca_frame_end(&buf, at, 0);
	return ask(cell, &buf, call, FURCA_INIT_CHANGES, NULL, 0, (void (*)(void))fn, owner);
}

bool furca_init_untouched(const struct furca_init *cell)
{
	return cell->upper.top.n >= 0 && furca_upper_mark(&cell->upper) == cell->mark;
}

void furca_init_forget(struct furca_init *init, void *owner)
{
	for (struct furca_init_request *q = init->first; q; q = q->next)
		if (q->owner == owner)
			q->owner = NULL;
}
