#include "engine/retire.h"

#include "engine/capability.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

#define LISTED_US 50000 /* a list takes some 5 ms at most where nothing else runs */

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
	return call->session && call->own_host && call->host && furca_host_lingers(call->host) && !call->killed &&
	       call->said.pages && call->session->state != FURCA_S_CLOSING && call->session->state != FURCA_S_DEAD;
}

void furca_retire(struct furca_call *call)
{
	struct furca_session *s = call->session;

	furca_retire_end(s);
	s->retired.host = call->host;
	s->retired.host->owner = s;
	s->retired.host->events = &retired_events;
	furca_lanes_close(s->retired.host->lanes); /* what its children and threads ask for now is nobody's */
	if (furca_loop_timer(s->engine->loop, furca_now_us() + LISTED_US, end, s, &s->retired.op) < 0)
		furca_retire_end(s);
}

void furca_retire_end(struct furca_session *s)
{
	furca_loop_drop(s->engine->loop, &s->retired.op);
	furca_host_drop(s->retired.host);
	s->retired.host = NULL;
}
