#include "engine/host_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bridge/wire/limits.h"
#include "engine/capability.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/limits.h"

#include "base/banned.h"

#define LATE_US 300000	  /* between two of the three signs of a process's end: pidfd, EXITED, end of its channel */
#define STUCK_US 30000000 /* for a snapshot, which runs no code, to make a clone, which bounds itself to less */
#define ERRORS_SIZE 65536 /* of what a zygote may say on descriptor 2 */

extern char **environ;

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

static void host_free(struct furca_host *host);

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
		host_free(clone); /* its owner has let go of it long ago */
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

static void fail_requests(struct furca_host *host, const char *why)
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

static void host_free(struct furca_host *host)
{
	struct furca_engine *engine = host->engine;

	furca_loop_drop(engine->loop, &host->pid_op);
	furca_loop_drop(engine->loop, &host->late_op);
	furca_loop_drop(engine->loop, &host->stuck_op);
	furca_stream_done(&host->control);
	furca_lanes_free(host->lanes);
	furca_proc_done(&host->proc);
	furca_fd_done(&host->errors);
	furca_init_unref(host->cell);
	furca_cgroup_unref(host->cgroup);
	*host->prev = host->next;
	if (host->next)
		host->next->prev = host->prev;
	engine->stats.hosts--;
	free(host);
	furca_engine_check_stopped(engine);
}

/*
 * Whether the last message lies unread in its socket. Asked of the socket too, since a clone that was under way may hold the other end
 * a little longer than the process that has died.
 */
static void look_for_unread(struct furca_host *host)
{
	int waiting = 0;

	if (furca_stream_is_open(&host->control) && ioctl(host->control.fd.n, SIOCOUTQ, &waiting) == 0 && waiting > 0)
		host->unread = true;
}

/*
 * Whether its end can leave processes behind. A snapshot has run no code, and what a copy started ends with its pid namespace; looking
 * through all processes of the machine for what they left would cost more than the call.
 */
static bool may_leave_processes(const struct furca_host *host)
{
	bool copy_in_cell = host->role == FURCA_CLONE_COPY && host->cell && host->cell->held & FURCA_BARRIER_PROCESSES;

	return host->tag && !copy_in_cell && host->role != FURCA_CLONE_SNAPSHOT;
}

/* The end of the process, told once, after all that it had still said. */
static void host_dead(struct furca_host *host, int status)
{
	if (host->dead)
		return;
	furca_stream_read_now(&host->control);
	look_for_unread(host);
	host->dead = true;
	host->status = status;
	furca_loop_drop(host->engine->loop, &host->pid_op);
	furca_loop_drop(host->engine->loop, &host->late_op);
	furca_lanes_close(host->lanes);
	fail_requests(host, "the process it was asked of has ended");
	if (may_leave_processes(host))
		furca_limits_sweep(host->engine, host->tag);
	if (host->dropped) {
		host_free(host);
		return;
	}
	host->engine->stats.deaths++;
	host->events->dead(host->owner, host);
}

/* It has been ended by pidfd or by its channel, but the init has not said how. */
static void late(void *owner)
{
	struct furca_host *host = owner;

	host->late_op = FURCA_OP_NONE;
	if (host->proc.pidfd.n >= 0 && furca_proc_signal(&host->proc, SIGKILL) == 0 && !host->kill_when_known) {
		/* Alive, but nothing can be said to it any more: its code has closed our channel. */
		host->kill_when_known = true;
		(void)furca_loop_timer(host->engine->loop, furca_now_us() + LATE_US, late, host, &host->late_op);
		return;
	}
	host_dead(host, -1);
}

static void expect_end(struct furca_host *host)
{
	if (!host->late_op && !host->dead)
		(void)furca_loop_timer(host->engine->loop, furca_now_us() + LATE_US, late, host, &host->late_op);
}

static void on_pidfd(void *owner, unsigned revents)
{
	struct furca_host *host = owner;

	furca_loop_drop(host->engine->loop, &host->pid_op);
	expect_end(host);
}

static void on_end(void *owner, int reason)
{
	struct furca_host *host = owner;

	if (reason == -ECONNRESET)
		host->unread = true;
	expect_end(host);
}

/* From now on it can be signalled; its end may have been told already, which know_end looks up. */
static void know(struct furca_host *host, struct furca_proc proc)
{
	host->proc = proc;
	if (host->tag && furca_limits_tag(proc.pid, host->tag) < 0)
		host->tag = 0;
	if (host->kill_when_known)
		(void)furca_proc_signal(&host->proc, SIGKILL);
	(void)furca_loop_poll(host->engine->loop, host->proc.pidfd.n, POLLIN, on_pidfd, host, &host->pid_op);
}

static void know_end(struct furca_host *host)
{
	struct furca_engine *engine = host->engine;

	for (unsigned i = 0; i < FURCA_COUNT(engine->early); i++) {
		struct furca_early_exit *e = &engine->early[i];

		if (e->pid == 0 || e->pid != (uint64_t)host->proc.pid)
			continue;
		host->cpu_us = e->cpu_us;
		host->max_rss = e->max_rss;
		e->pid = 0;
		host_dead(host, e->status);
		return;
	}
}

