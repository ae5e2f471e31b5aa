/*
 * The barriers around a clone: what cuts a copy off from the rest of the machine. This is the seam between snapshot/clone.c,
 * which makes the clone, and the modules that put the barriers up (cell, fds, memory, privileges).
 *
 * The order of one clone:
 *   furca_barriers_plan      in the caller, before anything is stopped: allocates, opens, compiles
 *   furca_barriers_census    in the caller, while its other threads stand still: lists descriptors; raw calls only
 *   furca_barriers_enter     in the task that makes the clone (it shares the caller's memory, but neither CLONE_FS nor
 *                            CLONE_THREAD with it, and is single-threaded): joins the cell; raw calls only
 *   or furca_barriers_lend   in the caller, right before the clone, furca_barriers_take_back right after it, and furca_barriers_join first
 *                            of all in the clone; raw calls only
 *   furca_barriers_apply     in the clone on its only thread, before the caller's threads run again; raw calls only
 *   furca_barriers_lower     in the clone on its only thread, while the caller's threads run again; raw calls only
 *   furca_barriers_seal_thread   in each re-created thread before it returns to its code; raw calls only
 *   furca_barriers_seal      last, in the clone on the thread that called apply, when all its threads exist (they may be
 *                            waiting at a gate): what would have kept threads from being made with chosen numbers
 *   furca_barriers_free      in the caller and in the clone, when malloc is allowed again
 *
 * apply, lower and seal write how far they got to a struct furca_barriers_result, which is plain data without pointers: the clone
 * side passes it back through its shared page or pipe. "Raw calls only" means: no malloc, no lock, no errno, no TLS.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "snapshot/clone.h"

/* Notes where this process begins: once, before it runs code of others. */
void furca_barriers_init(void);

/* A step, so that a failure in the clone can be told by the caller: STAGE(NAME, what it does) */
#define FURCA_BARRIERS_STAGES(STAGE)                                                                                   \
	STAGE(NONE, "nothing yet")                                                                                     \
	STAGE(CENSUS, "list the open descriptors")                                                                     \
	STAGE(ENTER, "enter the cell")                                                                                 \
	STAGE(SESSION, "leave the process group")                                                                      \
	STAGE(CWD, "find the working directory inside the cell")                                                       \
	STAGE(DROP, "close the descriptors of the original")                                                           \
	STAGE(FDS, "make the descriptors private")                                                                     \
	STAGE(MEMORY, "make the shared mappings private")                                                              \
	STAGE(PRIVILEGES, "drop the privileges")                                                                       \
	STAGE(LANDLOCK, "put up the Landlock rules")                                                                   \
	STAGE(FILTER, "load the system call filter")                                                                   \
	STAGE(DONE, "done")

enum furca_barriers_stage {
#define STAGE(name, what) FURCA_STAGE_##name,
	FURCA_BARRIERS_STAGES(STAGE)
#undef STAGE
};

/* What holds a barrier: MECHANISM(NAME, the word in `isolation`) */
#define FURCA_MECHANISMS(MECHANISM)                                                                                    \
	MECHANISM(NONE, "none")                                                                                        \
	MECHANISM(CLONE, "clone")                                                                                      \
	MECHANISM(PRIVATE_MAPPINGS, "clone, private mappings")                                                         \
	MECHANISM(PRIVATE_DESCRIPTORS, "private descriptions")                                                         \
	MECHANISM(OVERLAY, "overlayfs")                                                                                \
	MECHANISM(READ_ONLY_BINDS, "read-only mounts")                                                                 \
	MECHANISM(LANDLOCK, "landlock")                                                                                \
	MECHANISM(PID_NAMESPACE, "pid namespace")                                                                      \
	MECHANISM(SCOPE, "landlock scope, seccomp")                                                                    \
	MECHANISM(IPC_NAMESPACE, "ipc namespace")                                                                      \
	MECHANISM(SECCOMP, "seccomp")                                                                                  \
	MECHANISM(NET_NAMESPACE, "net namespace")                                                                      \
	MECHANISM(CAPABILITIES, "no capabilities, seccomp")

enum furca_mechanism {
#define MECHANISM(name, word) FURCA_MECHANISM_##name,
	FURCA_MECHANISMS(MECHANISM)
#undef MECHANISM
};

/* Static texts, never NULL. */
const char *furca_barriers_stage_text(int stage);
const char *furca_mechanism_word(int mechanism);

