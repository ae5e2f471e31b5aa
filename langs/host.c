#include "langs/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/host.h"
#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "langs/host_private.h"

#include "base/banned.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void pack_uint(msgpack_packer *pk, const char *key, uint64_t value)
{
	furca_pack_text(pk, key);
	msgpack_pack_uint64(pk, value);
}

static void pack_bool(msgpack_packer *pk, const char *key, bool value)
{
	furca_pack_text(pk, key);
	if (value)
		msgpack_pack_true(pk);
	else
		msgpack_pack_false(pk);
}

/* Text that may be missing. */
static void pack_buf_text(msgpack_packer *pk, const char *key, const struct furca_buf *text)
{
	furca_pack_text(pk, key);
	if (text->len)
		msgpack_pack_str_with_body(pk, text->data, text->len);
	else
		msgpack_pack_nil(pk);
}

/* A packed value that may be missing. */
static void pack_buf_value(msgpack_packer *pk, const char *key, const struct furca_buf *value)
{
	furca_pack_text(pk, key);
	if (value->len && !value->failed)
		(void)furca_buf_msgpack_write(pk->data, (const char *)value->data, value->len);
	else
		msgpack_pack_nil(pk);
}

bool furca_host_is_self(const struct furca_host *host)
{
	return getpid() == host->pid;
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

static void send_frame(struct furca_host *host, size_t offset, const int *fds, size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r = furca_frame_end(&host->out, offset, (unsigned)n_fds);

	if (!r)
		r = furca_frame_send(host->control.n, host->out.data, host->out.len, fds, n_fds);
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

void furca_host_ready(struct furca_host *host)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_READY, 0, 3);

	pack_uint(&pk, "pid", (uint64_t)host->pid);
	furca_pack_entry(&pk, "language", host->lang->language);
	furca_pack_entry(&pk, "version", host->lang->version);
	send_frame(host, offset, NULL, 0);
}

static void done_free(struct furca_host_done *done)
{
	furca_buf_done(&done->error);
	furca_buf_done(&done->suggestion);
	furca_buf_done(&done->raised);
	furca_buf_done(&done->unsent);
	furca_buf_done(&done->result);
	furca_fd_done(&done->memory);
	furca_buf_done(&done->result_text);
	furca_buf_done(&done->display);
	furca_buf_done(&done->changes);
}

static void send_done(struct furca_host *host, uint64_t call, const struct furca_host_done *done, int64_t run_us)
{
	msgpack_packer pk;
	char text[FURCA_ERR_TEXT_MAX * 2];
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_DONE, call, 14 + 2 * (done->hindrance.code != 0));

	furca_pack_entry(&pk, "how", done->how ? done->how : "ok");
	furca_pack_text(&pk, "exit_code");
	msgpack_pack_int64(&pk, done->exit_code);
	pack_buf_text(&pk, "error", &done->error);
	pack_buf_text(&pk, "suggestion", &done->suggestion);
	pack_buf_value(&pk, "raised", &done->raised);
	pack_buf_text(&pk, "unsent", &done->unsent);
	pack_buf_value(&pk, "result", &done->result);
	pack_buf_text(&pk, "result_text", &done->result_text);
	pack_uint(&pk, "result_text_cut", done->result_text_cut);
	pack_buf_value(&pk, "display", &done->display);
	pack_buf_value(&pk, "changes", &done->changes);
	pack_bool(&pk, "changed", done->changed);
	if (done->hindrance.code) {
		furca_pack_entry(&pk, "hindrance", furca_err_describe(&done->hindrance, text, sizeof(text)));
		furca_pack_entry(&pk, "remedy", furca_err_suggestion(&done->hindrance));
	}
	pack_bool(&pk, "redirected", host->attached || furca_output_redirected(&host->output) != 0);
	pack_uint(&pk, "run_us", (uint64_t)run_us);
	send_frame(host, offset, &done->memory.n, done->memory.n >= 0);
}

/* A call that the host itself could not begin. */
static void send_failed(struct furca_host *host, uint64_t call, const struct furca_err *err)
{
	struct furca_host_done done = {.how = "exception", .exit_code = 1, .changed = false, .memory = FURCA_FD_NONE};

	(void)furca_buf_append_text(&done.error, err->text);
	(void)furca_buf_append_text(&done.suggestion, furca_err_suggestion(err));
	send_done(host, call, &done, 0);
	done_free(&done);
}

static void run_parse(const struct furca_frame_view *frame, struct furca_host_run *ret)
{
	struct furca_value value;
	uint64_t number;

	*ret = (struct furca_host_run){
		.call = frame->call, .max_result = FURCA_MAX_RESULT, .max_text = FURCA_MAX_RESULT, .memory = -1};
	(void)furca_map_text(frame->body, "code", &ret->code);
	(void)furca_map_text(frame->body, "label", &ret->label);
	(void)furca_map_text(frame->body, "cwd", &ret->cwd);
	if (furca_map_get(frame->body, "env", &value) && value.kind == FURCA_MAP)
		ret->env = value.raw;
	if (furca_map_get(frame->body, "function", &value) && value.kind == FURCA_MAP)
		ret->function = value.raw;
	(void)furca_map_bool(frame->body, "read_only", &ret->read_only);
	(void)furca_map_text(frame->body, "frames", &ret->frames);
	if (furca_map_uint(frame->body, "max_result", &number))
		ret->max_result = FURCA_MIN(number, (uint64_t)FURCA_MAX_RESULT);
	if (furca_map_uint(frame->body, "max_text", &number))
		ret->max_text = FURCA_MIN(number, (uint64_t)FURCA_MAX_RESULT);
}

