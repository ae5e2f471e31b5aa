/* Environments and stored functions from the command line. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bridge/cli.h"
#include "bridge/cli_show.h"
#include "bridge/json.h"
#include "bridge/json_read.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

/* The content of a file, or standard input for "-"; NUL-terminated, free(). NULL after a message. */
static char *read_file(const char *name, const char *path)
{
	FURCA_AUTO_BUF struct furca_buf buf = {.max = FURCA_MAX_CODE};
	bool input = strcmp(path, "-") == 0;
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(input ? -1 : open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = -1;

	if (input || fd.n >= 0)
		do {
			if (furca_buf_reserve(&buf, 16384) < 0)
				break;
			n = read(input ? 0 : fd.n, buf.data + buf.len, 16384);
			buf.len += n > 0 ? (size_t)n : 0;
		} while (n > 0 || (n < 0 && errno == EINTR));
	if (buf.failed || n < 0) {
		(void)furca_cli_usage(name, "cannot read '%s': %s", path,
				      buf.failed ? "it is too large" : strerror(errno));
		return NULL;
	}
	(void)furca_buf_append(&buf, "", 1);
	return (char *)furca_buf_take(&buf).data;
}

/* A list as a table: one row for each map, one column for each key. */
static int list(const struct furca_cli *cli, const char *method, const char *key, const char *const *heads,
		const char *const *keys, size_t columns)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_value rows, row;
	struct furca_table table;
	struct furca_view view;
	bool shown;

	furca_args_begin(&args);
	int status = furca_cli_call(cli, method, &args, &answer, &view, &shown);
	if (status != FURCA_EXIT_OK || shown)
		return status;
	if (!furca_map_get(view, key, &rows) || rows.kind != FURCA_ARRAY || rows.count == 0) {
		(void)printf("no %s\n", key);
		return FURCA_EXIT_OK;
	}
	furca_table_begin(&table, columns, heads);
	struct furca_view inside = furca_value_inside(&rows);
	while (furca_value_next(&inside, &row) == 0)
		for (size_t i = 0; i < columns; i++)
			furca_table_add_value(&table, row.raw, keys[i]);
	furca_table_print(&table, stdout);
	furca_table_done(&table);
	return FURCA_EXIT_OK;
}

/* ---------------------------------------------------------------------------------------------------------- environments */

static void on_progress(void *user, const char *method, const void *params, size_t size)
{
	struct furca_view map = {params, (const uint8_t *)params + size}, text;

	if (strcmp(method, "env_progress") == 0 && furca_map_text(map, "text", &text))
		(void)fprintf(stderr, "%s%.*s%s\n", furca_cli_color(2, FURCA_DIM), (int)furca_view_size(text),
			      (const char *)text.at, furca_cli_color(2, FURCA_PLAIN));
}

/* Builds and waits, with the build's lines as they come. */
static int build(const struct furca_cli *cli, int64_t venv_id)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_client *client;
	struct furca_error err;
	struct furca_view view, state, text;
	size_t size;
	int status = furca_cli_connect(cli->name, cli->socket, true, &client);

	if (status)
		return status;
	furca_args_begin(&args);
	furca_args_int(&args, "venv_id", venv_id);
	if (!cli->json)
		furca_on_notification(client, on_progress, NULL);
	int r = furca_args_end(&args, &view) < 0 ? -ENOMEM
						 : furca_call(client, "build_env", view.at, furca_view_size(view),
							      FURCA_FOREVER, &answer, &size, &err);
	furca_close(client);
	if (r < 0)
		return furca_cli_fail(cli->name, err.message, err.suggestion);
	view = (struct furca_view){answer, (uint8_t *)answer + size};
	bool ready = furca_map_text(view, "state", &state) && furca_view_is(state, "ready");
	if (cli->json) {
		FURCA_AUTO_FREE char *json = furca_json(answer, size);

		(void)printf("%s\n", json ? json : "null");
	} else if (ready) {
		(void)printf("environment %lld is ready\n", (long long)venv_id);
	} else {
		FURCA_AUTO_FREE char *message = furca_map_text(view, "error", &text) ? furca_view_dup(text) : NULL;
		FURCA_AUTO_FREE char *advice = furca_map_text(view, "suggestion", &text) ? furca_view_dup(text) : NULL;

		(void)furca_cli_fail(cli->name, message ? message : "the environment was not built", advice);
	}
	return ready ? FURCA_EXIT_OK : FURCA_EXIT_FAILED;
}

