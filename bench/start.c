/*
 * furca-bench-start: what a start costs. A stateless call against a new interpreter; with numpy and pandas preloaded in an environment
 * against importing them anew; and a read-only call of a session in an environment against one of the own interpreter, both without
 * packages. The environments are built on the first run (the one with packages from the package index) and kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <msgpack.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "bridge/wire/value.h"
#include "bridge/wire/pack.h"
#include "include/furca.h"

#include "base/banned.h"

extern char **environ;

static const char spec[] = "[project]\nname = \"furca-bench-start\"\ndependencies = [\"numpy\", \"pandas\"]\n"
			   "[tool.furca]\npreload = [\"numpy\", \"pandas\"]\n";
static const char empty[] = "[project]\nname = \"furca-bench-empty\"\n";

/* Between two calls of an agent lies its thinking: the last process is torn down then, and a copy made ahead. */
enum { BUILD_S = 600, PAUSE_US = 20000 };

static struct furca_client *client;

struct where {
	const char *code, *mode;
	int64_t venv, session;
};

static int call(void *arg)
{
	const struct where *at = arg;
	struct furca_execute args = FURCA_EXECUTE("python", at->code);

	args.state_mode = at->mode;
	args.venv_id = at->venv;
	args.session_id = at->session;
	return furca_bench_execute(client, &args);
}

/* What each line is seen beside. */
static struct furca_bench_series forked = {.name = "fork and end of a small process", .role = FURCA_BENCH_LIMIT};
static const struct furca_bench_task fork_task = {
	.series = &forked, .run = furca_bench_fork, .per_round = 4, .pause_us = PAUSE_US};

struct program {
	char *python, *code;
};

/* Starts an interpreter and waits for its end, as a fresh sandbox for each call would. */
static int start(void *arg)
{
	const struct program *program = arg;
	char *argv[] = {program->python, (char *)"-c", program->code, NULL};
	pid_t pid;
	int status, r = posix_spawn(&pid, program->python, NULL, NULL, argv, environ);

	if (r)
		return -r;
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
		(void)fprintf(stderr, "furca-bench-start: %s -c '%s' failed\n", program->python, program->code);
		return -EIO;
	}
	return 0;
}

/* Declares the environment and builds it where it is not. 0 and *ret, or -errno after a message. */
static int build(const char *text_of_spec, int64_t *ret)
{
	FURCA_AUTO_BUF struct furca_buf args = FURCA_BUF_INIT;
	struct furca_error err = {0};
	struct furca_view answer, text = {0};
	msgpack_packer pk;
	uint64_t id = 0;
	bool ok = false;
	size_t n;
	void *got;

	furca_packer(&pk, &args);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "spec");
	furca_pack_text(&pk, text_of_spec);
	for (int step = 0; step < 2; step++) {
		int r = furca_call(client, step ? "build_env" : "create_env", args.data, args.len, BUILD_S, &got, &n,
				   &err);

		if (r < 0) {
			(void)fprintf(stderr, "furca-bench-start: %s\n", err.message);
			return r;
		}
		answer = (struct furca_view){got, (uint8_t *)got + n};
		(void)furca_map_bool(answer, "ok", &ok);
		(void)furca_map_uint(answer, "venv_id", &id);
		(void)furca_map_text(answer, "error", &text);
		if (!ok)
			(void)fprintf(stderr, "furca-bench-start: %.*s\n", (int)furca_view_size(text),
				      (const char *)text.at);
		free(got);
		if (!ok)
			return -EIO;
		furca_buf_clear(&args);
		msgpack_pack_map(&pk, 1);
		furca_pack_text(&pk, "venv_id");
		msgpack_pack_uint64(&pk, id);
	}
	*ret = (int64_t)id;
	return 0;
}

/* The environment's interpreter, asked of itself. malloc'ed, or NULL. */
static char *interpreter_of(int64_t venv)
{
	struct furca_execute args = FURCA_EXECUTE("python", "import sys; sys.executable");
	struct furca_result result = {0};
	struct furca_error err;
	char *path = NULL;
	size_t n;

	args.state_mode = "stateless";
	args.venv_id = venv;
	if (furca_execute(client, &args, &result, &err) < 0)
		return NULL;
	if (result.ok && result.result_text && (n = strlen(result.result_text)) > 2)
		path = strndup(result.result_text + 1, n - 2); /* without the quotes of its repr */
	furca_result_done(&result);
	return path;
}

