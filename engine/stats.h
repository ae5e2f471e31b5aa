/* The engine's counters. */
#pragma once

#include <stdint.h>

struct furca_engine;
struct furca_buf;

struct furca_stats {
	uint64_t calls, refused, failed, stateful, stateless, read_only;
	uint64_t clones, clone_failures, deaths, repairs, rollbacks, lost, interrupts, kills;
	uint64_t snapshots, snapshots_dropped, parked_used, copies_on_demand;
	uint64_t capability_calls, capability_refused;
	uint64_t freeze_us, clone_us, isolate_us; /* sums over all clones */
	uint64_t last_clone_us, last_bytes_shared;
	uint64_t inits; /* init processes alive */
	uint64_t hosts; /* host processes alive or about to be */
};

/* Packs the answer of the stats method. */
void furca_stats_pack(struct furca_engine *engine, struct furca_buf *out);
