/*
 * The host loop, shared by languages: frames of bridge/wire/host.h come in on the control channel,
 * a table of functions that the language provides does the work, answers go out. Blocking, one
 * thread. What it does itself: channels kept out of the user's sight, each call's output pipes put
 * in place (langs/output.h), cloning (snapshot/clone.h), promotion, warming.
 *
 * A process that the user's code forks must never come back into the loop: the loop knows its own
 * process and lets any other end as soon as `run` returns there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/value.h"
#include "langs/hot.h"
#include "langs/output.h"
#include "langs/room.h"
#include "langs/upkeep.h"
#include "snapshot/clone.h"
#include "snapshot/pages.h"

/* A RUN as received. Views point into the host's buffer and live until `run` returns. */
struct furca_host_run {
	uint64_t call;
	struct furca_view code;	    /* UTF-8 */
	struct furca_view label;    /* text; may be empty */
	struct furca_view cwd;	    /* text; empty: unchanged */
	struct furca_view env;	    /* a packed map of text to text or nil; empty: none */
	struct furca_view function; /* a packed map {name, source, args, kwargs} to run instead of
				       code; empty: none */
	bool read_only;
	uint64_t faults; /* how many page faults are worth a list; UINT64_MAX: none */
	struct furca_view
		frames; /* the result may hold arrays and frames, for a reader with these versions; at NULL: it may not */
	int memory;	/* of the arrays in `function`, borrowed; -1: none */
	int output
		[2]; /* in an attached process: the call's pipes, borrowed, which descriptors 1 and 2 do not lead to; else -1 */
	uint64_t max_result, max_text; /* bytes */
};

/* How a block of code ended; what DONE carries. Zeroed before `run`; its buffers are freed by the
 * host. */
struct furca_host_done {
	const char *how; /* static: ok exception exit interrupted refused errexit fatal syntax signal exec;
			    NULL: ok */
	int exit_code;
	bool changed;		      /* false only where nothing in memory differs from before the call */
	struct furca_err hindrance;   /* why no snapshot of what changed can be made; code 0: nothing is known of */
	struct furca_buf error;	      /* UTF-8; empty: none */
	struct furca_buf suggestion;  /* UTF-8; empty: none */
	struct furca_buf raised;      /* one packed map; empty: none */
	struct furca_buf result;      /* one packed value; empty: missing */
	struct furca_buf unsent;      /* UTF-8: why it is missing, where `frames` were asked for; empty: not told */
	struct furca_fd memory;	      /* of arrays in `result`; -1: none */
	struct furca_buf result_text; /* UTF-8; empty: none */
	uint64_t result_text_cut;     /* bytes left out of it */
	struct furca_buf display;     /* one packed array of maps; empty: none */
	struct furca_buf changes;     /* one packed map; empty: none */
	bool pages;		      /* the host's: PAGES follows */
};

/* What a language provides; NULL where nothing is to be done, but for `run`. All are called on the
 * thread that serves. */
struct furca_host_lang {
	const char *language; /* "python" */
	const char *version;  /* "3.11.2" */
	bool closed_stays;    /* descriptors 1 and 2 that code has closed are not opened again for the
			      next call */

	/* Runs the code; fills *ret. May return in a forked child of the user's, which the host
	 * then ends with ret->exit_code. */
	void (*run)(void *data, const struct furca_host_run *run, struct furca_host_done *ret);

	/* Appends one packed value (the state of inspect_session) to `out`. Bounded in time. */
	void (*inspect)(void *data, struct furca_view detail, struct furca_view name, struct furca_buf *out);

	/* Around waiting for the next message; other threads of the language may run in between.
	 * Not called in a parked snapshot. */
	void (*idle_begin)(void *data);
	void (*idle_end)(void *data);
	/* A signal arrived while waiting (between idle_begin and idle_end): run what handlers of
	 * the language are due. */
	void (*idle_signal)(void *data);

	/* In a copy or a clone for a stateless call that was made ahead and has no message yet, once: do now what the first call would have to wait for, such as
	 * pages to be copied. Nothing of it may show. */
	void (*warm)(void *data);