void furca_host_exited(struct furca_engine *engine, uint64_t pid, int status, uint64_t cpu_us, uint64_t max_rss)
{
	for (struct furca_host *host = engine->hosts; host; host = host->next) {
		if (host->dead || host->proc.pid == 0 || (uint64_t)host->proc.pid != pid)
			continue;
		host->cpu_us = cpu_us;
		host->max_rss = max_rss;
		host_dead(host, status);
		return;
	}
	engine->early[engine->early_at++ % FURCA_COUNT(engine->early)] = (struct furca_early_exit){pid, status, cpu_us, max_rss};
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

static void on_cloned(struct furca_host_request *q, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_view text, suggestion = {NULL, NULL};

	if (furca_map_text(frame->body, "error", &text)) {
		(void)furca_map_text(frame->body, "suggestion", &suggestion);
		FURCA_AUTO_FREE char *advice = suggestion.at ? furca_view_dup(suggestion) : NULL;
		(void)furca_fail_suggest(&err, FURCA_E_ISOLATION, 0, advice, "%.*s", (int)FURCA_MIN(furca_view_size(text), 400),
					 (const char *)text.at);
	} else if (frame->n_fds != 1) {
		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0, "the host sent no pidfd of its clone");
	}
	if (err.code) {
		q->clone->engine->stats.clone_failures++;
		finish_request(q, frame->body, &err);
		return;
	}
	struct furca_proc proc = {furca_proc_pid_of(fds[0].n), furca_fd_take(&fds[0])};
	struct furca_host *clone = q->clone;

	note_clone(clone->engine, frame->body);
	if (proc.pid > 0)
		know(clone, proc);
	finish_request(q, frame->body, NULL);
	/* The owner may have let go of it just now, but it is not freed before its end. */
	if (proc.pid > 0)
		know_end(clone);
	else {
		furca_proc_done(&proc);
		host_dead(clone, -1);
	}
}

static void on_frame(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct furca_host *host = owner;

	if (frame->number == FURCA_HOST_READY) {
		host->ready = true;
		if (!host->dropped && host->events->ready)
			host->events->ready(host->owner, host);
		return;
	}
	if (frame->number == FURCA_HOST_DONE) {
		if (!host->dropped && host->events->done)
			host->events->done(host->owner, host, frame->call, frame->body);
		return;
	}
	enum furca_frame kind = frame->number == FURCA_HOST_CLONED ? FURCA_HOST_CLONE : FURCA_HOST_INSPECT;
	FURCA_AUTO_FREE struct furca_host_request *q = take_request(host, frame->call, kind);
	if (!q)
		return;
	watch(host);
	if (kind == FURCA_HOST_CLONE)
		on_cloned(q, frame, fds);
	else
		finish_request(q, frame->body, NULL);
}

/* The object with its two socketpairs; the other ends are given out. */
static struct furca_host *host_new(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv, struct furca_fd ret_ends[2],
				   struct furca_err *err)
{
	int control[2], capability[2];
	struct furca_host *host = calloc(1, sizeof(*host));

	if (!host) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a process's channels");
		return NULL;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0) {
		(void)furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a process's control channel");
		free(host);
		return NULL;
	}
	ret_ends[0] = furca_fd_own(control[1]);
	FURCA_AUTO_FD struct furca_fd mine = furca_fd_own(control[0]);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, capability) < 0) {
		(void)furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a process's capability channel");
		furca_fd_done(&ret_ends[0]);
		free(host);
		return NULL;
	}
	ret_ends[1] = furca_fd_own(capability[1]);
	host->engine = engine;
	host->lang = lang;
	host->venv = venv;
	host->proc = FURCA_PROC_NONE;
	host->errors = FURCA_FD_NONE;
	host->last = &host->first;
	int r = furca_stream_open(&host->control, engine->loop, furca_fd_take(&mine), FURCA_MAX_HOST_FRAME, on_frame, on_end, host);
	host->lanes = furca_lanes_new(engine, host, furca_fd_own(capability[0]));
	if (r < 0 || !host->lanes) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a process's channels");
		furca_stream_done(&host->control);
		furca_lanes_free(host->lanes);
		furca_fds_done(ret_ends, 2);
		free(host);
		return NULL;
	}
	host->prev = &engine->hosts;
	host->next = engine->hosts;
	if (host->next)
		host->next->prev = &host->next;
	engine->hosts = host;
	engine->stats.hosts++;
	return host;
}

static void on_spawned(void *owner, struct furca_proc proc, const struct furca_err *err)
{
	struct furca_host *host = owner;

	if (err) {
		(void)!write(host->errors.n, err->text, strlen(err->text));
		host_dead(host, -1);
		return;
	}
	know(host, proc);
	know_end(host);
}

