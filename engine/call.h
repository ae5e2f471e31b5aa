/*
 * One request that takes time: an execute or call_function, or an operation on a session (inspect, undo, …). Owns its arguments, its
 * deadline, its output and its answer; the host that runs it belongs to it where it is thrown away afterwards.
 */
#pragma once

#include "engine/coordinate.h"
#include "engine/done.h"
#include "engine/engine.h"
#include "engine/host_proc.h"
#include "engine/launch.h"
#include "engine/output.h"
#include "engine/pipes.h"

struct furca_session;

enum furca_call_phase {
	FURCA_CALL_WAITING,  /* in a session's queue, or for an environment, a zygote, a clone */
	FURCA_CALL_RUNNING,  /* RUN was sent */
	FURCA_CALL_LISTING,  /* read-only: the code has ended, what it wrote is being listed */
	FURCA_CALL_RECOVERY, /* its process has died; the answer waits for what becomes of the session */
	FURCA_CALL_ENDED,
};

/* Why a call is being stopped from outside. */
enum furca_stop { FURCA_STOP_NONE, FURCA_STOP_TIMEOUT, FURCA_STOP_CANCEL, FURCA_STOP_CLOSE };

struct furca_call {
	struct furca_engine *engine;
	struct furca_call *next, **prev; /* of the engine's list */
	struct furca_call *queue_next;	 /* in the session's queue */
	enum furca_method method;
	furca_client_id client;
	uint64_t msgid, origin; /* origin: of a function's call from a lane; then client and msgid are its call's */
	struct furca_buf args;	/* the request's bytes; the plan's views point here */
	struct furca_buf function, received, allowed;
	struct furca_buf
		frames; /* NUL-less text: what a reader of arrays in its result has; empty: there may be none */
	struct furca_fd memory, result_memory; /* of arrays in `function`, and in the result */
	struct furca_plan plan;
	struct furca_selector selector;
	struct furca_buf word; /* selector.word with a NUL */

	enum furca_call_phase phase;
	struct furca_session *session;
	struct furca_launch *launch;
	struct furca_host *host;     /* that runs it */
	bool own_host;		     /* and is thrown away with it */
	bool committed_first;	     /* a commit to roll it back to was made, or tried */
	struct furca_init *cell;     /* for its copy; one reference */
	struct furca_init *asked_of; /* the init that was asked for that cell */
	bool waits_copy;	     /* its cell is being made */
	bool no_cell;		     /* there is none to be had */
	uint64_t frame;		     /* number of its RUN */
	struct furca_pipes *pipes;
	uint64_t newest; /* process when it began */
	struct furca_output output[2];
	uint64_t output_id; /* under which it is kept; 0: it is not */
	struct furca_buf background;

	furca_op_id deadline_op, grace_op;
	furca_op_id nested_op; /* looks whether it waits for itself (nested.h) */
	uint64_t nested_on;    /* the capability call that was open when it came */
	int64_t deadline_us;
	enum furca_stop stop;
	bool began;	  /* RUN was sent */
	bool interrupted; /* the interrupt was sent */
	bool killed;	  /* we ended its process */
	bool harmless; /* called from a read-only call: capabilities that write are refused, a stateless one gets a cell */
	bool orphan;	/* the code that called it has gone */
	unsigned depth; /* calls that wait for this one, over lanes */
	bool client_gone, created, retried, rolled_back;
	bool bound;   /* it gave its session one more name */
	uint64_t nth; /* of those that its session was asked for */
	bool refused; /* by its host: no code ran, and nothing has changed */
	unsigned attempts;

	int64_t asked_us, started_us, asked_clone_us, ran_us;
	uint64_t queue_us, fork_us, isolate_us, run_us;
	struct furca_buf done;	    /* DONE's map */
	struct furca_done said;	    /* what is in it */
	struct furca_buf isolation; /* packed map, of a copy */
	struct furca_buf files;	    /* CHANGED's map */
	struct furca_buf signalled; /* furca_limits_signal_children's, of its interrupt */
	const char *error_type;	    /* NULL: none */
	struct furca_buf error, suggestion;
	const char *state; /* word of the result map */
};

