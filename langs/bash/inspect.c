/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The state of the shell for inspect_session, read from bash's own tables in a copy. Nothing of the user's runs: no function, trap
 * or expansion; only the variables that bash computes (RANDOM, SECONDS, DIRSTACK) are asked for their value.
 */
#include <msgpack.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define SHORT_TEXT 256U	      /* bytes of one value or function's text where `names` are asked for */
#define LONG_TEXT (64U << 10) /* and where all is */
#define LAST_TRAP (NSIG + 2)  /* DEBUG, ERR and RETURN follow the signals */

struct inspection {
	msgpack_packer packer;
	size_t max_text;
	struct furca_view only; /* a name: nothing else is listed; empty: everything */
};

static void pack_word(struct inspection *in, const char *word)
{
	msgpack_pack_str_with_body(&in->packer, word, strlen(word));
}

static void pack_count(struct inspection *in, const char *key, size_t n)
{
	pack_word(in, key);
	msgpack_pack_uint64(&in->packer, n);
}

/* The length of the valid UTF-8 sequence at `p`, 0 where there is none. */
static size_t utf8_length(const char *p, size_t n)
{
	for (size_t k = 1; k <= 4 && k <= n; k++) {
		const uint8_t *start = (const uint8_t *)p;

		if (furca_view_is_utf8((struct furca_view){start, start + k}))
			return k;
	}
	return 0;
}

/* At most max_text bytes, cut between characters; what is not UTF-8 becomes U+FFFD. */
static void pack_text(struct inspection *in, const char *text)
{
	FURCA_AUTO_BUF struct furca_buf clean = FURCA_BUF_INIT;
	size_t n = strlen(text), end = FURCA_MIN(n, in->max_text);

	for (size_t i = 0; i < end;) {
		size_t k = utf8_length(text + i, n - i);

		if (k > 0 && i + k > end)
			break;
		(void)furca_buf_append(&clean, k ? text + i : "\xef\xbf\xbd", k ? k : 3);
		i += k ? k : 1;
	}
	if (end < n)
		(void)furca_buf_append_text(&clean, "\xe2\x80\xa6");
	msgpack_pack_str_with_body(&in->packer, clean.data ? (const char *)clean.data : "", clean.len);
}

static bool wanted(const struct inspection *in, const char *name)
{
	return !in->only.at || furca_view_is(in->only, name);
}

/* The letters of declare. */
static void pack_attributes(struct inspection *in, int attributes)
{
	static const struct {
		int bit;
		char letter;
	} letters[] = {
		{att_array, 'a'},   {att_assoc, 'A'},	 {att_capcase, 'c'}, {att_integer, 'i'},   {att_lowercase, 'l'},
		{att_nameref, 'n'}, {att_readonly, 'r'}, {att_trace, 't'},   {att_uppercase, 'u'}, {att_exported, 'x'},
	};
	char text[FURCA_COUNT(letters) + 1];
	size_t n = 0;

	for (size_t i = 0; i < FURCA_COUNT(letters); i++)
		if (attributes & letters[i].bit)
			text[n++] = letters[i].letter;
	text[n] = '\0';
	pack_word(in, text);
}

/* As the Python sessions' names are judged (inspection.py). */
static bool is_secret(const char *name)
{
	static const char *const words[] = {"passw",	  "secret",	 "token",      "apikey",  "api_key",
					    "privatekey", "private_key", "credential", "authkey", "auth_key"};
	size_t n = strlen(name);

	for (size_t i = 0; i < FURCA_COUNT(words); i++)
		if (strcasestr(name, words[i]))
			return true;
	return strcasecmp(name, "pw") == 0 || (n > 3 && strcasecmp(name + n - 3, "_pw") == 0);
}

static void pack_variable(struct inspection *in, SHELL_VAR *var)
{
	FURCA_AUTO_FREE char *list = NULL;
	const char *value, *name = var->name;

	pack_text(in, var->name);
	msgpack_pack_map(&in->packer, 2);
	pack_word(in, "attributes");
	pack_attributes(in, var->attributes);
	pack_word(in, "value");
	if (var->dynamic_value)
		var = var->dynamic_value(var);
	value = var ? furca_bash_value(var, &list) : NULL;
	if (!value)
		msgpack_pack_nil(&in->packer);
	else
		pack_text(in, is_secret(name) ? "<redacted>" : value);
}

