/*
 * Cells made ahead of time, so that a read does not wait for namespaces and mounts. Those at the surface are pooled; inside another pid
 * namespace (a session that was promoted into one) they are made on demand.
 */
#pragma once

#include "engine/init_link.h"

struct furca_cells;

struct furca_cells *furca_cells_new(struct furca_engine *engine);
void furca_cells_free(struct furca_cells *cells);

struct furca_cell_kind {
	unsigned namespaces; /* bits of enum furca_barrier */
	bool network;	     /* the network may be used */
	uint64_t keep_pid;   /* the pid that a clone will keep in it; 0: not known, or not one that matters */
};

/* For a copy, with all barriers; for a snapshot, which keeps its pid and tids: a pid namespace and a /proc that shows it. */
extern const struct furca_cell_kind furca_cell_for_copy, furca_cell_for_snapshot;

/*
 * A cell of that kind made by `init`, if one is ready: handed over (one reference). NULL: none; then furca_cells_ask.
 */
struct furca_init *furca_cells_take(struct furca_cells *cells, struct furca_init *init,
				    const struct furca_cell_kind *kind);

/* Makes one: `fn` is called once, later, unless forgotten. -errno where it cannot be asked (fn is not called). */
int furca_cells_ask(struct furca_cells *cells, struct furca_init *init, const struct furca_cell_kind *kind,
		    furca_cell_fn *fn, void *owner);
void furca_cells_forget(struct furca_cells *cells, struct furca_init *init, void *owner);

/*
 * A cell in which nothing but a snapshot has been, which is about to end, serves the next one: true where it is wanted back, and then exactly one
 * furca_cells_give follows. False: the cell is to be ended.
 */
bool furca_cells_expect(struct furca_cells *cells, const struct furca_init *cell);

/* Takes the expected cell (one reference), which is empty now; one that is not `good` is ended. */
void furca_cells_give(struct furca_cells *cells, struct furca_init *cell, bool good);

/* What a copy may write before its disk is full, in bytes. */
uint64_t furca_cells_disk(const struct furca_engine *engine);

/* There will be commits and reads: fills the pools, soon. */
void furca_cells_warm(struct furca_cells *cells);

/* Ends what is pooled. */
void furca_cells_drain(struct furca_cells *cells);

/* Calls fn with the pid of each pooled cell's init. */
void furca_cells_each(struct furca_cells *cells, void (*fn)(void *data, pid_t pid), void *data);
