#include "bridge/mcp_servers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <msgpack.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/client.h"
#include "bridge/json.h"
#include "bridge/mcp_config.h"
#include "bridge/mcp_modern.h"
#include "bridge/mcp_peer.h"
#include "bridge/mcp_value.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

#define RESTART_AFTER_US 1000000 /* since the last start: a server that always fails is not started for every call */
#define STOP_WAIT_US 2000000
#define MAX_TOOLS 1024 /* of a server */
#define MAX_PAGES 64   /* of a list: one that never ends is none */

enum { INITIALIZE_ID, LIST_ID, LISTEN_ID, FIRST_CALL_ID }; /* of requests to a server */

struct server;

/* What a tool is. Made once and kept: the client library holds the pointer. */
struct tool {
	struct tool *next;
	struct server *server;
	char *name, *capability; /* the server's own, and ours with the server's before it */
	json_t *schema;		 /* of its arguments; only the serving thread and who holds the lock look at it */
	bool wrapped;		 /* a result in structuredContent.result */
	char *line;		 /* for a model */
};

/* A call of a tool under way. */
struct call {
	struct call *next;
	uint64_t msgid, execute_id; /* of the capability call, and of the execute whose code called */
	bool ours;
	int64_t id; /* of the request; 0: not sent yet */
	const struct tool *tool;
	char *arguments; /* JSON, until it is sent */
};

struct server {
	struct furca_mcp_servers *all;
	struct furca_mcp_peer peer;
	struct tool *tools;
	struct call *calls;
	int64_t last_id;
	unsigned n_tools, pages; /* pages of the list under way */
	bool wanted, settled;	 /* to be started; has once been up, or failed */
	bool modern;		 /* knows no handshake (mcp_modern.h) */
};

struct furca_mcp_servers {
	struct furca_client *client;
	void (*changed)(void *user);
	void *user;
	pthread_mutex_t lock; /* guards all but what only the serving thread uses: the peers' descriptors and buffers */
	pthread_cond_t settled;
	pthread_t thread;
	int wake; /* eventfd */
	atomic_bool stopping;
	bool relisted; /* the serving thread's */
	size_t n;
	struct server servers[FURCA_MCP_MAX_SERVERS];
};

static void wake(struct furca_mcp_servers *all)
{
	(void)eventfd_write(all->wake, 1);
}

/* ---------------------------------------------------------------------------------------------------------------- answers */

static void call_free(struct call *call)
{
	free(call->arguments);
	free(call);
}

static void answer_error(struct server *server, struct call *call, const char *type, const char *message)
{
	FURCA_AUTO_BUF struct furca_buf error = FURCA_BUF_INIT;

	furca_mcp_pack_error(&error, type, message);
	furca_client_respond(server->all->client, call->msgid, furca_buf_view(&error), (struct furca_view){NULL, NULL});
	call_free(call);
}

/* All calls of a server that has ended, or did not start. The lock is held. */
static void fail_calls(struct server *server)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "the MCP server '%s' is not there: %s; the next call starts it again",
		       server->peer.name, server->peer.failure);
	server->wanted = false;
	while (server->calls) {
		struct call *call = server->calls;

		server->calls = call->next;
		answer_error(server, call, "ConnectionError", text);
	}
}

static struct call *take_call(struct server *server, int64_t id)
{
	for (struct call **at = &server->calls; *at; at = &(*at)->next)
		if ((*at)->id == id && id >= FIRST_CALL_ID) {
			struct call *call = *at;

			*at = call->next;
			return call;
		}
	return NULL;
}

/* The lock is held. */
static void take_answer(struct server *server, json_t *message)
{
	FURCA_AUTO_BUF struct furca_buf value = FURCA_BUF_INIT, error = {.max = FURCA_MAX_CAPABILITY};
	struct call *call = take_call(server, json_integer_value(json_object_get(message, "id")));

	if (!call)
		return; /* given up */
	value.max = FURCA_MAX_CAPABILITY;
	furca_mcp_pack_answer(&value, &error, message, call->tool->wrapped);
	if (value.failed || error.failed) {
		answer_error(server, call, "ValueError", "the tool's answer is too large, or memory is out");
		return;
	}
	furca_client_respond(server->all->client, call->msgid, furca_buf_view(&error), furca_buf_view(&value));
	call_free(call);
}