	/* Whether code may have made what hinders a clone (furca_clone_hindered) since the session began. Called after each call: cheap. NULL: always. */
	bool (*may_hinder)(void *data);

	/* Before a clone, in the process that is cloned: flush what must not be written twice. */
	void (*clone_begin)(void *data, enum furca_clone_role role);
	/* In the clone, before its first message. The host's channels are the clone's own already.
	 */
	void (*cloned)(void *data, enum furca_clone_role role, const struct furca_clone_report *report);
	/* In the process that was cloned, whether that succeeded or not. */
	void (*clone_end)(void *data);
	/* Which threads stay parked in a COPY. Async-signal-safe. */
	furca_park_fn *park;

	/* A parked snapshot has become the live process; its threads run. */
	void (*promoted)(void *data);

	/* CLOSE: run what the language runs at an orderly end (EXIT traps). The loop then returns.
	 */
	void (*close)(void *data);
};

struct furca_host {
	const struct furca_host_lang *lang;
	void *data;
	struct furca_fd control, capability; /* at FURCA_HIDDEN_FD or above, close-on-exec */
	pid_t pid;			     /* own, as seen here; a child that the user's code forked differs */
	enum furca_clone_role role;	     /* 0: a zygote, started and not cloned */
	bool parked;			     /* a snapshot before PROMOTE */
	bool read_only;			     /* a copy */
	bool attached;	     /* a process that runs on its own, and serves when it pumps; its clones are none */
	bool gone;	     /* attached, and let go by the engine */
	bool cold;	     /* made for one call, and has not done anything yet */
	bool stirred;	     /* a signal came since the last call: its handler may have begun anything */
	unsigned generation; /* counts clones on the way here: lanes of another generation are not
				ours */
	struct furca_output output;
	struct furca_hot hot; /* a session's */
	struct furca_upkeep upkeep;
	struct furca_room room;
	struct furca_frame_reader in;
	struct furca_buf out;
};

/*
 * Takes over the channels at FURCA_HOST_CONTROL_FD and FURCA_HOST_CAPABILITY_FD, moves them out of
 * sight, prepares cloning. `lang` and `data` are borrowed for the life of the host. 0 or -errno.
 */
int furca_host_init(struct furca_host *host, const struct furca_host_lang *lang, void *data, struct furca_err *err);

/*
 * Makes the process that calls a host without disturbing it: `control` (taken) is a channel whose other end the engine has been given. Waits some
 * seconds at most for the engine's first message. 0 or -errno.
 */
int furca_host_attach(struct furca_host *host, const struct furca_host_lang *lang, void *data, struct furca_fd control,
		      struct furca_err *err);

/*
 * In an attached process: serves what the engine has sent, after waiting for it at most timeout_ms (-1: without end). Returns 1 where a
 * message was served; 0 where none came in time or the descriptor `wake` (-1: none) became readable; -EINTR; -EPIPE where the engine has
 * let go; -ESRCH in a process that the attached one forked. Clones do not return from it: they serve, and end.
 */
int furca_host_pump(struct furca_host *host, int wake, int timeout_ms);

/* Lets the engine go. */
void furca_host_detach(struct furca_host *host);

/*
 * Sends READY and serves. Returns 0 after CLOSE, in the process that was closed: the caller ends
 * the program in the language's way, status 0. Ends the process by itself (_exit) where the channel
 * closes or breaks. Clones return from here too: each is a host of its own.
 */
int furca_host_serve(struct furca_host *host);

/* Whether the calling process is the host's, and not one that the user's code forked. No system call.
 * Async-signal-safe. */
bool furca_host_is_self(const struct furca_host *host);

/*
 * Makes a lane of a kind (bridge/wire/lane.h), with its shared memory (borrowed; -1: none): *ret is its end for the caller, blocking, close-on-exec, at
 * FURCA_HIDDEN_FD or above. Thread-safe; works in forked children of the user's. 0 or -errno:
 * -EPIPE where the engine is gone.
 */
int furca_host_open_lane(const struct furca_host *host, char kind, int memory, struct furca_fd *ret,
			 struct furca_err *err);
