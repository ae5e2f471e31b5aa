/* Clones of a process by the library alone: with 50 MB and threads, and what a cell that is ready adds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/copy.h"
#include "bench/limit.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/init.h"
#include "bridge/wire/limits.h"
#include "snapshot/barriers.h"
#include "snapshot/init.h"
#include "snapshot/namespaces.h"

#include "base/banned.h"

#define BYTES ((size_t)50 << 20)
#define SETTLE_US 5000 /* for a cell to be ready and idle, and for a clone to be gone */
/* For a cell to be gone: the kernel takes its network apart some 30 ms after its end, for milliseconds. */
#define GONE_US 60000

static struct furca_proc init_proc;
static struct furca_fd init_control;

/* A cell, made by the init: its pidfd and its namespaces, which an engine passes on too; its control channel closes with ret[1]. */
static int make_cell(unsigned namespaces, struct furca_fd ret[2], struct furca_namespaces *ret_known)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	FURCA_AUTO_BUF struct furca_buf in = FURCA_BUF_INIT;
	static const char key[] = "namespaces";
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_frame_view frame;
	msgpack_packer packer;
	size_t offset = furca_frame_begin(&buf, &packer, FURCA_INIT_CELL, 1, 1);

	msgpack_pack_str_with_body(&packer, key, sizeof(key) - 1);
	(void)msgpack_pack_uint32(&packer, namespaces);
	if (furca_frame_end(&buf, offset, 0) < 0 || furca_frame_send(init_control.n, buf.data, buf.len, NULL, 0) < 0)
		return furca_bench_copy_complain("the init process does not listen");
	do {
		struct furca_fd fds[FURCA_FDS_MAX];
		struct pollfd wanted = {.fd = init_control.n, .events = POLLIN};
		size_t n = 0;

		furca_buf_clear(&in);
		if (poll(&wanted, 1, 5000) != 1 ||
		    furca_frame_recv(init_control.n, &in, FURCA_MAX_MESSAGE, &frame, fds, &n, &err) != 1)
			return furca_bench_copy_complain("the init process does not answer");
		for (size_t i = 0; i < n && i < 2; i++)
			ret[i] = furca_fd_take(&fds[i]);
		furca_fds_done(fds, n);
	} while (frame.number != FURCA_INIT_CELL_READY);
	(void)furca_map_struct(frame.body, "namespaces", ret_known, sizeof(*ret_known));
	return ret[0].n >= 0 ? 0 : furca_bench_copy_complain("a cell cannot be made here");
}

/* Of this process, with what memory it has by now. */
static double plain_fork(void)
{
	double start = furca_bench_now_us();

	return furca_bench_fork(NULL) < 0 ? -1 : furca_bench_now_us() - start;
}

/* From the call to the end of the clone, as plain_fork; the cell is made before and thrown away after. Negative: failed. */
static double clone_into(unsigned namespaces, unsigned barriers)
{
	struct furca_fd cell[2] = {FURCA_FD_NONE, FURCA_FD_NONE}, pidfd = FURCA_FD_NONE;
	struct furca_clone_report report;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_namespaces known = {{0}};

	if (namespaces && make_cell(namespaces, cell, &known) < 0)
		return -1;
	(void)usleep(SETTLE_US);
	/* A session holds none of these: an engine does. */
	int drop[] = {init_control.n, init_proc.pidfd.n, cell[1].n};
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY,
					.barriers = barriers,
					.required = barriers,
					.cell = cell[0].n,
					.namespaces = namespaces ? &known : NULL,
					.drop = drop,
					.n_drop = FURCA_COUNT(drop)};
	double start = furca_bench_now_us();
	int r = furca_clone(&args, &report, &pidfd, &err);
	if (r == 0)
		_exit(0);
	struct pollfd ended = {.fd = pidfd.n, .events = POLLIN};
	if (r > 0)
		(void)poll(&ended, 1, 5000);
	double us = furca_bench_now_us() - start;
	if (r < 0)
		(void)furca_bench_copy_complain(err.text);
	furca_fd_done(&pidfd);
	furca_fds_done(cell, 2); /* the cell ends with its channel */
	(void)usleep(namespaces ? GONE_US : SETTLE_US);
	return r < 0 ? -1 : us;
}

