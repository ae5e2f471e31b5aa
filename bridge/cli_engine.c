/* Finding, starting and ending an engine from the command line. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "bridge/cli.h"

#include "base/banned.h"

#define LINGER_S "3600" /* how long an engine that was started on the way outlives its last client */
#define TRIES 40	/* of 50 ms: where another command starts one at the same time */

extern char **environ;

/* Where the log of an engine in the background goes; its directory is made. 0 or an exit status, after a message. */
static int log_path(const char *name, char *buf, size_t size)
{
	char dir[4096], text[4352];
	int r = furca_default_state_dir(dir, sizeof(dir));

	if (r == 0)
		r = furca_make_dirs(dir);
	int n = r < 0 ? 0 : snprintf(buf, size, "%s/engine.log", dir);
	if (r == 0 && n >= 0 && (size_t)n < size)
		return FURCA_EXIT_OK;
	(void)snprintf(text, sizeof(text), "cannot make the state directory '%s': %s", dir,
		       strerror(r < 0 ? -r : ENAMETOOLONG));
	return furca_cli_fail(name, text, "Set $XDG_STATE_HOME to a directory that is yours.");
}

/* Makes the directory of the socket. 0 or an exit status, after a message. */
static int make_place(const char *name, const char *socket)
{
	const char *slash = strrchr(socket, '/');
	FURCA_AUTO_FREE char *dir = slash && slash > socket ? strndup(socket, (size_t)(slash - socket)) : NULL;
	char text[4352];
	int r = dir ? furca_make_dirs(dir) : 0;

	if (r == 0)
		return FURCA_EXIT_OK;
	(void)snprintf(text, sizeof(text), "cannot make the directory '%s' for an engine's socket: %s", dir,
		       strerror(-r));
	return furca_cli_fail(name, text, "Set $FURCA_SOCKET to a path in a directory that is yours.");
}

static int spawn_serve(const char *socket, const char *log, int ready_fd)
{
	const char *argv[] = {"furca", "serve", "--socket", socket, "--linger", LINGER_S, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r;

	(void)posix_spawn_file_actions_init(&actions);
	r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, ready_fd, 1);
	r = r ? -r
	      : furca_proc_spawn("/proc/self/exe", (char *const *)(uintptr_t)argv, environ, &actions,
				 POSIX_SPAWN_SETSID, &pid);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Shows the last lines of a failed engine's log. */
static void show_log(const char *path)
{
	char text[2001];
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));

	if (fd.n < 0)
		return;
	off_t size = lseek(fd.n, 0, SEEK_END);
	(void)lseek(fd.n, size > 2000 ? size - 2000 : 0, SEEK_SET);
	ssize_t n = furca_fd_read_full(fd.n, text, sizeof(text) - 1);
	if (n > 0)
		(void)fprintf(stderr, "%.*s", (int)n, text);
}

/* Starts an engine in the background and waits until it is ready. 0 or an exit status. */
static int start_engine(const char *name, const char *socket)
{
	char log[4200], text[16];
	int ends[2], status = make_place(name, socket);

	if (status == FURCA_EXIT_OK)
		status = log_path(name, log, sizeof(log));
	if (status != FURCA_EXIT_OK)
		return status;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return furca_cli_fail(name, "cannot start an engine", strerror(errno));
	FURCA_AUTO_FD struct furca_fd from = furca_fd_own(ends[0]), to = furca_fd_own(ends[1]);
	int r = spawn_serve(socket, log, to.n);
	furca_fd_done(&to);
	if (r < 0)
		return furca_cli_fail(name, "cannot start an engine", strerror(-r));
	if (furca_fd_read_full(from.n, text, 6) == 6 && memcmp(text, "ready ", 6) == 0) {
		if (isatty(2))
			(void)fprintf(stderr, "%sfurca: started an engine at %s; `furca stop` ends it%s\n",
				      furca_cli_color(2, FURCA_DIM), socket, furca_cli_color(2, FURCA_PLAIN));
		return FURCA_EXIT_OK;
	}
	show_log(log);
	return FURCA_EXIT_FAILED;
}

