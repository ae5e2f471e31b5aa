/* The tools, and how each is run. */
#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/args.h"
#include "bridge/client.h"
#include "bridge/json_read.h"
#include "bridge/mcp.h"
#include "bridge/mcp_servers.h"
#include "bridge/schema.h"

#include "base/banned.h"

#define HEARTBEAT_US 2000000	 /* between signs of life of a call that says nothing */
#define SERVERS_WAIT_US 20000000 /* for servers that are starting: code may call their tools */
#define LIST_WAIT_US 3000000	 /* the same, for a list that is renewed when they come later */
#define KEEP_OUTPUT (64 << 10)	 /* of each stream, where the caller does not say: a model reads it */

static void on_output(void *user, const char *stream, const char *data, size_t size)
{
	furca_mcp_progress(user, data, size);
}

/* Waits with signs of life. 0 or -errno. */
static int wait_for(struct furca_mcp_call *call, uint32_t msgid, struct furca_buf *ret, bool *ret_refused)
{
	for (;;) {
		int r = furca_client_wait(call->mcp->client, msgid, furca_deadline_us(HEARTBEAT_US), ret, ret_refused);

		if (r != -ETIMEDOUT)
			return r;
		furca_mcp_progress(call, NULL, 0);
	}
}

static void engine_failed(struct furca_mcp_call *call, int r)
{
	if (r == -E2BIG)
		furca_mcp_fail(
			call, -32602,
			"The arguments are too large, nested too deep or too many for one message; send less at once, large data by a file");
	else
		furca_mcp_fail(call, -32603,
			       r == -ENOMEM ? "Memory is out" : "The engine has ended; start this server again");
}

/* A request, its answer and the refusals of the protocol. True where `answer` holds a result. */
static bool request(struct furca_mcp_call *call, const char *method, struct furca_view args, bool stream,
		    struct furca_buf *answer, uint32_t *ret_msgid)
{
	struct furca_view message;
	bool refused = false;
	int r = furca_client_send(call->mcp->client, method, args, stream ? on_output : NULL, call, ret_msgid);

	if (r == 0) {
		(void)pthread_mutex_lock(&call->mcp->lock);
		call->msgid = *ret_msgid;
		call->begun = true;
		(void)pthread_cond_broadcast(&call->mcp->idle);
		bool cancelled = call->cancelled;
		(void)pthread_mutex_unlock(&call->mcp->lock);
		if (cancelled)
			(void)furca_cancel(call->mcp->client, *ret_msgid, NULL);
		r = wait_for(call, *ret_msgid, answer, &refused);
		(void)pthread_mutex_lock(&call->mcp->lock);
		call->msgid = 0;
		(void)pthread_mutex_unlock(&call->mcp->lock);
	}
	if (r < 0) {
		engine_failed(call, r);
		return false;
	}
	if (refused) {
		FURCA_AUTO_FREE char *text =
			furca_map_text(furca_buf_view(answer), "message", &message) ? furca_view_dup(message) : NULL;

		furca_mcp_fail(call, -32602, text ? text : "The engine refused the request");
		return false;
	}
	return true;
}

/* The arguments as the engine takes them; the one named `drop` is ours. */
static void pack_arguments(struct furca_args *args, json_t *arguments, const char *drop)
{
	const char *key;
	json_t *value;

	furca_args_begin(args);
	json_object_foreach (arguments, key, value) {
		if (drop && strcmp(key, drop) == 0)
			continue;
		furca_args_key(args, key);
		furca_json_pack(&args->pk, value);
	}
}

/* Whether code may have been ended in the middle of a call of a tool. */
static bool was_cut_short(struct furca_view result)
{
	static const char *const types[] = {"timeout", "interrupted", "crashed", "killed", "oom"};
	struct furca_view type;

	for (size_t i = 0; i < FURCA_COUNT(types); i++)
		if (furca_map_text(result, "error_type", &type) && furca_view_is(type, types[i]))
			return true;
	return false;
}

