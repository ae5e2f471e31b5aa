#include "engine/call.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/capability.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/function.h"
#include "engine/lost.h"
#include "engine/nested.h"
#include "engine/operation.h"
#include "engine/session.h"
#include "engine/stateless.h"

#include "base/banned.h"

void furca_call_fail(struct furca_call *call, const char *error_type, const char *suggestion, const char *format, ...)
{
	char text[2048];
	va_list args;

	if (call->error_type)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	call->error_type = error_type;
	(void)furca_buf_append_text(&call->error, text);
	if (suggestion && call->suggestion.len)
		(void)furca_buf_append_text(&call->suggestion, " ");
	if (suggestion)
		(void)furca_buf_append_text(&call->suggestion, suggestion);
}

void furca_call_fail_err(struct furca_call *call, const struct furca_err *err)
{
	char text[FURCA_ERR_TEXT_MAX + 128];

	furca_call_fail(call, furca_err_type(err->code), furca_err_suggestion(err), "%s",
			furca_err_describe(err, text, sizeof(text)));
}

void furca_call_lines(struct furca_call *call, const char *lines)
{
	(void)furca_buf_append_text(&call->error, "\n");
	(void)furca_buf_append_text(&call->error, lines);
}

void furca_call_add(struct furca_call *call, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (call->error.len)
		(void)furca_buf_append_text(&call->error, " ");
	(void)furca_buf_append_text(&call->error, text);
}

struct furca_buf *furca_call_suggest(struct furca_call *call)
{
	if (call->suggestion.len)
		(void)furca_buf_append_text(&call->suggestion, " ");
	return &call->suggestion;
}

static void call_free(struct furca_call *call)
{
	struct furca_engine *engine = call->engine;

	call->phase = FURCA_CALL_ENDED;
	furca_loop_drop(engine->loop, &call->deadline_op);
	furca_loop_drop(engine->loop, &call->grace_op);
	furca_loop_drop(engine->loop, &call->nested_op);
	furca_launch_end(call->launch);
	furca_read_forget(call);
	if (call->host && !call->host->dropped && call->host->lanes)
		furca_lanes_serve(call->host->lanes, NULL, false, (struct furca_view){NULL, NULL});
	if (furca_retire_may(call))
		furca_retire(call);
	else if (call->own_host)
		furca_host_drop(call->host);
	furca_pipes_free(call->pipes);
	for (int i = 0; i < 2; i++)
		if (call->output[i].max)
			furca_output_done(&call->output[i]);
	struct furca_buf *const bufs[] = {&call->args,	    &call->function, &call->received,	&call->allowed,
					  &call->frames,    &call->word,     &call->background, &call->done,
					  &call->isolation, &call->files,    &call->error,	&call->suggestion,
					  &call->signalled};
	for (size_t i = 0; i < FURCA_COUNT(bufs); i++)
		furca_buf_done(bufs[i]);
	furca_fd_done(&call->memory);
	furca_fd_done(&call->result_memory);
	*call->prev = call->next;
	if (call->next)
		call->next->prev = call->prev;
	free(call);
}

/* What a stored function wrote belongs to the call whose code called it; a bash function's output is its value already. */
static void pass_output(struct furca_call *call)
{
	struct furca_call *caller = NULL;

	if (!furca_capability_origin(call->engine, call->origin, &caller) || !caller || !caller->pipes)
		return;
	for (int i = 0; i < 2; i++) {
		FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

		if (!call->output[i].max ||
		    (i == 0 && call->plan.lang && !call->plan.lang->top_level_value && !call->error_type))
			continue;
		(void)furca_output_text(&call->output[i], &text);
		furca_pipes_put(caller->pipes, i, text.data, text.len);
	}
}

