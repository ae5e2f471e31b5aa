#include "engine/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bridge/wire/host.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/watch.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define TAG_BASE ((rlim_t)1 << 61)			    /* of RLIMIT_RTTIME, in microseconds: 73,000 years */
static const enum __rlimit_resource marked[] = FURCA_MARKS; /* they bear the tag */

#define PASSES 20
#define PASS_US 5000

uint64_t furca_limits_new_tag(struct furca_engine *engine)
{
	/*
	 * Two engines on one machine must not sweep each other's processes. Later tags are lower: a clone is born with its origin's, and
	 * a hard limit may be lowered by anyone, while raising it needs CAP_SYS_RESOURCE, which containers take away. A clone left with
	 * its origin's tag would be swept with it.
	 */
	return engine->instance << 28 | (0xfffffff - (++engine->next_tag & 0xfffffff));
}

int furca_limits_tag(pid_t pid, uint64_t tag)
{
	struct rlimit limit = {TAG_BASE + tag, TAG_BASE + tag};

	int r = 0, put = 0;

	for (size_t i = 0; i < FURCA_COUNT(marked); i++)
		if (prlimit(pid, marked[i], &limit, NULL) == 0)
			put++;
		else
			r = -errno;
	return put ? 0 : r; /* one that its code has lowered cannot be raised again by everyone */
}

/* What one of its limits says, 0 for nothing. */
static uint64_t mark_of(pid_t pid, size_t i)
{
	struct rlimit limit;

	return prlimit(pid, marked[i], NULL, &limit) == 0 && limit.rlim_max > TAG_BASE && limit.rlim_max < 2 * TAG_BASE
		       ? limit.rlim_max - TAG_BASE
		       : 0;
}

uint64_t furca_limits_tag_of(pid_t pid)
{
	uint64_t tag = 0;

	for (size_t i = 0; tag == 0 && i < FURCA_COUNT(marked); i++)
		tag = mark_of(pid, i);
	return tag;
}

static bool is_tagged(pid_t pid, uint64_t tag)
{
	for (size_t i = 0; tag != 0 && i < FURCA_COUNT(marked); i++)
		if (mark_of(pid, i) == tag)
			return true;
	return false;
}

static bool is_host(const struct furca_engine *engine, pid_t pid)
{
	for (const struct furca_host *host = engine->hosts; host; host = host->next)
		if (host->proc.pid == pid && !host->dead)
			return true;
	return false;
}

/* What /proc/PID/stat says behind the name; `start` in clock ticks. */
struct stat_line {
	char state;
	int parent, session;
	unsigned long long start;
	unsigned long long
		program; /* where its code begins: another after each exec. Constant where that is hidden from us */
};

/* What /proc says of a process in a file of that name, as text of at most size - 1 bytes. 0 or -errno, -ESRCH where it says nothing. */
static int read_proc(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = fd.n < 0 ? -errno : furca_fd_read_full(fd.n, text, size - 1);
	if (n <= 0)
		return n < 0 ? (int)n : -ESRCH;
	text[n] = '\0';
	return 0;
}

/* False where it is gone. */
static bool read_stat(pid_t pid, struct stat_line *ret)
{
	char text[1024];

	if (read_proc(pid, "stat", text, sizeof(text)) < 0)
		return false;
	char *at = strrchr(text, ')');
	*ret = (struct stat_line){0};
	if (!at || sscanf(at + 1, " %c %d %*d %d", &ret->state, &ret->parent, &ret->session) != 3)
		return false;
	at++;
	for (int field = 3; at && field < 22; field++) /* from the space before the 3rd to that before the 22nd */
		at = strchr(at + 1, ' ');
	if (at)
		ret->start = strtoull(at, NULL, 10);
	for (int field = 22; at && field < 26; field++)
		at = strchr(at + 1, ' ');
	if (at)
		ret->program = strtoull(at, NULL, 10);
	return true;
}