/* The outcome, filled by apply, lower and seal; all zero before. */
struct furca_barriers_result {
	int32_t stage;			   /* enum furca_barriers_stage: the step that failed, or DONE */
	int32_t sys;			   /* errno of the failed step, 0: none */
	uint32_t held;			   /* bits of enum furca_barrier that hold (THREADS is the clone side's) */
	uint8_t mechanism[FURCA_BARRIERS]; /* enum furca_mechanism for each bit number */
	uint32_t buried, copied;	   /* descriptors cut off; descriptors or mappings whose content was copied */
};

struct furca_barriers_args {
	unsigned barriers, required; /* as struct furca_clone_args */
	int cell; /* borrowed: pidfd of a cell's init, or -1: no namespaces, the weaker barriers of this process */
	const struct furca_namespaces *namespaces; /* as struct furca_clone_args */
	const int *keep;			   /* descriptors kept as they are */
	size_t n_keep;
	const int *drop; /* descriptors closed */
	size_t n_drop;
	bool standing;	    /* a snapshot: its descriptors may not keep alive what the session closes (see fds.h) */
	const void *shared; /* a shared mapping to be left alone (the clone's status page), or NULL */
	size_t shared_size;
};

struct furca_barriers; /* a plan */

/*
 * Plans the barriers of one clone. *ret is freed with furca_barriers_free, in both processes. 0, or -errno with *err: a barrier of
 * `required` cannot be had here (FURCA_E_ISOLATION), or the machine is out of something. With barriers 0 the plan only drops
 * descriptors. A plan opens descriptors of its own at high numbers; the clone loses them in apply.
 */
int furca_barriers_plan(const struct furca_barriers_args *args, struct furca_barriers **ret, struct furca_err *err);

/* Lists descriptors; the caller's threads must not run between this and the clone. 0 or -errno. */
int furca_barriers_census(struct furca_barriers *plan);

/*
 * True where enter joins another pid namespace: its next child can be given any free number (set_tid), which needs
 * the capabilities that apply leaves until seal.
 */
bool furca_barriers_new_pids(const struct furca_barriers *plan);

/* Joins the cell's namespaces. 0 or -errno; always 0 without a cell. The task must end (_exit) afterwards, in any case. */
int furca_barriers_enter(struct furca_barriers *plan);

/*
 * The caller's next child is born in the cell's pid namespace, so the caller can make the clone itself: no task has to be made that
 * enters the cell first. Of a live process's namespaces nothing else may change, and this only until furca_barriers_take_back, for it can
 * make no thread meanwhile. 0, or -errno and nothing has changed: a user namespace has to be entered first (-EINVAL), or the way back is
 * barred or unknown. With all signals blocked.
 */
int furca_barriers_lend(struct furca_barriers *plan);

/* Undoes furca_barriers_lend. Where the kernel has no memory for that for a second, the process ends: it could make no thread any more. */
void furca_barriers_take_back(struct furca_barriers *plan);

/* In a clone that was made between the two: joins the rest of the cell's namespaces. 0 or -errno, and the clone must _exit. */
int furca_barriers_join(struct furca_barriers *plan);

/*
 * Cuts the clone off from the original: new session id, cwd inside the cell, descriptors, mappings. `keep` descriptors live on, the
 * plan's are gone. 0 or -errno, *ret says where; on failure the clone must _exit (a barrier in `required` could not be put
 * up). Takes 0.1 to 1 ms.
 */
int furca_barriers_apply(struct furca_barriers *plan, struct furca_barriers_result *ret);

/* Takes privileges, all but the capability to choose the numbers of new threads; Landlock. As apply. */
int furca_barriers_lower(struct furca_barriers *plan, struct furca_barriers_result *ret);

/* Drops the capabilities of the calling thread (they are each thread's own). 0 or -errno: the clone must _exit. */
int furca_barriers_seal_thread(const struct furca_barriers *plan);

/* Drops the caller's capabilities and loads the system call filter for all threads. As apply. Completes *ret. */
int furca_barriers_seal(const struct furca_barriers *plan, struct furca_barriers_result *ret);

/* Turns a result that stopped short into words, with what to do about it. Returns -errno. Anywhere but in raw sections. */
int furca_barriers_fail(const struct furca_barriers *plan, const struct furca_barriers_result *result,
			struct furca_err *err);

void furca_barriers_free(struct furca_barriers *plan);