/* ------------------------------------------------------------------------------------------------------------------ calls */

/* What each request to a server without handshake has, as the last member of its params. */
static const char *envelope(const struct server *server)
{
	return server->modern ? "," FURCA_MCP_ENVELOPE : "";
}

/* Sends what waits for the server to be up. The lock is held. */
static void send_calls(struct server *server)
{
	for (struct call *call = server->calls; call; call = call->next) {
		if (call->id)
			continue;
		call->id = FIRST_CALL_ID + server->last_id++;
		furca_mcp_peer_say(
			&server->peer,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"method\":\"tools/call\",\"params\":{\"name\":%s,\"arguments\":%s%s}}",
			(long long)call->id, call->tool->name, call->arguments, envelope(server));
		free(call->arguments);
		call->arguments = NULL;
	}
}

/* Code calls a tool. Runs in whichever thread waits in the client library; the answer comes from the serving thread. */
static void on_call(void *user, const struct furca_capability_call *asked)
{
	struct tool *tool = user;
	struct server *server = tool->server;
	FURCA_AUTO_BUF struct furca_buf arguments = {.max = FURCA_MAX_CAPABILITY};
	char refused[256] = "";
	struct call *call = calloc(1, sizeof(*call));

	(void)pthread_mutex_lock(&server->all->lock);
	int r = furca_mcp_write_arguments(
		&arguments, (struct furca_view){asked->args, (const uint8_t *)asked->args + asked->args_size},
		(struct furca_view){asked->kwargs, (const uint8_t *)asked->kwargs + asked->kwargs_size}, tool->schema,
		refused, sizeof(refused));
	if (r == 0 && call && !server->all->stopping) {
		*call = (struct call){.next = server->calls,
				      .msgid = furca_client_defer(asked),
				      .execute_id = asked->execute_id,
				      .ours = asked->ours,
				      .tool = tool,
				      .arguments = (char *)furca_buf_take(&arguments).data};
		server->calls = call;
		server->wanted = true;
		call = NULL;
		wake(server->all);
	} else if (r < 0) {
		furca_answer_error(asked, "TypeError", refused[0] ? refused : "the arguments have no form in JSON");
	} else {
		furca_answer_error(asked, "ConnectionError", "this MCP server is ending, or memory is out");
	}
	(void)pthread_mutex_unlock(&server->all->lock);
	free(call);
}

void furca_mcp_servers_cancel(struct furca_mcp_servers *all, uint64_t execute_id)
{
	if (!all)
		return;
	(void)pthread_mutex_lock(&all->lock);
	for (size_t i = 0; i < all->n; i++)
		for (struct call **at = &all->servers[i].calls; *at;) {
			struct call *call = *at;

			if (!call->ours || call->execute_id != execute_id) {
				at = &call->next;
				continue;
			}
			*at = call->next;
			if (call->id)
				furca_mcp_peer_say(
					&all->servers[i].peer,
					"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%lld}}",
					(long long)call->id);
			answer_error(&all->servers[i], call, "InterruptedError",
				     "the call was given up with the code that made it");
		}
	(void)pthread_mutex_unlock(&all->lock);
	wake(all);
}

/* ------------------------------------------------------------------------------------------------------------------ tools */

static struct tool *find_tool(struct server *server, const char *capability)
{
	for (struct tool *tool = server->tools; tool; tool = tool->next)
		if (strcmp(tool->capability, capability) == 0)
			return tool;
	return NULL;
}

/* What a model reads of it: its name with its arguments, and the first line of its description. */
static char *describe(const char *capability, json_t *entry, json_t *schema, bool read)
{
	const char *doc = json_string_value(json_object_get(entry, "description")), *key;
	FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;
	json_t *property;
	bool first = true;

	(void)furca_buf_printf(&line, "- %s(", capability);
	json_object_foreach (json_object_get(schema, "properties"), key, property) {
		(void)furca_buf_printf(&line, "%s%s", first ? "" : ", ", key);
		first = false;
	}
	(void)furca_buf_printf(&line, ")%s", read ? "" : " [not in read_only]");
	if (doc && *doc)
		(void)furca_buf_printf(&line, ": %.*s", (int)FURCA_MIN(strcspn(doc, "\n"), 160), doc);
	(void)furca_buf_append(&line, "\n", 2);
	return line.failed ? NULL : (char *)furca_buf_take(&line).data;
}

