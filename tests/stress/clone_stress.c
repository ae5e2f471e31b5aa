/*
 * Everything at once, at random moments: threads that come and go, all of malloc's arenas, stdio, the loader, condition variables,
 * epoll, programs started, plain forks. Each copy behind all barriers lets all of it run on, sees every kind make progress, and
 * joins everything. For FURCA_STRESS_S seconds (5); FURCA_TEST_SEED repeats a run's choices.
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/clone_harness.h"
#include "tests/unit/init_client.h"

#define CELL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

extern char **environ;

static atomic_int stop, in_copy, wrong;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int turn;

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition) && !wrong) {                                                                          \
			dprintf(2, "%s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);         \
			wrong = __LINE__;                                                                              \
		}                                                                                                      \
	} while (0)

static void *nothing(void *argument)
{
	char *p = malloc(5000);

	p[0] = 1;
	free(p);
	return argument;
}

static void create(unsigned *seed)
{
	pthread_t threads[4];
	int n = 1 + rand_r(seed) % 4;

	for (long i = 0; i < n; i++)
		CHECK(pthread_create(&threads[i], NULL, nothing, (void *)i) == 0);
	for (long i = 0; i < n; i++) {
		void *value;
		CHECK(pthread_join(threads[i], &value) == 0 && value == (void *)i);
	}
}

static void allocate(unsigned *seed)
{
	void *block[64];

	for (int i = 0; i < 64; i++) {
		size_t n = 1 + (size_t)rand_r(seed) % (i % 16 ? 2000 : 300000);
		block[i] = malloc(n);
		memset(block[i], i, n < 64 ? n : 64);
	}
	for (int i = 0; i < 64; i++) {
		CHECK(*(char *)block[i] == i);
		free(block[i]);
	}
}

static void print(unsigned *seed)
{
	char *text = NULL;
	size_t n = 0;
	struct tm tm;
	time_t now = time(NULL);
	FILE *file = open_memstream(&text, &n);

	(void)seed;
	for (int i = 0; i < 50; i++)
		fprintf(file, "%d %s\n", i, "xyz");
	fclose(file);
	CHECK(n == 340);
	free(text);
	localtime_r(&now, &tm);
}

static void load(unsigned *seed)
{
	void *library = dlopen("libm.so.6", RTLD_NOW);

	(void)seed;
	CHECK(library && dlsym(library, "cos"));
	if (library)
		dlclose(library);
}

static void take_turns(int mine)
{
	pthread_mutex_lock(&mutex);
	while (turn != mine && !stop)
		pthread_cond_wait(&change, &mutex);
	turn ^= 1;
	pthread_cond_signal(&change);
	pthread_mutex_unlock(&mutex);
}

static void ping(unsigned *seed)
{
	(void)seed;
	take_turns(0);
}

static void pong(unsigned *seed)
{
	(void)seed;
	take_turns(1);
}

static void rest(unsigned *seed)
{
	harness_sleep_us(rand_r(seed) % 500);
}

static void poll_event(unsigned *seed)
{
	static __thread int epoll = -1, event = -1;
	struct epoll_event wanted = {.events = EPOLLIN}, got;
	uint64_t one = 1;

	(void)seed;
	if (epoll < 0) {
		epoll = epoll_create1(EPOLL_CLOEXEC);
		event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
	}
	if (epoll_wait(epoll, &got, 1, 0) > 0)
		CHECK(read(event, &one, 8) == 8);
	else
		CHECK(write(event, &one, 8) == 8);
}

static void start_program(unsigned *seed)
{
	char *argv[] = {(char *)(uintptr_t) "/bin/true", NULL};
	pid_t pid;
	int r;

	(void)seed;
	if (!in_copy) {
		r = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
		CHECK(r == 0);
		/* The children of the original are not the copy's. */
		CHECK(waitpid(pid, NULL, 0) == pid || errno == ECHILD);
	}
	harness_sleep_us(2000);
}