/* Sends the packed answer to where the request came from. */
static void deliver(struct furca_call *call, const struct furca_buf *value)
{
	struct furca_engine *engine = call->engine;

	if (call->origin) {
		pass_output(call);
		furca_functions_finished(engine->functions, call->origin, furca_buf_view(value),
					 furca_buf_view(&call->done), &call->result_memory);
	}
	if (!call->origin && !call->client_gone)
		furca_engine_answer_with(engine, call->client, call->msgid, value, &call->result_memory);
}

void furca_call_finish(struct furca_call *call)
{
	FURCA_AUTO_BUF struct furca_buf result = FURCA_BUF_INIT;

	if (!call->state)
		call->state = "unchanged";
	if (call->error_type)
		call->engine->stats.failed++;
	furca_kept_number(call->engine, call);
	furca_result_pack(call, &result);
	/* What is thrown away ends before the answer is sent, if what it does could be seen. */
	if (call->own_host && call->host && !furca_host_lingers(call->host))
		furca_host_kill_all(call->host);
	deliver(call, &result);
	furca_kept_add(call->engine, call);
	call_free(call);
}

void furca_call_answer(struct furca_call *call, const struct furca_buf *value)
{
	deliver(call, value);
	call_free(call);
}

void furca_call_refuse(struct furca_call *call, const struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf result = FURCA_BUF_INIT;
	bool execute = !furca_call_is_operation(call);

	call->engine->stats.refused++;
	furca_result_refusal(call->received.len ? furca_buf_view(&call->received) : furca_buf_view(&call->args),
			     &call->plan, err, execute, &result);
	deliver(call, &result);
	call_free(call);
}

static void on_deadline(void *owner)
{
	struct furca_call *call = owner;

	call->deadline_op = FURCA_OP_NONE;
	furca_call_stop(call, FURCA_STOP_TIMEOUT);
}

bool furca_call_is_operation(const struct furca_call *call)
{
	return call->method != FURCA_METHOD_execute && call->method != FURCA_METHOD_call_function;
}

void furca_call_bound(struct furca_call *call, int64_t us)
{
	struct furca_engine *engine = call->engine;

	furca_loop_drop(engine->loop, &call->deadline_op);
	(void)furca_loop_timer(engine->loop, furca_now_us() + FURCA_MIN(us, engine->default_timeout_us), on_deadline,
			       call, &call->deadline_op);
}

static struct furca_call *call_new(struct furca_engine *engine, const struct furca_call_request *request)
{
	struct furca_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->engine = engine;
	call->method = request->method;
	call->client = request->client;
	call->msgid = request->msgid;
	call->origin = request->origin;
	call->asked_us = furca_now_us();
	call->harmless = request->harmless;
	call->depth = request->depth;
	(void)furca_buf_append(&call->args, request->args.at, furca_view_size(request->args));
	(void)furca_buf_append(&call->function, request->function.at, furca_view_size(request->function));
	(void)furca_buf_append(&call->received, request->received.at, furca_view_size(request->received));
	(void)furca_buf_append(&call->frames, request->frames.at, furca_view_size(request->frames));
	call->memory = request->memory ? furca_fd_take(request->memory) : FURCA_FD_NONE;
	call->result_memory = FURCA_FD_NONE;
	call->prev = &engine->calls;
	call->next = engine->calls;
	if (call->next)
		call->next->prev = &call->next;
	engine->calls = call;
	return call;
}

/* The names of a packed array as a JSON list; NULL: it is none. */
static json_t *list_of(struct furca_view packed)
{
	struct furca_value array, item;
	json_t *list = json_array();

	if (furca_value_of(packed, &array) < 0 || array.kind != FURCA_ARRAY) {
		json_decref(list);
		return NULL;
	}
	packed = furca_value_inside(&array);
	while (furca_value_next(&packed, &item) == 0)
		if (item.kind == FURCA_STR)
			(void)json_array_append_new(
				list, json_stringn((const char *)item.bytes.at, furca_view_size(item.bytes)));
	return list;
}