static int create(const struct furca_cli *cli, const char *file, const char *name, bool then_build)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	FURCA_AUTO_FREE char *spec = read_file(cli->name, file);
	struct furca_client *client;
	struct furca_view view;
	int64_t id = 0;
	bool shown;

	if (!spec)
		return FURCA_EXIT_USAGE;
	int status = furca_cli_connect(cli->name, cli->socket, true, &client); /* there is one from now on */
	if (status)
		return status;
	furca_close(client);
	furca_args_begin(&args);
	furca_args_text(&args, "spec", spec);
	furca_args_text(&args, "name", name);
	status = furca_cli_call(cli, "create_env", &args, &answer, &view, &shown);
	if (status != FURCA_EXIT_OK || !furca_map_int(view, "venv_id", &id))
		return status;
	if (then_build)
		return build(cli, id);
	if (!shown)
		(void)printf("environment %lld\n", (long long)id);
	return FURCA_EXIT_OK;
}

int furca_cmd_envs(int argc, char **argv)
{
	static const char *const heads[] = {"ID", "NAME", "STATE", "PYTHON", "DIGEST"};
	static const char *const keys[] = {"venv_id", "name", "state", "python", "digest"};
	FURCA_AUTO_ARGS struct furca_args args = {0};
	const char *name = NULL, *verb;
	struct furca_cli cli;
	int64_t id = 0;
	bool then_build = false;
	const struct furca_cli_own own[] = {
		{.name = "name", .value = &name}, {.name = "build", .given = &then_build}, {0}};
	int status = furca_cli_options(argc, argv, "envs", own, &cli);

	if (status >= 0)
		return status;
	verb = cli.argc ? cli.argv[0] : "list";
	if (strcmp(verb, "list") == 0 && cli.argc <= 1)
		return list(&cli, "list_envs", "envs", heads, keys, FURCA_COUNT(heads));
	if (strcmp(verb, "create") == 0 && cli.argc == 2)
		return create(&cli, cli.argv[1], name, then_build);
	if (cli.argc != 2 || !furca_cli_number(cli.argv[1], &id))
		return furca_cli_usage("envs", "list, create FILE, build ID or remove ID");
	if (strcmp(verb, "build") == 0)
		return build(&cli, id);
	if (strcmp(verb, "remove") != 0)
		return furca_cli_usage("envs", "'%s' is none of list, create, build, remove", verb);
	furca_args_begin(&args);
	furca_args_int(&args, "venv_id", id);
	return furca_cli_simple(&cli, "remove_env", &args, "removed");
}

/* ------------------------------------------------------------------------------------------------------------- functions */

static int add_function(const struct furca_cli *cli, const char *name, const char *file, const char *doc)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE char *source = read_file(cli->name, file);
	const char *dot = strrchr(file, '.');
	bool shell = dot && (strcmp(dot, ".sh") == 0 || strcmp(dot, ".bash") == 0);

	if (!source)
		return FURCA_EXIT_USAGE;
	furca_args_begin(&args);
	furca_args_text(&args, "name", name);
	furca_args_text(&args, "language", cli->language ? cli->language : shell ? "bash" : "python");
	furca_args_text(&args, "source", source);
	furca_args_int(&args, "venv_id", cli->venv_id);
	furca_args_text(&args, "doc", doc);
	return furca_cli_simple(cli, "add_function", &args, "added");
}

