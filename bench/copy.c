/*
 * furca-bench-copy: what a copy costs.
 *   a read-only call, fully isolated, in a cell that is ready     against plain fork, run, exit in a Python with the same data
 *   a read-only call for which a copy was parked                  by itself, at several sizes of the session; the copy alone in copy_warm.c
 *   a clone with 8 and with 64 threads, and what a ready cell adds   in copy_clone.c
 */
#include "bench/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "include/furca.h"

#include "base/banned.h"

enum { ROUNDS = 40, FEW = 12, CELL_MADE_US = 20000, PARKED_US = 80000 };

extern char **environ;

int furca_bench_copy_complain(const char *what)
{
	(void)fprintf(stderr, "furca-bench-copy: %s\n", what);
	return -EIO;
}

static unsigned rounds(void)
{
	return furca_bench_quick() ? FEW : ROUNDS;
}

struct session {
	struct furca_client *client;
	const char *name;
};

static int call(const struct session *session, const char *code, const char *mode)
{
	struct furca_execute args = FURCA_EXECUTE("python", code);

	args.state_mode = mode;
	args.session_name = session->name;
	return furca_bench_execute(session->client, &args);
}

static int look(void *session)
{
	return call(session, "len(data)", "read_only");
}

/* ---- the way without furca: a Python that forks for each question -------------------------------------------------------- */

static const char plain_code[] = "import os\n"
				 "%s\n"
				 "os.write(1, b'r')\n"
				 "while os.read(0, 1):\n"
				 "    pid = os.fork()\n"
				 "    if pid == 0:\n"
				 "        os.write(1, b'%%d' %% (len(data) > 0))\n"
				 "        os._exit(0)\n"
				 "    os.waitpid(pid, 0)\n"
				 "    os.write(1, b'e')\n";

struct plain {
	int to, from;
	pid_t pid;
};

static int plain_start(struct plain *plain, const char *fill)
{
	posix_spawn_file_actions_t actions;
	char code[1024], *argv[] = {(char[]){"python3"}, (char[]){"-c"}, code, NULL}, ready;
	int in[2], out[2];

	(void)snprintf(code, sizeof(code), plain_code, fill);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	int r = posix_spawn_file_actions_init(&actions);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	if (r == 0)
		r = posix_spawnp(&plain->pid, argv[0], &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)close(in[0]);
	(void)close(out[1]);
	plain->to = in[1];
	plain->from = out[0];
	return r == 0 && read(plain->from, &ready, 1) == 1
		       ? 0
		       : furca_bench_copy_complain("the plain Python does not start");
}

static int plain_call(void *data)
{
	const struct plain *plain = data;
	char answer[2];

	if (furca_fd_write_all(plain->to, "?", 1) < 0 ||
	    furca_fd_read_full(plain->from, answer, sizeof(answer)) != (ssize_t)sizeof(answer))
		return furca_bench_copy_complain("the plain Python does not answer");
	return 0;
}