static bool allows_all(const struct furca_view within[2], const json_t *name)
{
	const uint8_t *at = (const uint8_t *)json_string_value(name);
	struct furca_view view = {at, at ? at + json_string_length(name) : at};

	return at && furca_capability_allows(within[0], view) && furca_capability_allows(within[1], view);
}

/* What it may call, as a packed array that the lanes compare with: the names that stand in its own list and in its callers'. */
static int pack_allowed(struct furca_call *call, const struct furca_call_request *request)
{
	const struct furca_view *within = request->within;
	struct furca_view first = furca_view_size(within[0]) ? within[0] : within[1];
	json_t *list, *name;
	msgpack_packer pk;
	size_t i;

	if (!request->capabilities && furca_view_size(first) == 0)
		return 0;
	list = request->capabilities ? json_loads(request->capabilities, 0, NULL) : list_of(first);
	if (!json_is_array(list)) {
		json_decref(list);
		return -EINVAL;
	}
	for (i = json_array_size(list); i-- > 0;)
		if (!allows_all(within, json_array_get(list, i)))
			(void)json_array_remove(list, i);
	furca_packer(&pk, &call->allowed);
	msgpack_pack_array(&pk, json_array_size(list));
	json_array_foreach (list, i, name)
		furca_pack_bytes(&pk, json_string_value(name), json_string_length(name));
	json_decref(list);
	return call->allowed.failed;
}

static void refuse_no_memory(struct furca_engine *engine, const struct furca_call_request *request)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory for another call");
	furca_result_refusal((struct furca_view){NULL, NULL}, NULL, &err, true, &out);
	if (request->origin)
		furca_functions_finished(engine->functions, request->origin, furca_buf_view(&out),
					 (struct furca_view){0}, NULL);
	else
		furca_engine_answer(engine, request->client, request->msgid, &out);
}

/* The session of the plan, made where it is new. NULL with *err. */
static struct furca_session *session_for(struct furca_call *call, const struct furca_coordinates *at,
					 struct furca_err *err)
{
	uint64_t id = 0;
	struct furca_entry *entry = furca_coordinate_session(at, &call->plan, &id);
	struct furca_session *session = entry ? furca_session_of(entry) : NULL;

	if (!session) {
		struct furca_key key = {call->plan.lang, call->plan.venv, id};

		session = furca_session_new(call->engine, &key, err);
		if (!session)
			return NULL;
		session->limits = call->plan.limits;
		session->has_limits = call->plan.has_limits;
		call->created = true;
		furca_lost_tell(call->engine, session, call->plan.name);
	}
	call->bound = call->plan.name.at &&
		      furca_registry_by_name(&call->engine->registry, call->plan.name) != &session->entry;
	if (call->bound && furca_registry_bind(&call->engine->registry, &session->entry, call->plan.name) < 0) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a session's name");
		return NULL;
	}
	return session;
}

static void start(struct furca_call *call, const struct furca_coordinates *at)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_session *session;

	for (int i = 0; i < 2; i++)
		furca_output_init(&call->output[i], call->plan.max_output, call->engine->spill_dir, FURCA_MAX_SPILL);
	if (call->plan.mode == FURCA_STATELESS) {
		call->engine->stats.stateless++;
		furca_stateless_begin(call);
		return;
	}
	if (call->plan.mode == FURCA_STATEFUL)
		call->engine->stats.stateful++;
	else
		call->engine->stats.read_only++;
	session = session_for(call, at, &err);
	if (session && session->attached && call->plan.mode == FURCA_STATEFUL && call->plan.rollback) {
		(void)furca_fail_suggest(
			&err, FURCA_E_VALIDATION, 0, "Remove on_error.",
			"The session is a process of its own, which attached itself: it cannot be rolled back.");
		furca_call_refuse(call, &err);
		return;
	}
	if (session && furca_nested_waits(session, call->plan.mode) && furca_nested_watch(call, session, &err) < 0) {
		furca_call_refuse(call, &err);
		return;
	}
	if (!session || furca_session_enqueue(session, call, &err) < 0) {
		furca_call_fail_err(call, &err);
		furca_call_finish(call);
	}
}

