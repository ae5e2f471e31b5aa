/* The result map of execute and call_function, and the refusal form. */
#include <stdlib.h>
#include <string.h>

#include "engine/call.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

static void pack_session_named(msgpack_packer *pk, const struct furca_lang *lang, uint64_t venv, uint64_t id,
			       const char *name, size_t n)
{
	msgpack_pack_map(pk, 4);
	furca_pack_text(pk, "language");
	furca_pack_text(pk, lang->name);
	furca_pack_text(pk, "venv_id");
	if (venv)
		msgpack_pack_uint64(pk, venv);
	else
		msgpack_pack_nil(pk);
	furca_pack_text(pk, "session_id");
	msgpack_pack_uint64(pk, id);
	furca_pack_text(pk, "session_name");
	if (n)
		furca_pack_bytes(pk, name, n);
	else
		msgpack_pack_nil(pk);
}

void furca_result_session(msgpack_packer *pk, const struct furca_entry *entry)
{
	const char *name = entry && entry->n_names ? entry->names[0] : "";

	if (entry)
		pack_session_named(pk, entry->key.lang, entry->key.venv, entry->key.id, name, strlen(name));
	else
		msgpack_pack_nil(pk);
}

static void pack_call_session(msgpack_packer *pk, const struct furca_call *call)
{
	const struct furca_plan *plan = &call->plan;

	furca_pack_text(pk, "session");
	if (call->session && plan->name.at)
		pack_session_named(pk, plan->lang, plan->venv, call->session->entry.key.id, (const char *)plan->name.at,
				   furca_view_size(plan->name));
	else if (call->session)
		furca_result_session(pk, &call->session->entry);
	else if (plan->mode != FURCA_STATELESS && plan->blank) /* the session it would be; blank code makes none */
		pack_session_named(pk, plan->lang, plan->venv, plan->id, (const char *)plan->name.at,
				   furca_view_size(plan->name));
	else
		msgpack_pack_nil(pk);
}

/* What DONE said, or nil. */
static void pack_said(msgpack_packer *pk, const char *key, struct furca_view value)
{
	furca_pack_text(pk, key);
	furca_pack_raw(pk, value);
}

static void pack_text_of(msgpack_packer *pk, const char *key, const struct furca_buf *text, bool there)
{
	furca_pack_text(pk, key);
	if (there)
		furca_pack_bytes(pk, text->data, text->len);
	else
		msgpack_pack_nil(pk);
}

static void pack_output(msgpack_packer *pk, const struct furca_call *call, uint64_t ret_left_out[2])
{
	static const char *const names[] = {"stdout", "stderr"};

	for (int i = 0; i < 2; i++) {
		FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

		ret_left_out[i] = call->output[i].max ? furca_output_text(&call->output[i], &text) : 0;
		pack_text_of(pk, names[i], &text, true);
	}
}

static void pack_truncated(msgpack_packer *pk, const struct furca_call *call, const uint64_t left_out[2])
{
	furca_pack_text(pk, "truncated");
	msgpack_pack_map(pk, 3);
	furca_pack_text(pk, "stdout");
	msgpack_pack_uint64(pk, left_out[0]);
	furca_pack_text(pk, "stderr");
	msgpack_pack_uint64(pk, left_out[1]);
	furca_pack_text(pk, "result_text");
	msgpack_pack_uint64(pk, call->said.result_text_cut);
}

static void pack_changes(msgpack_packer *pk, const struct furca_call *call)
{
	furca_pack_text(pk, "changes");
	if (call->plan.mode == FURCA_STATEFUL) {
		furca_pack_raw(pk, call->said.changes);
		return;
	}
	if (call->plan.mode != FURCA_READ_ONLY || !call->done.len) {
		msgpack_pack_nil(pk);
		return;
	}
	msgpack_pack_map(pk, 2);
	furca_pack_text(pk, "names");
	furca_pack_raw(pk, call->said.changes);
	furca_pack_text(pk, "files");
	furca_pack_raw(pk, furca_buf_view(&call->files));
}

static void pack_times(msgpack_packer *pk, const struct furca_call *call)
{
	furca_pack_text(pk, "duration_ms");
	msgpack_pack_double(pk, (double)(furca_now_us() - call->asked_us) / 1000);
	furca_pack_text(pk, "timing");
	msgpack_pack_map(pk, 4);
	furca_pack_text(pk, "queue_us");
	msgpack_pack_uint64(pk, call->queue_us);
	furca_pack_text(pk, "fork_us");
	msgpack_pack_uint64(pk, call->fork_us);
	furca_pack_text(pk, "isolate_us");
	msgpack_pack_uint64(pk, call->isolate_us);
	furca_pack_text(pk, "run_us");
	msgpack_pack_uint64(pk, call->run_us);
}

