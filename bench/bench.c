#include "bench/bench.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/banned.h"

enum { WARM_UP = 3, SPINS = 200, SPIN_US = 300 };

/* Above this, what a fixed piece of work takes wavers as if something else ran beside it. */
static const double NOISE_MAX = 1.5;

static char program[32];
static double noise;
static int status;

double furca_bench_now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

bool furca_bench_quick(void)
{
	const char *set = getenv("FURCA_BENCH_QUICK");

	return set && *set && strcmp(set, "0") != 0;
}

/* ---- records --------------------------------------------------------------------------------------------------------- */

/* The file that takes the records, at its end; NULL where none are wanted. Several programs may write to one, a record at a time. */
static FILE *record_begin(const char *kind)
{
	const char *path = getenv("FURCA_BENCH_JSON");
	FILE *f = path && *path ? fopen(path, "ae") : NULL;

	if (f)
		(void)fprintf(f, "{\"record\": \"%s\", \"bench\": \"%s\"", kind, program);
	return f;
}

static void record_end(FILE *f)
{
	(void)fputs("}\n", f);
	(void)fclose(f);
}

static void record_text(FILE *f, const char *key, const char *text)
{
	if (!text)
		return;
	(void)fprintf(f, ", \"%s\": \"", key);
	for (const char *p = text; *p; p++)
		if (*p == '"' || *p == '\\')
			(void)fprintf(f, "\\%c", *p);
		else if ((unsigned char)*p < 0x20)
			(void)fprintf(f, "\\u%04x", (unsigned)*p);
		else
			(void)fputc(*p, f);
	(void)fputc('"', f);
}

static const char *unit_of(const struct furca_bench_series *series)
{
	return series->unit ? series->unit : "us";
}

static void record_series(FILE *f, const struct furca_bench_series *series)
{
	static const char *const roles[] = {
		[FURCA_BENCH_SELF] = "furca", [FURCA_BENCH_PEER] = "peer", [FURCA_BENCH_LIMIT] = "limit"};

	(void)fprintf(f, "\"rounds\": %zu, \"min\": %.6g, \"median\": %.6g, \"max\": %.6g", series->n,
		      furca_bench_percentile(series, 0), furca_bench_percentile(series, 50),
		      furca_bench_percentile(series, 100));
	record_text(f, "name", series->name);
	record_text(f, "unit", unit_of(series));
	record_text(f, "role", roles[series->role]);
	record_text(f, "curve", series->curve);
	record_text(f, "x_unit", series->x_unit);
	if (series->curve)
		(void)fprintf(f, ", \"x\": %g", series->x);
}

static void record_nested(FILE *f, const char *key, const struct furca_bench_series *series)
{
	if (!series)
		return;
	(void)fprintf(f, ", \"%s\": {", key);
	record_series(f, series);
	(void)fputc('}', f);
}

/* ---- the machine ----------------------------------------------------------------------------------------------------- */

/* The first line of a file that begins with `key`, behind it and its colon; the whole first line without a key. */
static void first_line(const char *path, const char *key, char *ret, size_t size)
{
	char line[256];
	size_t n = strlen(key);
	FILE *f = fopen(path, "re");

	(void)snprintf(ret, size, "unknown");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, n) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		char *at = n ? strchr(line, ':') : line;
		if (at)
			(void)snprintf(ret, size, "%s", n ? at + 1 + strspn(at + 1, " \t") : at);
		break;
	}
	(void)fclose(f);
}

/* How much longer than at best a fixed piece of work takes in three of four tries' worst: 1 on a machine of one's own. */
static double look_at_noise(void)
{
	static struct furca_bench_series spins;
	volatile unsigned sink = 0;
	unsigned turns = 1000;

	for (double took = 0; took < SPIN_US; turns *= 2) { /* the work that takes about as long as asked */
		double start = furca_bench_now_us();

		for (unsigned i = 0; i < turns; i++)
			sink = sink + i;
		took = furca_bench_now_us() - start;
	}
	for (int spin = 0; spin < SPINS; spin++) {
		double start = furca_bench_now_us();

		for (unsigned i = 0; i < turns / 2; i++)
			sink = sink + i;
		furca_bench_add(&spins, furca_bench_now_us() - start);
	}
	return furca_bench_percentile(&spins, 75) / furca_bench_percentile(&spins, 0);
}

