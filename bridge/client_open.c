/* How a client comes to an engine: a running one, or a child of its own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "bridge/client.h"

#include "base/banned.h"

#define START_TIMEOUT_US (20 * 1000000LL)
#define END_TIMEOUT_MS 10000

/* The number under which a private engine finds its one connection. */
#define INHERITED_FD 3

extern char **environ;

int furca_client_fail(struct furca_error *err, int r, const char *suggestion, const char *format, ...)
{
	va_list ap;

	if (!err)
		return r;
	err->code = -r;
	va_start(ap, format);
	(void)vsnprintf(err->message, sizeof(err->message), format, ap);
	va_end(ap);
	(void)snprintf(err->suggestion, sizeof(err->suggestion), "%s", suggestion ? suggestion : "");
	return r;
}

int furca_default_socket(char *buf, size_t size)
{
	const char *named = getenv("FURCA_SOCKET"), *run = getenv("XDG_RUNTIME_DIR");
	int n;

	if (named && *named)
		n = snprintf(buf, size, "%s", named);
	else if (run && *run)
		n = snprintf(buf, size, "%s/furca.sock", run);
	else
		n = snprintf(buf, size, "/tmp/furca-%u/furca.sock", geteuid());
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* Whether whoever listens there is us or root: what we send it is code and perhaps secrets. */
static bool server_is_ours(int fd)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && (cred.uid == geteuid() || cred.uid == 0);
}

int furca_connect(const char *path, struct furca_client **ret, struct furca_error *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char chosen[sizeof(to.sun_path)];

	if (path ? strlen(path) >= sizeof(chosen) : furca_default_socket(chosen, sizeof(chosen)) < 0)
		return furca_client_fail(err, -ENAMETOOLONG, "Give a shorter path.", "the socket's path is too long");
	if (path)
		(void)snprintf(chosen, sizeof(chosen), "%s", path);
	memcpy(to.sun_path, chosen, sizeof(chosen));
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd.n < 0 || connect(fd.n, (struct sockaddr *)&to, sizeof(to)) < 0)
		return furca_client_fail(
			err, -errno,
			errno == ENOENT || errno == ECONNREFUSED
				? "Start one with `furca serve`; `furca exec` and furca_open_private start one themselves."
				: "Give the socket of an engine of your own.",
			"no engine answers at '%s': %s", chosen, strerror(errno));
	if (!server_is_ours(fd.n))
		return furca_client_fail(err, -EPERM, "Give the socket of an engine of your own.",
					 "'%s' is another user's engine", chosen);
	int r = furca_client_new(furca_fd_take(&fd), ret);
	return r < 0 ? furca_client_fail(err, r, NULL, "no memory for a connection") : 0;
}

/* ---------------------------------------------------------------------------------------------------------- private engine */

static const char *program_of(const struct furca_private *options)
{
	const char *named = getenv("FURCA_PROGRAM");

	if (options && options->program)
		return options->program;
	if (named && *named)
		return named;
	return access(FURCA_BINDIR "/furca", X_OK) == 0 ? FURCA_BINDIR "/furca" : "furca";
}

/*
 * posix_spawn, so that nothing of this process's threads matters. The engine gets a session of its own: a terminal's Ctrl-C is
 * for the program that talks to it. Its standard error stays ours.
 */
static int spawn(const char *program, char *const argv[], int sock, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	int r;

	(void)posix_spawn_file_actions_init(&actions);
	r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, sock, INHERITED_FD);
	r = r ? -r : furca_proc_spawn(program, argv, environ, &actions, POSIX_SPAWN_SETSID, ret);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

static size_t add_option(const char **argv, size_t n, const char *name, const char *value)
{
	if (value) {
		argv[n++] = name;
		argv[n++] = value;
	}
	return n;
}

static int start_engine(const struct furca_private *options, int sock, struct furca_proc *ret, struct furca_error *err)
{
	const char *program = program_of(options), *argv[16] = {program, "serve", "--inherit", "3"};
	size_t n = 4;
	pid_t pid = 0;

	if (options) {
		n = add_option(argv, n, "--state-dir", options->state_dir);
		n = add_option(argv, n, "--workdir", options->workdir);
		n = add_option(argv, n, "--config", options->config);
	}
	int r = spawn(program, (char *const *)(uintptr_t)argv, sock, &pid);
	if (r < 0)
		return furca_client_fail(err, r, "Install furca, or say where it is with $FURCA_PROGRAM.",
					 "cannot start '%s': %s", program, strerror(-r));
	r = furca_proc_open(pid, ret);
	return r < 0 ? furca_client_fail(err, r, NULL, "cannot follow the engine's process") : 0;
}

int furca_open_private(const struct furca_private *options, struct furca_client **ret, struct furca_error *err)
{
	FURCA_AUTO_PROC struct furca_proc engine = FURCA_PROC_NONE;
	FURCA_AUTO_FREE void *hello = NULL;
	struct furca_client *client;
	size_t size;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return furca_client_fail(err, -errno, NULL, "cannot make a socket pair: %s", strerror(errno));
	FURCA_AUTO_FD struct furca_fd ours = furca_fd_own(pair[0]), theirs = furca_fd_own(pair[1]);
	int r = start_engine(options, theirs.n, &engine, err);
	if (r < 0)
		return r;
	furca_fd_done(&theirs);
	r = furca_client_new(furca_fd_take(&ours), &client);
	if (r < 0)
		return furca_client_fail(err, r, NULL, "no memory for a connection");
	client->engine = furca_proc_take(&engine);
	r = furca_call(client, "hello", NULL, 0, (double)START_TIMEOUT_US / 1e6, &hello, &size, NULL);
	if (r < 0) {
		furca_close(client);
		return furca_client_fail(err, r,
					 "Its messages on standard error say why; `furca doctor` tests this machine.",
					 "the private engine did not start: %s", strerror(-r));
	}
	*ret = client;
	return 0;
}

/* An engine that lost its one connection ends by itself; one that does not is ended. */
static void end_engine(struct furca_proc *engine)
{
	struct pollfd fd = {.fd = engine->pidfd.n, .events = POLLIN};
	int status, n;

	if (engine->pid == 0)
		return;
	do
		n = poll(&fd, 1, END_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		(void)furca_proc_signal(engine, SIGKILL);
	(void)furca_proc_wait(engine, 1, &status);
}

void furca_close(struct furca_client *client)
{
	if (!client)
		return;
	FURCA_AUTO_PROC struct furca_proc engine = furca_proc_take(&client->engine);
	furca_client_free(client);
	end_engine(&engine);
}

int furca_fd(const struct furca_client *client)
{
	return client->sock.n;
}
