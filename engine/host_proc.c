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
#include "bridge/wire/memory.h"
#include "engine/capability.h"
#include "engine/cells.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/host_private.h"
#include "engine/limits.h"

#include "base/banned.h"

#define LATE_US 300000	  /* between two of the three signs of a process's end: pidfd, EXITED, end of its channel */
#define LINGER_US 1000	  /* for answers to be sent and read */
#define ERRORS_SIZE 65536 /* of what a zygote may say on descriptor 2 */

extern char **environ;

void furca_host_free(struct furca_host *host)
{
	struct furca_engine *engine = host->engine;

	furca_loop_drop(engine->loop, &host->pid_op);
	furca_loop_drop(engine->loop, &host->late_op);
	furca_loop_drop(engine->loop, &host->kill_op);
	furca_loop_drop(engine->loop, &host->stuck_op);
	furca_stream_done(&host->control);
	furca_lanes_free(host->lanes);
	furca_proc_done(&host->proc);
	furca_fd_done(&host->errors);
	if (host->gives_back)
		furca_cells_give(engine->cells, host->cell, host->status >= 0);
	else
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
	bool copy_in_cell = host->role == FURCA_CLONE_COPY && !host->outside && host->cell &&
			    host->cell->held & FURCA_BARRIER_PROCESSES;

	return host->tag && !copy_in_cell && host->role != FURCA_CLONE_SNAPSHOT;
}

/* The end of the process, told once, after all that it had still said. */
void furca_host_ended(struct furca_host *host, int status)
{
	if (host->dead)
		return;
	furca_stream_read_now(&host->control);
	look_for_unread(host);
	host->dead = true;
	host->ending = true;
	host->status = status;
	furca_loop_drop(host->engine->loop, &host->pid_op);
	furca_loop_drop(host->engine->loop, &host->late_op);
	furca_lanes_close(host->lanes);
	furca_host_fail_requests(host, "the process it was asked of has ended");
	if (may_leave_processes(host))
		furca_limits_sweep(host->engine, host->tag);
	host->ending = false;
	if (host->dropped) {
		furca_host_free(host);
		return;
	}
	host->engine->stats.deaths++;
	host->events->dead(host->owner, host);
}

/* It has been ended by pidfd or by its channel, but the init has not said how. */
static void late(void *owner)
{
	struct furca_host *host = owner;

	struct pollfd end = {.fd = host->proc.pidfd.n, .events = POLLIN};

	host->late_op = FURCA_OP_NONE;
	bool lives = poll(&end, 1, 0) == 0;
	if (!host->attached && host->proc.pidfd.n >= 0 && furca_proc_signal(&host->proc, SIGKILL) == 0 &&
	    !host->kill_when_known) {
		/* Alive, but nothing can be said to it any more: its code has closed our channel. */
		host->kill_when_known = true;
		host->severed = lives;
		(void)furca_loop_timer(host->engine->loop, furca_now_us() + LATE_US, late, host, &host->late_op);
		return;
	}
	furca_host_ended(host, furca_proc_ended(&host->proc));
}

static void expect_end(struct furca_host *host)
{
	/* Nobody tells of the end of what has attached itself. */
	int64_t wait_us = host->attached ? 0 : LATE_US;

	if (!host->late_op && !host->dead)
		(void)furca_loop_timer(host->engine->loop, furca_now_us() + wait_us, late, host, &host->late_op);
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
	/* One that is not known yet is still being asked for: the answer, or the end of who was asked, tells of its end, and must find it here. */
	if (host->proc.pidfd.n >= 0)
		expect_end(host);
}

/* From now on it can be signalled; its end may have been told already, which know_end looks up. */
void furca_host_know(struct furca_host *host, struct furca_proc proc)
{
	host->proc = proc;
	if (host->tag && furca_limits_tag(proc.pid, host->tag) < 0)
		host->tag = 0;
	if (host->kill_when_known && !host->attached)
		(void)furca_proc_signal(&host->proc, SIGKILL);
	(void)furca_loop_poll(host->engine->loop, host->proc.pidfd.n, POLLIN, on_pidfd, host, &host->pid_op);
	if (host->control.ended)
		expect_end(host);
}

