#include "engine/session_state.h"

#include "base/banned.h"

#define X (-1) /* cannot happen */

static const signed char next_state[FURCA_S_STATES][FURCA_EV_MAX] = {
	/*                      START            READY         CALL          DONE          LOST               EMPTY        CLOSE            ENDED */
	[FURCA_S_NEW] = {FURCA_S_STARTING, X, X, X, X, FURCA_S_NEW, FURCA_S_CLOSING, X},
	[FURCA_S_STARTING] = {X, FURCA_S_IDLE, X, X, X, FURCA_S_NEW, FURCA_S_CLOSING, X},
	[FURCA_S_IDLE] = {X, X, FURCA_S_BUSY, X, FURCA_S_RESTORING, FURCA_S_NEW, FURCA_S_CLOSING, X},
	[FURCA_S_BUSY] = {X, X, X, FURCA_S_IDLE, FURCA_S_RESTORING, FURCA_S_NEW, FURCA_S_CLOSING, X},
	[FURCA_S_RESTORING] = {X, FURCA_S_IDLE, X, X, FURCA_S_RESTORING, FURCA_S_NEW, FURCA_S_CLOSING, X},
	[FURCA_S_CLOSING] = {X, X, X, X, X, X, X, FURCA_S_DEAD},
	[FURCA_S_DEAD] = {X, X, X, X, X, X, X, X},
};

static const char *const state_names[] = {"new", "starting", "idle", "busy", "restoring", "closing", "dead"};
static const char *const event_names[] = {"start", "ready", "call", "done", "lost", "empty", "close", "ended"};

int furca_session_next(enum furca_session_state state, enum furca_session_event event)
{
	return (unsigned)state < FURCA_S_STATES && (unsigned)event < FURCA_EV_MAX ? next_state[state][event] : X;
}

const char *furca_session_state_name(enum furca_session_state state)
{
	return (unsigned)state < FURCA_S_STATES ? state_names[state] : "?";
}

const char *furca_session_event_name(enum furca_session_event event)
{
	return (unsigned)event < FURCA_EV_MAX ? event_names[event] : "?";
}
