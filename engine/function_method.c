/* Stored functions: add_function, list_functions, remove_function. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/advice.h"
#include "engine/function_private.h"
#include "engine/method.h"
#include "langs/lang.h"

#include "base/banned.h"

static void answer(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
		   const struct furca_buf *out)
{
	functions->events.answer(functions->events.user, client, msgid, furca_buf_view(out));
}

static void refuse(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
		   const struct furca_err *err, struct furca_view received)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

	furca_method_refuse(&out, err, NULL, received);
	answer(functions, client, msgid, &out);
}

/* Words that would not do as functions.NAME in Python, or as a function in bash. */
static bool is_reserved(struct furca_view name)
{
	static const char *const word[] = {
		"False",    "None",   "True",  "and",  "as",	 "assert",   "async",	"await", "break", "class",
		"continue", "def",    "del",   "elif", "else",	 "except",   "finally", "for",	 "from",  "global",
		"if",	    "import", "in",    "is",   "lambda", "nonlocal", "not",	"or",	 "pass",  "raise",
		"return",   "try",    "while", "with", "yield",	 "case",     "do",	"done",	 "esac",  "fi",
		"function", "select", "then",  "time", "until",	 "coproc",
	};

	for (size_t i = 0; i < FURCA_COUNT(word); i++)
		if (furca_view_is(name, word[i]))
			return true;
	return false;
}

static int check_name(struct furca_view name, struct furca_err *err)
{
	size_t n = furca_view_size(name);
	bool ok = n > 0 && n <= FURCA_MAX_NAME && isalpha(name.at[0]);

	for (size_t i = 0; i < n && ok; i++)
		ok = isalnum(name.at[i]) || name.at[i] == '_';
	if (!ok)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Give an identifier, for example name='f': a letter, then letters, digits and underscores, 64 characters at most.",
			"'%.*s' cannot be the name of a function.", (int)FURCA_MIN(n, 80), (const char *)name.at);
	if (is_reserved(name))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Give another name, for example name='f'.",
					  "'%.*s' is a word of the language.", (int)n, (const char *)name.at);
	return 0;
}

/* The capabilities argument, a list of text, as JSON; *ret NULL where it is not given. */
static int read_capabilities(struct furca_view args, char **ret, struct furca_err *err)
{
	struct furca_value list, item;

	*ret = NULL;
	if (!furca_map_get(args, "capabilities", &list) || list.kind == FURCA_NIL)
		return 0;
	if (list.kind != FURCA_ARRAY)
		return furca_refuse_value(err, "capabilities", "a list of names");
	json_t *names = json_array();
	struct furca_view inside = furca_value_inside(&list);
	bool ok = names != NULL;
	for (uint32_t i = 0; i < list.count && ok; i++) {
		ok = furca_value_next(&inside, &item) == 0 && item.kind == FURCA_STR;
		ok = ok && json_array_append_new(
				   names, json_stringn((const char *)item.bytes.at, furca_view_size(item.bytes))) == 0;
	}
	*ret = ok ? json_dumps(names, JSON_COMPACT) : NULL;
	json_decref(names);
	return *ret ? 0 : furca_refuse_value(err, "capabilities", "a list of names");
}

static int check_language(struct furca_view language, struct furca_err *err)
{
	const char *words[16];
	struct furca_value given = {.kind = FURCA_STR, .bytes = language};
	size_t n = 0;

	if (furca_lang_find((const char *)language.at, furca_view_size(language)))
		return 0;
	for (; n < FURCA_COUNT(words) && furca_lang_at(n); n++)
		words[n] = furca_lang_at(n)->name;
	return furca_refuse_word(err, "language", &given, words, n, true);
}

static int refuse_full(const struct furca_functions *functions, struct furca_err *err)
{
	char advice[256];

	(void)snprintf(
		advice, sizeof(advice),
		"Remove functions that are not needed (list_functions shows them), for example call remove_function with name='%s' first.",
		functions->first->name);
	return furca_fail_suggest(err, FURCA_E_LIMIT, 0, advice, "%u functions are stored already.",
				  FURCA_FUNCTION_MAX);
}

/* The function that the arguments describe. 0 and *ret, or -errno. */
static int read_function(struct furca_functions *functions, struct furca_view args, struct furca_function **ret,
			 struct furca_err *err)
{
	static const char *const known[] = {"name", "language", "source", "venv_id", "capabilities", "doc"};
	struct furca_view name, language, source, doc = {0};
	FURCA_AUTO_FREE char *capabilities = NULL;
	uint64_t venv = 0;
	int given, r = furca_method_known(args, known, FURCA_COUNT(known), err);

