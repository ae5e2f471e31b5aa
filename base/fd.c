#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/banned.h"

void furca_fd_done(struct furca_fd *fd)
{
	if (fd->n >= 0) {
		int saved = errno;

		(void)close(fd->n); /* never retried: Linux frees the number whatever it returns */
		errno = saved;
	}
	fd->n = -1;
}

void furca_fds_done(struct furca_fd *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		furca_fd_done(&fds[i]);
}

int furca_fd_dup(int fd, int at_least, struct furca_fd *ret)
{
	int n = fcntl(fd, F_DUPFD_CLOEXEC, at_least < 3 ? 3 : at_least);

	if (n < 0)
		return -errno;
	*ret = furca_fd_own(n);
	return 0;
}

int furca_fd_cloexec(int fd, int on)
{
	int flags = fcntl(fd, F_GETFD);

	if (flags < 0 || fcntl(fd, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC) < 0)
		return -errno;
	return 0;
}

int furca_fd_nonblock(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (poll(&p, 1, -1) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int furca_fd_write_all(int fd, const void *data, size_t n)
{
	const char *at = data;

	while (n > 0) {
		ssize_t w = write(fd, at, n);

		if (w < 0 && errno == EAGAIN) {
			int r = wait_for(fd, POLLOUT);
			if (r < 0)
				return r;
			continue;
		}
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

ssize_t furca_fd_read_full(int fd, void *data, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = read(fd, (char *)data + done, n - done);

		if (r < 0 && errno == EAGAIN) {
			int w = wait_for(fd, POLLIN);
			if (w < 0)
				return w;
			continue;
		}
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

static int close_range_or_scan(unsigned first, unsigned last)
{
	if (first > last)
		return 0;
	if (syscall(SYS_close_range, first, last, 0) == 0)
		return 0;
	if (errno != ENOSYS && errno != EPERM)
		return -errno;

	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return -errno;
	for (struct dirent *e; (e = readdir(dir));) {
		char *end;
		unsigned long fd = strtoul(e->d_name, &end, 10);

		if (end != e->d_name && *end == '\0' && fd >= first && fd <= last && (int)fd != dirfd(dir))
			(void)close((int)fd);
	}
	(void)closedir(dir);
	return 0;
}

int furca_fd_close_rest(const int *keep, size_t n)
{
	int sorted[64];
	size_t count = 0;
	unsigned from = 3;

	if (n > FURCA_COUNT(sorted))
		return -E2BIG;
	for (size_t i = 0; i < n; i++) {
		size_t at = count;

		if (keep[i] < 3)
			continue;
		for (; at > 0 && sorted[at - 1] > keep[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = keep[i];
		count++;
	}
	for (size_t i = 0; i < count; i++) {
		int r = sorted[i] > (int)from ? close_range_or_scan(from, (unsigned)sorted[i] - 1) : 0;

		if (r < 0)
			return r;
		from = (unsigned)sorted[i] + 1;
	}
	return close_range_or_scan(from, ~0U);
}

/* What is on its way counts for the user as a whole, against the limit of who sends: all that this process may have is little more than its own. */
static ssize_t send_with_most(int sock, const struct msghdr *msg)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max) {
		errno = ETOOMANYREFS;
		return -1;
	}
	struct rlimit most = {limit.rlim_max, limit.rlim_max};
	(void)setrlimit(RLIMIT_NOFILE, &most);
	ssize_t r = sendmsg(sock, msg, MSG_NOSIGNAL);
	int sys = errno;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	errno = sys;
	return r;
}

ssize_t furca_fd_send(int sock, const void *data, size_t n, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(FURCA_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t r;

	if (n_fds > FURCA_FDS_MAX)
		return -E2BIG;
	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		r = n_fds ? sendmsg(sock, &msg, MSG_NOSIGNAL) : send(sock, data, n, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	if (r < 0 && n_fds && errno == ETOOMANYREFS)
		r = send_with_most(sock, &msg);
	return r < 0 ? -errno : r;
}

ssize_t furca_fd_recv_cut(int sock, void *data, size_t n, struct furca_fd *fds, size_t *n_fds, bool *ret_cut)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(FURCA_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = data, .iov_len = n};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	size_t room = *n_fds, got = 0;
	bool cut = false;
	ssize_t r;

	*n_fds = 0;
	*ret_cut = false;
	do
		r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (got < room) {
				fds[got++] = furca_fd_own(fd);
			} else {
				(void)close(fd);
				cut = true;
			}
		}
	}
	*ret_cut = cut || (msg.msg_flags & MSG_CTRUNC);
	if (*ret_cut)
		furca_fds_done(fds, got);
	else
		*n_fds = got;
	return r;
}

ssize_t furca_fd_recv(int sock, void *data, size_t n, struct furca_fd *fds, size_t *n_fds)
{
	bool cut;
	ssize_t r = furca_fd_recv_cut(sock, data, n, fds, n_fds, &cut);

	return r >= 0 && cut ? -EMSGSIZE : r;
}
