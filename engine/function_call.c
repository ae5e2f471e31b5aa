/* Stored functions: calls, from clients and from lanes, and what becomes of their results on a lane. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "bridge/wire/advice.h"
#include "engine/function_private.h"
#include "engine/method.h"

#include "base/banned.h"

/* Keys of call_function that are passed on as execute's, but for the first ones, the function's own. */
static const char *const call_keys[] = {"name",	      "args",	      "kwargs",	   "frames",	       "state_mode",
					"session_id", "session_name", "timeout_s", "on_error",	       "retry",
					"limits",     "cwd",	      "env_vars",  "max_output_bytes", "stream",
					"isolation",  "within"};
#define OWN_KEYS 4

#define MAX_WHY ((size_t)4096)	/* bytes of a host's own words that are passed on */
#define MAX_SHOWN ((size_t)200) /* bytes of a value's text */

/* The packed positional and named arguments; empty views where they are not given. */
static int read_arguments(struct furca_view from, struct furca_view *ret_args, struct furca_view *ret_kwargs,
			  struct furca_err *err)
{
	struct furca_value value, key, item;

	*ret_args = *ret_kwargs = (struct furca_view){0};
	if (furca_map_get(from, "args", &value) && value.kind != FURCA_NIL) {
		if (value.kind != FURCA_ARRAY)
			return furca_refuse_value(err, "args", "a list");
		*ret_args = value.raw;
	}
	if (!furca_map_get(from, "kwargs", &value) || value.kind == FURCA_NIL)
		return 0;
	if (value.kind != FURCA_MAP)
		return furca_refuse_value(err, "kwargs", "a map");
	struct furca_view inside = furca_value_inside(&value);
	for (uint32_t i = 0; i < value.count; i++) {
		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &item) < 0 ||
		    key.kind != FURCA_STR)
			return furca_refuse_value(err, "kwargs", "a map with names of text");
	}
	*ret_kwargs = value.raw;
	return 0;
}

/* {name, source, capabilities, args, kwargs}, as HOST RUN has it. */
static void pack_function(struct furca_buf *out, const struct furca_function *function, struct furca_view args,
			  struct furca_view kwargs)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 5);
	furca_pack_text(&pk, "name");
	furca_pack_text(&pk, function->name);
	furca_pack_text(&pk, "source");
	furca_pack_text(&pk, function->source);
	furca_pack_text(&pk, "capabilities");
	furca_function_pack_capabilities(&pk, function);
	furca_pack_text(&pk, "args");
	if (furca_view_size(args))
		furca_pack_raw(&pk, args);
	else
		msgpack_pack_array(&pk, 0);
	furca_pack_text(&pk, "kwargs");
	if (furca_view_size(kwargs))
		furca_pack_raw(&pk, kwargs);
	else
		msgpack_pack_map(&pk, 0);
}

/* execute's arguments: those of `from` that are given and passed on, the function's language and environment, and `mode` if not NULL. */
static void pack_coordinate(struct furca_buf *out, const struct furca_function *function, struct furca_view from,
			    const char *mode)
{
	struct furca_value value;
	uint32_t count = 1 + (function->venv_id != 0) + (mode != NULL);
	msgpack_packer pk;

	for (size_t i = OWN_KEYS; i < FURCA_COUNT(call_keys); i++)
		count += furca_map_get(from, call_keys[i], &value) && value.kind != FURCA_NIL;
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, count);
	for (size_t i = OWN_KEYS; i < FURCA_COUNT(call_keys); i++) {
		if (!furca_map_get(from, call_keys[i], &value) || value.kind == FURCA_NIL)
			continue;
		furca_pack_text(&pk, call_keys[i]);
		furca_pack_raw(&pk, value.raw);
	}
	if (mode) {
		furca_pack_text(&pk, "state_mode");
		furca_pack_text(&pk, mode);
	}
	furca_pack_text(&pk, "language");
	furca_pack_text(&pk, function->language);
	if (function->venv_id) {
		furca_pack_text(&pk, "venv_id");
		msgpack_pack_uint64(&pk, function->venv_id);
	}
}

