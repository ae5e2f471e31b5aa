/*
 * furca-bench-call: a trivial stateful call through the C client, against a bare request of the same size over the same kind of socket
 * to a process that answers at once. What is left of the ratio is furca's own part: the engine, the host, the output pipes.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "include/furca.h"

#include "base/banned.h"

/* Sizes of an execute of `None` and of its answer on the wire, near enough. */
enum { REQUEST = 96, ANSWER = 700, ROUNDS = 60, PER_ROUND = 40 };

static _Noreturn void answer_for_ever(int sock)
{
	static char request[REQUEST], answer[ANSWER];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (furca_fd_read_full(sock, request, sizeof(request)) == (ssize_t)sizeof(request))
		if (furca_fd_write_all(sock, answer, sizeof(answer)) < 0)
			break;
	_exit(0);
}

static int bare_round(int sock, struct furca_bench_series *series)
{
	static char request[REQUEST], answer[ANSWER];
	double start = furca_bench_now_us();

	for (int i = 0; i < PER_ROUND; i++) {
		int r = furca_fd_write_all(sock, request, sizeof(request));

		if (r < 0 || furca_fd_read_full(sock, answer, sizeof(answer)) != (ssize_t)sizeof(answer))
			return -EIO;
	}
	furca_bench_add(series, (furca_bench_now_us() - start) / PER_ROUND);
	return 0;
}

static int call_round(struct furca_client *client, struct furca_bench_series *series)
{
	struct furca_execute args = FURCA_EXECUTE("python", "None");
	double start = furca_bench_now_us();

	args.state_mode = "stateful";
	for (int i = 0; i < PER_ROUND; i++)
		if (furca_bench_execute(client, &args) < 0)
			return -EIO;
	furca_bench_add(series, (furca_bench_now_us() - start) / PER_ROUND);
	return 0;
}

static int measure(struct furca_client *client, int sock)
{
	static struct furca_bench_series bare = {.name = "bare request and answer"},
					 call = {.name = "stateful call of `None`"};

	for (int round = -5; round < ROUNDS; round++) {
		if (round == 0)
			bare.n = call.n = 0; /* the first ones warmed up */
		if (bare_round(sock, &bare) < 0 || call_round(client, &call) < 0)
			return 1;
	}
	furca_bench_print(&bare);
	furca_bench_print(&call);
	return furca_bench_ratio("call / bare", &call, &bare, 3.0, true);
}

int main(void)
{
	struct furca_client *client;
	struct furca_error err;
	int pair[2];

	if (furca_bench_begin("bench call: what a stateful call costs beyond its two messages", FURCA_BENCH_ONE_CPU) <
		    0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return 77;
	pid_t pid = fork();
	if (pid < 0)
		return 77;
	if (pid == 0) {
		(void)close(pair[0]);
		answer_for_ever(pair[1]);
	}
	(void)close(pair[1]);
	if (furca_open_private(NULL, &client, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-call: %s\n", err.message);
		return 77;
	}
	int status = measure(client, pair[0]);
	furca_close(client);
	(void)close(pair[0]);
	(void)waitpid(pid, NULL, 0);
	return status;
}
