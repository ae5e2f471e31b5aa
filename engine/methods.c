/* The methods of a client, but for those that run code: furca_engine_request and what it answers at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/call.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/function.h"
#include "engine/launch.h"
#include "engine/lineage.h"
#include "engine/session.h"
#include "snapshot/probe.h"

#include "base/banned.h"

static void refuse(struct furca_engine *engine, furca_client_id client, uint64_t msgid, struct furca_view args,
		   const struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

	engine->stats.refused++;
	furca_result_refusal(args, NULL, err, false, &out);
	furca_engine_answer(engine, client, msgid, &out);
}

static void pack_names(msgpack_packer *pk, const struct furca_entry *entry)
{
	furca_pack_text(pk, "names");
	msgpack_pack_array(pk, entry->n_names);
	for (unsigned i = 0; i < entry->n_names; i++)
		furca_pack_text(pk, entry->names[i]);
}

static void pack_listed(msgpack_packer *pk, const struct furca_session *s, bool full)
{
	const struct furca_entry *e = &s->entry;
	char summary[256];

	(void)snprintf(summary, sizeof(summary), "%s session %llu%s%s%s: %llu call%s, %s", e->key.lang->name,
		       (unsigned long long)e->key.id, e->n_names ? " '" : "", e->n_names ? e->names[0] : "",
		       e->n_names ? "'" : "", (unsigned long long)s->calls, s->calls == 1 ? "" : "s",
		       furca_session_state_name(s->state));
	msgpack_pack_map(pk, full ? 14 : 13);
	furca_pack_text(pk, "attached");
	furca_pack_bool(pk, s->attached);
	furca_pack_text(pk, "language");
	furca_pack_text(pk, e->key.lang->name);
	furca_pack_text(pk, "venv_id");
	if (e->key.venv)
		msgpack_pack_uint64(pk, e->key.venv);
	else
		msgpack_pack_nil(pk);
	furca_pack_text(pk, "session_id");
	msgpack_pack_uint64(pk, e->key.id);
	furca_pack_text(pk, "session_name");
	furca_pack_text_or_nil(pk, e->n_names ? e->names[0] : NULL);
	pack_names(pk, e);
	furca_pack_text(pk, "created_at");
	msgpack_pack_double(pk, s->created_at);
	furca_pack_text(pk, "last_used_at");
	msgpack_pack_double(pk, s->used_at);
	furca_pack_text(pk, "busy");
	furca_pack_bool(pk, s->running != NULL || s->first != NULL);
	furca_pack_text(pk, "calls");
	msgpack_pack_uint64(pk, s->calls);
	furca_pack_text(pk, "undo_depth");
	msgpack_pack_uint64(pk, furca_commit_depth(s));
	furca_lineage_memory(pk, s->live);
	furca_pack_text(pk, "summary");
	furca_pack_text(pk, summary);
	if (!full)
		return;
	furca_pack_text(pk, "processes");
	furca_lineage_pack(pk, s);
}

static void list_sessions(struct furca_engine *engine, bool full, struct furca_buf *out)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "sessions");
	msgpack_pack_array(&pk, engine->registry.count);
	for (struct furca_entry *e = engine->registry.first; e; e = e->next)
		pack_listed(&pk, furca_session_of(e), full);
}

/* An answer that waits until sessions have ended. */
struct closing {
	struct furca_engine *engine;
	furca_client_id client;
	uint64_t msgid;
	unsigned left, count;
	bool all;
};

static void answer_closed(struct closing *c, const char *reason)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	msgpack_pack_map(&pk, reason ? 3 : 2);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "closed");
	if (c->all)
		msgpack_pack_uint64(&pk, c->count);
	else
		furca_pack_bool(&pk, c->count > 0);
	if (reason) {
		furca_pack_text(&pk, "reason");
		furca_pack_text(&pk, reason);
	}
	furca_engine_answer(c->engine, c->client, c->msgid, &out);
}

static void one_closed(void *owner)
{
	struct closing *c = owner;

	if (--c->left > 0)
		return;
	answer_closed(c, NULL);
	free(c);
}

static void close_sessions(struct furca_engine *engine, furca_client_id client, uint64_t msgid,
			   struct furca_session *only)
{
	struct closing now = {engine, client, msgid, 0, 0, only == NULL};
	struct closing *c = calloc(1, sizeof(*c));

	if (!c || engine->registry.count == 0) {
		free(c);
		answer_closed(&now, NULL);
		return;
	}
	*c = now;
	c->left = c->count = only ? 1 : engine->registry.count;
	if (only) {
		furca_session_close(only, one_closed, c);
		return;
	}
	while (engine->registry.first)
		furca_session_close(furca_session_of(engine->registry.first), one_closed, c);
}

static void close_session(struct furca_engine *engine, furca_client_id client, uint64_t msgid, struct furca_view args,
			  const struct furca_selector *selector)
{
	struct furca_err err = FURCA_ERR_INIT;
	bool missing;
	struct furca_entry *entry = furca_coordinate_find(&engine->registry, selector, &missing, &err);

	if (entry) {
		close_sessions(engine, client, msgid, furca_session_of(entry));
	} else if (missing) {
		struct closing c = {engine, client, msgid, 0, 0, false};
		char reason[FURCA_ERR_TEXT_MAX + 16];

		(void)snprintf(reason, sizeof(reason), "not_found: %s", err.text);
		answer_closed(&c, reason);
	} else {
		refuse(engine, client, msgid, args, &err);
	}
}

static void on_session(struct furca_engine *engine, enum furca_method method, furca_client_id client, uint64_t msgid,
		       struct furca_view args, const struct furca_selector *selector)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_entry *entry = furca_coordinate_find(&engine->registry, selector, NULL, &err);

	if (entry)
		furca_call_operation(engine, method, client, msgid, args, furca_session_of(entry));
	else
		refuse(engine, client, msgid, args, &err);
}

