#include "engine/exceeded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "engine/cells.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

#define MIB 1048576.0

enum limit { MEMORY, CPU, PROCESSES, FILES, DISK };

/* What code and shells say when the kernel refuses: from the C library, bash and Python. */
static const struct {
	const char *text;
	enum limit limit;
} signs[] = {
	{"MemoryError", MEMORY},
	{"annot allocate memory", MEMORY},
	{": cannot allocate ", MEMORY},
	{"Too many open files", FILES},
	{"SIGXCPU", CPU},
	{"PU time limit exceeded", CPU},
	{"No space left on device", DISK},
};

static const struct furca_limits *limits_of(const struct furca_call *call)
{
	if (call->plan.has_limits)
		return &call->plan.limits;
	return call->session && call->session->has_limits ? &call->session->limits : NULL;
}

static const char *const advice[] = {
	[MEMORY] = "Work on less data at once, or create a session with a higher limits.memory_bytes.",
	[CPU] = "Split the work, or create a session with a higher limits.cpu_s.",
	[PROCESSES] = "Start fewer processes and threads at once, or create a session with a higher limits.processes.",
	[FILES] = "Close files that are not needed, or create a session with a higher limits.open_files.",
	[DISK] = "Write less, do it in a stateful call, or configure a larger copy_disk_bytes.",
};

/* Adds the sentence to the call's error. A kind of its own only where the code has not raised one. */
static void tell(struct furca_call *call, enum limit limit, const char *type, const char *text)
{
	if (!call->error_type) {
		furca_call_fail(call, type, advice[limit], "%s", text);
		return;
	}
	if (limit == CPU || limit == PROCESSES)
		call->error_type = type;
	(void)furca_buf_append_text(&call->error, "\n");
	(void)furca_buf_append_text(&call->error, text);
	if (call->suggestion.len)
		(void)furca_buf_append_text(&call->suggestion, " ");
	(void)furca_buf_append_text(&call->suggestion, advice[limit]);
}

/* The most memory that the host and what it started had, as far as it is known. */
static uint64_t memory_peak(const struct furca_host *host)
{
	uint64_t peak = FURCA_MAX(furca_cgroup_peak(host->cgroup), FURCA_MAX(host->memory_peak, host->max_rss));

	return peak || host->dead ? peak : furca_limits_anonymous(host->proc.pid);
}

static void tell_memory(struct furca_call *call, const struct furca_limits *limits, const struct furca_host *host,
			bool killed)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "%s limits.memory_bytes, %.1f MiB (peak %.1f MiB).",
		       killed ? "A process that the code had started was ended by the kernel: all together reached"
			      : "The code came to",
		       (double)limits->memory_bytes / MIB, (double)memory_peak(host) / MIB);
	tell(call, MEMORY, "oom", text);
}

/* Whether it is that disk: /dev/full, and file systems of others, say the same. Unknown: yes. */
static bool is_full(const struct furca_init *cell)
{
	struct statfs fs;

	return cell->upper.top.n < 0 || fstatfs(cell->upper.top.n, &fs) < 0 || fs.f_bfree < fs.f_blocks / 16;
}

static void tell_one(struct furca_call *call, const struct furca_limits *limits, struct furca_host *host,
		     enum limit limit)
{
	char text[256];

	switch (limit) {
	case MEMORY:
		if (limits && limits->memory_bytes)
			tell_memory(call, limits, host, false);
		break;
	case CPU:
		if (limits && limits->cpu_s > 0) {
			(void)snprintf(text, sizeof(text), "A process of the call reached limits.cpu_s, %.3g s.",
				       limits->cpu_s);
			tell(call, CPU, "limit", text);
		}
		break;
	case FILES:
		if (limits && limits->open_files) {
			(void)snprintf(text, sizeof(text),
				       "A process of the call reached limits.open_files, %llu (peak %llu).",
				       (unsigned long long)limits->open_files, (unsigned long long)limits->open_files);
			tell(call, FILES, "limit", text);
		}
		break;
	case DISK:
		if (call->own_host && host->cell && is_full(host->cell)) {
			(void)snprintf(text, sizeof(text), "A read-only call may write %.1f MiB (copy_disk_bytes).",
				       (double)furca_cells_disk(call->engine) / MIB);
			tell(call, DISK, "limit", text);
		}
		break;
	case PROCESSES:
		break; /* the kernel counts */
	}
}

