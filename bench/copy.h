/* The parts of furca-bench-copy. */
#pragma once

#include "base/fd.h"

/* Clones of a process of this program: with threads against a plain fork, and in a ready cell. 0, or 1 where it cannot be measured. */
int furca_bench_copy_clones(unsigned rounds);

/* Copies that were parked ahead, of hosts without an engine. After the above. 0 or 1. */
int furca_bench_copy_warm(unsigned rounds);

/* A cell made by the init that furca_bench_copy_clones has started: its pidfd, and its control channel, with which it ends. 0 or -errno. */
int furca_bench_copy_cell(struct furca_fd ret[2]);

/* Says what went wrong; -EIO. */
int furca_bench_copy_complain(const char *what);
