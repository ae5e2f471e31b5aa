/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a call brings besides its code: working directory, environment, a stored function and its arguments. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "bridge/wire/advice.h"
#include "langs/bash/bash_abi.h"
#include "langs/bash/json.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

/* Why nobody can go there; 0: it seems that one can. */
static int hindered(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno;
	return S_ISDIR(st.st_mode) ? access(path, X_OK) < 0 ? errno : 0 : ENOTDIR;
}

int furca_bash_set_cwd(struct furca_view path, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	WORD_LIST *words;
	int r;

	if (memchr(path.at, 0, furca_view_size(path)))
		return furca_fail(err, FURCA_E_VALIDATION, 0, "cwd contains a NUL byte");
	if (*path.at != '/')
		(void)furca_buf_append(&text, "./", 2); /* neither an option nor a matter of CDPATH */
	(void)furca_buf_append(&text, path.at, furca_view_size(path));
	(void)furca_buf_append(&text, "", 1);
	if (text.failed)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for cwd");
	r = hindered((const char *)text.data);
	if (r == 0) {
		/* The builtin itself, whatever function has its name: it keeps PWD and OLDPWD right. Its message goes to stderr. */
		words = make_word_list(make_word((const char *)text.data), NULL);
		r = cd_builtin(words) == EXECUTION_SUCCESS ? 0 : ENOENT;
		dispose_words(words);
	}
	if (r != 0)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, r,
					  "Remove cwd, or give the path of a directory that exists.",
					  "cannot change to the directory '%.*s': %s", (int)furca_view_size(path),
					  (const char *)path.at, strerror(r));
	return 0;
}

/* "'NAME' WHY": to be left out of the map that it stands in. */
static int refuse_name(struct furca_err *err, const char *name, const char *why)
{
	char word[FURCA_ADVICE_TEXT], advice[FURCA_ADVICE_TEXT + 16];

	(void)snprintf(advice, sizeof(advice), "Remove %s.", furca_advice_text(word, furca_text_view(name)));
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "'%.200s' %s", name, why);
}

static int check_variable(const char *name, const struct furca_value *value, struct furca_err *err)
{
	const SHELL_VAR *var = find_variable(name);

	if (!legal_identifier(name))
		return refuse_name(err, name, "is no name that a variable of bash can have");
	if (var && var->attributes & att_readonly)
		return refuse_name(err, name, "is readonly in this session");
	if (value->kind != FURCA_NIL &&
	    (value->kind != FURCA_STR || memchr(value->bytes.at, 0, furca_view_size(value->bytes))))
		return furca_fail(err, FURCA_E_VALIDATION, 0, "the value of '%s' is no text without NUL bytes", name);
	return 0;
}

/* One that was checked. */
static int set_variable(const char *name, const struct furca_value *value, struct furca_err *err)
{
	FURCA_AUTO_FREE char *text = NULL;

	if (value->kind == FURCA_NIL) {
		(void)unbind_variable(name);
	} else {
		text = furca_view_dup(value->bytes);
		SHELL_VAR *var = text ? bind_variable(name, text, 0) : NULL;
		if (!var)
			return furca_fail(err, FURCA_E_MEMORY, 0, "cannot set '%s'", name);
		var->attributes |= att_exported;
	}
	array_needs_making = 1;
	stupidly_hack_special_variables((char *)name);
	return 0;
}

/* Each entry of the map, until one fails. */
static int each_variable(struct furca_view map,
			 int (*take)(const char *name, const struct furca_value *value, struct furca_err *err),
			 struct furca_err *err)
{
	struct furca_value head, name, value;
	struct furca_view inside;
	int r = furca_value_of(map, &head);

