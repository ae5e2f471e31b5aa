/* The listening socket's place in the file system: whose it is, and what a crashed engine left there. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bridge/server.h"

#include "base/banned.h"

#define GONE_TRIES 50
#define GONE_MS 20

static int address(const char *path, struct sockaddr_un *ret, struct furca_err *err)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(ret->sun_path))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Give a shorter --socket, for example below /tmp or $XDG_RUNTIME_DIR.",
					  "a socket's path must have 1 to %zu bytes, this one has %zu",
					  sizeof(ret->sun_path) - 1, strlen(path));
	memcpy(ret->sun_path, path, strlen(path));
	return 0;
}

/*
 * The lock says that an engine lives even before it listens. A record lock, since it is not inherited by the processes that the
 * engine forks: it ends with the engine, however that ends.
 */
static int take_lock(const char *path, struct furca_fd *ret, struct furca_err *err)
{
	char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	(void)snprintf(name, sizeof(name), "%s.lock", path);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd.n < 0)
		return furca_fail_suggest(err, FURCA_E_SYSTEM, errno,
					  "Give a --socket in a directory that exists and is yours.",
					  "cannot make the lock '%s'", name);
	if (fcntl(fd.n, F_SETLK, &lock) < 0) {
		int saved = errno;

		if (saved == EAGAIN || saved == EACCES) {
			(void)fcntl(fd.n, F_GETLK, &lock);
			return furca_fail_suggest(
				err, FURCA_E_BUSY, EADDRINUSE,
				"Use that engine, end it with `furca stop`, or give another --socket.",
				"an engine (pid %d) serves '%s' already", (int)lock.l_pid, path);
		}
		return furca_fail(err, FURCA_E_SYSTEM, saved, "cannot lock '%s'", name);
	}
	*ret = furca_fd_take(&fd);
	return 0;
}

/*
 * Whether somebody accepts there. A killed engine's ring is taken down by the kernel a little after the engine, and listens until then:
 * since we hold the lock, whoever still answers gets some time to go.
 */
static int is_served(const struct sockaddr_un *to)
{
	for (int i = 0; i < GONE_TRIES; i++) {
		FURCA_AUTO_FD struct furca_fd probe =
			furca_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

		if (probe.n < 0)
			return -errno;
		if (connect(probe.n, (const struct sockaddr *)to, sizeof(*to)) < 0 && errno == ECONNREFUSED)
			return 0;
		(void)poll(NULL, 0, GONE_MS);
	}
	return 1;
}

/* Removes a socket that nobody serves. 0 where the path is free then. */
static int clear_stale(const struct sockaddr_un *to, struct furca_err *err)
{
	struct stat st;

	if (lstat(to->sun_path, &st) < 0)
		return errno == ENOENT ? 0
				       : furca_fail(err, FURCA_E_SYSTEM, errno, "cannot look at '%s'", to->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, EEXIST, "Remove it, or give another --socket.",
					  "'%s' is no socket", to->sun_path);
	int r = is_served(to);
	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot make a socket");
	if (r > 0)
		return furca_fail_suggest(err, FURCA_E_BUSY, EADDRINUSE, "Use that server, or give another --socket.",
					  "somebody serves '%s' already", to->sun_path);
	if (unlink(to->sun_path) < 0 && errno != ENOENT)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot remove the old socket '%s'", to->sun_path);
	return 0;
}

/* The last directory of the path is made, for us alone, where it is missing. */
static void make_directory(const char *path)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');

	if (slash && slash > path && (size_t)(slash - path) < sizeof(dir)) {
		memcpy(dir, path, (size_t)(slash - path));
		dir[slash - path] = '\0';
		(void)mkdir(dir, 0700);
	}
}

int furca_listener_open(const char *path, struct furca_listener *ret, struct furca_err *err)
{
	FURCA_AUTO(furca_listener_done) struct furca_listener l = {FURCA_FD_NONE, FURCA_FD_NONE, NULL};
	struct sockaddr_un to;
	int r = address(path, &to, err);

	if (r < 0)
		return r;
	make_directory(path);
	r = take_lock(path, &l.lock, err);
	if (r == 0)
		r = clear_stale(&to, err);
	if (r < 0)
		return r;
	l.socket = furca_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	/* The mode is set before the name exists: nobody else can connect in between, whatever the umask. */
	if (l.socket.n < 0 || fchmod(l.socket.n, 0600) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a socket");
	if (bind(l.socket.n, (const struct sockaddr *)&to, sizeof(to)) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot bind '%s'", path);
	l.path = strdup(path);
	if (!l.path || chmod(path, 0600) < 0 || listen(l.socket.n, SOMAXCONN) < 0)
		/* cppcheck-suppress memleak */
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot listen on '%s'", path);
	*ret = l;
	l = (struct furca_listener){FURCA_FD_NONE, FURCA_FD_NONE, NULL};
	return 0;
}

void furca_listener_done(struct furca_listener *listener)
{
	char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];

	if (listener->path) {
		(void)unlink(listener->path);
		(void)snprintf(name, sizeof(name), "%s.lock", listener->path);
		(void)unlink(name);
	}
	free(FURCA_TAKE(listener->path));
	furca_fd_done(&listener->socket);
	furca_fd_done(&listener->lock);
}
