/*
 * The engine's end of an init process (snapshot/init.h): asks it for programs, cells and lists of changes, and hears of exits.
 * There is one at the surface; each cell has one too.
 */
#pragma once

#include "base/proc.h"
#include "bridge/wire/init.h"
#include "engine/stream.h"
#include "snapshot/clone.h"
#include "snapshot/upper.h"

struct furca_engine;
struct furca_init;

/* Exactly one of each pair is called for each request, never from within the request. `err` says why not. */
typedef void furca_spawned_fn(void *owner, struct furca_proc proc, const struct furca_err *err);
/* The cell is handed over (NULL with err); `held` are bits of enum furca_barrier. */
typedef void furca_cell_fn(void *owner, struct furca_init *cell, const struct furca_err *err);
/* `body` is CHANGED's map, empty with err. Borrowed. */
typedef void furca_changed_fn(void *owner, struct furca_view body, const struct furca_err *err);

struct furca_init {
	struct furca_engine *engine;
	struct furca_stream control;
	struct furca_proc proc;
	struct furca_init *parent; /* whose pid namespace it lies in; NULL at the surface */
	unsigned refs;		   /* holders, and cells inside */
	unsigned depth;		   /* of pid namespaces below the surface */
	unsigned held;
	struct furca_namespaces namespaces; /* that it has; all 0 at the surface */
	bool lived_in;			    /* a user's code ran in it, or could have */
	struct furca_fd mounts;	  /* its mountinfo, where a cell was made of what is mounted here; else none */
	uint64_t mounts_changed;  /* how often that has been seen to have changed */
	uint64_t mounts_at;	  /* mounts_changed of its parent when it was asked for */
	struct furca_upper upper; /* of all that is written in it; no top: it has not said */
	uint64_t mark;		  /* of that, while nothing is */
	struct furca_init_request *first, **last;
	/* A process ended whose parent is this init; status as waitpid. */
	void (*exited)(void *owner, uint64_t pid, int status, uint64_t cpu_us, uint64_t max_rss);
	void (*gone)(void *owner); /* the init itself has ended */
	void *owner;
};

/* Takes over a started init. refs is 1. NULL: no memory (both are closed then). */
struct furca_init *furca_init_link(struct furca_engine *engine, struct furca_proc proc, struct furca_fd control);

struct furca_init *furca_init_ref(struct furca_init *init);
/* The last one kills it (and with it all inside), fails what was asked and frees. Accepts NULL. */
void furca_init_unref(struct furca_init *init);

/* descriptors (control, capability, stderr) are handed over, also on failure. 0 or -errno (then nothing is called). */
int furca_init_spawn(struct furca_init *init, char *const *argv, char *const *env, const char *cwd,
		     struct furca_fd fds[3], furca_spawned_fn *fn, void *owner);

int furca_init_cell(struct furca_init *init, unsigned namespaces, bool network, uint64_t upper_bytes, uint64_t keep_pid,
		    furca_cell_fn *fn, void *owner);

int furca_init_changes(struct furca_init *cell, uint64_t max, furca_changed_fn *fn, void *owner);

/* Whether nothing has been written in the cell since it was made. False where that is not known. */
bool furca_init_untouched(const struct furca_init *cell);

/* Whether what is mounted where it was made is what was when it was asked for: a cell made ahead shows what it found then. */
bool furca_init_is_current(const struct furca_init *cell);

/* Forgets requests of that owner: their functions are not called; cells and programs that come are ended. */
void furca_init_forget(struct furca_init *init, void *owner);
