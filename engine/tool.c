#include "engine/tool.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engine/loop.h"

#include "base/banned.h"

#define MAX_LINE (4U << 20) /* bytes of one line from a tool */
#define NOT_STARTED_FD 3    /* the lowest descriptor we use: 0, 1 and 2 are the program's */

struct furca_tool {
	struct furca_loop *loop;
	struct furca_fd channel;
	struct furca_proc proc;
	furca_op_id reading, writing, waiting, timer, deadline, ending;
	struct furca_buf in;
	json_t *last; /* the line with the result or the error */
	struct furca_err err;
	void *user;
	void (*progress)(void *user, const char *text);
	void (*done)(void *user, json_t *result, const struct furca_err *err, json_t *report);
	bool spawning; /* the spawner has not answered */
	bool running;  /* the process has not ended */
	bool open;     /* the channel has not ended */
	bool cancelled;
	bool late; /* cancelled, since its time was over */
	double timeout_s;
};

static void tool_free(struct furca_tool *tool)
{
	furca_loop_drop(tool->loop, &tool->reading);
	furca_loop_drop(tool->loop, &tool->writing);
	furca_loop_drop(tool->loop, &tool->waiting);
	furca_loop_drop(tool->loop, &tool->timer);
	furca_loop_drop(tool->loop, &tool->deadline);
	furca_loop_drop(tool->loop, &tool->ending);
	furca_fd_done(&tool->channel);
	furca_proc_done(&tool->proc);
	furca_buf_done(&tool->in);
	json_decref(tool->last);
	free(tool);
}

/* Text of a field, or NULL. */
static const char *text_of(json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void report_error(struct furca_tool *tool)
{
	const char *type = text_of(tool->last, "type"), *text = text_of(tool->last, "error"),
		   *suggestion = text_of(tool->last, "suggestion");
	enum furca_err_code code = FURCA_E_INTERNAL;

	if (type && !strcmp(type, "validation"))
		code = FURCA_E_VALIDATION;
	else if (type && !strcmp(type, "environment"))
		code = FURCA_E_ENVIRONMENT;
	if (suggestion)
		(void)furca_fail_suggest(&tool->err, code, 0, suggestion, "%s", text ? text : "the tool failed");
	else
		(void)furca_fail(&tool->err, code, 0, "%s", text ? text : "the tool failed");
}

/* Everything has ended: the answer goes out, and the tool with it. */
static void end(void *owner)
{
	struct furca_tool *tool = owner;
	json_t *result = json_object_get(tool->last, "result");

	tool->ending = FURCA_OP_NONE;
	if (tool->late) {
		result = NULL;
		(void)furca_fail(&tool->err, FURCA_E_TIMEOUT, 0, "the helper program did not end within %.3g seconds",
				 tool->timeout_s);
	} else if (tool->cancelled) {
		result = NULL;
		(void)furca_fail(&tool->err, FURCA_E_ENVIRONMENT, 0, "the helper program was cancelled");
	} else if (!result && tool->last) {
		report_error(tool);
	} else if (!result) {
		(void)furca_fail(&tool->err, FURCA_E_ENVIRONMENT, 0, "the helper program ended without an answer");
	}
	tool->done(tool->user, result, result ? NULL : &tool->err, result || tool->cancelled ? NULL : tool->last);
	tool_free(tool);
}

static void maybe_end(struct furca_tool *tool)
{
	if (tool->spawning || tool->running || tool->open || tool->ending)
		return;
	/* By the loop, so that it never comes from within a function of the owner. No slot is left: at once, rather than never. */
	if (furca_loop_defer(tool->loop, end, tool, &tool->ending) < 0)
		end(tool);
}

static void close_channel(struct furca_tool *tool)
{
	furca_loop_drop(tool->loop, &tool->reading);
	furca_loop_drop(tool->loop, &tool->writing);
	furca_fd_done(&tool->channel);
	tool->open = false;
}

static void take_line(struct furca_tool *tool, const uint8_t *line, size_t n)
{
	json_t *message = json_loadb((const char *)line, n, 0, NULL);
	const char *text = text_of(message, "progress");

	if (text && tool->progress && !tool->cancelled)
		tool->progress(tool->user, text);
	if (!text && json_is_object(message) && !tool->last) {
		tool->last = message;
		return;
	}
	json_decref(message);
}

static void take_lines(struct furca_tool *tool)
{
	const uint8_t *newline;
	size_t done = 0;

	while ((newline = memchr(tool->in.data + done, '\n', tool->in.len - done))) {
		take_line(tool, tool->in.data + done, (size_t)(newline - tool->in.data) - done);
		done = (size_t)(newline - tool->in.data) + 1;
	}
	furca_buf_consume(&tool->in, done);
}

static void on_data(void *owner, const uint8_t *data, ssize_t n)
{
	struct furca_tool *tool = owner;

	if (n > 0 && furca_buf_append(&tool->in, data, (size_t)n) == 0) {
		take_lines(tool);
		return;
	}
	if (n > 0)
		(void)furca_fail(&tool->err, FURCA_E_LIMIT, 0, "the helper program sent a line of more than %u bytes",
				 MAX_LINE);
	if (n <= 0)
		tool->reading = FURCA_OP_NONE;
	close_channel(tool);
	maybe_end(tool);
}

static void on_sent(void *owner, int result, struct furca_buf *buf)
{
	struct furca_tool *tool = owner;

	tool->writing = FURCA_OP_NONE; /* a failure shows as the end of the channel */
}

static void on_exit_(void *owner, unsigned revents)
{
	struct furca_tool *tool = owner;

	furca_loop_drop(tool->loop, &tool->waiting);
	furca_loop_drop(tool->loop, &tool->timer);
	tool->running = false;
	maybe_end(tool); /* what it has sent is still read up to the channel's end */
}

static void on_grace_over(void *owner)
{
	struct furca_tool *tool = owner;

	tool->timer = FURCA_OP_NONE;
	if (tool->running)
		(void)furca_proc_signal(&tool->proc, SIGKILL);
}

/* A cancelled tool has this long to end in order. */
static void give_grace(struct furca_tool *tool)
{
	if (!tool->timer && tool->running)
		(void)furca_loop_timer(tool->loop, furca_deadline_us(FURCA_TOOL_GRACE_US), on_grace_over, tool,
				       &tool->timer);
}

static void on_spawned(void *owner, struct furca_proc proc, const struct furca_err *err)
{
	struct furca_tool *tool = owner;

	tool->spawning = false;
	tool->proc = furca_proc_take(&proc);
	if (err) {
		tool->err = *err;
		close_channel(tool);
		maybe_end(tool);
		return;
	}
	tool->running = true;
	if (furca_loop_poll(tool->loop, tool->proc.pidfd.n, POLLIN, on_exit_, tool, &tool->waiting) < 0) {
		(void)furca_fail(&tool->err, FURCA_E_BUSY, 0, "too much is under way to start the helper program");
		(void)furca_proc_signal(&tool->proc, SIGKILL);
		tool->running = false;
		close_channel(tool);
		maybe_end(tool);
	} else if (tool->cancelled) {
		give_grace(tool);
	}
}

/* Begins to read and write on our end of the channel. 0 or -errno. */
static int open_channel(struct furca_tool *tool, const char *request)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	int r;

	(void)furca_buf_append_text(&out, request);
	(void)furca_buf_append_text(&out, "\n");
	if (out.failed)
		return out.failed;
	r = furca_fd_nonblock(tool->channel.n, 1);
	if (r == 0)
		r = furca_loop_recv(tool->loop, tool->channel.n, on_data, tool, &tool->reading);
	if (r == 0)
		r = furca_loop_send(tool->loop, tool->channel.n, &out, on_sent, tool, &tool->writing);
	return r;
}