static void run_execute(struct furca_mcp_call *call, const struct furca_mcp_tool *tool)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_BUF struct furca_buf answer = FURCA_BUF_INIT, members = FURCA_BUF_INIT;
	struct furca_view view;
	uint32_t msgid;
	bool stream = call->progress_token && !json_object_get(call->arguments, "stream");

	furca_mcp_servers_wait(call->mcp->servers, SERVERS_WAIT_US);
	pack_arguments(&args, call->arguments, NULL);
	if (stream)
		furca_args_bool(&args, "stream", true);
	if (!json_object_get(call->arguments, "max_output_bytes"))
		furca_args_int(&args, "max_output_bytes", KEEP_OUTPUT);
	if (furca_args_end(&args, &view) < 0) {
		engine_failed(call, -ENOMEM);
		return;
	}
	if (!request(call, tool->method, view, stream, &answer, &msgid))
		return;
	if (was_cut_short(furca_buf_view(&answer)))
		furca_mcp_servers_cancel(call->mcp->servers, msgid);
	if (furca_mcp_write_result(&members, furca_buf_view(&answer), msgid) < 0)
		engine_failed(call, -ENOMEM);
	else
		furca_mcp_respond(call, &members);
}

static void respond_answer(struct furca_mcp_call *call, const struct furca_buf *answer)
{
	FURCA_AUTO_BUF struct furca_buf members = FURCA_BUF_INIT;

	if (furca_mcp_write_answer(&members, furca_buf_view(answer)) < 0)
		engine_failed(call, -ENOMEM);
	else
		furca_mcp_respond(call, &members);
}

static void run_method(struct furca_mcp_call *call, const struct furca_mcp_tool *tool)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_BUF struct furca_buf answer = FURCA_BUF_INIT;
	struct furca_view view;
	uint32_t msgid;

	pack_arguments(&args, call->arguments, NULL);
	if (furca_args_end(&args, &view) < 0)
		engine_failed(call, -ENOMEM);
	else if (request(call, tool->method, view, false, &answer, &msgid))
		respond_answer(call, &answer);
}

/* Declares and builds, so that the model learns at once whether its specification works. */
static void run_create_env(struct furca_mcp_call *call, const struct furca_mcp_tool *tool)
{
	FURCA_AUTO_ARGS struct furca_args args = {0}, build = {0};
	FURCA_AUTO_BUF struct furca_buf declared = FURCA_BUF_INIT, built = FURCA_BUF_INIT;
	json_t *wanted = json_object_get(call->arguments, "build");
	struct furca_view view, state;
	int64_t id;
	uint32_t msgid;

	pack_arguments(&args, call->arguments, "build");
	if (furca_args_end(&args, &view) < 0) {
		engine_failed(call, -ENOMEM);
		return;
	}
	if (!request(call, "create_env", view, false, &declared, &msgid))
		return;
	bool ready = furca_map_text(furca_buf_view(&declared), "state", &state) && furca_view_is(state, "ready");
	if (ready || (wanted && json_is_false(wanted)) || !furca_map_int(furca_buf_view(&declared), "venv_id", &id)) {
		respond_answer(call, &declared);
		return;
	}
	furca_args_begin(&build);
	furca_args_int(&build, "venv_id", id);
	if (furca_args_end(&build, &view) < 0)
		engine_failed(call, -ENOMEM);
	else if (request(call, "build_env", view, false, &built, &msgid))
		respond_answer(call, &built);
}

#define SESSION_PROPERTIES                                                                                                                                    \
	"\"session_name\":{\"type\":[\"string\",\"null\"],\"description\":\"The session by name.\"},"                                                         \
	"\"session_id\":{\"type\":[\"integer\",\"null\"],\"minimum\":0,\"description\":\"The session by number.\"},"                                          \
	"\"language\":{\"type\":[\"string\",\"null\"],\"enum\":[\"python\",\"bash\",null],\"description\":\"Where the name or number alone does not say.\"}," \
	"\"venv_id\":{\"type\":[\"integer\",\"null\"],\"description\":\"The session's environment.\"}"
#define OBJECT(properties, required)                                                                                   \
	"{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                                 \
	"],\"additionalProperties\":false}"

