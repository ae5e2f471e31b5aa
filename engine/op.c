#include "engine/op.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"

#include "base/banned.h"

#define CHUNK 128U

/* Stands before each slot's own bytes, which are aligned as malloc's. */
struct head {
	_Alignas(max_align_t) uint32_t generation;
	uint32_t next_free; /* index + 1, 0 at the end */
	bool used;
};

struct furca_ops {
	size_t stride, size;
	uint32_t max, made, used;
	uint32_t first_free; /* index + 1 */
	uint64_t stale;
	uint8_t **chunks;
};

static struct head *head_at(struct furca_ops *ops, uint32_t index)
{
	return (struct head *)(void *)(ops->chunks[index / CHUNK] + (size_t)(index % CHUNK) * ops->stride);
}

int furca_ops_new(size_t size, uint32_t max, struct furca_ops **ret)
{
	FURCA_AUTO_FREE struct furca_ops *ops = calloc(1, sizeof(*ops));

	if (!ops)
		return -ENOMEM;
	ops->size = size;
	ops->stride = (sizeof(struct head) + size + 15) & ~(size_t)15;
	ops->max = max;
	ops->chunks = calloc((max + CHUNK - 1) / CHUNK, sizeof(*ops->chunks));
	if (!ops->chunks)
		return -ENOMEM;
	*ret = FURCA_TAKE(ops);
	return 0;
}

void furca_ops_free(struct furca_ops *ops)
{
	if (!ops)
		return;
	for (uint32_t i = 0; i < (ops->max + CHUNK - 1) / CHUNK; i++)
		free(ops->chunks[i]);
	free((void *)ops->chunks);
	free(ops);
}

/* Puts another chunk of slots on the free list, lowest index first. */
static int grow(struct furca_ops *ops)
{
	uint32_t from = ops->made, to = FURCA_MIN(ops->made + CHUNK, ops->max);

	if (from == to)
		return -ENOSPC;
	ops->chunks[from / CHUNK] = calloc(CHUNK, ops->stride);
	if (!ops->chunks[from / CHUNK])
		return -ENOMEM;
	ops->made = to;
	for (uint32_t i = to; i > from; i--) {
		head_at(ops, i - 1)->next_free = ops->first_free;
		ops->first_free = i;
	}
	return 0;
}

void *furca_ops_add(struct furca_ops *ops, furca_op_id *ret_id)
{
	if (!ops->first_free && grow(ops) < 0)
		return NULL;
	uint32_t index = ops->first_free - 1;
	struct head *h = head_at(ops, index);

	ops->first_free = h->next_free;
	if (++h->generation == 0)
		h->generation = 1;
	h->used = true;
	ops->used++;
	*ret_id = (uint64_t)h->generation << 32 | index;
	return memset(h + 1, 0, ops->size);
}

static struct head *find(struct furca_ops *ops, furca_op_id id)
{
	uint32_t index = (uint32_t)id;

	if (id == FURCA_OP_NONE || index >= ops->made)
		return NULL;
	struct head *h = head_at(ops, index);
	return h->used && h->generation == (uint32_t)(id >> 32) ? h : NULL;
}

void *furca_ops_find(struct furca_ops *ops, furca_op_id id)
{
	struct head *h = find(ops, id);

	if (!h && id != FURCA_OP_NONE)
		ops->stale++;
	return h ? h + 1 : NULL;
}

void furca_ops_remove(struct furca_ops *ops, furca_op_id id)
{
	struct head *h = find(ops, id);

	if (!h)
		return;
	h->used = false;
	h->next_free = ops->first_free;
	ops->first_free = (uint32_t)id + 1;
	ops->used--;
}

uint32_t furca_ops_count(const struct furca_ops *ops)
{
	return ops->used;
}

uint64_t furca_ops_stale(const struct furca_ops *ops)
{
	return ops->stale;
}

void furca_ops_each(struct furca_ops *ops, void (*fn)(void *data, void *slot, furca_op_id id), void *data)
{
	for (uint32_t i = 0; i < ops->made; i++) {
		struct head *h = head_at(ops, i);

		if (h->used)
			fn(data, h + 1, (uint64_t)h->generation << 32 | i);
	}
}