int furca_function_call_client(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
			       struct furca_view args, struct furca_fd *memory, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf coordinate = FURCA_BUF_INIT;
	FURCA_AUTO_BUF struct furca_buf packed = FURCA_BUF_INIT;
	struct furca_view name, positional, named, frames = {0};
	struct furca_function *function;
	int r = furca_method_known(args, call_keys, FURCA_COUNT(call_keys), err);

	if (r < 0 || (r = furca_method_text(args, "name", true, 4096, &name, err)) < 0 ||
	    (r = furca_method_text(args, "frames", false, 4096, &frames, err)) < 0 ||
	    (r = read_arguments(args, &positional, &named, err)) < 0)
		return r;
	function = furca_function_find(functions, name);
	if (!function)
		return furca_function_unknown(functions, name, err);
	pack_coordinate(&coordinate, function, args, NULL);
	pack_function(&packed, function, positional, named);
	if (coordinate.failed || packed.failed)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to call the function");
	functions->events.call(functions->events.user,
			       &(struct furca_function_call){.args = furca_buf_view(&coordinate),
							     .function = furca_buf_view(&packed),
							     .received = args,
							     .frames = frames,
							     .memory = memory,
							     .capabilities = function->capabilities,
							     .client = client,
							     .msgid = msgid});
	return 0;
}

/* What FAILED says. */
struct failure {
	const char *type, *suggestion;
	struct furca_view message, traceback, frames;
};

static void pack_optional(msgpack_packer *pk, const char *key, struct furca_view text)
{
	furca_pack_text(pk, key);
	if (furca_view_size(text))
		furca_pack_bytes(pk, text.at, furca_view_size(text));
	else
		msgpack_pack_nil(pk);
}

static void fail_lane(struct furca_functions *functions, furca_function_origin origin, const struct failure *failure)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 5);
	furca_pack_text(&pk, "type");
	furca_pack_text(&pk, failure->type);
	furca_pack_text(&pk, "message");
	furca_pack_bytes(&pk, failure->message.at, furca_view_size(failure->message));
	pack_optional(&pk, "traceback", failure->traceback);
	furca_pack_text(&pk, "suggestion");
	furca_pack_text_or_nil(&pk, failure->suggestion);
	pack_optional(&pk, "frames", failure->frames);
	functions->events.reply(functions->events.user, origin, FURCA_LANE_FAILED, furca_buf_view(&out), NULL);
}

static void refuse_lane(struct furca_functions *functions, furca_function_origin origin, const char *type,
			const struct furca_err *err)
{
	fail_lane(functions, origin,
		  &(struct failure){.type = type,
				    .message = furca_text_view(err->text),
				    .suggestion = furca_err_suggestion(err)});
}

static void give_value(struct furca_functions *functions, furca_function_origin origin, const struct furca_value *value,
		       struct furca_fd *memory)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "value");
	furca_pack_raw(&pk, value ? value->raw : (struct furca_view){0});
	functions->events.reply(functions->events.user, origin, FURCA_LANE_VALUE, furca_buf_view(&out), memory);
}

static void give_inline(struct furca_functions *functions, furca_function_origin origin,
			const struct furca_function *function)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "name");
	furca_pack_text(&pk, function->name);
	furca_pack_text(&pk, "source");
	furca_pack_text(&pk, function->source);
	furca_pack_text(&pk, "capabilities");
	furca_function_pack_capabilities(&pk, function);
	functions->events.reply(functions->events.user, origin, FURCA_LANE_INLINE, furca_buf_view(&out), NULL);
}

/* A call that has come on a lane. */
struct arrival {
	furca_function_origin origin;
	struct furca_view body;
	struct furca_fd *memory; /* of arrays among its arguments, or NULL */
};

/* Starts a lane's call at a coordinate. */
static int start(struct furca_functions *functions, const struct arrival *from, const struct furca_function *function,
		 struct furca_view coordinate, bool harmless, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf packed = FURCA_BUF_INIT;
	struct furca_function_pending *pending;
	struct furca_view positional, named, frames = {0};
	struct furca_value within = {0};
	int r = read_arguments(from->body, &positional, &named, err);

	if (r < 0)
		return r;
	pack_function(&packed, function, positional, named);
	pending = packed.failed ? NULL : calloc(1, sizeof(*pending));
	if (!pending)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to call the function");
	*pending = (struct furca_function_pending){
		.next = functions->pending, .origin = from->origin, .prints = !strcmp(function->language, "bash")};
	(void)snprintf(pending->name, sizeof(pending->name), "%s", function->name);
	functions->pending = pending;
	(void)furca_map_get(from->body, "allowed", &within);
	(void)furca_map_text(from->body, "frames", &frames);
	functions->events.call(functions->events.user,
			       &(struct furca_function_call){.args = coordinate,
							     .function = furca_buf_view(&packed),
							     .received = coordinate,
							     .frames = frames,
							     .memory = from->memory,
							     .capabilities = function->capabilities,
							     .within = within.raw,
							     .origin = from->origin,
							     .harmless = harmless});
	return 0;
}