void furca_host_know_end(struct furca_host *host)
{
	struct furca_engine *engine = host->engine;

	for (unsigned i = 0; i < FURCA_COUNT(engine->early); i++) {
		struct furca_early_exit *e = &engine->early[i];

		if (e->pid == 0 || e->pid != (uint64_t)host->proc.pid)
			continue;
		host->cpu_us = e->cpu_us;
		host->max_rss = e->max_rss;
		e->pid = 0;
		furca_host_ended(host, e->status);
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
		furca_host_ended(host, status);
		return;
	}
	engine->early[engine->early_at++ % FURCA_COUNT(engine->early)] =
		(struct furca_early_exit){pid, status, cpu_us, max_rss};
}

/* Arrays whose memory is not what it has to be are missing: who reads the result says so. */
static void tell_done(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	FURCA_AUTO_FD struct furca_fd memory = FURCA_FD_NONE;

	if (frame->n_fds == 1 && furca_memory_check(fds[0].n) == 0)
		memory = furca_fd_take(&fds[0]);
	host->events->done(host->owner, host, frame->call, frame->body, &memory);
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
			tell_done(host, frame, fds);
		return;
	}
	if (frame->number == FURCA_HOST_PAGES) {
		if (!host->dropped && host->events->pages)
			host->events->pages(host->owner, host, frame->body);
		return;
	}
	furca_host_answered(host, frame, fds);
}

/* The object, with its end of the control channel; the other end of its capability socket is given out. */
static struct furca_host *host_new(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
				   struct furca_fd control, struct furca_fd *ret_capability, struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd mine = control;
	FURCA_AUTO_FREE struct furca_host *host = calloc(1, sizeof(*host));
	int capability[2];

	if (!host) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a process's channels");
		return NULL;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, capability) < 0) {
		(void)furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a process's capability channel");
		return NULL;
	}
	FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(capability[1]);
	host->engine = engine;
	host->lang = lang;
	host->venv = venv;
	host->proc = FURCA_PROC_NONE;
	host->errors = FURCA_FD_NONE;
	host->last = &host->first;
	int r = furca_stream_open(&host->control, engine->loop, furca_fd_take(&mine), FURCA_MAX_HOST_FRAME, on_frame,
				  on_end, host);
	host->lanes = furca_lanes_new(engine, host, furca_fd_own(capability[0]));
	if (r < 0 || !host->lanes) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a process's channels");
		furca_stream_done(&host->control);
		furca_lanes_free(host->lanes);
		return NULL;
	}
	host->prev = &engine->hosts;
	host->next = engine->hosts;
	if (host->next)
		host->next->prev = &host->next;
	engine->hosts = host;
	engine->stats.hosts++;
	*ret_capability = furca_fd_take(&theirs);
	return FURCA_TAKE(host);
}

/* The object with its two socketpairs; the other ends are given out. */
struct furca_host *furca_host_new(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
				  struct furca_fd ret_ends[2], struct furca_err *err)
{
	int control[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0) {
		(void)furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a process's control channel");
		return NULL;
	}
	FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(control[1]);
	struct furca_host *host = host_new(engine, lang, venv, furca_fd_own(control[0]), &ret_ends[1], err);
	if (host)
		ret_ends[0] = furca_fd_take(&theirs);
	return host;
}

/* Who has made the channel, if it may be a session. 0 or -errno with *err. */
static int attaching(int channel, struct furca_proc *ret, struct furca_err *err)
{
	struct ucred made_by = {.uid = (uid_t)-1};
	socklen_t n = sizeof(made_by);

	if (getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &made_by, &n) < 0 || furca_fd_cloexec(channel, 1) < 0)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, errno,
					  "Send one end of a SOCK_STREAM socketpair beside the request.",
					  "What came beside attach_session is no channel.");
	if (made_by.pid <= 0)
		return furca_fail_suggest(err, FURCA_E_UNSUPPORTED, 0,
					  "Start an engine in the container that the process runs in.",
					  "The process is in another pid namespace than the engine.");
	if (made_by.uid != geteuid())
		return furca_fail_suggest(err, FURCA_E_UNSUPPORTED, 0,
					  "Start an engine as the user that the process runs as.",
					  "The process runs as user %u, and the engine as %u.", made_by.uid, geteuid());
	int r = furca_proc_open(made_by.pid, ret);
	return r < 0 ? furca_fail(err, FURCA_E_GONE, -r, "the process that is to be attached has ended") : 0;
}

