/*
 * Every bound on what comes from outside, in one place. Checked before anything is allocated; exceeding one closes or
 * refuses that peer only. doc/protocol.md quotes this table.
 */
#pragma once

/* A client's connection */
#define FURCA_MAX_MESSAGE (64U << 20)	  /* bytes of one message from a client */
#define FURCA_MAX_ANSWER (256U << 20)	  /* bytes of one message to a client: two streams of 64 MiB and the rest */
#define FURCA_MAX_DEPTH 128		  /* nesting of arrays and maps in any message */
#define FURCA_MAX_ITEMS (4U << 20)	  /* values in one message */
#define FURCA_MAX_CLIENTS 256		  /* connections at once */
#define FURCA_MAX_IN_FLIGHT 4096	  /* unanswered requests of one connection */
#define FURCA_MAX_QUEUED_OUT (288U << 20) /* bytes waiting to be sent to one connection; past it, reading stops */

#define FURCA_MAX_CAPABILITIES 4096    /* names registered at once */
#define FURCA_MAX_CAPABILITY_NAME 256  /* bytes of such a name */
#define FURCA_MAX_CAPABILITY_DOC 65536 /* bytes of its doc, and of its params */

#define FURCA_MAX_HANDLES 65536 /* handles that code holds at once */
#define FURCA_MAX_HANDLE 200	/* bytes of a handle's text */

#define FURCA_MAX_FRAMES (1U << 30) /* bytes of the arrays and frames of one message, beside it */
#define FURCA_MAX_MEMORIES 16	    /* messages with such, on their way to a client or waiting for one */

#define FURCA_SEND_AHEAD (1U << 20)    /* bytes of capability calls queued for a client; past it they wait in turn */
#define FURCA_MAX_WAITING (512U << 20) /* bytes of calls that wait for one client */
#define FURCA_MAX_WAITING_EACH (96U << 20) /* and of those from one execute */

/* The arguments of execute */
#define FURCA_MAX_CODE (16U << 20)	/* bytes of code */
#define FURCA_MAX_NAME 64		/* characters of a session's or function's name */
#define FURCA_MAX_ENV_VARS 1024		/* entries of env_vars */
#define FURCA_MAX_ENV_VAR (128U << 10)	/* bytes of one, NAME=value and a NUL */
#define FURCA_MIN_OPEN_FILES 16		/* limits.open_files at least: a process needs some before any code runs */
#define FURCA_DEFAULT_OUTPUT (1U << 20) /* max_output_bytes by default */
#define FURCA_MAX_OUTPUT (64U << 20)	/* and at most */
#define FURCA_MAX_SPILL (1U << 30)	/* bytes of one stream kept on disk for read_output */
#define FURCA_MAX_RESULT (1U << 20)	/* bytes of `result`, packed, and of `result_text` */
#define FURCA_MAX_DISPLAY (32U << 20)	/* bytes of all of `display` */

/* Sessions */
#define FURCA_DEFAULT_SESSIONS 20 /* sessions alive at once, by default */
#define FURCA_MAX_QUEUE 256	  /* calls waiting for one session */

/* Hosts */
#define FURCA_MAX_HOST_FRAME (96U << 20)  /* bytes of one frame from a host: result, display and lists */
#define FURCA_MAX_PAGE_RANGES 4096U	  /* ranges in one list of pages that a copy touched */
#define FURCA_MAX_CAPABILITY (64U << 20)  /* bytes of one capability call's arguments or answer */
#define FURCA_MAX_CAPABILITIES_OPEN 4096  /* capability calls under way from one session or copy */
#define FURCA_MAX_NESTED 32		  /* stored functions that wait for one another, each in a process of its own */
#define FURCA_MAX_LANES 256		  /* lanes of one session or copy */
#define FURCA_MAX_LANES_HELD (256U << 20) /* bytes of half calls and unread answers on its lanes together */