/* The same language and environment as the caller's. */
static bool is_home(const struct furca_function *function, const struct furca_function_from *from)
{
	return !strcmp(function->language, from->language) && function->venv_id == from->venv_id;
}

/* Whether a session is named. */
static bool names_session(struct furca_view body)
{
	struct furca_value value;

	return (furca_map_get(body, "session_id", &value) && value.kind != FURCA_NIL) ||
	       (furca_map_get(body, "session_name", &value) && value.kind != FURCA_NIL);
}

/* The coordinate of a call on a lane, and who calls. False: nobody waits any more. */
static bool coordinate_of(struct furca_functions *functions, furca_function_origin origin,
			  const struct furca_function *function, struct furca_view body, struct furca_view mode,
			  struct furca_buf *out, struct furca_function_from *ret)
{
	/* As execute, but that no process other than the caller's is stateful unasked: its session would often wait for this call. */
	bool own = !strcmp(function->language, "python") && !function->venv_id;
	const char *chosen = mode.at ? NULL : own || names_session(body) ? "stateful" : "stateless";

	pack_coordinate(out, function, body, chosen);
	if (!functions->events.from(functions->events.user, origin, furca_buf_view(out), ret))
		return false;
	if (!mode.at && own && !names_session(body) && !is_home(function, ret)) {
		furca_buf_clear(out);
		pack_coordinate(out, function, body, "stateless");
	}
	if (furca_view_is(mode, "read_only") && !names_session(body) && is_home(function, ret) && ret->has_session) {
		/* A copy of the caller's own session, as it was committed last. */
		FURCA_AUTO_BUF struct furca_buf session = FURCA_BUF_INIT;
		msgpack_packer pk;

		furca_packer(&pk, &session);
		msgpack_pack_map(&pk, 1);
		furca_pack_text(&pk, "session_id");
		msgpack_pack_uint64(&pk, ret->session_id);
		furca_buf_clear(out);
		pack_coordinate(out, function, furca_buf_view(&session), "read_only");
	}
	return true;
}

void furca_functions_lane(struct furca_functions *functions, furca_function_origin origin, struct furca_view body,
			  struct furca_fd *memory)
{
	const struct arrival arrival = {origin, body, memory};
	FURCA_AUTO_BUF struct furca_buf coordinate = FURCA_BUF_INIT;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_function_from from;
	struct furca_view name, mode = {0};

	if (furca_method_text(body, "name", true, 4096, &name, &err) < 0 ||
	    furca_method_text(body, "state_mode", false, 64, &mode, &err) < 0) {
		refuse_lane(functions, origin, "ValueError", &err);
		return;
	}
	struct furca_function *function = furca_function_find(functions, name);
	if (!function) {
		(void)furca_function_unknown(functions, name, &err);
		refuse_lane(functions, origin, "LookupError", &err);
		return;
	}
	if (!coordinate_of(functions, origin, function, body, mode, &coordinate, &from))
		return;
	(void)furca_map_text(furca_buf_view(&coordinate), "state_mode", &mode);
	bool stateful = furca_view_is(mode, "stateful");
	if (stateful && is_home(function, &from) && (!names_session(body) || from.own_session)) {
		give_inline(functions, origin, function);
	} else if (stateful && from.read_only) {
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0,
					 "Call it with .read_only() or .stateless(), or from a stateful call.",
					 "A read-only call cannot run the stored function '%s' in a session",
					 function->name);
		refuse_lane(functions, origin, "PermissionError", &err);
	} else if (coordinate.failed ||
		   start(functions, &arrival, function, furca_buf_view(&coordinate), from.read_only, &err) < 0) {
		refuse_lane(functions, origin, "ValueError", &err);
	}
}

/* A result map that is not ok, as an exception in the caller; `done` is what the host said of it. */
static void give_failure(struct furca_functions *functions, furca_function_origin origin, struct furca_view result,
			 struct furca_view done)
{
	static const struct {
		const char *word, *type;
	} type_of[] = {{"timeout", "TimeoutError"},
		       {"validation", "ValueError"},
		       {"isolation", "PermissionError"},
		       {"interrupted", "KeyboardInterrupt"}};
	struct furca_view error = {0}, word = {0}, suggestion = {0}, name = {0};
	FURCA_AUTO_FREE char *advice = NULL, *type = NULL;
	struct failure failure = {.type = "RuntimeError"};
	struct furca_value raised;
	bool own;

