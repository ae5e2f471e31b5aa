#include "tests/unit/clone_harness.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define VERDICT_MS 20000
#define RUN_S 120
#define POOL_PIECES 20

static int verdicts[2] = {-1, -1};
static int told = -1; /* in a clone: where it tells its verdict */
static int last_cell = -1, last_pidfd = -1;
static unsigned seed;

int harness_n(void)
{
	const char *text = getenv("FURCA_TEST_N");
	int n = text ? (int)strtol(text, NULL, 10) : 50;

	return n > 0 ? n : 50;
}

void harness_sleep_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

unsigned harness_random(unsigned limit)
{
	return (unsigned)rand_r(&seed) % limit;
}

static void choose_seed(void)
{
	const char *text = getenv("FURCA_TEST_SEED");

	seed = text ? (unsigned)strtoul(text, NULL, 10) : (unsigned)time(NULL) ^ (unsigned)getpid() << 8;
	dprintf(2, "FURCA_TEST_SEED=%u\n", seed);
}

/* Says in which system call each thread of that process is. */
static void print_threads(int pid)
{
	char path[64], text[128];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/syscall", pid, entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));
		dprintf(2, "%d %.16s: %.*s", pid, entry->d_name, n > 0 ? (int)n : 0, text);
		close(fd);
	}
	if (directory)
		closedir(directory);
}

/* Time is up: the subject's clones, which are children of this process, may hang as well, and nobody else would end them. */
static void end_children(void)
{
	char path[64];
	int status, pid, n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)gettid());
	do {
		FILE *children = fopen(path, "re");

		for (n = 0; children && fscanf(children, "%d", &pid) == 1; n++) {
			print_threads(pid);
			kill(pid, SIGKILL);
		}
		if (children)
			fclose(children);
		for (int i = 0; i < n; i++)
			waitpid(-1, &status, __WALL);
	} while (n > 0);
}

int harness_run(int (*body)(void))
{
	int64_t deadline = furca_now_us() + (int64_t)RUN_S * 1000000 * (1 + harness_n() / 100);
	int verdict = -1, status;
	pid_t subject;

	choose_seed();
	fflush(NULL);
	subject = fork();
	if (subject < 0)
		return -1;
	if (subject == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int line = body();
		/* A line does not fit into an exit status. */
		if (line)
			dprintf(2, "the body failed at line %d\n", line);
		_exit(line ? 1 : 0);
	}
	while (furca_now_us() < deadline) {
		pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);

		if (pid == subject) {
			verdict = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
			break;
		}
		if (pid > 0 && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			dprintf(2, "a clone died of signal %d\n", WTERMSIG(status));
		if (pid <= 0)
			harness_sleep_us(500);
	}
	if (verdict == -1) {
		print_threads(subject);
		kill(subject, SIGKILL);
		end_children();
	}
	while (waitpid(-1, &status, __WALL | WNOHANG) > 0)
		;
	return verdict;
}

/* pid 1 of a cell: system calls only, for it is a copy of a process whose other threads are missing. */
static _Noreturn void cell_main(int ready, bool user)
{
	char byte = 0;
	siginfo_t info;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
		_exit(1);
	(void)user;
	if (write(ready, &byte, 1) != 1)
		_exit(2);
	/* Only standard descriptors are kept, so that a cell holds nobody's pipe open. */
	syscall(SYS_close_range, 3, ~0U, 0);
	for (;;)
		if (waitid(P_ALL, 0, &info, WEXITED | __WALL) < 0) {
			struct timespec t = {0, 5000000};
			nanosleep(&t, NULL);
		}
}

static void map_user(pid_t pid, uid_t uid, gid_t gid)
{
	static const char *const file[] = {"setgroups", "uid_map", "gid_map"};

	for (int i = 0; i < 3; i++) {
		char path[64], text[64];
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, file[i]);
		if (i == 0)
			snprintf(text, sizeof(text), "deny");
		else
			snprintf(text, sizeof(text), "%u %u 1", i == 1 ? uid : gid, i == 1 ? uid : gid);
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, text, strlen(text)) < 0)
			dprintf(2, "cannot write %s\n", path);
		close(fd);
	}
}

int harness_cell(void)
{
	int ready[2], mapped[2], pidfd = -1;
	bool user = geteuid() != 0;
	char byte;

	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(mapped, O_CLOEXEC) < 0)
		return -errno;
	struct clone_args args = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_PIDFD | (user ? CLONE_NEWUSER : 0),
				  .pidfd = (uintptr_t)&pidfd,
				  .exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (user && read(mapped[0], &byte, 1) != 1)
			_exit(1);
		cell_main(ready[1], user);
	}
	if (user) {
		map_user((pid_t)pid, geteuid(), getegid());
		if (write(mapped[1], "", 1) != 1)
			return -EIO;
	}
	close(ready[1]);
	close(mapped[0]);
	close(mapped[1]);
	ssize_t n = read(ready[0], &byte, 1);
	close(ready[0]);
	return n == 1 ? pidfd : -EIO;
}

