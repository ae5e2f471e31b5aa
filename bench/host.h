/* A host process of a language without an engine: spoken to as the engine does, for what is measured below the engine. Blocking. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/fd.h"
#include "bridge/wire/frame.h"

struct furca_bench_host {
	struct furca_fd control, capability; /* our ends */
	struct furca_fd proc;		     /* of a clone: its pidfd */
	struct furca_fd output[2];	     /* of the last call that got pipes */
	pid_t pid;			     /* of one that was started: our child */
	uint64_t calls;
	struct furca_buf in, out;
	size_t taken; /* bytes of `in`: the frame that was received last */
};

/* Starts "python" or "bash" and waits until it is ready. 0 or -errno; what is wrong is said on standard error. */
int furca_bench_host_start(const char *language, struct furca_bench_host *ret);

/* Begins a frame to the host; furca_bench_host_send ends it and sends it with descriptors (borrowed). 0 or -errno. */
size_t furca_bench_host_begin(struct furca_bench_host *host, msgpack_packer *pk, enum furca_frame number,
			      uint32_t fields);
int furca_bench_host_send(struct furca_bench_host *host, size_t at, const int *fds, unsigned n_fds);

/* Receives a frame of that number; its view points into host->in, until the next one is received. 0 or -errno. */
int furca_bench_host_receive(struct furca_bench_host *host, enum furca_frame number, struct furca_frame_view *ret);

/* RUN and DONE. The first call gets pipes, the next ones go on with them, since nobody else holds them. */
int furca_bench_host_run(struct furca_bench_host *host, const char *code);

/* New pipes for the next RUN: their write ends, to be sent with it and closed then. 0 or -errno. */
int furca_bench_host_pipes(struct furca_bench_host *host, int ret_ends[2]);

/*
 * A read-only copy of it, in the cell behind that pidfd, behind all barriers: ready for code. 0 or -errno. The copy is no child of the host but of this
 * process, which has to be a subreaper.
 */
int furca_bench_host_copy(struct furca_bench_host *host, int cell, struct furca_bench_host *ret);

/* Closes its channels, at which it ends; a clone is killed before. */
void furca_bench_host_done(struct furca_bench_host *host);
