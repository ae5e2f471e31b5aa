/*
 * Huge pages of anonymous memory, joined again from small ones that clones have left (MADV_COLLAPSE, Linux 6.1). Other kernels: nothing happens.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether the machine's administrator and this process allow huge pages. Reads a file of /sys. */
bool furca_huge_wanted(void);

/*
 * Joins what was not written since the last clone, 2 MB at a time, from address `at` on, until that has taken `us` or all memory was looked at; up to 16 MB that
 * lie together are one piece of work, of some 4 ms, which is not cut short. Left out is what is not wholly there, for that would take more memory than before,
 * and what this process does not share with a clone, for that is what it writes. Returns where to go on, 0 at the end. Contents do not change.
 * Not for two threads at once.
 */
uint64_t furca_huge_join(uint64_t at, int64_t us);
