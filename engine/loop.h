/*
 * The loop: one thread, one io_uring. Owns the ring, waits on sockets, pipes, pidfds, signals and timers in one place and
 * calls the functions given with each. It knows nothing of what it carries.
 *
 * Every function that starts something gives out a furca_op_id; furca_loop_cancel ends it, after which its function is
 * never called again, so that the owner may be freed at once: memory the kernel may still use belongs to the loop. A
 * function may cancel any operation, its own included, and start others. Descriptors are borrowed; cancel before closing.
 * A start that fails (no slot, no memory) gives -errno and calls nothing.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "engine/op.h"

struct furca_loop;

/* Makes the ring, after probing what the kernel offers. 0 or -errno. Every child must have been forked before or close-on-exec. */
int furca_loop_new(struct furca_loop **ret, struct furca_err *err);

/* Cancels what is left and frees. Not from within a function of the loop. */
void furca_loop_free(struct furca_loop *loop);

/* Runs until furca_loop_end is called. 0 or -errno where the ring broke. */
int furca_loop_run(struct furca_loop *loop, struct furca_err *err);
void furca_loop_end(struct furca_loop *loop);

/* Ends an operation: its function is not called any more. 0 and stale ids are ignored. */
void furca_loop_cancel(struct furca_loop *loop, furca_op_id id);

/* As furca_loop_cancel, and forgets the id. */
static inline void furca_loop_drop(struct furca_loop *loop, furca_op_id *id)
{
	furca_loop_cancel(loop, *id);
	*id = FURCA_OP_NONE;
}

/* What tells once and has nothing to say but that: a timer, and the like. */
typedef void furca_timer_fn(void *owner);

/*
 * Accepts connections on a listening socket until cancelled (multishot where the kernel has it). Each comes as an owned,
 * nonblocking, close-on-exec descriptor. Out of descriptors or memory, it goes on after a tenth of a second.
 */
typedef void furca_accept_fn(void *owner, struct furca_fd fd);
int furca_loop_accept(struct furca_loop *loop, int fd, furca_accept_fn *fn, void *owner, furca_op_id *ret);

/*
 * Receives from a stream socket (nonblocking) until cancelled, the end of file (n 0) or an error (n = -errno), after either of which
 * the operation has ended by itself. `data` is borrowed for the call. Multishot into provided buffers where the kernel has them.
 */
typedef void furca_recv_fn(void *owner, const uint8_t *data, ssize_t n);
int furca_loop_recv(struct furca_loop *loop, int fd, furca_recv_fn *fn, void *owner, furca_op_id *ret);

/*
 * Back-pressure: stops reading, or goes on. What had been received already still comes (at most the loop's provided buffers,
 * 2 MiB). No data is lost or reordered.
 */
void furca_loop_recv_pause(struct furca_loop *loop, furca_op_id id, bool pause);

/*
 * Ends a receive so that its socket can be read in another way: what the kernel has taken from the socket already still comes to the receive's
 * own function, then `fn` is called once, and the operation has ended. Until then *id is valid, to be cancelled or not; it may have changed.
 * 0 or -ENOBUFS. At the end of file or after an error fn is not called.
 */
int furca_loop_recv_stop(struct furca_loop *loop, furca_op_id *id, furca_timer_fn *fn);

/*
 * Sends all bytes of `buf` on a stream socket. The loop takes the content of *buf (leaves it empty) and hands it back to `fn`, with 0
 * or -errno, to be used again, or freed if fn leaves it there. One send at a time on a socket. If cancelled, what was
 * begun may still go out.
 */
typedef void furca_sent_fn(void *owner, int result, struct furca_buf *buf);
int furca_loop_send(struct furca_loop *loop, int fd, struct furca_buf *buf, furca_sent_fn *fn, void *owner,
		    furca_op_id *ret);

/*
 * Tells of poll(2) events until cancelled. Edge-triggered: fn reads until EAGAIN. On POLLHUP or POLLERR or once it has seen what it waited
 * for (a pidfd's POLLIN) fn cancels. `events` as poll(2); fn gets revents.
 */
typedef void furca_poll_fn(void *owner, unsigned revents);
int furca_loop_poll(struct furca_loop *loop, int fd, unsigned events, furca_poll_fn *fn, void *owner, furca_op_id *ret);

/*
 * Calls fn once when the shared 32-bit futex at `word` no longer has that value, or was woken; spuriously too. -EOPNOTSUPP where the kernel cannot (before
 * Linux 6.7). The word may be unmapped once the operation was cancelled.
 */
int furca_loop_futex(struct furca_loop *loop, const uint32_t *word, uint32_t value, furca_timer_fn *fn, void *owner,
		     furca_op_id *ret);
bool furca_loop_has_futex(const struct furca_loop *loop);

/* Calls fn once at or soon after `deadline_us` (base/clock.h); FURCA_NEVER never comes but can be cancelled. */
int furca_loop_timer(struct furca_loop *loop, int64_t deadline_us, furca_timer_fn *fn, void *owner, furca_op_id *ret);

/* Calls fn once, from the loop, before it waits again: to get out of a deep call. In the order of the calls. */
int furca_loop_defer(struct furca_loop *loop, furca_timer_fn *fn, void *owner, furca_op_id *ret);

/* Blocks the signals of `set` in this thread and calls fn for each that comes. */
typedef void furca_signal_fn(void *owner, int signo);
int furca_loop_signals(struct furca_loop *loop, const sigset_t *set, furca_signal_fn *fn, void *owner,
		       furca_op_id *ret);

struct furca_loop_stats {
	uint32_t operations;  /* in flight, timers included */
	uint64_t completions; /* handled */
	uint64_t stale;	      /* that came after their operation's end */
	uint64_t enters;      /* waits */
	bool multishot_recv, multishot_accept, multishot_poll, provided_buffers;
};

void furca_loop_stats(const struct furca_loop *loop, struct furca_loop_stats *ret);
