/* `furca inspect`: what is inside a session, as tables. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/cli.h"
#include "bridge/cli_show.h"
#include "bridge/json.h"

#include "base/banned.h"

static void add_bytes(struct furca_table *table, struct furca_view map)
{
	char text[32] = "-";
	uint64_t n;

	if (furca_map_uint(map, "bytes", &n))
		furca_cli_bytes(text, sizeof(text), n);
	furca_table_add_text(table, text);
}

/* The frame that was asked for by its name, on a terminal. */
static void print_frames(const struct furca_value *list)
{
	struct furca_view inside = furca_value_inside(list);
	struct furca_value n, table;

	while (isatty(1) && furca_value_next(&inside, &n) == 0)
		if (furca_map_get(n.raw, "table", &table)) {
			(void)printf("\n");
			(void)furca_cli_print_frame(table.raw, stdout);
		}
}

static void print_names(const struct furca_value *list)
{
	static const char *const heads[] = {"NAME", "KIND", "TYPE", "SHAPE", "SIZE", "SET", "CHANGED", "VALUE"};
	struct furca_view inside = furca_value_inside(list);
	struct furca_table table;
	struct furca_value n;

	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	while (furca_value_next(&inside, &n) == 0) {
		furca_table_add_value(&table, n.raw, "name");
		furca_table_add_value(&table, n.raw, "kind");
		furca_table_add_value(&table, n.raw, "type");
		furca_table_add_value(&table, n.raw, "shape");
		add_bytes(&table, n.raw);
		furca_table_add_value(&table, n.raw, "set_by_call");
		furca_table_add_value(&table, n.raw, "changed_by_call");
		furca_table_add_value(&table, n.raw, "text");
	}
	furca_table_print(&table, stdout);
	furca_table_done(&table);
}

static void heading(const char *text)
{
	(void)printf("\n%s%s%s\n", furca_cli_color(1, FURCA_BOLD), text, furca_cli_color(1, FURCA_PLAIN));
}

/* name -> value tables of a shell: values are text, or maps with `value` and `attributes`. */
static void print_map(const char *title, struct furca_view state, const char *key)
{
	static const char *const heads[] = {"NAME", "ATTRIBUTES", "VALUE"};
	struct furca_value map, k, v;
	struct furca_table table;

	if (!furca_map_get(state, key, &map) || map.kind != FURCA_MAP || map.count == 0)
		return;
	heading(title);
	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	struct furca_view inside = furca_value_inside(&map);
	while (furca_value_next(&inside, &k) == 0 && furca_value_next(&inside, &v) == 0) {
		FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;

		furca_table_add(&table, (const char *)k.bytes.at, k.kind == FURCA_STR ? furca_view_size(k.bytes) : 0);
		if (v.kind == FURCA_MAP) {
			furca_table_add_value(&table, v.raw, "attributes");
			furca_table_add_value(&table, v.raw, "value");
			continue;
		}
		furca_table_add_text(&table, "");
		if (v.kind == FURCA_STR)
			furca_table_add(&table, (const char *)v.bytes.at, furca_view_size(v.bytes));
		else if (furca_json_write(&json, v.raw) == 0)
			furca_table_add(&table, (const char *)json.data, json.len);
	}
	furca_table_print(&table, stdout);
	furca_table_done(&table);
}

static void print_jobs(struct furca_view state)
{
	static const char *const heads[] = {"JOB", "PID", "STATE", "COMMAND"};
	struct furca_value list, job;
	struct furca_table table;

	if (!furca_map_get(state, "jobs", &list) || list.kind != FURCA_ARRAY || list.count == 0)
		return;
	heading("jobs");
	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	struct furca_view inside = furca_value_inside(&list);
	while (furca_value_next(&inside, &job) == 0) {
		furca_table_add_value(&table, job.raw, "id");
		furca_table_add_value(&table, job.raw, "pid");
		furca_table_add_value(&table, job.raw, "state");
		furca_table_add_value(&table, job.raw, "command");
	}
	furca_table_print(&table, stdout);
	furca_table_done(&table);
}