static int pin(int *cpu)
{
	cpu_set_t set;

	*cpu = sched_getcpu();
	CPU_ZERO(&set);
	CPU_SET((size_t)(*cpu < 0 ? 0 : *cpu), &set);
	return sched_setaffinity(0, sizeof(set), &set) < 0 ? -errno : 0;
}

int furca_bench_begin(const char *title, enum furca_bench_cpus cpus)
{
	char cpu[256], load[256], pages[256], where[64] = "on all CPUs";
	const char *name = strrchr(program_invocation_name, '-');
	struct utsname kernel;
	int number = -1;

	(void)snprintf(program, sizeof(program), "%s", name ? name + 1 : program_invocation_short_name);
	if (cpus == FURCA_BENCH_ONE_CPU) {
		int r = pin(&number);

		if (r < 0)
			return r;
		(void)snprintf(where, sizeof(where), "pinned to CPU %d", number);
	}
	first_line("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
	first_line("/proc/loadavg", "", load, sizeof(load));
	first_line("/sys/kernel/mm/transparent_hugepage/enabled", "", pages, sizeof(pages));
	(void)uname(&kernel);
	noise = look_at_noise();
	(void)printf("%s\n%s, Linux %s, %s, load %s, huge pages %s, noise %.2f%s\n", title, cpu, kernel.release, where,
		     load, pages, noise, noise > NOISE_MAX ? " (too much to conclude)" : "");
	(void)fflush(stdout);
	FILE *f = record_begin("begin");
	if (f) {
		record_text(f, "title", title);
		record_text(f, "cpu", cpu);
		record_text(f, "kernel", kernel.release);
		record_text(f, "load", load);
		record_text(f, "huge_pages", pages);
		(void)fprintf(f, ", \"cpus\": %ld, \"pinned\": %d, \"noise\": %.3f, \"quick\": %s",
			      sysconf(_SC_NPROCESSORS_ONLN), number, noise, furca_bench_quick() ? "true" : "false");
		record_end(f);
	}
	return 0;
}

/* ---- series ---------------------------------------------------------------------------------------------------------- */

void furca_bench_add(struct furca_bench_series *series, double value)
{
	if (series->n < FURCA_BENCH_ROUNDS_MAX)
		series->values[series->n++] = value;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double percentile(const double *values, size_t n, double p)
{
	double sorted[FURCA_BENCH_ROUNDS_MAX];

	if (n == 0)
		return 0;
	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), ascending);
	return sorted[(size_t)(p / 100 * (double)(n - 1) + 0.5)];
}

double furca_bench_percentile(const struct furca_bench_series *series, double p)
{
	return percentile(series->values, series->n, p);
}

void furca_bench_print(const struct furca_bench_series *series)
{
	(void)printf("  %-40s min %9.1f  median %9.1f  max %9.1f %s  (%zu rounds)\n", series->name,
		     furca_bench_percentile(series, 0), furca_bench_percentile(series, 50),
		     furca_bench_percentile(series, 100), unit_of(series), series->n);
	(void)fflush(stdout);
	FILE *f = record_begin("series");
	if (f) {
		(void)fputs(", ", f);
		record_series(f, series);
		record_end(f);
	}
}

static int run_task(const struct furca_bench_task *task)
{
	unsigned times = task->per_round ? task->per_round : 1;
	double us = 0;

	for (unsigned i = 0; i < times; i++) {
		if (task->pause_us)
			(void)usleep(task->pause_us);
		double start = furca_bench_now_us();
		int r = task->run(task->arg);
		us += furca_bench_now_us() - start;
		if (r < 0)
			return r;
	}
	furca_bench_add(task->series, us / times);
	return 0;
}

int furca_bench_rounds(struct furca_bench_task *tasks, size_t n, unsigned rounds)
{
	for (unsigned round = 0; round < WARM_UP + rounds; round++)
		for (size_t i = 0; i < n; i++) {
			if (round == WARM_UP)
				tasks[i].series->n = 0;
			int r = run_task(&tasks[i]);
			if (r < 0)
				return r;
		}
	for (size_t i = 0; i < n; i++)
		furca_bench_print(tasks[i].series);
	return 0;
}

