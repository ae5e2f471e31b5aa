/*
 * The pages that a session writes in every call. A commit shares all its memory with the snapshot, and each page's first write after it is a fault that
 * copies the page: in a small call most of the time. Once two commits in a row have shown which pages these are, the session takes their faults while it
 * waits for its next call. New data is in neither list twice, and costs no memory.
 *
 * The host calls these on the thread that serves. What is known is forgotten after a while, and learnt anew.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

/* How long a session waits idle before it takes them, so that calls that follow one another at once do not wait for it. */
#define FURCA_HOT_IDLE_MS 2

/* Zeroed: nothing is known. */
struct furca_hot {
	struct furca_buf pages; /* a list of snapshot/pages.h; empty: nothing is known */
	struct furca_buf last;	/* what the last commit had written, where that is still to be compared */
	unsigned commits;	/* since it was learnt, or tried */
	bool shared;		/* with a snapshot: what is written from now on shows */
	bool due;		/* a commit was made, and its faults are not taken yet */
};

/* Before a snapshot is cloned. Learning costs some 0.1 ms, and 5 at most, in two commits of 64. */
void furca_hot_learn(struct furca_hot *hot);

/* It is cloned. */
void furca_hot_commit(struct furca_hot *hot);

/* Takes the faults: some 1 ms at most. */
void furca_hot_take(struct furca_hot *hot);

/* In a clone, which shares its memory anew. */
void furca_hot_done(struct furca_hot *hot);
