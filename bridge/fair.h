/*
 * Capability calls that wait until their client reads. Each execute has a queue of its own and they are served in turn, so that one that
 * floods delays itself, not others. Bounded in bytes for each queue and in all.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "bridge/idmap.h"

struct furca_fair_queue;

struct furca_fair_item {
	struct furca_fair_item *next, *previous;
	struct furca_fair_queue *queue;
	struct furca_buf bytes;
	void *owner;
};

struct furca_fair {
	struct furca_idmap queues;     /* by key */
	struct furca_fair_queue *turn; /* whose turn it is, in a ring; NULL: nothing waits */
	size_t bytes;
};

void furca_fair_done(struct furca_fair *fair);

/*
 * Puts bytes (taken on success) at the end of the queue of `key`. The item, which lives until it is removed; NULL and *ret_error -ENOBUFS where a
 * bound is reached (bridge/wire/limits.h), or -ENOMEM.
 */
struct furca_fair_item *furca_fair_add(struct furca_fair *fair, uint64_t key, struct furca_buf *bytes, void *owner,
				       int *ret_error);

/* The item whose turn it is, or NULL. It stays. */
struct furca_fair_item *furca_fair_first(const struct furca_fair *fair);

/* Removes and frees an item; if it was the first, the turn goes to the next queue. */
void furca_fair_remove(struct furca_fair *fair, struct furca_fair_item *item);
