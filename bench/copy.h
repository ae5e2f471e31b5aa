/* The parts of furca-bench-copy. */
#pragma once

/* Clones of a process of this program: with threads against a plain fork, and in a ready cell. 0, or 1 where it cannot be measured. */
int furca_bench_copy_clones(unsigned rounds);

/* Says what went wrong; -EIO. */
int furca_bench_copy_complain(const char *what);