	(void)furca_map_text(result, "error", &error);
	(void)furca_map_text(result, "error_type", &word);
	(void)furca_map_text(result, "suggestion", &suggestion);
	failure.message = error;
	own = furca_view_is(word, "exception") && furca_map_get(done, "raised", &raised) && raised.kind == FURCA_MAP &&
	      furca_map_text(raised.raw, "type", &name) && furca_map_text(raised.raw, "message", &failure.message);
	if (own && (type = furca_view_dup(name)))
		failure.type = type;
	if (own) {
		(void)furca_map_text(raised.raw, "suggestion", &suggestion);
		(void)furca_map_text(raised.raw, "frames", &failure.frames);
		failure.traceback = error;
	}
	if (furca_view_size(suggestion))
		advice = furca_view_dup(suggestion);
	for (size_t i = 0; i < FURCA_COUNT(type_of); i++)
		if (furca_view_is(word, type_of[i].word))
			failure.type = type_of[i].type;
	failure.suggestion = advice;
	fail_lane(functions, origin, &failure);
}

/* What a bash function printed, without the newlines at its end; a status other than 0 is a failure. */
static void give_printed(struct furca_functions *functions, const struct furca_function_pending *call,
			 struct furca_view result)
{
	struct furca_view printed = {0}, complaint = {0};
	struct furca_value value;
	int64_t status = 0;

	(void)furca_map_text(result, "stdout", &printed);
	(void)furca_map_text(result, "stderr", &complaint);
	(void)furca_map_int(result, "exit_code", &status);
	while (printed.end > printed.at && printed.end[-1] == '\n')
		printed.end--;
	while (complaint.end > complaint.at && complaint.end[-1] == '\n')
		complaint.end--;
	if (status) {
		FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

		(void)furca_buf_printf(&text, "the function '%s' ended with status %lld", call->name,
				       (long long)status);
		if (furca_view_size(complaint))
			(void)furca_buf_printf(&text, ": %.*s", (int)FURCA_MIN(furca_view_size(complaint), 4096),
					       (const char *)complaint.at);
		fail_lane(functions, call->origin,
			  &(struct failure){.type = "RuntimeError", .message = furca_buf_view(&text)});
		return;
	}
	FURCA_AUTO_BUF struct furca_buf packed = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &packed);
	furca_pack_bytes(&pk, printed.at, furca_view_size(printed));
	give_value(functions, call->origin, furca_value_of(furca_buf_view(&packed), &value) == 0 ? &value : NULL, NULL);
}

/* The value has no form in which it could be sent; the host says why where it was asked for one that the caller can read. */
static void give_no_form(struct furca_functions *functions, const struct furca_function_pending *call,
			 struct furca_view done, struct furca_view text)
{
	FURCA_AUTO_BUF struct furca_buf message = FURCA_BUF_INIT;
	struct failure failure = {.type = "TypeError"};
	struct furca_view why;

	(void)furca_buf_printf(&message,
			       "the function '%s' returned what cannot cross between processes: ", call->name);
	if (furca_map_text(done, "unsent", &why)) {
		(void)furca_buf_append(&message, why.at, FURCA_MIN(furca_view_size(why), MAX_WHY));
	} else {
		(void)furca_buf_append(&message, text.at, FURCA_MIN(furca_view_size(text), MAX_SHOWN));
		failure.suggestion = "Return numbers, text, bytes, lists or maps of them, of at most 1 MiB.";
	}
	failure.message = furca_buf_view(&message);
	fail_lane(functions, call->origin, &failure);
}

void furca_functions_finished(struct furca_functions *functions, furca_function_origin origin, struct furca_view result,
			      struct furca_view done, struct furca_fd *memory)
{
	struct furca_function_pending **link = &functions->pending;
	struct furca_value value = {.kind = FURCA_NIL};
	struct furca_view text;
	bool ok = false;

	while (*link && (*link)->origin != origin)
		link = &(*link)->next;
	if (!*link)
		return;
	FURCA_AUTO_FREE struct furca_function_pending *call = *link;
	*link = call->next;
	(void)furca_map_bool(result, "ok", &ok);
	if (!ok) {
		give_failure(functions, origin, result, done);
	} else if (call->prints) {
		give_printed(functions, call, result);
	} else if (furca_map_get(result, "result", &value) && value.kind != FURCA_NIL) {
		give_value(functions, origin, &value, memory);
	} else if (furca_map_text(result, "result_text", &text)) {
		give_no_form(functions, call, done, text);
	} else {
		give_value(functions, origin, NULL, NULL);
	}
}
