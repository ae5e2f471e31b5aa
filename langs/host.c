#include "langs/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/proc.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/host.h"
#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "langs/host_private.h"
#include "snapshot/namespaces.h"

#include "base/banned.h"

#define READ_AHEAD 4096 /* bytes: most messages need one receive */

/* 1 in the process that is the host; the kernel clears it in a forked child, which spares a getpid at each look. NULL: it cannot. */
static volatile char *own;

bool furca_host_is_self(const struct furca_host *host)
{
	return own ? *own == 1 : getpid() == host->pid;
}

void furca_host_be_self(struct furca_host *host)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);

	if (!own) {
		char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page != MAP_FAILED && madvise(page, size, MADV_WIPEONFORK) == 0)
			own = page;
		else if (page != MAP_FAILED)
			(void)munmap(page, size);
	}
	if (own)
		*own = 1;
	host->pid = getpid();
}

/* The engine is gone or does not speak our protocol: nobody is left to answer to. Returns in an attached process, which lives on. */
static void die(struct furca_host *host, const struct furca_err *err)
{
	host->gone = true;
	if (host->attached)
		return;
	if (err && err->code)
		furca_log_err("host", "channel", err);
	_exit(err && err->code ? 1 : 0);
}

/* As furca_host_send_frame, but -ETOOMANYREFS comes back, and nothing was sent. */
static int try_frame(struct furca_host *host, size_t offset, const int *fds, size_t n_fds)
{
	int r = furca_frame_end(&host->out, offset, (unsigned)n_fds);

	if (!r)
		r = furca_frame_send(host->control.n, host->out.data, host->out.len, fds, n_fds);
	if (r == -ETOOMANYREFS)
		host->out.len = offset;
	return r;
}

static void sent(struct furca_host *host, int r)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (r == -EPIPE || r == -ECONNRESET)
		die(host, NULL);
	else if (r < 0) {
		(void)furca_fail(&err, FURCA_E_SYSTEM, -r, "cannot send an answer to the engine");
		die(host, &err);
	}
	/* A large answer's memory is not kept for the life of the session. */
	if (host->out.cap > 1U << 20)
		furca_buf_done(&host->out);
	furca_buf_clear(&host->out);
}

void furca_host_send_frame(struct furca_host *host, size_t offset, const int *fds, size_t n_fds)
{
	sent(host, try_frame(host, offset, fds, n_fds));
}

void furca_host_ready(struct furca_host *host)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_READY, 0, 3);

	furca_host_pack_uint(&pk, "pid", (uint64_t)host->pid);
	furca_pack_entry(&pk, "language", host->lang->language);
	furca_pack_entry(&pk, "version", host->lang->version);
	furca_host_send_frame(host, offset, NULL, 0);
}

static void handle_inspect(struct furca_host *host, const struct furca_frame_view *frame)
{
	struct furca_view detail = {0}, name = {0};
	FURCA_AUTO_BUF struct furca_buf state = {.max = FURCA_MAX_HOST_FRAME / 2};
	msgpack_packer pk;
	size_t offset;

	(void)furca_map_text(frame->body, "detail", &detail);
	(void)furca_map_text(frame->body, "name", &name);
	if (host->lang->inspect)
		host->lang->inspect(host->data, detail, name, &state);
	offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_INSPECTED, frame->call, 1);
	furca_host_pack_value(&pk, "state", &state);
	furca_host_send_frame(host, offset, NULL, 0);
}

static void send_not_cloned(struct furca_host *host, uint64_t call, const struct furca_err *err)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_CLONED, call, 3);
	char text[FURCA_ERR_TEXT_MAX * 2];

	furca_pack_entry(&pk, "error", furca_err_describe(err, text, sizeof(text)));
	furca_pack_entry(&pk, "suggestion", furca_err_suggestion(err));
	furca_pack_entry(&pk, "stage", err->code == FURCA_E_CLONE ? "process" : "barrier");
	furca_host_send_frame(host, offset, NULL, 0);
}

