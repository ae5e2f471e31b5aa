#include "bridge/mcp.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bridge/cli.h"
#include "bridge/json.h"
#include "bridge/mcp_modern.h"
#include "bridge/mcp_servers.h"
#include "bridge/wire/limits.h"

#include "config.h"

#include "base/banned.h"

#define MAX_CALLS 256
#define BEGIN_MS 200		 /* that the next call waits at most for this one to reach the engine */
#define KEEP_MS 3600000		 /* what a client may keep of what does not change while this process lives */
#define PROGRESS_EVERY_US 200000 /* at most so often */
#define END_GRACE_S 2		 /* for calls to finish when the input has ended */
#define END_WAIT_S 5		 /* then for those that were interrupted */

const char furca_mcp_instructions[] =
	"execute_code runs all code: choose the state mode by the work. Look into what exists with list_sessions and "
	"inspect_session before choosing a session.";

/* --------------------------------------------------------------------------------------------------------------- writing */

/* One line to the other side, whole. The lock is held. A reader that has gone is found at the end of the input. */
void furca_mcp_write_line(struct furca_buf *line)
{
	(void)furca_buf_append(line, "\n", 1);
	if (!line->failed)
		(void)furca_fd_write_all(1, line->data, line->len);
}

static void write_json(struct furca_mcp *mcp, json_t *message)
{
	FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;
	FURCA_AUTO_FREE char *text = message ? json_dumps(message, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;

	if (text) {
		(void)furca_buf_append_text(&line, text);
		(void)pthread_mutex_lock(&mcp->lock);
		furca_mcp_write_line(&line);
		(void)pthread_mutex_unlock(&mcp->lock);
	}
	json_decref(message);
}

/* Takes `result` over. */
static void respond(struct furca_mcp *mcp, json_t *id, json_t *result)
{
	write_json(mcp, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

void furca_mcp_error(struct furca_mcp *mcp, json_t *id, json_t *error)
{
	json_t *shown = id ? json_incref(id) : json_null();

	write_json(mcp, json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", shown, "error", error));
}

static void respond_error(struct furca_mcp *mcp, json_t *id, int code, const char *message)
{
	furca_mcp_error(mcp, id, json_pack("{s:i, s:s}", "code", code, "message", message));
}

void furca_mcp_fail(struct furca_mcp_call *call, int code, const char *message)
{
	respond_error(call->mcp, call->id, code, message);
}

void furca_mcp_respond(struct furca_mcp_call *call, const struct furca_buf *members)
{
	FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;
	FURCA_AUTO_FREE char *id = json_dumps(call->id, JSON_ENCODE_ANY | JSON_COMPACT);

	(void)pthread_mutex_lock(&call->mcp->lock);
	/* The protocol wants no answer to a call that its caller gave up. */
	if (id && !call->cancelled) {
		(void)furca_buf_printf(&line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{", id);
		(void)furca_buf_append(&line, members->data, members->len);
		(void)furca_buf_append_text(&line, call->modern ? furca_mcp_complete_members : "");
		(void)furca_buf_append_text(&line, "}}");
		furca_mcp_write_line(&line);
	}
	(void)pthread_mutex_unlock(&call->mcp->lock);
}

/* The last line of what was said, bounded. */
static struct furca_view last_line(const char *text, size_t size)
{
	while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
		size--;
	const char *start = text + size;
	while (start > text && start[-1] != '\n' && (size_t)(text + size - start) < 200)
		start--;
	return (struct furca_view){(const uint8_t *)start, (const uint8_t *)text + size};
}

void furca_mcp_progress(struct furca_mcp_call *call, const char *message, size_t size)
{
	FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;
	int64_t now = furca_now_us();

	call->told += size;
	if (!call->progress_token || (message && now - call->told_us < PROGRESS_EVERY_US))
		return;
	FURCA_AUTO_FREE char *token = json_dumps(call->progress_token, JSON_ENCODE_ANY | JSON_COMPACT);
	call->told_us = now;
	call->told++;
	(void)furca_buf_printf(
		&line,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%llu,"
		"\"message\":",
		token ? token : "0", (unsigned long long)call->told);
	if (message) {
		struct furca_view last = last_line(message, size);

		(void)furca_json_write_text(&line, (const char *)last.at, furca_view_size(last));
	} else {
		(void)furca_buf_printf(&line, "\"running for %lld s\"",
				       (long long)((now - call->started_us) / 1000000));
	}
	(void)furca_buf_append_text(&line, "}}");
	(void)pthread_mutex_lock(&call->mcp->lock);
	furca_mcp_write_line(&line);
	(void)pthread_mutex_unlock(&call->mcp->lock);
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

static void call_free(struct furca_mcp_call *call)
{
	json_decref(call->id);
	json_decref(call->arguments);
	json_decref(call->progress_token);
	free(call);
}

static void unlink_call(struct furca_mcp_call *call)
{
	struct furca_mcp *mcp = call->mcp;

	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_call **at = &mcp->calls; *at; at = &(*at)->next)
		if (*at == call) {
			*at = call->next;
			break;
		}
	(void)pthread_cond_broadcast(&mcp->idle);
	(void)pthread_mutex_unlock(&mcp->lock);
}

static void *run_call(void *arg)
{
	struct furca_mcp_call *call = arg;

	call->tool->run(call, call->tool);
	unlink_call(call);
	/* jansson counts references without locks: what the reader may look at is freed by nobody else while it is linked. */
	call_free(call);
	return NULL;
}

static const struct furca_mcp_tool *find_tool(const char *name)
{
	for (const struct furca_mcp_tool *t = furca_mcp_tools; t->name; t++)
		if (strcmp(t->name, name) == 0)
			return t;
	return NULL;
}

/* A copy that shares nothing with the message: threads must not share jansson's counts. */
static json_t *own(json_t *value)
{
	return value ? json_deep_copy(value) : NULL;
}

static void deadline_in(struct timespec *ret, int64_t ms)
{
	(void)clock_gettime(CLOCK_REALTIME, ret);
	ret->tv_sec += ms / 1000;
	ret->tv_nsec += ms % 1000 * 1000000;
	ret->tv_sec += ret->tv_nsec / 1000000000;
	ret->tv_nsec %= 1000000000;
}

/*
 * Calls reach the engine in the order in which they came: the first of two may make the session that the second one reads. Not for ever: one that waits
 * for a server of --tools to start holds up nobody. The call may be gone when this returns.
 */
static void wait_begun(struct furca_mcp *mcp, const struct furca_mcp_call *call)
{
	struct timespec until;
	bool waits = true;
	int r = 0;

	deadline_in(&until, BEGIN_MS);
	(void)pthread_mutex_lock(&mcp->lock);
	while (waits && r == 0) {
		const struct furca_mcp_call *at = mcp->calls;

		while (at && at != call)
			at = at->next;
		waits = at && !at->begun;
		if (waits)
			r = pthread_cond_timedwait(&mcp->idle, &mcp->lock, &until);
	}
	(void)pthread_mutex_unlock(&mcp->lock);
}

static void start_call(struct furca_mcp *mcp, json_t *id, json_t *params, bool modern)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	json_t *arguments = json_object_get(params, "arguments");
	const struct furca_mcp_tool *tool = name ? find_tool(name) : NULL;
	struct furca_mcp_call *call;
	pthread_attr_t attr;
	pthread_t thread;
	unsigned n = 0;

	if (!tool || (arguments && !json_is_object(arguments) && !json_is_null(arguments))) {
		respond_error(mcp, id, FURCA_MCP_INVALID_PARAMS,
			      tool ? "arguments must be an object" : "Unknown tool; tools/list names them all");
		return;
	}
	call = calloc(1, sizeof(*call));
	if (call)
		*call = (struct furca_mcp_call){
			.mcp = mcp,
			.tool = tool,
			.id = own(id),
			.arguments = json_is_object(arguments) ? own(arguments) : json_object(),
			.progress_token = own(json_object_get(json_object_get(params, "_meta"), "progressToken")),
			.started_us = furca_now_us(),
			.modern = modern,
		};
	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_call *c = mcp->calls; c; c = c->next)
		n++;
	if (call && n < MAX_CALLS) {
		call->next = mcp->calls;
		mcp->calls = call;
	}
	(void)pthread_mutex_unlock(&mcp->lock);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	bool fits = call && n < MAX_CALLS;
	if (!fits || pthread_create(&thread, &attr, run_call, call) != 0) {
		if (fits)
			unlink_call(call);
		if (call)
			call_free(call);
		respond_error(mcp, id, FURCA_MCP_INTERNAL_ERROR, "Too many calls are under way");
	} else {
		wait_begun(mcp, call);
	}
	(void)pthread_attr_destroy(&attr);
}

/* Interrupts the call of that id. The reader may wait for the engine here: it answers at once. */
static void cancel_call(struct furca_mcp *mcp, json_t *id)
{
	uint32_t msgid = 0;

	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_call *c = mcp->calls; c; c = c->next)
		if (json_equal(c->id, id)) {
			c->cancelled = true;
			msgid = c->msgid;
		}
	(void)pthread_mutex_unlock(&mcp->lock);
	if (msgid)
		(void)furca_cancel(mcp->client, msgid, NULL);
	if (msgid)
		furca_mcp_servers_cancel(mcp->servers, msgid);
}

/* ------------------------------------------------------------------------------------------------------------- protocol */

static void initialize(struct furca_mcp *mcp, json_t *id, json_t *params)
{
	const char *asked = json_string_value(json_object_get(params, "protocolVersion")),
		   *revision = furca_mcp_handshakes[0];

	for (const char *const *at = furca_mcp_handshakes; asked && *at; at++)
		if (strcmp(asked, *at) == 0)
			revision = *at;
	respond(mcp, id,
		json_pack("{s:s, s:{s:{s:b}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", revision, "capabilities",
			  "tools", "listChanged", mcp->servers != NULL, "serverInfo", "name", "furca", "title", "furca",
			  "version", PACKAGE_VERSION, "instructions", furca_mcp_instructions));
}

/* Of the revisions that begin with `initialize`. */
static void serve_handshake(struct furca_mcp *mcp, json_t *id, const char *method, json_t *params)
{
	if (strcmp(method, "initialize") == 0)
		initialize(mcp, id, params);
	else if (strcmp(method, "ping") == 0)
		respond(mcp, id, json_object());
	else if (strcmp(method, "tools/list") == 0)
		respond(mcp, id, furca_mcp_list_tools(mcp));
	else if (strcmp(method, "tools/call") == 0)
		start_call(mcp, id, params, false);
	else
		respond_error(mcp, id, FURCA_MCP_METHOD_NOT_FOUND, "Unknown method");
}

static void serve_modern(struct furca_mcp *mcp, json_t *id, const char *method, json_t *params)
{
	if (strcmp(method, "server/discover") == 0)
		respond(mcp, id, furca_mcp_complete(furca_mcp_discover(mcp), KEEP_MS));
	else if (strcmp(method, "tools/list") == 0)
		respond(mcp, id, furca_mcp_complete(furca_mcp_list_tools(mcp), mcp->servers ? 0 : KEEP_MS));
	else if (strcmp(method, "tools/call") == 0)
		start_call(mcp, id, params, true);
	else if (strcmp(method, "subscriptions/listen") == 0)
		furca_mcp_listen(mcp, id, params);
	else
		respond_error(mcp, id, FURCA_MCP_METHOD_NOT_FOUND, "Unknown method");
}

static void serve_request(struct furca_mcp *mcp, json_t *id, const char *method, json_t *params)
{
	json_t *error;
	int modern = furca_mcp_modern(method, params, &error);

	if (modern < 0)
		furca_mcp_error(mcp, id, error);
	else if (modern)
		serve_modern(mcp, id, method, params);
	else
		serve_handshake(mcp, id, method, params);
}

static void serve_message(struct furca_mcp *mcp, json_t *message)
{
	json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
	const char *method = json_string_value(json_object_get(message, "method"));

	if (!json_is_object(message) || (id && !json_is_string(id) && !json_is_integer(id))) {
		respond_error(mcp, NULL, FURCA_MCP_INVALID_REQUEST, "Not a JSON-RPC message");
	} else if (!method) {
		/* A response: we ask for nothing. Anything else with an id is broken. */
		if (!json_object_get(message, "result") && !json_object_get(message, "error"))
			respond_error(mcp, id, FURCA_MCP_INVALID_REQUEST, "No method");
	} else if (id) {
		serve_request(mcp, id, method, params);
	} else if (strcmp(method, "notifications/cancelled") == 0) {
		if (!furca_mcp_unlisten(mcp, json_object_get(params, "requestId")))
			cancel_call(mcp, json_object_get(params, "requestId"));
	} else if (strcmp(method, "notifications/initialized") == 0) {
		mcp->initialized = true;
	}
}

/* The end of the string that begins at `p`, behind its quote. */
static const char *string_end(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

/*
 * The id of a message that is no JSON in one place, so that its sender, who waits for an answer with that id, gets the error: the member of that name
 * of the outermost object. NULL where it cannot be told.
 */
static json_t *find_id(const char *line, size_t n)
{
	const char *end = line + n;
	unsigned depth = 0;

	for (const char *p = line, *after; p < end; p = after) {
		after = *p == '"' ? string_end(p, end) : p + 1;
		depth += *p == '{' || *p == '[';
		depth -= depth > 0 && (*p == '}' || *p == ']');
		if (depth != 1 || after - p != 4 || memcmp(p, "\"id\"", 4) != 0)
			continue;
		while (after < end && strchr(" \t:", *after) && *after)
			after++;
		const char *value = after;
		after = after < end && *after == '"' ? string_end(after, end) : after + strcspn(after, ",} \t\r\n");
		json_t *id = json_loadb(value, (size_t)(FURCA_MIN(after, end) - value), JSON_DECODE_ANY, NULL);
		if (json_is_string(id) || json_is_integer(id))
			return id;
		json_decref(id);
	}
	return NULL;
}

/* A line, or what has come of one, that cannot be read. */
static void refuse_line(struct furca_mcp *mcp, const char *line, size_t n, int code, const char *why)
{
	json_t *id = find_id(line, n);

	respond_error(mcp, id, code, why);
	json_decref(id);
}

/* A line: one message, or, in the oldest revision, an array of them, each answered by a line of its own. */
static void serve_line(struct furca_mcp *mcp, const char *line, size_t n)
{
	json_error_t where;
	json_t *root, *message;
	size_t i;

	for (i = 0; i < n && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'); i++)
		;
	if (i == n)
		return;
	root = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
	if (!root) {
		refuse_line(mcp, line, n, FURCA_MCP_PARSE_ERROR, where.text);
		return;
	}
	if (json_is_array(root) && json_array_size(root) > 0)
		json_array_foreach (root, i, message)
			serve_message(mcp, message);
	else
		serve_message(mcp, root);
	json_decref(root);
}

static int serve_input(struct furca_mcp *mcp)
{
	FURCA_AUTO_BUF struct furca_buf in = {.max = FURCA_MAX_MESSAGE};
	size_t looked = 0;
	bool refused = false; /* the line that comes, up to its end */

	for (;;) {
		uint8_t *end = in.len > looked ? memchr(in.data + looked, '\n', in.len - looked) : NULL;

		if (end) {
			if (!refused)
				serve_line(mcp, (const char *)in.data, (size_t)(end - in.data));
			refused = false;
			furca_buf_consume(&in, (size_t)(end - in.data) + 1);
			looked = 0;
			continue;
		}
		looked = in.len;
		if (refused || furca_buf_reserve(&in, 65536) < 0) {
			if (!refused)
				refuse_line(mcp, (const char *)in.data, in.len, FURCA_MCP_INVALID_REQUEST,
					    "The message is too large: one may have 64 MiB");
			refused = true;
			looked = in.len = 0;
			in.failed = 0;
			if (furca_buf_reserve(&in, 65536) < 0)
				return -ENOMEM;
		}
		ssize_t n = read(0, in.data + in.len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		in.len += (size_t)n;
	}
}

/* Waits until no call is under way. The lock is held. */
static bool wait_idle(struct furca_mcp *mcp, int seconds)
{
	struct timespec until;
	int r = 0;

	deadline_in(&until, (int64_t)seconds * 1000);
	while (mcp->calls && r == 0)
		r = pthread_cond_timedwait(&mcp->idle, &mcp->lock, &until);
	return !mcp->calls;
}

/* The input has ended: what is nearly done may finish, the rest is interrupted. False where threads are left. */
static bool finish(struct furca_mcp *mcp)
{
	uint32_t msgids[MAX_CALLS];
	size_t n = 0;

	(void)pthread_mutex_lock(&mcp->lock);
	if (!wait_idle(mcp, END_GRACE_S))
		for (struct furca_mcp_call *c = mcp->calls; c && n < MAX_CALLS; c = c->next) {
			c->cancelled = true;
			msgids[n++] = c->msgid;
		}
	(void)pthread_mutex_unlock(&mcp->lock);
	for (size_t i = 0; i < n; i++)
		if (msgids[i])
			(void)furca_cancel(mcp->client, msgids[i], NULL);
	(void)pthread_mutex_lock(&mcp->lock);
	bool idle = wait_idle(mcp, END_WAIT_S);
	(void)pthread_mutex_unlock(&mcp->lock);
	return idle;
}

/* --------------------------------------------------------------------------------------------------------------- command */

/* What the engine says it can hold: a mechanism's name, or "none". */
static unsigned held_by(struct furca_client *client)
{
	static const struct {
		unsigned bit;
		const char *word;
	} words[] = {
#define BARRIER(name, bit_, word_, required, what) {bit_, word_},
#include "snapshot/barrier.def"
#undef BARRIER
	};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_value guarantees, v;
	unsigned held = 0;
	size_t size;

	if (furca_call(client, "hello", NULL, 0, 20, &answer, &size, NULL) < 0 ||
	    !furca_map_get((struct furca_view){answer, (uint8_t *)answer + size}, "guarantees", &guarantees))
		return 0;
	for (size_t i = 0; i < FURCA_COUNT(words); i++)
		if (furca_map_get(guarantees.raw, words[i].word, &v) &&
		    ((v.kind == FURCA_STR && !furca_view_is(v.bytes, "none")) || (v.kind == FURCA_BOOL && v.b)))
			held |= 1U << words[i].bit;
	return held;
}

/* -1 to go on, or an exit status. */
static int parse(int argc, char **argv, struct furca_private *engine, const char **ret_socket, const char **ret_tools)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'},
		{"state-dir", required_argument, NULL, 'd'},
		{"workdir", required_argument, NULL, 'w'},
		{"config", required_argument, NULL, 'c'},
		{"tools", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	optind = 1;
	while ((c = furca_cli_next("mcp", argc, argv, ":h", options)) != -1) {
		switch (c) {
		case 's':
			*ret_socket = optarg;
			break;
		case 'd':
			engine->state_dir = optarg;
			break;
		case 'w':
			engine->workdir = optarg;
			break;
		case 'c':
			engine->config = optarg;
			break;
		case 't':
			*ret_tools = optarg;
			break;
		case 'h':
			furca_cli_help("mcp");
			return FURCA_EXIT_OK;
		default:
			return FURCA_EXIT_USAGE;
		}
	}
	return optind < argc ? furca_cli_usage("mcp", "'%s' is not expected", argv[optind]) : -1;
}

static atomic_bool pumping = true;

/* Capability calls come also while no execute is waited for, from threads and jobs of sessions. */
static void *pump_connection(void *client)
{
	while (pumping && furca_serve(client, 0.2, NULL) == 0)
		;
	return NULL;
}

static void tools_changed(void *user)
{
	struct furca_mcp *mcp = user;

	if (mcp->initialized)
		write_json(mcp,
			   json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", "notifications/tools/list_changed"));
	furca_mcp_tell_listeners(mcp);
}

int furca_cmd_mcp(int argc, char **argv)
{
	struct furca_private engine = {.program = "/proc/self/exe"};
	struct furca_mcp mcp = {.lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
	const char *socket = NULL, *tools = NULL;
	pthread_t pump = 0;
	struct furca_error err;
	/* A server of --tools that has gone is seen by the error of writing to it. */
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	(void)sigaction(SIGPIPE, &ignore, NULL);
	int status = parse(argc, argv, &engine, &socket, &tools);

	if (status >= 0)
		return status;
	if (socket && (status = furca_cli_connect("mcp", socket, false, &mcp.client)) != FURCA_EXIT_OK)
		return status;
	if (!socket && furca_open_private(&engine, &mcp.client, &err) < 0)
		return furca_cli_fail("mcp", err.message, err.suggestion);
	mcp.held = held_by(mcp.client);
	if (tools && furca_mcp_servers_start(tools, mcp.client, tools_changed, &mcp, &mcp.servers, &err) < 0) {
		furca_close(mcp.client);
		return furca_cli_fail("mcp", err.message, err.suggestion);
	}
	if (tools && pthread_create(&pump, NULL, pump_connection, mcp.client) != 0)
		tools = NULL;
	int r = serve_input(&mcp);
	furca_mcp_end_listeners(&mcp);
	/* Threads that still wait in the library would be left with a client that is gone; the engine ends with the connection. */
	if (!finish(&mcp)) {
		furca_mcp_servers_stop(mcp.servers);
		_exit(FURCA_EXIT_FAILED);
	}
	furca_mcp_servers_stop(mcp.servers);
	pumping = false;
	if (tools)
		(void)pthread_join(pump, NULL);
	furca_close(mcp.client);
	return r < 0 ? FURCA_EXIT_FAILED : FURCA_EXIT_OK;
}