/* The end of what the code wrote on stderr. */
static void stderr_tail(const struct furca_call *call, struct furca_buf *ret)
{
	const struct furca_output *output = &call->output[1];

	if (output->max)
		(void)furca_output_read(output, output->total - FURCA_MIN(output->total, (uint64_t)4096), 4096, ret);
	(void)furca_buf_append(ret, "", 1);
}

/*
 * What was reported: by an error, or on stderr by a shell whose last command failed; a list of commands that ran to its end is no error
 * by itself.
 */
static void look_for_signs(struct furca_call *call, const struct furca_limits *limits, struct furca_host *host)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	int64_t status = call->refused ? 0 : furca_done_status(&call->said, 0);

	if (!limits && !call->own_host)
		return;
	bool shell = call->plan.lang && !call->plan.lang->top_level_value && status != 0;
	if (!call->error_type && !shell)
		return;
	(void)furca_buf_append(&text, call->error.data, call->error.len);
	if (shell)
		stderr_tail(call, &text);
	(void)furca_buf_append(&text, "", 1);
	for (size_t i = 0; !text.failed && i < FURCA_COUNT(signs); i++) {
		if (memmem(text.data, text.len, signs[i].text, strlen(signs[i].text))) {
			tell_one(call, limits, host, signs[i].limit);
			break;
		}
	}
}

void furca_exceeded_explain(struct furca_call *call, struct furca_host *host)
{
	const struct furca_limits *limits = limits_of(call);
	uint64_t kills, refusals;
	char text[256];

	if (host->cgroup && limits) {
		furca_cgroup_news(host->cgroup, &kills, &refusals);
		if (kills && limits->memory_bytes) {
			tell_memory(call, limits, host, true);
			return;
		}
		if (refusals && limits->processes) {
			(void)snprintf(text, sizeof(text),
				       "The call reached limits.processes, %llu processes and threads (peak %llu).",
				       (unsigned long long)limits->processes, (unsigned long long)limits->processes);
			tell(call, PROCESSES, "limit", text);
			return;
		}
	}
	look_for_signs(call, limits, host);
}

void furca_exceeded_memory(struct furca_call *call, const struct furca_host *host)
{
	uint64_t limit = FURCA_MAX(furca_cgroup_memory_limit(host->cgroup), host->memory_limit),
		 peak = memory_peak(host);

	if (limit)
		furca_call_fail(
			call, "oom", advice[MEMORY],
			"The %s ended the process: it and what it had started reached limits.memory_bytes, %.1f MiB (peak %.1f MiB).",
			host->over_memory ? "engine" : "kernel", (double)limit / MIB, (double)peak / MIB);
	else
		furca_call_fail(
			call, "oom", "Work on less data at once, or free memory on this machine.",
			"The kernel ended the process because this machine's memory, or what all sessions may have of it, ran out "
			"(peak %.1f MiB).",
			(double)peak / MIB);
}

bool furca_exceeded_over_cpu(const struct furca_call *call, const struct furca_host *host)
{
	const struct furca_limits *limits = limits_of(call);

	return limits && limits->cpu_s > 0 && (double)host->cpu_us / 1e6 > limits->cpu_s + 1;
}

void furca_exceeded_cpu(struct furca_call *call, const struct furca_host *host)
{
	const struct furca_limits *limits = limits_of(call);

	if (limits && limits->cpu_s > 0)
		furca_call_fail(call, "limit", advice[CPU],
				"The process reached limits.cpu_s, %.3g s of cpu time (peak %.3g s).", limits->cpu_s,
				(double)host->cpu_us / 1e6);
	else
		furca_call_fail(call, "limit", advice[CPU], "The code used up a limit of cpu time (SIGXCPU).");
}
