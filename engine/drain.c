#include "engine/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/banned.h"

#define ROUNDS 16 /* reads of one pipe before the others have their turn */

#define LARGE_PIPE (1 << 20) /* for what writes much: a small one fills, and its writer sleeps, at every 64 KiB */

static uint8_t bytes[1 << 18]; /* one thread, one loop: nobody else reads while fn runs on them */

/* One read. 1: bytes came; 0: not now, or ended, or closed by fn. */
static int read_once(struct furca_drain *d, size_t most)
{
	unsigned open = 1;
	ssize_t n;

	do
		n = read(d->fd.n, bytes, FURCA_MIN(most, sizeof(bytes)));
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		d->ended = true;
		furca_loop_drop(d->loop, &d->op);
		d->fn(d->owner, d->which, bytes, 0);
		return 0;
	}
	d->total += (size_t)n;
	if (!d->large && d->total > LARGE_PIPE) { /* not before, since all pipes of a user together are bounded */
		d->large = true;
		(void)fcntl(d->fd.n, F_SETPIPE_SZ, LARGE_PIPE);
	}
	d->open_mark = &open; /* cppcheck-suppress autoVariables ; taken back below, unless d has gone */
	d->fn(d->owner, d->which, bytes, (size_t)n);
	if (!open)
		return 0;
	d->open_mark = NULL;
	return 1;
}

static void go_on(void *owner)
{
	struct furca_drain *d = owner;

	d->again = FURCA_OP_NONE;
	for (int i = 0; i < ROUNDS; i++)
		if (!read_once(d, sizeof(bytes)))
			return;
	if (furca_loop_defer(d->loop, go_on, d, &d->again) < 0)
		furca_drain_now(d);
}

static void readable(void *owner, unsigned revents)
{
	struct furca_drain *d = owner;

	if (!d->again)
		go_on(d);
}

int furca_drain_open(struct furca_drain *d, struct furca_loop *loop, int which, furca_drain_fn *fn, void *owner,
		     struct furca_fd *ret_write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	FURCA_AUTO_FD struct furca_fd reader = furca_fd_own(ends[0]), writer = furca_fd_own(ends[1]);
	memset(d, 0, sizeof(*d));
	int r = furca_fd_nonblock(reader.n, 1);
	if (r == 0)
		r = furca_loop_poll(loop, reader.n, POLLIN, readable, d, &d->op);
	if (r < 0)
		return r;
	d->loop = loop;
	d->which = which;
	d->fn = fn;
	d->owner = owner;
	d->fd = furca_fd_take(&reader);
	*ret_write_end = furca_fd_take(&writer);
	return 0;
}

void furca_drain_now(struct furca_drain *d)
{
	int there = 0;

	if (!d->loop || d->ended || ioctl(d->fd.n, FIONREAD, &there) < 0)
		return;
	while (there > 0) {
		size_t most = FURCA_MIN((size_t)there, sizeof(bytes));

		if (!read_once(d, most))
			return;
		there -= (int)most;
	}
}

void furca_drain_done(struct furca_drain *d)
{
	if (!d->loop)
		return;
	if (d->open_mark)
		*d->open_mark = 0;
	furca_loop_drop(d->loop, &d->op);
	furca_loop_drop(d->loop, &d->again);
	furca_fd_done(&d->fd);
	d->loop = NULL;
}
