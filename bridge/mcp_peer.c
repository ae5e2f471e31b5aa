#include "bridge/mcp_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

#define START_TIMEOUT_US ((int64_t)60 * 1000000)
#define END_WAIT_MS 1000 /* until what closed its output is ended */

void furca_mcp_peer_done(struct furca_mcp_peer *peer)
{
	furca_mcp_peer_kill(peer, NULL);
	for (char **list = peer->argv; list && *list; list++)
		free(*list);
	for (char **list = peer->env; list && *list; list++)
		free(*list);
	free(peer->argv);
	free(peer->env);
	free(peer->name);
	free(peer->cwd);
}

static int spawn(struct furca_mcp_peer *peer, int in, int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	int r;

	(void)posix_spawn_file_actions_init(&actions);
	r = posix_spawn_file_actions_adddup2(&actions, in, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out, 1);
	if (r == 0 && peer->cwd)
		r = posix_spawn_file_actions_addchdir_np(&actions, peer->cwd);
	/* A process group of its own, so that what it started can be ended with it. */
	r = r ? -r : furca_proc_spawn(peer->argv[0], peer->argv, peer->env, &actions, POSIX_SPAWN_SETPGROUP, ret);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

static int start_process(struct furca_mcp_peer *peer)
{
	int to[2], from[2];
	pid_t pid = 0;

	if (pipe2(to, O_CLOEXEC) < 0)
		return -errno;
	FURCA_AUTO_FD struct furca_fd their_in = furca_fd_own(to[0]), our_out = furca_fd_own(to[1]);
	if (pipe2(from, O_CLOEXEC) < 0)
		return -errno;
	FURCA_AUTO_FD struct furca_fd our_in = furca_fd_own(from[0]), their_out = furca_fd_own(from[1]);
	int r = furca_fd_nonblock(our_in.n, 1);
	if (r == 0)
		r = furca_fd_nonblock(our_out.n, 1);
	if (r == 0)
		r = spawn(peer, their_in.n, their_out.n, &pid);
	if (r == 0)
		r = furca_proc_open(pid, &peer->proc);
	if (r < 0)
		return r;
	peer->in = furca_fd_take(&our_out);
	peer->out = furca_fd_take(&our_in);
	return 0;
}

int furca_mcp_peer_start(struct furca_mcp_peer *peer)
{
	peer->started_us = furca_now_us();
	peer->deadline_us = peer->started_us + START_TIMEOUT_US;
	peer->looked = 0;
	furca_buf_done(&peer->to);
	furca_buf_done(&peer->from);
	peer->to.max = peer->from.max = FURCA_MAX_CAPABILITY;
	int r = start_process(peer);
	if (r < 0) {
		(void)snprintf(peer->failure, sizeof(peer->failure), "cannot start '%s': %s", peer->argv[0],
			       strerror(-r));
		return r;
	}
	peer->state = FURCA_MCP_PEER_STARTING;
	furca_mcp_peer_say(
		peer,
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},"
		"\"clientInfo\":{\"name\":\"furca\",\"version\":\"1\"}}}");
	return 0;
}

void furca_mcp_peer_say(struct furca_mcp_peer *peer, const char *format, ...)
{
	FURCA_AUTO_FREE char *line = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&line, format, args);
	va_end(args);
	if (n < 0) {
		line = NULL;
		return;
	}
	line[n] = '\n';
	(void)furca_buf_append(&peer->to, line, (size_t)n + 1);
}