void harness_cell_end(int cell)
{
	siginfo_t info;

	syscall(SYS_pidfd_send_signal, cell, SIGKILL, NULL, 0);
	waitid(P_PIDFD, (id_t)cell, &info, WEXITED | __WALL);
	close(cell);
}

int harness_clone(struct furca_clone_args *args, struct furca_clone_report *report, struct furca_err *err)
{
	static int keep[4];
	struct furca_fd pidfd = FURCA_FD_NONE;
	struct furca_err own = FURCA_ERR_INIT;
	char text[600];

	/* A clone that makes clones has a pipe of its own. */
	if (verdicts[0] < 0 && pipe2(verdicts, O_CLOEXEC) < 0)
		return -errno;
	if (args->cell == 0)
		args->cell = harness_cell();
	if (args->cell < -1) {
		dprintf(2, "no cell: %s\n", strerror(-args->cell));
		return args->cell;
	}
	keep[0] = verdicts[1];
	for (size_t i = 0; i < args->n_keep; i++)
		keep[i + 1] = args->keep[i];
	args->keep = keep;
	args->n_keep++;
	int r = furca_clone(args, report, &pidfd, err ? err : &own);
	if (r == 0) {
		last_cell = last_pidfd = -1;
		told = verdicts[1];
		verdicts[0] = verdicts[1] = -1;
		return 0;
	}
	last_cell = args->cell;
	last_pidfd = pidfd.n;
	if (r < 0) {
		if (!err)
			dprintf(2, "clone: %d %s\n", r, furca_err_describe(&own, text, sizeof(text)));
		if (last_cell >= 0)
			harness_cell_end(last_cell);
	}
	return r;
}

void harness_tell(int verdict)
{
	if (write(told, &verdict, sizeof(verdict)) != (ssize_t)sizeof(verdict))
		_exit(1);
	_exit(0);
}

int harness_verdict(void)
{
	struct pollfd wanted[2] = {{.fd = verdicts[0], .events = POLLIN}, {.fd = last_pidfd, .events = POLLIN}};
	int64_t deadline = furca_now_us() + VERDICT_MS * 1000;
	int verdict = 3000;

	while (furca_now_us() < deadline) {
		int n = poll(wanted, 2, 1000);

		if (n > 0 && wanted[0].revents & POLLIN) {
			if (read(verdicts[0], &verdict, sizeof(verdict)) != (ssize_t)sizeof(verdict))
				verdict = 2001;
			break;
		}
		if (n > 0 && wanted[1].revents) {
			verdict = 2000;
			break;
		}
	}
	if (verdict)
		dprintf(2, "verdict %d\n", verdict);
	if (verdict == 3000 && getenv("FURCA_TEST_PAUSE"))
		for (;;)
			pause();
	syscall(SYS_pidfd_send_signal, last_pidfd, SIGKILL, NULL, 0);
	/* The pipe is not read again before its writer is gone. */
	(void)poll(&wanted[1], 1, 5000);
	close(last_pidfd);
	if (last_cell >= 0)
		harness_cell_end(last_cell);
	return verdict;
}

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_more = PTHREAD_COND_INITIALIZER, pool_done = PTHREAD_COND_INITIALIZER;
static int to_do, finished;

static void *pool_worker(void *argument)
{
	pthread_mutex_lock(&pool_mutex);
	for (;;) {
		while (!to_do)
			pthread_cond_wait(&pool_more, &pool_mutex);
		to_do--;
		if (++finished == POOL_PIECES)
			pthread_cond_signal(&pool_done);
	}
	return argument;
}

int harness_pool_start(int workers)
{
	pthread_t thread;

	for (int i = 0; i < workers; i++) {
		int r = pthread_create(&thread, NULL, pool_worker, NULL);
		if (r)
			return -r;
	}
	return 0;
}

void harness_pool_use(void)
{
	pthread_mutex_lock(&pool_mutex);
	finished = 0;
	to_do = POOL_PIECES;
	pthread_cond_broadcast(&pool_more);
	while (finished < POOL_PIECES)
		pthread_cond_wait(&pool_done, &pool_mutex);
	pthread_mutex_unlock(&pool_mutex);
}

int harness_try(int (*check)(void))
{
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY};
	struct furca_clone_report report;
	int r = harness_clone(&args, &report, NULL);

	if (r == 0)
		harness_tell(check());
	return r < 0 ? 4000 : harness_verdict();
}

static const struct harness_case *current;

START_TEST(run_case)
{
	int verdict = harness_run(current[_i].body);

	ck_assert_msg(verdict == 0, "%s: %d", current[_i].name, verdict);
}
END_TEST

int harness_suite(const char *name, const struct harness_case *cases, int n)
{
	Suite *suite = suite_create(name);
	TCase *group = tcase_create("clones");
	SRunner *runner = srunner_create(suite);

	current = cases;
	tcase_set_timeout(group, 3600);
	tcase_add_loop_test(group, run_case, 0, n);
	suite_add_tcase(suite, group);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

int harness_main(const char *name, const struct harness_case *cases, int n)
{
#ifdef SANITIZED
	(void)cases;
	(void)n;
	printf("skipped: %s, for AddressSanitizer does not survive clones of threaded processes\n", name);
	return 77;
#else
	return harness_suite(name, cases, n);
#endif
}