static void send_cloned(struct furca_host *host, uint64_t call, const struct furca_clone_report *report, int pidfd,
			bool copy)
{
	struct furca_err err = FURCA_ERR_INIT;
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_CLONED, call, 9);

	furca_host_pack_uint(&pk, "pid", (uint64_t)report->pid);
	furca_pack_text(&pk, "isolation");
	msgpack_pack_map(&pk, copy ? FURCA_BARRIERS : 0);
	for (int i = 0; copy && i < FURCA_BARRIERS; i++)
		furca_pack_entry(&pk, furca_barrier_word(i), report->mechanism[i] ? report->mechanism[i] : "none");
	furca_host_pack_uint(&pk, "freeze_us", (uint64_t)report->freeze_us);
	furca_host_pack_uint(&pk, "clone_us", (uint64_t)report->clone_us);
	furca_host_pack_uint(&pk, "isolate_us", (uint64_t)report->isolate_us);
	furca_host_pack_uint(&pk, "bytes_shared", report->bytes_shared);
	furca_host_pack_uint(&pk, "threads", report->threads);
	furca_host_pack_uint(&pk, "parked", report->parked);
	furca_pack_text(&pk, "outside");
	furca_pack_bool(&pk, report->outside);
	int r = try_frame(host, offset, &pidfd, 1);
	if (r == -ETOOMANYREFS) {
		/* Too many descriptors of this user are on their way to be received. */
		(void)furca_proc_signal(&(struct furca_proc){report->pid, {pidfd}}, SIGKILL);
		(void)furca_fail_suggest(&err, FURCA_E_MEMORY, ETOOMANYREFS,
					 "Receive or close what was sent through sockets, then try again.",
					 "the clone cannot be handed to the engine");
		send_not_cloned(host, call, &err);
		return;
	}
	sent(host, r);
}

/* In the clone: it gets its own channels, and forgets its parent's. */
static void become_clone(struct furca_host *host, enum furca_clone_role role, struct furca_fd control,
			 struct furca_fd capability, const struct furca_clone_report *report)
{
	furca_fd_done(&host->control);
	furca_fd_done(&host->capability);
	host->control = control;
	host->capability = capability;
	furca_host_be_self(host);
	host->role = role;
	host->parked = role == FURCA_CLONE_SNAPSHOT;
	host->read_only = role == FURCA_CLONE_COPY;
	host->attached = false;
	host->cold = role == FURCA_CLONE_COPY || role == FURCA_CLONE_STATELESS;
	host->generation++;
	furca_hot_done(&host->hot);
	furca_upkeep_done(&host->upkeep);
	furca_frame_reader_clear(&host->in); /* what follows is for the original */
	furca_buf_clear(&host->out);
	if (host->lang->cloned)
		host->lang->cloned(host->data, role, report);
	furca_host_ready(host);
}

/* As high as this process's limit of open descriptors lets it. */
static int dup_hidden(int fd, struct furca_fd *ret)
{
	static const int from[] = {FURCA_HIDDEN_FD, FURCA_HIDDEN_FD / 4, 64, 10};
	int r = -EINVAL;

	for (size_t i = 0; i < FURCA_COUNT(from) && r == -EINVAL; i++)
		r = furca_fd_dup(fd, from[i], ret);
	return r;
}

int furca_host_hide(struct furca_fd *fd)
{
	struct furca_fd hidden;
	int r;

	if (fd->n >= FURCA_HIDDEN_FD)
		return furca_fd_cloexec(fd->n, 1);
	r = dup_hidden(fd->n, &hidden);
	if (r < 0)
		return r;
	furca_fd_done(fd);
	*fd = hidden;
	return 0;
}

static void set_label(const struct furca_frame_view *frame)
{
	struct furca_view label = {0};
	char name[16] = "";

	if (!furca_map_text(frame->body, "label", &label) || !furca_view_size(label))
		return;
	memcpy(name, label.at, FURCA_MIN(furca_view_size(label), sizeof(name) - 1));
	(void)prctl(PR_SET_NAME, name);
}