/* Nobody answers: what to do about it. A socket that was named is somebody's own, which no engine is started at in passing. */
static int no_engine(const char *name, const char *socket, bool named, const struct furca_error *err)
{
	char advice[4352];

	if (strcmp(name, "stop") == 0)
		return furca_cli_fail(name, err->message,
				      named ? NULL
					    : "Nothing is to be ended; one elsewhere is ended with --socket PATH.");
	(void)snprintf(advice, sizeof(advice), "Start one there with `furca serve --socket '%s'`%s.", socket,
		       strcmp(name, "exec") == 0 ? ", or leave --socket out: then one is started where none runs" : "");
	return furca_cli_fail(name, err->message,
			      named ? advice : "Start one with `furca serve`; `furca exec` starts one itself.");
}

int furca_cli_connect(const char *name, const char *socket, bool start, struct furca_client **ret)
{
	const bool named = socket != NULL;
	char path[4096];
	struct furca_error err;
	int status = FURCA_EXIT_OK, r;

	if (!socket) {
		if (furca_default_socket(path, sizeof(path)) < 0)
			return furca_cli_usage(name, "the default socket's path is too long");
		socket = path;
	}
	r = furca_connect(socket, ret, &err);
	if (r == 0)
		return FURCA_EXIT_OK;
	if (r != -ENOENT && r != -ECONNREFUSED)
		return furca_cli_fail(name, err.message, err.suggestion);
	if (named || !start)
		return no_engine(name, socket, named, &err);
	status = start_engine(name, socket);
	/* Where it failed because another command was quicker, that one's engine will do. */
	for (int i = 0; i < TRIES; i++) {
		if (furca_connect(socket, ret, &err) == 0)
			return FURCA_EXIT_OK;
		if (status != FURCA_EXIT_OK && i == 3)
			break;
		(void)poll(NULL, 0, 50);
	}
	return status ? status : furca_cli_fail(name, err.message, err.suggestion);
}

/* The process that serves the connection. */
static int engine_of(struct furca_client *client, struct furca_proc *ret)
{
	struct ucred cred = {0};
	socklen_t n = sizeof(cred);

	if (getsockopt(furca_fd(client), SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || cred.pid <= 0)
		return -ESRCH;
	return furca_proc_open(cred.pid, ret);
}

int furca_cmd_stop(int argc, char **argv)
{
	FURCA_AUTO_PROC struct furca_proc engine = FURCA_PROC_NONE;
	FURCA_AUTO_FREE void *hello = NULL;
	struct furca_cli cli;
	struct furca_client *client = NULL;
	struct furca_error err;
	size_t size;
	int status = furca_cli_options(argc, argv, "stop", NULL, &cli);

	if (status >= 0)
		return status;
	if (cli.argc > 0)
		return furca_cli_usage(
			"stop",
			"'%s' is not expected: it ends the engine with all its sessions; `furca close` ends one",
			cli.argv[0]);
	status = furca_cli_connect("stop", cli.socket, false, &client);
	if (status)
		return status;
	/* The answer shows that the process behind the pidfd still is the one that serves: its number was not used again. */
	int r = engine_of(client, &engine);
	if (r == 0)
		r = furca_call(client, "hello", NULL, 0, 10, &hello, &size, &err);
	if (r == 0)
		r = furca_proc_signal(&engine, SIGTERM);
	furca_close(client);
	if (r < 0)
		return furca_cli_fail("stop", "cannot end the engine", strerror(-r));
	struct pollfd fd = {.fd = engine.pidfd.n, .events = POLLIN};
	if (poll(&fd, 1, 15000) != 1)
		return furca_cli_fail("stop", "the engine did not end within 15 seconds",
				      "Look at its log, or kill it.");
	if (!cli.json)
		(void)printf("ended engine %d\n", (int)engine.pid);
	return FURCA_EXIT_OK;
}
