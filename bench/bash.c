/*
 * furca-bench-bash: bash calls against the ways without furca.
 *   a stateful `:` in the host     against a marker echoed over bare pipes to a bash that lives on; end to end, for comparison
 *   a read-only `:`                against a stateful one; with 10,000 variables against the state taken as text from a living bash and replayed in a
 *                                  new one, and against the replay alone
 *   a stateless `:`                against `bash -c :`
 *   100 MB of output               as a rate
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/host.h"
#include "bench/limit.h"
#include "include/furca.h"

#include "base/banned.h"

enum { ROUNDS = 40, PER_ROUND = 40, FEW = 8, OUTPUT_BYTES = 100000000 };
enum { PARKED_US = 30000 }; /* after which the copy for the next read stands, whatever the machine does */

extern char **environ;

static int complain(const char *what)
{
	(void)fprintf(stderr, "furca-bench-bash: %s\n", what);
	return -EIO;
}

/* A program whose descriptors 0 and 1 are given; -1: /dev/null. */
static int start(char *const *argv, const int fds[2], pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	for (int i = 0; i < 2 && r == 0; i++)
		if (fds[i] >= 0)
			r = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
		else
			r = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
	if (r == 0)
		r = posix_spawnp(ret, argv[0], &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	return -r;
}

/* Above the numbers that a child is given, so that none is overwritten before it is used. */
static int out_of_the_way(int *fd)
{
	int high = fcntl(*fd, F_DUPFD_CLOEXEC, 50);

	(void)close(*fd);
	*fd = high;
	return high < 0 ? -errno : 0;
}

/* The bare way: code and `echo marker` down a pipe, the marker awaited on another. */
struct bare {
	int to, from;
	pid_t pid;
};

static int bare_start(struct bare *bare)
{
	char *argv[] = {(char[]){"bash"}, (char[]){"--norc"}, (char[]){"--noprofile"}, NULL};
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || out_of_the_way(&in[0]) < 0 ||
	    out_of_the_way(&out[1]) < 0)
		return -errno;
	int r = start(argv, (const int[]){in[0], out[1]}, &bare->pid);
	(void)close(in[0]);
	(void)close(out[1]);
	bare->to = in[1];
	bare->from = out[0];
	return r;
}

/* One line of code, which is to end with status 0; whoever uses a marker wants the status in it. */
static int bare_call(const struct bare *bare, const char *code)
{
	static const char end[] = "\necho @end@$?\n", marker[] = "@end@0\n";
	char text[1024], answer[sizeof(marker)];
	int n = snprintf(text, sizeof(text), "%s%s", code, end);

	if (n >= (int)sizeof(text) || furca_fd_write_all(bare->to, text, (size_t)n) < 0 ||
	    furca_fd_read_full(bare->from, answer, sizeof(marker) - 1) != (ssize_t)sizeof(marker) - 1 ||
	    memcmp(answer, marker, sizeof(marker) - 1) != 0)
		return complain("the bare bash does not answer");
	return 0;
}

static void bare_end(const struct bare *bare)
{
	(void)close(bare->to);
	(void)close(bare->from);
	(void)waitpid(bare->pid, NULL, 0);
}

static struct furca_client *client;

static int engine_call(const char *mode, const char *code)
{
	struct furca_execute args = FURCA_EXECUTE("bash", code);

	args.state_mode = mode;
	args.session_name = strcmp(mode, "stateless") == 0 ? NULL : "bench";
	return furca_bench_execute(client, &args);
}

