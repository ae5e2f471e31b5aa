#include "engine/cells.h"

#include <stdlib.h>

#include "engine/engine_private.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define POOL 2		  /* of each kind */
#define RETRY_US 30000000 /* after a cell could not be made */

/* While one is left: the look that took the other has its answer by then, and shares no CPU with the making. */
#define LATER_US 10000

struct pool {
	struct furca_cells *cells;
	const struct furca_cell_kind *kind;
	struct furca_init *ready[POOL];
	unsigned n_ready, under_way, coming; /* coming: back, see furca_cells_expect */
};

struct furca_cells {
	struct furca_engine *engine;
	struct pool pools[2];
	bool warm, closed;
	bool resting; /* until fill_op: one failed */
	furca_op_id fill_op;
};

const struct furca_cell_kind furca_cell_for_copy = {.namespaces = FURCA_BARRIERS_ALL};
const struct furca_cell_kind furca_cell_for_snapshot = {.namespaces = FURCA_BARRIER_PROCESSES};

uint64_t furca_cells_disk(const struct furca_engine *engine)
{
	return engine->config.copy_disk_bytes > 0 ? (uint64_t)engine->config.copy_disk_bytes : (uint64_t)1 << 30;
}

struct furca_cells *furca_cells_new(struct furca_engine *engine)
{
	struct furca_cells *cells = calloc(1, sizeof(*cells));

	if (!cells)
		return NULL;
	cells->engine = engine;
	cells->pools[0] = (struct pool){.cells = cells, .kind = &furca_cell_for_copy};
	cells->pools[1] = (struct pool){.cells = cells, .kind = &furca_cell_for_snapshot};
	return cells;
}

static void fill(void *owner);

static void made(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct pool *pool = owner;
	struct furca_cells *cells = pool->cells;

	pool->under_way--;
	if (!cell) {
		/* Reads will say what they could not have; the pool tries again after a while. */
		furca_log_err("engine", "cell", err);
		if (cells->closed)
			return;
		furca_loop_drop(cells->engine->loop, &cells->fill_op);
		cells->resting = furca_loop_timer(cells->engine->loop, furca_now_us() + RETRY_US, fill, cells,
						  &cells->fill_op) == 0;
		return;
	}
	if (cells->closed || pool->n_ready == POOL)
		furca_init_unref(cell);
	else
		pool->ready[pool->n_ready++] = cell;
}

static void fill_pool(struct furca_cells *cells, struct pool *pool)
{
	while (pool->n_ready + pool->under_way + pool->coming < POOL) {
		if (furca_init_cell(cells->engine->surface, pool->kind->namespaces, pool->kind->network,
				    furca_cells_disk(cells->engine), 0, made, pool) < 0)
			return;
		pool->under_way++;
	}
}

/* The pools that are kept full. */
static size_t in_use(const struct furca_cells *cells)
{
	return cells->engine->config.snapshots == FURCA_SNAPSHOT_OFF ? 1 : FURCA_COUNT(cells->pools);
}

static void fill(void *owner)
{
	struct furca_cells *cells = owner;

	cells->fill_op = FURCA_OP_NONE;
	cells->resting = false;
	if (!cells->warm || cells->closed)
		return;
	for (size_t i = 0; i < in_use(cells); i++)
		fill_pool(cells, &cells->pools[i]);
}

static bool exhausted(const struct furca_cells *cells)
{
	for (size_t i = 0; i < in_use(cells); i++)
		if (cells->pools[i].n_ready + cells->pools[i].coming == 0)
			return true;
	return false;
}

/* Not before the loop's next round: who takes a cell for a snapshot may next let go of an older one, whose cell then comes back. */
void furca_cells_warm(struct furca_cells *cells)
{
	struct furca_loop *loop = cells->engine->loop;

	cells->warm = true;
	if (cells->closed || cells->resting)
		return;
	if (exhausted(cells)) {
		furca_loop_drop(loop, &cells->fill_op);
		(void)furca_loop_defer(loop, fill, cells, &cells->fill_op);
	} else if (!cells->fill_op) {
		(void)furca_loop_timer(loop, furca_now_us() + LATER_US, fill, cells, &cells->fill_op);
	}
}

void furca_cells_drain(struct furca_cells *cells)
{
	for (size_t i = 0; i < FURCA_COUNT(cells->pools); i++)
		while (cells->pools[i].n_ready > 0)
			furca_init_unref(cells->pools[i].ready[--cells->pools[i].n_ready]);
}

void furca_cells_free(struct furca_cells *cells)
{
	if (!cells)
		return;
	cells->closed = true;
	furca_loop_drop(cells->engine->loop, &cells->fill_op);
	furca_cells_drain(cells);
	for (size_t i = 0; i < FURCA_COUNT(cells->pools) && cells->engine->surface; i++)
		furca_init_forget(cells->engine->surface, &cells->pools[i]);
	free(cells);
}

static struct pool *pool_of(struct furca_cells *cells, const struct furca_cell_kind *kind)
{
	for (size_t i = 0; i < FURCA_COUNT(cells->pools); i++)
		if (cells->pools[i].kind->namespaces == kind->namespaces &&
		    cells->pools[i].kind->network == kind->network)
			return &cells->pools[i];
	return NULL;
}

struct furca_init *furca_cells_take(struct furca_cells *cells, struct furca_init *init,
				    const struct furca_cell_kind *kind)
{
	struct pool *pool = init == cells->engine->surface ? pool_of(cells, kind) : NULL;

	while (pool && pool->n_ready > 0) {
		struct furca_init *cell = pool->ready[--pool->n_ready];

		if (furca_stream_is_open(&cell->control) && furca_init_is_current(cell)) {
			furca_cells_warm(cells);
			return cell;
		}
		furca_init_unref(cell); /* somebody has ended it, or has mounted something */
	}
	return NULL;
}

bool furca_cells_expect(struct furca_cells *cells, const struct furca_init *cell)
{
	struct pool *pool = &cells->pools[1];

	if (cell->lived_in || cell->refs != 1 || cell->parent != cells->engine->surface || cells->closed ||
	    cells->engine->stopping || !furca_stream_is_open(&cell->control) || pool->n_ready + pool->coming >= POOL)
		return false;
	pool->coming++;
	return true;
}

void furca_cells_give(struct furca_cells *cells, struct furca_init *cell, bool good)
{
	struct pool *pool = &cells->pools[1];

	pool->coming--;
	if (good && !cells->closed && !cells->engine->stopping && cell->refs == 1 &&
	    furca_stream_is_open(&cell->control) && furca_init_is_current(cell) && pool->n_ready < POOL)
		pool->ready[pool->n_ready++] = cell;
	else
		furca_init_unref(cell);
	furca_cells_warm(cells);
}

int furca_cells_ask(struct furca_cells *cells, struct furca_init *init, const struct furca_cell_kind *kind,
		    furca_cell_fn *fn, void *owner)
{
	return furca_init_cell(init, kind->namespaces, kind->network, furca_cells_disk(cells->engine), kind->keep_pid,
			       fn, owner);
}

void furca_cells_forget(struct furca_cells *cells, struct furca_init *init, void *owner)
{
	furca_init_forget(init, owner);
}

void furca_cells_each(struct furca_cells *cells, void (*fn)(void *data, pid_t pid), void *data)
{
	for (size_t i = 0; i < FURCA_COUNT(cells->pools); i++)
		for (unsigned n = 0; n < cells->pools[i].n_ready; n++)
			fn(data, cells->pools[i].ready[n]->proc.pid);
}
