/*
 * Cells: namespaces made ahead of time around copies (or around a snapshot: a pid namespace alone), held by a pid 1 that runs the
 * loop of an init. A cell is made by the init that is asked: its pid namespace lies below that init's.
 *
 * Where the maker has CAP_SYS_ADMIN and is uid 0 a cell needs no user namespace; else it gets one with the maker's own uid and gid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proc.h"
#include "snapshot/barriers.h"
#include "snapshot/overlay.h"

struct furca_cell_args {
	unsigned namespaces;	   /* bits of enum furca_barrier: DISK, PROCESSES, IPC, NETWORK count */
	bool network;		   /* keep the network although NETWORK is asked for */
	uint64_t upper_bytes;	   /* bound of what can be written, 0: 2 GiB */
	pid_t keep_pid;		   /* a number that must stay free in the cell, 0: none */
	const char *const *places; /* as in overlay.h */
};

/* What a cell holds; also the content of /dev/.furca where the disk is its own. Plain data. */
struct furca_cell_facts {
	char magic[8]; /* FURCA_CELL_MAGIC */
	uint32_t held; /* bits of enum furca_barrier */
	uint8_t mechanism[FURCA_BARRIERS];
};
#define FURCA_CELL_MAGIC "furca-1"
#define FURCA_CELL_MARK "/dev/.furca"

/* A cell in the making: furca_cell_done accepts it at any time, kills nothing. */
struct furca_cell {
	struct furca_proc proc;	 /* its pid 1 */
	struct furca_fd control; /* the engine's end of its control channel */
	struct furca_fd report;	 /* readable when it stands or has failed */
};

/*
 * Starts a cell's init, which builds the cell by itself and serves its control channel. 0 or -errno. Does not wait; read the
 * outcome with furca_cell_report. For single-threaded callers.
 */
int furca_cell_start(const struct furca_cell_args *args, struct furca_cell *ret, struct furca_err *err);

/* Blocks until the cell stands. 0 and *ret, or -errno with what failed; the failed init ends by itself. */
int furca_cell_report(struct furca_cell *cell, struct furca_cell_facts *ret, struct furca_err *err);

void furca_cell_done(struct furca_cell *cell);

/* The CLONE_NEW* flags of a cell with these args made by this process. */
unsigned furca_cell_flags(const struct furca_cell_args *args);