/* ---- lines ----------------------------------------------------------------------------------------------------------- */

/* A line's figure and the middle half of what the rounds gave. */
struct figure {
	double value, low, high;
	bool measured, steady;
};

static struct figure figure_of(const struct furca_bench_line *line)
{
	const struct furca_bench_series *over = line->over, *under = line->under;
	double each[FURCA_BENCH_ROUNDS_MAX];
	struct figure figure = {.steady = noise <= NOISE_MAX};
	size_t n = under ? FURCA_MIN(over->n, under->n) : over->n;

	if (n == 0 || (under && furca_bench_percentile(under, 50) <= 0))
		return figure;
	for (size_t i = 0; i < n; i++)
		each[i] = under ? over->values[i] / under->values[i] : over->values[i];
	figure.measured = true;
	figure.value = furca_bench_percentile(over, 50) / (under ? furca_bench_percentile(under, 50) : 1);
	figure.low = percentile(each, n, 25);
	figure.high = percentile(each, n, 75);
	if (under && furca_bench_percentile(under, 75) > 2 * furca_bench_percentile(under, 25))
		figure.steady = false;
	if (!under && line->sense != FURCA_BENCH_NO_GOAL && figure.low < line->goal && line->goal < figure.high &&
	    figure.high - figure.low > line->goal)
		figure.steady = false;
	return figure;
}

static void record_line(const struct furca_bench_line *line, const struct figure *figure, const char *verdict)
{
	static const char *const senses[] = {[FURCA_BENCH_AT_MOST] = "at most", [FURCA_BENCH_AT_LEAST] = "at least"};
	FILE *f = record_begin("line");

	if (!f)
		return;
	record_text(f, "name", line->name);
	record_text(f, "workload", line->workload);
	if (!line->under)
		record_text(f, "unit", unit_of(line->over));
	(void)fprintf(f, ", \"%s\": %.4g, \"spread\": [%.4g, %.4g]", line->under ? "ratio" : "figure", figure->value,
		      figure->low, figure->high);
	if (line->sense != FURCA_BENCH_NO_GOAL) {
		record_text(f, "sense", senses[line->sense]);
		(void)fprintf(f, ", \"goal\": %g", line->goal);
	}
	record_text(f, "verdict", verdict);
	record_nested(f, "over", line->over);
	record_nested(f, "under", line->under);
	record_nested(f, "limit", line->limit);
	record_end(f);
}

int furca_bench_say(const struct furca_bench_line *line)
{
	struct figure figure = figure_of(line);
	bool met = line->sense == FURCA_BENCH_AT_MOST ? figure.value <= line->goal : figure.value >= line->goal;
	int one = !figure.measured || !figure.steady ? 77 : line->sense == FURCA_BENCH_NO_GOAL || met ? 0 : 1;
	const char *verdict = one == 77				   ? "NOISY"
			      : one == 1			   ? "MISS"
			      : line->sense == FURCA_BENCH_NO_GOAL ? "-"
								   : "PASS";

	(void)printf("  %s: %.2f%s%s (middle half of the rounds %.2f to %.2f)", line->name, figure.value,
		     line->under ? "" : " ", line->under ? "" : unit_of(line->over), figure.low, figure.high);
	if (line->limit)
		(void)printf(", %s %.1f %s", line->limit->name, furca_bench_percentile(line->limit, 50),
			     unit_of(line->limit));
	if (line->sense != FURCA_BENCH_NO_GOAL)
		(void)printf(", goal %s %g: %s", line->sense == FURCA_BENCH_AT_MOST ? "at most" : "at least",
			     line->goal, verdict);
	(void)printf("%s\n", one == 77 ? " (nothing can be said)" : "");
	(void)fflush(stdout);
	record_line(line, &figure, verdict);
	if (one == 1 || status == 0)
		status = one;
	return one;
}

void furca_bench_skip(const char *name, const char *reason)
{
	(void)printf("  %s: skipped, %s\n", name, reason);
	FILE *f = record_begin("skipped");
	if (f) {
		record_text(f, "name", name);
		record_text(f, "reason", reason);
		record_end(f);
	}
}

int furca_bench_status(void)
{
	return status;
}