int furca_mcp_peer_write(struct furca_mcp_peer *peer)
{
	while (peer->to.len > 0) {
		ssize_t n = write(peer->in.n, peer->to.data, peer->to.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -EPIPE;
		furca_buf_consume(&peer->to, (size_t)n);
	}
	return 0;
}

int furca_mcp_peer_read(struct furca_mcp_peer *peer)
{
	for (;;) {
		int r = furca_buf_reserve(&peer->from, 65536);

		if (r < 0)
			return r;
		ssize_t n = read(peer->out.n, peer->from.data + peer->from.len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN ? 0 : -EPIPE;
		peer->from.len += (size_t)n;
		if (n < 65536)
			return 0;
	}
}

/* Just behind the string that begins at `at`. */
static const char *string_end(const char *at, const char *end)
{
	for (at++; at < end && *at != '"'; at++)
		if (*at == '\\' && at + 1 < end)
			at++;
	return at < end ? at + 1 : end;
}

/* The id of an answer in a line that is no JSON, of what stands in its outermost object; 0: it has none. */
static long long id_of(const char *at, const char *end)
{
	long long id = 0;
	int depth = 0;

	while (at < end) {
		if (*at == '{' || *at == '[')
			depth++;
		else if (*at == '}' || *at == ']')
			depth--;
		if (*at != '"') {
			at++;
			continue;
		}
		const char *key = at;
		at = string_end(at, end);
		if (depth != 1)
			continue;
		size_t n = (size_t)(at - key);
		at += strspn(at, " \t");
		if (at >= end || *at != ':')
			continue;
		if (n == strlen("\"method\"") && memcmp(key, "\"method\"", n) == 0)
			return 0;
		if (n == strlen("\"id\"") && memcmp(key, "\"id\"", n) == 0)
			id = strtoll(at + 1, NULL, 10);
	}
	return id;
}

static json_t *unreadable(struct furca_mcp_peer *peer, size_t n, const json_error_t *why)
{
	const char *line = (const char *)peer->from.data;
	long long id = n > 0 && *line == '{' ? id_of(line, line + n) : 0;

	if (id <= 0)
		return NULL;
	json_t *words = json_sprintf("the server's answer cannot be read: %s", why->text);
	if (!words)
		words = json_string(
			"the server's answer cannot be read"); /* the reason quotes bytes that are no text */
	return json_pack("{s:I, s:{s:o}}", "id", (json_int_t)id, "error", "message", words);
}

json_t *furca_mcp_peer_next(struct furca_mcp_peer *peer)
{
	json_t *message = NULL;
	json_error_t why;

	while (!message) {
		uint8_t *end = peer->from.len > peer->looked
				       ? memchr(peer->from.data + peer->looked, '\n', peer->from.len - peer->looked)
				       : NULL;

		if (!end) {
			peer->looked = peer->from.len;
			return NULL;
		}
		size_t n = (size_t)(end - peer->from.data);
		message = json_loadb((const char *)peer->from.data, n, JSON_ALLOW_NUL, &why);
		if (!message) {
			*end = '\0'; /* reading its numbers ends here */
			message = unreadable(peer, n, &why);
		}
		furca_buf_consume(&peer->from, n + 1);
		peer->looked = 0;
	}
	return message;
}

static void describe_end(struct furca_mcp_peer *peer, int status)
{
	if (WIFSIGNALED(status))
		(void)snprintf(peer->failure, sizeof(peer->failure), "it was ended by signal %d", WTERMSIG(status));
	else
		(void)snprintf(peer->failure, sizeof(peer->failure), "it ended with status %d", WEXITSTATUS(status));
}

void furca_mcp_peer_kill(struct furca_mcp_peer *peer, const char *why)
{
	int status = 0;

	furca_fd_done(&peer->in);
	furca_fd_done(&peer->out);
	furca_buf_done(&peer->to);
	furca_buf_done(&peer->from);
	peer->state = FURCA_MCP_PEER_DOWN;
	if (why)
		(void)snprintf(peer->failure, sizeof(peer->failure), "%s", why);
	if (peer->proc.pid == 0)
		return;
	/* One that is ending by itself is let say how. Its number stays its group's until it is waited for. */
	struct pollfd end = {.fd = peer->proc.pidfd.n, .events = POLLIN};
	if (!why)
		(void)poll(&end, 1, END_WAIT_MS);
	(void)furca_proc_signal(&peer->proc, SIGKILL);
	(void)kill(-peer->proc.pid, SIGKILL);
	if (furca_proc_wait(&peer->proc, 1, &status) > 0 && !why)
		describe_end(peer, status);
	furca_proc_done(&peer->proc);
	peer->proc = FURCA_PROC_NONE;
}