/* Whether an argument is KEY=VALUE, KEY being an identifier. */
static const char *by_name(const char *arg)
{
	size_t n = strspn(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	return n > 0 && arg[n] == '=' && !(arg[0] >= '0' && arg[0] <= '9') ? arg + n : NULL;
}

static void pack_arguments(struct furca_args *args, char **words, int n)
{
	uint32_t positional = 0;

	for (int i = 0; i < n; i++)
		positional += !by_name(words[i]);
	furca_args_key(args, "args");
	msgpack_pack_array(&args->pk, positional);
	for (int i = 0; i < n; i++)
		if (!by_name(words[i]))
			furca_json_pack_text(&args->pk, words[i]);
	furca_args_key(args, "kwargs");
	msgpack_pack_map(&args->pk, (uint32_t)n - positional);
	for (int i = 0; i < n; i++) {
		const char *equals = by_name(words[i]);

		if (equals) {
			msgpack_pack_str_with_body(&args->pk, words[i], (size_t)(equals - words[i]));
			furca_json_pack_text(&args->pk, equals + 1);
		}
	}
}

static int call_function(const struct furca_cli *cli, const char *mode, const char *session)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_view view, text;
	struct furca_value result;
	bool shown;

	furca_args_begin(&args);
	furca_args_text(&args, "name", cli->argv[1]);
	pack_arguments(&args, cli->argv + 2, cli->argc - 2);
	furca_args_text(&args, "state_mode", mode);
	if (session)
		furca_cli_session(&args, &(struct furca_cli){.venv_id = FURCA_NONE}, session);
	int status = furca_cli_call(cli, "call_function", &args, &answer, &view, &shown);
	if (shown || furca_view_size(view) == 0)
		return status;
	if (furca_map_text(view, "stdout", &text))
		(void)fwrite(text.at, 1, furca_view_size(text), stdout);
	if (furca_map_text(view, "stderr", &text))
		(void)fwrite(text.at, 1, furca_view_size(text), stderr);
	bool value_shown = furca_cli_show_displays(view, furca_cli_images_default());
	if (status != FURCA_EXIT_OK || value_shown)
		return status;
	if (furca_map_get(view, "result", &result) && result.kind != FURCA_NIL &&
	    furca_json_write_pretty(&json, result.raw) == 0)
		(void)printf("%.*s\n", (int)json.len, (const char *)json.data);
	else if (furca_map_text(view, "result_text", &text)) /* of a value that has no form on the wire */
		(void)printf("%.*s\n", (int)furca_view_size(text), (const char *)text.at);
	return status;
}

int furca_cmd_functions(int argc, char **argv)
{
	static const char *const heads[] = {"NAME", "LANGUAGE", "ENV", "DOC"};
	static const char *const keys[] = {"name", "language", "venv_id", "doc"};
	FURCA_AUTO_ARGS struct furca_args args = {0};
	const char *doc = NULL, *mode = NULL, *session = NULL;
	struct furca_cli cli;

	const struct furca_cli_own own[] = {{.name = "doc", .value = &doc},
					    {.name = "mode", .letter = 'm', .value = &mode},
					    {.name = "session", .letter = 's', .value = &session},
					    {0}};
	int status = furca_cli_options(argc, argv, "functions", own, &cli);

	if (status >= 0)
		return status;
	const char *verb = cli.argc ? cli.argv[0] : "list";
	if (strcmp(verb, "list") == 0 && cli.argc <= 1)
		return list(&cli, "list_functions", "functions", heads, keys, FURCA_COUNT(heads));
	if (strcmp(verb, "add") == 0 && cli.argc == 3)
		return add_function(&cli, cli.argv[1], cli.argv[2], doc);
	if (strcmp(verb, "call") == 0 && cli.argc >= 2)
		return call_function(&cli, mode, session);
	if (strcmp(verb, "remove") != 0 || cli.argc != 2)
		return furca_cli_usage("functions", "list, add NAME FILE, remove NAME or call NAME [ARG…]");
	furca_args_begin(&args);
	furca_args_text(&args, "name", cli.argv[1]);
	return furca_cli_simple(&cli, "remove_function", &args, "removed");
}
