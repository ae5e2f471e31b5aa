/*
 * Standard output and error of one call: a pipe each. While the call runs what comes belongs to it; afterwards what its threads and
 * jobs still write belongs to the session's background, until every writer has closed.
 */
#pragma once

#include "engine/drain.h"
#include "engine/engine.h"
#include "engine/output.h"

struct furca_pipes;

/* Background output of a session, collected between its calls. */
struct furca_background {
	struct furca_pipes *first; /* of calls that have ended */
	unsigned count;
	struct furca_pipes *last; /* of the last call, where nobody but its host can hold them; else NULL */
	uint64_t newest;	  /* furca_limits_newest when that call ended */
	struct furca_output text;
};

struct furca_pipes {
	struct furca_engine *engine;
	struct furca_drain drain[2];
	struct furca_output *output;	     /* [2], of the call; NULL: it has ended */
	struct furca_background *background; /* NULL: nobody wants what comes late */
	struct furca_pipes *next;
	unsigned open;
	uint64_t tag; /* of the host that has the write ends */
	bool stream;
	furca_client_id client;
	uint64_t msgid;
	uint8_t carry[2][4]; /* streaming: the beginning of a character */
	size_t n_carry[2];
};

/* Makes the pipes; the write ends are given out. NULL with *err. */
struct furca_pipes *furca_pipes_new(struct furca_engine *engine, struct furca_output output[2], bool stream,
				    furca_client_id client, uint64_t msgid, struct furca_fd ret_write_ends[2],
				    struct furca_err *err);

/* Puts bytes into the call's output behind what is in its pipe now, as if its code had written them. */
void furca_pipes_put(struct furca_pipes *pipes, int which, const uint8_t *data, size_t n);

/* The call ends: reads what is in the pipes now. No more is added to its output. */
void furca_pipes_finish(struct furca_pipes *pipes);

/*
 * The pipes of the session's last call once more, for a call in the same host (`tag`), out of its background. NULL where there are
 * none that can be used.
 */
struct furca_pipes *furca_pipes_again(struct furca_background *background, uint64_t tag, struct furca_output output[2],
				      bool stream, furca_client_id client, uint64_t msgid);

/*
 * Hands finished pipes to a session's background, where they free themselves in time. The oldest goes where there are many.
 * `reusable`: nobody but the host that they were given to holds them.
 */
void furca_pipes_keep(struct furca_pipes *pipes, struct furca_background *background, bool reusable);

/* Closes. Accepts NULL. */
void furca_pipes_free(struct furca_pipes *pipes);

void furca_background_init(struct furca_background *background);
void furca_background_done(struct furca_background *background);

/* Reads what is in its pipes now and moves the text collected so far to `out`. */
void furca_background_take(struct furca_background *background, struct furca_buf *out);