void furca_call_begin(struct furca_engine *engine, const struct furca_call_request *request)
{
	struct furca_coordinates at;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_call *call = call_new(engine, request);

	if (!call || call->args.failed || call->function.failed || call->frames.failed ||
	    pack_allowed(call, request) < 0) {
		if (call)
			call_free(call);
		refuse_no_memory(engine, request);
		return;
	}
	engine->stats.calls++;
	furca_engine_coordinates(engine, &at);
	if (furca_coordinate_plan(&at, furca_buf_view(&call->args), call->function.len > 0, &call->plan, &err) < 0) {
		furca_call_refuse(call, &err);
		return;
	}
	if (call->plan.blank && call->function.len == 0) {
		struct furca_entry *entry = NULL;
		uint64_t id = 0;

		if (call->plan.mode != FURCA_STATELESS)
			entry = furca_coordinate_session(&at, &call->plan, &id);
		call->session = entry ? furca_session_of(entry) : NULL;
		call->plan.id = id;
		furca_call_finish(call);
		return;
	}
	call->deadline_us = FURCA_MIN(furca_now_us() + call->plan.timeout_us, request->deadline_us);
	if (furca_loop_timer(engine->loop, call->deadline_us, on_deadline, call, &call->deadline_op) < 0) {
		furca_call_fail(call, "limit", "Wait for calls under way, then try again.",
				"the engine has too much under way");
		furca_call_finish(call);
		return;
	}
	start(call, &at);
}

void furca_call_operation(struct furca_engine *engine, enum furca_method method, furca_client_id client, uint64_t msgid,
			  struct furca_view args, struct furca_session *session)
{
	struct furca_call_request request = {.method = method, .client = client, .msgid = msgid, .args = args};
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_call *call = call_new(engine, &request);

	if (!call) {
		refuse_no_memory(engine, &request);
		return;
	}
	call->plan.mode = method == FURCA_METHOD_inspect_session ? FURCA_READ_ONLY : FURCA_STATEFUL;
	call->plan.lang = session->entry.key.lang;
	call->plan.venv = session->entry.key.venv;
	(void)furca_coordinate_select(method, furca_buf_view(&call->args), &call->selector, NULL);
	(void)furca_buf_append(&call->word, call->selector.word.at, furca_view_size(call->selector.word));
	(void)furca_buf_append(&call->word, "", 1);
	(void)furca_loop_timer(engine->loop, furca_now_us() + engine->default_timeout_us, on_deadline, call,
			       &call->deadline_op);
	if ((call->plan.mode == FURCA_STATEFUL && furca_nested_watch(call, session, &err) < 0) ||
	    furca_session_enqueue(session, call, &err) < 0)
		furca_call_refuse(call, &err);
}

static struct furca_call *find(struct furca_engine *engine, furca_client_id client, uint64_t msgid)
{
	for (struct furca_call *call = engine->calls; call; call = call->next)
		if (call->client == client && call->msgid == msgid && !call->origin)
			return call;
	return NULL;
}

bool furca_call_cancel(struct furca_engine *engine, furca_client_id client, uint64_t msgid)
{
	struct furca_call *call = find(engine, client, msgid);

	/* An operation that has begun is short, and is ended by nobody. */
	if (!call || call->phase == FURCA_CALL_RECOVERY ||
	    (call->phase == FURCA_CALL_WAITING && call->session && call->session->running == call))
		return false;
	furca_call_stop(call, FURCA_STOP_CANCEL);
	return true;
}

void furca_calls_client_gone(struct furca_engine *engine, furca_client_id client)
{
	struct furca_call *call = engine->calls;

	while (call) {
		if (call->client == client && !call->client_gone && !call->origin) {
			call->client_gone = true;
			furca_call_stop(call, FURCA_STOP_CANCEL);
			call = engine->calls; /* others may have ended with it */
			continue;
		}
		call = call->next;
	}
}