static size_t count_variables(const struct inspection *in, SHELL_VAR **vars)
{
	size_t n = 0;

	for (size_t i = 0; vars && vars[i]; i++)
		n += wanted(in, vars[i]->name);
	return n;
}

/* Those that calls have made or changed stand first. */
static void pack_variables(struct inspection *in)
{
	FURCA_AUTO_FREE SHELL_VAR **vars = all_shell_variables();
	size_t n = count_variables(in, vars), given = 0;
	FURCA_AUTO_FREE SHELL_VAR **old = calloc(n + 1, sizeof(SHELL_VAR *)); /* NULL: all count as made by calls */

	pack_word(in, "variables");
	msgpack_pack_map(&in->packer, n);
	for (size_t i = 0; vars && vars[i]; i++) {
		if (!wanted(in, vars[i]->name))
			continue;
		if (old && furca_bash_is_given(vars[i]))
			old[given++] = vars[i];
		else
			pack_variable(in, vars[i]);
	}
	for (size_t i = 0; i < given; i++)
		pack_variable(in, old[i]);
	pack_word(in, "given");
	msgpack_pack_array(&in->packer, given);
	for (size_t i = 0; i < given; i++)
		pack_text(in, old[i]->name);
}

static void pack_functions(struct inspection *in)
{
	FURCA_AUTO_FREE SHELL_VAR **vars = all_shell_functions();

	pack_word(in, "functions");
	msgpack_pack_map(&in->packer, count_variables(in, vars));
	for (size_t i = 0; vars && vars[i]; i++)
		if (wanted(in, vars[i]->name)) {
			pack_text(in, vars[i]->name);
			pack_text(in, named_function_string(vars[i]->name, (COMMAND *)(void *)vars[i]->value, 1));
		}
}

static size_t count_aliases(const struct inspection *in, alias_t **list)
{
	size_t n = 0;

	for (size_t i = 0; list && list[i]; i++)
		n += wanted(in, list[i]->name);
	return n;
}

static void pack_aliases(struct inspection *in)
{
	FURCA_AUTO_FREE alias_t **list = all_aliases();

	pack_word(in, "aliases");
	msgpack_pack_map(&in->packer, count_aliases(in, list));
	for (size_t i = 0; list && list[i]; i++)
		if (wanted(in, list[i]->name)) {
			pack_text(in, list[i]->name);
			pack_text(in, list[i]->value);
		}
}

/* The words of a variable that bash keeps as a:b:c. */
static void pack_options(struct inspection *in, const char *key, const char *variable)
{
	const SHELL_VAR *var = find_variable(variable);
	const char *text = var && var->value ? var->value : "";
	size_t n = *text ? 1 : 0;

	for (const char *p = text; *p; p++)
		n += *p == ':';
	pack_word(in, key);
	msgpack_pack_array(&in->packer, n);
	for (; *text; text += *text == ':') {
		size_t k = strcspn(text, ":");

		msgpack_pack_str_with_body(&in->packer, text, k);
		text += k;
	}
}

static void count_option(void *user, const char *word, size_t n)
{
	++*(size_t *)user;
}

static void pack_option(void *user, const char *word, size_t n)
{
	msgpack_pack_str_with_body(&((struct inspection *)user)->packer, word, n);
}

static void pack_changed_options(struct inspection *in)
{
	size_t n = 0;

	furca_bash_options_changed(count_option, &n);
	pack_word(in, "changed");
	msgpack_pack_array(&in->packer, n);
	furca_bash_options_changed(pack_option, in);
}

/* The text of a signal's trap, NULL where there is none; a disarmed EXIT trap is the session's. */
static const char *trap_text(int sig)
{
	if (sig == 0 && furca_bash.exit_trap)
		return furca_bash.exit_trap;
	if (!signal_is_trapped(sig))
		return NULL;
	if (signal_is_ignored(sig) || !trap_list[sig] || trap_list[sig] == (char *)SIG_IGN)
		return "";
	return trap_list[sig];
}