/* Leads the output to the call's pipes, unless it goes on with the last one's (`fds` NULL) or belongs to the program. 0 or -errno. */
static int place_pipes(struct furca_host *host, struct furca_fd *fds, struct furca_err *err)
{
	int r = !fds || host->attached ? 0
				       : furca_output_begin(&host->output, furca_fd_take(&fds[0]),
							    furca_fd_take(&fds[1]), !host->lang->closed_stays);

	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot put the call's output pipes in place");
	return furca_fault(FURCA_FAULT_RUN_BEFORE) < 0
		       ? furca_fail(err, FURCA_E_SYSTEM, EIO, "failure point run_before")
		       : 0;
}

/* Whether what the call changed is to be kept: a snapshot may follow it. */
static bool commits(const struct furca_host *host, const struct furca_host_run *run)
{
	return !run->read_only && !host->attached && host->role != FURCA_CLONE_STATELESS;
}

static void handle_run(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds,
		       size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host_done done = {.changed = true, .memory = FURCA_FD_NONE};
	FURCA_AUTO_FD struct furca_fd memory = FURCA_FD_NONE;
	struct furca_host_run run;
	int64_t begin = furca_now_us();

	if (n_fds % 2) /* the last one's */
		memory = furca_fd_take(&fds[--n_fds]);
	bool same = n_fds == 0 && !host->attached && furca_output_in_place(&host->output);

	if (same && host->stirred && !host->parked) {
		done.how = FURCA_HOST_HOW_PIPES;
		send_done(host, frame->call, &done, 0);
		return;
	}
	host->stirred = false;
	if ((n_fds != 2 && !same) || host->parked) {
		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0,
				 host->parked ? "a parked snapshot runs no code" : "a call needs two pipes");
		send_failed(host, frame->call, &err);
		return;
	}
	if (place_pipes(host, same ? NULL : fds, &err) < 0) {
		send_failed(host, frame->call, &err);
		return;
	}
	run_parse(frame, &run);
	run.memory = memory.n;
	run.output[0] = host->attached ? fds[0].n : -1;
	run.output[1] = host->attached ? fds[1].n : -1;
	host->read_only = run.read_only;
	if (host->role == FURCA_CLONE_COPY)
		furca_clone_start_timers();
	host->lang->run(host->data, &run, &done);
	if (!furca_host_is_self(host))
		_exit(done.exit_code & 0xff); /* the user's code forked, and its child ran off the end of the code */
	if (done.changed && commits(host, &run) && (!host->lang->may_hinder || host->lang->may_hinder(host->data)))
		(void)furca_clone_hindered(&done.hindrance);
	if (furca_fault(FURCA_FAULT_RUN_AFTER) < 0) {
		done.how = "exception";
		(void)furca_buf_append_text(&done.error, "failure point run_after");
	}
	send_done(host, run.call, &done, furca_now_us() - begin);
	done_free(&done);
	if (furca_fault(FURCA_FAULT_RUN_ANSWERED) < 0)
		_exit(1);
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
	pack_buf_value(&pk, "state", &state);
	send_frame(host, offset, NULL, 0);
}

static void send_cloned(struct furca_host *host, uint64_t call, const struct furca_clone_report *report, int pidfd,
			bool copy)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_CLONED, call, 8);

	pack_uint(&pk, "pid", (uint64_t)report->pid);
	furca_pack_text(&pk, "isolation");
	msgpack_pack_map(&pk, copy ? FURCA_BARRIERS : 0);
	for (int i = 0; copy && i < FURCA_BARRIERS; i++)
		furca_pack_entry(&pk, furca_barrier_word(i), report->mechanism[i] ? report->mechanism[i] : "none");
	pack_uint(&pk, "freeze_us", (uint64_t)report->freeze_us);
	pack_uint(&pk, "clone_us", (uint64_t)report->clone_us);
	pack_uint(&pk, "isolate_us", (uint64_t)report->isolate_us);
	pack_uint(&pk, "bytes_shared", report->bytes_shared);
	pack_uint(&pk, "threads", report->threads);
	pack_uint(&pk, "parked", report->parked);
	send_frame(host, offset, &pidfd, 1);
}

static void send_not_cloned(struct furca_host *host, uint64_t call, const struct furca_err *err)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_CLONED, call, 3);
	char text[FURCA_ERR_TEXT_MAX * 2];

	furca_pack_entry(&pk, "error", furca_err_describe(err, text, sizeof(text)));
	furca_pack_entry(&pk, "suggestion", furca_err_suggestion(err));
	furca_pack_entry(&pk, "stage", furca_err_type(err->code));
	send_frame(host, offset, NULL, 0);
}