static void on_grace(void *owner)
{
	struct furca_call *call = owner;

	call->grace_op = FURCA_OP_NONE;
	if (call->phase == FURCA_CALL_LISTING) {
		furca_read_give_up(call);
		return;
	}
	if (call->phase != FURCA_CALL_RUNNING)
		return;
	call->killed = true;
	call->engine->stats.kills++;
	furca_host_kill(call->host);
}

/* Ends a call whose code has not begun. */
static void stop_waiting(struct furca_call *call)
{
	const struct furca_launch *launch = call->launch ? call->launch : call->session ? call->session->launch : NULL;
	const char *what = launch && furca_launch_building(launch) ? "its environment was being built"
			   : call->session			   ? "it was waiting for its turn in the session"
								   : "its process was being started";
	char advice[96];

	(void)snprintf(advice, sizeof(advice), "Use timeout_s=%.0f, or wait for the session's earlier calls.",
		       FURCA_MAX(4 * (double)call->plan.timeout_us / 1e6, 10.0));
	if (call->stop == FURCA_STOP_TIMEOUT)
		furca_call_fail(call, "timeout", advice,
				"The call timed out after %.3g s while %s; its code did not run.",
				(double)(furca_now_us() - call->asked_us) / 1e6, what);
	else if (call->stop == FURCA_STOP_CLOSE)
		furca_call_fail(call, "interrupted", "Run it in another session, or create the session again.",
				"The session was closed while the call was waiting; its code did not run.");
	else
		furca_call_fail(call, "interrupted", NULL, "The call was cancelled while %s; its code did not run.",
				what);
	if (call->session) {
		furca_session_unqueue(call->session, call);
		furca_session_wake(call->session);
	}
	if (furca_call_is_operation(call)) {
		struct furca_err err = FURCA_ERR_INIT;

		if (call->stop == FURCA_STOP_CLOSE)
			(void)furca_fail_suggest(&err, FURCA_E_GONE, 0, "Create the session again.",
						 "The session was closed.");
		else if (call->stop == FURCA_STOP_CANCEL)
			(void)furca_fail(&err, FURCA_E_INTERRUPTED, 0,
					 "It was cancelled before it began, and nothing was changed.");
		else
			(void)furca_fail_suggest(&err, FURCA_E_TIMEOUT, 0,
						 "Call again when calls under way have ended.",
						 "The session did not become free in time.");
		furca_call_refuse(call, &err);
		return;
	}
	furca_call_finish(call);
}

void furca_call_stop(struct furca_call *call, enum furca_stop why)
{
	if (call->stop != FURCA_STOP_NONE && why != FURCA_STOP_CLOSE)
		return; /* under way already */
	if (call->session && call->session->running == call && call->phase == FURCA_CALL_WAITING) {
		if (why == FURCA_STOP_TIMEOUT)
			furca_operation_silent(call);
		return; /* an operation that has begun is short, and ends by itself */
	}
	call->stop = why;
	switch (call->phase) {
	case FURCA_CALL_WAITING:
		stop_waiting(call);
		break;
	case FURCA_CALL_RUNNING:
		call->interrupted = true;
		call->engine->stats.interrupts++;
		if (why == FURCA_STOP_CLOSE) {
			call->killed = true;
			furca_host_kill(call->host);
			break;
		}
		(void)furca_host_interrupt(call->host, call->frame);
		if (!call->host->attached) /* whose children are not the call's alone */
			(void)furca_limits_signal_children(call->host, SIGINT, call->started_us, &call->signalled);
		(void)furca_loop_timer(call->engine->loop,
				       furca_now_us() + (int64_t)(call->engine->config.grace_s * 1e6), on_grace, call,
				       &call->grace_op);
		break;
	case FURCA_CALL_LISTING:
		furca_read_give_up(call);
		break;
	case FURCA_CALL_RECOVERY:
	case FURCA_CALL_ENDED:
		break; /* about to answer */
	}
}
