#include "bridge/cli.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/auto.h"
#include "bridge/json.h"

#include "base/banned.h"

int furca_cli_usage(const char *name, const char *format, ...)
{
	va_list ap;

	(void)fprintf(stderr, "furca %s: ", name);
	va_start(ap, format);
	(void)vfprintf(stderr, format, ap);
	va_end(ap);
	(void)fprintf(stderr, "\n`furca %s --help` says how it is used.\n", name);
	return FURCA_EXIT_USAGE;
}

const char *furca_cli_color(int fd, const char *sequence)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (!isatty(fd) || (no && *no) || (term && strcmp(term, "dumb") == 0))
		return "";
	return sequence;
}

void furca_cli_advise(const char *name, const char *suggestion)
{
	FURCA_AUTO_FREE char *words = suggestion ? furca_cli_words(name, suggestion) : NULL;

	if (suggestion && *suggestion)
		(void)fprintf(stderr, "%s\n", words ? words : suggestion);
}

int furca_cli_fail(const char *name, const char *message, const char *suggestion)
{
	(void)fprintf(stderr, "%sfurca %s: %s%s\n", furca_cli_color(2, FURCA_RED), name, message,
		      furca_cli_color(2, FURCA_PLAIN));
	furca_cli_advise(name, suggestion);
	return FURCA_EXIT_FAILED;
}

int furca_cli_fail_err(const char *name, const struct furca_err *err)
{
	char text[FURCA_ERR_TEXT_MAX + 128];

	return furca_cli_fail(name, furca_err_describe(err, text, sizeof(text)), furca_err_suggestion(err));
}

void furca_cli_session(struct furca_args *args, const struct furca_cli *cli, const char *target)
{
	int64_t id;

	if (target && furca_cli_number(target, &id))
		furca_args_int(args, "session_id", id);
	else
		furca_args_text(args, "session_name", target);
	furca_args_text(args, "language", cli->language);
	furca_args_int(args, "venv_id", cli->venv_id);
}

/* --------------------------------------------------------------------------------------------------------------- calling */

/* A refusal in its own words. Returns an exit status, or 0 where it is none. */
static int print_refusal(const char *name, struct furca_view answer)
{
	struct furca_view text, suggestion, type;
	bool ok = true;

	if (!furca_map_bool(answer, "ok", &ok) || ok)
		return FURCA_EXIT_OK;
	FURCA_AUTO_FREE char *message = furca_map_text(answer, "error", &text) ? furca_view_dup(text) : NULL;
	FURCA_AUTO_FREE char *advice =
		furca_map_text(answer, "suggestion", &suggestion) ? furca_view_dup(suggestion) : NULL;
	(void)furca_cli_fail(name, message ? message : "the engine refused", advice);
	return furca_map_text(answer, "error_type", &type) && furca_view_is(type, "validation") ? FURCA_EXIT_USAGE
												: FURCA_EXIT_FAILED;
}

int furca_cli_call(const struct furca_cli *cli, const char *method, struct furca_args *args, void **ret,
		   struct furca_view *ret_view, bool *ret_shown)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_client *client;
	struct furca_error err;
	struct furca_view view;
	size_t size;
	int status = furca_cli_connect(cli->name, cli->socket, false, &client);

	*ret_shown = false;
	if (status)
		return status;
	if (furca_args_end(args, &view) < 0) {
		furca_close(client);
		return furca_cli_fail(cli->name, "memory is out", NULL);
	}
	int r = furca_call(client, method, view.at, furca_view_size(view), FURCA_FOREVER, ret, &size, &err);
	furca_close(client);
	if (r < 0)
		return furca_cli_fail(cli->name, err.message, err.suggestion);
	*ret_view = (struct furca_view){*ret, (uint8_t *)*ret + size};
	if (!cli->json)
		return print_refusal(cli->name, *ret_view);
	bool ok = true;
	(void)furca_map_bool(*ret_view, "ok", &ok);
	if (furca_json_write(&json, *ret_view) == 0)
		(void)printf("%.*s\n", (int)json.len, (const char *)json.data);
	*ret_shown = true;
	return ok ? FURCA_EXIT_OK : FURCA_EXIT_FAILED;
}

int furca_cli_simple(const struct furca_cli *cli, const char *method, struct furca_args *args, const char *done)
{
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_view view, note;
	bool shown;
	int status = furca_cli_call(cli, method, args, &answer, &view, &shown);

	if (status == FURCA_EXIT_OK && !shown && furca_map_text(view, "note", &note))
		(void)printf("%s; %.*s\n", done, (int)furca_view_size(note), (const char *)note.at);
	else if (status == FURCA_EXIT_OK && !shown)
		(void)printf("%s\n", done);
	return status;
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

void furca_table_begin(struct furca_table *table, size_t columns, const char *const *heads)
{
	*table = (struct furca_table){.columns = columns};
	for (size_t i = 0; i < columns; i++)
		furca_table_add_text(table, heads[i]);
}

/* Copies text without what a terminal would obey: control characters, also those of two bytes (U+0080 to U+009F). Returns its size. */
static size_t clean(char *cell, const char *text, size_t n)
{
	size_t out = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;

		if (c == 0xc2 && next >= 0x80 && next < 0xa0) {
			cell[out++] = '?';
			i++;
		} else if (c < 0x20 || c == 0x7f) {
			cell[out++] = c == '\n' || c == '\t' ? ' ' : '?';
		} else {
			cell[out++] = text[i];
		}
	}
	cell[out] = '\0';
	return out;
}