/* Structured content must be an object; a tool that gives something else, as the official SDK writes it, gives {"result": …}. */
static bool is_wrapped(json_t *schema)
{
	json_t *properties = json_object_get(schema, "properties");

	return json_is_true(json_object_get(schema, "x-fastmcp-wrap-result")) ||
	       (json_object_size(properties) == 1 && json_object_get(properties, "result"));
}

/* Takes one entry of tools/list in and registers it. Called without the lock: registering waits for the engine. */
static void add_tool(struct server *server, json_t *entry)
{
	struct furca_mcp_servers *all = server->all;
	const char *name = json_string_value(json_object_get(entry, "name"));
	bool read = json_is_true(json_object_get(json_object_get(entry, "annotations"), "readOnlyHint"));
	FURCA_AUTO_BUF struct furca_buf capability = FURCA_BUF_INIT;
	json_t *schema = json_deep_copy(json_object_get(entry, "inputSchema"));
	struct furca_error err;

	if (!name || furca_mcp_capability_name(&capability, server->peer.name, name) < 0)
		goto out;
	(void)pthread_mutex_lock(&all->lock);
	struct tool *tool = find_tool(server, (const char *)capability.data);
	if (!tool && server->n_tools < MAX_TOOLS && (tool = calloc(1, sizeof(*tool)))) {
		server->n_tools++;
		*tool = (struct tool){.next = server->tools,
				      .server = server,
				      .capability = (char *)furca_buf_take(&capability).data};
		server->tools = tool;
	}
	if (tool) {
		json_t *old = tool->schema;

		tool->schema = schema;
		schema = old;
		tool->wrapped = is_wrapped(json_object_get(entry, "outputSchema"));
		free(tool->line);
		tool->line = describe(tool->capability, entry, tool->schema, read);
		free(tool->name);
		tool->name = json_dumps(json_object_get(entry, "name"), JSON_ENCODE_ANY);
	}
	(void)pthread_mutex_unlock(&all->lock);
	if (tool && furca_capability_register(all->client, tool->capability, read ? "read" : "write",
					      json_string_value(json_object_get(entry, "description")), NULL, 0,
					      on_call, tool, &err) < 0)
		(void)fprintf(stderr, "furca mcp: the tool '%s' is left out: %s\n", tool->capability, err.message);
out:
	json_decref(schema);
}

static void list_tools(struct server *server, const char *cursor)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

	server->pages = cursor ? server->pages + 1 : 0;
	if (cursor && furca_json_write_text(&text, cursor, strlen(cursor)) == 0)
		furca_mcp_peer_say(
			&server->peer,
			"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/list\",\"params\":{\"cursor\":%.*s%s}}",
			LIST_ID, (int)text.len, (const char *)text.data, envelope(server));
	else
		furca_mcp_peer_say(&server->peer,
				   "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/list\",\"params\":{%s}}", LIST_ID,
				   server->modern ? FURCA_MCP_ENVELOPE : "");
}

