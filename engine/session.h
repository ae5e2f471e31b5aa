/*
 * A session: its queue of calls, its live host, its commits (the snapshots that stand for the states after earlier calls) and the copy
 * parked ahead for the next read.
 *
 * The life of a stateful call here: it waits for its turn; the live host runs it; it is answered; then, if it changed something, the host is
 * cloned into a new commit while the agent thinks. When the live host dies, the newest commit is promoted.
 */
#pragma once

#include "engine/call.h"
#include "engine/prefetch.h"
#include "engine/registry.h"
#include "engine/retire.h"
#include "engine/session_state.h"

/* A state that can be gone back to. */
struct furca_commit {
	struct furca_session *session;
	struct furca_commit *below;
	struct furca_host *host;  /* a parked snapshot; NULL: the pristine state, had from the zygote */
	bool standing;		  /* the snapshot is there; until then it is under way */
	uint64_t version;	  /* calls that changed something, up to it */
	uint64_t calls;		  /* calls of the session, for words */
	char *label;		  /* of checkpoint: then it stands apart from the stack */
	struct furca_call *call;  /* operation that waits for it to stand */
	struct furca_init *asked; /* for its cell; until that is there, nothing has been cloned */
	struct furca_host *from;  /* what is to be cloned then; NULL: it has gone */
};

struct furca_session {
	struct furca_entry entry;
	struct furca_engine *engine;
	uint64_t owner; /* of handles that its code is given */
	struct furca_session *next_closing;
	enum furca_session_state state;
	struct furca_launch *launch; /* while a process is made; holds the environment for life */
	struct furca_host *live;
	struct furca_call *running;	  /* the stateful call or operation under way */
	struct furca_call *first, **last; /* queue */
	unsigned queued;
	uint64_t asked; /* so many calls and operations, whatever became of them */
	bool pumping, pump_again;
	furca_client_id ran_for; /* whose execute ran last */
	uint64_t ran_msgid;	 /* and its number */

	struct furca_commit *top; /* newest first; the last is the pristine one unless it was dropped */
	unsigned commits;
	struct furca_commit *labelled; /* checkpoints */
	bool env_held;		       /* by a branch, which was not launched */
	uint64_t version;	       /* of the live state */
	uint64_t unkept,
		kept_again; /* the version whose snapshot failed, and the one that was tried once more; 0: none */
	struct furca_err why_unkept;
	bool foreseen,
		unkeepable; /* of the last change: its host said that it hinders a snapshot; else: the snapshot failed */
	struct furca_host *parked; /* a copy of `top`, waiting for a read */
	bool parked_ready;
	unsigned parked_held;	      /* barriers it was made with */
	struct furca_init *park_init; /* asked for its cell */
	furca_op_id park_op;
	struct furca_buf parked_isolation;
	struct furca_prefetch prefetch; /* what parked copies are to have beforehand */
	struct furca_retired retired;	/* the copy that answered last, if it lives still */
	unsigned start_attempts;
	bool repaired; /* the next answer says `retried` */
	bool ever_live;
	bool attached;	       /* its process is not the engine's: no commits, and it ends with it */
	struct furca_buf note; /* words that are due in the next answer: what was lost meanwhile */
	const char *
		behind; /* what became of the state then, where the next call must not run unaware: its `state`; else NULL */
	uint64_t dropped_commits; /* for want of room */

	struct furca_background background;
	furca_op_id restore_op, close_op, pump_op;
	struct furca_call *recovering; /* its answer waits for the restore */
	uint64_t calls;
	double created_at, used_at, noted_at;
	struct furca_limits limits;
	bool has_limits;
	void (*closed)(void *owner);
	void *closed_owner;
};

static inline struct furca_session *furca_session_of(struct furca_entry *entry)
{
	return furca_container_of(entry, struct furca_session, entry);
}

/* Makes and registers a session. NULL with *err. */
struct furca_session *furca_session_new(struct furca_engine *engine, const struct furca_key *key,
					struct furca_err *err);