void furca_table_add(struct furca_table *table, const char *text, size_t n)
{
	char **cells = realloc(table->cells, (table->rows + 1) * sizeof(*cells));
	char *cell = malloc(n + 1);

	if (cells)
		table->cells = cells;
	if (!cells || !cell) {
		free(cell);
		return;
	}
	(void)clean(cell, text, n);
	cells[table->rows++] = cell; /* `rows` counts cells until the table is printed */
}

void furca_table_add_text(struct furca_table *table, const char *text)
{
	furca_table_add(table, text, strlen(text));
}

void furca_table_add_value(struct furca_table *table, struct furca_view map, const char *key)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || v.kind == FURCA_NIL)
		furca_table_add_text(table, "-");
	else if (v.kind == FURCA_STR)
		furca_table_add(table, (const char *)v.bytes.at, furca_view_size(v.bytes));
	else if (furca_json_write(&json, v.raw) == 0)
		furca_table_add(table, (const char *)json.data, json.len);
	else
		furca_table_add_text(table, "?");
}

/* Steps over one character. Returns the columns that it takes: 2 for wide ones, 0 for those that combine. */
static size_t step(const char **at)
{
	static _Thread_local locale_t utf8;
	mbstate_t state = {0};
	wchar_t wide;

	if (!utf8) {
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
		(void)uselocale(utf8 ? utf8 : LC_GLOBAL_LOCALE);
	}
	size_t n = mbrtowc(&wide, *at, strnlen(*at, 4), &state);
	if (n == 0 || n > 4) { /* no UTF-8, or no such locale here */
		do
			(*at)++;
		while (((unsigned char)**at & 0xc0) == 0x80);
		return 1;
	}
	*at += n;
	int columns = wcwidth(wide);
	return columns < 0 ? 1 : (size_t)columns;
}

size_t furca_cli_width(const char *text)
{
	size_t n = 0;

	while (*text)
		n += step(&text);
	return n;
}

size_t furca_cli_print_cut(FILE *out, const char *text, size_t most)
{
	bool cut = furca_cli_width(text) > most;
	size_t shown = 0, room = most - (cut && most > 0);

	while (*text) {
		const char *next = text;
		size_t n = step(&next);

		if (shown + n > room)
			break;
		(void)fwrite(text, 1, (size_t)(next - text), out);
		shown += n;
		text = next;
	}
	if (cut)
		(void)fputs("…", out);
	return shown + cut;
}

size_t furca_cli_line_width(FILE *out)
{
	struct winsize size;

	if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
		return size.ws_col;
	return 4096;
}

void furca_table_print(struct furca_table *table, FILE *out)
{
	size_t columns = table->columns, rows = columns ? table->rows / columns : 0, wide[16] = {0},
	       line = furca_cli_line_width(out);

	for (size_t i = 0; i < rows * columns; i++)
		wide[i % columns] =
			FURCA_MAX(wide[i % columns], FURCA_MIN(furca_cli_width(table->cells[i]), (size_t)60));
	for (size_t row = 0; row < rows; row++) {
		size_t used = 0;

		(void)fputs(row == 0 ? furca_cli_color(fileno(out), FURCA_BOLD) : "", out);
		for (size_t c = 0; c < columns; c++) {
			bool last = c + 1 == columns;
			size_t most = last ? (line > used + 4 ? line - used : 4) : wide[c];
			size_t n = furca_cli_print_cut(out, table->cells[row * columns + c], most);

			for (; !last && n < wide[c] + 2; n++)
				(void)fputc(' ', out);
			used += n;
		}
		(void)fputs(row == 0 ? furca_cli_color(fileno(out), FURCA_PLAIN) : "", out);
		(void)fputc('\n', out);
	}
}

void furca_table_done(struct furca_table *table)
{
	for (size_t i = 0; i < table->rows; i++)
		free(table->cells[i]);
	free((void *)table->cells);
	*table = (struct furca_table){0};
}

void furca_cli_bytes(char *buf, size_t size, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double n = (double)bytes;
	size_t unit = 0;

	for (; n >= 1024 && unit + 1 < FURCA_COUNT(units); unit++)
		n /= 1024;
	(void)snprintf(buf, size, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
}

/* ----------------------------------------------------------------------------------------------------------- directories */

int furca_default_state_dir(char *buf, size_t size)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	if (state && *state == '/')
		n = snprintf(buf, size, "%s/furca", state);
	else if (home && *home == '/' && home[1])
		n = snprintf(buf, size, "%s/.local/state/furca", home);
	else if (geteuid() == 0)
		n = snprintf(buf, size, "/var/lib/furca");
	else
		n = snprintf(buf, size, "/tmp/furca-%u/state", geteuid());
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int furca_make_dirs(const char *path)
{
	char at[4096];
	size_t n = strlen(path);

	if (n == 0 || n >= sizeof(at))
		return -ENAMETOOLONG;
	memcpy(at, path, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (at[i] && at[i] != '/')
			continue;
		at[i] = '\0';
		if (mkdir(at, 0700) < 0 && errno != EEXIST)
			return -errno;
		at[i] = path[i];
	}
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
