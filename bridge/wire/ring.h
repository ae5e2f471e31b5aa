/*
 * Two rings of whole frames in a sealed memfd: a lane's shared memory, between code in a session, which makes it, and the engine. Either side may be
 * hostile to the other: of what the other one writes, an index is read once and checked, and bytes are copied out before they are looked at. A broken
 * ring is an error of the lane and of nothing else. Nothing here waits but furca_ring_wait.
 *
 * A frame goes by the ring where it fits and carries no descriptor, otherwise by the lane's socket; both say so by the bell, a futex. Who reads looks
 * at the ring once more after bytes came by the socket, before it looks at them: what was written to the ring earlier comes first.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fd.h"

#define FURCA_RING_BYTES (256U << 10)				   /* of frames, each way; a power of two */
#define FURCA_RING_HEAD 4096U					   /* before them */
#define FURCA_RING_MEMORY (FURCA_RING_HEAD + 2 * FURCA_RING_BYTES) /* below 1 MiB */

/* How the reader waits, so that the writer knows what wakes it. */
enum furca_ring_sleep {
	FURCA_RING_AWAKE,
	FURCA_RING_FUTEX,  /* on the bell */
	FURCA_RING_SOCKET, /* on the socket: a BELL frame there */
};

/* One way. Counters wrap; each line of the cache has one writer. */
struct furca_ring_way {
	_Alignas(64) _Atomic uint32_t head;   /* bytes written, ever */
	_Atomic uint32_t bell;		      /* counts frames, on the socket too */
	_Atomic uint32_t by_socket;	      /* those on the socket */
	_Alignas(64) _Atomic uint32_t tail;   /* bytes read, ever */
	_Alignas(64) _Atomic uint32_t asleep; /* enum furca_ring_sleep, of the reader */
};

/* One side's view. Zeroed: none. */
struct furca_ring {
	uint8_t *memory;
	struct furca_ring_way *out, *in;
	uint8_t *out_bytes, *in_bytes;
	uint32_t head, tail; /* our own, never read back */
	uint32_t seen;	     /* the bell's count when we looked last */
	uint32_t by_socket;  /* likewise */
};

/* Makes the memory and this side's view of it, which is left out of forks and clones: theirs is a lane of their own. 0 or -errno. */
int furca_ring_new(struct furca_ring *ring, struct furca_fd *ret_memory);

/* The other side's view of memory that came from there (borrowed). 0, -EPERM where it is not of that size and sealed to stay so, or -errno. */
int furca_ring_open(struct furca_ring *ring, int memory);

/* Accepts one that is zeroed. */
void furca_ring_done(struct furca_ring *ring);

/*
 * Writes one frame whole. 1, 0 where it does not fit now, or -EPROTO where the other side's index is impossible. The reader is to be woken after:
 * furca_ring_ring.
 */
int furca_ring_write(struct furca_ring *ring, const void *data, size_t n);

/* Copies all there is now to `data`, which has room for FURCA_RING_BYTES. Bytes, or -EPROTO. */
ssize_t furca_ring_read(struct furca_ring *ring, void *data);

/* Says that a frame was written, to the socket if `by_socket`. How the reader has to be woken; FURCA_RING_FUTEX was done here. */
enum furca_ring_sleep furca_ring_ring(struct furca_ring *ring, bool by_socket);

/* Whether something may have come since the last read; *ret_by_socket: on the socket. Remembers what it saw. */
bool furca_ring_heard(struct furca_ring *ring, bool *ret_by_socket);

/* Says how this side is about to wait for ring->seen to change. False: it has changed already, and this side is awake. */
bool furca_ring_sleep(struct furca_ring *ring, enum furca_ring_sleep how);

/* Waits on the bell for at most `timeout_ms`; signals end it. To be called between furca_ring_sleep and furca_ring_awake. */
void furca_ring_wait(struct furca_ring *ring, int timeout_ms);
void furca_ring_awake(struct furca_ring *ring);
