/* Threads that stay parked in a clone, snapshots that are promoted, and clones of clones. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/clone_harness.h"

static atomic_long ticks, pool_rounds;
static atomic_int stop, held, release;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t ticker, holder, pool[2];

static void *tick(void *argument)
{
	while (!stop) {
		ticks++;
		harness_sleep_us(200);
	}
	return argument;
}

static void *hold(void *argument)
{
	pthread_mutex_lock(&mutex);
	held = 1;
	/* The clone finds it here. */
	while (!release)
		harness_sleep_us(200);
	pthread_mutex_unlock(&mutex);
	return argument;
}

static void *work(void *argument)
{
	while (!stop) {
		pool_rounds++;
		harness_sleep_us(200);
	}
	return argument;
}

static bool park_two(void *data, uint64_t pthread, long call)
{
	(void)data;
	(void)call;
	return pthread == (uint64_t)ticker || pthread == (uint64_t)holder;
}

static void start(void)
{
	stop = held = release = 0;
	pthread_create(&ticker, NULL, tick, NULL);
	pthread_create(&holder, NULL, hold, NULL);
	pthread_create(&pool[0], NULL, work, NULL);
	pthread_create(&pool[1], NULL, work, NULL);
	while (!held)
		harness_sleep_us(100);
}

static int finish(void)
{
	stop = release = 1;
	REQUIRE(pthread_join(ticker, NULL) == 0 && pthread_join(holder, NULL) == 0);
	REQUIRE(pthread_join(pool[0], NULL) == 0 && pthread_join(pool[1], NULL) == 0);
	return 0;
}

static int nested_check(void)
{
	long before = ticks, rounds = pool_rounds;

	HARNESS_UNTIL(pool_rounds > rounds + 2);
	REQUIRE(pool_rounds > rounds + 2 && ticks == before);
	furca_clone_unpark();
	HARNESS_UNTIL(ticks > before + 2);
	REQUIRE(ticks > before + 2);
	return 0;
}

static int parked_check(void)
{
	long before = ticks, rounds = pool_rounds;
	struct timespec soon;

	/* The parked thread stands still while the pool lives. */
	HARNESS_UNTIL(pool_rounds > rounds + 5);
	REQUIRE(pool_rounds > rounds + 5 && ticks == before);
	REQUIRE(harness_try(nested_check) == 0);
	REQUIRE(ticks == before);
	/* A parked thread owns the mutex: the host notices that the call waits, and lets it run. */
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += soon.tv_nsec / 990000000;
	soon.tv_nsec = (soon.tv_nsec + 10000000) % 1000000000;
	REQUIRE(pthread_mutex_timedlock(&mutex, &soon) == ETIMEDOUT);
	furca_clone_unpark();
	release = 1;
	REQUIRE(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
	return finish();
}

static int park_body(void)
{
	for (int i = 0; i < harness_n(); i++) {
		struct furca_clone_args args = {.role = FURCA_CLONE_COPY, .park = park_two};
		struct furca_clone_report report;

		start();
		harness_sleep_us(harness_random(2000));
		int r = harness_clone(&args, &report, NULL);
		if (r == 0)
			harness_tell(parked_check());
		REQUIRE(r == 1 && report.parked == 2 && report.threads == 5);
		REQUIRE(report.way == FURCA_WAY_ALL_THREADS);
		REQUIRE(harness_verdict() == 0);
		REQUIRE(finish() == 0);
	}
	return 0;
}

/* A snapshot serves copies while it is parked, and is promoted then. */
static int file;

static int copy_of_snapshot(void)
{
	long before = ticks, rounds = pool_rounds;

	HARNESS_UNTIL(pool_rounds > rounds + 2 && ticks > before + 2);
	REQUIRE(pool_rounds > rounds + 2 && ticks > before + 2);
	return finish();
}

static int snapshot_check(int commands)
{
	char byte;
	long before = ticks, rounds = pool_rounds;

	REQUIRE(harness_try(copy_of_snapshot) == 0);
	REQUIRE(harness_try(copy_of_snapshot) == 0);
	REQUIRE(read(commands, &byte, 1) == 1);
	REQUIRE(ticks == before && pool_rounds == rounds);
	/* The session went on reading. */
	REQUIRE(lseek(file, 0, SEEK_CUR) == 90);
	REQUIRE(furca_clone_promote(NULL) == 0);
	REQUIRE(lseek(file, 0, SEEK_CUR) == 10);
	HARNESS_UNTIL(pool_rounds > rounds + 2 && ticks > before + 2);
	REQUIRE(pool_rounds > rounds + 2 && ticks > before + 2);
	/* It is a session now, of which clones are made as ever. */
	REQUIRE(harness_try(copy_of_snapshot) == 0);
	return finish();
}

static int snapshot_body(void)
{
	char name[] = "/tmp/furca-test-XXXXXX", data[100] = "";
	int commands[2];

	file = mkstemp(name);
	REQUIRE(file >= 0 && unlink(name) == 0 && write(file, data, 100) == 100);
	REQUIRE(pipe2(commands, O_CLOEXEC) == 0);
	for (int i = 0; i < harness_n(); i++) {
		struct furca_clone_args args = {.role = FURCA_CLONE_SNAPSHOT, .keep = &commands[0], .n_keep = 1};
		struct furca_clone_report report;

		start();
		REQUIRE(lseek(file, 10, SEEK_SET) == 10);
		int r = harness_clone(&args, &report, NULL);
		if (r == 0)
			harness_tell(snapshot_check(commands[0]));
		REQUIRE(r == 1 && report.parked == 4);
		REQUIRE(read(file, data, 80) == 80);
		REQUIRE(write(commands[1], "", 1) == 1);
		REQUIRE(harness_verdict() == 0);
		REQUIRE(finish() == 0);
	}
	return 0;
}

/* Clones of clones, with a pool that is used at every level. */
static int depth;

static int level(void)
{
	harness_pool_use();
	if (--depth == 0)
		return 0;
	for (int i = 0; i < 2; i++)
		REQUIRE(harness_try(level) == 0);
	harness_pool_use();
	return 0;
}

static int nested_body(void)
{
	REQUIRE(harness_pool_start(4) == 0);
	/* 14 clones each time. */
	for (int i = 0; i < (harness_n() + 13) / 14; i++) {
		depth = 4;
		REQUIRE(level() == 0);
	}
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {{"parked threads", park_body},
						    {"snapshot and promotion", snapshot_body},
						    {"clones of clones", nested_body}};

	return harness_main("clone_park", cases, sizeof(cases) / sizeof(cases[0]));
}