/* The server has answered `initialize`: one that refuses it knows no handshake. The lock is held. */
static void begin(struct server *server, bool refused)
{
	server->modern = refused;
	if (refused)
		furca_mcp_peer_say(
			&server->peer,
			"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{"
			"\"toolsListChanged\":true},%s}}",
			LISTEN_ID, FURCA_MCP_ENVELOPE);
	else
		furca_mcp_peer_say(&server->peer, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
	list_tools(server, NULL);
}

static void take_tools(struct server *server, json_t *message)
{
	struct furca_mcp_servers *all = server->all;
	json_t *result = json_object_get(message, "result"), *entry;
	const char *cursor = json_string_value(json_object_get(result, "nextCursor"));
	size_t i;

	json_array_foreach (json_object_get(result, "tools"), i, entry) {
		if (i < MAX_TOOLS)
			add_tool(server, entry);
	}
	(void)pthread_mutex_lock(&all->lock);
	if (cursor && server->pages < MAX_PAGES && server->n_tools < MAX_TOOLS) {
		list_tools(server, cursor);
	} else {
		server->peer.state = FURCA_MCP_PEER_UP;
		server->settled = all->relisted = true;
		(void)pthread_cond_broadcast(&all->settled);
	}
	(void)pthread_mutex_unlock(&all->lock);
}

/* --------------------------------------------------------------------------------------------------------- serving thread */

static void take_message(struct server *server, json_t *message)
{
	struct furca_mcp_servers *all = server->all;
	const char *method = json_string_value(json_object_get(message, "method"));
	json_t *id = json_object_get(message, "id");

	if (!method && json_is_integer(id) && json_integer_value(id) == LIST_ID) {
		take_tools(server, message);
		return;
	}
	(void)pthread_mutex_lock(&all->lock);
	if (method && id) {
		FURCA_AUTO_FREE char *text = json_dumps(id, JSON_ENCODE_ANY);

		if (text && strcmp(method, "ping") == 0)
			furca_mcp_peer_say(&server->peer, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}", text);
		else if (text)
			furca_mcp_peer_say(
				&server->peer,
				"{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"not offered\"}}",
				text);
	} else if (method && strcmp(method, "notifications/tools/list_changed") == 0) {
		list_tools(server, NULL);
	} else if (!method && json_is_integer(id) && json_integer_value(id) == INITIALIZE_ID) {
		begin(server, json_object_get(message, "error") != NULL);
	} else if (!method) {
		take_answer(server, message);
	}
	(void)pthread_mutex_unlock(&all->lock);
}

static void end_server(struct server *server, const char *why)
{
	FURCA_AUTO_FREE char *reason = why ? strdup(why) : NULL; /* it may stand in the peer itself */

	(void)pthread_mutex_lock(&server->all->lock);
	furca_mcp_peer_kill(&server->peer, reason);
	(void)fprintf(stderr, "furca mcp: the MCP server '%s' has gone: %s\n", server->peer.name, server->peer.failure);
	fail_calls(server);
	server->settled = true;
	(void)pthread_cond_broadcast(&server->all->settled);
	(void)pthread_mutex_unlock(&server->all->lock);
}

/* What is due of one server, whatever its descriptors say. */
static void step(struct server *server)
{
	struct furca_mcp_servers *all = server->all;
	int64_t now = furca_now_us();
	const char *failed = NULL;

	(void)pthread_mutex_lock(&all->lock);
	bool start = server->wanted && server->peer.state == FURCA_MCP_PEER_DOWN,
	     soon = now - server->peer.started_us < RESTART_AFTER_US;
	if (start && soon && server->peer.started_us)
		fail_calls(server);
	else if (start && furca_mcp_peer_start(&server->peer) < 0)
		failed = server->peer.failure;
	if (server->peer.state == FURCA_MCP_PEER_UP)
		send_calls(server);
	if (server->peer.state == FURCA_MCP_PEER_STARTING && now > server->peer.deadline_us)
		failed = "it did not say within a minute which tools it has";
	bool ended = server->peer.state != FURCA_MCP_PEER_DOWN && furca_mcp_peer_write(&server->peer) < 0;
	(void)pthread_mutex_unlock(&all->lock);
	if (failed || ended)
		end_server(server, failed);
}

static void read_server(struct server *server)
{
	int r = furca_mcp_peer_read(&server->peer);
	json_t *message;

	while (server->peer.state != FURCA_MCP_PEER_DOWN && (message = furca_mcp_peer_next(&server->peer))) {
		take_message(server, message);
		json_decref(message);
	}
	if (r < 0)
		end_server(server, r == -EPIPE ? NULL : "it sent a message of more than 64 MiB");
}

static void *serve(void *arg)
{
	struct furca_mcp_servers *all = arg;
	struct pollfd fds[2 * FURCA_MCP_MAX_SERVERS + 1];
	eventfd_t n;

	while (!all->stopping) {
		for (size_t i = 0; i < all->n; i++)
			step(&all->servers[i]);
		if (all->relisted) {
			all->relisted = false;
			all->changed(all->user);
		}
		for (size_t i = 0; i < all->n; i++) {
			struct furca_mcp_peer *peer = &all->servers[i].peer;

			fds[2 * i] = (struct pollfd){.fd = peer->out.n, .events = POLLIN};
			(void)pthread_mutex_lock(&all->lock);
			fds[2 * i + 1] = (struct pollfd){.fd = peer->to.len ? peer->in.n : -1, .events = POLLOUT};
			(void)pthread_mutex_unlock(&all->lock);
		}
		fds[2 * all->n] = (struct pollfd){.fd = all->wake, .events = POLLIN};
		(void)poll(fds, 2 * all->n + 1, 1000);
		if (fds[2 * all->n].revents)
			(void)eventfd_read(all->wake, &n);
		for (size_t i = 0; i < all->n; i++)
			if (fds[2 * i].revents && all->servers[i].peer.out.n >= 0)
				read_server(&all->servers[i]);
	}
	return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- start and end */

int furca_mcp_servers_start(const char *config, struct furca_client *client, void (*changed)(void *user), void *user,
			    struct furca_mcp_servers **ret, struct furca_error *err)
{
	struct furca_mcp_servers *all = calloc(1, sizeof(*all));
	struct furca_mcp_peer peers[FURCA_MCP_MAX_SERVERS];

	if (!all)
		return furca_client_fail(err, -ENOMEM, NULL, "memory is out");
	*all = (struct furca_mcp_servers){.client = client,
					  .changed = changed,
					  .user = user,
					  .lock = PTHREAD_MUTEX_INITIALIZER,
					  .settled = PTHREAD_COND_INITIALIZER,
					  .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	int r = furca_mcp_config_read(config, peers, &all->n, err);
	for (size_t i = 0; r == 0 && i < all->n; i++)
		all->servers[i] = (struct server){.all = all, .peer = peers[i], .wanted = true};
	if (r == 0 && (all->wake < 0 || pthread_create(&all->thread, NULL, serve, all) != 0))
		r = furca_client_fail(err, -EAGAIN, NULL, "cannot start a thread for the MCP servers");
	if (r < 0) {
		for (size_t i = 0; i < all->n; i++)
			furca_mcp_peer_done(&all->servers[i].peer);
		free(all);
		return r;
	}
	*ret = all;
	return 0;
}

void furca_mcp_servers_wait(struct furca_mcp_servers *all, int64_t timeout_us)
{
	struct timespec until;
	int r = 0;

	if (!all)
		return;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_us / 1000000;
	(void)pthread_mutex_lock(&all->lock);
	for (size_t i = 0; i < all->n && r == 0; i++)
		while (!all->servers[i].settled && r == 0)
			r = pthread_cond_timedwait(&all->settled, &all->lock, &until);
	(void)pthread_mutex_unlock(&all->lock);
}

void furca_mcp_servers_describe(struct furca_mcp_servers *all, struct furca_buf *out)
{
	bool any = false;

	if (!all)
		return;
	(void)pthread_mutex_lock(&all->lock);
	for (size_t i = 0; i < all->n; i++)
		for (const struct tool *tool = all->servers[i].tools; tool; tool = tool->next) {
			if (!any)
				(void)furca_buf_append_text(
					out,
					"Code can call these tools as capabilities.NAME(key=value) in Python, `capability NAME key=value` in "
					"bash:\n");
			any = true;
			(void)furca_buf_append_text(out, tool->line ? tool->line : "");
		}
	(void)pthread_mutex_unlock(&all->lock);
}

static void server_done(struct server *server)
{
	furca_mcp_peer_done(&server->peer);
	while (server->calls) {
		struct call *call = server->calls;

		server->calls = call->next;
		call_free(call);
	}
	while (server->tools) {
		struct tool *tool = server->tools;

		server->tools = tool->next;
		json_decref(tool->schema);
		free(tool->name);
		free(tool->capability);
		free(tool->line);
		free(tool);
	}
}

void furca_mcp_servers_stop(struct furca_mcp_servers *all)
{
	if (!all)
		return;
	all->stopping = true;
	wake(all);
	(void)pthread_join(all->thread, NULL);
	/* The end of its input is how a server is told to end; it gets a moment for that. */
	for (size_t i = 0; i < all->n; i++)
		furca_fd_done(&all->servers[i].peer.in);
	int64_t deadline = furca_deadline_us(STOP_WAIT_US);
	for (size_t i = 0; i < all->n; i++) {
		struct pollfd end = {.fd = all->servers[i].peer.proc.pidfd.n, .events = POLLIN};
		int64_t left = (deadline - furca_now_us()) / 1000;

		if (all->servers[i].peer.proc.pid)
			(void)poll(&end, 1, left > 0 ? (int)left : 0);
		server_done(&all->servers[i]);
	}
	(void)close(all->wake);
	free(all);
}
