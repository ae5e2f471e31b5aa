/*
 * Slots for what is in flight in the loop. An operation is named by its slot and the slot's generation, never by a pointer:
 * a completion or a cancel that comes after its operation's end finds nothing, is counted, and does no harm.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Slot in the low half, generation (never 0) in the high half. 0 names no operation. */
typedef uint64_t furca_op_id;

#define FURCA_OP_NONE ((furca_op_id)0)

struct furca_ops; /* the table */

/*
 * A table for at most `max` operations of `size` bytes each; slots stay where they are. 0 or -ENOMEM.
 */
int furca_ops_new(size_t size, uint32_t max, struct furca_ops **ret);
void furca_ops_free(struct furca_ops *ops);

/* A zeroed slot and its name, or NULL where the table is full or memory is out. */
void *furca_ops_add(struct furca_ops *ops, furca_op_id *ret_id);

/* The slot of that name, or NULL where it was given back (counted as stale) or id is 0 (not counted). */
void *furca_ops_find(struct furca_ops *ops, furca_op_id id);

/* Gives the slot back; its name is void from now on. Unknown names are ignored. */
void furca_ops_remove(struct furca_ops *ops, furca_op_id id);

/* Slots in use, and names looked for after their end. */
uint32_t furca_ops_count(const struct furca_ops *ops);
uint64_t furca_ops_stale(const struct furca_ops *ops);

/* Calls fn for each slot in use. */
void furca_ops_each(struct furca_ops *ops, void (*fn)(void *data, void *slot, furca_op_id id), void *data);
