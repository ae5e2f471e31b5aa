#include "engine/stateless.h"

#include <stdlib.h>

#include "engine/cells.h"
#include "engine/engine_private.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define SPARE_US                                                                                                       \
	10000 /* from a call to the making of the next one's clone: calls that follow each other closely make none */
#define MAX_ATTEMPTS 3 /* clones tried, where the zygote dies before they stand */

static void launched(void *owner, struct furca_host *zygote, const struct furca_err *err);

static void on_done(void *owner, struct furca_host *host, uint64_t number, struct furca_view body,
		    struct furca_fd *memory)
{
	struct furca_call *call = owner;

	if (call->phase != FURCA_CALL_RUNNING || number != call->frame)
		return;
	furca_call_hear(call, body);
	furca_call_done(call, memory);
	call->state = "unchanged";
	furca_call_finish(call);
}

/* Once more, in a new process. */
static void again(struct furca_call *call)
{
	furca_host_drop(call->host);
	call->host = NULL;
	call->own_host = false;
	call->attempts++;
	call->retried = true;
	call->phase = FURCA_CALL_WAITING;
	call->engine->stats.repairs++;
	furca_launch_end(call->launch);
	call->launch = furca_launch_begin(call->engine, call->plan.lang, call->plan.venv, call->client, launched, call);
	if (!call->launch) {
		furca_call_fail(call, "limit", NULL, "no memory to run the call again");
		furca_call_finish(call);
	}
}

static void run(struct furca_call *call)
{
	call->queue_us = (uint64_t)(call->asked_clone_us - call->asked_us);
	if (furca_call_run(call) < 0 && call->error_type)
		furca_call_finish(call);
	/* A host that cannot be reached has died; on_dead decides. */
}

static void on_dead(void *owner, struct furca_host *host)
{
	struct furca_call *call = owner;
	bool safe = !call->began || host->unread;

	if (!call->killed && call->stop == FURCA_STOP_NONE && call->attempts == 0 &&
	    ((safe && call->plan.retry != FURCA_RETRY_NEVER) || call->plan.retry == FURCA_RETRY_ALWAYS)) {
		if (call->pipes)
			furca_pipes_finish(call->pipes);
		furca_pipes_free(call->pipes);
		call->pipes = NULL;
		again(call);
		return;
	}
	furca_call_died(call, host);
	furca_call_finish(call);
}

static const struct furca_host_events events = {.done = on_done, .dead = on_dead};

static void cloned(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_call *call = owner;
	struct furca_err failure = FURCA_ERR_INIT;
	uint64_t us = 0;

	if (err && err->code == FURCA_E_GONE && call->attempts < MAX_ATTEMPTS) {
		again(call); /* the zygote has just died; another is started */
		return;
	}
	if (err) {
		furca_call_fail_err(call, err);
		furca_call_finish(call);
		return;
	}
	(void)furca_map_uint(body, "clone_us", &us);
	call->fork_us = us;
	if (call->plan.has_limits && furca_limits_apply(host, &call->plan.limits, NULL, &failure) < 0) {
		furca_call_fail(call, "limit", furca_err_suggestion(&failure), "%s.", failure.text);
		furca_call_finish(call);
		return;
	}
	run(call);
}

struct furca_spare {
	struct furca_spare *next;
	struct furca_engine *engine;
	struct furca_host *zygote, *host;
	bool ready;
	furca_op_id op;
};

static struct furca_spare *spare_of(struct furca_engine *engine, const struct furca_host *zygote)
{
	struct furca_spare *spare = engine->spares;

	while (spare && spare->zygote != zygote)
		spare = spare->next;
	return spare;
}

static void spare_drop(struct furca_spare *spare)
{
	furca_host_drop(spare->host);
	spare->host = NULL;
	spare->ready = false;
}

static void spare_dead(void *owner, struct furca_host *host)
{
	spare_drop(owner);
}

static const struct furca_host_events spare_events = {.dead = spare_dead};

static void spare_cloned(void *owner, struct furca_host *host, struct furca_view body, const struct furca_err *err)
{
	struct furca_spare *spare = owner;

	if (err)
		spare_drop(spare);
	else
		spare->ready = true;
}

static void spare_make(void *owner)
{
	struct furca_spare *spare = owner;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host_clone args = {
		.role = FURCA_CLONE_STATELESS,
		.tag = furca_limits_new_tag(spare->engine),
		.label = "spare",
		.cloned = spare_cloned,
		.events = &spare_events,
		.owner = spare,
	};

	spare->op = FURCA_OP_NONE;
	if (spare->engine->stopping || spare->host)
		return;
	spare->host = furca_host_clone(spare->zygote, &args, &err);
	if (spare->host)
		spare->host->spare = true;
}