static int sweep_once(struct furca_engine *engine, uint64_t tag)
{
	DIR *dir = opendir("/proc");
	int found = 0;

	if (!dir)
		return 0;
	for (pid_t pid; (pid = furca_proc_listed(dir));) {
		struct stat_line line;

		if (!is_tagged(pid, tag) || is_host(engine, pid))
			continue;
		struct furca_proc proc;
		if (furca_proc_open(pid, &proc) < 0)
			continue;
		/* Asked again through the pidfd's hold on the number: it cannot have been given to another meanwhile. */
		if (is_tagged(pid, tag) && read_stat(pid, &line) && line.state != 'Z' && line.state != 'X') {
			found++;
			(void)furca_proc_signal(&proc, SIGKILL);
		}
		furca_proc_done(&proc);
	}
	(void)closedir(dir);
	return found;
}

struct sweep {
	struct furca_engine *engine;
	uint64_t tag;
	int passes;
};

static void sweep_again(void *owner)
{
	struct sweep *sweep = owner;
	furca_op_id op;

	if (sweep_once(sweep->engine, sweep->tag) > 0 && --sweep->passes > 0 &&
	    furca_loop_timer(sweep->engine->loop, furca_now_us() + PASS_US, sweep_again, sweep, &op) == 0)
		return;
	sweep->engine->sweeps--;
	struct furca_engine *engine = sweep->engine;
	free(sweep);
	furca_engine_check_stopped(engine);
}

void furca_limits_sweep(struct furca_engine *engine, uint64_t tag)
{
	struct sweep *sweep;
	furca_op_id op;

	if (sweep_once(engine, tag) == 0)
		return;
	sweep = calloc(1, sizeof(*sweep));
	if (!sweep)
		return;
	*sweep = (struct sweep){engine, tag, PASSES};
	engine->sweeps++;
	if (furca_loop_timer(engine->loop, furca_now_us() + PASS_US, sweep_again, sweep, &op) < 0) {
		engine->sweeps--;
		free(sweep);
	}
}

/* Bytes of a process: resident and of no file, and reserved for data and stacks, used or not. False where it cannot be read. */
static bool read_statm(pid_t pid, uint64_t *ret_anonymous, uint64_t *ret_data)
{
	char text[128];
	unsigned long long resident, shared, data, page = (unsigned long long)sysconf(_SC_PAGESIZE);

	if (read_proc(pid, "statm", text, sizeof(text)) < 0)
		return false;
	if (sscanf(text, "%*s %llu %llu %*s %*s %llu", &resident, &shared, &data) != 3 || shared > resident)
		return false;
	*ret_anonymous = (resident - shared) * page;
	*ret_data = data * page;
	return true;
}

uint64_t furca_limits_anonymous(pid_t pid)
{
	uint64_t anonymous, data;

	return read_statm(pid, &anonymous, &data) ? anonymous : 0;
}

/* What the process has reserved and not used, such as the rest of its arenas, counts in RLIMIT_DATA and is no memory. */
static uint64_t untouched(pid_t pid)
{
	uint64_t anonymous, data;

	return read_statm(pid, &anonymous, &data) && data > anonymous ? data - anonymous : 0;
}

/* `whole`: less than `value` will not do, -EPERM. `soft` below the hard limit by `slack`, so that the process is told before it is ended, or its host has something left (langs/room.h). */
static int bound(pid_t pid, enum __rlimit_resource what, rlim_t value, rlim_t slack, bool whole)
{
	struct rlimit limit;

	if (value == 0)
		return 0;
	if (prlimit(pid, what, NULL, &limit) < 0)
		return -errno;
	struct rlimit wanted = {value, value + slack};
	if (prlimit(pid, what, &wanted, NULL) == 0)
		return 0;
	if (errno == EPERM && whole)
		return -EPERM;
	limit.rlim_max = FURCA_MIN(value + slack, limit.rlim_max);
	limit.rlim_cur = FURCA_MIN(value, limit.rlim_max);
	return prlimit(pid, what, &limit, NULL) < 0 ? -errno : 0;
}

/* Resource limits count each process alone; the control group, where there is one, all of them together. */
static int bound_all(pid_t pid, const struct furca_limits *limits, const struct furca_limits *above)
{
	static const struct furca_limits none;
	rlim_t cpu = limits->cpu_s > 0 ? (rlim_t)(limits->cpu_s + 0.999) : 0;

	if (!above)
		above = &none;
	int r = bound(pid, RLIMIT_CPU, cpu, 2, above->cpu_s > 0 && limits->cpu_s > above->cpu_s);
	if (r == 0)
		r = bound(pid, RLIMIT_DATA, limits->memory_bytes ? limits->memory_bytes + untouched(pid) : 0, 0,
			  above->memory_bytes && limits->memory_bytes > above->memory_bytes);
	if (r == 0)
		r = bound(pid, RLIMIT_NOFILE, limits->open_files, FURCA_HOST_FILES,
			  above->open_files && limits->open_files > above->open_files);
	return r;
}

