/* The loop of every init process (see init.h), for the two places that start one: init.c and cell.c. */
#pragma once

#include <stdbool.h>

/*
 * Serves `control` until it closes, then ends: a surface init after it has killed and reaped everything below it, pid 1
 * of a cell at once. Single-threaded callers only; all signals are blocked from here on.
 */
__attribute__((noreturn)) void furca_init_loop(int control, bool surface);