	if (r < 0 || (r = furca_method_text(args, "language", true, 64, &language, err)) < 0 ||
	    (r = check_language(language, err)) < 0 ||
	    (r = furca_method_text(args, "name", true, 4096, &name, err)) < 0 || (r = check_name(name, err)) < 0 ||
	    (r = furca_method_text(args, "source", true, FURCA_MAX_CODE, &source, err)) < 0 ||
	    (r = furca_method_text(args, "doc", false, FURCA_FUNCTION_MAX_DOC, &doc, err)) < 0 ||
	    (r = read_capabilities(args, &capabilities, err)) < 0 ||
	    (r = given = furca_method_uint(args, "venv_id", false, &venv, err)) < 0)
		return r;
	if (given && !furca_env_known(functions->envs, venv))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Remove venv_id, or use one that create_env gave or list_envs shows.",
					  "There is no environment with venv_id=%llu.", (unsigned long long)venv);
	if (functions->count >= FURCA_FUNCTION_MAX && !furca_function_find(functions, name))
		return refuse_full(functions, err);
	struct furca_function *made = calloc(1, sizeof(*made));
	if (!made)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the function");
	*made = (struct furca_function){.name = furca_view_dup(name),
					.language = furca_view_dup(language),
					.source = furca_view_dup(source),
					.capabilities = FURCA_TAKE(capabilities),
					.doc = doc.at ? furca_view_dup(doc) : NULL,
					.venv_id = venv};
	*ret = made;
	if (made->name && made->language && made->source && (!doc.at || made->doc))
		return 0;
	furca_function_free(made);
	return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the function");
}

/* Keeps the checked function; answers. */
static void keep(struct furca_function_check *check)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_functions *functions = check->functions;
	struct furca_function *made = check->made;
	struct furca_view name = {(const uint8_t *)made->name, (const uint8_t *)made->name + strlen(made->name)};
	struct furca_function *old = furca_function_find(functions, name);
	struct furca_err err = FURCA_ERR_INIT;
	msgpack_packer pk;
	bool replaced;

	made->changed_at = furca_wall_s();
	made->created_at = old ? old->created_at : made->changed_at;
	struct furca_store_function row = {
		.name = made->name,
		.language = made->language,
		.source = made->source,
		.venv_id = made->venv_id,
		.capabilities = made->capabilities,
		.doc = made->doc,
		.created_at = made->created_at,
		.changed_at = made->changed_at,
	};
	if (furca_store_function_put(functions->store, &row, &err) < 0) {
		refuse(functions, check->client, check->msgid, &err, furca_buf_view(&check->received));
		return;
	}
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "ok");
	msgpack_pack_true(&pk);
	furca_pack_text(&pk, "name");
	furca_pack_text(&pk, made->name);
	furca_pack_text(&pk, "replaced");
	replaced = furca_function_keep(functions, FURCA_TAKE(check->made));
	furca_pack_bool(&pk, replaced);
	if (!check->dropped)
		answer(functions, check->client, check->msgid, &out);
}

static void on_checked(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	struct furca_function_check *check = user;
	struct furca_functions *functions = check->functions;
	const char *doc = json_string_value(json_object_get(result, "doc"));

	if (result && doc && !check->made->doc)
		check->made->doc = strdup(doc);
	if (result)
		keep(check);
	else if (!check->dropped)
		refuse(functions, check->client, check->msgid, err, furca_buf_view(&check->received));
	furca_function_check_free(check);
	furca_functions_maybe_stopped(functions);
}

/* Has the source looked at by the interpreter that is to run it. 0 or -errno. */
static int start_check(struct furca_function_check *check, struct furca_err *err)
{
	struct furca_functions *functions = check->functions;

	assert(check->made);
	const char *interpreter =
		check->made->venv_id ? furca_env_interpreter(functions->envs, check->made->venv_id) : NULL;
	char *argv[] = {(char *)(interpreter ? interpreter : FURCA_PYTHON),
			(char *)"-I",
			(char *)"-B",
			(char *)"-S",
			functions->tool_path,
			NULL};
	json_t *request = json_pack("{s:s, s:s, s:s}", "language", check->made->language, "name", check->made->name,
				    "source", check->made->source);
	FURCA_AUTO_FREE char *line = json_dumps(request, JSON_COMPACT);

	json_decref(request);
	if (!line)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to check the function");
	return furca_tool_start(
		functions->loop, &functions->spawner,
		&(struct furca_tool_request){
			.argv = argv, .cwd = functions->workdir, .request = line, .user = check, .done = on_checked},
		&check->tool, err);
}

