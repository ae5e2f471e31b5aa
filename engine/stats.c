#include "engine/stats.h"

#include <unistd.h>

#include "engine/cells.h"
#include "engine/cgroup.h"
#include "engine/engine_private.h"
#include "engine/limits.h"

#include "base/banned.h"

static void add_pid(void *data, pid_t pid)
{
	msgpack_pack_uint64(data, (uint64_t)pid);
}

static void count_pid(void *data, pid_t pid)
{
	(*(uint32_t *)data)++;
}

/* Processes that belong to no session: the init, zygotes and their spares, cells that wait. */
static void each_idle(struct furca_engine *engine, void (*fn)(void *data, pid_t pid), void *data)
{
	fn(data, engine->surface->proc.pid);
	for (struct furca_host *host = engine->hosts; host; host = host->next)
		if ((host->role == 0 || host->spare) && host->proc.pid > 0 && !host->dead)
			fn(data, host->proc.pid);
	furca_cells_each(engine->cells, fn, data);
}

/* Where no control group counts, what the hosts have of their own, and how many they are. */
static void take_usage(struct furca_engine *engine, struct furca_cgroups_usage *ret)
{
	furca_cgroups_usage(engine->cgroups, ret);
	for (const struct furca_host *host = engine->hosts; host; host = host->next) {
		if (host->dead || host->proc.pid <= 0)
			continue;
		if (!ret->memory_limit)
			ret->memory += furca_limits_anonymous(host->proc.pid);
		if (!ret->processes_limit)
			ret->processes++;
	}
}

void furca_stats_pack(struct furca_engine *engine, struct furca_buf *out)
{
	const struct furca_stats *s = &engine->stats;
	struct furca_loop_stats loop;
	struct furca_cgroups_usage usage;

	furca_loop_stats(engine->loop, &loop);
	take_usage(engine, &usage);
	const struct {
		const char *key;
		uint64_t value;
	} counters[] = {
		{"calls", s->calls},
		{"refused", s->refused},
		{"failed", s->failed},
		{"stateful", s->stateful},
		{"stateless", s->stateless},
		{"read_only", s->read_only},
		{"sessions", engine->registry.count},
		{"clones", s->clones},
		{"clone_failures", s->clone_failures},
		{"deaths", s->deaths},
		{"repairs", s->repairs},
		{"rollbacks", s->rollbacks},
		{"lost", s->lost},
		{"interrupts", s->interrupts},
		{"kills", s->kills},
		{"snapshots", s->snapshots},
		{"snapshots_dropped", s->snapshots_dropped},
		{"parked_used", s->parked_used},
		{"copies_on_demand", s->copies_on_demand},
		{"capability_calls", s->capability_calls},
		{"capability_refused", s->capability_refused},
		{"freeze_us", s->freeze_us},
		{"clone_us", s->clone_us},
		{"isolate_us", s->isolate_us},
		{"last_clone_us", s->last_clone_us},
		{"last_bytes_shared", s->last_bytes_shared},
		{"hosts", s->hosts},
		{"inits", s->inits},
		{"kept_output_bytes", engine->kept_bytes},
		{"engine_memory_bytes", furca_limits_anonymous(getpid())},
		{"memory_bytes", usage.memory},
		{"memory_peak_bytes", usage.memory_peak},
		{"memory_limit_bytes", usage.memory_limit},
		{"processes", usage.processes},
		{"processes_limit", usage.processes_limit},
		{"operations", loop.operations},
		{"completions", loop.completions},
		{"stale_completions", loop.stale},
		{"waits", loop.enters},
	};
	uint32_t idle = 0;
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, FURCA_COUNT(counters) + 2);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	for (size_t i = 0; i < FURCA_COUNT(counters); i++) {
		furca_pack_text(&pk, counters[i].key);
		msgpack_pack_uint64(&pk, counters[i].value);
	}
	each_idle(engine, count_pid, &idle);
	furca_pack_text(&pk, "idle_pids");
	msgpack_pack_array(&pk, idle);
	each_idle(engine, add_pid, &pk);
}
