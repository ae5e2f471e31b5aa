/* What loop.c, loop_futex.c, loop_recv.c and loop_timers.c share; nobody else includes it but the loop's test. */
#pragma once

#include <liburing.h>

#include "engine/loop.h"

#define FURCA_LOOP_BUFFER 32768U /* bytes that one receive takes at most */

enum op_kind { OP_ACCEPT, OP_RECV, OP_SEND, OP_POLL, OP_TIMER, OP_DEFER, OP_SIGNALS, OP_FUTEX };

struct op {
	enum op_kind kind;
	bool armed;    /* the kernel has it: a completion is to come */
	bool detached; /* cancelled: its function is not called any more, the slot waits for the last completion */
	bool paused;
	furca_timer_fn *stopped; /* of a receive that is to end: called once nothing more will come by it */
	bool multi;		 /* was asked for in the newer form */
	bool in_heap;
	int fd;
	unsigned events; /* of a futex: the value */
	const uint32_t *word;
	void (*fn)(void); /* of the type that belongs to `kind` */
	void *owner;
	uint64_t sequence; /* of its submission */
	struct furca_buf buf;
	size_t sent;
	int64_t deadline_us;
	uint32_t heap_at;
};

struct furca_loop {
	struct io_uring ring;
	struct furca_ops *ops;
	bool ended, provided, multi_accept, multi_poll, futexes;
	uint64_t sequence, submitted; /* submission entries filled in, and those the kernel has seen */
	uint64_t completions, enters;
	struct io_uring_buf_ring *buffers;
	uint8_t *bytes, *scratch;
	furca_op_id *heap; /* timers, the first due at 0 */
	size_t n_heap, heap_cap;
	furca_op_id *deferred;
	size_t n_deferred, deferred_cap;
};

/* Uses no multishot and no provided buffers, as on an older kernel. For tests; before the first operation. */
void furca_loop_plain(struct furca_loop *loop);

/* Asks the kernel for an operation; to end one; the end of one that the kernel does not have, or no longer. */
void furca_op_arm(struct furca_loop *loop, struct op *op, furca_op_id id);
void furca_op_cancel(struct furca_loop *loop, const struct op *op, furca_op_id id);
void furca_op_end(struct furca_loop *loop, struct op *op, furca_op_id id);

/* What a completion says of a receive: bytes or an error in `data` and `res`; or that the socket is readable. */
void furca_loop_received(struct furca_loop *loop, struct op *op, furca_op_id id, int res, const uint8_t *data);
void furca_loop_readable(struct furca_loop *loop, struct op *op, furca_op_id id, int res);

/* Whether the kernel waits for futexes in a ring (Linux 6.7). */
bool furca_loop_probe_futex(struct furca_loop *loop);
/* Fills in the entry for a wait on op->word. */
void furca_loop_prep_futex(struct io_uring_sqe *sqe, const struct op *op);

/* The timers' heap. add: 0 or -ENOMEM; keeps op->heap_at. first: deadline or FURCA_NEVER. due: takes the first that is due, or 0. */
int furca_heap_add(struct furca_loop *loop, furca_op_id id, struct op *op);
void furca_heap_remove(struct furca_loop *loop, uint32_t at);
int64_t furca_heap_first(struct furca_loop *loop);
furca_op_id furca_heap_due(struct furca_loop *loop, int64_t now_us);