static void on_late(void *owner)
{
	struct furca_tool *tool = owner;

	tool->deadline = FURCA_OP_NONE;
	tool->late = !tool->cancelled;
	furca_tool_cancel(tool);
}

int furca_tool_start(struct furca_loop *loop, const struct furca_tool_spawner *spawner,
		     const struct furca_tool_request *request, struct furca_tool **ret, struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd theirs = FURCA_FD_NONE;
	FURCA_AUTO_FD struct furca_fd errors = FURCA_FD_NONE;
	struct furca_tool *tool = calloc(1, sizeof(*tool));
	int pair[2], r;

	if (!tool)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to start a helper program");
	*tool = (struct furca_tool){.loop = loop,
				    .channel = FURCA_FD_NONE,
				    .proc = FURCA_PROC_NONE,
				    .user = request->user,
				    .progress = request->progress,
				    .done = request->done,
				    .timeout_s = request->timeout_s,
				    .spawning = true,
				    .open = true};
	tool->in.max = MAX_LINE;
	r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
	if (r == 0) {
		tool->channel = furca_fd_own(pair[0]);
		theirs = furca_fd_own(pair[1]);
		r = furca_fd_dup(STDERR_FILENO, NOT_STARTED_FD, &errors);
	}
	if (r == 0)
		r = open_channel(tool, request->request);
	if (r == 0 && request->timeout_s > 0)
		r = furca_loop_timer(loop, furca_deadline_us((int64_t)(request->timeout_s * 1e6)), on_late, tool,
				     &tool->deadline);
	if (r < 0) {
		tool_free(tool);
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot open a helper program's channel");
	}
	*ret = tool;
	spawner->spawn(spawner->user, request->argv, request->env ? request->env : environ, request->cwd,
		       furca_fd_take(&theirs), furca_fd_take(&errors), on_spawned, tool);
	return 0;
}

void furca_tool_cancel(struct furca_tool *tool)
{
	if (tool->cancelled)
		return;
	tool->cancelled = true;
	if (tool->open)
		(void)shutdown(tool->channel.n, SHUT_WR);
	give_grace(tool);
}
