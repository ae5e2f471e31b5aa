/*
 * What the benchmarks share, and the words in which they speak: a *series* is one thing measured in many rounds, a *task* runs it,
 * a *line* sets one series against another (or against a goal by itself) and ends in a verdict. A program has this shape:
 *
 *   furca_bench_begin("bench call: …", FURCA_BENCH_ONE_CPU)       the machine, its noise; one pinned CPU
 *   furca_bench_rounds(tasks, n, rounds)                          warm-up, then the tasks in turn, round by round
 *   furca_bench_say(&line)                                        the ratio, its spread, the goal, PASS or MISS
 *   return furca_bench_status()                                   0, 1 where a goal is missed, 77 where nothing can be said
 *
 * A figure without its machine and its noise is none: every run says both, and nothing is concluded where the machine or the baseline
 * wavers too much. `furca bench NAME --json FILE` appends each record to FILE as a line of JSON (fields in bench/README.md); `--quick` asks for
 * fewer rounds and smaller sizes. A program adds its name to bench/local.mk, and its lines appear in `furca bench speed`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FURCA_BENCH_ROUNDS_MAX 512

enum furca_bench_cpus {
	FURCA_BENCH_ONE_CPU, /* this process and what it starts on one CPU: an idle one's wake-up costs more than what is measured */
	FURCA_BENCH_ALL_CPUS, /* for what needs more: throughput, many threads */
};

/* What a series stands for. */
enum furca_bench_role {
	FURCA_BENCH_SELF,  /* furca */
	FURCA_BENCH_PEER,  /* what a user would take otherwise */
	FURCA_BENCH_LIMIT, /* what the machine allows: a bare system call, a raw fork, a copy of memory */
};

/* One thing measured: a figure for each round. */
struct furca_bench_series {
	const char *name;
	const char *unit; /* NULL: microseconds ("us") */
	enum furca_bench_role role;
	const char *
		curve; /* NULL, or the growth curve that it is a point of: series of one `curve` and `x_unit` make a plot */
	const char *x_unit;
	double x;
	double values[FURCA_BENCH_ROUNDS_MAX];
	size_t n;
};

/* Runs one thing `per_round` times a round; the series gets the mean of these. */
struct furca_bench_task {
	struct furca_bench_series *series;
	int (*run)(void *arg); /* 0, or a negative number, which ends the rounds */
	void *arg;
	unsigned per_round; /* 0 is 1 */
	unsigned pause_us;  /* before each run, unmeasured: for what furca does between calls */
};

enum furca_bench_sense { FURCA_BENCH_AT_MOST, FURCA_BENCH_AT_LEAST, FURCA_BENCH_NO_GOAL };

/* `over` by `under`, with a goal for the ratio; without `under` the goal is one for the figure of `over` itself, in its unit. */
struct furca_bench_line {
	const char *name;     /* short and kept: the guard and the report find the line by program and name */
	const char *workload; /* never NULL: what was done, for someone who reads the line alone */
	const struct furca_bench_series *over, *under;
	const struct furca_bench_series *limit; /* NULL, or what the machine allows, measured in the same rounds */
	enum furca_bench_sense sense;
	double goal;
};

/*
 * Pins the CPU if so told, looks how noisy the machine is (60 ms), and prints it: CPU, kernel, load, state of huge pages, noise. 0 or
 * -errno; a program that cannot begin exits with 77.
 */
int furca_bench_begin(const char *title, enum furca_bench_cpus cpus);

/* Whether fewer rounds and smaller sizes are asked for (`furca bench --quick`, a variable of the environment). */
bool furca_bench_quick(void);

/* Microseconds now, monotonic. */
double furca_bench_now_us(void);

/* Adds a round's figure. Rounds past FURCA_BENCH_ROUNDS_MAX are dropped. */
void furca_bench_add(struct furca_bench_series *series, double value);

/* Runs the tasks in turn, three unmeasured rounds and then `rounds`, and prints each series. 0, or the first task's failure. */
int furca_bench_rounds(struct furca_bench_task *tasks, size_t n, unsigned rounds);

/* Percentile `p` (0 to 100) of the rounds so far; 0 where there are none. */
double furca_bench_percentile(const struct furca_bench_series *series, double p);

/* One line of text and one record: name, min, median, max, unit. furca_bench_rounds() has done it for its tasks. */
void furca_bench_print(const struct furca_bench_series *series);

/*
 * Prints and records a line: the ratio of the medians, the middle half of the ratios of the same round, the goal and the verdict. Returns 0 for PASS
 * (and for a line without a goal), 1 for MISS, 77 for NOISY: nothing was measured, the machine is noisy, the upper quartile of `under` is over
 * twice its lower one, or a figure without `under` wavers around its goal by more than the goal.
 */
int furca_bench_say(const struct furca_bench_line *line);

/* Says that a peer is not measured and why, in the text and the records, so that it is not just missing. */
void furca_bench_skip(const char *name, const char *reason);

/* The exit status that all lines so far come to. */
int furca_bench_status(void);
