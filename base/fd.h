/*
 * Owned file descriptors. In every prototype `int fd` is borrowed, `struct furca_fd fd` is handed over (closed on failure
 * too), `struct furca_fd *ret` is given out. Descriptors are close-on-exec from the call that makes them; 0, 1 and 2
 * belong to the user's code.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"

struct furca_fd {
	int n; /* -1: none */
};

#define FURCA_FD_NONE ((struct furca_fd){-1})

static inline struct furca_fd furca_fd_own(int n)
{
	return (struct furca_fd){n};
}

static inline struct furca_fd furca_fd_take(struct furca_fd *fd)
{
	struct furca_fd taken = *fd;

	fd->n = -1;
	return taken;
}

/* Closes; keeps errno; accepts an empty one. Async-signal-safe. */
void furca_fd_done(struct furca_fd *fd);

/* Closes the array's descriptors and empties them. */
void furca_fds_done(struct furca_fd *fds, size_t n);

#define FURCA_AUTO_FD FURCA_AUTO(furca_fd_done)

/* Duplicates to the lowest number >= at_least (>= 3), close-on-exec. 0 or -errno. Does not block. */
int furca_fd_dup(int fd, int at_least, struct furca_fd *ret);

/* Sets or clears close-on-exec / O_NONBLOCK. 0 or -errno. */
int furca_fd_cloexec(int fd, int on);
int furca_fd_nonblock(int fd, int on);

/* Writes all `n` bytes, going on after EINTR and waiting (poll) after EAGAIN. 0 or -errno. May block. */
int furca_fd_write_all(int fd, const void *data, size_t n);

/* Reads until `n` bytes or end of file; returns the bytes read or -errno. May block. */
ssize_t furca_fd_read_full(int fd, void *data, size_t n);

/*
 * Closes every descriptor >= 3 but those of `keep` (sorted or not, `n` of them, at most 64), with close_range and, where
 * that is missing, /proc/self/fd. Async-signal-safe but for the fallback. 0 or -errno.
 */
int furca_fd_close_rest(const int *keep, size_t n);

#define FURCA_FDS_MAX 8 /* most descriptors in one message */

/*
 * One sendmsg/recvmsg with descriptors, MSG_NOSIGNAL and MSG_CMSG_CLOEXEC, EINTR retried. Send borrows `fds`.
 * Both return bytes moved, 0 at end of file, or -errno (-EAGAIN on a nonblocking socket; -EMSGSIZE where descriptors
 * were cut off, which closes those that came). recv fills at most *n_fds of `fds` and stores how many came. recv_cut gives the bytes also where
 * descriptors were cut off, for want of room here or of descriptors in this process, and says so: none came then.
 */
ssize_t furca_fd_send(int sock, const void *data, size_t n, const int *fds, size_t n_fds);
ssize_t furca_fd_recv(int sock, void *data, size_t n, struct furca_fd *fds, size_t *n_fds);
ssize_t furca_fd_recv_cut(int sock, void *data, size_t n, struct furca_fd *fds, size_t *n_fds, bool *ret_cut);