static void clone_args(struct furca_host *host, const struct furca_frame_view *frame, struct furca_clone_args *ret)
{
	static struct furca_namespaces namespaces;
	uint64_t number;

	if (furca_map_uint(frame->body, "role", &number))
		ret->role = (enum furca_clone_role)number;
	if (furca_map_uint(frame->body, "barriers", &number))
		ret->barriers = (unsigned)number;
	if (furca_map_uint(frame->body, "required", &number))
		ret->required = (unsigned)number;
	if (furca_map_struct(frame->body, "namespaces", &namespaces, sizeof(namespaces)))
		ret->namespaces = &namespaces;
	ret->park = ret->role == FURCA_CLONE_COPY ? host->lang->park : NULL;
	ret->park_data = host->data;
}

/* Whether a commit begins, after which the session is to do in advance, while it is idle, what its next calls and commits would wait for. */
static bool learn_hot(struct furca_host *host, const struct furca_frame_view *frame, enum furca_clone_role role)
{
	bool hot = false;

	(void)furca_map_bool(frame->body, "hot", &hot);
	hot = hot && role == FURCA_CLONE_SNAPSHOT && !host->parked && !host->attached;
	if (hot)
		furca_hot_learn(&host->hot);
	return hot;
}

static void committed(struct furca_host *host, const struct furca_frame_view *frame,
		      const struct furca_clone_report *report)
{
	bool huge = false;

	(void)furca_map_bool(frame->body, "huge", &huge);
	furca_hot_commit(&host->hot);
	furca_upkeep_commit(&host->upkeep, report->bytes_shared, report->clone_us, huge);
}

static void handle_clone(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds,
			 size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_clone_report report = {0};
	FURCA_AUTO_FD struct furca_fd pidfd = FURCA_FD_NONE;
	int drop[3] = {host->control.n, host->capability.n, n_fds == 3 ? fds[2].n : -1}, keep[2];
	struct furca_output_places places = {0};
	struct furca_clone_args args = {.cell = n_fds == 3 ? fds[2].n : -1,
					.keep = keep,
					.n_keep = 2,
					.drop = drop,
					.n_drop = n_fds == 3 ? 3 : 2,
					.own_child = host->attached};
	int r;

	clone_args(host, frame, &args);
	if (n_fds < 2 || n_fds > 3 || args.role < FURCA_CLONE_SESSION || args.role > FURCA_CLONE_BRANCH ||
	    (host->attached && args.role != FURCA_CLONE_COPY)) {
		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0, "a clone needs a role and two or three descriptors");
		send_not_cloned(host, frame->call, &err);
		return;
	}
	for (int i = 0; i < 2; i++) {
		r = furca_host_hide(&fds[i]);
		if (r < 0) {
			(void)furca_fail(&err, FURCA_E_SYSTEM, -r, "cannot hide a clone's channels");
			send_not_cloned(host, frame->call, &err);
			return;
		}
		keep[i] = fds[i].n;
	}
	if (host->lang->clone_begin)
		host->lang->clone_begin(host->data, args.role);
	bool hot = learn_hot(host, frame, args.role);
	if (args.role == FURCA_CLONE_BRANCH || (args.barriers & FURCA_BARRIER_DESCRIPTORS))
		furca_output_hold(&host->output, &places);
	r = furca_clone(&args, &report, &pidfd, &err);
	if (r == 0) {
		host->output.held = places;
		host->output.keeps = false; /* the original's */
		if (n_fds == 3)
			fds[2] = FURCA_FD_NONE;
		set_label(frame);
		become_clone(host, args.role, furca_fd_take(&fds[0]), furca_fd_take(&fds[1]), &report);
		return;
	}
	if (host->lang->clone_end)
		host->lang->clone_end(host->data);
	if (r > 0 && hot)
		committed(host, frame, &report);
	if (r < 0)
		send_not_cloned(host, frame->call, &err);
	else
		send_cloned(host, frame->call, &report, pidfd.n, args.role == FURCA_CLONE_COPY);
}