int furca_bench_copy_cell(struct furca_fd ret[2])
{
	struct furca_namespaces known;

	return make_cell(FURCA_BARRIERS_ALL, ret, &known);
}

static void *sleep_for_ever(void *argument)
{
	for (;;)
		(void)pause();
	return argument;
}

static int threads(unsigned n, double goal, const char *const names[3], unsigned rounds)
{
	static unsigned running = 1;
	static struct furca_bench_series all[4], *series = all;
	struct furca_bench_series *cloned = series++, *forked = series++;
	pthread_attr_t attributes;
	pthread_t thread;

	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setstacksize(&attributes, 65536);
	for (; running < n; running++)
		if (pthread_create(&thread, &attributes, sleep_for_ever, NULL) != 0)
			return 1;
	*cloned = (struct furca_bench_series){.name = names[0]};
	*forked = (struct furca_bench_series){.name = names[1], .role = FURCA_BENCH_LIMIT};
	for (unsigned round = 0; round < rounds + 3; round++) {
		double us = clone_into(FURCA_BARRIER_PROCESSES, 0);

		if (us < 0)
			return 1;
		if (round == 3)
			cloned->n = forked->n = 0;
		furca_bench_add(cloned, us);
		us = plain_fork();
		if (us < 0)
			return 1;
		furca_bench_add(forked, us);
	}
	furca_bench_print(cloned);
	furca_bench_print(forked);
	(void)furca_bench_say(&(struct furca_bench_line){
		.name = names[2],
		.workload = "50 MB, the threads asleep; from the call to the end of the clone",
		.over = cloned,
		.under = forked,
		.limit = forked,
		.sense = FURCA_BENCH_AT_MOST,
		.goal = goal});
	return 0;
}

/* The same copy without a cell and in one that is ready, with all barriers: the difference of each round. */
static int cell_adds(unsigned rounds)
{
	static struct furca_bench_series bare = {.name = "copy, no cell"}, ready = {.name = "copy, ready cell"},
					 adds = {.name = "what a ready cell adds"},
					 forked = {.name = "plain fork, one thread", .role = FURCA_BENCH_LIMIT};
	unsigned all = FURCA_BARRIERS_ALL, inside = FURCA_BARRIER_MEMORY | FURCA_BARRIER_DESCRIPTORS;

	for (unsigned round = 0; round < rounds + 3; round++) {
		double without = clone_into(0, inside), with = clone_into(all, all), least = plain_fork();

		if (without < 0 || with < 0 || least < 0)
			return 1;
		if (round == 3)
			bare.n = ready.n = adds.n = forked.n = 0;
		furca_bench_add(&bare, without);
		furca_bench_add(&ready, with);
		furca_bench_add(&adds, with - without);
		furca_bench_add(&forked, least);
	}
	furca_bench_print(&bare);
	furca_bench_print(&ready);
	furca_bench_print(&forked);
	struct furca_bench_line line = {
		.name = "a ready cell adds",
		.workload = "one thread, a small process, all barriers against memory and descriptors",
		.over = &adds,
		.limit = &forked,
		.sense = FURCA_BENCH_AT_MOST,
		.goal = 300};
	(void)furca_bench_say(&line);
	return 0;
}

int furca_bench_copy_clones(unsigned rounds)
{
	static const char *const eight[] = {"clone, 8 threads, 50 MB", "plain fork, 50 MB",
					    "clone with 8 threads / plain fork"},
				 *const many[] = {"clone, 64 threads, 50 MB", "plain fork, 50 MB (64 threads)",
						  "clone with 64 threads / plain fork"};
	struct furca_err err = FURCA_ERR_INIT;

	if (furca_init_start(&init_proc, &init_control, &err) < 0 || furca_clone_init(&err) < 0 ||
	    furca_fd_nonblock(init_control.n, 0) < 0)
		return furca_bench_copy_complain(err.code ? err.text : "no init process") < 0;
	int r = cell_adds(rounds); /* before there is memory, whose page tables would be most of it */
	void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return furca_bench_copy_complain("no memory") < 0;
	if (r == 0)
		r = threads(8, 1.5, eight, rounds);
	if (r == 0)
		r = threads(64, 3.0, many, rounds);
	(void)munmap(memory, BYTES);
	return r;
}
