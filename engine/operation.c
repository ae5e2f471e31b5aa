#include "engine/operation.h"

#include <stdio.h>
#include <string.h>

#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/session.h"

#include "base/banned.h"

#define MAX_CHECKPOINTS 8

static void pack_session(msgpack_packer *pk, const struct furca_session *s, uint32_t more)
{
	msgpack_pack_map(pk, 4 + more);
	furca_pack_text(pk, "ok");
	furca_pack_bool(pk, true);
	furca_pack_text(pk, "session");
	furca_result_session(pk, &s->entry);
	furca_pack_text(pk, "undo_depth");
	msgpack_pack_uint64(pk, furca_commit_depth(s));
	furca_pack_text(pk, "state");
}

/* The operation's answer; the session is idle again. */
static void answer(struct furca_session *s, struct furca_call *call, const char *state, const char *key,
		   struct furca_view value)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &out);
	pack_session(&pk, s, key ? 1 : 0);
	furca_pack_text(&pk, state);
	if (key) {
		furca_pack_text(&pk, key);
		furca_pack_bytes(&pk, value.at, furca_view_size(value));
	}
	furca_call_answer(call, &out);
}

static void refuse(struct furca_session *s, struct furca_call *call, const struct furca_err *err)
{
	s->running = NULL;
	if (s->state == FURCA_S_BUSY)
		furca_session_step(s, FURCA_EV_DONE);
	furca_call_refuse(call, err);
	furca_session_wake(s);
}

void furca_operation_restored(struct furca_session *s, struct furca_call *call, const char *state)
{
	if (strcmp(state, "lost") == 0) {
		struct furca_err err = FURCA_ERR_INIT;

		(void)furca_fail(
			&err, FURCA_E_GONE, 0,
			"The snapshot could not be made live, and the session's state was lost; it is empty now");
		furca_call_refuse(call, &err);
		return;
	}
	answer(s, call, state, call->error.len ? "note" : NULL, furca_buf_view(&call->error));
}

/* Goes back to the newest commit by ending the live process. */
static void go_back(struct furca_session *s, struct furca_call *call)
{
	call->rolled_back = true;
	call->phase = FURCA_CALL_RECOVERY;
	s->engine->stats.rollbacks++;
	furca_host_drop(s->live);
	s->live = NULL;
	furca_session_restore(s, call);
}

static void undo(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;
	unsigned there = furca_commit_depth(s);

	if (call->selector.steps > there) {
		char advice[FURCA_ERR_TEXT_MAX], place[FURCA_ADVICE_TEXT];

		if (there)
			(void)snprintf(advice, sizeof(advice), "Use steps=%u, or fewer.", there);
		else
			(void)snprintf(
				advice, sizeof(advice),
				"Call execute with %s and state_mode='stateful' and code='x=1' first; only what a call changed can be undone.",
				furca_coordinate_place(place, &s->entry.key));
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, advice,
					 "The session can be taken back by %u step%s%s.", there, there == 1 ? "" : "s",
					 s->dropped_commits ? "; older states were dropped" : "");
		refuse(s, call, &err);
		return;
	}
	uint64_t before = s->version, last = before;
	for (uint64_t step = 0; step < call->selector.steps; step++) {
		while (s->top->version >= before)
			furca_commit_drop(s, s->top);
		before = s->top->version;
	}
	if (last - before > call->selector.steps)
		furca_call_add(call, "States in between were not kept: the session is what it was after call %llu.",
			       (unsigned long long)s->top->calls);
	s->version = before;
	go_back(s, call);
}

static struct furca_commit *find_label(struct furca_session *s, const char *label)
{
	for (struct furca_commit *c = s->labelled; c; c = c->below)
		if (strcmp(c->label, label) == 0)
			return c;
	return NULL;
}

static void checkpoint(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;
	const char *label = (const char *)call->word.data;
	unsigned n = 0;

	for (struct furca_commit *c = s->labelled; c; c = c->below)
		n++;
	if (n >= MAX_CHECKPOINTS && !find_label(s, label)) {
		char advice[FURCA_ERR_TEXT_MAX], text[FURCA_ADVICE_TEXT];

		(void)snprintf(advice, sizeof(advice),
			       "Use label=%s, or another one again that is not needed any more.",
			       furca_advice_text(text, furca_text_view(s->labelled->label)));
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, advice,
					 "The session has %u checkpoints, which is the limit.", n);
		refuse(s, call, &err);
		return;
	}
	struct furca_commit *commit = furca_commit_new(s, s->live, call, &err);
	if (commit)
		commit->label = strdup(label);
	if (!commit || !commit->label) {
		if (commit)
			furca_commit_free(commit);
		(void)furca_fail(&err, FURCA_E_MEMORY, 0, "no memory for a checkpoint");
		refuse(s, call, &err);
		return;
	}
	commit->below = s->labelled;
	s->labelled = commit;
}

static void restore(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_commit *from = find_label(s, (const char *)call->word.data);

	if (!from || !from->standing) {
		char advice[FURCA_ERR_TEXT_MAX], text[FURCA_ADVICE_TEXT], place[FURCA_ADVICE_TEXT];

		if (s->labelled)
			(void)snprintf(advice, sizeof(advice),
				       "Use label=%s, or another that checkpoint was called with in this session.",
				       furca_advice_text(text, furca_text_view(s->labelled->label)));
		else
			(void)snprintf(advice, sizeof(advice),
				       "Call checkpoint with %s and label=%s first; this session has none.",
				       furca_coordinate_place(place, &s->entry.key),
				       furca_advice_text(text, call->selector.word));
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, advice, "The session has no checkpoint '%s'.",
					 (const char *)call->word.data);
		refuse(s, call, &err);
		return;
	}
	/* A snapshot of the checkpoint's snapshot is promoted, so that the checkpoint stays. */
	struct furca_commit *commit = furca_commit_new(s, from->host, call, &err);
	if (!commit) {
		refuse(s, call, &err);
		return;
	}
	commit->version = ++s->version; /* so that undo goes back to before the restore */
	furca_commit_push(s, commit);
}

