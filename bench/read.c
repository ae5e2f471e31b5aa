/*
 * furca-bench-read [MEGABYTES]: a trivial read-only call on a session that holds a big dict (400 MB unless said), with huge pages against without. Without
 * snapshots, so that each read needs a clone of its own: with a copy parked ahead the size does not show (bench/copy.c). What a read leaves to be done, the
 * end of its copy and the next cell, falls into nobody's time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/auto.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "include/furca.h"

#include "base/banned.h"

enum { ROUNDS = 40, FEW = 15, SETTLE_US = 100000 };

static int run(struct furca_client *client, const char *code, const char *mode)
{
	struct furca_execute args = FURCA_EXECUTE("python", code);

	args.state_mode = mode;
	args.session_id = 0;
	return furca_bench_execute(client, &args);
}

static int look(void *client)
{
	return run(client, "None", "read_only");
}

/* An engine whose sessions may not have huge pages: told by its variable, and kept from the kernel's by prctl, which children inherit. */
static int open_engine(bool huge, struct furca_client **ret, struct furca_error *err)
{
	if (!huge) {
		(void)setenv("FURCA_HUGE_PAGES", "0", 1);
		(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	}
	int r = furca_bench_open("{\"snapshots\": \"off\"}", ret, err);
	(void)unsetenv("FURCA_HUGE_PAGES");
	(void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	return r;
}

static int measure(struct furca_client *with, struct furca_client *without, long megabytes)
{
	static struct furca_bench_series on = {.name = "read-only call, huge pages"},
					 off = {.name = "read-only call, small pages"},
					 tables = {.name = "memcpy of the page tables, small pages",
						   .role = FURCA_BENCH_LIMIT};
	struct furca_bench_tables memory;
	struct furca_bench_task tasks[] = {
		{.series = &on, .run = look, .arg = with, .pause_us = SETTLE_US},
		{.series = &off, .run = look, .arg = without, .pause_us = SETTLE_US},
		{.series = &tables, .run = furca_bench_tables_run, .arg = &memory},
	};
	char fill[256];

	furca_bench_dict(fill, sizeof(fill), megabytes);
	if (run(with, fill, "stateful") < 0 || run(without, fill, "stateful") < 0 ||
	    furca_bench_tables_new(&memory, megabytes) < 0)
		return 1;
	int r = furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? FEW : ROUNDS);
	furca_bench_tables_free(&memory);
	return r < 0 ? 1
		     : furca_bench_say(&(struct furca_bench_line){
			       .name = "small / huge pages",
			       .workload = "a read-only None on a big dict, each with a clone of its own",
			       .over = &off,
			       .under = &on,
			       .limit = &tables,
			       .sense = FURCA_BENCH_AT_LEAST,
			       .goal = 5});
}

int main(int argc, char **argv)
{
	struct furca_client *with = NULL, *without = NULL;
	struct furca_error err = {0};
	long megabytes = argc > 1 ? strtol(argv[1], NULL, 10) : 400;

	if (megabytes < 1 || megabytes > 100000) {
		(void)fprintf(stderr, "usage: furca-bench-read [MEGABYTES]\n");
		return 2;
	}
	if (furca_bench_begin("bench read: a read-only call on a big session, huge pages on against off",
			      FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	if (open_engine(true, &with, &err) < 0 || open_engine(false, &without, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-read: %s\n", err.message);
		furca_close(with);
		return 77;
	}
	int status = measure(with, without, megabytes);
	furca_close(without);
	furca_close(with);
	return status;
}
