/*
 * One process image of a language: a zygote started by the surface init, or a clone of another host. Owns its control channel, its
 * capability socket with the lanes that came over it, and knows how it ended. A host that is let go of is killed; the object
 * stays until its end was seen, so that the engine can say when nothing is left.
 */
#pragma once

#include "bridge/wire/host.h"
#include "engine/init_link.h"
#include "langs/lang.h"
#include "snapshot/clone.h"

struct furca_host;
struct furca_lanes;

struct furca_host_events {
	void (*ready)(void *owner, struct furca_host *host);
	/* The call in the frame has ended. `body` is DONE's map, borrowed; `memory` that of its result's arrays, taken or left to be closed. */
	void (*done)(void *owner, struct furca_host *host, uint64_t call, struct furca_view body,
		     struct furca_fd *memory);
	/* Which pages the call took, told after `done`. `body` as WARM's pages, borrowed. */
	void (*pages)(void *owner, struct furca_host *host, struct furca_view body);
	/* The process has ended (host->status says how). Called once. */
	void (*dead)(void *owner, struct furca_host *host);
};

/*
 * The answer to a CLONE, exactly once and never from within furca_host_clone: `body` is CLONED's map; with err the clone is not
 * there and the host object given out is dead (its `dead` event does not come).
 */
typedef void furca_cloned_fn(void *owner, struct furca_host *clone, struct furca_view body,
			     const struct furca_err *err);

/* INSPECTED's map; empty with err. */
typedef void furca_inspected_fn(void *owner, struct furca_view body, const struct furca_err *err);

struct furca_host {
	struct furca_engine *engine;
	struct furca_host *next, **prev; /* of the engine's list */
	const struct furca_lang *lang;
	uint64_t venv;		/* 0: the own interpreter */
	int role;		/* enum furca_clone_role; 0: a zygote */
	struct furca_proc proc; /* empty until it has started */
	struct furca_stream control;
	struct furca_lanes *lanes;
	struct furca_init *cell;	    /* it lives in, or NULL: at the surface */
	struct furca_cgroup *cgroup;	    /* it is bounded by, with its clones; or NULL */
	uint64_t memory_limit, memory_peak; /* watched where there is no control group (watch.h); 0: not */
	unsigned over_looks;		    /* in a row, that found it over */
	bool over_memory;		    /* and ended for that */
	uint64_t tag;			    /* its processes carry (limits.h); 0: not yet */
	bool attached;			    /* a process that the engine has not started: it is let go, never killed */
	bool ready, dead, dropped, kill_when_known;
	bool outside;	 /* of the cell that was meant for it: `cell` is that of its origin */
	bool ending;	 /* its end is being told: freed when all have heard */
	bool gives_back; /* its cell, which is as good as new, goes to the pool when it has ended */
	bool spare;	 /* waits for a stateless call (stateless.h) */
	bool severed;	 /* ended by us: it lived on without its channel, which its code had closed or spoiled */
	bool unread;	 /* ended before it read the last message sent to it */
	int status;	 /* once dead: as waitpid, or -1 where it is not known */
	uint64_t cpu_us, max_rss;
	struct furca_fd errors; /* zygote: what it said on descriptor 2 */
	furca_op_id pid_op, late_op, kill_op, stuck_op;
	struct furca_host_request *first, **last;
	const struct furca_host_events *events;
	void *owner;
};

/* Starts a zygote. NULL with *err. events->ready or ->dead follows. */
struct furca_host *furca_host_spawn(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
				    const char *env_dir, const struct furca_host_events *events, void *owner,
				    struct furca_err *err);

/*
 * Takes a process that is not the engine's for a host, by the channel that it has made (handed over). NULL with *err: it is in another pid namespace,
 * or another user's. Messages may be sent to it at once; events->dead follows when it lets go or ends.
 */
struct furca_host *furca_host_attach(struct furca_engine *engine, const struct furca_lang *lang,
				     struct furca_fd channel, const struct furca_host_events *events, void *owner,
				     struct furca_err *err);

struct furca_host_clone {
	enum furca_clone_role role;
	unsigned barriers, required;
	bool hot;  /* a session's snapshot: the session takes the page faults of its next call in advance */
	bool huge; /* and may use memory to join huge pages again */
	struct furca_init *cell; /* referenced by the new host; NULL: none */
	uint64_t tag;
	const char *label;
	furca_cloned_fn *cloned;
	const struct furca_host_events *events;
	void *owner;
};

/*
 * Asks `from` for a clone and gives out its host at once: messages may be sent to it before it stands. NULL where that is
 * impossible at once (`from` is dead, no memory, no descriptors).
 */
struct furca_host *furca_host_clone(struct furca_host *from, const struct furca_host_clone *args,
				    struct furca_err *err);

/* The init that makes cells for clones of that host. */
struct furca_init *furca_host_init_of(const struct furca_host *host);

/* Sends a frame with its descriptors (handed over). 0 or -errno. */
int furca_host_send(struct furca_host *host, struct furca_buf *frame, struct furca_fd *fds, size_t n_fds);

/* INSPECT; `name` may be NULL. 0 or -errno (fn is not called then). */
int furca_host_inspect(struct furca_host *host, const char *detail, const char *name, furca_inspected_fn *fn,
		       void *owner);

/* A frame without fields: PROMOTE, CLOSE. PROMOTE makes `ready` come again. 0 or -errno. */
int furca_host_tell(struct furca_host *host, enum furca_frame frame);

/* SIGKILL, now or as soon as it is known. One that attached itself is let go instead. `dead` still comes. */
void furca_host_kill(struct furca_host *host);

/* The same, with all that runs in its cell if that is its own. */
void furca_host_kill_all(struct furca_host *host);

/* The interrupt, for the call of that frame and no other (bridge/wire/host.h). 0 or -errno; -ESRCH where it is not there. */
int furca_host_interrupt(struct furca_host *host, uint64_t frame);

/* Lets go: killed, or soon where it lingers; no more events. Accepts NULL. */
void furca_host_drop(struct furca_host *host);

/*
 * Whether it can do nothing that is seen when it is not wanted any more: a snapshot, which runs no code, and a copy in a cell. Ending a process takes the kernel as
 * long as many a call, and one that is killed runs at once; so these are killed when the answers of the moment are with their clients.
 */
bool furca_host_lingers(const struct furca_host *host);

/* Its requests from that owner are forgotten. */
void furca_host_forget(struct furca_host *host, void *owner);

/* From the surface init: a child has ended. */
void furca_host_exited(struct furca_engine *engine, uint64_t pid, int status, uint64_t cpu_us, uint64_t max_rss);
