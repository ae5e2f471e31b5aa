/*
 * furca-bench-guard: what a call costs in things that can be counted, over the engine, its inits, hosts and copies together: system calls,
 * page faults, changes of context, and instructions where the machine has a counter for them. These hardly waver where times do, so that
 * bench/guard.py can hold them to committed bounds. Times are shown as ratios of the least of many rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "include/furca.h"

#include "base/banned.h"

enum { BATCHES = 7, PER_BATCH = 40, PAUSE_US = 15000 };

/* ---- counters -------------------------------------------------------------------------------------------------------- */

static struct counter {
	const char *name;
	uint32_t type;
	uint64_t config;
	int fd; /* -1: not on this machine */
} counters[] = {
	{"system calls", PERF_TYPE_TRACEPOINT, 0, -1},
	{"page faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, -1},
	{"context switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, -1},
	{"thousands of instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, -1},
};

static uint64_t number_in(const char *path)
{
	char text[32] = "";
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));

	if (fd.n < 0 || furca_fd_read_full(fd.n, text, sizeof(text) - 1) <= 0)
		return 0;
	return strtoull(text, NULL, 10);
}

/* Whether something that the benchmark needs lies below a mount. */
static bool is_needed(const char *mount_point)
{
	static const char *const kept[] = {"/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/run"};
	const char *places[] = {getenv("FURCA_PROGRAM"), getenv("FURCA_LIBEXEC"), getenv("HOME"),
				getenv("XDG_RUNTIME_DIR")};

	for (size_t i = 0; i < FURCA_COUNT(kept); i++)
		if (strcmp(mount_point, kept[i]) == 0)
			return true;
	for (size_t i = 0; i < FURCA_COUNT(places); i++)
		if (places[i] && strncmp(places[i], mount_point, strlen(mount_point)) == 0)
			return true;
	return false;
}

/* A cell has an overlay over each mount, so that their number would show in the counts: in a namespace of our own, only the usual ones stay. */
static bool leave_mounts(void)
{
	char line[4096], mount_point[4096];
	FILE *f;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    !(f = fopen("/proc/self/mounts", "re")))
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %4095s", mount_point) == 1 && !is_needed(mount_point))
			(void)umount2(mount_point, MNT_DETACH);
	(void)fclose(f);
	return true;
}

/* The number of the tracepoint at which every system call is entered, from tracefs, which is mounted in a namespace of our own if need be. */
static uint64_t tracepoint(void)
{
	bool own = leave_mounts();
	uint64_t id = number_in("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");

	if (id || !own || mount("none", "/sys/kernel/tracing", "tracefs", 0, NULL) < 0)
		return id;
	id = number_in("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
	(void)umount("/sys/kernel/tracing");
	return id;
}

/* Counts this process and whatever it starts from now on. */
static void open_counters(void)
{
	counters[0].config = tracepoint();
	for (size_t i = 0; i < FURCA_COUNT(counters); i++) {
		struct perf_event_attr attr = {
			.type = counters[i].type, .size = sizeof(attr), .config = counters[i].config, .inherit = 1};

		if (i > 0 || attr.config)
			counters[i].fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
		if (counters[i].fd < 0)
			furca_bench_skip(counters[i].name,
					 i > 0 || attr.config ? strerror(errno) : "there is no tracefs");
	}
}

static double count(const struct counter *counter)
{
	uint64_t value = 0;

	if (read(counter->fd, &value, sizeof(value)) != (ssize_t)sizeof(value))
		return 0;
	return (double)value / (counter->type == PERF_TYPE_HARDWARE ? 1000 : 1);
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

static struct furca_client *client;

static const struct kind {
	const char *name, *language, *mode, *code;
	bool idles; /* a pause before each, in which furca makes a snapshot or a copy: counted, too */
} kinds[] = {
	{"stateful expression", "python", "stateful", "1 + 1", false},
	{"stateful statement", "python", "stateful", "x = 1", true},
	{"read-only", "python", "read_only", "x", true},
	{"stateless", "python", "stateless", "None", true},
	{"stateful bash", "bash", "stateful", "x=1", true},
	{"read-only bash", "bash", "read_only", ":", true},
};

static int call(const struct kind *kind)
{
	struct furca_execute args = FURCA_EXECUTE(kind->language, kind->code);

	args.state_mode = kind->mode;
	args.session_name = strcmp(kind->mode, "stateless") == 0  ? NULL
			    : strcmp(kind->language, "bash") == 0 ? "shell"
								  : "guard";
	return furca_bench_execute(client, &args);
}

/* One batch: what each counter and the clock say for a call. The pauses count, their time does not. */
static int batch(const struct kind *kind, double counted[], double *us)
{
	double before[FURCA_COUNT(counters)];

	*us = 0;
	for (size_t i = 0; i < FURCA_COUNT(counters); i++)
		before[i] = count(&counters[i]);
	for (int i = 0; i < PER_BATCH; i++) {
		double start = furca_bench_now_us();

		if (call(kind) < 0)
			return -EIO;
		*us += (furca_bench_now_us() - start) / PER_BATCH;
		if (kind->idles)
			(void)usleep(PAUSE_US);
	}
	for (size_t i = 0; i < FURCA_COUNT(counters); i++)
		counted[i] = (count(&counters[i]) - before[i]) / PER_BATCH;
	return 0;
}

static int measure(const struct kind *kind)
{
	static struct furca_bench_series series[FURCA_COUNT(counters)];
	static char names[FURCA_COUNT(counters)][96];
	double counted[FURCA_COUNT(counters)], us;

	for (size_t i = 0; i < FURCA_COUNT(counters); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%s: %s", kind->name, counters[i].name);
		series[i] = (struct furca_bench_series){.name = names[i], .unit = "a call"};
	}
	for (int n = -2; n < BATCHES; n++) {
		if (batch(kind, counted, &us) < 0)
			return -EIO;
		for (size_t i = 0; n >= 0 && i < FURCA_COUNT(counters); i++)
			furca_bench_add(&series[i], counted[i]);
	}
	for (size_t i = 0; i < FURCA_COUNT(counters); i++)
		if (counters[i].fd >= 0)
			(void)furca_bench_say(&(struct furca_bench_line){.name = names[i],
									 .workload = kind->code,
									 .over = &series[i],
									 .sense = FURCA_BENCH_NO_GOAL});
	return 0;
}

int main(void)
{
	struct furca_error err;
	int r = 0;

	if (furca_bench_begin("bench guard: what a call costs in things that can be counted", FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	open_counters();
	if (furca_open_private(NULL, &client, &err) < 0) {
		(void)fprintf(stderr, "furca-bench-guard: %s\n", err.message);
		return 77;
	}
	/* Sessions, so that the first batch does not make them. */
	if (call(&(struct kind){"warm-up", "python", "stateful", "x = 1", false}) < 0 ||
	    call(&(struct kind){"warm-up", "bash", "stateful", "x=1", false}) < 0)
		r = -EIO;
	for (size_t i = 0; r == 0 && i < FURCA_COUNT(kinds); i++)
		r = measure(&kinds[i]);
	furca_close(client);
	return r < 0 ? 1 : 0;
}