static void handle_promote(struct furca_host *host)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (host->parked && furca_clone_promote(&err) < 0)
		die(host, &err);
	host->parked = false;
	host->role = FURCA_CLONE_SESSION;
	if (host->lang->promoted)
		host->lang->promoted(host->data);
	furca_host_ready(host);
}

static void handle_warm(const struct furca_frame_view *frame)
{
	struct furca_value pages, list;

	if (!furca_map_get(frame->body, "pages", &pages) || pages.kind != FURCA_MAP)
		return;
	if (furca_map_get(pages.raw, "mapped", &list) && list.kind == FURCA_BIN)
		furca_pages_take(list.bytes, false);
	if (furca_map_get(pages.raw, "written", &list) && list.kind == FURCA_BIN)
		furca_pages_take(list.bytes, true);
}

/* Code has opened all that the process may have: what needs more is refused, and the session goes on. True where that was so. */
static bool without_descriptors(struct furca_host *host, const struct furca_frame_view *frame, size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (frame->n_fds == 0 || n_fds > 0)
		return false;
	(void)furca_fail_suggest(&err, FURCA_E_CLONE, EMFILE,
				 "Close files that are no longer needed, or raise the limit (RLIMIT_NOFILE).",
				 "the process has as many descriptors open as it may have");
	if (frame->number == FURCA_HOST_CLONE)
		send_not_cloned(host, frame->call, &err);
	else
		furca_host_refuse(host, frame->call, &err);
	return true;
}

static enum furca_host_next handle(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds,
				   size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (without_descriptors(host, frame, n_fds))
		return FURCA_HOST_GO_ON;
	switch ((int)frame->number) {
	case FURCA_HOST_RUN:
		furca_host_run(host, frame, fds, n_fds);
		return FURCA_HOST_GO_ON;
	case FURCA_HOST_CLONE:
		handle_clone(host, frame, fds, n_fds);
		return FURCA_HOST_GO_ON;
	case FURCA_HOST_PROMOTE:
		handle_promote(host);
		return FURCA_HOST_GO_ON;
	case FURCA_HOST_INSPECT:
		handle_inspect(host, frame);
		return FURCA_HOST_GO_ON;
	case FURCA_HOST_WARM:
		handle_warm(frame);
		return FURCA_HOST_GO_ON;
	case FURCA_HOST_CLOSE:
		if (host->parked || host->role == FURCA_CLONE_COPY)
			_exit(0); /* neither is the session: its EXIT traps are the session's to run
				   */
		if (host->lang->close)
			host->lang->close(host->data);
		return FURCA_HOST_CLOSED;
	}
	(void)furca_fail(&err, FURCA_E_PROTOCOL, 0, "the engine sent a frame of number %d", (int)frame->number);
	die(host, &err);
	return FURCA_HOST_CLOSED;
}

/* How long to wait before there is something to do for the next call; -1: nothing is. */
static int idle_ms(const struct furca_host *host)
{
	return host->hot.due ? FURCA_HOT_IDLE_MS : furca_upkeep_wait(&host->upkeep);
}

static void use_idle_time(struct furca_host *host)
{
	if (host->hot.due)
		furca_hot_take(&host->hot);
	else
		furca_upkeep_step(&host->upkeep);
}

/* Until there is something on the channel; signals, and time to do something for the next call, are had meanwhile. */
static void wait_channel(struct furca_host *host)
{
	struct pollfd poll_control = {.fd = host->control.n, .events = POLLIN};

	for (;;) {
		char byte;
		int r = poll(&poll_control, 1, idle_ms(host));

		/* Code has allowed itself fewer descriptors than poll is given. */
		if (r < 0 && errno == EINVAL)
			r = recv(host->control.n, &byte, 1, MSG_PEEK) < 0 ? -1 : 1;
		if (r > 0 || (r < 0 && errno != EINTR))
			break;
		if (r == 0)
			use_idle_time(host);
		host->stirred |= r < 0 && errno == EINTR;
		if (r < 0 && errno == EINTR && host->lang->idle_signal)
			host->lang->idle_signal(host->data);
		if (!furca_host_is_self(host))
			_exit(0); /* a handler of the user's forked */
	}
}

