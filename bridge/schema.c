#include "bridge/schema.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/err.h"
#include "bridge/cli.h"
#include "snapshot/probe.h"

#include "base/banned.h"

enum barrier {
#define BARRIER(name, bit, word, required, what) B_##name = bit,
#include "snapshot/barrier.def"
#undef BARRIER
};

static const struct {
	unsigned bit;
	bool required;
	const char *word, *kept; /* what a model reads where it holds */
} promises[] = {
	{B_MEMORY, true, "memory", "its variables and objects"},
	{B_DISK, true, "disk", "files on disk"},
	{B_DESCRIPTORS, true, "descriptors", "its open files and connections"},
	{B_PROCESSES, true, "processes", "other processes"},
	{B_IPC, false, "ipc", "shared memory and message queues"},
};

static void join(struct furca_buf *out, unsigned held, bool want, bool required_only, bool words)
{
	unsigned n = 0, at = 0;

	for (size_t i = 0; i < FURCA_COUNT(promises); i++)
		n += !!(held >> promises[i].bit & 1) == want && (!required_only || promises[i].required);
	for (size_t i = 0; i < FURCA_COUNT(promises); i++) {
		if (!!(held >> promises[i].bit & 1) != want || (required_only && !promises[i].required))
			continue;
		(void)furca_buf_append_text(out, at == 0 ? "" : at + 1 == n ? " and " : ", ");
		(void)furca_buf_append_text(out, words ? promises[i].word : promises[i].kept);
		at++;
	}
}

int furca_schema_description(struct furca_buf *out, unsigned held)
{
	unsigned required = 0;

	for (size_t i = 0; i < FURCA_COUNT(promises); i++)
		required |= promises[i].required ? 1U << promises[i].bit : 0;
	(void)furca_buf_append_text(
		out,
		"Runs Python or bash code at a coordinate: language, state mode, session, environment.\n"
		"State modes:\n"
		"- stateful: for work in several steps, such as loading data and then analysing it. The session keeps variables, imports, "
		"functions and the working directory.\n"
		"- stateless: for a one-off check. Starts fresh; what it built is gone when it returns.\n"
		"- read_only: for a look or a trial that must not change anything. Runs in a throw-away copy of an existing session");
	if (held & 1U << B_MEMORY) {
		(void)furca_buf_append_text(out, "; whatever the code does, it leaves ");
		join(out, held, true, false, false);
		(void)furca_buf_append_text(out, " as they were.");
		if (held & 1U << B_NETWORK)
			(void)furca_buf_append_text(out, " It cannot reach the network.");
		(void)furca_buf_append_text(out, " It sees the last finished call, also while the session is busy.\n");
	} else {
		(void)furca_buf_append_text(out, ".\n");
	}
	if ((held & required) != required) {
		(void)furca_buf_append_text(out,
					    "On this machine read_only calls are refused unless `isolation` waives: ");
		join(out, held, false, true, true);
		(void)furca_buf_append_text(out, ", since that cannot be protected here.\n");
	}
	return furca_buf_append_text(
		out,
		"Omitted state_mode: python without venv_id is stateful in session 0, everything else is stateless.\n"
		"Name sessions (session_name): a new name makes a session. A stateless call takes no session, a read_only call needs one that "
		"exists.\n"
		"The result says in `state` what became of the session: committed, unchanged, rolled_back or lost. A refused call says in "
		"`suggestion` what to change.\n");
}

/* ---------------------------------------------------------------------------------------------------------------- schema */

