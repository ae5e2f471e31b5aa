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

/* Whether a packed array of texts holds this one. */
static bool holds(const struct furca_value *list, struct furca_view word)
{
	struct furca_view inside = furca_value_inside(list);
	struct furca_value v;

	while (furca_value_next(&inside, &v) == 0)
		if (v.kind == FURCA_STR && furca_view_size(v.bytes) == furca_view_size(word) &&
		    memcmp(v.bytes.at, word.at, furca_view_size(word)) == 0)
			return true;
	return false;
}

/* name -> value tables of a shell: values are text, or maps with `value` and `attributes`. The names in `without` (NULL: none) are left out. */
static void print_map(const char *title, struct furca_view state, const char *key, const struct furca_value *without)
{
	static const char *const heads[] = {"NAME", "ATTRIBUTES", "VALUE"};
	struct furca_value map, k, v;
	struct furca_table table;

	if (!furca_map_get(state, key, &map) || map.kind != FURCA_MAP || map.count <= (without ? without->count : 0))
		return;
	heading(title);
	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	struct furca_view inside = furca_value_inside(&map);
	while (furca_value_next(&inside, &k) == 0 && furca_value_next(&inside, &v) == 0) {
		FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;

		if (without && holds(without, k.bytes))
			continue;
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

/* Those of set and shopt that calls have turned on or off. */
static void print_changed_options(struct furca_view state)
{
	struct furca_value options, changed, on[2], word;

	if (!furca_map_get(state, "options", &options) || !furca_map_get(options.raw, "changed", &changed) ||
	    changed.kind != FURCA_ARRAY || changed.count == 0 || !furca_map_get(options.raw, "set", &on[0]) ||
	    !furca_map_get(options.raw, "shopt", &on[1]))
		return;
	heading("options");
	struct furca_view inside = furca_value_inside(&changed);
	while (furca_value_next(&inside, &word) == 0)
		(void)printf("%.*s %s\n", (int)furca_view_size(word.bytes), (const char *)word.bytes.at,
			     holds(&on[0], word.bytes) || holds(&on[1], word.bytes) ? "on" : "off");
}

/* A shell. `all`: also what it had before its first call, which is only counted otherwise. */
static void print_shell(struct furca_view state, const char *target, bool all)
{
	struct furca_value given;
	struct furca_view cwd;
	bool some = !all && furca_map_get(state, "given", &given) && given.kind == FURCA_ARRAY && given.count > 0;

	if (furca_map_text(state, "cwd", &cwd))
		(void)printf("cwd %.*s\n", (int)furca_view_size(cwd), (const char *)cwd.at);
	print_map("variables", state, "variables", some ? &given : NULL);
	print_map("functions", state, "functions", NULL);
	print_map("aliases", state, "aliases", NULL);
	print_map("traps", state, "traps", NULL);
	if (all)
		print_options(state);
	else
		print_changed_options(state);
	print_jobs(state);
	if (some)
		(void)printf(
			"\n%s%u variables that the shell had before its first call are as they were; `furca inspect --all %s` shows them%s\n",
			furca_cli_color(1, FURCA_DIM), given.count, target, furca_cli_color(1, FURCA_PLAIN));
}

/* One name of a shell, which may be several things. */
static void print_shells_name(struct furca_view state)
{
	print_map("variables", state, "variables", NULL);
	print_map("functions", state, "functions", NULL);
	print_map("aliases", state, "aliases", NULL);
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

static void print_state(const struct furca_cli *cli, struct furca_view answer, bool all)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_value state, found;

	if (!furca_map_get(answer, "state", &state))
		return;
	if (state.kind == FURCA_STR) {
		(void)printf("%.*s\n", (int)furca_view_size(state.bytes), (const char *)state.bytes.at);
	} else if (furca_map_get(state.raw, "names", &found) && found.kind == FURCA_ARRAY) {
		print_names(&found);
		print_frames(&found);
	} else if (furca_map_get(state.raw, "variables", &found) && found.kind == FURCA_MAP) {
		if (cli->argc == 2)
			print_shells_name(state.raw);
		else
			print_shell(state.raw, cli->argv[0], all);
	} else if (furca_json_write_pretty(&json, state.raw) == 0) {
		(void)printf("%.*s\n", (int)json.len, (const char *)json.data);
	}
}

/* Whether the answer of one name has it: Python's list, or one of a shell's maps. */
static bool has_names(struct furca_view answer)
{
	static const char *const keys[] = {"names", "variables", "functions", "aliases"};
	struct furca_value state, found;

	if (!furca_map_get(answer, "state", &state) || state.kind != FURCA_MAP)
		return true;
	for (size_t i = 0; i < FURCA_COUNT(keys); i++)
		if (furca_map_get(state.raw, keys[i], &found) && found.count > 0)
			return true;
	return false;
}

int furca_cmd_inspect(int argc, char **argv)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	const char *detail = NULL;
	struct furca_cli cli;
	struct furca_view view;
	bool shown;

	bool all = false;
	const struct furca_cli_own own[] = {
		{.name = "detail", .letter = 'd', .value = &detail}, {.name = "all", .given = &all}, {0}};
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
		(void)fprintf(
			stderr,
			"furca inspect: there is no name '%s' in session '%s'\n`furca inspect %s` shows those that there are.\n",
			cli.argv[1], cli.argv[0], cli.argv[0]);
		return FURCA_EXIT_FAILED;
	}
	if (status == FURCA_EXIT_OK && !shown) {
		print_session(view);
		print_state(&cli, view, all);
	}
	return status;
}
