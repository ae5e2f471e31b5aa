/*
 * Init processes. One is started with the engine: parent of all hosts, child subreaper, it reaps, reports exits, starts
 * zygotes and makes cells. One is pid 1 of each cell: it holds the namespaces, reaps what ends inside, lists what was written below
 * the overlays, and makes cells within its own pid namespace. The loop is the same (frames: bridge/wire/init.h).
 *
 * When its control channel closes, because the engine has ended by whatever signal, an init kills everything below it
 * and ends. Killing a cell's init ends everything in the cell and frees its disk and mounts.
 */
#pragma once

#include "base/err.h"
#include "base/proc.h"

/*
 * Starts the surface init as a child (fork, before the engine has a ring). *ret_control is the engine's end of the
 * channel, nonblocking. 0 or -errno.
 */
int furca_init_start(struct furca_proc *ret_proc, struct furca_fd *ret_control, struct furca_err *err);
