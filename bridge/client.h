/*
 * Inside the client library: the connection that include/furca.h is built on. One mutex guards all of it; it is not held while the
 * library waits or runs a callback.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/proc.h"
#include "bridge/idmap.h"
#include "bridge/wire/value.h"
#include "furca.h"

/* A request of ours under way. */
struct furca_pending {
	bool done, waited;
	int failed;		 /* 0 or -errno */
	struct furca_buf answer; /* packed: the result, or with `refused` the error */
	bool refused;
	furca_output_fn *on_output;
	void *user;
};

/* A capability call that came and is to be run by whoever waits. */
struct furca_due {
	struct furca_due *next;
	uint64_t msgid;
	struct furca_buf params;
};

struct furca_offer {
	char *name;
	furca_capability_fn *fn;
	void *user;
};

struct furca_client {
	pthread_mutex_t lock;
	pthread_cond_t change; /* monotonic clock */
	struct furca_fd sock, wake;
	int broken; /* 0 or -errno: nothing comes any more */
	bool pumping;
	pthread_t pumper;
	struct furca_buf in, out;
	struct furca_scan scan;
	struct furca_idmap pending; /* msgid -> struct furca_pending */
	uint32_t last_msgid;
	struct furca_due *due, **due_end;
	struct furca_offer *offers;
	size_t n_offers;
	unsigned n_serving; /* callbacks that run */
	furca_capability_fn *on_handle;
	void *handle_user;
	bool objects; /* said of what is registered */
	furca_notification_fn *on_notification;
	void *notification_user;
	struct furca_proc engine; /* a private engine */
};

/* Takes over a connected socket. 0 or -errno. */
int furca_client_new(struct furca_fd sock, struct furca_client **ret);
void furca_client_free(struct furca_client *client);

/* Queues a request; `args` is a packed map. 0 and *ret_msgid, or -errno. Takes the lock itself. */
int furca_client_send(struct furca_client *client, const char *method, struct furca_view args,
		      furca_output_fn *on_output, void *user, uint32_t *ret_msgid);

/*
 * Waits for the answer, serving meanwhile. 0 and the answer handed over (*ret_refused: it is a protocol error), -ETIMEDOUT (still under
 * way), -ENOENT (no such request), -EDEADLK (called from on_output) or -EPIPE.
 */
int furca_client_wait(struct furca_client *client, uint32_t msgid, int64_t deadline_us, struct furca_buf *ret,
		      bool *ret_refused);

/* Nobody will wait: a late answer is dropped. */
void furca_client_forget(struct furca_client *client, uint32_t msgid);

/* Serves until the deadline. -ETIMEDOUT then, or -EPIPE. */
int furca_client_serve(struct furca_client *client, int64_t deadline_us);

/* Runs one capability call that is due; called by the connection without the lock. Owns `due`. */
void furca_client_run(struct furca_client *client, struct furca_due *due);

/*
 * What an execute that this thread starts says as `within`: the capability call that the thread serves, 0 where the client serves none. False:
 * that cannot be told, because a callback may have handed its work on, or holds up another one; the engine then guesses.
 */
bool furca_client_within(struct furca_client *client, uint64_t *ret);
/* The execute was started by this thread. */
void furca_client_started(const struct furca_client *client, uint64_t msgid);

/* Queues a response: `error` or `result` packed, the other empty. */
void furca_client_respond(struct furca_client *client, uint64_t msgid, struct furca_view error,
			  struct furca_view result);

/*
 * For callbacks of capabilities: the answer comes later, by furca_client_respond with the id that this returns, from any thread. What
 * furca_answer_* was told is dropped.
 */
uint64_t furca_client_defer(const struct furca_capability_call *call);

/* Reads a packed result map, copying it. 0 or -ENOMEM. */
int furca_result_read(struct furca_buf *answer, struct furca_result *ret);

/* Fills a public error; returns -e->code's errno as `r` is given. */
int furca_client_fail(struct furca_error *err, int r, const char *suggestion, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
