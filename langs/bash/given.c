/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the shell had before its first call, for inspect_session to tell it from what calls have made or changed. */
#include <stdlib.h>
#include <string.h>

#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

struct given {
	struct given *next;
	char *name, *value; /* value NULL: it had none */
	int attributes;
};

static struct given *first;
static char *options[2]; /* as the variables below have them */

static const char *const option_names[] = {"SHELLOPTS", "BASHOPTS"};

/* Variables that bash itself changes, whatever a call does; the directory and the options are told of elsewhere. */
static bool is_bashs_own(const char *name)
{
	static const char *const names[] = {"_",	 "PIPESTATUS",	"PWD",	      "OLDPWD",	  "SHELLOPTS",
					    "BASHOPTS",	 "LINES",	"COLUMNS",    "FUNCNAME", "BASH_ARGC",
					    "BASH_ARGV", "BASH_LINENO", "BASH_SOURCE"};

	for (size_t i = 0; i < FURCA_COUNT(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

const char *furca_bash_value(const SHELL_VAR *var, char **ret_list)
{
	*ret_list = NULL;
	if (!var->value || var->attributes & att_invisible)
		return NULL;
	if (!(var->attributes & (att_array | att_assoc)))
		return var->value;
	*ret_list = var->attributes & att_array ? array_to_assign(var->value, 0) : assoc_to_assign(var->value, 0);
	return *ret_list ? *ret_list : "()";
}

static const char *option_words(int i)
{
	const SHELL_VAR *var = find_variable(option_names[i]);

	return var && var->value ? var->value : "";
}

static void note(const SHELL_VAR *var)
{
	FURCA_AUTO_FREE char *list = NULL;
	struct given *g = calloc(1, sizeof(*g));
	const char *value = furca_bash_value(var, &list);

	if (!g || !(g->name = strdup(var->name)) || (value && !(g->value = strdup(value)))) {
		free(g ? g->name : NULL);
		free(g);
		return; /* it will be shown as a call's */
	}
	g->attributes = var->attributes;
	g->next = first;
	first = g;
}

void furca_bash_given_init(void)
{
	FURCA_AUTO_FREE SHELL_VAR **vars = all_shell_variables();

	for (size_t i = 0; vars && vars[i]; i++)
		note(vars[i]);
	for (int i = 0; i < 2; i++)
		options[i] = strdup(option_words(i));
}

bool furca_bash_is_given(const SHELL_VAR *var)
{
	FURCA_AUTO_FREE char *list = NULL;
	const struct given *g = first;
	const char *value;

	if (is_bashs_own(var->name))
		return true;
	while (g && strcmp(g->name, var->name) != 0)
		g = g->next;
	if (!g || var->dynamic_value)
		return g != NULL;
	value = furca_bash_value(var, &list);
	return g->attributes == var->attributes &&
	       (value && g->value ? strcmp(value, g->value) == 0 : value == g->value);
}

/* Whether a word of `n` bytes stands in a list that is written a:b:c. */
static bool has_word(const char *list, const char *word, size_t n)
{
	for (; *list; list += *list == ':') {
		size_t k = strcspn(list, ":");

		if (k == n && strncmp(list, word, n) == 0)
			return true;
		list += k;
	}
	return false;
}

/* Calls `take` for the words of `list` that `other` has not. */
static void each_missing(const char *list, const char *other, void (*take)(void *user, const char *word, size_t n),
			 void *user)
{
	for (; *list; list += *list == ':') {
		size_t n = strcspn(list, ":");

		if (n > 0 && !has_word(other, list, n))
			take(user, list, n);
		list += n;
	}
}

void furca_bash_options_changed(void (*take)(void *user, const char *word, size_t n), void *user)
{
	for (int i = 0; i < 2; i++) {
		const char *before = options[i] ? options[i] : "", *now = option_words(i);

		each_missing(now, before, take, user);
		each_missing(before, now, take, user);
	}
}
