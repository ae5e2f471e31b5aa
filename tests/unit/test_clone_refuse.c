/* What cannot be cloned is refused in time, with the culprit and a suggestion; the original goes on and can be cloned later. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/clone_harness.h"

#define LIMIT_US 300000
#define LATEST_US 2000000 /* on a busy machine */

static atomic_int go, out;
static atomic_long rounds;
static pid_t other;
static int vfork_ms;

static int empty_check(void)
{
	return 0;
}

/* 1: cloned and well, or the refusal's -errno with *err. The original's other thread must go on in any case. */
static int attempt(struct furca_err *err, int64_t timeout_us)
{
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY, .timeout_us = timeout_us};
	struct furca_clone_report report;
	int64_t begin = furca_now_us();

	*err = FURCA_ERR_INIT;
	int r = harness_clone(&args, &report, err);
	if (r == 0)
		harness_tell(empty_check());
	if (r == 1)
		return harness_verdict() == 0 ? 1 : -1;
	if (furca_now_us() - begin > timeout_us + LATEST_US)
		return -2;
	dprintf(2, "refused: %s -> %s\n", err->text, furca_err_suggestion(err));
	long before = rounds;
	HARNESS_UNTIL(rounds > before);
	return rounds > before && err->suggestion[0] ? r : -3;
}

static bool refused(const char *words)
{
	struct furca_err err;
	int r = attempt(&err, LIMIT_US);

	return r < -10 && err.code == FURCA_E_CLONE && strstr(err.text, words);
}

static bool cloned(void)
{
	struct furca_err err;

	return attempt(&err, 5000000) == 1;
}

static void *count(void *argument)
{
	while (!go || argument) {
		rounds++;
		harness_sleep_us(500);
	}
	return argument;
}

static void start(pthread_t *thread, void *(*fn)(void *))
{
	pthread_t counter;
	static bool counting;

	if (!counting)
		pthread_create(&counter, NULL, count, &counting);
	counting = true;
	go = out = 0;
	pthread_create(thread, NULL, fn, NULL);
	while (!out)
		harness_sleep_us(100);
	harness_sleep_us(2000);
}

static void end(pthread_t thread)
{
	go = 1;
	pthread_join(thread, NULL);
}

static void *plain(void *argument)
{
	other = (pid_t)syscall(SYS_gettid);
	out = 1;
	while (!go)
		harness_sleep_us(1000);
	return argument;
}

static void *block_all(void *argument)
{
	uint64_t all = ~0ULL;

	pthread_setname_np(pthread_self(), "blocker");
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8);
	return plain(argument);
}

static int blocked_body(void)
{
	pthread_t thread;

	start(&thread, block_all);
	REQUIRE(refused("(blocker) blocks signal 33"));
	end(thread);
	REQUIRE(cloned());
	return 0;
}

/* vfork, as posix_spawn does it, by the system call. */
static void *start_program(void *argument)
{
	struct timespec rest = {vfork_ms / 1000, vfork_ms % 1000 * 1000000};

	out = 1;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		syscall(SYS_nanosleep, &rest, NULL);
		syscall(SYS_exit_group, 0);
	}
	waitpid(pid, NULL, 0);
	return argument;
}

static int vfork_body(void)
{
	pthread_t thread;

	vfork_ms = 100;
	start(&thread, start_program);
	/* Short ones are waited for. */
	REQUIRE(cloned());
	end(thread);
	vfork_ms = 2500;
	start(&thread, start_program);
	REQUIRE(refused("vfork"));
	end(thread);
	REQUIRE(cloned());
	return 0;
}

static int ring_body(void)
{
	struct io_uring_params parameters = {0}, polled = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 60000};
	pthread_t thread;
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);

	if (ring < 0)
		return 0;
	start(&thread, plain);
	REQUIRE(refused("io_uring"));
	close(ring);
	ring = (int)syscall(SYS_io_uring_setup, 4, &polled);
	REQUIRE(ring < 0 || refused("io_uring"));
	close(ring);
	/* The kernel's thread ends some time after. */
	for (int wait = 0; wait < 100; wait++) {
		harness_sleep_us(50000);
		if (cloned())
			break;
	}
	end(thread);
	return 0;
}

