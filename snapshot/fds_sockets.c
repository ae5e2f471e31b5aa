#include "snapshot/fds_remake.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/auto.h"
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
		     {.sdiag_family = AF_UNIX,
		      .udiag_states = ~0U,
		      .udiag_ino = (uint32_t)ino,
		      .udiag_show = UDIAG_SHOW_PEER,
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
	while ((n = furca_raw(SYS_recvfrom, from, fds->text, sizeof(fds->text), MSG_PEEK | MSG_DONTWAIT, NULL, NULL)) >
	       0)
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

/* Sockets that a standing snapshot will bind when it becomes the session. */
struct waiting {
	int fd, size;
	bool listening;
	struct sockaddr_storage name;
};
static struct waiting waiting[64];
static size_t n_waiting;

static struct waiting *waiting_at(int fd)
{
	for (size_t i = 0; i < n_waiting; i++)
		if (waiting[i].fd == fd)
			return &waiting[i];
	return NULL;
}

static void forget_port(struct sockaddr_storage *name, int *size)
{
	if (name->ss_family == AF_INET)
		((struct sockaddr_in *)name)->sin_port = 0;
	else if (name->ss_family == AF_INET6)
		((struct sockaddr_in6 *)name)->sin6_port = 0;
	else if (name->ss_family == AF_UNIX)
		*size = sizeof(sa_family_t); /* a fresh abstract name */
}

static long bind_and_listen(int fd, const struct sockaddr_storage *name, int size, bool listening)
{
	/* Addresses of the machine are not in the cell's network; FREEBIND takes them all the same. */
	(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	(void)set(fd, SOL_IP, IP_FREEBIND, 1);
	if (name->ss_family == AF_INET6)
		(void)set(fd, SOL_IPV6, 78 /* IPV6_FREEBIND */, 1);
	long r = furca_raw(SYS_bind, fd, name, size);
	return r >= 0 && listening ? furca_raw(SYS_listen, fd, 128) : r;
}

/* A socket that waits for others, made again. -errno where that cannot be. */
static long remake_waiting(struct furca_fds *fds, const struct furca_fds_entry *e, int domain, int type, bool listening)
{
	struct waiting now = {.fd = e->fd, .size = sizeof(now.name), .listening = listening};
	struct waiting *before = waiting_at(e->fd);
	int flags = SOCK_CLOEXEC | ((e->flags & O_NONBLOCK) ? SOCK_NONBLOCK : 0);
	long r = before ? 0 : furca_raw(SYS_getsockname, e->fd, &now.name, &now.size);
	long fd = r < 0 ? r : furca_raw(SYS_socket, domain, type | flags, option(e->fd, SOL_SOCKET, SO_PROTOCOL, 0));

	if (fd < 0)
		return fd;
	if (domain == AF_INET6)
		(void)set((int)fd, SOL_IPV6, IPV6_V6ONLY, option(e->fd, SOL_IPV6, IPV6_V6ONLY, 0));
	if (before)
		now = *before;
	if (fds->standing) {
		if (!before && n_waiting < FURCA_COUNT(waiting))
			waiting[n_waiting++] = now;
		return fd;
	}
	forget_port(&now.name, &now.size);
	r = bind_and_listen((int)fd, &now.name, now.size, now.listening);
	if (r < 0) {
		furca_raw_close(fd);
		return r;
	}
	return fd;
}

/* The path of a unix socket that nobody answers any more stands in the way of its successor. */
static void clear_path(const struct waiting *w)
{
	const struct sockaddr_un *name = (const void *)&w->name;
	struct stat st;

	if (w->name.ss_family == AF_UNIX && name->sun_path[0] == '/' &&
	    furca_raw(SYS_newfstatat, AT_FDCWD, name->sun_path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
		furca_raw(SYS_unlinkat, AT_FDCWD, name->sun_path, 0);
}

void furca_fds_promote(void)
{
	for (size_t i = 0; i < n_waiting; i++) {
		const struct waiting *w = &waiting[i];

		if (bind_and_listen(w->fd, &w->name, w->size, w->listening) < 0) {
			clear_path(w);
			(void)bind_and_listen(w->fd, &w->name, w->size, w->listening);
		}
	}
	n_waiting = 0;
}

int furca_fds_socket(struct furca_fds *fds, size_t i)
{
	const struct furca_fds_entry *e = &fds->entries[i];
	int domain = option(e->fd, SOL_SOCKET, SO_DOMAIN, -1), type = option(e->fd, SOL_SOCKET, SO_TYPE, 0);
	bool listening = option(e->fd, SOL_SOCKET, SO_ACCEPTCONN, 0) != 0;
	bool datagrams = type == SOCK_DGRAM, waits = listening || (datagrams && domain != AF_UNIX) || waiting_at(e->fd);
	long fd = -EOPNOTSUPP;

	if (domain == AF_UNIX && !waits && !(datagrams && fds->no_datagrams)) {
		size_t mate = mate_of(fds, i);

		if (mate < fds->n)
			return remake_pair(fds, i, mate, type);
	}
	if ((fds->own_network || fds->standing) && waits &&
	    (domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX))
		fd = remake_waiting(fds, e, domain, type, listening);
	return fd < 0 ? furca_fds_bury(fds, i, true) : furca_fds_put(fds, i, (int)fd);
}
