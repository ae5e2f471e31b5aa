/* A session's life as a table. Nothing changes a session's state but furca_session_next. */
#pragma once

enum furca_session_state {
	FURCA_S_NEW,	  /* no process: not begun, or lost */
	FURCA_S_STARTING, /* its process is being made */
	FURCA_S_IDLE,
	FURCA_S_BUSY,	   /* runs a stateful call */
	FURCA_S_RESTORING, /* its process has died or is taken back; a commit is being promoted */
	FURCA_S_CLOSING,   /* its process is ending */
	FURCA_S_DEAD,
	FURCA_S_STATES
};

enum furca_session_event {
	FURCA_EV_START, /* a process is asked for */
	FURCA_EV_READY, /* it stands */
	FURCA_EV_CALL,	/* a call begins */
	FURCA_EV_DONE,	/* it has ended, the process lives */
	FURCA_EV_LOST,	/* the process is gone, and there is something to go back to */
	FURCA_EV_EMPTY, /* the process is gone, or could not be made, and there is nothing */
	FURCA_EV_CLOSE,
	FURCA_EV_ENDED, /* the last process has ended */
	FURCA_EV_MAX
};

/* The next state, or -1 where the event cannot happen: a bug. */
int furca_session_next(enum furca_session_state state, enum furca_session_event event);

const char *furca_session_state_name(enum furca_session_state state);
const char *furca_session_event_name(enum furca_session_event event);
