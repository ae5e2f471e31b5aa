/*
 * furca-bench-commit: what standing snapshots cost and give, on Python sessions: a trivial read from a parked copy against the same in place, with much
 * and with little state; a read while the session is busy; a call that changes something, with snapshots and without; the way back after a
 * death; a look at a table in a copy against in place.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "include/furca.h"

#include "base/banned.h"

enum { ROUNDS = 40, QUICK_ROUNDS = 12, PARK_US = 60000 }; /* PARK_US: snapshot and parked copy are made in that time */

struct job {
	struct furca_client **client;
	const char *session, *mode, *code;
	bool dies; /* the call ends its process, and is to be rolled back */
};

static struct furca_client *kept, *unkept; /* with snapshots, and without */

static int run(void *arg)
{
	const struct job *job = arg;
	struct furca_execute args = FURCA_EXECUTE("python", job->code);
	struct furca_result result = {0};
	struct furca_error err;

	args.state_mode = job->mode;
	args.session_name = job->session;
	if (furca_execute(*job->client, &args, &result, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-commit: %s\n", err.message);
		return -EIO;
	}
	int r = job->dies ? strcmp(result.state, "rolled_back") == 0 : result.ok;
	if (!r)
		(void)fprintf(stderr, "furca-bench-commit: %s: %s\n", job->session,
			      result.error ? result.error : "the call failed");
	furca_result_done(&result);
	return r ? 0 : -EIO;
}

static int prepare(const char *session, const char *code)
{
	struct job job = {&kept, session, "stateful", code, false};

	return run(&job);
}

/* A session of that many megabytes of bytes, touched all. */
static int fill(const char *session, unsigned megabytes)
{
	char code[64];

	(void)snprintf(code, sizeof(code), "data = b'x' * (%u << 20)", megabytes);
	return prepare(session, code);
}

static struct job in_place = {&kept, "small", "stateful", "None", false},
		  read_small = {&kept, "small", "read_only", "None", false},
		  read_large = {&kept, "large", "read_only", "None", false},
		  read_idle = {&kept, "idle", "read_only", "None", false},
		  read_busy = {&kept, "busy", "read_only", "None", false},
		  change_kept = {&kept, "change", "stateful", "x = 1", false},
		  change_unkept = {&unkept, "change", "stateful", "x = 1", false},
		  die_small = {&kept, "die small", "stateful", "import os; os._exit(1)", true},
		  die_large = {&kept, "die large", "stateful", "import os; os._exit(1)", true},
		  table_in_place = {&kept, "table", "stateful", "float(df['a'].sum() + df['b'].mean())", false},
		  table_read = {&kept, "table", "read_only", "float(df['a'].sum() + df['b'].mean())", false};
static struct furca_bench_series s_in_place = {.name = "trivial call in place"},
				 s_small = {.name = "trivial read, parked, 50 MB"},
				 s_large = {.name = "trivial read, parked, large"},
				 s_idle = {.name = "trivial read, session idle"},
				 s_busy = {.name = "trivial read, session busy"},
				 s_kept = {.name = "changing call without a pause, snapshots"},
				 s_unkept = {.name = "changing call without a pause, no snapshots"},
				 s_kept_apart = {.name = "changing call, snapshots"},
				 s_unkept_apart = {.name = "changing call, no snapshots"},
				 s_die_small = {.name = "death and way back, 8 MB"},
				 s_die_large = {.name = "death and way back, large"},
				 s_table = {.name = "look at a table in place"},
				 s_table_read = {.name = "look at a table in a copy"},
				 s_fork = {.name = "fork and end of a small process", .role = FURCA_BENCH_LIMIT},
				 s_fork_later = {.name = "fork and end of a small process, later",
						 .role = FURCA_BENCH_LIMIT};

static int reads(unsigned rounds)
{
	struct furca_bench_task tasks[] = {
		{&s_in_place, run, &in_place, 1, PARK_US},
		{&s_small, run, &read_small, 1, PARK_US},
		{&s_large, run, &read_large, 1, PARK_US},
		{&s_idle, run, &read_idle, 1, PARK_US},
		{&s_busy, run, &read_busy, 1, PARK_US},
		{&s_kept_apart, run, &change_kept, 1, PARK_US},
		{&s_unkept_apart, run, &change_unkept, 1, PARK_US},
		{&s_fork, furca_bench_fork, NULL, 1, PARK_US},
	};
	struct furca_execute busy = FURCA_EXECUTE("python", "import time\nwhile True: time.sleep(1)");
	struct furca_error err;
	struct furca_result result = {0};
	uint64_t id;

	busy.state_mode = "stateful";
	busy.session_name = "busy";
	if (furca_start(kept, &busy, &id, &err) < 0)
		return -EIO;
	int r = furca_bench_rounds(tasks, FURCA_COUNT(tasks), rounds);
	(void)furca_cancel(kept, id, &err);
	(void)furca_wait(kept, id, FURCA_FOREVER, &result, &err);
	furca_result_done(&result);
	return r;
}

static int others(unsigned rounds, bool table)
{
	struct furca_bench_task tasks[] = {
		{&s_kept, run, &change_kept, 10, 0},
		{&s_unkept, run, &change_unkept, 10, 0},
		{&s_fork_later, furca_bench_fork, NULL, 10, 0},
		{&s_die_small, run, &die_small, 1, PARK_US},
		{&s_die_large, run, &die_large, 1, PARK_US},
		{&s_table, run, &table_in_place, 1, PARK_US},
		{&s_table_read, run, &table_read, 1, 2 * PARK_US},
	};

	return furca_bench_rounds(tasks, FURCA_COUNT(tasks) - (table ? 0 : 2), rounds);
}

static void say(bool table)
{
	const struct furca_bench_line lines[] = {
		{"parked read / in place", "a read-only None against a stateful None, 50 MB of state", &s_small,
		 &s_in_place, &s_fork, FURCA_BENCH_AT_MOST, 2.5},
		{"parked read, large / 50 MB", "a read-only None with 4 GB of state (1 GB with --quick) against 50 MB",
		 &s_large, &s_small, &s_fork, FURCA_BENCH_AT_MOST, 1.5},
		{"read while busy / idle", "a read-only None while the session runs a long call", &s_busy, &s_idle,
		 &s_fork, FURCA_BENCH_AT_MOST, 1.5},
		{"call with snapshots / without", "x = 1, the snapshot of the last one made meanwhile", &s_kept_apart,
		 &s_unkept_apart, &s_fork, FURCA_BENCH_AT_MOST, 2.5},
		{"calls without a pause, with snapshots / without",
		 "x = 1, each waiting for the snapshot of the one before", &s_kept, &s_unkept, &s_fork_later,
		 FURCA_BENCH_NO_GOAL, 0},
		{"way back, large / 8 MB",
		 "from a call that ends its process to the answer that the session is back: 4 GB (1 GB with --quick) against 8 MB",
		 &s_die_large, &s_die_small, &s_fork_later, FURCA_BENCH_AT_MOST, 1.5},
		{"table read / in place",
		 "sum and mean of columns of 500 MB of pandas in a parked copy, after earlier ones", &s_table_read,
		 &s_table, &s_fork_later, FURCA_BENCH_AT_MOST, 1.5},
	};

	for (size_t i = 0; i < FURCA_COUNT(lines) - (table ? 0 : 1); i++)
		(void)furca_bench_say(&lines[i]);
	if (!table)
		furca_bench_skip("table read / in place", "the interpreter has no pandas");
}

static int measure(void)
{
	unsigned rounds = furca_bench_quick() ? QUICK_ROUNDS : ROUNDS, large = furca_bench_quick() ? 1024 : 4096;
	struct job table = {
		&kept, "table", "stateful",
		"import numpy as np, pandas as pd\ndf = pd.DataFrame({c: np.arange(8_000_000) * 0.5 for c in 'abcdefgh'})",
		false};

	if (fill("small", 50) < 0 || fill("idle", 50) < 0 || fill("busy", 50) < 0 || fill("large", large) < 0)
		return -EIO;
	if (reads(rounds) < 0)
		return -EIO;
	/* One large session at a time. */
	if (prepare("large", "del data") < 0 || prepare("large", "None") < 0 || fill("die small", 8) < 0)
		return -EIO;
	struct furca_session session = FURCA_SESSION("python", "large");
	struct furca_error err;
	void *packed = NULL;
	size_t size;

	if (furca_close_session(kept, &session, &packed, &size, &err) < 0 || fill("die large", large) < 0)
		return -EIO;
	free(packed);
	bool has_table = prepare("probe", "import pandas") == 0 && run(&table) == 0;

	if (others(rounds, has_table) < 0)
		return -EIO;
	say(has_table);
	return 0;
}

int main(void)
{
	struct furca_error err = {0};

	if (furca_bench_begin("bench commit: what standing snapshots cost and give", FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	if (furca_bench_open("{\"snapshots\": \"always\"}", &kept, &err) < 0 ||
	    furca_bench_open("{\"snapshots\": \"off\"}", &unkept, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-commit: %s\n", err.message);
		furca_close(kept);
		return 77;
	}
	int r = measure();
	furca_close(unkept);
	furca_close(kept);
	return r < 0 ? 1 : furca_bench_status();
}