static int aio_body(void)
{
	pthread_t thread;
	unsigned long context = 0;

	start(&thread, plain);
	if (syscall(SYS_io_setup, 4, &context) == 0) {
		REQUIRE(refused("asynchronous I/O"));
		syscall(SYS_io_destroy, context);
	}
	REQUIRE(cloned());
	end(thread);
	return 0;
}

static int timer_body(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_NONE};
	pthread_t thread;
	timer_t timer;

	start(&thread, plain);
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	REQUIRE(refused("POSIX timer"));
	REQUIRE(timer_delete(timer) == 0);
	REQUIRE(cloned());
	end(thread);
	return 0;
}

static void *own_files(void *argument)
{
	if (unshare(CLONE_FILES) < 0)
		abort();
	return plain(argument);
}

static void *own_directory(void *argument)
{
	if (unshare(CLONE_FS) < 0)
		abort();
	return plain(argument);
}

static void *own_privileges(void *argument)
{
	struct {
		uint32_t version;
		int pid;
	} header = {0x20080522, 0};
	struct {
		uint32_t effective, permitted, inheritable;
	} data[2];

	/* By system calls, so that libc does not tell the other threads. */
	syscall(SYS_capget, &header, data);
	data[0].effective &= ~1U;
	syscall(SYS_capset, &header, data);
	return plain(argument);
}

static int own_body(void)
{
	pthread_t thread;

	start(&thread, own_files);
	REQUIRE(refused("a table of descriptors of its own"));
	end(thread);
	start(&thread, own_directory);
	REQUIRE(refused("a working directory of its own"));
	end(thread);
	if (geteuid() == 0) {
		start(&thread, own_privileges);
		REQUIRE(refused("credentials"));
		end(thread);
	}
	REQUIRE(cloned());
	return 0;
}

static int tracer_body(void)
{
	pthread_t thread;
	int ready[2], status;
	char byte;

	start(&thread, plain);
	REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
	pid_t tracer = fork();
	if (tracer == 0) {
		if (ptrace(PTRACE_SEIZE, other, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, other, 0, 0) < 0)
			_exit(1);
		waitpid(other, &status, __WALL);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	REQUIRE(read(ready[0], &byte, 1) == 1);
	REQUIRE(refused("stopped, by a debugger"));
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	REQUIRE(cloned());
	end(thread);
	return 0;
}

static int queue_body(void)
{
	struct rlimit before, none;
	struct furca_err err;
	pthread_t thread;

	start(&thread, plain);
	getrlimit(RLIMIT_SIGPENDING, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_SIGPENDING, &none);
	int r = attempt(&err, LIMIT_US);
	setrlimit(RLIMIT_SIGPENDING, &before);
	REQUIRE(r == 1 || (r < -10 && strstr(err.text, "queued signals")));
	REQUIRE(cloned());
	end(thread);
	return 0;
}

/* The clone cannot be made where its number is taken; two clones do not fit into one cell. */
static int number_body(void)
{
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY};
	struct furca_clone_report report;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_fd pidfd = FURCA_FD_NONE;
	pthread_t thread;

	start(&thread, plain);
	int r = harness_clone(&args, &report, NULL);
	if (r == 0)
		for (;;)
			pause();
	REQUIRE(r == 1);
	r = furca_clone(&args, &report, &pidfd, &err);
	if (r == 0)
		_exit(0);
	REQUIRE(r < 0 && strstr(err.text, "in use in that cell"));
	harness_cell_end(args.cell);
	REQUIRE(cloned());
	end(thread);
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"signal 33 blocked", blocked_body},
		{"vfork", vfork_body},
		{"io_uring", ring_body},
		{"aio", aio_body},
		{"POSIX timer", timer_body},
		{"threads with things of their own", own_body},
		{"tracer", tracer_body},
		{"signal queue", queue_body},
		{"number in use", number_body},
	};

	return harness_main("clone_refuse", cases, sizeof(cases) / sizeof(cases[0]));
}