	if (r < 0)
		return r;
	inside = furca_value_inside(&head);
	for (uint32_t i = 0; i < head.count; i++) {
		FURCA_AUTO_FREE char *text = NULL;

		if (furca_value_next(&inside, &name) < 0 || furca_value_next(&inside, &value) < 0 ||
		    name.kind != FURCA_STR)
			return furca_fail(err, FURCA_E_VALIDATION, 0, "env_vars has a name that is no text");
		text = furca_view_dup(name.bytes);
		if (!text)
			return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for env_vars");
		r = take(text, &value, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int furca_bash_check_env(struct furca_view map, struct furca_err *err)
{
	return each_variable(map, check_variable, err);
}

int furca_bash_set_env(struct furca_view map, struct furca_err *err)
{
	return each_variable(map, set_variable, err);
}

/* The value as one quoted word: text as it is, else JSON. */
static void add_quoted(struct furca_buf *code, const struct furca_value *value)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_view text = value->bytes;

	if (value->kind != FURCA_STR && value->kind != FURCA_BIN) {
		furca_json_write(&json, value);
		text = furca_buf_view(&json);
	}
	(void)furca_buf_append(code, "'", 1);
	for (const uint8_t *p = text.at; p < text.end; p++)
		if (*p == '\'')
			(void)furca_buf_append(code, "'\\''", 4);
		else if (*p)
			(void)furca_buf_append(code, p, 1);
	(void)furca_buf_append(code, "' ", 2);
}

static bool is_function_name(struct furca_view name)
{
	static const char others[] = "_.:-+@";

	for (const uint8_t *p = name.at; p < name.end; p++) {
		bool letter = (*p | 32) >= 'a' && (*p | 32) <= 'z', digit = *p >= '0' && *p <= '9';

		if (!letter && !digit && (p == name.at ? *p != '_' : !memchr(others, *p, sizeof(others) - 1)))
			return false;
	}
	return name.at < name.end;
}

/* key='value' words before the call: variables of the function's own environment. */
static int add_kwargs(struct furca_buf *code, struct furca_view function, struct furca_err *err)
{
	struct furca_value kwargs, key, value;

	if (!furca_map_get(function, "kwargs", &kwargs) || kwargs.kind != FURCA_MAP)
		return 0;
	struct furca_view inside = furca_value_inside(&kwargs);
	for (uint32_t i = 0; i < kwargs.count; i++) {
		FURCA_AUTO_FREE char *name = NULL;

		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &value) < 0)
			break;
		name = key.kind == FURCA_STR ? furca_view_dup(key.bytes) : NULL;
		if (!name || !legal_identifier(name))
			return refuse_name(err, name ? name : "?",
					   "is no name that an argument of a bash function can have");
		(void)furca_buf_printf(code, "%s=", name);
		add_quoted(code, &value);
	}
	return 0;
}

char *furca_bash_function_code(struct furca_view function, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf code = FURCA_BUF_INIT;
	struct furca_view name, source;
	struct furca_value args, item;

	if (!furca_map_text(function, "name", &name) || !furca_map_text(function, "source", &source) ||
	    !is_function_name(name)) {
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Use letters, digits, _ . : - in the name",
					 "the name of the stored function is none that bash can call");
		return NULL;
	}
	(void)furca_buf_printf(&code, "function %.*s {\n", (int)furca_view_size(name), (const char *)name.at);
	(void)furca_buf_append(&code, source.at, furca_view_size(source));
	(void)furca_buf_append_text(&code, "\n}\n");
	if (add_kwargs(&code, function, err) < 0)
		return NULL;
	(void)furca_buf_printf(&code, "\\%.*s ", (int)furca_view_size(name),
			       (const char *)name.at); /* quoted: no alias */
	if (furca_map_get(function, "args", &args) && args.kind == FURCA_ARRAY) {
		struct furca_view inside = furca_value_inside(&args);

		while (furca_value_next(&inside, &item) == 0)
			add_quoted(&code, &item);
	}
	(void)furca_buf_append(&code, "\n", 2);
	if (code.failed) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the stored function");
		return NULL;
	}
	return (char *)furca_buf_take(&code).data;
}
