#include "bridge/wire/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(2 * sizeof(struct furca_ring_way) <= FURCA_RING_HEAD, "both ways fit before the bytes");
_Static_assert((FURCA_RING_BYTES & (FURCA_RING_BYTES - 1)) == 0, "counters wrap");

static int map(struct furca_ring *ring, int memory, bool maker)
{
	void *at = mmap(NULL, FURCA_RING_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);

	if (at == MAP_FAILED)
		return -errno;
	if (madvise(at, FURCA_RING_MEMORY, MADV_DONTFORK) < 0) {
		int r = -errno;

		(void)munmap(at, FURCA_RING_MEMORY);
		return r;
	}
	struct furca_ring_way *ways = at;
	uint8_t *bytes = (uint8_t *)at + FURCA_RING_HEAD;
	*ring = (struct furca_ring){.memory = at,
				    .out = &ways[maker ? 0 : 1],
				    .in = &ways[maker ? 1 : 0],
				    .out_bytes = bytes + (maker ? 0 : FURCA_RING_BYTES),
				    .in_bytes = bytes + (maker ? FURCA_RING_BYTES : 0)};
	return 0;
}

int furca_ring_new(struct furca_ring *ring, struct furca_fd *ret_memory)
{
	FURCA_AUTO_FD struct furca_fd memory =
		furca_fd_own(memfd_create("furca-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	if (memory.n < 0 || ftruncate(memory.n, FURCA_RING_MEMORY) < 0 || fcntl(memory.n, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	int r = map(ring, memory.n, true);
	if (r == 0)
		*ret_memory = furca_fd_take(&memory);
	return r;
}

int furca_ring_open(struct furca_ring *ring, int memory)
{
	int seals = fcntl(memory, F_GET_SEALS);
	struct stat st;

	/* Sealed first, measured after: it cannot become shorter any more, and no access fails. */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(memory, &st) < 0 || st.st_size != (off_t)FURCA_RING_MEMORY)
		return -EPERM;
	return map(ring, memory, false);
}

void furca_ring_done(struct furca_ring *ring)
{
	if (ring->memory)
		(void)munmap(ring->memory, FURCA_RING_MEMORY);
	*ring = (struct furca_ring){0};
}

static void copy_in(uint8_t *bytes, uint32_t at, const uint8_t *data, uint32_t n)
{
	uint32_t from = at % FURCA_RING_BYTES, first = n < FURCA_RING_BYTES - from ? n : FURCA_RING_BYTES - from;

	memcpy(bytes + from, data, first);
	memcpy(bytes, data + first, n - first);
}

static void copy_out(uint8_t *data, const uint8_t *bytes, uint32_t at, uint32_t n)
{
	uint32_t from = at % FURCA_RING_BYTES, first = n < FURCA_RING_BYTES - from ? n : FURCA_RING_BYTES - from;

	memcpy(data, bytes + from, first);
	memcpy(data + first, bytes, n - first);
}

int furca_ring_write(struct furca_ring *ring, const void *data, size_t n)
{
	uint32_t used = ring->head - atomic_load_explicit(&ring->out->tail, memory_order_acquire);

	if (used > FURCA_RING_BYTES)
		return -EPROTO;
	if (n > FURCA_RING_BYTES - used)
		return 0;
	copy_in(ring->out_bytes, ring->head, data, (uint32_t)n);
	ring->head += (uint32_t)n;
	atomic_store_explicit(&ring->out->head, ring->head, memory_order_release);
	return 1;
}

ssize_t furca_ring_read(struct furca_ring *ring, void *data)
{
	uint32_t n = atomic_load_explicit(&ring->in->head, memory_order_acquire) - ring->tail;

	if (n > FURCA_RING_BYTES)
		return -EPROTO;
	copy_out(data, ring->in_bytes, ring->tail, n);
	ring->tail += n;
	atomic_store_explicit(&ring->in->tail, ring->tail, memory_order_release);
	return (ssize_t)n;
}

enum furca_ring_sleep furca_ring_ring(struct furca_ring *ring, bool by_socket)
{
	if (by_socket)
		(void)atomic_fetch_add(&ring->out->by_socket, 1);
	(void)atomic_fetch_add(&ring->out->bell, 1);
	uint32_t asleep = atomic_load(&ring->out->asleep);
	if (asleep != FURCA_RING_AWAKE)
		asleep = atomic_exchange(&ring->out->asleep, FURCA_RING_AWAKE);
	if (asleep == FURCA_RING_FUTEX)
		(void)syscall(SYS_futex, &ring->out->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	return asleep == FURCA_RING_FUTEX || asleep == FURCA_RING_SOCKET ? (enum furca_ring_sleep)asleep
									 : FURCA_RING_AWAKE;
}

bool furca_ring_heard(struct furca_ring *ring, bool *ret_by_socket)
{
	uint32_t bell = atomic_load(&ring->in->bell), by_socket = atomic_load(&ring->in->by_socket);
	bool heard = bell != ring->seen;

	*ret_by_socket = by_socket != ring->by_socket;
	ring->seen = bell;
	ring->by_socket = by_socket;
	return heard;
}

bool furca_ring_sleep(struct furca_ring *ring, enum furca_ring_sleep how)
{
	atomic_store(&ring->in->asleep, how);
	if (atomic_load(&ring->in->bell) == ring->seen)
		return true;
	furca_ring_awake(ring);
	return false;
}

void furca_ring_awake(struct furca_ring *ring)
{
	atomic_store(&ring->in->asleep, FURCA_RING_AWAKE);
}

void furca_ring_wait(struct furca_ring *ring, int timeout_ms)
{
	struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};

	(void)syscall(SYS_futex, &ring->in->bell, FUTEX_WAIT, ring->seen, &timeout, NULL, 0);
}
