/* The loop's receives: by buffers that the kernel picks from when data comes, or by poll and recv; paused, stopped, and armed again. */
#include <errno.h>
#include <sys/socket.h>

#include "engine/loop_private.h"

#include "base/banned.h"

void furca_loop_recv_pause(struct furca_loop *loop, furca_op_id id, bool pause)
{
	struct op *op = furca_ops_find(loop->ops, id);

	if (!op || op->detached || op->kind != OP_RECV || op->paused == pause)
		return;
	op->paused = pause;
	if (pause && op->armed)
		furca_op_cancel(loop, op, id);
	else if (!pause && !op->armed)
		furca_op_arm(loop, op, id);
}

int furca_loop_recv_stop(struct furca_loop *loop, furca_op_id *id, furca_timer_fn *fn)
{
	struct op *op = furca_ops_find(loop->ops, *id);
	void *owner = op->owner;

	if (!op->armed) {
		furca_op_end(loop, op, *id);
		*id = FURCA_OP_NONE;
		return furca_loop_defer(loop, fn, owner, id);
	}
	op->stopped = fn;
	furca_op_cancel(loop, op, *id);
	return 0;
}

/* What a receive does once the kernel has ended it without an error: it goes on, waits, or has come to its end. */
static void recv_ended(struct furca_loop *loop, struct op *op, furca_op_id id)
{
	furca_timer_fn *fn = op->stopped;
	void *owner = op->owner;

	if (fn) {
		furca_op_end(loop, op, id);
		fn(owner);
	} else if (!op->paused) {
		furca_op_arm(loop, op, id);
	}
}

void furca_loop_received(struct furca_loop *loop, struct op *op, furca_op_id id, int res, const uint8_t *data)
{
	furca_recv_fn *fn = (furca_recv_fn *)op->fn;
	void *owner = op->owner;

	if (res == -EINVAL && op->multi) {
		loop->provided = false;
		furca_op_arm(loop, op, id);
		return;
	}
	if (res == -ECANCELED || res == -ENOBUFS || res == -EINTR || res == -EAGAIN) {
		if (!op->armed)
			recv_ended(loop, op, id);
		return;
	}
	if (res <= 0) {
		if (!op->armed)
			furca_op_end(loop, op, id);
		else
			furca_loop_cancel(loop, id);
		fn(owner, data, res);
		return;
	}
	fn(owner, data, res);
	op = furca_ops_find(loop->ops, id);
	if (op && !op->detached && !op->armed)
		recv_ended(loop, op, id);
}

/* Without provided buffers: readable, so one recv into the loop's own memory, and ask again (level-triggered). */
void furca_loop_readable(struct furca_loop *loop, struct op *op, furca_op_id id, int res)
{
	ssize_t n = res;

	if (res >= 0) {
		n = recv(op->fd, loop->scratch, FURCA_LOOP_BUFFER, MSG_DONTWAIT);
		if (n < 0)
			n = -errno;
	}
	furca_loop_received(loop, op, id, (int)n, loop->scratch);
}
