/*
 * What the benchmarks share: one pinned CPU, warm-up, interleaved rounds, and lines that say min, median, max and the ratio with
 * its spread. A figure without its machine and its noise is none: every run prints both, and refuses to conclude where the baseline itself
 * wavers too much.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FURCA_BENCH_ROUNDS_MAX 512

/* One thing measured: a figure for each round, in microseconds. */
struct furca_bench_series {
	const char *name;
	double us[FURCA_BENCH_ROUNDS_MAX];
	size_t n;
};

/*
 * Pins this process, and what it starts, to the CPU it runs on: an idle CPU's wake-up costs more than what is measured. Prints the machine:
 * CPU, kernel, load, state of huge pages. 0 or -errno.
 */
int furca_bench_begin(const char *title);

/* Microseconds now, monotonic. */
double furca_bench_now_us(void);

/* Adds a round's figure. Rounds past FURCA_BENCH_ROUNDS_MAX are dropped. */
void furca_bench_add(struct furca_bench_series *series, double us);

/* Percentile `p` (0 to 100) of the rounds so far; 0 where there are none. */
double furca_bench_percentile(const struct furca_bench_series *series, double p);

/* One line: name, min, median, max. */
void furca_bench_print(const struct furca_bench_series *series);

/*
 * One line: median of `over` by median of `under`, and the middle half of the ratios of the same round. `goal` is the most (at_most) or least that it should
 * be. Returns 0 where the goal is met, 1 where it is missed, 77 where `under` wavers so much (its upper quartile is over twice its
 * lower one) that nothing can be said.
 */
int furca_bench_ratio(const char *name, const struct furca_bench_series *over, const struct furca_bench_series *under, double goal, bool at_most);