/* Bounded by a seal: a program that writes without end gets errors, not the machine's memory. */
static struct furca_fd errors_new(void)
{
	int fd = memfd_create("furca-errors", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, ERRORS_SIZE) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)) {
		(void)close(fd);
		fd = -1;
	}
	return furca_fd_own(fd);
}

static char **zygote_env(const struct furca_lang *lang, const char *env_dir)
{
	char **activated = env_dir ? furca_env_vars(env_dir, environ) : NULL;
	char **env = env_dir && !activated ? NULL : furca_lang_env(lang, activated ? activated : environ);

	if (activated)
		furca_env_vars_free(activated);
	return env;
}

struct furca_host *furca_host_spawn(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv, const char *env_dir,
				    const struct furca_host_events *events, void *owner, struct furca_err *err)
{
	struct furca_fd fds[3] = {FURCA_FD_NONE, FURCA_FD_NONE, FURCA_FD_NONE};
	char **argv, **env;

	if (lang->argv(env_dir, &argv, err) < 0)
		return NULL;
	env = zygote_env(lang, env_dir);
	struct furca_host *host = env ? host_new(engine, lang, venv, fds, err) : NULL;
	if (host) {
		host->events = events;
		host->owner = owner;
		host->errors = errors_new();
		if (host->errors.n < 0 || furca_fd_dup(host->errors.n, 3, &fds[2]) < 0 ||
		    furca_init_spawn(engine->surface, argv, env, engine->workdir, fds, on_spawned, host) < 0) {
			(void)furca_fail(err, FURCA_E_SYSTEM, 0, "cannot ask the init process for %s", argv[0]);
			host->dead = true;
			furca_host_drop(host);
			host = NULL;
		}
	}
	furca_fds_done(fds, 3);
	furca_lang_argv_free(argv);
	furca_lang_argv_free(env);
	return host;
}

/* Packs CLONE and sends it with the new host's ends. */
static int send_clone(struct furca_host *from, const struct furca_host_clone *args, uint64_t call, struct furca_fd ends[2])
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
	size_t at = furca_frame_begin(&buf, &pk, FURCA_HOST_CLONE, call, 4);
	furca_pack_text(&pk, "role");
	msgpack_pack_uint64(&pk, args->role);
	furca_pack_text(&pk, "barriers");
	msgpack_pack_uint64(&pk, args->barriers);
	furca_pack_text(&pk, "required");
	msgpack_pack_uint64(&pk, args->required);
	furca_pack_text(&pk, "label");
	furca_pack_text(&pk, args->label ? args->label : "");
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
	struct furca_host *host = q ? host_new(from->engine, from->lang, from->venv, ends, err) : NULL;
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
	int r = send_clone(from, args, call, ends);
	if (r < 0) {
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

int furca_host_send(struct furca_host *host, struct furca_buf *frame, struct furca_fd *fds, size_t n_fds)
{
	return furca_stream_send(&host->control, frame, fds, n_fds);
}

int furca_host_tell(struct furca_host *host, enum furca_frame frame)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;
	size_t at = furca_frame_begin(&buf, &pk, frame, furca_engine_next(host->engine), 0);

	(void)furca_frame_end(&buf, at, 0);
	if (frame == FURCA_HOST_PROMOTE)
		host->role = FURCA_CLONE_SESSION;
	return furca_stream_send(&host->control, &buf, NULL, 0);
}

int furca_host_inspect(struct furca_host *host, const char *detail, const char *name, furca_inspected_fn *fn, void *owner)
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

void furca_host_kill(struct furca_host *host)
{
	if (host->dead)
		return;
	host->kill_when_known = true;
	if (host->proc.pidfd.n >= 0)
		(void)furca_proc_signal(&host->proc, SIGKILL);
}

int furca_host_interrupt(struct furca_host *host, uint64_t frame)
{
	if (host->dead || host->proc.pidfd.n < 0)
		return -ESRCH;
	return furca_proc_signal_value(&host->proc, FURCA_HOST_INTERRUPT, furca_host_interrupt_value(frame));
}

void furca_host_drop(struct furca_host *host)
{
	if (!host || host->dropped)
		return;
	host->dropped = true;
	if (host->dead) {
		fail_requests(host, "the process it was asked of has ended");
		host_free(host);
		return;
	}
	furca_host_kill(host);
	if (host->cell && host->cell->refs == 1)
		(void)furca_proc_signal(&host->cell->proc, SIGKILL); /* with all that runs in it */
	furca_lanes_close(host->lanes);
	if (host->proc.pidfd.n < 0) {
		/* Never reported: a clone whose channel closes ends by itself, and its origin's answer finds it dropped. */
		furca_stream_done(&host->control);
	}
}

void furca_host_forget(struct furca_host *host, void *owner)
{
	for (struct furca_host_request *q = host->first; q; q = q->next)
		if (q->owner == owner)
			q->owner = NULL;
}

struct furca_init *furca_host_init_of(const struct furca_host *host)
{
	return host->cell ? host->cell : host->engine->surface;
}