/* In the clone: it gets its own channels, and forgets its parent's. */
static void become_clone(struct furca_host *host, enum furca_clone_role role, struct furca_fd control,
			 struct furca_fd capability, const struct furca_clone_report *report)
{
	furca_fd_done(&host->control);
	furca_fd_done(&host->capability);
	host->control = control;
	host->capability = capability;
	host->pid = getpid();
	host->role = role;
	host->parked = role == FURCA_CLONE_SNAPSHOT;
	host->read_only = role == FURCA_CLONE_COPY;
	host->attached = false;
	host->cold = role == FURCA_CLONE_COPY || role == FURCA_CLONE_STATELESS;
	host->generation++;
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
	uint64_t number;

	if (furca_map_uint(frame->body, "role", &number))
		ret->role = (enum furca_clone_role)number;
	if (furca_map_uint(frame->body, "barriers", &number))
		ret->barriers = (unsigned)number;
	if (furca_map_uint(frame->body, "required", &number))
		ret->required = (unsigned)number;
	ret->park = ret->role == FURCA_CLONE_COPY ? host->lang->park : NULL;
	ret->park_data = host->data;
}

static void handle_clone(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds,
			 size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_clone_report report = {0};
	FURCA_AUTO_FD struct furca_fd pidfd = FURCA_FD_NONE;
	int drop[2] = {host->control.n, host->capability.n}, keep[2];
	struct furca_output_places places = {0};
	struct furca_clone_args args = {.cell = n_fds == 3 ? fds[2].n : -1,
					.keep = keep,
					.n_keep = 2,
					.drop = drop,
					.n_drop = 2,
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
	if (args.role == FURCA_CLONE_BRANCH || (args.barriers & FURCA_BARRIER_DESCRIPTORS))
		furca_output_hold(&host->output, &places);
	r = furca_clone(&args, &report, &pidfd, &err);
	if (r == 0) {
		host->output.held = places;
		host->output.keeps = false; /* the original's */
		if (n_fds == 3)
			furca_fd_done(&fds[2]);
		set_label(frame);
		become_clone(host, args.role, furca_fd_take(&fds[0]), furca_fd_take(&fds[1]), &report);
		return;
	}
	if (host->lang->clone_end)
		host->lang->clone_end(host->data);
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
	struct furca_value pages, range, begin, end;
	struct furca_view items, pair;

	if (!furca_map_get(frame->body, "pages", &pages) || pages.kind != FURCA_ARRAY)
		return;
	items = furca_value_inside(&pages);
	while (!furca_value_next(&items, &range)) {
		pair = furca_value_inside(&range);
		if (range.kind != FURCA_ARRAY || furca_value_next(&pair, &begin) || furca_value_next(&pair, &end) ||
		    begin.kind != FURCA_UINT || end.kind != FURCA_UINT || end.u <= begin.u)
			continue;
		/* What is not mapped here any more is not worth a complaint. */
		(void)madvise((void *)(uintptr_t)begin.u, (size_t)(end.u - begin.u), MADV_POPULATE_WRITE);
	}
}

static enum furca_host_next handle(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds,
				   size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;

	switch ((int)frame->number) {
	case FURCA_HOST_RUN:
		handle_run(host, frame, fds, n_fds);
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

static void wait_message(struct furca_host *host)
{
	struct pollfd poll_control = {.fd = host->control.n, .events = POLLIN};

	/* One made on demand finds its call waiting already. */
	if (host->cold && host->lang->warm && poll(&poll_control, 1, 0) == 0)
		host->lang->warm(host->data);
	host->cold = false;
	if (host->parked || (!host->lang->idle_begin && !host->lang->idle_end && !host->lang->idle_signal))
		return; /* nothing to do around the wait: receiving waits by itself */
	if (host->lang->idle_begin)
		host->lang->idle_begin(host->data);
	for (;;) {
		int r = poll(&poll_control, 1, -1);

		if (r > 0)
			break;
		host->stirred |= r < 0 && errno == EINTR;
		if (r < 0 && errno == EINTR && host->lang->idle_signal)
			host->lang->idle_signal(host->data);
		if (!furca_host_is_self(host))
			_exit(0); /* a handler of the user's forked */
	}
	if (host->lang->idle_end)
		host->lang->idle_end(host->data);
}

enum furca_host_next furca_host_serve_one(struct furca_host *host)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_fd fds[FURCA_FDS_MAX];
	struct furca_frame_view frame;
	size_t n_fds;
	enum furca_host_next next = FURCA_HOST_CLOSED;
	int r;

	r = furca_frame_recv(host->control.n, &host->in, FURCA_MAX_HOST_FRAME, &frame, fds, &n_fds, &err);
	if (r <= 0)
		die(host, r == 0 || r == -ECONNRESET ? NULL : &err);
	else
		next = handle(host, &frame, fds, n_fds);
	furca_fds_done(fds, n_fds);
	if (host->in.cap > 1U << 20)
		furca_buf_done(&host->in);
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
				    .capability = furca_fd_own(FURCA_HOST_CAPABILITY_FD),
				    .pid = getpid()};
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