static int bare(void)
{
	static struct furca_bench_series peer = {.name = "python -c pass", .role = FURCA_BENCH_PEER},
					 own = {.name = "stateless call of `pass`"};
	static struct program program = {(char *)FURCA_PYTHON, (char *)"pass"};
	static struct where at = {"pass", "stateless", FURCA_NONE, FURCA_NONE};
	struct furca_bench_task tasks[] = {
		{.series = &peer, .run = start, .arg = &program},
		{.series = &own, .run = call, .arg = &at, .per_round = 4, .pause_us = PAUSE_US},
		fork_task};

	if (furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 15 : 60) < 0)
		return -EIO;
	(void)furca_bench_say(&(struct furca_bench_line){.name = "python -c pass / stateless call",
							 .workload = "a start that does nothing",
							 .over = &peer,
							 .under = &own,
							 .limit = &forked,
							 .sense = FURCA_BENCH_AT_LEAST,
							 .goal = 5});
	return 0;
}

static int preloaded(int64_t venv)
{
	static struct furca_bench_series peer = {.name = "python -c 'import numpy, pandas'", .role = FURCA_BENCH_PEER},
					 own = {.name = "stateless call, both preloaded"};
	static struct program program = {NULL, (char *)"import numpy, pandas"};
	static struct where at = {"import numpy, pandas", "stateless", 0, FURCA_NONE};
	struct furca_bench_task tasks[] = {
		{.series = &peer, .run = start, .arg = &program},
		{.series = &own, .run = call, .arg = &at, .per_round = 8, .pause_us = PAUSE_US},
		fork_task};
	FURCA_AUTO_FREE char *python = interpreter_of(venv);

	program.python = python;
	at.venv = venv;
	if (!python || furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 6 : 20) < 0)
		return -EIO;
	(void)furca_bench_say(
		&(struct furca_bench_line){.name = "importing numpy and pandas / stateless call with both",
					   .workload = "a start that has numpy and pandas",
					   .over = &peer,
					   .under = &own,
					   .limit = &forked,
					   .sense = FURCA_BENCH_AT_LEAST,
					   .goal = 100});
	return 0;
}

static int reads(int64_t venv)
{
	static struct furca_bench_series own = {.name = "read-only call, own interpreter"},
					 other = {.name = "read-only call, environment"};
	static struct where first = {"data = list(range(100000))", "stateful", FURCA_NONE, 1},
			    second = {"data = list(range(100000))", "stateful", 0, 1};
	static struct where at = {"len(data)", "read_only", FURCA_NONE, 1}, there = {"len(data)", "read_only", 0, 1};
	struct furca_bench_task tasks[] = {
		{.series = &own, .run = call, .arg = &at, .per_round = 4, .pause_us = PAUSE_US},
		{.series = &other, .run = call, .arg = &there, .per_round = 4, .pause_us = PAUSE_US},
		fork_task};

	second.venv = there.venv = venv;
	if (call(&first) < 0 || call(&second) < 0 ||
	    furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 20 : 80) < 0)
		return -EIO;
	(void)furca_bench_say(
		&(struct furca_bench_line){.name = "read-only call in an environment / in the own interpreter",
					   .workload = "len() of a list in a session",
					   .over = &other,
					   .under = &own,
					   .limit = &forked,
					   .sense = FURCA_BENCH_AT_MOST,
					   .goal = 1.2});
	return 0;
}

int main(void)
{
	struct furca_error err;
	int64_t venv;

	if (furca_bench_begin("bench start: what a start costs", FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	if (furca_open_private(NULL, &client, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-start: %s\n", err.message);
		return 77;
	}
	int r = bare();
	if (r == 0)
		r = build(empty, &venv) < 0 || reads(venv) < 0 ? -EIO : 0;
	if (r == 0 && build(spec, &venv) < 0)
		furca_bench_skip("python -c 'import numpy, pandas'",
				 "an environment with numpy and pandas cannot be built; see the message above");
	else if (r == 0)
		r = preloaded(venv);
	furca_close(client);
	return r < 0 ? 1 : furca_bench_status();
}