int furca_limits_apply(struct furca_host *host, const struct furca_limits *limits, const struct furca_limits *above,
		       struct furca_err *err)
{
	struct furca_cgroups *cgroups = host->engine->cgroups;
	bool memory = limits->memory_bytes && furca_cgroups_memory(cgroups);
	int r;

	if (limits->processes && !furca_cgroups_processes(cgroups))
		return furca_fail_suggest(err, FURCA_E_LIMIT, 0,
					  "Remove limits.processes, or run furca where control groups are writable.",
					  "The number of processes cannot be bounded here");
	if (memory || limits->processes) {
		struct furca_cgroup *group =
			furca_cgroup_new(cgroups, memory ? limits->memory_bytes : 0, limits->processes, err);

		if (!group)
			return -EIO;
		r = furca_cgroup_enter(group, host->proc.pid);
		if (r < 0) {
			furca_cgroup_unref(group);
			return furca_fail(err, FURCA_E_LIMIT, -r, "cannot put the process into its control group");
		}
		furca_cgroup_unref(host->cgroup);
		host->cgroup = group;
	}
	if (limits->memory_bytes && !memory)
		furca_watch_memory(host, limits->memory_bytes);
	r = bound_all(host->proc.pid, limits, above);
	if (r == -EPERM)
		return furca_fail_suggest(err, FURCA_E_LIMIT, 0,
					  "Ask for no more than the session has, or run furca with CAP_SYS_RESOURCE.",
					  "A copy cannot have more than its session here");
	return r < 0 ? furca_fail_suggest(err, FURCA_E_LIMIT, -r,
					  "Remove limits, or make them smaller than the engine's own.",
					  "cannot put the limits on the process")
		     : 0;
}

/* Whether `pid` descends from `root`, looking at most 64 generations up. */
static bool descends(pid_t pid, pid_t root)
{
	struct stat_line line;

	for (int i = 0; i < 64 && pid > 1; i++) {
		if (!read_stat(pid, &line))
			return false;
		pid = line.parent;
		if (pid == root)
			return true;
	}
	return false;
}

/*
 * Whether it belongs to the work of `root`: a descendant, or one whose parent has ended. Those are found by their tag; what has also
 * begun a session (setsid) was made to stay.
 */
static bool works_for(pid_t pid, const struct stat_line *line, pid_t root, int session, uint64_t tag)
{
	return line->parent == root || descends(pid, root) ||
	       (pid != root && line->session == session && is_tagged(pid, tag));
}

/* One that has begun another program since is asked anew: before that a handler of its parent's may have taken the signal. */
static bool signalled_before(const struct furca_buf *signalled, pid_t pid, const struct stat_line *line)
{
	const struct furca_signalled *at = (const void *)signalled->data;

	for (size_t i = 0; i < signalled->len / sizeof(*at); i++)
		if (at[i].pid == pid && at[i].start == line->start && at[i].program == line->program)
			return true;
	return false;
}

static unsigned long long ticks_since_boot(int64_t at_us)
{
	struct timespec boot;

	(void)clock_gettime(CLOCK_BOOTTIME, &boot);
	int64_t us = (int64_t)boot.tv_sec * 1000000 + boot.tv_nsec / 1000 - (furca_now_us() - at_us);
	return us > 0 ? (unsigned long long)us / (1000000 / (unsigned long long)sysconf(_SC_CLK_TCK)) : 0;
}