struct furca_host *furca_host_attach(struct furca_engine *engine, const struct furca_lang *lang,
				     struct furca_fd channel, const struct furca_host_events *events, void *owner,
				     struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd mine = channel;
	FURCA_AUTO_PROC struct furca_proc proc = FURCA_PROC_NONE;
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_fd capability = FURCA_FD_NONE;
	msgpack_packer pk;

	if (attaching(mine.n, &proc, err) < 0)
		return NULL;
	struct furca_host *host = host_new(engine, lang, 0, furca_fd_take(&mine), &capability, err);
	if (!host)
		return NULL;
	host->attached = true;
	host->events = events;
	host->owner = owner;
	size_t at = furca_frame_begin(&buf, &pk, FURCA_HOST_ATTACH, furca_engine_next(engine), 0);
	(void)furca_frame_end(&buf, at, 1);
	if (furca_stream_send(&host->control, &buf, &capability, 1) < 0) {
		(void)furca_fail(err, FURCA_E_GONE, 0, "the process that is to be attached has closed its channel");
		host->dead = true;
		furca_host_drop(host);
		return NULL;
	}
	furca_host_know(host, furca_proc_take(&proc));
	return host;
}

static void on_spawned(void *owner, struct furca_proc proc, const struct furca_err *err)
{
	struct furca_host *host = owner;

	if (err) {
		(void)!write(host->errors.n, err->text, strlen(err->text));
		furca_host_ended(host, -1);
		return;
	}
	furca_host_know(host, proc);
	furca_host_know_end(host);
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

struct furca_host *furca_host_spawn(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
				    const char *env_dir, const struct furca_host_events *events, void *owner,
				    struct furca_err *err)
{
	struct furca_fd fds[3] = {FURCA_FD_NONE, FURCA_FD_NONE, FURCA_FD_NONE};
	char **argv, **env;

	if (lang->argv(env_dir, &argv, err) < 0)
		return NULL;
	env = zygote_env(lang, env_dir);
	struct furca_host *host = env ? furca_host_new(engine, lang, venv, fds, err) : NULL;
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
	if (frame == FURCA_HOST_PROMOTE) {
		host->role = FURCA_CLONE_SESSION;
		if (host->cell)
			host->cell->lived_in = true;
	}
	return furca_stream_send(&host->control, &buf, NULL, 0);
}

void furca_host_kill(struct furca_host *host)
{
	if (host->dead)
		return;
	host->kill_when_known = true;
	if (host->attached) {
		furca_stream_done(&host->control); /* it lives on without us */
		expect_end(host);
	} else if (host->proc.pidfd.n >= 0) {
		(void)furca_proc_signal(&host->proc, SIGKILL);
	}
}

int furca_host_interrupt(struct furca_host *host, uint64_t frame)
{
	if (host->dead || host->proc.pidfd.n < 0)
		return -ESRCH;
	return furca_proc_signal_value(&host->proc, FURCA_HOST_INTERRUPT, furca_host_interrupt_value(frame));
}

bool furca_host_lingers(const struct furca_host *host)
{
	unsigned walls = FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK;

	return !host->dead && !host->engine->stopping && host->proc.pidfd.n >= 0 &&
	       (host->role == FURCA_CLONE_SNAPSHOT || (host->role == FURCA_CLONE_COPY && !host->outside && host->cell &&
						       (host->cell->held & walls) == walls));
}

void furca_host_kill_all(struct furca_host *host)
{
	furca_host_kill(host);
	if (host->cell && host->cell->refs == 1 && !host->gives_back)
		(void)furca_proc_signal(&host->cell->proc, SIGKILL);
}

static void end_dropped(void *owner)
{
	struct furca_host *host = owner;

	furca_loop_drop(host->engine->loop, &host->kill_op);
	furca_host_kill_all(host);
}

void furca_host_drop(struct furca_host *host)
{
	if (!host || host->dropped)
		return;
	host->dropped = true;
	if (host->ending)
		return; /* who is told of its end lets go of it: furca_host_ended frees it */
	if (host->dead) {
		furca_host_fail_requests(host, "the process it was asked of has ended");
		furca_host_free(host);
		return;
	}
	host->gives_back = host->cell && host->proc.pidfd.n >= 0 && furca_cells_expect(host->engine->cells, host->cell);
	if (!furca_host_lingers(host) ||
	    furca_loop_timer(host->engine->loop, furca_now_us() + LINGER_US, end_dropped, host, &host->kill_op) < 0)
		end_dropped(host);
	furca_lanes_close(host->lanes);
	if (host->proc.pidfd.n < 0) {
		/* Never reported: a clone whose channel closes ends by itself, and its origin's answer finds it dropped. */
		furca_stream_done(&host->control);
	}
}

struct furca_init *furca_host_init_of(const struct furca_host *host)
{
	return host->cell ? host->cell : host->engine->surface;
}
