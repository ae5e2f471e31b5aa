/*
 * Commits: the snapshots that stand for a session's states. The stack holds the newest on top and below it what undo goes back to;
 * checkpoints stand apart. A snapshot is a parked clone that never runs user code; promoting it makes it the session's process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "engine/cells.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/operation.h"
#include "engine/session.h"

#include "base/banned.h"

/* Pid namespaces nest 32 deep; a promoted snapshot lives in one, and its copies need one more. Below, snapshots do without. */
#define DEEPEST 26
#define LOOK_US 100000

/* What waited to be cloned from that host learns that it has gone. */
static void forget_origin(struct furca_commit *commits, const struct furca_host *host)
{
	for (; commits; commits = commits->below)
		if (commits->from == host)
			commits->from = NULL;
}

void furca_commit_free(struct furca_commit *commit)
{
	struct furca_session *s = commit->session;

	if (commit->asked)
		furca_cells_forget(s->engine->cells, commit->asked, commit);
	if (commit->host) {
		forget_origin(s->top, commit->host);
		forget_origin(s->labelled, commit->host);
	}
	furca_host_drop(commit->host);
	free(commit->label);
	free(commit);
}

static bool unlink_commit(struct furca_commit **at, struct furca_commit *commit)
{
	for (; *at; at = &(*at)->below) {
		if (*at != commit)
			continue;
		*at = commit->below;
		return true;
	}
	return false;
}

void furca_commit_drop(struct furca_session *s, struct furca_commit *commit)
{
	if (unlink_commit(&s->top, commit))
		s->commits--;
	else
		(void)unlink_commit(&s->labelled, commit);
	furca_commit_free(commit);
}

void furca_commit_drop_all(struct furca_session *s)
{
	while (s->top)
		furca_commit_drop(s, s->top);
	if (s->state != FURCA_S_CLOSING)
		return; /* checkpoints outlive a loss */
	while (s->labelled)
		furca_commit_drop(s, s->labelled);
}

void furca_commit_push(struct furca_session *s, struct furca_commit *commit)
{
	commit->below = s->top;
	s->top = commit;
	s->commits++;
	while (s->top && s->commits > s->engine->config.undo_depth + 1) {
		struct furca_commit *last = s->top;

		while (last->below)
			last = last->below;
		furca_commit_drop(s, last);
		s->dropped_commits++;
	}
}

void furca_commit_pristine(struct furca_session *s)
{
	struct furca_commit *commit = calloc(1, sizeof(*commit));

	if (!commit)
		return; /* a loss is a loss then */
	commit->session = s;
	commit->standing = true;
	commit->version = s->version;
	furca_commit_push(s, commit);
}

void furca_commit_promoted(struct furca_session *s)
{
	furca_commit_drop(s, s->top);
}

/* A snapshot has ended by itself: what it stood for cannot be gone back to. */
static void snapshot_dead(void *owner, struct furca_host *host)
{
	struct furca_commit *commit = owner;

	furca_log(FURCA_LOG_WARN, "engine", "snapshot ended session=%llu version=%llu status=%d",
		  (unsigned long long)commit->session->entry.key.id, (unsigned long long)commit->version, host->status);
	commit->session->engine->stats.snapshots_dropped++;
	furca_commit_drop(commit->session, commit);
}

/* What hindered a snapshot may be over when the next call comes; what hinders the second as well will not be. */
static void note_unkept(struct furca_session *s, uint64_t version, const struct furca_err *why)
{
	s->unkeepable = !s->foreseen;
	s->unkept = version == s->kept_again ? 0 : version;
	s->why_unkept = *why;
}

static const struct furca_host_events snapshot_events = {.dead = snapshot_dead};

/* There is none, or it is of no use. */
static void not_committed(struct furca_session *s, struct furca_commit *commit, const struct furca_err *err)
{
	furca_log_err("engine", "snapshot", err);
	if (commit->call) {
		furca_operation_give_up(commit->call, err);
	} else {
		note_unkept(s, commit->version, err);
		furca_commit_drop(s, commit);
	}
	furca_session_wake(s);
}

static void committed(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_commit *commit = owner;
	struct furca_session *s = commit->session;
	struct furca_call *call = commit->call;
	struct furca_err failure = FURCA_ERR_INIT;

	if (!err && furca_fault(FURCA_FAULT_COMMIT_CLONED) < 0) {
		(void)furca_fail(&failure, FURCA_E_CLONE, EIO, "failure point commit_cloned");
		err = &failure;
	}
	if (err) {
		not_committed(s, commit, err);
		return;
	}
	commit->call = NULL;
	commit->standing = true;
	s->unkeepable = false;
	s->engine->stats.snapshots++;
	if (call)
		furca_operation_stands(s, commit, call);
	else if (commit == s->top)
		furca_read_park(s);
	furca_session_wake(s);
}

/* What can be had of the machine and of what all sessions may have, and all; looked at ten times a second at most. */
static void look_at_memory(struct furca_engine *engine)
{
	struct furca_cgroups_usage usage;
	int64_t now_us = furca_now_us();

	if (engine->memory_looked_us && now_us - engine->memory_looked_us < LOOK_US)
		return;
	engine->memory_looked_us = now_us;
	furca_limits_machine(&engine->memory_available, &engine->memory_total);
	furca_cgroups_usage(engine->cgroups, &usage);
	if (usage.memory_limit && usage.memory_limit < engine->memory_total) {
		engine->memory_total = usage.memory_limit;
		engine->memory_available = FURCA_MIN(engine->memory_available,
						     usage.memory_limit - FURCA_MIN(usage.memory, usage.memory_limit));
	}
}