/* Begins an execute or call_function. `function` may be empty. `args` as the request; refusals are answered at once. */
struct furca_call_request {
	enum furca_method method;
	furca_client_id client;
	uint64_t msgid, origin;
	struct furca_view args, function, received;
	struct furca_view frames; /* RUN's; empty: none */
	struct furca_fd *memory;  /* of arrays in `function`: taken; NULL: none */
	const char *capabilities; /* JSON list or NULL */
	struct furca_view within
		[2]; /* the caller's own bounds: packed arrays, empty where there is none. What it may call is in all three */
	int64_t deadline_us; /* of the call it belongs to; FURCA_NEVER */
	bool harmless;	     /* it is called from a read-only call */
	unsigned depth;	     /* of calls of stored functions */
};
void furca_call_begin(struct furca_engine *engine, const struct furca_call_request *request);

/* Begins an operation on a session. Its arguments are checked already. */
void furca_call_operation(struct furca_engine *engine, enum furca_method method, furca_client_id client, uint64_t msgid,
			  struct furca_view args, struct furca_session *session);

/* Not an execute or call_function: inspect_session, undo, checkpoint, restore, branch_session. */
bool furca_call_is_operation(const struct furca_call *call);

/* An operation's time from its beginning: a process that runs bounds what it is asked for to less. */
#define FURCA_OPERATION_US 30000000

/* It has that long from now on, or the default time where that is less. */
void furca_call_bound(struct furca_call *call, int64_t us);

/* True where such an execute was under way; it is interrupted. */
bool furca_call_cancel(struct furca_engine *engine, furca_client_id client, uint64_t msgid);
void furca_calls_client_gone(struct furca_engine *engine, furca_client_id client);

/* Sends RUN to call->host. On failure the host is as good as dead: -errno, and its end will be told. */
int furca_call_run(struct furca_call *call);

/* DONE has come from its host. To be heard before either of the two below. */
void furca_call_hear(struct furca_call *call, struct furca_view body);

/*
 * Whether the host would not go on with the last call's pipes, because something happened between the calls; then new ones are on their
 * way to it. To be asked before furca_call_done.
 */
bool furca_call_wants_pipes(struct furca_call *call);

/* Its code has ended; perhaps with a `memory` (taken). Takes output in; the session decides what follows. */
void furca_call_done(struct furca_call *call, struct furca_fd *memory);

/* Its host has ended instead: error, error_type and words. `host` says how. */
void furca_call_died(struct furca_call *call, const struct furca_host *host);

/* The words for either (call_judge.c). */
void furca_call_judge(struct furca_call *call);
void furca_call_judge_end(struct furca_call *call, const struct furca_host *host);

/* Notes a failure (first wins). */
void furca_call_fail(struct furca_call *call, const char *error_type, const char *suggestion, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void furca_call_fail_err(struct furca_call *call, const struct furca_err *err);
/* Puts lines of text below the error. */
void furca_call_lines(struct furca_call *call, const char *lines);
/* Begins one more sentence of the suggestion: where to write it. */
struct furca_buf *furca_call_suggest(struct furca_call *call);
/* Adds a sentence to the error. */
void furca_call_add(struct furca_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Answers with the result map and frees. */
void furca_call_finish(struct furca_call *call);
/* Answers an operation with a packed value and frees. */
void furca_call_answer(struct furca_call *call, const struct furca_buf *value);
/* Answers with a refusal and frees. */
void furca_call_refuse(struct furca_call *call, const struct furca_err *err);

/* Stops it: interrupts what runs, ends what waits. */
void furca_call_stop(struct furca_call *call, enum furca_stop why);

/* Packs the result map (result.c). */
void furca_result_pack(struct furca_call *call, struct furca_buf *out);
/* A refusal, as every method gives it. */
void furca_result_refusal(struct furca_view args, const struct furca_plan *plan, const struct furca_err *err,
			  bool execute, struct furca_buf *out);
/* {language, venv_id, session_id, session_name}, or nil */
void furca_result_session(msgpack_packer *pk, const struct furca_entry *entry);

/* Output of ended calls, kept for read_output (kept.c): gives the call's a number, if it is to be kept; then takes it out of the call. */
void furca_kept_number(struct furca_engine *engine, struct furca_call *call);
void furca_kept_add(struct furca_engine *engine, struct furca_call *call);
void furca_kept_client_gone(struct furca_engine *engine, furca_client_id client);
void furca_kept_free(struct furca_engine *engine);
/* The answer of read_output. */
void furca_kept_read(struct furca_engine *engine, furca_client_id client, const struct furca_selector *selector,
		     struct furca_view args, struct furca_buf *out);
