#include "snapshot/fds_remake.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "snapshot/raw.h"

#include "base/banned.h"

static int option(int fd, int level, int name, int otherwise)
{
	int value = otherwise, size = sizeof(value);

	return furca_raw(SYS_getsockopt, fd, level, name, &value, &size) < 0 ? otherwise : value;
}

static long set(int fd, int level, int name, int value)
{
	return furca_raw(SYS_setsockopt, fd, level, name, &value, sizeof(value));
}

/* The inode of the peer of an unnamed unix socket, asked of sock_diag; 0: none or not known. */
static uint32_t peer_of(struct furca_fds *fds, ino_t ino)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req body;
	} request = {{sizeof(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0},
		     {.sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_ino = (uint32_t)ino, .udiag_show = UDIAG_SHOW_PEER,
		      .udiag_cookie = {~0U, ~0U}}};
	const struct nlmsghdr *head = (const void *)fds->text;
	long n = furca_raw(SYS_sendto, fds->netlink, &request, sizeof(request), 0, NULL, 0);

	if (n >= 0)
		n = furca_raw(SYS_recvfrom, fds->netlink, fds->text, sizeof(fds->text), 0, NULL, NULL);
	if (n < (long)NLMSG_LENGTH(sizeof(struct unix_diag_msg)) || head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return 0;
	long left = (long)head->nlmsg_len - (long)NLMSG_LENGTH(sizeof(struct unix_diag_msg));
	const struct rtattr *at = (const void *)((const struct unix_diag_msg *)NLMSG_DATA(head) + 1);
	for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
		if (at->rta_type == UNIX_DIAG_PEER)
			return *(const uint32_t *)RTA_DATA(at);
	return 0;
}

/* Copies what waits in `from` to its twin by sending into `to`, its twin's other end. Descriptors in flight stay behind. */
static void copy_queue(struct furca_fds *fds, int from, int to)
{
	int before = option(from, SOL_SOCKET, SO_PEEK_OFF, -1);
	long n;

	if (set(from, SOL_SOCKET, SO_PEEK_OFF, 0) < 0)
		return;
	while ((n = furca_raw(SYS_recvfrom, from, fds->text, sizeof(fds->text), MSG_PEEK | MSG_DONTWAIT, NULL, NULL)) > 0)
		if (furca_raw(SYS_sendto, to, fds->text, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < n)
			break; /* more than the twin's buffer takes */
	(void)set(from, SOL_SOCKET, SO_PEEK_OFF, before);
}

static void copy_buffers(int from, int to)
{
	int bytes = option(from, SOL_SOCKET, SO_SNDBUF, 0);

	if (bytes > 0)
		(void)set(to, SOL_SOCKET, SO_SNDBUF, bytes / 2); /* the kernel doubles what it is given */
}

static int remake_pair(struct furca_fds *fds, size_t a, size_t b, int type)
{
	int ends[2], fd_a = fds->entries[a].fd, fd_b = fds->entries[b].fd;
	long r = furca_raw(SYS_socketpair, AF_UNIX, type | SOCK_CLOEXEC, 0, ends);

	if (r < 0)
		return (int)r;
	copy_buffers(fd_a, ends[0]);
	copy_buffers(fd_b, ends[1]);
	copy_queue(fds, fd_a, ends[1]);
	copy_queue(fds, fd_b, ends[0]);
	furca_raw(SYS_fcntl, ends[0], F_SETFL, fds->entries[a].flags & O_NONBLOCK);
	furca_raw(SYS_fcntl, ends[1], F_SETFL, fds->entries[b].flags & O_NONBLOCK);
	r = furca_fds_put(fds, a, ends[0]);
	if (r < 0) {
		furca_raw_close(ends[1]);
		return (int)r;
	}
	return furca_fds_put(fds, b, ends[1]);
}

/* The index of the entry that is the other end of entry `i`, or fds->n. */
static size_t mate_of(struct furca_fds *fds, size_t i)
{
	uint32_t peer = fds->netlink >= 0 ? peer_of(fds, fds->entries[i].ino) : 0;

	for (size_t k = i + 1; peer && k < fds->n; k++) {
		const struct furca_fds_entry *e = &fds->entries[k];

		if (e->kind == FURCA_FDS_SOCKET && !e->done && e->first == (int)k && (uint32_t)e->ino == peer)
			return k;
	}
	return fds->n;
}

static long bind_alike(int fd, int domain, const struct sockaddr_storage *name, int size)
{
	/* Addresses of the machine are not in the cell's network; FREEBIND takes them all the same. */
	(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	(void)set(fd, SOL_IP, IP_FREEBIND, 1);
	if (domain == AF_INET6)
		(void)set(fd, SOL_IPV6, 78 /* IPV6_FREEBIND */, 1);
	if (domain == AF_UNIX)
		size = sizeof(sa_family_t); /* a fresh abstract name: the path belongs to the original */
	return furca_raw(SYS_bind, fd, name, size);
}

/* A socket that waits for others, made again in the cell's own network. -errno where that cannot be. */
static long remake_waiting(const struct furca_fds_entry *e, int domain, int type, bool listening)
{
	struct sockaddr_storage name;
	int size = sizeof(name);
	long r = furca_raw(SYS_getsockname, e->fd, &name, &size);
	long fd = r < 0 ? r : furca_raw(SYS_socket, domain, type | SOCK_CLOEXEC | ((e->flags & O_NONBLOCK) ? SOCK_NONBLOCK : 0),
					option(e->fd, SOL_SOCKET, SO_PROTOCOL, 0));

	if (fd < 0)
		return fd;
	if (domain == AF_INET6)
		(void)set((int)fd, SOL_IPV6, IPV6_V6ONLY, option(e->fd, SOL_IPV6, IPV6_V6ONLY, 0));
	r = bind_alike((int)fd, domain, &name, size);
	if (r >= 0 && listening)
		r = furca_raw(SYS_listen, fd, 128);
	if (r < 0) {
		furca_raw_close(fd);
		return r;
	}
	return fd;
}

int furca_fds_socket(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	int domain = option(e->fd, SOL_SOCKET, SO_DOMAIN, -1), type = option(e->fd, SOL_SOCKET, SO_TYPE, 0);
	bool listening = option(e->fd, SOL_SOCKET, SO_ACCEPTCONN, 0) != 0;
	bool datagrams = type == SOCK_DGRAM;
	long fd = -EOPNOTSUPP;

	if (domain == AF_UNIX && !listening && !(datagrams && fds->no_datagrams)) {
		size_t mate = mate_of(fds, i);

		if (mate < fds->n)
			return remake_pair(fds, i, mate, type);
	}
	if (fds->own_network && (listening || (datagrams && domain != AF_UNIX)) &&
	    (domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX))
		fd = remake_waiting(e, domain, type, listening);
	return fd < 0 ? furca_fds_bury(fds, i, true) : furca_fds_put(fds, i, (int)fd);
}
