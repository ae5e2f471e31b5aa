#include "engine/cells.h"

#include <stdlib.h>

#include "engine/engine_private.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define POOL 2
#define UPPER_BYTES ((uint64_t)1 << 30) /* what a read may write before its disk is full */
#define RETRY_US 1000000		/* after a cell could not be made */

struct furca_cells {
	struct furca_engine *engine;
	struct furca_init *ready[POOL];
	unsigned n_ready, under_way;
	bool warm, closed;
	furca_op_id retry_op;
};

static const struct furca_cell_kind usual = {.namespaces = FURCA_BARRIERS_ALL};

struct furca_cells *furca_cells_new(struct furca_engine *engine)
{
	struct furca_cells *cells = calloc(1, sizeof(*cells));

	if (cells)
		cells->engine = engine;
	return cells;
}

static void fill(void *owner);

static void made(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct furca_cells *cells = owner;

	cells->under_way--;
	if (!cell) {
		/* Reads will say what they could not have; the pool tries again after a while. */
		furca_log_err("engine", "cell", err);
		if (!cells->retry_op && !cells->closed)
			(void)furca_loop_timer(cells->engine->loop, furca_now_us() + RETRY_US * 30, fill, cells, &cells->retry_op);
		return;
	}
	if (cells->closed || cells->n_ready == POOL)
		furca_init_unref(cell);
	else
		cells->ready[cells->n_ready++] = cell;
}

static void fill(void *owner)
{
	struct furca_cells *cells = owner;

	cells->retry_op = FURCA_OP_NONE;
	while (cells->warm && !cells->closed && cells->n_ready + cells->under_way < POOL) {
		if (furca_init_cell(cells->engine->surface, usual.namespaces, false, UPPER_BYTES, 0, made, cells) < 0)
			return;
		cells->under_way++;
	}
}

void furca_cells_warm(struct furca_cells *cells)
{
	cells->warm = true;
	if (!cells->retry_op)
		fill(cells);
}

void furca_cells_drain(struct furca_cells *cells)
{
	while (cells->n_ready > 0)
		furca_init_unref(cells->ready[--cells->n_ready]);
}

void furca_cells_free(struct furca_cells *cells)
{
	if (!cells)
		return;
	cells->closed = true;
	furca_loop_drop(cells->engine->loop, &cells->retry_op);
	furca_cells_drain(cells);
	if (cells->engine->surface)
		furca_init_forget(cells->engine->surface, cells);
	free(cells);
}

struct furca_init *furca_cells_take(struct furca_cells *cells, struct furca_init *init, const struct furca_cell_kind *kind)
{
	if (init != cells->engine->surface || kind->namespaces != usual.namespaces || kind->network != usual.network)
		return NULL;
	while (cells->n_ready > 0) {
		struct furca_init *cell = cells->ready[--cells->n_ready];

		if (furca_stream_is_open(&cell->control)) {
			furca_cells_warm(cells);
			return cell;
		}
		furca_init_unref(cell); /* somebody has ended it */
	}
	return NULL;
}

int furca_cells_ask(struct furca_cells *cells, struct furca_init *init, const struct furca_cell_kind *kind, furca_cell_fn *fn, void *owner)
{
	return furca_init_cell(init, kind->namespaces, kind->network, UPPER_BYTES, kind->keep_pid, fn, owner);
}

void furca_cells_forget(struct furca_cells *cells, struct furca_init *init, void *owner)
{
	furca_init_forget(init, owner);
}

void furca_cells_each(struct furca_cells *cells, void (*fn)(void *data, pid_t pid), void *data)
{
	for (unsigned i = 0; i < cells->n_ready; i++)
		fn(data, cells->ready[i]->proc.pid);
}
