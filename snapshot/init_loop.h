/* The loop of every init process (see init.h), for the two places that start one: init.c and cell.c. */
#pragma once

#include "snapshot/overlay.h"

/*
 * Serves `control` until it closes, then ends: a surface init (overlay NULL and not pid 1 of its namespace) after it has killed
 * and reaped everything below it, a cell's at once, since the kernel ends its namespace with it. `overlay` is what CHANGES lists,
 * NULL: nothing. `places` as in overlay.h, for the cells it makes. Single-threaded callers only; all signals are blocked.
 */
__attribute__((noreturn)) void furca_init_loop(int control, const struct furca_overlay *overlay,
					       const char *const *places);