int furca_limits_signal_children(const struct furca_host *host, int sig, int64_t since_us, struct furca_buf *signalled)
{
	pid_t root = host->proc.pid;
	unsigned long long since = ticks_since_boot(since_us);
	struct stat_line own;
	int sent = 0;

	if (root <= 0 || !read_stat(root, &own))
		return 0;
	DIR *dir = opendir("/proc");
	if (!dir)
		return 0;
	for (pid_t pid; (pid = furca_proc_listed(dir));) {
		struct furca_proc proc;
		struct stat_line line, again;

		if (!read_stat(pid, &line) || line.start < since || line.state == 'Z' ||
		    !works_for(pid, &line, root, own.session, host->tag) || is_host(host->engine, pid) ||
		    signalled_before(signalled, pid, &line) || furca_proc_open(pid, &proc) < 0)
			continue;
		/* Looked at again now that the number is held: it is the same. */
		if (read_stat(pid, &again) && again.start == line.start &&
		    works_for(pid, &again, root, own.session, host->tag) && furca_proc_signal(&proc, sig) == 0) {
			struct furca_signalled one = {pid, again.start, again.program};

			(void)furca_buf_append(signalled, &one, sizeof(one));
			sent++;
		}
		furca_proc_done(&proc);
	}
	(void)closedir(dir);
	return sent;
}

int furca_limits_memory(pid_t pid, uint64_t *ret_private, uint64_t *ret_shared)
{
	char text[4096];
	int r = read_proc(pid, "smaps_rollup", text, sizeof(text));

	if (r < 0)
		return r;
	*ret_private = *ret_shared = 0;
	for (char *line = text; line; line = strchr(line, '\n')) {
		char key[32];
		unsigned long long kb;

		line += *line == '\n';
		if (sscanf(line, "%31[^:]: %llu kB", key, &kb) != 2)
			continue;
		if (strncmp(key, "Private_C", 9) == 0 || strncmp(key, "Private_D", 9) == 0)
			*ret_private += kb * 1024;
		else if (strncmp(key, "Shared_", 7) == 0)
			*ret_shared += kb * 1024;
		if (!strchr(line, '\n'))
			break;
	}
	return 0;
}

/* Processes that the kernel has ended for want of memory, on the whole machine. */
static uint64_t machine_oom_kills(void)
{
	char line[128];
	unsigned long long n = 0;
	FILE *f = fopen("/proc/vmstat", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "oom_kill %llu", &n) == 1)
			break;
	if (f)
		(void)fclose(f);
	return n;
}

void furca_limits_start(struct furca_engine *engine)
{
	engine->cgroups = furca_cgroups_new(engine->instance);
	engine->oom_kills = machine_oom_kills();
}

bool furca_limits_oom(struct furca_engine *engine, const struct furca_host *host)
{
	uint64_t before = engine->oom_kills, kills, refusals, available, total;

	engine->oom_kills = machine_oom_kills();
	furca_cgroup_news(host->cgroup ? host->cgroup : furca_cgroups_all(engine->cgroups), &kills, &refusals);
	if (host->over_memory || kills > 0)
		return true;
	/* The machine's count tells of groups elsewhere too; where the machine itself runs out, it ends the large ones. */
	furca_limits_machine(&available, &total);
	return engine->oom_kills != before && host->max_rss > total / 50;
}

/* MemAvailable and MemTotal in bytes. */
void furca_limits_machine(uint64_t *ret_available, uint64_t *ret_total)
{
	char line[128];
	unsigned long long kb;
	FILE *f = fopen("/proc/meminfo", "re");

	*ret_available = *ret_total = 0;
	while (f && fgets(line, sizeof(line), f) && (!*ret_available || !*ret_total)) {
		if (sscanf(line, "MemTotal: %llu kB", &kb) == 1)
			*ret_total = kb * 1024;
		else if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
			*ret_available = kb * 1024;
	}
	if (f)
		(void)fclose(f);
}

void furca_limits_bound_all(struct furca_engine *engine)
{
	uint64_t available, total, bytes = 0;

	furca_limits_machine(&available, &total);
	if (engine->config.max_memory_bytes > 0)
		bytes = (uint64_t)engine->config.max_memory_bytes;
	else if (engine->config.max_memory_bytes == 0)
		bytes = total / 10 * 9;
	furca_cgroups_bound_all(engine->cgroups, bytes, engine->config.max_processes, engine->surface->proc.pid);
}

uint64_t furca_limits_newest(struct furca_engine *engine)
{
	char text[128];

	if (engine->loadavg.n < 0)
		return 0;
	ssize_t n = pread(engine->loadavg.n, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	char *last = strrchr(text, ' ');
	return last ? strtoull(last, NULL, 10) : 0;
}

unsigned furca_limits_threads(pid_t pid)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
	return stat(path, &st) < 0 || st.st_nlink < 2 ? 0 : (unsigned)st.st_nlink - 2;
}
