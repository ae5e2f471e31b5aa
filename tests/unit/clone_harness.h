/*
 * For the tests of furca_clone. A test runs its body in a process of its own, the subject, because clones are children of
 * the subject's parent: the harness is that parent, reaps them, and ends everything when time is up. A clone tells its
 * verdict (0 or a line number) through a pipe that it keeps.
 *
 * FURCA_TEST_N sets the number of clones of each test (50 if unset).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "snapshot/clone.h"

/* Number of clones, at least 1. */
int harness_n(void);

/* Runs the body in a subject; 0, what it returned, or 1000 + signal; -1 time is up. */
int harness_run(int (*body)(void));

/* A cell of the tests: pid and mount namespace with its own /proc. The pidfd of its pid 1, or -errno. */
int harness_cell(void);
void harness_cell_end(int cell);

/* One clone in a fresh cell, with `args` (cell is filled in where it is 0, keep gets one more of at most 4). As furca_clone; prints why it failed. */
int harness_clone(struct furca_clone_args *args, struct furca_clone_report *report, struct furca_err *err);

/* In the clone: tells the verdict and ends. */
_Noreturn void harness_tell(int verdict);

/* In the caller: waits for the verdict of the last clone, kills its cell. 0, the clone's line, 2000: it died, 3000: it hung. */
int harness_verdict(void);

/* clone + run `check` in the clone + verdict. */
int harness_try(int (*check)(void));

/* Threads that wait for work and never end; 0 or -errno. One pool per process; a clone has it, too. */
int harness_pool_start(int workers);
/* Gives the pool 20 pieces and waits until all are done: hangs if a worker does not live. */
void harness_pool_use(void);

struct harness_case {
	const char *name;
	int (*body)(void);
};

/* Runs the cases as a Check suite, each in a subject of its own. The exit status for main: 0 or 1. */
int harness_suite(const char *suite, const struct harness_case *cases, int n);
/* The same, for clones of processes with threads: 77 under AddressSanitizer. */
int harness_main(const char *suite, const struct harness_case *cases, int n);

/* Sleeps through signals. */
void harness_sleep_us(long us);
/* Below `limit`, from a seed that is printed at the start. */
unsigned harness_random(unsigned limit);

/* Waits up to 10 s for the condition, then goes on. */
#define HARNESS_UNTIL(condition)                                                                                       \
	for (int waits_ = 0; !(condition) && waits_ < 50000; waits_++)                                                 \
	harness_sleep_us(200)

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			dprintf(2, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                           \
			return __LINE__;                                                                               \
		}                                                                                                      \
	} while (0)
