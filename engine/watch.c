#include "engine/watch.h"

#include <dirent.h>
#include <stdlib.h>

#include "engine/engine_private.h"
#include "engine/limits.h"

#include "base/banned.h"

#define LOOK_US 50000
/* Stacks and the like, which RLIMIT_DATA does not count: a process that it stopped in time may have a little more. */
#define SLACK ((uint64_t)16 << 20)

/*
 * Looks in a row that find too much. One alone may have seen a clone of the process, which is counted with it until it has a tag of its own: its pages
 * are the process's, or not yet, as the moment has it.
 */
#define OVER_LOOKS 2

static struct furca_host *watched(const struct furca_engine *engine, uint64_t tag)
{
	for (struct furca_host *host = engine->hosts; host; host = host->next)
		if (host->memory_limit && host->tag == tag && !host->dead)
			return host;
	return NULL;
}

/* What the processes of a tag have: anonymous memory, once by plain sums and once with shared pages counted in the largest only. */
struct sum {
	struct furca_host *host;
	uint64_t plain, largest, largest_private, private_sum;
};

static void add(struct sum *sum, pid_t pid, bool exact)
{
	uint64_t bytes = furca_limits_anonymous(pid), private = 0, shared;

	sum->plain += bytes;
	if (!exact || furca_limits_memory(pid, &private, &shared) < 0)
		return;
	private = FURCA_MIN(private, bytes);
	sum->private_sum += private;
	if (bytes > sum->largest) {
		sum->largest = bytes;
		sum->largest_private = private;
	}
}

/* One pass over /proc. */
static void add_up(const struct furca_engine *engine, struct sum *sums, unsigned n, bool exact)
{
	DIR *dir = opendir("/proc");

	for (pid_t pid; dir && (pid = furca_proc_listed(dir));) {
		uint64_t tag = furca_limits_tag_of(pid);
		struct furca_host *host = tag ? watched(engine, tag) : NULL;

		for (unsigned i = 0; host && i < n; i++)
			if (sums[i].host == host)
				add(&sums[i], pid, exact);
	}
	if (dir)
		(void)closedir(dir);
}

static void judge(struct furca_engine *engine, struct sum *sum)
{
	struct furca_host *host = sum->host;
	uint64_t bytes = sum->plain;

	if (bytes > host->memory_limit + SLACK) { /* pages shared by forked children were counted more than once */
		struct sum again = {.host = host};

		add_up(engine, &again, 1, true);
		bytes = again.largest + again.private_sum - again.largest_private;
	}
	bool over = bytes > host->memory_limit + SLACK;
	host->over_looks = over ? host->over_looks + 1 : 0;
	if (over && host->over_looks < OVER_LOOKS)
		return;
	host->memory_peak = FURCA_MAX(host->memory_peak, bytes);
	if (!over)
		return;
	furca_log(FURCA_LOG_WARN, "engine", "over its memory pid=%d bytes=%llu limit=%llu", (int)host->proc.pid,
		  (unsigned long long)bytes, (unsigned long long)host->memory_limit);
	host->over_memory = true;
	furca_host_kill(host);
	furca_limits_sweep(engine, host->tag);
}

static void look(void *owner)
{
	struct furca_engine *engine = owner;
	unsigned n = 0, at = 0;

	engine->watch_op = FURCA_OP_NONE;
	for (const struct furca_host *host = engine->hosts; host; host = host->next)
		n += host->memory_limit && !host->dead;
	if (n == 0)
		return;
	FURCA_AUTO_FREE struct sum *sums = calloc(n, sizeof(*sums));
	for (struct furca_host *host = engine->hosts; sums && host; host = host->next)
		if (host->memory_limit && !host->dead)
			sums[at++].host = host;
	if (sums)
		add_up(engine, sums, n, false);
	for (unsigned i = 0; sums && i < n; i++)
		if (!sums[i].host->over_memory)
			judge(engine, &sums[i]);
	(void)furca_loop_timer(engine->loop, furca_now_us() + LOOK_US, look, engine, &engine->watch_op);
}

void furca_watch_memory(struct furca_host *host, uint64_t bytes)
{
	struct furca_engine *engine = host->engine;

	host->memory_limit = bytes;
	if (!engine->watch_op)
		(void)furca_loop_timer(engine->loop, furca_now_us() + LOOK_US, look, engine, &engine->watch_op);
}
