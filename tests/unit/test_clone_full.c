/* Clones with all threads and all barriers, in real cells: what threads pass to each other is lost or doubled on neither side. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/clone_harness.h"
#include "tests/unit/init_client.h"

#define CELL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

/* As harness_try, behind all barriers, all of them required. */
static int try_full(int (*check)(void), int threads)
{
	struct furca_clone_args args = {
		.role = FURCA_CLONE_COPY, .barriers = FURCA_BARRIERS_ALL, .required = FURCA_BARRIERS_ALL};
	struct furca_clone_report report;
	struct furca_fd fds[2] = {FURCA_FD_NONE, FURCA_FD_NONE};
	char why[512];

	if (!init_cell(init_control.n, CELL, false, 64 << 20, fds, why, sizeof(why))) {
		dprintf(2, "no cell: %s\n", why);
		return __LINE__;
	}
	args.cell = fds[0].n;
	args.drop = &init_control.n;
	args.n_drop = 1;
	int r = harness_clone(&args, &report, NULL);
	if (r == 0)
		harness_tell(check());
	REQUIRE(r == 1);
	REQUIRE(report.held == FURCA_BARRIERS_ALL && report.way == FURCA_WAY_ALL_THREADS &&
		(int)report.threads == threads);
	r = harness_verdict();
	furca_fd_done(&fds[1]);
	return r;
}

enum { PIPE, SOCKET, COUNTER, CHANNELS };
static int reading[CHANNELS], writing[CHANNELS];
static atomic_uint sent[CHANNELS], received[CHANNELS];
static atomic_int stop, wrong;
static pthread_t threads[2 * CHANNELS];

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition) && !wrong)                                                                            \
			wrong = __LINE__;                                                                              \
	} while (0)

static void *write_on(void *argument)
{
	int channel = (int)(long)argument;
	uint64_t one = 1;
	unsigned turns = 0;

	while (!stop) {
		uint32_t value = sent[channel];
		ssize_t n = channel == COUNTER ? write(writing[channel], &one, 8) : write(writing[channel], &value, 4);

		if (n > 0)
			sent[channel]++;
		else
			CHECK(n < 0 && (errno == EAGAIN || errno == EINTR));
		if (++turns % 50 == 0)
			harness_sleep_us(100);
	}
	return NULL;
}

static void *read_on(void *argument)
{
	int channel = (int)(long)argument;

	while (!stop) {
		struct pollfd wanted = {.fd = reading[channel], .events = POLLIN};
		uint64_t count = 0;
		uint32_t value = 0;

		if (poll(&wanted, 1, 20) <= 0)
			continue;
		ssize_t n = channel == COUNTER ? read(reading[channel], &count, 8) : read(reading[channel], &value, 4);
		if (n < 0) {
			CHECK(errno == EAGAIN || errno == EINTR);
		} else if (channel == COUNTER) {
			received[channel] += (unsigned)count;
		} else {
			CHECK(n == 4 && value == received[channel]);
			received[channel]++;
		}
	}
	return NULL;
}

static int sequences_check(void)
{
	unsigned before[CHANNELS];
	uint64_t rest = 0;
	int all = 0;

	for (int i = 0; i < CHANNELS; i++)
		before[i] = received[i];
	for (int wait = 0; wait < 5000 && !all && !wrong; wait++) {
		harness_sleep_us(1000);
		all = 1;
		for (int i = 0; i < CHANNELS; i++)
			all &= received[i] > before[i] + 100;
	}
	if (wrong)
		return wrong;
	REQUIRE(all);
	stop = 1;
	for (int i = 0; i < 2 * CHANNELS; i++)
		pthread_join(threads[i], NULL);
	/* Nothing is lost in the counter. */
	if (read(reading[COUNTER], &rest, 8) != 8)
		rest = 0;
	REQUIRE(received[COUNTER] + rest == sent[COUNTER]);
	return wrong;
}

static int sequences_body(void)
{
	int fds[2];

	init_start();
	REQUIRE(pipe2(fds, O_NONBLOCK | O_CLOEXEC) == 0);
	reading[PIPE] = fds[0], writing[PIPE] = fds[1];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	reading[SOCKET] = fds[0], writing[SOCKET] = fds[1];
	reading[COUNTER] = writing[COUNTER] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (long i = 0; i < CHANNELS; i++) {
		pthread_create(&threads[2 * i], NULL, write_on, (void *)i);
		pthread_create(&threads[2 * i + 1], NULL, read_on, (void *)i);
	}
	for (int i = 0; i < harness_n(); i++) {
		harness_sleep_us(harness_random(3000));
		int verdict = try_full(sequences_check, 2 * CHANNELS + 1);
		REQUIRE(verdict == 0 && !wrong);
	}
	return wrong;
}

/* Many threads behind all barriers: each drops its own privileges. */
#define MANY 64
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int arrived, round_number;
static atomic_int privileged;
static pthread_t crowd[MANY];

static bool has_capabilities(void)
{
	char path[64], line[256];
	bool any = false;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", gettid());
	FILE *file = fopen(path, "re");
	if (!file)
		return true;
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, "CapEff:", 7) == 0 || strncmp(line, "CapPrm:", 7) == 0)
			any |= strtoull(line + 8, NULL, 16) != 0;
		else if (strncmp(line, "Seccomp:", 8) == 0 || strncmp(line, "NoNewPrivs:", 11) == 0)
			any |= line[strlen(line) - 2] == '0';
	fclose(file);
	return any;
}

static void *follow(void *argument)
{
	int seen = 0;

	for (;;) {
		pthread_mutex_lock(&mutex);
		while (round_number == seen)
			pthread_cond_wait(&change, &mutex);
		seen = round_number;
		pthread_mutex_unlock(&mutex);
		if (seen < 0)
			return argument;
		if (seen % 2 == 0)
			privileged += has_capabilities();
		pthread_mutex_lock(&mutex);
		if (++arrived == MANY)
			pthread_cond_broadcast(&change);
		pthread_mutex_unlock(&mutex);
	}
}

static void next_round(int number)
{
	pthread_mutex_lock(&mutex);
	arrived = 0;
	round_number = number;
	pthread_cond_broadcast(&change);
	while (arrived < MANY && number >= 0)
		pthread_cond_wait(&change, &mutex);
	pthread_mutex_unlock(&mutex);
}

static int crowd_check(void)
{
	/* Even rounds look at privileges. */
	next_round(round_number + 1);
	next_round(round_number + 1);
	REQUIRE(privileged == 0 && !has_capabilities());
	next_round(-1);
	for (long i = 0; i < MANY; i++) {
		void *value;
		REQUIRE(pthread_join(crowd[i], &value) == 0 && value == (void *)i);
	}
	return 0;
}

static int crowd_body(void)
{
	init_start();
	for (long i = 0; i < MANY; i++)
		REQUIRE(pthread_create(&crowd[i], NULL, follow, (void *)i) == 0);
	for (int i = 0; i < harness_n(); i++) {
		next_round(round_number + (round_number % 2 ? 2 : 1));
		int verdict = try_full(crowd_check, MANY + 1);
		REQUIRE(verdict == 0);
	}
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {{"sequences", sequences_body}, {"a crowd", crowd_body}};

	return harness_main("clone_full", cases, sizeof(cases) / sizeof(cases[0]));
}
