#include "bench/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bridge/wire/host.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "langs/lang.h"
#include "snapshot/clone.h"

#include "base/banned.h"

extern char **environ;

static int complain(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	return -EIO;
}

/* Both ends of the two channels, the host's above the numbers that it is given. */
static int make_channels(struct furca_bench_host *host, struct furca_fd ends[2])
{
	static const int types[2] = {SOCK_STREAM, SOCK_SEQPACKET};
	struct furca_fd *ours[2] = {&host->control, &host->capability};

	for (int i = 0; i < 2; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
		*ours[i] = furca_fd_own(pair[0]);
		FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(pair[1]);
		int r = furca_fd_dup(theirs.n, 50, &ends[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int spawn(const char *language, const struct furca_fd ends[2], pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	struct furca_err err = FURCA_ERR_INIT;
	char **argv = NULL;

	if (furca_lang_find(language, strlen(language))->argv(NULL, &argv, &err) < 0)
		return complain(err.text);
	int r = posix_spawn_file_actions_init(&actions);
	for (int i = 0; r == 0 && i < 3; i++)
		r = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, ends[0].n, FURCA_HOST_CONTROL_FD);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, ends[1].n, FURCA_HOST_CAPABILITY_FD);
	if (r == 0)
		r = posix_spawnp(ret, argv[0], &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	furca_lang_argv_free(argv);
	return -r;
}

static void clear(struct furca_bench_host *host)
{
	*host = (struct furca_bench_host){.control = FURCA_FD_NONE,
					  .capability = FURCA_FD_NONE,
					  .proc = FURCA_FD_NONE,
					  .output = {FURCA_FD_NONE, FURCA_FD_NONE}};
}

int furca_bench_host_start(const char *language, struct furca_bench_host *ret)
{
	struct furca_fd ends[2] = {FURCA_FD_NONE, FURCA_FD_NONE};
	struct furca_frame_view ready;

	clear(ret);
	int r = make_channels(ret, ends);
	if (r == 0)
		r = spawn(language, ends, &ret->pid);
	furca_fds_done(ends, 2);
	return r < 0 ? r : furca_bench_host_receive(ret, FURCA_HOST_READY, &ready);
}

size_t furca_bench_host_begin(struct furca_bench_host *host, msgpack_packer *pk, enum furca_frame number,
			      uint32_t fields)
{
	furca_buf_clear(&host->out);
	return furca_frame_begin(&host->out, pk, number, ++host->calls, fields);
}

int furca_bench_host_send(struct furca_bench_host *host, size_t at, const int *fds, unsigned n_fds)
{
	int r = furca_frame_end(&host->out, at, n_fds);

	return r < 0 ? r : furca_frame_send(host->control.n, host->out.data, host->out.len, fds, n_fds);
}

int furca_bench_host_receive(struct furca_bench_host *host, enum furca_frame number, struct furca_frame_view *ret)
{
	struct furca_err err = FURCA_ERR_INIT;
	size_t need = 1;

	furca_buf_consume(&host->in, host->taken);
	host->taken = 0;
	for (;;) { /* as the engine does: whatever is there, which may be more than one frame */
		int r = furca_frame_parse(host->in.data, host->in.len, FURCA_MAX_HOST_FRAME, ret, &need, &err);
		if (r < 0 || (r == 1 && ret->number != number))
			return complain(err.code ? err.text : "the host gives another answer");
		if (r == 1) {
			host->taken = ret->size;
			return 0;
		}
		struct furca_fd fds[FURCA_FDS_MAX];
		size_t n_fds = FURCA_COUNT(fds), room = FURCA_MAX(need, 4096);

		if (furca_buf_reserve(&host->in, room) < 0)
			return -ENOMEM;
		ssize_t n = furca_fd_recv(host->control.n, host->in.data + host->in.len, room, fds, &n_fds);
		if (n <= 0)
			return complain("the host does not answer");
		if (n_fds > 0)
			host->proc = furca_fd_take(&fds[0]);
		furca_fds_done(fds, n_fds);
		host->in.len += (size_t)n;
	}
}

int furca_bench_host_pipes(struct furca_bench_host *host, int ret_ends[2])
{
	for (int i = 0; i < 2; i++) {
		int both[2];

		if (pipe2(both, O_CLOEXEC) < 0)
			return -errno;
		furca_fd_done(&host->output[i]);
		host->output[i] = furca_fd_own(both[0]);
		ret_ends[i] = both[1];
	}
	return 0;
}

int furca_bench_host_run(struct furca_bench_host *host, const char *code)
{
	unsigned n_fds = host->output[0].n < 0 ? 2 : 0;
	struct furca_frame_view done;
	msgpack_packer pk;
	int ends[2];

	if (n_fds && furca_bench_host_pipes(host, ends) < 0)
		return complain("no pipes");
	size_t at = furca_bench_host_begin(host, &pk, FURCA_HOST_RUN, 1);
	furca_pack_entry(&pk, "code", code);
	int r = furca_bench_host_send(host, at, ends, n_fds);
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(ends[i]);
	return r < 0 ? r : furca_bench_host_receive(host, FURCA_HOST_DONE, &done);
}

int furca_bench_host_copy(struct furca_bench_host *host, int cell, struct furca_bench_host *ret)
{
	struct furca_fd ends[2] = {FURCA_FD_NONE, FURCA_FD_NONE};
	struct furca_frame_view frame;
	struct furca_view error;
	msgpack_packer pk;

	clear(ret);
	int r = make_channels(ret, ends);
	if (r == 0) {
		size_t at = furca_bench_host_begin(host, &pk, FURCA_HOST_CLONE, 3);

		furca_pack_text(&pk, "role");
		(void)msgpack_pack_int(&pk, FURCA_CLONE_COPY);
		furca_pack_text(&pk, "barriers");
		(void)msgpack_pack_uint64(&pk, FURCA_BARRIERS_ALL);
		furca_pack_text(&pk, "required");
		(void)msgpack_pack_uint64(&pk, FURCA_BARRIERS_ALL);
		r = furca_bench_host_send(host, at, (const int[]){ends[0].n, ends[1].n, cell}, 3);
	}
	furca_fds_done(ends, 2);
	if (r == 0)
		r = furca_bench_host_receive(host, FURCA_HOST_CLONED, &frame);
	if (r == 0 && furca_map_text(frame.body, "error", &error))
		r = complain("no copy can be made");
	if (r == 0) {
		ret->proc = furca_fd_take(&host->proc);
		r = furca_bench_host_receive(ret, FURCA_HOST_READY, &frame);
	}
	return r;
}

void furca_bench_host_done(struct furca_bench_host *host)
{
	if (host->proc.n >= 0)
		(void)syscall(SYS_pidfd_send_signal, host->proc.n, SIGKILL, NULL, 0);
	furca_fd_done(&host->proc);
	furca_fd_done(&host->control);
	furca_fd_done(&host->capability);
	furca_fds_done(host->output, 2);
	furca_buf_done(&host->in);
	furca_buf_done(&host->out);
}