static void pack_display(msgpack_packer *pk, const struct furca_call *call)
{
	furca_pack_text(pk, "display");
	if (call->said.display.at)
		furca_pack_raw(pk, call->said.display);
	else
		msgpack_pack_array(pk, 0);
}

static void pack_exit_code(msgpack_packer *pk, const struct furca_call *call)
{
	if (call->plan.blank && !call->error_type) {
		furca_pack_text(pk, "exit_code");
		msgpack_pack_int(pk, 0);
		return;
	}
	pack_said(pk, "exit_code", call->said.exit_code);
}

/* A call that was taken and then could not begin is refused too: a barrier, a limit or an environment cannot be had. */
static bool was_refused(const struct furca_call *call)
{
	static const char *const types[] = {"validation", "isolation", "limit", "environment"};

	for (size_t i = 0; i < FURCA_COUNT(types); i++)
		if (strcmp(call->error_type, types[i]) == 0)
			return !call->done.len;
	return false;
}

void furca_result_pack(struct furca_call *call, struct furca_buf *out)
{
	bool failed = call->error_type != NULL, copy = call->plan.mode == FURCA_READ_ONLY,
	     refused = failed && was_refused(call);
	uint64_t left_out[2] = {0, 0};
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, refused ? 22 : 21);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, !failed);
	pack_output(&pk, call, left_out);
	pack_said(&pk, "result", call->said.result);
	pack_said(&pk, "result_text", call->said.result_text);
	pack_display(&pk, call);
	pack_text_of(&pk, "background_output", &call->background, true);
	pack_text_of(&pk, "error", &call->error, failed);
	furca_pack_text(&pk, "error_type");
	furca_pack_text_or_nil(&pk, call->error_type);
	pack_text_of(&pk, "suggestion", &call->suggestion, call->suggestion.len > 0);
	pack_exit_code(&pk, call);
	furca_pack_text(&pk, "state");
	furca_pack_text(&pk, call->state);
	pack_call_session(&pk, call);
	furca_pack_text(&pk, "session_created");
	furca_pack_bool(&pk, call->created);
	pack_changes(&pk, call);
	furca_pack_text(&pk, "isolation");
	furca_pack_raw(&pk, copy ? furca_buf_view(&call->isolation) : (struct furca_view){NULL, NULL});
	pack_truncated(&pk, call, left_out);
	furca_pack_text(&pk, "output_id");
	if (call->output_id)
		msgpack_pack_uint64(&pk, call->output_id);
	else
		msgpack_pack_nil(&pk);
	pack_times(&pk, call);
	furca_pack_text(&pk, "retried");
	furca_pack_bool(&pk, call->retried);
	if (refused) {
		const struct furca_buf *args = call->received.len ? &call->received : &call->args;

		furca_pack_text(&pk, "received");
		furca_coordinate_received(furca_buf_view(args), &call->plan, out);
	}
}

/* The refusal's own keys; with `execute` a whole result map. */
void furca_result_refusal(struct furca_view args, const struct furca_plan *plan, const struct furca_err *err,
			  bool execute, struct furca_buf *out)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, execute ? 19 : 6);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, false);
	furca_pack_text(&pk, "error");
	furca_pack_text(&pk, err->text);
	furca_pack_text(&pk, "error_type");
	furca_pack_text(&pk, furca_err_type(err->code));
	furca_pack_text(&pk, "suggestion");
	furca_pack_text(&pk, furca_err_suggestion(err));
	furca_pack_text(&pk, "received");
	furca_coordinate_received(args, plan, out);
	furca_pack_text(&pk, "state");
	furca_pack_text(&pk, "unchanged");
	if (!execute)
		return;
	static const char *const empty[] = {"stdout", "stderr", "background_output"};
	static const char *const nothing[] = {"result", "result_text", "exit_code", "session", "changes", "isolation"};
	for (size_t i = 0; i < FURCA_COUNT(empty); i++) {
		furca_pack_text(&pk, empty[i]);
		furca_pack_text(&pk, "");
	}
	for (size_t i = 0; i < FURCA_COUNT(nothing); i++) {
		furca_pack_text(&pk, nothing[i]);
		msgpack_pack_nil(&pk);
	}
	furca_pack_text(&pk, "display");
	msgpack_pack_array(&pk, 0);
	furca_pack_text(&pk, "session_created");
	furca_pack_bool(&pk, false);
	furca_pack_text(&pk, "retried");
	furca_pack_bool(&pk, false);
	furca_pack_text(&pk, "duration_ms");
	msgpack_pack_double(&pk, 0);
}
