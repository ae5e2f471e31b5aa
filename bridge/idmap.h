/*
 * A map from 64-bit numbers to pointers: message numbers of a connection, capability calls under way. Open addressing, so
 * one allocation however many thousands are in flight. Not for threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct furca_idmap {
	struct furca_idmap_slot {
		uint64_t key;
		void *value; /* NULL: free */
	} * slots;
	size_t size, count; /* size is 0 or a power of two */
};

#define FURCA_IDMAP_INIT ((struct furca_idmap){0})

/* Frees the table, not what its values point to. Accepts an empty one. */
void furca_idmap_done(struct furca_idmap *map);

/* The value of `key`, or NULL. */
void *furca_idmap_get(const struct furca_idmap *map, uint64_t key);

/* Adds; `value` is not NULL. 0, -EEXIST where the key is there (its value stays), or -ENOMEM. */
int furca_idmap_add(struct furca_idmap *map, uint64_t key, void *value);

/* Takes the key out and returns its value, NULL where it was not there. */
void *furca_idmap_remove(struct furca_idmap *map, uint64_t key);

/*
 * Walks: begin with *at 0; the next value or NULL at the end. The map must not change during a walk, but for the removal of
 * all that it holds by furca_idmap_done.
 */
void *furca_idmap_next(const struct furca_idmap *map, size_t *at, uint64_t *ret_key);
