/*
 * furca-bench-call: a trivial stateful call through the C client, against a bare request of the same size over the same kind of socket
 * to a process that answers at once. What is left of the ratio is furca's own part: the engine, the host, the output pipes.
 */
#include <stdio.h>

#include "base/auto.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "include/furca.h"

#include "base/banned.h"

/* Sizes of an execute of `None` and of its answer on the wire, near enough. */
enum { REQUEST = 96, ANSWER = 700, ROUNDS = 60, PER_ROUND = 40 };

static int call_none(void *client)
{
	struct furca_execute args = FURCA_EXECUTE("python", "None");

	args.state_mode = "stateful";
	return furca_bench_execute(client, &args);
}

static int measure(struct furca_client *client, struct furca_bench_echo *echo)
{
	static struct furca_bench_series bare = {.name = "bare request and answer", .role = FURCA_BENCH_LIMIT},
					 call = {.name = "stateful call of `None`"};
	struct furca_bench_task tasks[] = {
		{.series = &bare, .run = furca_bench_echo_run, .arg = echo, .per_round = PER_ROUND},
		{.series = &call, .run = call_none, .arg = client, .per_round = PER_ROUND},
	};

	if (furca_bench_rounds(tasks, FURCA_COUNT(tasks), ROUNDS) < 0)
		return 1;
	return furca_bench_say(&(struct furca_bench_line){
		.name = "call / bare",
		.workload = "None in a Python session by the C client, one call after the other",
		.over = &call,
		.under = &bare,
		.limit = &bare,
		.sense = FURCA_BENCH_AT_MOST,
		.goal = 3});
}

int main(void)
{
	struct furca_bench_echo echo = {.request = REQUEST, .answer = ANSWER};
	struct furca_client *client;
	struct furca_error err;

	if (furca_bench_begin("bench call: what a stateful call costs beyond its two messages", FURCA_BENCH_ONE_CPU) <
		    0 ||
	    furca_bench_echo_open(&echo) < 0)
		return 77;
	if (furca_open_private(NULL, &client, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-call: %s\n", err.message);
		furca_bench_echo_close(&echo);
		return 77;
	}
	int status = measure(client, &echo);
	furca_close(client);
	furca_bench_echo_close(&echo);
	return status;
}
