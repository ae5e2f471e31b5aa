#include "engine/retire.h"

#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

#define SENT_US 1000	/* by then the client has the answer */
#define LISTED_US 50000 /* for a list of pages, which takes some 5 ms at most where nothing else runs */

static void end(void *owner)
{
	struct furca_session *s = owner;

	s->retired.op = FURCA_OP_NONE;
	furca_retire_end(s);
}

static void on_dead(void *owner, struct furca_host *host)
{
	furca_retire_end(owner);
}

static void on_pages(void *owner, struct furca_host *host, struct furca_view body)
{
	struct furca_session *s = owner;

	furca_prefetch_learn(&s->prefetch, body);
	if (s->parked_ready)
		furca_prefetch_tell(&s->prefetch, s->parked);
	furca_retire_end(s);
}

static const struct furca_host_events retired_events = {.dead = on_dead, .pages = on_pages};

bool furca_retire_may(const struct furca_call *call)
{
	const struct furca_host *host = call->host;

	return call->own_host && host && host->role == FURCA_CLONE_COPY && !host->dead && call->done.len &&
	       !call->killed && host->cell && host->cell->held & FURCA_BARRIER_DISK &&
	       host->cell->held & FURCA_BARRIER_PROCESSES && call->session->state != FURCA_S_CLOSING &&
	       call->session->state != FURCA_S_DEAD && !call->engine->stopping;
}

void furca_retire(struct furca_call *call)
{
	struct furca_session *s = call->session;
	bool pages = false;

	furca_retire_end(s);
	s->retired.host = call->host;
	s->retired.host->owner = s;
	s->retired.host->events = &retired_events;
	(void)furca_map_bool(furca_buf_view(&call->done), "pages", &pages);
	if (furca_loop_timer(s->engine->loop, furca_now_us() + (pages ? LISTED_US : SENT_US), end, s, &s->retired.op) <
	    0)
		furca_retire_end(s);
}

void furca_retire_end(struct furca_session *s)
{
	furca_loop_drop(s->engine->loop, &s->retired.op);
	furca_host_drop(s->retired.host);
	s->retired.host = NULL;
}