static int add(struct furca_functions *functions, furca_client_id client, uint64_t msgid, struct furca_view args,
	       struct furca_err *err)
{
	struct furca_function *made = NULL;
	int r = read_function(functions, args, &made, err);

	if (r < 0 || !made)
		return r < 0 ? r : -ENOMEM;
	struct furca_function_check *check = calloc(1, sizeof(*check));
	if (!check) {
		furca_function_free(made);
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to check the function");
	}
	*check = (struct furca_function_check){
		.functions = functions, .client = client, .msgid = msgid, .made = made, .next = functions->checks};
	functions->checks = check;
	/* What is shown of a refused source is what the engine would show of code: not all of a megabyte. */
	if (furca_view_size(args) <= 65536)
		(void)furca_buf_append(&check->received, args.at, furca_view_size(args));
	r = start_check(check, err);
	if (r < 0)
		furca_function_check_free(check);
	return r;
}

static void pack_function(msgpack_packer *pk, const struct furca_function *function)
{
	msgpack_pack_map(pk, 8);
	furca_pack_text(pk, "name");
	furca_pack_text(pk, function->name);
	furca_pack_text(pk, "language");
	furca_pack_text(pk, function->language);
	furca_pack_text(pk, "source");
	furca_pack_text(pk, function->source);
	furca_pack_text(pk, "venv_id");
	if (function->venv_id)
		msgpack_pack_uint64(pk, function->venv_id);
	else
		msgpack_pack_nil(pk);
	furca_pack_text(pk, "capabilities");
	furca_function_pack_capabilities(pk, function);
	furca_pack_text(pk, "doc");
	furca_pack_text_or_nil(pk, function->doc);
	furca_pack_text(pk, "created_at");
	msgpack_pack_double(pk, function->created_at);
	furca_pack_text(pk, "changed_at");
	msgpack_pack_double(pk, function->changed_at);
}

static int list(struct furca_functions *functions, furca_client_id client, uint64_t msgid, struct furca_view args,
		struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;
	int r = furca_method_known(args, NULL, 0, err);

	if (r < 0)
		return r;
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "ok");
	msgpack_pack_true(&pk);
	furca_pack_text(&pk, "functions");
	msgpack_pack_array(&pk, functions->count);
	for (struct furca_function *function = functions->first; function; function = function->next)
		pack_function(&pk, function);
	if (out.failed)
		return furca_fail(err, FURCA_E_MEMORY, 0, "the list of functions is too large");
	answer(functions, client, msgid, &out);
	return 0;
}

static int remove_function(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
			   struct furca_view args, struct furca_err *err)
{
	static const char *const known[] = {"name"};
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_function *function;
	struct furca_view name;
	msgpack_packer pk;
	int r = furca_method_known(args, known, FURCA_COUNT(known), err);

	if (r < 0 || (r = furca_method_text(args, "name", true, 4096, &name, err)) < 0)
		return r;
	function = furca_function_find(functions, name);
	if (!function)
		return furca_function_unknown(functions, name, err);
	r = furca_store_function_remove(functions->store, function->name, err);
	if (r < 0)
		return r;
	furca_function_drop(functions, function);
	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "ok");
	msgpack_pack_true(&pk);
	furca_pack_text(&pk, "removed");
	msgpack_pack_true(&pk);
	answer(functions, client, msgid, &out);
	return 0;
}

void furca_functions_request(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
			     enum furca_method method, struct furca_view args, struct furca_fd *memory)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r = -EINVAL;

	if (functions->stopping)
		(void)furca_fail(&err, FURCA_E_BUSY, 0, "the engine is stopping");
	else if (method == FURCA_METHOD_add_function)
		r = add(functions, client, msgid, args, &err);
	else if (method == FURCA_METHOD_list_functions)
		r = list(functions, client, msgid, args, &err);
	else if (method == FURCA_METHOD_remove_function)
		r = remove_function(functions, client, msgid, args, &err);
	else
		r = furca_function_call_client(functions, client, msgid, args, memory, &err);
	if (r < 0 && method == FURCA_METHOD_call_function) {
		FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

		furca_method_refuse_call(&out, &err, args);
		answer(functions, client, msgid, &out);
	} else if (r < 0) {
		refuse(functions, client, msgid, &err, furca_view_size(args) <= 65536 ? args : (struct furca_view){0});
	}
}
