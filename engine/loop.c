#include "engine/loop.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "engine/loop_private.h"

#include "base/banned.h"

#define ENTRIES 256U
#define MAX_OPERATIONS 32768U
#define BUFFERS 64U /* a power of two */
#define BUFFER_GROUP 1
#define PAUSE_US 100000 /* before accepting goes on when descriptors have run out */

static int ring_setup(struct furca_loop *loop)
{
	/* Newest first; a kernel that does not know a flag says EINVAL. */
	static const unsigned tries[] = {
		/* The work that a completion takes is done where the loop waits, and each wakes it once. */
		IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_CQSIZE,
	};
	int r = -EINVAL;

	for (size_t i = 0; i < FURCA_COUNT(tries) && r == -EINVAL; i++) {
		struct io_uring_params p = {.flags = tries[i], .cq_entries = ENTRIES * 16};

		r = io_uring_queue_init_params(ENTRIES, &loop->ring, &p);
	}
	return r;
}

/* Buffers that the kernel picks from when data comes; without them receiving is poll and recv. */
static int buffers_setup(struct furca_loop *loop)
{
	struct io_uring_buf_reg reg = {.ring_entries = BUFFERS, .bgid = BUFFER_GROUP};
	size_t head = BUFFERS * sizeof(struct io_uring_buf);

	if (posix_memalign((void **)&loop->buffers, 4096, head))
		return -ENOMEM;
	memset(loop->buffers, 0, head);
	reg.ring_addr = (uint64_t)(uintptr_t)loop->buffers;
	int r = io_uring_register_buf_ring(&loop->ring, &reg, 0);
	if (r < 0)
		return r;
	loop->bytes = malloc((size_t)BUFFERS * FURCA_LOOP_BUFFER);
	if (!loop->bytes)
		return -ENOMEM;
	for (unsigned i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(loop->buffers, loop->bytes + (size_t)i * FURCA_LOOP_BUFFER, FURCA_LOOP_BUFFER,
				      (unsigned short)i, io_uring_buf_ring_mask(BUFFERS), (int)i);
	io_uring_buf_ring_advance(loop->buffers, BUFFERS);
	return 0;
}

static void buffer_back(struct furca_loop *loop, unsigned short id)
{
	io_uring_buf_ring_add(loop->buffers, loop->bytes + (size_t)id * FURCA_LOOP_BUFFER, FURCA_LOOP_BUFFER, id,
			      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(loop->buffers, 1);
}

int furca_loop_new(struct furca_loop **ret, struct furca_err *err)
{
	FURCA_AUTO_FREE struct furca_loop *loop = calloc(1, sizeof(*loop));

	if (!loop || furca_ops_new(sizeof(struct op), MAX_OPERATIONS, &loop->ops) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the event loop");
	int r = ring_setup(loop);
	if (r < 0) {
		furca_ops_free(loop->ops);
		return furca_fail_suggest(
			err, FURCA_E_SYSTEM, -r,
			"io_uring must be allowed: see kernel.io_uring_disabled and the container's system call filter.",
			"cannot make an io_uring");
	}
	/* A child that only forks (the init) must not hold the ring by its mappings: it would outlive us, and what it waits on too. */
	r = io_uring_ring_dontfork(&loop->ring);
	if (r < 0) {
		io_uring_queue_exit(&loop->ring);
		furca_ops_free(loop->ops);
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot keep the io_uring out of children");
	}
	loop->provided = buffers_setup(loop) == 0;
	loop->multi_accept = loop->multi_poll = true;
	loop->futexes = furca_loop_probe_futex(loop);
	loop->scratch = malloc(FURCA_LOOP_BUFFER);
	if (!loop->scratch) {
		furca_loop_free(FURCA_TAKE(loop));
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for the event loop");
	}
	*ret = FURCA_TAKE(loop);
	return 0;
}

void furca_loop_plain(struct furca_loop *loop)
{
	loop->provided = loop->multi_accept = loop->multi_poll = loop->futexes = false;
}

static void free_op(void *data, void *slot, furca_op_id id)
{
	struct op *op = slot;

	furca_buf_done(&op->buf);
	if (op->kind == OP_SIGNALS)
		(void)close(op->fd);
}

void furca_loop_free(struct furca_loop *loop)
{
	if (!loop)
		return;
	io_uring_queue_exit(&loop->ring); /* ends what is in flight before its memory goes */
	furca_ops_each(loop->ops, free_op, NULL);
	furca_ops_free(loop->ops);
	free(loop->buffers);
	free(loop->bytes);
	free(loop->scratch);
	free((void *)loop->heap);
	free(loop->deferred);
	free(loop);
}

static struct io_uring_sqe *next_sqe(struct furca_loop *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	while (!sqe) {
		(void)io_uring_submit(&loop->ring);
		loop->submitted = loop->sequence;
		sqe = io_uring_get_sqe(&loop->ring);
	}
	loop->sequence++;
	return sqe;
}

/* Asks the kernel for the operation, as its kind and what the kernel can do say. */
void furca_op_arm(struct furca_loop *loop, struct op *op, furca_op_id id)
{
	struct io_uring_sqe *sqe = next_sqe(loop);

	op->multi = false;
	switch (op->kind) {
	case OP_ACCEPT:
		op->multi = loop->multi_accept;
		if (op->multi)
			io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		else
			io_uring_prep_accept(sqe, op->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		break;
	case OP_RECV:
		op->multi = loop->provided;
		if (op->multi) {
			io_uring_prep_recv_multishot(sqe, op->fd, NULL, 0, 0);
			sqe->flags |= IOSQE_BUFFER_SELECT;
			sqe->buf_group = BUFFER_GROUP;
		} else {
			io_uring_prep_poll_add(sqe, op->fd, POLLIN);
		}
		break;
	case OP_SEND:
		io_uring_prep_send(sqe, op->fd, op->buf.data + op->sent, op->buf.len - op->sent,
				   MSG_NOSIGNAL | MSG_WAITALL);
		break;
	case OP_POLL:
		op->multi = loop->multi_poll;
		if (op->multi)
			io_uring_prep_poll_multishot(sqe, op->fd, op->events);
		else
			io_uring_prep_poll_add(sqe, op->fd, op->events);
		break;
	case OP_SIGNALS:
		io_uring_prep_poll_add(sqe, op->fd, POLLIN);
		break;
	case OP_FUTEX:
		furca_loop_prep_futex(sqe, op);
		break;
	case OP_TIMER:
	case OP_DEFER:
		break; /* never armed */
	}
	io_uring_sqe_set_data64(sqe, id);
	op->armed = true;
	op->sequence = loop->sequence;
}

static struct op *add(struct furca_loop *loop, enum op_kind kind, int fd, void (*fn)(void), void *owner,
		      furca_op_id *ret)
{
	struct op *op = furca_ops_add(loop->ops, ret);

	if (!op)
		return NULL;
	op->kind = kind;
	op->fd = fd;
	op->fn = fn;
	op->owner = owner;
	return op;
}

static int start(struct furca_loop *loop, enum op_kind kind, int fd, unsigned events, void (*fn)(void), void *owner,
		 furca_op_id *ret)
{
	struct op *op = add(loop, kind, fd, fn, owner, ret);

	if (!op)
		return -ENOBUFS;
	op->events = events;
	furca_op_arm(loop, op, *ret);
	return 0;
}

int furca_loop_accept(struct furca_loop *loop, int fd, furca_accept_fn *fn, void *owner, furca_op_id *ret)
{
	return start(loop, OP_ACCEPT, fd, 0, (void (*)(void))fn, owner, ret);
}

int furca_loop_recv(struct furca_loop *loop, int fd, furca_recv_fn *fn, void *owner, furca_op_id *ret)
{
	return start(loop, OP_RECV, fd, 0, (void (*)(void))fn, owner, ret);
}

int furca_loop_poll(struct furca_loop *loop, int fd, unsigned events, furca_poll_fn *fn, void *owner, furca_op_id *ret)
{
	return start(loop, OP_POLL, fd, events, (void (*)(void))fn, owner, ret);
}

int furca_loop_send(struct furca_loop *loop, int fd, struct furca_buf *buf, furca_sent_fn *fn, void *owner,
		    furca_op_id *ret)
{
	struct op *op = add(loop, OP_SEND, fd, (void (*)(void))fn, owner, ret);

	if (!op)
		return -ENOBUFS;
	op->buf = furca_buf_take(buf);
	furca_op_arm(loop, op, *ret);
	return 0;
}

int furca_loop_futex(struct furca_loop *loop, const uint32_t *word, uint32_t value, furca_timer_fn *fn, void *owner,
		     furca_op_id *ret)
{
	struct op *op = loop->futexes ? add(loop, OP_FUTEX, -1, (void (*)(void))fn, owner, ret) : NULL;

	if (!op)
		return loop->futexes ? -ENOBUFS : -EOPNOTSUPP;
	op->word = word;
	op->events = value;
	furca_op_arm(loop, op, *ret);
	return 0;
}

int furca_loop_signals(struct furca_loop *loop, const sigset_t *set, furca_signal_fn *fn, void *owner, furca_op_id *ret)
{
	if (sigprocmask(SIG_BLOCK, set, NULL) < 0)
		return -errno;
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK));
	if (fd.n < 0)
		return -errno;
	int r = start(loop, OP_SIGNALS, fd.n, 0, (void (*)(void))fn, owner, ret);
	if (r == 0)
		(void)furca_fd_take(&fd); /* the operation's from now on */
	return r;
}

void furca_op_cancel(struct furca_loop *loop, const struct op *op, furca_op_id id)
{
	/* What the kernel has not seen yet names a descriptor by number, and the caller may close it next. */
	if (op->sequence > loop->submitted) {
		(void)io_uring_submit(&loop->ring);
		loop->submitted = loop->sequence;
	}
	struct io_uring_sqe *sqe = next_sqe(loop);
	io_uring_prep_cancel64(sqe, id, 0);
	io_uring_sqe_set_data64(sqe, FURCA_OP_NONE);
}

void furca_op_end(struct furca_loop *loop, struct op *op, furca_op_id id)
{
	furca_buf_done(&op->buf);
	if (op->kind == OP_SIGNALS)
		(void)close(op->fd);
	furca_ops_remove(loop->ops, id);
}

void furca_loop_cancel(struct furca_loop *loop, furca_op_id id)
{
	struct op *op = id ? furca_ops_find(loop->ops, id) : NULL;

	if (!op || op->detached)
		return;
	if (op->in_heap)
		furca_heap_remove(loop, op->heap_at);
	if (!op->armed) {
		furca_op_end(loop, op, id);
		return;
	}
	op->detached = true;
	furca_op_cancel(loop, op, id);
}

static void accepted(struct furca_loop *loop, struct op *op, furca_op_id id, int res)
{
	furca_accept_fn *fn = (furca_accept_fn *)op->fn;

	if (res == -EINVAL && op->multi) {
		loop->multi_accept = false; /* an older kernel; one at a time then */
		furca_op_arm(loop, op, id);
		return;
	}
	if (res < 0 && res != -ECONNABORTED && res != -EINTR && res != -EAGAIN) {
		op->deadline_us = furca_now_us() + PAUSE_US;
		if (!op->armed && furca_heap_add(loop, id, op) < 0)
			furca_op_arm(loop, op, id);
		return;
	}
	if (!op->armed)
		furca_op_arm(loop, op, id);
	if (res >= 0)
		fn(op->owner, furca_fd_own(res));
}

static void sent(struct furca_loop *loop, struct op *op, furca_op_id id, int res)
{
	furca_sent_fn *fn = (furca_sent_fn *)op->fn;
	void *owner = op->owner;

	if (res > 0)
		op->sent += (size_t)res;
	if (res == -EINTR || res == -EAGAIN || (res > 0 && op->sent < op->buf.len)) {
		furca_op_arm(loop, op, id);
		return;
	}
	struct furca_buf buf = furca_buf_take(&op->buf);
	furca_op_end(loop, op, id);
	furca_buf_clear(&buf);
	fn(owner, res < 0 ? res : 0, &buf);
	furca_buf_done(&buf);
}

static void polled(struct furca_loop *loop, struct op *op, furca_op_id id, int res)
{
	furca_poll_fn *fn = (furca_poll_fn *)op->fn;

	if (res == -EINVAL && op->multi) {
		loop->multi_poll = false;
		furca_op_arm(loop, op, id);
		return;
	}
	if (res < 0) {
		void *owner = op->owner;

		furca_op_end(loop, op, id);
		fn(owner, POLLERR | POLLNVAL);
		return;
	}
	fn(op->owner, (unsigned)res);
	op = furca_ops_find(loop->ops, id);
	if (op && !op->detached && !op->armed)
		furca_op_arm(loop, op, id);
}

static void signalled(struct furca_loop *loop, struct op *op, furca_op_id id)
{
	struct signalfd_siginfo info;

	while (op && !op->detached && read(op->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		((furca_signal_fn *)op->fn)(op->owner, (int)info.ssi_signo);
		op = furca_ops_find(loop->ops, id);
	}
	if (op && !op->detached)
		furca_op_arm(loop, op, id);
}

/* Of an operation that tells once, and no more than that: a timer, what was deferred, a futex. */
static void tell_once(struct furca_loop *loop, struct op *op, furca_op_id id)
{
	furca_timer_fn *fn = (furca_timer_fn *)op->fn;
	void *owner = op->owner;

	furca_op_end(loop, op, id);
	fn(owner);
}

static void dispatch(struct furca_loop *loop, const struct io_uring_cqe *cqe)
{
	struct op *op = cqe->user_data ? furca_ops_find(loop->ops, cqe->user_data) : NULL;
	furca_op_id id = cqe->user_data;
	bool more = cqe->flags & IORING_CQE_F_MORE;

	if (!op)
		return;
	op->armed = more;
	if (op->detached) {
		if (op->kind == OP_ACCEPT && cqe->res >= 0)
			(void)close(cqe->res);
		if (!more)
			furca_op_end(loop, op, id);
		return;
	}
	switch (op->kind) {
	case OP_ACCEPT:
		accepted(loop, op, id, cqe->res);
		break;
	case OP_RECV:
		if (cqe->flags & IORING_CQE_F_BUFFER)
			furca_loop_received(loop, op, id, cqe->res,
					    loop->bytes + (size_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT) *
								  FURCA_LOOP_BUFFER);
		else if (op->multi || cqe->res < 0)
			furca_loop_received(loop, op, id, cqe->res, loop->scratch);
		else
			furca_loop_readable(loop, op, id, cqe->res);
		break;
	case OP_SEND:
		sent(loop, op, id, cqe->res);
		break;
	case OP_POLL:
		polled(loop, op, id, cqe->res);
		break;
	case OP_SIGNALS:
		signalled(loop, op, id);
		break;
	case OP_FUTEX:
		tell_once(loop, op, id);
		break;
	case OP_TIMER:
	case OP_DEFER:
		break;
	}
}

static void fire_due(struct furca_loop *loop)
{
	int64_t now = furca_now_us();
	furca_op_id id;

	while (!loop->ended && (id = furca_heap_due(loop, now)) != FURCA_OP_NONE) {
		struct op *op = furca_ops_find(loop->ops, id);

		if (!op)
			continue;
		if (op->kind == OP_ACCEPT) {
			if (!op->detached)
				furca_op_arm(loop, op, id);
			continue;
		}
		tell_once(loop, op, id);
	}
}

static void run_deferred(struct furca_loop *loop)
{
	/* Only what was there when the round began, so that one that defers itself again does not starve the rest. */
	size_t n = loop->n_deferred;

	for (size_t i = 0; i < n && !loop->ended; i++) {
		furca_op_id id = loop->deferred[i];
		struct op *op = furca_ops_find(loop->ops, id);

		if (!op)
			continue;
		tell_once(loop, op, id);
	}
	loop->n_deferred -= n;
	if (loop->n_deferred > 0)
		memmove(loop->deferred, loop->deferred + n, loop->n_deferred * sizeof(*loop->deferred));
}

int furca_loop_defer(struct furca_loop *loop, furca_timer_fn *fn, void *owner, furca_op_id *ret)
{
	if (loop->n_deferred == loop->deferred_cap) {
		size_t cap = loop->deferred_cap ? loop->deferred_cap * 2 : 64;
		furca_op_id *list = realloc(loop->deferred, cap * sizeof(*list));

		if (!list)
			return -ENOMEM;
		loop->deferred = list;
		loop->deferred_cap = cap;
	}
	if (!add(loop, OP_DEFER, -1, (void (*)(void))fn, owner, ret))
		return -ENOBUFS;
	loop->deferred[loop->n_deferred++] = *ret;
	return 0;
}

int furca_loop_timer(struct furca_loop *loop, int64_t deadline_us, furca_timer_fn *fn, void *owner, furca_op_id *ret)
{
	struct op *op = add(loop, OP_TIMER, -1, (void (*)(void))fn, owner, ret);

	if (!op)
		return -ENOBUFS;
	op->deadline_us = deadline_us;
	int r = furca_heap_add(loop, *ret, op);
	if (r < 0)
		furca_ops_remove(loop->ops, *ret);
	return r;
}

/* Submits what is new and waits for the first completion, the next timer, or not at all. */
static int wait_once(struct furca_loop *loop)
{
	int64_t until = loop->n_deferred ? 0 : furca_heap_first(loop), left = 0;
	struct io_uring_cqe *cqe;

	if (until != FURCA_NEVER && until > 0)
		left = FURCA_MAX(until - furca_now_us(), 0);
	struct __kernel_timespec ts = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};

	loop->enters++;
	int r = io_uring_submit_and_wait_timeout(&loop->ring, &cqe, 1, until == FURCA_NEVER ? NULL : &ts, NULL);
	loop->submitted = loop->sequence - io_uring_sq_ready(&loop->ring);
	return r == -ETIME || r == -EINTR || r == -EAGAIN || r == -EBUSY || r >= 0 ? 0 : r;
}

int furca_loop_run(struct furca_loop *loop, struct furca_err *err)
{
	loop->ended = false;
	while (!loop->ended) {
		struct io_uring_cqe *cqe;
		int r = wait_once(loop);

		if (r < 0)
			return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot wait on the io_uring");
		while (!loop->ended && io_uring_peek_cqe(&loop->ring, &cqe) == 0) {
			struct io_uring_cqe copy = *cqe; /* the slot may be used again while the function runs */

			io_uring_cqe_seen(&loop->ring, cqe);
			loop->completions++;
			dispatch(loop, &copy);
			if (copy.flags & IORING_CQE_F_BUFFER)
				buffer_back(loop, (unsigned short)(copy.flags >> IORING_CQE_BUFFER_SHIFT));
		}
		if (!loop->ended)
			run_deferred(loop);
		fire_due(loop);
	}
	return 0;
}

void furca_loop_end(struct furca_loop *loop)
{
	loop->ended = true;
}

void furca_loop_stats(const struct furca_loop *loop, struct furca_loop_stats *ret)
{
	*ret = (struct furca_loop_stats){
		.operations = furca_ops_count(loop->ops),
		.completions = loop->completions,
		.stale = furca_ops_stale(loop->ops),
		.enters = loop->enters,
		.multishot_recv = loop->provided,
		.multishot_accept = loop->multi_accept,
		.multishot_poll = loop->multi_poll,
		.provided_buffers = loop->provided,
	};
}
