/* Waits for futexes in the ring, which newer kernels have. */
#include <string.h>

#include "base/fault.h"
#include "engine/loop_private.h"

#include "base/banned.h"

/* Of newer kernels' headers. */
#define OPCODE_FUTEX_WAIT 51
#define FUTEX_SIZE_U32 0x02
#define FUTEX_ANY 0xffffffffU

bool furca_loop_probe_futex(struct furca_loop *loop)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(&loop->ring);
	bool there = probe && io_uring_opcode_supported(probe, OPCODE_FUTEX_WAIT);

	io_uring_free_probe(probe);
	return there && furca_fault(FURCA_FAULT_PROBE_FUTEX) == 0;
}

bool furca_loop_has_futex(const struct furca_loop *loop)
{
	return loop->futexes;
}

void furca_loop_prep_futex(struct io_uring_sqe *sqe, const struct op *op)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = OPCODE_FUTEX_WAIT;
	sqe->fd = FUTEX_SIZE_U32;
	sqe->addr = (uint64_t)(uintptr_t)op->word;
	sqe->off = op->events;
	sqe->addr3 = FUTEX_ANY;
}