static void print_options(struct furca_view state)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_value options;

	if (furca_map_get(state, "options", &options) && options.kind == FURCA_MAP &&
	    furca_json_write(&json, options.raw) == 0) {
		heading("options");
		(void)printf("%.*s\n", (int)json.len, (const char *)json.data);
	}
}

/* "python session 3 'audit'" */
static void print_session(struct furca_view answer)
{
	struct furca_value s, name;
	struct furca_view language;
	uint64_t id = 0, venv;

	if (!furca_map_get(answer, "session", &s) || !furca_map_text(s.raw, "language", &language))
		return;
	(void)furca_map_uint(s.raw, "session_id", &id);
	(void)printf("%.*s session %llu", (int)furca_view_size(language), (const char *)language.at,
		     (unsigned long long)id);
	if (furca_map_get(s.raw, "session_name", &name) && name.kind == FURCA_STR)
		(void)printf(" '%.*s'", (int)furca_view_size(name.bytes), (const char *)name.bytes.at);
	if (furca_map_uint(s.raw, "venv_id", &venv))
		(void)printf(" in environment %llu", (unsigned long long)venv);
	(void)printf("\n");
}

static void print_state(struct furca_view answer)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_value state, names;
	struct furca_view cwd;

	if (!furca_map_get(answer, "state", &state))
		return;
	if (state.kind == FURCA_STR) {
		(void)printf("%.*s\n", (int)furca_view_size(state.bytes), (const char *)state.bytes.at);
	} else if (furca_map_get(state.raw, "names", &names) && names.kind == FURCA_ARRAY) {
		print_names(&names);
		print_frames(&names);
	} else if (furca_map_text(state.raw, "cwd", &cwd)) {
		(void)printf("cwd %.*s\n", (int)furca_view_size(cwd), (const char *)cwd.at);
		print_map("variables", state.raw, "variables");
		print_map("functions", state.raw, "functions");
		print_map("aliases", state.raw, "aliases");
		print_options(state.raw);
		print_jobs(state.raw);
	} else if (furca_json_write_pretty(&json, state.raw) == 0) {
		(void)printf("%.*s\n", (int)json.len, (const char *)json.data);
	}
}

/* Whether a Python session's answer names anything; other languages describe themselves as a whole. */
static bool has_names(struct furca_view answer)
{
	struct furca_value state, names;

	return !furca_map_get(answer, "state", &state) || state.kind != FURCA_MAP ||
	       !furca_map_get(state.raw, "names", &names) || names.kind != FURCA_ARRAY || names.count > 0;
}

int furca_cmd_inspect(int argc, char **argv)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	const char *detail = NULL;
	struct furca_cli cli;
	struct furca_view view;
	bool shown;

	const struct furca_cli_own own[] = {{.name = "detail", .letter = 'd', .value = &detail}, {0}};
	int status = furca_cli_options(argc, argv, "inspect", own, &cli);
	if (status >= 0)
		return status;
	if (cli.argc < 1 || cli.argc > 2)
		return furca_cli_usage("inspect", "say which session, and perhaps which name of it");
	furca_args_begin(&args);
	furca_cli_session(&args, &cli, cli.argv[0]);
	furca_args_text(&args, "name", cli.argc == 2 ? cli.argv[1] : NULL);
	furca_args_text(&args, "detail", detail);
	status = furca_cli_call(&cli, "inspect_session", &args, &answer, &view, &shown);
	if (status == FURCA_EXIT_OK && !shown && cli.argc == 2 && !has_names(view)) {
		(void)fprintf(stderr, "furca inspect: there is no name '%s' in session '%s'\n", cli.argv[1],
			      cli.argv[0]);
		return FURCA_EXIT_FAILED;
	}
	if (status == FURCA_EXIT_OK && !shown) {
		print_session(view);
		print_state(view);
	}
	return status;
}