static void pack_traps(struct inspection *in)
{
	size_t n = 0;

	for (int i = 0; i <= LAST_TRAP; i++)
		n += trap_text(i) != NULL;
	pack_word(in, "traps");
	msgpack_pack_map(&in->packer, n);
	for (int i = 0; i <= LAST_TRAP; i++)
		if (trap_text(i)) {
			pack_word(in, signal_name(i));
			pack_text(in, trap_text(i));
		}
}

static void pack_job(struct inspection *in, int index, const JOB *job)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	const PROCESS *p = job->processes;
	pid_t last = 0;

	do {
		if (text.len > 0)
			(void)furca_buf_append_text(&text, " | ");
		(void)furca_buf_append_text(&text, p->command ? p->command : "");
		last = p->pid;
		p = p->next;
	} while (p && p != job->processes);
	(void)furca_buf_append(&text, "", 1);
	msgpack_pack_map(&in->packer, 4);
	pack_count(in, "id", (size_t)index + 1);
	pack_count(in, "pid", (size_t)last); /* what $! was */
	pack_word(in, "state");
	pack_word(in, job->state == JRUNNING ? "running" : job->state == JSTOPPED ? "stopped" : "done");
	pack_word(in, "command");
	pack_text(in, text.data ? (const char *)text.data : "");
}

static size_t count_jobs(void)
{
	size_t n = 0;

	for (int i = 0; i < js.j_jobslots; i++)
		n += jobs[i] && jobs[i]->processes;
	return n;
}

static void pack_jobs(struct inspection *in)
{
	pack_word(in, "jobs");
	msgpack_pack_array(&in->packer, count_jobs());
	for (int i = 0; i < js.j_jobslots; i++)
		if (jobs[i] && jobs[i]->processes)
			pack_job(in, i, jobs[i]);
}

static void pack_directories(struct inspection *in)
{
	WORD_LIST *list = get_directory_stack(0), *w;
	size_t n = 0;

	for (w = list; w; w = w->next)
		n++;
	pack_word(in, "directories");
	msgpack_pack_array(&in->packer, n);
	for (w = list; w; w = w->next)
		pack_text(in, w->word->word);
	dispose_words(list);
}

/* As the session writes it (links kept) where that still is the directory, else as the kernel does. */
static void pack_cwd(struct inspection *in)
{
	const SHELL_VAR *pwd = find_variable("PWD");
	struct stat named, real;
	FURCA_AUTO_FREE char *path = getcwd(NULL, 0);

	pack_word(in, "cwd");
	if (pwd && pwd->value && !(pwd->attributes & (att_array | att_assoc)) && stat(pwd->value, &named) == 0 &&
	    stat(".", &real) == 0 && named.st_dev == real.st_dev && named.st_ino == real.st_ino)
		pack_text(in, pwd->value);
	else
		pack_text(in, path ? path : "");
}

static void pack_summary(struct inspection *in)
{
	FURCA_AUTO_FREE SHELL_VAR **vars = all_shell_variables();
	FURCA_AUTO_FREE SHELL_VAR **functions = all_shell_functions();
	FURCA_AUTO_FREE alias_t **list = all_aliases();

	msgpack_pack_map(&in->packer, 5);
	pack_cwd(in);
	pack_count(in, "variables", count_variables(in, vars));
	pack_count(in, "functions", count_variables(in, functions));
	pack_count(in, "aliases", count_aliases(in, list));
	pack_count(in, "jobs", count_jobs());
}

void furca_bash_inspect(struct furca_buf *out, struct furca_view detail, struct furca_view name)
{
	struct inspection in = {.max_text = furca_view_is(detail, "full") ? LONG_TEXT : SHORT_TEXT};

	if (furca_view_size(name)) {
		in.only = name;
		in.max_text = LONG_TEXT;
	}
	msgpack_packer_init(&in.packer, out, furca_buf_msgpack_write);
	if (furca_view_is(detail, "summary")) {
		pack_summary(&in);
		return;
	}
	msgpack_pack_map(&in.packer, 9);
	pack_cwd(&in);
	pack_variables(&in);
	pack_functions(&in);
	pack_aliases(&in);
	pack_word(&in, "options");
	msgpack_pack_map(&in.packer, 3);
	pack_options(&in, "set", "SHELLOPTS");
	pack_options(&in, "shopt", "BASHOPTS");
	pack_changed_options(&in);
	pack_traps(&in);
	pack_jobs(&in);
	pack_directories(&in);
}
