#include "engine/function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/log.h"
#include "bridge/wire/nearest.h"
#include "engine/function_private.h"
#include "langs/lang.h"

#include "base/banned.h"

struct furca_function *furca_function_find(const struct furca_functions *functions, struct furca_view name)
{
	struct furca_function *function = functions->first;

	while (function && !furca_view_is(name, function->name))
		function = function->next;
	return function;
}

const char *furca_functions_in(const struct furca_functions *functions, uint64_t venv_id)
{
	const struct furca_function *function = functions->first;

	while (function && function->venv_id != venv_id)
		function = function->next;
	return function ? function->name : NULL;
}

const char *furca_function_nearest(const struct furca_functions *functions, struct furca_view name)
{
	FURCA_AUTO_FREE const char **words = calloc(functions->count + 1, sizeof(*words));
	size_t n = 0;

	if (!words || !functions->first)
		return NULL;
	for (struct furca_function *function = functions->first; function; function = function->next)
		words[n++] = function->name;
	return furca_nearest((const char *)name.at, furca_view_size(name), words, n);
}

int furca_function_unknown(const struct furca_functions *functions, struct furca_view name, struct furca_err *err)
{
	const char *near = furca_function_nearest(functions, name);
	char suggestion[192];

	if (near)
		(void)snprintf(suggestion, sizeof(suggestion),
			       "Use name='%s', if that was meant; list_functions shows what is stored.", near);
	else
		(void)snprintf(
			suggestion, sizeof(suggestion),
			"Call add_function with name='f' and language='python' and source='def f(): return 1' first and use name='f'; none is "
			"stored now.");
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, suggestion, "There is no stored function '%.*s'.",
				  (int)FURCA_MIN(furca_view_size(name), 128), (const char *)name.at);
}

void furca_function_pack_capabilities(msgpack_packer *pk, const struct furca_function *function)
{
	json_t *allowed = function->capabilities ? json_loads(function->capabilities, 0, NULL) : NULL, *name;
	size_t i;

	if (allowed)
		msgpack_pack_array(pk, json_array_size(allowed));
	else
		msgpack_pack_nil(pk);
	json_array_foreach (allowed, i, name)
		furca_pack_text(pk, json_string_value(name));
	json_decref(allowed);
}

void furca_function_free(struct furca_function *function)
{
	if (!function)
		return;
	free(function->name);
	free(function->language);
	free(function->source);
	free(function->capabilities);
	free(function->doc);
	free(function);
}

void furca_function_drop(struct furca_functions *functions, struct furca_function *function)
{
	struct furca_function **link = &functions->first;

	while (*link && *link != function)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = function->next;
	functions->count--;
	furca_function_free(function);
}

bool furca_function_keep(struct furca_functions *functions, struct furca_function *function)
{
	struct furca_function **link = &functions->first, *old;

	while (*link && strcmp((*link)->name, function->name) < 0)
		link = &(*link)->next;
	old = *link && !strcmp((*link)->name, function->name) ? *link : NULL;
	function->next = old ? old->next : *link;
	*link = function;
	functions->count += !old;
	furca_function_free(old);
	return old != NULL;
}

void furca_function_check_free(struct furca_function_check *check)
{
	struct furca_function_check **link = &check->functions->checks;

	while (*link && *link != check)
		link = &(*link)->next;
	if (*link)
		*link = check->next;
	furca_function_free(check->made);
	furca_buf_done(&check->received);
	free(check);
}

static void functions_free(struct furca_functions *functions)
{
	while (functions->first)
		furca_function_drop(functions, functions->first);
	while (functions->pending) {
		struct furca_function_pending *pending = functions->pending;

		functions->pending = pending->next;
		free(pending);
	}
	furca_loop_drop(functions->loop, &functions->ending);
	free(functions->workdir);
	free(functions->tool_path);
	free(functions);
}

static int load(void *user, const struct furca_store_function *row)
{
	struct furca_function *function = calloc(1, sizeof(*function));

	if (!function)
		return -ENOMEM;
	*function = (struct furca_function){
		.name = strdup(row->name),
		.language = strdup(row->language),
		.source = strdup(row->source),
		.venv_id = row->venv_id,
		.capabilities = row->capabilities ? strdup(row->capabilities) : NULL,
		.doc = row->doc ? strdup(row->doc) : NULL,
		.created_at = row->created_at,
		.changed_at = row->changed_at,
	};
	if (!function->name || !function->language || !function->source) {
		furca_function_free(function);
		return -ENOMEM;
	}
	(void)furca_function_keep(user, function);
	return 0;
}

int furca_functions_new(struct furca_loop *loop, struct furca_store *store, struct furca_envs *envs,
			const struct furca_envs_config *config, const struct furca_tool_spawner *spawner,
			const struct furca_functions_events *events, struct furca_functions **ret,
			struct furca_err *err)
{
	struct furca_functions *functions = calloc(1, sizeof(*functions));
	int r = 0;

	if (!functions)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for stored functions");
	*functions = (struct furca_functions){.loop = loop,
					      .store = store,
					      .envs = envs,
					      .spawner = *spawner,
					      .events = *events,
					      .workdir = strdup(config->workdir)};
	if (asprintf(&functions->tool_path, "%s/functool.py", furca_lang_libexec()) < 0)
		functions->tool_path = NULL;
	if (!functions->workdir || !functions->tool_path)
		r = furca_fail(err, FURCA_E_MEMORY, 0, "no memory for stored functions");
	if (r == 0)
		r = furca_store_function_each(store, load, functions, err);
	if (r < 0) {
		functions_free(functions);
		return r;
	}
	*ret = functions;
	return 0;
}

static void finish(void *owner)
{
	struct furca_functions *functions = owner;
	void (*stopped)(void *user) = functions->stopped;
	void *user = functions->stopped_user;

	functions->ending = FURCA_OP_NONE;
	functions_free(functions);
	stopped(user);
}

void furca_functions_maybe_stopped(struct furca_functions *functions)
{
	if (!functions->stopping || functions->checks || functions->ending)
		return;
	if (furca_loop_defer(functions->loop, finish, functions, &functions->ending) < 0)
		furca_log(FURCA_LOG_ALERT, "engine", "no slot to end the stored functions");
}

void furca_functions_stop(struct furca_functions *functions, void (*done)(void *user), void *user)
{
	functions->stopping = true;
	functions->stopped = done;
	functions->stopped_user = user;
	for (struct furca_function_check *check = functions->checks; check; check = check->next)
		furca_tool_cancel(check->tool);
	furca_functions_maybe_stopped(functions);
}

void furca_functions_client_gone(struct furca_functions *functions, furca_client_id client)
{
	for (struct furca_function_check *check = functions->checks; check; check = check->next)
		check->dropped |= check->client == client;
}

int furca_functions_describe(struct furca_functions *functions, struct furca_buf *out)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_array(&pk, functions->count);
	for (struct furca_function *function = functions->first; function; function = function->next) {
		msgpack_pack_map(&pk, 3);
		furca_pack_text(&pk, "name");
		furca_pack_text(&pk, function->name);
		furca_pack_text(&pk, "language");
		furca_pack_text(&pk, function->language);
		furca_pack_text(&pk, "doc");
		furca_pack_text_or_nil(&pk, function->doc);
	}
	return out->failed;
}

const char *furca_functions_user_of(const struct furca_functions *functions, uint64_t venv_id)
{
	for (struct furca_function *function = functions->first; function; function = function->next)
		if (function->venv_id == venv_id)
			return function->name;
	return NULL;
}
