/*
 * The clone's side of furca_clone: from its first instruction, on a scratch stack and alone, to the moment when all its
 * threads exist and may run. And the page on which it tells the caller how far it got.
 *
 * Everything here is raw calls only.
 */
#pragma once

#include <linux/sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "snapshot/barriers.h"
#include "snapshot/clone.h"
#include "snapshot/thread.h"

/* How far a clone got, in words for the caller: STEP(NAME, what failed) */
#define FURCA_BORN_STEPS(STEP)                                                                                         \
	STEP(START, "start")                                                                                           \
	STEP(ENTER, "enter the cell")                                                                                  \
	STEP(MEMORY, "have all of its original's memory")                                                              \
	STEP(BARRIERS, "put up the barriers")                                                                          \
	STEP(OFFSETS, "note the positions of open files")                                                              \
	STEP(THREADS, "make a thread again")                                                                           \
	STEP(SEAL, "drop the privileges")                                                                              \
	STEP(COMPLETE, "be completed")                                                                                 \
	STEP(DONE, "done")

enum furca_born_step {
#define STEP(name, what) FURCA_BORN_##name,
	FURCA_BORN_STEPS(STEP)
#undef STEP
};

/* One page, shared by the caller and the clone until the clone is complete. */
struct furca_born_page {
	uint32_t cut;	   /* futex: 1, nothing that the clone does now touches the caller's descriptors and mappings */
	uint32_t complete; /* futex: 1, all threads are there and run; 2, failed */
	int32_t step, sys; /* of the failure */
	int32_t tid;	   /* the thread it failed at */
	uint32_t threads, parked;
	uint64_t pages; /* mapped by the original, but for what clones get anew (furca_clone_blank); 0: not known */
	int64_t born_us, cut_us, complete_us;
	struct furca_barriers_result barriers;
};

/* The clone in the making: set by the caller, carried along by its memory. One at a time. */
struct furca_born {
	const struct furca_clone_args *args;
	struct furca_barriers *plan;
	struct furca_born_page *page;
	struct furca_thread *caller; /* whose state the first task has */
	pid_t leader;		     /* number of the main thread in the caller's process */
	enum furca_clone_way way;
	bool keep_tids;
	bool joins;		 /* the clone enters the cell itself (furca_barriers_join) */
	uint32_t back, expected; /* futex: threads that have come back */
};

extern struct furca_born furca_born;

/* Entry of the first task; does not return. */
void furca_born_first(void *unused);

/* Entry of the only task of a clone made by libc's fork; does not return. */
void furca_born_forked(void);

/* How that thread, which is not the caller's, is to be parked in the clone: enum furca_thread_parked. */
uint32_t furca_born_parking(const struct furca_thread *thread);

/* On a thread that has been made again (furca_freeze_reborn_fn). */
void furca_born_thread(struct furca_thread *thread);

/* On the caller's thread in the clone, which goes on in furca_clone: waits for the others, seals, opens the gate, tells. */
void furca_born_complete(void);

/* Robust list of the calling thread while it is not registered, in a snapshot that has not been promoted. */
extern struct furca_thread furca_born_unpromoted;
