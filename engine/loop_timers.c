/* The loop's timers: a binary heap of operations, by deadline. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/loop_private.h"

#include "base/banned.h"

static struct op *op_at(struct furca_loop *loop, size_t at)
{
	return furca_ops_find(loop->ops, loop->heap[at]);
}

static void put(struct furca_loop *loop, size_t at, furca_op_id id)
{
	loop->heap[at] = id;
	op_at(loop, at)->heap_at = (uint32_t)at;
}

static void up(struct furca_loop *loop, size_t at)
{
	furca_op_id id = loop->heap[at];
	int64_t deadline = op_at(loop, at)->deadline_us;

	while (at > 0 && op_at(loop, (at - 1) / 2)->deadline_us > deadline) {
		put(loop, at, loop->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	put(loop, at, id);
}

static void down(struct furca_loop *loop, size_t at)
{
	furca_op_id id = loop->heap[at];
	int64_t deadline = op_at(loop, at)->deadline_us;

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= loop->n_heap)
			break;
		if (child + 1 < loop->n_heap && op_at(loop, child + 1)->deadline_us < op_at(loop, child)->deadline_us)
			child++;
		if (op_at(loop, child)->deadline_us >= deadline)
			break;
		put(loop, at, loop->heap[child]);
		at = child;
	}
	put(loop, at, id);
}

int furca_heap_add(struct furca_loop *loop, furca_op_id id, struct op *op)
{
	if (loop->n_heap == loop->heap_cap) {
		size_t cap = loop->heap_cap ? loop->heap_cap * 2 : 64;
		furca_op_id *heap = realloc(loop->heap, cap * sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		loop->heap = heap;
		loop->heap_cap = cap;
	}
	op->in_heap = true;
	loop->heap[loop->n_heap++] = id;
	up(loop, loop->n_heap - 1);
	return 0;
}

void furca_heap_remove(struct furca_loop *loop, uint32_t at)
{
	op_at(loop, at)->in_heap = false;
	furca_op_id last = loop->heap[--loop->n_heap];

	if (at == loop->n_heap)
		return;
	put(loop, at, last);
	up(loop, at);
	down(loop, ((struct op *)furca_ops_find(loop->ops, last))->heap_at);
}

int64_t furca_heap_first(struct furca_loop *loop)
{
	return loop->n_heap ? op_at(loop, 0)->deadline_us : FURCA_NEVER;
}

furca_op_id furca_heap_due(struct furca_loop *loop, int64_t now_us)
{
	if (!loop->n_heap || op_at(loop, 0)->deadline_us > now_us)
		return FURCA_OP_NONE;
	furca_op_id id = loop->heap[0];

	furca_heap_remove(loop, 0);
	return id;
}