static int new_bash(const char *code)
{
	char *argv[] = {(char[]){"bash"}, (char[]){"--norc"}, (char[]){"--noprofile"},
			(char[]){"-c"},	  (char *)code,	      NULL};
	int status = -1;
	pid_t pid;

	if (start(argv, (const int[]){-1, -1}, &pid) < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		return complain("a new bash fails");
	return 0;
}

/* What is measured, with what it needs at hand. */
static struct bare bare, full;	     /* `full` has the variables */
static struct furca_bench_host host; /* alone: the first call's pipes serve the next ones too */
static char state_file[] = "/tmp/furca-bench-XXXXXX";
static char *snapshot, *replay; /* code that writes a bash's state to that file, and that sources it */
static struct furca_bench_echo echo = {.request = 9, .answer = 7}; /* as many bytes as the bare way sends */

static int do_bare(void *arg)
{
	return bare_call(&bare, ":");
}

static int do_host(void *arg)
{
	return furca_bench_host_run(&host, ":");
}

static int do_stateful(void *arg)
{
	return engine_call("stateful", ":");
}

static int do_read(void *arg)
{
	return engine_call("read_only", ":");
}

static int do_stateless(void *arg)
{
	return engine_call("stateless", ":");
}

static int do_new(void *arg)
{
	return new_bash(arg);
}

static int do_replay(void *arg)
{
	return new_bash(replay);
}

/* A look without furca at what a bash holds, which may have changed since the last. */
static int do_snapshot(void *arg)
{
	int r = bare_call(&full, snapshot);

	return r < 0 ? r : new_bash(replay);
}

/* 10,000 variables for the session, and for a bare bash; the first snapshot, for the replay alone. */
static int fill(void)
{
	static const char code[] = "for ((i = 0; i < 10000; i++)); do declare \"v$i=value $i\"; done";
	FURCA_AUTO_FD struct furca_fd file = furca_fd_own(mkostemp(state_file, O_CLOEXEC));

	if (file.n < 0 ||
	    asprintf(
		    &snapshot,
		    "{ declare -p; declare -f; alias -p; shopt -p; set +o; umask -p; printf 'cd %%q\\n' \"$PWD\"; } >%s 2>/dev/null",
		    state_file) < 0 ||
	    asprintf(&replay, "shopt -s expand_aliases\n. %s 2>/dev/null\n:", state_file) < 0)
		return -errno;
	if (bare_start(&full) < 0 || bare_call(&full, code) < 0 || bare_call(&full, snapshot) < 0)
		return -EIO;
	return engine_call("stateful", code);
}

static int do_output(void *arg)
{
	char code[64];

	(void)snprintf(code, sizeof(code), "head -c %d /dev/zero", OUTPUT_BYTES);
	return engine_call("stateful", code);
}

/* The same bytes from the same program into memory that is not kept. */
static int do_pipe(void *arg)
{
	static char bytes[1 << 16];
	char *argv[] = {(char[]){"head"}, (char[]){"-c"}, (char[]){"100000000"}, (char[]){"/dev/zero"}, NULL};
	size_t got = 0;
	int out[2];
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0 || out_of_the_way(&out[1]) < 0)
		return -errno;
	int r = start(argv, (const int[]){-1, out[1]}, &pid);
	(void)close(out[1]);
	for (ssize_t n = 1; r == 0 && n > 0; got += n > 0 ? (size_t)n : 0)
		n = read(out[0], bytes, sizeof(bytes));
	(void)close(out[0]);
	if (r == 0 && (waitpid(pid, NULL, 0) != pid || got != OUTPUT_BYTES))
		return complain("a program does not write what it should");
	return r;
}

/* One line: the two series of a comparison and the limit, in turn. */
struct pair {
	struct furca_bench_task tasks[3]; /* over, under, limit */
	struct furca_bench_line line;
};

static int compare(struct pair *pair, unsigned rounds)
{
	pair->line.over = pair->tasks[0].series;
	pair->line.under = pair->tasks[1].series;
	pair->line.limit = pair->tasks[2].series;
	if (furca_bench_rounds(pair->tasks, FURCA_COUNT(pair->tasks), rounds) < 0)
		return -EIO;
	(void)furca_bench_say(&pair->line);
	return 0;
}