/* In a while, when the machine has time for it. */
static void spare_want(struct furca_engine *engine, struct furca_host *zygote)
{
	struct furca_spare *spare = spare_of(engine, zygote);

	if (!spare) {
		spare = calloc(1, sizeof(*spare));
		if (!spare)
			return;
		spare->engine = engine;
		spare->zygote = zygote;
		spare->next = engine->spares;
		engine->spares = spare;
	}
	if (spare->host)
		return;
	furca_loop_drop(engine->loop, &spare->op);
	(void)furca_loop_timer(engine->loop, furca_now_us() + SPARE_US, spare_make, spare, &spare->op);
}

/* True where a clone was at hand and has the call now. */
static bool spare_use(struct furca_call *call, struct furca_host *zygote)
{
	struct furca_spare *spare = spare_of(call->engine, zygote);

	if (!spare || !spare->ready || call->harmless || call->plan.has_limits)
		return false;
	call->host = spare->host;
	call->host->owner = call;
	call->host->events = &events;
	call->host->spare = false;
	call->own_host = true;
	call->asked_clone_us = furca_now_us();
	spare->host = NULL;
	spare->ready = false;
	spare_want(call->engine, zygote);
	run(call);
	return true;
}

void furca_spare_end(struct furca_engine *engine, const struct furca_host *zygote)
{
	for (struct furca_spare **at = &engine->spares; *at; at = &(*at)->next) {
		struct furca_spare *spare = *at;

		if (spare->zygote != zygote)
			continue;
		*at = spare->next;
		furca_loop_drop(engine->loop, &spare->op);
		spare_drop(spare);
		free(spare);
		return;
	}
}

static void clone_zygote(struct furca_call *call, struct furca_host *zygote)
{
	struct furca_err failure = FURCA_ERR_INIT;
	struct furca_host_clone args = {
		.role = FURCA_CLONE_STATELESS,
		.tag = furca_limits_new_tag(call->engine),
		.label = "stateless",
		.cloned = cloned,
		.events = &events,
		.owner = call,
	};

	if (call->harmless) {
		args.role = FURCA_CLONE_COPY;
		args.barriers = FURCA_BARRIERS_ALL;
		args.required = furca_engine_required(call->engine);
		args.cell = call->cell;
	}
	call->asked_clone_us = furca_now_us();
	call->host = furca_host_clone(zygote, &args, &failure);
	furca_init_unref(call->cell); /* the host holds it now */
	call->cell = NULL;
	if (!call->host) {
		furca_call_fail_err(call, &failure);
		furca_call_finish(call);
		return;
	}
	call->own_host = true;
}

static void cell_made(void *owner, struct furca_init *cell, const struct furca_err *err)
{
	struct furca_call *call = owner;
	struct furca_host *zygote = furca_zygote_find(call->engine, call->plan.lang, call->plan.venv);

	call->asked_of = NULL;
	call->cell = cell; /* what cannot be had without one is said by the clone */
	if (zygote)
		clone_zygote(call, zygote);
	else
		again(call);
}

/* A call from a read-only one runs in a copy of the zygote, in a cell: nothing that it does lasts. */
static void clone_in_cell(struct furca_call *call, struct furca_host *zygote)
{
	struct furca_cells *cells = call->engine->cells;
	struct furca_init *init = furca_host_init_of(zygote);

	call->cell = furca_cells_take(cells, init, &furca_cell_for_copy);
	if (!call->cell && furca_cells_ask(cells, init, &furca_cell_for_copy, cell_made, call) == 0)
		call->asked_of = init;
	else
		clone_zygote(call, zygote);
}

static void launched(void *owner, struct furca_host *zygote, const struct furca_err *err)
{
	struct furca_call *call = owner;

	if (!zygote) {
		furca_call_fail_err(call, err);
		if (furca_launch_lines(call->launch))
			furca_call_lines(call, furca_launch_lines(call->launch));
		furca_call_finish(call);
	} else if (call->harmless) {
		clone_in_cell(call, zygote);
	} else if (!spare_use(call, zygote)) {
		spare_want(call->engine, zygote);
		clone_zygote(call, zygote);
	}
}

void furca_stateless_begin(struct furca_call *call)
{
	call->launch = furca_launch_begin(call->engine, call->plan.lang, call->plan.venv, call->client, launched, call);
	if (!call->launch) {
		furca_call_fail(call, "limit", NULL, "no memory for another call");
		furca_call_finish(call);
	}
}
