/*
 * One client's connection, without its socket: bytes in, messages out, and the other way round. msgpack-rpc as
 * doc/protocol.md has it, every bound of bridge/wire/limits.h checked on heads alone, before anything is allocated. The
 * owner (server.h) moves the bytes; a test may do it by hand.
 *
 *   OPEN      serves
 *   ENDING    the peer broke the protocol: an error answer is queued, further input is ignored; to be closed once all is sent
 *   CLOSED    nothing more goes in or out
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "bridge/idmap.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/messages.h"
#include "bridge/wire/value.h"

enum furca_conn_state { FURCA_CONN_OPEN, FURCA_CONN_ENDING, FURCA_CONN_CLOSED, FURCA_CONN_MAX };
enum furca_conn_event { FURCA_CONN_BROKEN, FURCA_CONN_FLUSHED, FURCA_CONN_GONE, FURCA_CONN_EVENT_MAX };

/* What comes in. Views are borrowed for the call. A function may answer at once; it must not free the connection. */
struct furca_conn_events {
	/* A request that is to be answered once with furca_conn_answer or _refuse. `args` is one packed map. */
	void (*request)(void *user, uint64_t msgid, enum furca_method method, struct furca_view args);
	/* The answer to a request of ours; one of the two is nil. `msgid` may be any number: the peer chose it. */
	void (*response)(void *user, uint64_t msgid, const struct furca_value *error, const struct furca_value *result);
};

/* Memory beside a message that is queued: it goes with the byte at `at` of `out`. */
struct furca_conn_memory {
	size_t at;
	struct furca_fd fd;
};

struct furca_conn {
	const struct furca_conn_events *events;
	void *user;
	enum furca_conn_state state;
	struct furca_buf in;	      /* the message under way, while it is not whole */
	struct furca_scan scan;	      /* how far it was looked at */
	struct furca_buf out;	      /* not yet taken by the owner */
	size_t sending;		      /* bytes the owner took and has not yet sent */
	struct furca_idmap in_flight; /* msgid -> method, as a number */
	uint64_t messages_in, messages_out, refused;
	/* Of peers that asked for arrays: what goes out with messages, what came for messages not whole yet, and that of the message that an
	 * event is about, which may be taken. */
	struct furca_conn_memory out_memories[FURCA_MAX_MEMORIES];
	struct furca_fd in_memories[FURCA_MAX_MEMORIES], memory;
	unsigned n_out_memories, n_in_memories;
};

/* Fills in a connection. Allocates nothing. */
void furca_conn_init(struct furca_conn *conn, const struct furca_conn_events *events, void *user);
void furca_conn_done(struct furca_conn *conn);

/* Bytes that came; calls the events for each whole message. After it, look at `state` and `out`. Never blocks. */
void furca_conn_feed(struct furca_conn *conn, const uint8_t *data, size_t n);

/* Descriptors that came with the next bytes (taken). Too many that no message is for break the connection. */
void furca_conn_feed_memories(struct furca_conn *conn, struct furca_fd *fds, size_t n);

/* The owner has sent the first `n` bytes of `out`; the memory that went with the first of them is closed. */
void furca_conn_sent(struct furca_conn *conn, size_t n);

/* The only place where the state changes. */
void furca_conn_step(struct furca_conn *conn, enum furca_conn_event event);

/*
 * Queues the result of a request; `memory` is that of its arrays (taken where it goes; NULL: none). One that is not in flight is dropped; a result over
 * FURCA_MAX_ANSWER, and one for whose memory there is no room, becomes a refusal. 0 or -errno; where memory is out the connection is broken.
 */
int furca_conn_answer(struct furca_conn *conn, uint64_t msgid, struct furca_view result, struct furca_fd *memory);

/* Queues an `error` {code, message}: a word of doc/protocol.md and a sentence. */
int furca_conn_refuse(struct furca_conn *conn, uint64_t msgid, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Queues a notification or a request of ours; `params` is one packed map, `memory` that of its arrays (taken on success; NULL: none). 0, -EAGAIN
 * where too many memories wait already, -ENOBUFS where the peer does not read what is queued
 * for it (then nothing was queued), -EPIPE where the connection is not open, or -ENOMEM.
 */
int furca_conn_notify(struct furca_conn *conn, const char *method, struct furca_view params);
int furca_conn_request(struct furca_conn *conn, uint32_t msgid, const char *method, struct furca_view params,
		       struct furca_fd *memory);

/* Bytes queued and not sent. */
static inline size_t furca_conn_queued(const struct furca_conn *conn)
{
	return conn->out.len + conn->sending;
}
