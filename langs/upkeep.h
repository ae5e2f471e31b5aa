/*
 * Huge pages joined again. What a session writes after a commit becomes small pages, for the snapshot has the huge one; every later clone then copies
 * 512 times as many entries of page tables there. Memory that has stopped changing is joined again while the session waits for its next call: it costs 0.5 ms
 * and a copy for each 2 MB, which snapshots share no longer, so it is worth it where many clones follow.
 *
 * It never takes longer than the clones before it took too long: the time that each snapshot's clone took beyond that of a small process is what may be
 * spent. Processes of less than 100 MB do without. The engine says at each commit whether memory allows. The host calls these on the thread that serves.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How long a session waits idle before it begins, and between two steps. */
#define FURCA_UPKEEP_IDLE_MS 100
#define FURCA_UPKEEP_STEP_MS 10

/* Zeroed: nothing to do. */
struct furca_upkeep {
	uint64_t at;	   /* where the next step looks on */
	int64_t credit_us; /* may be spent */
	unsigned rest;	   /* commits until it is looked at again */
	bool off;	   /* none are wanted, or none can be had */
	bool allowed;	   /* by the engine, at the last commit */
	bool begun;	   /* since the last call */
};

/* Once, in a host that is not cloned yet: whether this machine and FURCA_HUGE_PAGES want them. */
void furca_upkeep_init(struct furca_upkeep *upkeep);

/* A snapshot was cloned, which took so long; `bytes` of memory are shared with it. */
void furca_upkeep_commit(struct furca_upkeep *upkeep, uint64_t bytes, int64_t clone_us, bool allowed);

/* How long to wait idle before the next step, in ms; -1: there is nothing to do. */
int furca_upkeep_wait(const struct furca_upkeep *upkeep);

/* Some 5 ms, 10 on a busy machine. Contents do not change. */
void furca_upkeep_step(struct furca_upkeep *upkeep);

/* A call comes. */
void furca_upkeep_stop(struct furca_upkeep *upkeep);

/* In a clone, which has nothing to spend. */
void furca_upkeep_done(struct furca_upkeep *upkeep);
