/* Sessions from the command line: sessions, close, undo, branch, checkpoint, restore. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/cli.h"

#include "base/banned.h"

/* "3 s", "12 min", "2 h", "4 d" since a wall-clock time. */
static void add_age(struct furca_table *table, struct furca_view map, const char *key)
{
	static const struct {
		double seconds;
		const char *unit;
	} units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
	char text[32] = "-";
	double then;

	if (furca_map_float(map, key, &then)) {
		double age = FURCA_MAX(furca_wall_s() - then, 0.0);

		for (size_t i = 0; i < FURCA_COUNT(units); i++)
			if (age >= units[i].seconds || i + 1 == FURCA_COUNT(units)) {
				(void)snprintf(text, sizeof(text), "%.0f %s", age / units[i].seconds, units[i].unit);
				break;
			}
	}
	furca_table_add_text(table, text);
}

void furca_cli_add_memory(struct furca_table *table, struct furca_view map, const char *key)
{
	struct furca_value memory;
	char text[32] = "-";
	uint64_t bytes;

	if (furca_map_get(map, "memory", &memory) && furca_map_uint(memory.raw, key, &bytes))
		furca_cli_bytes(text, sizeof(text), bytes);
	furca_table_add_text(table, text);
}

size_t furca_cli_print_sessions(struct furca_view answer, size_t most)
{
	static const char *const heads[] = {"LANGUAGE", "ID",	   "NAME",   "ENV",  "BUSY",   "CALLS",
					    "UNDO",	"PRIVATE", "SHARED", "USED", "SUMMARY"};
	struct furca_value list, s;
	struct furca_table table;
	bool busy = false;

	if (!furca_map_get(answer, "sessions", &list) || list.kind != FURCA_ARRAY || list.count == 0) {
		(void)printf("no sessions\n");
		return 0;
	}
	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	struct furca_view inside = furca_value_inside(&list);
	while (most-- > 0 && furca_value_next(&inside, &s) == 0) {
		furca_table_add_value(&table, s.raw, "language");
		furca_table_add_value(&table, s.raw, "session_id");
		furca_table_add_value(&table, s.raw, "session_name");
		furca_table_add_value(&table, s.raw, "venv_id");
		furca_table_add_text(&table, furca_map_bool(s.raw, "busy", &busy) && busy ? "yes" : "no");
		furca_table_add_value(&table, s.raw, "calls");
		furca_table_add_value(&table, s.raw, "undo_depth");
		furca_cli_add_memory(&table, s.raw, "private_bytes");
		furca_cli_add_memory(&table, s.raw, "shared_bytes");
		add_age(&table, s.raw, "last_used_at");
		furca_table_add_value(&table, s.raw, "summary");
	}
	furca_table_print(&table, stdout);
	furca_table_done(&table);
	return list.count;
}

int furca_cmd_sessions(int argc, char **argv)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_cli cli;
	struct furca_view view;
	bool shown;
	int status = furca_cli_options(argc, argv, "sessions", NULL, &cli);

	if (status >= 0)
		return status;
	if (cli.argc > 0)
		return furca_cli_usage("sessions", "'%s' is not expected", cli.argv[0]);
	furca_args_begin(&args);
	furca_args_text(&args, "detail", "summary");
	status = furca_cli_call(&cli, "list_sessions", &args, &answer, &view, &shown);
	if (status == FURCA_EXIT_OK && !shown)
		(void)furca_cli_print_sessions(view, SIZE_MAX);
	return status;
}

static int close_one(const struct furca_cli *cli, const char *target)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_view view, reason;
	bool shown, closed = false;
	int status;

	furca_args_begin(&args);
	furca_cli_session(&args, cli, target);
	status = furca_cli_call(cli, "close_session", &args, &answer, &view, &shown);
	if (status != FURCA_EXIT_OK || shown)
		return status;
	if (furca_map_bool(view, "closed", &closed) && closed) {
		(void)printf("closed %s\n", target);
		return FURCA_EXIT_OK;
	}
	FURCA_AUTO_FREE char *why = furca_map_text(view, "reason", &reason) ? furca_view_dup(reason) : NULL;
	size_t word = why ? strspn(why, "abcdefghijklmnopqrstuvwxyz_")
			  : 0; /* "not_found: There is …": the word is for programs */

	return furca_cli_fail(cli->name,
			      !why		 ? "the session was not closed"
			      : why[word] == ':' ? why + word + 2
						 : why,
			      "list_sessions shows the sessions that exist.");
}

static int close_all(const struct furca_cli *cli)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_view view;
	uint64_t n = 0;
	bool shown;

	furca_args_begin(&args);
	int status = furca_cli_call(cli, "close_all_sessions", &args, &answer, &view, &shown);
	if (status == FURCA_EXIT_OK && !shown) {
		(void)furca_map_uint(view, "closed", &n);
		(void)printf("closed %llu\n", (unsigned long long)n);
	}
	return status;
}

int furca_cmd_close(int argc, char **argv)
{
	struct furca_cli cli;
	bool all = false;
	const struct furca_cli_own own[] = {{.name = "all", .given = &all}, {0}};
	int status = furca_cli_options(argc, argv, "close", own, &cli);

	if (status >= 0)
		return status;
	if (all ? cli.argc > 0 : cli.argc != 1)
		return furca_cli_usage("close", "say one session, or --all");
	return all ? close_all(&cli) : close_one(&cli, cli.argv[0]);
}

int furca_cmd_undo(int argc, char **argv)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	struct furca_cli cli;
	int64_t steps = 1;
	int status = furca_cli_options(argc, argv, "undo", NULL, &cli);

	if (status >= 0)
		return status;
	if (cli.argc < 1 || cli.argc > 2)
		return furca_cli_usage("undo", "say which session, and perhaps by how many calls");
	if (cli.argc == 2 && (!furca_cli_number(cli.argv[1], &steps) || steps < 1))
		return furca_cli_usage("undo", "a number of calls, from 1, is wanted, not '%s'", cli.argv[1]);
	furca_args_begin(&args);
	furca_cli_session(&args, &cli, cli.argv[0]);
	furca_args_int(&args, "steps", steps);
	return furca_cli_simple(&cli, "undo", &args, steps == 1 ? "undid the last call" : "undid the last calls");
}

/* Commands of a session and one more word. */
static int with_word(int argc, char **argv, const char *name, const char *method, const char *key, const char *what,
		     const char *done)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	struct furca_cli cli;
	int status = furca_cli_options(argc, argv, name, NULL, &cli);

	if (status >= 0)
		return status;
	if (cli.argc != 2)
		return furca_cli_usage(name, "say which session and which %s", what);
	furca_args_begin(&args);
	furca_cli_session(&args, &cli, cli.argv[0]);
	furca_args_text(&args, key, cli.argv[1]);
	return furca_cli_simple(&cli, method, &args, done);
}

int furca_cmd_branch(int argc, char **argv)
{
	return with_word(argc, argv, "branch", "branch_session", "new_name", "new name", "branched");
}

int furca_cmd_checkpoint(int argc, char **argv)
{
	return with_word(argc, argv, "checkpoint", "checkpoint", "label", "label", "kept");
}

int furca_cmd_restore(int argc, char **argv)
{
	return with_word(argc, argv, "restore", "restore", "label", "label", "restored");
}