static void fork_plainly(unsigned *seed)
{
	pid_t pid = fork();

	(void)seed;
	if (pid == 0)
		_exit(7);
	CHECK(pid > 0);
	CHECK(waitpid(pid, NULL, 0) == pid || errno == ECHILD);
	harness_sleep_us(3000);
}

static const struct {
	const char *name;
	void (*step)(unsigned *seed);
} kind[] = {
	{"create", create},	{"malloc", allocate},  {"stdio", print},
	{"dl", load},		{"ping", ping},	       {"pong", pong},
	{"rest", rest},		{"epoll", poll_event}, {"program", start_program},
	{"fork", fork_plainly},
};
#define KINDS (sizeof(kind) / sizeof(kind[0]))
static atomic_long progress[KINDS];
static pthread_t threads[KINDS];

static void *run(void *argument)
{
	size_t k = (size_t)argument;
	unsigned seed = (unsigned)k;

	while (!stop) {
		kind[k].step(&seed);
		progress[k]++;
		/* Some rest, or the run would measure how the scheduler starves one process for the other. */
		if (rand_r(&seed) % 3 == 0)
			harness_sleep_us(rand_r(&seed) % 600);
	}
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&mutex);
	return argument;
}

static int check_copy(void)
{
	long before[KINDS];
	bool all = false;

	in_copy = 1;
	for (size_t i = 0; i < KINDS; i++)
		before[i] = progress[i];
	int waits = 0;
	for (; waits < 20000 && !all && !wrong; waits++) {
		harness_sleep_us(500);
		all = true;
		for (size_t i = 0; i < KINDS; i++)
			all &= progress[i] >= before[i] + 2;
	}
	for (size_t i = 0; i < KINDS && !all; i++)
		dprintf(2, "%s made %ld steps\n", kind[i].name, progress[i] - before[i]);
	if (wrong)
		return wrong;
	if (getenv("FURCA_TEST_VERBOSE"))
		for (size_t i = 0; i < KINDS; i++)
			dprintf(2, "%s +%ld after %d\n", kind[i].name, progress[i] - before[i], waits);
	REQUIRE(all);
	stop = 1;
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&mutex);
	for (size_t i = 0; i < KINDS; i++)
		REQUIRE(pthread_join(threads[i], NULL) == 0);
	return wrong;
}

static int one_copy(void)
{
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY,
					.barriers = FURCA_BARRIERS_ALL,
					.required = FURCA_BARRIERS_ALL,
					.drop = &init_control.n,
					.n_drop = 1};
	struct furca_clone_report report;
	struct furca_fd fds[2];
	char why[512];

	if (!init_cell(init_control.n, CELL, false, 64 << 20, fds, why, sizeof(why))) {
		dprintf(2, "no cell: %s\n", why);
		return __LINE__;
	}
	args.cell = fds[0].n;
	int r = harness_clone(&args, &report, NULL);
	if (r == 0)
		harness_tell(check_copy());
	REQUIRE(r == 1);
	if (getenv("FURCA_TEST_VERBOSE"))
		dprintf(2, "%u threads; stopped in %ld us, cloned in %ld us, went on after %ld us\n", report.threads,
			(long)report.freeze_us, (long)report.clone_us, (long)report.thaw_us);
	REQUIRE(report.held == FURCA_BARRIERS_ALL);
	r = harness_verdict();
	furca_fd_done(&fds[1]);
	return r;
}

static int body(void)
{
	const char *text = getenv("FURCA_STRESS_S");
	bool verbose = getenv("FURCA_TEST_VERBOSE");
	int64_t end = furca_now_us() + (text ? strtol(text, NULL, 10) : 5) * 1000000;
	int copies = 0;

	init_start();
	for (size_t i = 0; i < KINDS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
	while (furca_now_us() < end) {
		harness_sleep_us(harness_random(3000));
		int64_t begin = furca_now_us();
		int verdict = one_copy();
		if (verbose)
			dprintf(2, "copy took %ld us\n", (long)(furca_now_us() - begin));
		REQUIRE(verdict == 0 && !wrong);
		copies++;
	}
	dprintf(2, "%d copies\n", copies);
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {{"everything at once", body}};

	return harness_main("clone_stress", cases, 1);
}