/* A session that begins with a process of its own, made elsewhere (a branch). Idle at once when `live` has been told to stand. */
void furca_session_adopt(struct furca_session *session, struct furca_host *live);

/*
 * A session that is a process which runs already: of the selector's name with a new id, or session 0. NULL with *err: it exists, or that process cannot
 * be had. `channel` as furca_host_attach.
 */
struct furca_session *furca_session_attach(struct furca_engine *engine, const struct furca_selector *selector,
					   struct furca_fd channel, struct furca_err *err);

/* Puts a call into its queue and looks what can run. -errno where the queue is full. */
int furca_session_enqueue(struct furca_session *session, struct furca_call *call, struct furca_err *err);

/* A call of its queue is ended from outside, before it began. */
void furca_session_unqueue(struct furca_session *session, struct furca_call *call);

/* Looks what can run now. Later, from the loop. */
void furca_session_wake(struct furca_session *session);

/*
 * Ends it: out of the registry at once, calls that wait are ended, the process gets the chance to end in order. `closed` is called when
 * nothing of it is left; never from within.
 */
void furca_session_close(struct furca_session *session, void (*closed)(void *owner), void *owner);

/* Closes one that came of nothing: its number goes to the next. */
void furca_session_undo(struct furca_session *session);

/* One that is closing and whose process has ended. */
void furca_session_free(struct furca_session *session);

/* Runs a step of its state machine. */
void furca_session_step(struct furca_session *session, enum furca_session_event event);

/* The live process has died or is to be replaced by its newest commit (or by a pristine one). `call`: waits for the outcome, or NULL. */
void furca_session_restore(struct furca_session *session, struct furca_call *call);

/* A host event: a snapshot that was told to become the live process is one. */
void furca_session_snapshot_ready(void *owner, struct furca_host *host);

/* Commits (commit.c). */
void furca_commit_pristine(struct furca_session *session);
/* `force`: also where the policy says no. */
void furca_commit_make(struct furca_session *session, bool force);
/* Once more, where the snapshot of the present state failed, and once only. */
void furca_commit_again(struct furca_session *session);
/* Whether the newest commit waits for its cell: the live process must not go on before it was cloned. */
bool furca_commit_waits(const struct furca_session *session);
/* The newest commit's host has become the live one. */
void furca_commit_promoted(struct furca_session *session);
void furca_commit_drop_all(struct furca_session *session);
void furca_commit_drop(struct furca_session *session, struct furca_commit *commit);
/*
 * Begins a snapshot of `from` and gives its commit, which is not linked yet: to be pushed, or kept apart, or freed. NULL with *err. Nothing is cloned before
 * its cell is there, which takes a moment where none is pooled (furca_commit_waits). `call`: an operation that waits for it, or NULL.
 */
struct furca_commit *furca_commit_new(struct furca_session *session, struct furca_host *from, struct furca_call *call,
				      struct furca_err *err);
/* It is the newest; those beyond the depth of undo are dropped. */
void furca_commit_push(struct furca_session *session, struct furca_commit *commit);
void furca_commit_free(struct furca_commit *commit);
/* The number of steps undo can go back. */
unsigned furca_commit_depth(const struct furca_session *session);

/* What a copy is to be made of now, or NULL: not yet. */
struct furca_host *furca_read_source(const struct furca_session *session);
/* Reads (read.c): starts it if there is something to read from now. True where it was taken from the queue. */
bool furca_read_start(struct furca_session *session, struct furca_call *call, bool first_in_queue);
/* Makes a parked copy of the newest commit, if there is to be one and there is none. */
void furca_read_park(struct furca_session *session);
void furca_read_unpark(struct furca_session *session);

/* The call ends: what it had asked for a read is let go. */
void furca_read_forget(struct furca_call *call);
/* Answers a call in its LISTING phase without what it waits for, which does not come in time. Frees it. */
void furca_read_give_up(struct furca_call *call);
/* The session is closing: reads under way are ended. */
void furca_read_detach(struct furca_session *session);

/* How a session's live host reports; for a promoted or branched host too. */
extern const struct furca_host_events furca_session_host_events;