const struct furca_mcp_tool furca_mcp_tools[] = {
	{"execute_code", "Run code", NULL, NULL, false, true, false, true, run_execute, "execute"},
	{"list_sessions", "List sessions",
	 "Lists the sessions that exist, with what each holds. Check it before choosing where to run.", OBJECT("", ""),
	 true, false, true, false, run_method, "list_sessions"},
	{"inspect_session", "Inspect a session",
	 "Shows what is inside a session: names with types, sizes and which call set them (python), or directory, variables, functions, aliases and "
	 "jobs (bash). Changes nothing and never waits for a busy session.",
	 OBJECT(SESSION_PROPERTIES
		",\"detail\":{\"type\":[\"string\",\"null\"],\"enum\":[\"summary\",\"names\",\"full\",null]},"
		"\"name\":{\"type\":[\"string\",\"null\"],\"description\":\"Only this name.\"}",
		""),
	 true, false, true, false, run_method, "inspect_session"},
	{"close_session", "Close a session", "Ends a session; what it held is gone. Needs its name or number.",
	 OBJECT(SESSION_PROPERTIES, ""), false, true, true, false, run_method, "close_session"},
	{"undo", "Undo calls",
	 "Takes a session's memory back by some of its stateful calls. Files and the world outside are not undone.",
	 OBJECT(SESSION_PROPERTIES
		",\"steps\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"description\":\"How many calls; default 1.\"}",
		""),
	 false, true, false, false, run_method, "undo"},
	{"branch_session", "Branch a session",
	 "Makes a second, independent session of a session's last finished call, under a new name.",
	 OBJECT(SESSION_PROPERTIES ",\"new_name\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":64}",
		"\"new_name\""),
	 false, false, false, false, run_method, "branch_session"},
	{"create_env", "Create an environment",
	 "Makes a Python environment with packages of its own from the text of a pyproject.toml ([project] with name, version, dependencies) and "
	 "builds it. The answer's venv_id is for execute_code. The same specification gives the same environment.",
	 OBJECT("\"spec\":{\"type\":\"string\",\"description\":\"The pyproject.toml.\"},"
		"\"name\":{\"type\":[\"string\",\"null\"]},"
		"\"build\":{\"type\":[\"boolean\",\"null\"],\"description\":\"false: declare only; it is built on first use.\"}",
		"\"spec\""),
	 false, false, true, true, run_create_env, "create_env"},
	{"add_function", "Store a function",
	 "Stores a function, or replaces the one of that name. Code calls it as functions.NAME(…), with .stateful(), .stateless() or "
	 ".read_only() to choose its state mode.",
	 OBJECT("\"name\":{\"type\":\"string\"},\"language\":{\"type\":\"string\",\"enum\":[\"python\",\"bash\"]},"
		"\"source\":{\"type\":\"string\",\"description\":\"The definition (python), or the body (bash).\"},"
		"\"venv_id\":{\"type\":[\"integer\",\"null\"]},"
		"\"capabilities\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"string\"}},"
		"\"doc\":{\"type\":[\"string\",\"null\"]}",
		"\"name\",\"language\",\"source\""),
	 false, false, true, false, run_method, "add_function"},
	{"read_output", "Read cut output", "Reads bytes of an execute_code result's output that was left out of it.",
	 OBJECT("\"msgid\":{\"type\":\"integer\",\"description\":\"The result's msgid.\"},"
		"\"stream\":{\"type\":\"string\",\"enum\":[\"stdout\",\"stderr\"]},"
		"\"offset\":{\"type\":\"integer\",\"minimum\":0},\"length\":{\"type\":\"integer\",\"minimum\":1}",
		"\"msgid\",\"stream\",\"offset\",\"length\""),
	 true, false, true, false, run_method, "read_output"},
	{0},
};

json_t *furca_mcp_list_tools(const struct furca_mcp *mcp)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	json_t *list = json_array();

	furca_mcp_servers_wait(mcp->servers, LIST_WAIT_US);
	int r = furca_schema_description(&text, mcp->held);
	furca_mcp_servers_describe(mcp->servers, &text);
	if (r < 0 || furca_buf_append(&text, "", 1) < 0)
		return NULL;
	for (const struct furca_mcp_tool *t = furca_mcp_tools; t->name; t++)
		(void)json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:b, s:b, s:b, s:b}}", "name", t->name, "title",
				  t->title, "description", t->description ? t->description : (const char *)text.data,
				  "inputSchema", t->schema ? json_loads(t->schema, 0, NULL) : furca_schema_arguments(),
				  "annotations", "title", t->title, "readOnlyHint", t->read_only, "destructiveHint",
				  t->destructive, "idempotentHint", t->idempotent, "openWorldHint", t->open_world));
	return json_pack("{s:o}", "tools", list);
}