static void wait_message(struct furca_host *host)
{
	struct pollfd poll_control = {.fd = host->control.n, .events = POLLIN};
	bool ahead = furca_frame_is_ahead(&host->in);

	/* One made on demand finds its call waiting already. */
	if (host->cold && host->lang->warm && !ahead && poll(&poll_control, 1, 0) == 0)
		host->lang->warm(host->data);
	if (host->parked ||
	    (idle_ms(host) < 0 && !host->lang->idle_begin && !host->lang->idle_end && !host->lang->idle_signal))
		return; /* nothing to do around the wait: receiving waits by itself */
	if (host->lang->idle_begin)
		host->lang->idle_begin(host->data);
	if (!ahead)
		wait_channel(host);
	if (host->lang->idle_end)
		host->lang->idle_end(host->data);
}

enum furca_host_next furca_host_serve_one(struct furca_host *host)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_fd fds[FURCA_FDS_MAX];
	struct furca_frame_view frame;
	/* A program that attached itself waits for the channel with calls of its own. */
	size_t n_fds, ahead = host->attached ? 0 : READ_AHEAD;
	enum furca_host_next next = FURCA_HOST_CLOSED;
	int r;

	r = furca_frame_read(host->control.n, &host->in, ahead, FURCA_MAX_HOST_FRAME, &frame, fds, &n_fds, &err);
	if (r <= 0)
		die(host, r == 0 || r == -ECONNRESET ? NULL : &err);
	else
		next = handle(host, &frame, fds, n_fds);
	host->cold = host->cold && frame.number == FURCA_HOST_WARM;
	furca_fds_done(fds, n_fds);
	if (host->in.buf.cap > 1U << 20 && !furca_frame_is_ahead(&host->in))
		furca_frame_reader_done(&host->in);
	return next;
}

void furca_host_serve_on(struct furca_host *host)
{
	do
		wait_message(host);
	while (furca_host_serve_one(host) == FURCA_HOST_GO_ON);
}

int furca_host_serve(struct furca_host *host)
{
	furca_host_ready(host);
	furca_host_serve_on(host);
	return 0;
}

int furca_host_init(struct furca_host *host, const struct furca_host_lang *lang, void *data, struct furca_err *err)
{
	int r;

	*host = (struct furca_host){.lang = lang,
				    .data = data,
				    .control = furca_fd_own(FURCA_HOST_CONTROL_FD),
				    .capability = furca_fd_own(FURCA_HOST_CAPABILITY_FD)};
	furca_host_be_self(host);
	furca_room_reserve();
	furca_upkeep_init(&host->upkeep);
	r = furca_host_hide(&host->control);
	if (!r)
		r = furca_host_hide(&host->capability);
	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r, "the engine's channels are not at descriptors %d and %d",
				  FURCA_HOST_CONTROL_FD, FURCA_HOST_CAPABILITY_FD);
	return furca_clone_init(err);
}

int furca_host_open_lane(const struct furca_host *host, char kind, int memory, struct furca_fd *ret,
			 struct furca_err *err)
{
	int pair[2];
	ssize_t n;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a lane to the engine");
	FURCA_AUTO_FD struct furca_fd ours = furca_fd_own(pair[0]);
	FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(pair[1]);
	int r = dup_hidden(ours.n, ret);

	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot hide a lane to the engine");
	n = furca_fd_send(host->capability.n, &kind, 1, (const int[]){theirs.n, memory}, memory < 0 ? 1 : 2);
	if (n == 1)
		return 0;
	furca_fd_done(ret);
	return furca_fail(err, FURCA_E_GONE, n < 0 ? (int)-n : EPIPE,
			  "the engine accepts no capability calls from here");
}