/* More than half is free, or nobody says how much. */
static bool memory_is_ample(struct furca_engine *engine)
{
	look_at_memory(engine);
	return engine->memory_available == 0 || engine->memory_available > engine->memory_total / 2;
}

/* Clones what the commit stands for; the cell is let go of (the host holds it), NULL: none could be had. */
static int clone_into(struct furca_commit *commit, struct furca_init *cell, struct furca_err *err)
{
	struct furca_session *s = commit->session;
	bool hot = furca_prefetch_allowed(commit->from);
	char label[96];

	(void)snprintf(label, sizeof(label), "snapshot of %s %llu", s->entry.key.lang->name,
		       (unsigned long long)s->entry.key.id);
	struct furca_host_clone args = {
		.role = FURCA_CLONE_SNAPSHOT,
		/*
		 * Descriptors of its own: what the session closes must be closed for its peers too (a child that waits for the end of
		 * its input, a port, a lock), whatever stands by to take the session's place.
		 */
		.barriers = FURCA_BARRIER_DESCRIPTORS,
		.hot = hot,
		.huge = hot && memory_is_ample(s->engine),
		.cell = cell,
		.tag = furca_limits_new_tag(s->engine),
		.label = label,
		.cloned = committed,
		.events = &snapshot_events,
		.owner = commit,
	};
	commit->host = furca_host_clone(commit->from, &args, err);
	commit->from = NULL;
	furca_init_unref(cell);
	return commit->host ? 0 : -EPIPE;
}

static void cell_made(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct furca_commit *commit = owner;
	struct furca_session *s = commit->session;
	struct furca_err failure = FURCA_ERR_INIT;

	(void)err; /* without a cell the snapshot has other numbers than the session; that is better than none */
	commit->asked = NULL;
	if (!commit->from || commit->from->dead) {
		furca_init_unref(cell);
		(void)furca_fail(&failure, FURCA_E_GONE, 0, "what was to be kept has ended");
	} else {
		(void)clone_into(commit, cell, &failure);
	}
	if (failure.code)
		committed(commit, NULL, (struct furca_view){NULL, NULL}, &failure);
	else
		furca_session_wake(s);
}

struct furca_commit *furca_commit_new(struct furca_session *s, struct furca_host *from, struct furca_call *call,
				      struct furca_err *err)
{
	struct furca_init *init = furca_host_init_of(from), *cell = NULL;
	struct furca_commit *commit = calloc(1, sizeof(*commit));

	if (!commit) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a snapshot");
		return NULL;
	}
	commit->session = s;
	commit->version = s->version;
	commit->calls = s->calls;
	commit->call = call;
	commit->from = from;
	if (init->depth < DEEPEST) {
		cell = furca_cells_take(s->engine->cells, init, &furca_cell_for_snapshot);
		if (!cell &&
		    furca_cells_ask(s->engine->cells, init, &furca_cell_for_snapshot, cell_made, commit) == 0) {
			commit->asked = init;
			return commit;
		}
	}
	if (clone_into(commit, cell, err) < 0) {
		free(commit);
		return NULL;
	}
	return commit;
}

bool furca_commit_waits(const struct furca_session *s)
{
	return s->top && s->top->asked;
}

/*
 * Whether memory allows a snapshot. It costs nothing but page tables until the session writes, and at worst the whole state once more: a
 * quarter of it is expected, beside a sixteenth of the memory that nobody should use up. Where twice that is not free, earlier snapshots
 * go first.
 */
static bool there_is_room(struct furca_session *s)
{
	struct furca_engine *engine = s->engine;

	if (engine->config.snapshots == FURCA_SNAPSHOT_ALWAYS)
		return true;
	if (memory_is_ample(engine))
		return true; /* no state is larger than the other half */
	uint64_t need = engine->memory_total / 16 + furca_limits_anonymous(s->live->proc.pid) / 4;
	if (engine->memory_available > 2 * need)
		return true;
	while (s->top && s->top->below) {
		struct furca_commit *last = s->top;

		while (last->below)
			last = last->below;
		furca_commit_drop(s, last);
		s->dropped_commits++;
		engine->stats.snapshots_dropped++;
	}
	return engine->memory_available > need;
}

void furca_commit_make(struct furca_session *s, bool force)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (!s->live || s->live->dead || s->attached)
		return;
	furca_read_unpark(s); /* it is of an earlier state */
	if (!force && (s->engine->config.snapshots == FURCA_SNAPSHOT_OFF || !there_is_room(s)))
		return;
	struct furca_commit *commit = furca_commit_new(s, s->live, NULL, &err);
	if (commit)
		furca_commit_push(s, commit);
	else {
		furca_log_err("engine", "snapshot", &err);
		note_unkept(s, s->version, &err);
	}
}

void furca_commit_again(struct furca_session *s)
{
	if (s->unkept == 0 || s->unkept != s->version || furca_commit_waits(s))
		return;
	s->kept_again = s->unkept;
	s->unkept = 0;
	furca_commit_make(s, false);
}

unsigned furca_commit_depth(const struct furca_session *s)
{
	unsigned n = 0;

	for (const struct furca_commit *c = s->top; c; c = c->below)
		n += c->version < s->version;
	return n;
}