static const struct {
	const char *name, *type; /* JSON schema of the value, as JSON text */
	bool required;
	const char *description;
} arguments[] = {
	{"language", "{\"type\":\"string\",\"enum\":[\"python\",\"bash\"]}", true, "The language of the code."},
	{"code", "{\"type\":\"string\"}", true, "The code. The value of a last expression is returned (python)."},
	{"state_mode", "{\"type\":[\"string\",\"null\"],\"enum\":[\"stateless\",\"stateful\",\"read_only\",null]}",
	 false,
	 "stateful: steps that build on each other. stateless: a one-off check. read_only: a look that must change nothing."},
	{"session_name", "{\"type\":[\"string\",\"null\"],\"minLength\":1,\"maxLength\":64}", false,
	 "The session by name, such as 'audit'. A new name makes a new session (stateful)."},
	{"session_id", "{\"type\":[\"integer\",\"null\"],\"minimum\":0}", false,
	 "The session by number, instead of its name. 0 is the default session."},
	{"venv_id", "{\"type\":[\"integer\",\"null\"],\"minimum\":0}", false,
	 "A dedicated environment with its own packages, from create_env."},
	{"timeout_s", "{\"type\":[\"number\",\"null\"],\"exclusiveMinimum\":0}", false,
	 "Seconds for the whole call; then the code is interrupted."},
	{"on_error", "{\"type\":[\"string\",\"null\"],\"enum\":[\"keep\",\"rollback\",null]}", false,
	 "rollback: a stateful call that fails leaves no trace in the session's memory. Default keep."},
	{"cwd", "{\"type\":[\"string\",\"null\"]}", false, "The working directory."},
	{"env_vars", "{\"type\":[\"object\",\"null\"],\"additionalProperties\":{\"type\":[\"string\",\"null\"]}}",
	 false, "Environment variables."},
	{"max_output_bytes", "{\"type\":[\"integer\",\"null\"],\"minimum\":1}", false,
	 "Bytes kept of stdout and of stderr."},
	{"isolation", "{\"type\":[\"object\",\"null\"]}", false,
	 "read_only calls: waive a guarantee, such as {\"network\": \"allow\"}, or demand one, such as {\"require\": [\"threads\"]}."},
};

json_t *furca_schema_arguments(void)
{
	json_t *properties = json_object(), *required = json_array();

	for (size_t i = 0; i < FURCA_COUNT(arguments); i++) {
		json_t *p = json_loads(arguments[i].type, 0, NULL);

		(void)json_object_set_new(p, "description", json_string(arguments[i].description));
		(void)json_object_set_new(properties, arguments[i].name, p);
		if (arguments[i].required)
			(void)json_array_append_new(required, json_string(arguments[i].name));
	}
	return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required,
			 "additionalProperties", 0);
}

/* --------------------------------------------------------------------------------------------------------------- command */

static json_t *tool(const char *format, const char *description)
{
	json_t *schema = furca_schema_arguments();

	if (strcmp(format, "openai") == 0)
		return json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", "execute_code",
				 "description", description, "parameters", schema);
	if (strcmp(format, "anthropic") == 0)
		return json_pack("{s:s, s:s, s:o}", "name", "execute_code", "description", description, "input_schema",
				 schema);
	return json_pack("{s:s, s:s, s:s, s:o, s:{s:b, s:b, s:b}}", "name", "execute_code", "title", "Run code",
			 "description", description, "inputSchema", schema, "annotations", "readOnlyHint", 0,
			 "destructiveHint", 1, "openWorldHint", 1);
}

int furca_cmd_schema(int argc, char **argv)
{
	static const struct option options[] = {
		{"format", required_argument, NULL, 'f'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	const struct furca_probe *probe;
	struct furca_err err = FURCA_ERR_INIT;
	const char *format = "mcp";
	int c;

	optind = 1;
	while ((c = furca_cli_next("schema", argc, argv, ":hf:", options)) != -1) {
		if (c == 'h') {
			furca_cli_help("schema");
			return FURCA_EXIT_OK;
		}
		if (c == '?')
			return FURCA_EXIT_USAGE;
		format = optarg;
	}
	if (optind < argc)
		return furca_cli_usage("schema", "'%s' is not expected; the format goes after --format", argv[optind]);
	if (strcmp(format, "mcp") != 0 && strcmp(format, "openai") != 0 && strcmp(format, "anthropic") != 0)
		return furca_cli_usage("schema", "--format wants mcp, openai or anthropic, not '%s'", format);
	if (furca_probe(&probe, &err) < 0)
		return furca_cli_fail_err("schema", &err);
	if (furca_schema_description(&text, probe->barriers) < 0 || furca_buf_append(&text, "", 1) < 0)
		return furca_cli_fail("schema", "memory is out", NULL);
	json_t *value = tool(format, (const char *)text.data);
	if (!value)
		return furca_cli_fail("schema", "memory is out", NULL);
	(void)json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	(void)printf("\n");
	json_decref(value);
	return FURCA_EXIT_OK;
}
