#include "bridge/fair.h"

#include <errno.h>
#include <stdlib.h>

#include "bridge/wire/limits.h"

#include "base/banned.h"

struct furca_fair_queue {
	struct furca_fair_queue *next, *previous; /* the ring of queues that hold something */
	struct furca_fair_item *first, *last;
	uint64_t key;
	size_t bytes;
};

static void item_free(struct furca_fair_item *item)
{
	furca_buf_done(&item->bytes);
	free(item);
}

void furca_fair_done(struct furca_fair *fair)
{
	struct furca_fair_queue *queue;
	uint64_t key;
	size_t at = 0;

	while ((queue = furca_idmap_next(&fair->queues, &at, &key))) {
		while (queue->first) {
			struct furca_fair_item *item = queue->first;

			queue->first = item->next;
			item_free(item);
		}
		free(queue);
	}
	furca_idmap_done(&fair->queues);
	*fair = (struct furca_fair){0};
}

/* The queue of the key, made where it is missing: last in the ring, just before whose turn it is. */
static struct furca_fair_queue *queue_of(struct furca_fair *fair, uint64_t key)
{
	struct furca_fair_queue *queue = furca_idmap_get(&fair->queues, key);

	if (queue)
		return queue;
	queue = calloc(1, sizeof(*queue));
	if (!queue || furca_idmap_add(&fair->queues, key, queue) < 0) {
		free(queue);
		return NULL;
	}
	queue->key = key;
	queue->next = queue->previous = queue;
	if (fair->turn) {
		queue->next = fair->turn;
		queue->previous = fair->turn->previous;
		queue->previous->next = queue->next->previous = queue;
	} else {
		fair->turn = queue;
	}
	return queue;
}

static void queue_free(struct furca_fair *fair, struct furca_fair_queue *queue)
{
	if (fair->turn == queue)
		fair->turn = queue->next == queue ? NULL : queue->next;
	queue->previous->next = queue->next;
	queue->next->previous = queue->previous;
	(void)furca_idmap_remove(&fair->queues, queue->key);
	free(queue);
}

struct furca_fair_item *furca_fair_add(struct furca_fair *fair, uint64_t key, struct furca_buf *bytes, void *owner,
				       int *ret_error)
{
	const struct furca_fair_queue *there = furca_idmap_get(&fair->queues, key);

	*ret_error = -ENOBUFS;
	if (fair->bytes + bytes->len > FURCA_MAX_WAITING ||
	    (there && there->bytes + bytes->len > FURCA_MAX_WAITING_EACH))
		return NULL;
	*ret_error = -ENOMEM;
	struct furca_fair_item *item = calloc(1, sizeof(*item));
	struct furca_fair_queue *queue = item ? queue_of(fair, key) : NULL;
	if (!queue) {
		free(item);
		return NULL;
	}
	item->queue = queue;
	item->owner = owner;
	item->bytes = furca_buf_take(bytes);
	item->previous = queue->last;
	if (queue->last)
		queue->last->next = item;
	else
		queue->first = item;
	queue->last = item;
	queue->bytes += item->bytes.len;
	fair->bytes += item->bytes.len;
	return item;
}

struct furca_fair_item *furca_fair_first(const struct furca_fair *fair)
{
	return fair->turn ? fair->turn->first : NULL;
}

void furca_fair_remove(struct furca_fair *fair, struct furca_fair_item *item)
{
	struct furca_fair_queue *queue = item->queue;
	bool first = furca_fair_first(fair) == item;

	*(item->previous ? &item->previous->next : &queue->first) = item->next;
	*(item->next ? &item->next->previous : &queue->last) = item->previous;
	queue->bytes -= item->bytes.len;
	fair->bytes -= item->bytes.len;
	item_free(item);
	if (!queue->first)
		queue_free(fair, queue);
	else if (first)
		fair->turn = queue->next;
}