static int measure_calls(void)
{
	static struct furca_bench_series marker = {.name = "`:` over bare pipes", .role = FURCA_BENCH_PEER},
					 in_host = {.name = "`:` in the host"}, whole = {.name = "`:` end to end"},
					 again = {.name = "`:` over bare pipes, again", .role = FURCA_BENCH_PEER},
					 bare_echo = {.name = "9 bytes to a process and 7 back",
						      .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task limit = {&bare_echo, furca_bench_echo_run, &echo, PER_ROUND, 0};
	struct pair host_line = {
		.tasks = {{&in_host, do_host, NULL, PER_ROUND, 0}, {&marker, do_bare, NULL, PER_ROUND, 0}, limit},
		.line = {.name = "in the host / over bare pipes",
			 .workload = "a stateful `:`",
			 .sense = FURCA_BENCH_AT_MOST,
			 .goal = 1.2}};
	struct pair whole_line = {
		.tasks = {{&whole, do_stateful, NULL, PER_ROUND, 0}, {&again, do_bare, NULL, PER_ROUND, 0}, limit},
		.line = {.name = "end to end / over bare pipes",
			 .workload = "a stateful `:` by the C client, committed each time",
			 .sense = FURCA_BENCH_NO_GOAL}};

	return compare(&host_line, ROUNDS) < 0 ? -EIO : compare(&whole_line, FEW);
}

static int measure_modes(void)
{
	static struct furca_bench_series stateful = {.name = "stateful `:`"}, reading = {.name = "read-only `:`"},
					 fresh = {.name = "`bash -c :`", .role = FURCA_BENCH_PEER},
					 stateless = {.name = "stateless `:`"},
					 forked = {.name = "fork and end of a small process",
						   .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task limit = {&forked, furca_bench_fork, NULL, 2, PARKED_US};
	struct pair read_line = {
		.tasks = {{&reading, do_read, NULL, 2, PARKED_US}, {&stateful, do_stateful, NULL, 2, PARKED_US}, limit},
		.line = {.name = "read-only / stateful",
			 .workload = "`:`, a parked copy at hand",
			 .sense = FURCA_BENCH_AT_MOST,
			 .goal = 2}};
	struct pair stateless_line = {.tasks = {{&fresh, do_new, (void *)":", 4, PARKED_US},
						{&stateless, do_stateless, NULL, 4, PARKED_US},
						limit},
				      .line = {.name = "`bash -c :` / stateless",
					       .workload = "`:`",
					       .sense = FURCA_BENCH_AT_LEAST,
					       .goal = 2.5}};

	if (engine_call("stateful", "x=1") < 0 || compare(&read_line, ROUNDS) < 0)
		return -EIO;
	return compare(&stateless_line, ROUNDS);
}

static int measure_variables(void)
{
	static struct furca_bench_series whole = {.name = "taken as text, replayed in a new bash",
						  .role = FURCA_BENCH_PEER},
					 alone = {.name = "replayed in a new bash", .role = FURCA_BENCH_PEER},
					 reading = {.name = "read-only `:`, 10,000 variables"},
					 forked = {.name = "fork and end of a small process, later",
						   .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task tasks[] = {{&whole, do_snapshot, NULL, 1, PARKED_US},
					   {&alone, do_replay, NULL, 2, PARKED_US},
					   {&reading, do_read, NULL, 2, PARKED_US},
					   {&forked, furca_bench_fork, NULL, 2, PARKED_US}};
	struct furca_bench_line whole_line = {.name = "replayed / read-only",
					      .workload =
						      "`:` with 10,000 variables; declare -p and the rest, each time",
					      .over = &whole,
					      .under = &reading,
					      .limit = &forked,
					      .sense = FURCA_BENCH_AT_LEAST,
					      .goal = 100};
	struct furca_bench_line alone_line = {.name = "replay alone / read-only",
					      .workload = "`:` with 10,000 variables; the text is at hand",
					      .over = &alone,
					      .under = &reading,
					      .limit = &forked,
					      .sense = FURCA_BENCH_NO_GOAL};

	if (fill() < 0 || furca_bench_rounds(tasks, FURCA_COUNT(tasks), FEW) < 0)
		return -EIO;
	(void)furca_bench_say(&whole_line);
	(void)furca_bench_say(&alone_line);
	return 0;
}

static int measure_output(void)
{
	static struct furca_bench_series took = {.name = "100 MB of output"}, rate = {.name = "output", .unit = "MB/s"},
					 piped = {.name = "100 MB through a pipe", .role = FURCA_BENCH_LIMIT},
					 pipe_rate = {.name = "a pipe", .unit = "MB/s", .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task tasks[] = {{&took, do_output, NULL, 1, PARKED_US},
					   {&piped, do_pipe, NULL, 1, PARKED_US}};
	struct furca_bench_line line = {.name = "output",
					.workload = "head -c 100M /dev/zero, kept whole",
					.over = &rate,
					.limit = &pipe_rate,
					.sense = FURCA_BENCH_AT_LEAST,
					.goal = 1000};

	if (furca_bench_rounds(tasks, FURCA_COUNT(tasks), FEW) < 0)
		return -EIO;
	for (size_t i = 0; i < took.n; i++) {
		furca_bench_add(&rate, OUTPUT_BYTES / took.values[i]);
		furca_bench_add(&pipe_rate, OUTPUT_BYTES / piped.values[i]);
	}
	(void)furca_bench_say(&line);
	return 0;
}

int main(void)
{
	struct furca_error err;
	bool complete = true;

	if (furca_bench_begin("bench bash: calls against a bare pipe, a new bash, a replayed session",
			      FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	if (bare_start(&bare) < 0 || furca_bench_host_start("bash", &host) < 0 || furca_bench_echo_open(&echo) < 0)
		return 77;
	if (furca_open_private(NULL, &client, &err) < 0) {
		(void)complain(err.message);
		return 77;
	}
	if (measure_calls() < 0 || measure_modes() < 0 || measure_variables() < 0 || measure_output() < 0)
		complete = false;
	if (snapshot)
		(void)unlink(state_file);
	free(snapshot);
	free(replay);
	furca_close(client);
	furca_bench_echo_close(&echo);
	if (full.pid)
		bare_end(&full);
	bare_end(&bare);
	furca_bench_host_done(&host);
	(void)waitpid(host.pid, NULL, 0);
	return complete ? furca_bench_status() : 1;
}