static void selected(struct furca_engine *engine, enum furca_method method, furca_client_id client, uint64_t msgid,
		     struct furca_view args)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_selector selector;
	struct furca_err err = FURCA_ERR_INIT;
	msgpack_packer pk;

	if (furca_coordinate_select(method, args, &selector, &err) < 0) {
		refuse(engine, client, msgid, args, &err);
		return;
	}
	switch (method) {
	case FURCA_METHOD_cancel:
		furca_packer(&pk, &out);
		msgpack_pack_map(&pk, 2);
		furca_pack_text(&pk, "ok");
		furca_pack_bool(&pk, true);
		furca_pack_text(&pk, "cancelled");
		furca_pack_bool(&pk, furca_call_cancel(engine, client, selector.msgid));
		break;
	case FURCA_METHOD_list_sessions:
		list_sessions(engine, furca_view_is(selector.detail, "full"), &out);
		break;
	case FURCA_METHOD_stats:
		furca_stats_pack(engine, &out);
		break;
	case FURCA_METHOD_read_output:
		furca_kept_read(engine, client, &selector, args, &out);
		break;
	case FURCA_METHOD_close_session:
		close_session(engine, client, msgid, args, &selector);
		return;
	case FURCA_METHOD_close_all_sessions:
		furca_zygotes_rest(engine);
		close_sessions(engine, client, msgid, NULL);
		return;
	default:
		on_session(engine, method, client, msgid, args, &selector);
		return;
	}
	furca_engine_answer(engine, client, msgid, &out);
}

void furca_engine_request(struct furca_engine *engine, furca_client_id client, uint64_t msgid, enum furca_method method,
			  struct furca_view args, struct furca_fd *memory)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_call_request call = {
		.method = method, .client = client, .msgid = msgid, .args = args, .deadline_us = FURCA_NEVER};

	if (engine->stopping) {
		(void)furca_fail(&err, FURCA_E_GONE, 0, "The engine is stopping.");
		refuse(engine, client, msgid, args, &err);
		return;
	}
	switch (method) {
	case FURCA_METHOD_execute:
		furca_call_begin(engine, &call);
		break;
	case FURCA_METHOD_create_env:
	case FURCA_METHOD_build_env:
	case FURCA_METHOD_list_envs:
	case FURCA_METHOD_remove_env:
		furca_envs_request(engine->envs, client, msgid, method, args);
		break;
	case FURCA_METHOD_add_function:
	case FURCA_METHOD_list_functions:
	case FURCA_METHOD_remove_function:
	case FURCA_METHOD_call_function:
		furca_functions_request(engine->functions, client, msgid, method, args, memory);
		break;
	case FURCA_METHOD_cancel:
	case FURCA_METHOD_list_sessions:
	case FURCA_METHOD_inspect_session:
	case FURCA_METHOD_close_session:
	case FURCA_METHOD_close_all_sessions:
	case FURCA_METHOD_undo:
	case FURCA_METHOD_branch_session:
	case FURCA_METHOD_checkpoint:
	case FURCA_METHOD_restore:
	case FURCA_METHOD_read_output:
	case FURCA_METHOD_stats:
		selected(engine, method, client, msgid, args);
		break;
	case FURCA_METHOD_UNKNOWN:
	case FURCA_METHOD_hello:
	case FURCA_METHOD_register_capabilities:
	case FURCA_METHOD_call_object:
	case FURCA_METHOD_release_object:
	case FURCA_METHOD_attach_session:
	case FURCA_METHOD_LIMIT:
		(void)furca_fail(&err, FURCA_E_INTERNAL, 0, "The method is not the engine's.");
		refuse(engine, client, msgid, args, &err);
	}
}

void furca_engine_limits(struct furca_engine *engine, struct furca_buf *out)
{
	const struct {
		const char *key;
		uint64_t value;
	} whole[] = {
		{"max_sessions", engine->registry.max}, {"max_message_bytes", FURCA_MAX_MESSAGE},
		{"max_depth", FURCA_MAX_DEPTH},		{"max_items", FURCA_MAX_ITEMS},
		{"max_in_flight", FURCA_MAX_IN_FLIGHT}, {"max_code_bytes", FURCA_MAX_CODE},
		{"max_output_bytes", FURCA_MAX_OUTPUT}, {"default_output_bytes", FURCA_DEFAULT_OUTPUT},
		{"max_spill_bytes", FURCA_MAX_SPILL},	{"max_result_bytes", FURCA_MAX_RESULT},
		{"max_queue", FURCA_MAX_QUEUE},		{"undo_depth", engine->config.undo_depth},
		{"max_name", FURCA_MAX_NAME},
	};
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, FURCA_COUNT(whole) + 2);
	furca_pack_text(&pk, "timeout_s");
	msgpack_pack_double(&pk, engine->config.timeout_s);
	furca_pack_text(&pk, "grace_s");
	msgpack_pack_double(&pk, engine->config.grace_s);
	for (size_t i = 0; i < FURCA_COUNT(whole); i++) {
		furca_pack_text(&pk, whole[i].key);
		msgpack_pack_uint64(&pk, whole[i].value);
	}
}

void furca_engine_guarantees(struct furca_engine *engine, struct furca_buf *out)
{
	const struct furca_probe *probe = NULL;
	msgpack_packer pk;

	(void)furca_probe(&probe, NULL);
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, FURCA_BARRIERS);
	for (int i = 0; i < FURCA_BARRIERS; i++) {
		furca_pack_text(&pk, furca_barrier_word(i));
		furca_pack_bool(&pk, probe && (probe->barriers & 1U << i));
	}
}
