/* Suggestions are written for programs, in the words of the protocol; a person at the command line has options and commands instead. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "bridge/cli.h"

#include "base/banned.h"

/*
 * `option` stands for "word=" with `furca exec`, `plain` with other commands, before the value ("": the value alone stands there); `words` for the
 * bare word. NULL: as it is. FILE_OF: the value is the content of a file, and shown as such.
 */
#define FILE_OF "a file of"

static const struct {
	const char *word, *option, *plain, *words;
} table[] = {
	{"session_name", "-s", "session", "session name"},
	{"session_id", "-s", "session", "session number"},
	{"state_mode", "-m", "-m", "-m"},
	{"language", "-l", "-l", NULL},
	{"timeout_s", "-t", "-t", "-t"},
	{"venv_id", "--env", "environment", "--env"},
	{"spec", FILE_OF, FILE_OF, NULL},
	{"source", FILE_OF, FILE_OF, NULL},
	{"on_error", "--on-error", "--on-error", "--on-error"},
	{"max_output_bytes", "--max-output", "--max-output", "--max-output"},
	{"cwd", "--cwd", "--cwd", "--cwd"},
	{"code", "-e", "-e", NULL},
	{"detail", "-d", "-d", "-d"},
	{"new_name", "", "", "new name"},
	{"output_id", "", "", "output's number"},
	{"label", "", "", NULL},
	{"steps", "", "", NULL},
	{"name", "", "", NULL},
	{"execute", NULL, NULL, "`furca exec`"},
	{"list_sessions", NULL, NULL, "`furca sessions`"},
	{"inspect_session", NULL, NULL, "`furca inspect`"},
	{"close_session", NULL, NULL, "`furca close`"},
	{"close_all_sessions", NULL, NULL, "`furca close --all`"},
	{"branch_session", NULL, NULL, "`furca branch`"},
	{"create_env", NULL, NULL, "`furca envs create`"},
	{"build_env", NULL, NULL, "`furca envs build`"},
	{"list_envs", NULL, NULL, "`furca envs`"},
	{"remove_env", NULL, NULL, "`furca envs remove`"},
	{"add_function", NULL, NULL, "`furca functions add`"},
	{"list_functions", NULL, NULL, "`furca functions`"},
	{"remove_function", NULL, NULL, "`furca functions remove`"},
	{"call_function", NULL, NULL, "`furca functions call`"},
};

/* Several words for which the command line has others than for each of them; the first that fits counts. */
static const struct {
	const char *words, *instead;
} phrases[] = {
	{"Remove session_id and session_name", "Remove -s"},
	{"remove session_id and session_name", "remove -s"},
	{"Provide session_id or session_name", "Give a session with -s"},
	{"session_id or session_name", "session"},
	{"Remove session_name", "Remove -s"},
	{"Remove session_id", "Remove -s"},
	{"pass its venv_id", "pass its number with --env"},
	{"its venv_id", "its environment number"},
	{"the venv_id", "the environment number"},
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The end of a value: of quotes, or of what could stand without. */
static const char *value_end(const char *at)
{
	const char quote = *at;

	if (quote != '\'' && quote != '"') {
		while (is_word(*at) || *at == '.' || *at == '-')
			at++;
		return at[-1] == '.' ? at - 1 : at; /* the sentence's */
	}
	for (at++; *at && *at != quote; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at ? at + 1 : at;
}

/* The lines of a quoted value, indented, on lines of their own. Returns where the text goes on. */
static const char *put_file(struct furca_buf *out, const char *value, const char *end)
{
	(void)furca_buf_append_text(out, FILE_OF "\n    ");
	for (const char *at = value + 1; at < end - 1; at++) {
		if (*at == '\\' && at[1] == 'n')
			(void)furca_buf_append_text(out, "\n    ");
		else
			(void)furca_buf_append(out, *at == '\\' ? at + 1 : at, 1);
		at += *at == '\\';
	}
	end += *end == '.';
	end += strspn(end, " ");
	(void)furca_buf_append_text(out, *end ? "\n" : "");
	return end;
}

/* "word=value" as the command line has it. Returns where the text goes on, or NULL where it is none of ours. */
static const char *take_option(struct furca_buf *out, const char *option, const char *value)
{
	const char *end = value_end(value);

	if (end == value)
		return NULL;
	if (strcmp(option, FILE_OF) == 0)
		return put_file(out, value, end);
	(void)furca_buf_printf(out, "%s%s%.*s", option, *option ? " " : "", (int)(end - value), value);
	return end;
}

/* Returns where the text goes on, or NULL where no phrase begins here. */
static const char *take_phrase(struct furca_buf *out, const char *at)
{
	for (size_t i = 0; i < FURCA_COUNT(phrases); i++) {
		size_t n = strlen(phrases[i].words);

		if (strncmp(at, phrases[i].words, n) != 0 || is_word(at[n]) || at[n] == '=')
			continue;
		(void)furca_buf_append_text(out, phrases[i].instead);
		return at + n;
	}
	return NULL;
}

/* `exec`: whether what follows are options of `furca exec`; another command in the text changes that. */
static const char *take_word(struct furca_buf *out, const char *at, bool *exec)
{
	size_t n = 0;

	while (is_word(at[n]))
		n++;
	for (size_t i = 0; i < FURCA_COUNT(table); i++) {
		const char *end = NULL;

		if (strlen(table[i].word) != n || strncmp(table[i].word, at, n) != 0)
			continue;
		if (at[n] == '=' && table[i].option)
			end = take_option(out, *exec ? table[i].option : table[i].plain, at + n + 1);
		else if (at[n] != '=' && table[i].words && furca_buf_append_text(out, table[i].words) == 0)
			end = at + n;
		if (end && !table[i].option)
			*exec = strcmp(table[i].word, "execute") == 0;
		if (end)
			return end;
		break;
	}
	(void)furca_buf_append(out, at, n);
	return at + n;
}

char *furca_cli_words(const char *name, const char *suggestion)
{
	struct furca_buf out = FURCA_BUF_INIT;
	const char *at = suggestion;
	bool exec = strcmp(name, "exec") == 0;

	while (*at) {
		if (is_word(*at)) {
			const char *end = take_phrase(&out, at);

			at = end ? end : take_word(&out, at, &exec);
		} else if (*at == '"' || (*at == '\'' && !(at > suggestion && is_word(at[-1])))) {
			/* What is quoted is somebody's own; behind a letter it is no quote. */
			const char *end = value_end(at);

			(void)furca_buf_append(&out, at, (size_t)(end - at));
			at = end;
		} else {
			(void)furca_buf_append(&out, at++, 1);
		}
	}
	if (furca_buf_append(&out, "", 1) < 0) {
		furca_buf_done(&out);
		return NULL;
	}
	return (char *)furca_buf_take(&out).data;
}