static void plain_stop(const struct plain *plain)
{
	(void)close(plain->to);
	(void)close(plain->from);
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

static int against_fork(struct furca_client *client, long megabytes, double goal, struct furca_bench_series series[2],
			const char *const names[4])
{
	struct session session = {client, names[0]};
	struct plain plain;
	char fill[256];

	furca_bench_dict(fill, sizeof(fill), megabytes);
	if (call(&session, fill, "stateful") < 0 || plain_start(&plain, fill) < 0)
		return 1;
	series[0] = (struct furca_bench_series){.name = names[1]};
	series[1] = (struct furca_bench_series){.name = names[2], .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task tasks[] = {
		{.series = &series[0], .run = look, .arg = &session, .pause_us = CELL_MADE_US},
		{.series = &series[1], .run = plain_call, .arg = &plain, .pause_us = CELL_MADE_US},
	};
	int r = furca_bench_rounds(tasks, 2, rounds());
	plain_stop(&plain);
	if (r == 0)
		(void)furca_bench_say(
			&(struct furca_bench_line){.name = names[3],
						   .workload = "len() of a dict, a cell that is ready, no copy parked",
						   .over = &series[0],
						   .under = &series[1],
						   .limit = &series[1],
						   .sense = FURCA_BENCH_AT_MOST,
						   .goal = goal});
	return r < 0 ? 1 : 0;
}

static int ready_cells(struct furca_client *client)
{
	static const char *const small[] = {"small", "read-only call, 50 MB, ready cell",
					    "plain fork, run, exit, 50 MB", "read-only call / plain fork, 50 MB"},
				 *const big[] = {"big", "read-only call, 1 GB, ready cell",
						 "plain fork, run, exit, 1 GB", "read-only call / plain fork, 1 GB"};
	static struct furca_bench_series series[4];
	int r = against_fork(client, 50, 1.5, series, small);

	return r == 0 && !furca_bench_quick() ? against_fork(client, 1000, 1.2, series + 2, big) : r;
}

static int parked_copies(struct furca_client *client)
{
	static const struct {
		long megabytes;
		const char *name, *series, *line;
	} sizes[] = {
		{8, "warm8", "read-only call, copy parked, 8 MB", "the same by a client, 8 MB"},
		{1024, "warm1024", "read-only call, copy parked, 1 GB", "the same by a client, 1 GB"},
		{4096, "warm4096", "read-only call, copy parked, 4 GB", "the same by a client, 4 GB"},
	};
	static struct furca_bench_series series[3],
		forked = {.name = "fork and end of a small process", .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task tasks[4];
	struct session sessions[3];
	size_t n = furca_bench_quick() ? 1 : FURCA_COUNT(sizes);

	for (size_t i = 0; i < n; i++) {
		char fill[64];

		sessions[i] = (struct session){client, sizes[i].name};
		(void)snprintf(fill, sizeof(fill), "data = b'x' * (%ld << 20)", sizes[i].megabytes);
		if (call(&sessions[i], fill, "stateful") < 0)
			return 1;
		series[i] = (struct furca_bench_series){.name = sizes[i].series,
							.curve = "call with a warm copy",
							.x_unit = "MB",
							.x = (double)sizes[i].megabytes};
		tasks[i] = (struct furca_bench_task){
			.series = &series[i], .run = look, .arg = &sessions[i], .pause_us = PARKED_US};
	}
	tasks[n] = (struct furca_bench_task){.series = &forked, .run = furca_bench_fork, .pause_us = PARKED_US};
	if (furca_bench_rounds(tasks, n + 1, rounds()) < 0)
		return 1;
	for (size_t i = 0; i < n; i++) {
		struct furca_bench_line line = {.name = sizes[i].line,
						.workload = "len(data) by the C client, a copy parked ahead",
						.over = &series[i],
						.limit = &forked,
						.sense = FURCA_BENCH_NO_GOAL};
		(void)furca_bench_say(&line);
	}
	return 0;
}

static int with_snapshots(const char *policy, int (*measure)(struct furca_client *client))
{
	struct furca_client *client = NULL;
	struct furca_error err;
	char config[64];

	(void)snprintf(config, sizeof(config), "{\"snapshots\": \"%s\"}", policy);
	if (furca_bench_open(config, &client, &err) < 0)
		return furca_bench_copy_complain(err.message);
	int r = measure(client);
	furca_close(client);
	return r;
}

static int measure(void)
{
	if (furca_bench_begin("bench copy: what a copy of a session costs", FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	int r = furca_bench_copy_clones(rounds());
	if (r == 0)
		r = furca_bench_copy_warm(rounds());
	if (r == 0)
		r = with_snapshots("off", ready_cells); /* and parks no copies */
	if (r == 0)
		r = with_snapshots("auto", parked_copies);
	return r ? 1 : furca_bench_status();
}

/* Clones are children of their origin's parent: this process, which reaps them. */
int main(void)
{
	int status = 0;

	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid_t pid = fork(), ended;
	if (pid < 0)
		return 77;
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		status = measure();
		(void)fflush(NULL);
		_exit(status);
	}
	while ((ended = waitpid(-1, &status, __WALL)) != pid && ended > 0)
		;
	return ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