static void branched(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_call *call = owner;
	struct furca_session *s = call->session, *branch = NULL;
	struct furca_err failure = FURCA_ERR_INIT;
	struct furca_key key = s->entry.key;

	call->host = NULL;
	call->own_host = false;
	if (err) {
		failure = *err;
	} else {
		key.id = furca_registry_free_id(&s->engine->registry, key.lang, key.venv);
		if (furca_registry_by_name(&s->engine->registry, call->selector.word))
			(void)furca_coordinate_taken(&s->engine->registry, "new_name", call->selector.word, &failure);
		else
			branch = furca_session_new(s->engine, &key, &failure);
	}
	if (branch)
		(void)furca_registry_bind(&s->engine->registry, &branch->entry, call->selector.word);
	if (!branch) {
		furca_host_drop(host);
		refuse(s, call, &failure);
		return;
	}
	if (key.venv) {
		furca_env_hold(s->engine->envs, key.venv);
		branch->env_held = true;
	}
	branch->version = 1; /* above the pristine state, which a branch cannot be taken back to */
	furca_commit_drop_all(branch);
	branch->calls = s->calls;
	furca_session_adopt(branch, host);
	furca_lanes_follow(host->lanes, call->client, call->msgid, branch->owner);
	s->running = NULL;
	furca_session_step(s, FURCA_EV_DONE);
	answer(branch, call, "committed", NULL, (struct furca_view){NULL, NULL});
	furca_session_wake(s);
}

static void branch(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host_clone args = {
		.role = FURCA_CLONE_BRANCH,
		.tag = furca_limits_new_tag(s->engine),
		.label = (const char *)call->word.data,
		.cloned = branched,
		.events = &furca_session_host_events,
		.owner = call,
	};

	if (furca_registry_by_name(&s->engine->registry, call->selector.word))
		(void)furca_coordinate_taken(&s->engine->registry, "new_name", call->selector.word, &err);
	else if (s->engine->registry.count >= s->engine->registry.max)
		(void)furca_registry_full(&s->engine->registry, &s->entry, &err);
	else
		call->host = furca_host_clone(s->live, &args, &err);
	if (!call->host) {
		refuse(s, call, &err);
		return;
	}
	call->own_host = true;
}

void furca_operation_stands(struct furca_session *s, struct furca_commit *commit, struct furca_call *call)
{
	if (call->method == FURCA_METHOD_restore) {
		go_back(s, call);
		return;
	}
	/* A checkpoint of the same label is replaced only now that the new one stands. */
	struct furca_commit *old = commit->below;
	while (old && strcmp(old->label, commit->label) != 0)
		old = old->below;
	if (old)
		furca_commit_drop(s, old);
	s->running = NULL;
	furca_session_step(s, FURCA_EV_DONE);
	answer(s, call, "unchanged", "label", furca_text_view(commit->label));
}

void furca_operation_begin(struct furca_session *s, struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (s->engine->config.snapshots == FURCA_SNAPSHOT_OFF && call->method == FURCA_METHOD_undo) {
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, "Start the engine with snapshots on.",
					 "Snapshots are switched off.");
		refuse(s, call, &err);
		return;
	}
	if (s->attached) {
		(void)furca_fail_suggest(
			&err, FURCA_E_VALIDATION, 0, "Try code with state_mode='read_only' before you run it for good.",
			"The session is a process of its own, which attached itself: it cannot be kept, taken back or branched.");
		refuse(s, call, &err);
		return;
	}
	switch (call->method) {
	case FURCA_METHOD_undo:
		undo(s, call);
		break;
	case FURCA_METHOD_checkpoint:
		checkpoint(s, call);
		break;
	case FURCA_METHOD_restore:
		restore(s, call);
		break;
	case FURCA_METHOD_branch_session:
		branch(s, call);
		break;
	default:
		(void)furca_fail(&err, FURCA_E_INTERNAL, 0, "no such operation");
		refuse(s, call, &err);
	}
}

static struct furca_commit *commit_of(struct furca_commit *commits, const struct furca_call *call)
{
	while (commits && commits->call != call)
		commits = commits->below;
	return commits;
}

void furca_operation_give_up(struct furca_call *call, const struct furca_err *err)
{
	struct furca_session *s = call->session;
	struct furca_commit *commit = commit_of(s->top, call);

	if (!commit)
		commit = commit_of(s->labelled, call);
	if (commit && call->method == FURCA_METHOD_restore)
		s->version = commit->version - 1; /* it was to be the newest */
	if (commit)
		furca_commit_drop(s, commit);
	if (s->running == call) {
		s->running = NULL;
		if (s->state == FURCA_S_BUSY)
			furca_session_step(s, FURCA_EV_DONE);
	}
	furca_call_refuse(call, err); /* and lets go of a branch that is under way */
	furca_session_wake(s);
}

void furca_operation_silent(struct furca_call *call)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail_suggest(
		&err, FURCA_E_TIMEOUT, 0,
		"Call execute with state_mode='stateful': a process that does not run that either is ended, "
		"and the session taken back to its last commit.",
		"The session's process does not answer.");
	furca_operation_give_up(call, &err);
}

void furca_operation_lost(struct furca_call *call, const char *why)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_GONE, 0, "%s", why);
	furca_operation_give_up(call, &err);
}
