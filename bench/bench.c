#include "bench/bench.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/auto.h"
#include "base/banned.h"

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

int furca_bench_begin(const char *title)
{
	char cpu[256], load[256], pages[256];
	struct utsname kernel;
	cpu_set_t set;
	int number = sched_getcpu();

	CPU_ZERO(&set);
	CPU_SET((size_t)(number < 0 ? 0 : number), &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		return -errno;
	first_line("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
	first_line("/proc/loadavg", "", load, sizeof(load));
	first_line("/sys/kernel/mm/transparent_hugepage/enabled", "", pages, sizeof(pages));
	(void)uname(&kernel);
	printf("%s\n%s, Linux %s, pinned to CPU %d, load %s, huge pages %s\n", title, cpu, kernel.release, number, load, pages);
	(void)fflush(stdout);
	return 0;
}

double furca_bench_now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void furca_bench_add(struct furca_bench_series *series, double us)
{
	if (series->n < FURCA_BENCH_ROUNDS_MAX)
		series->us[series->n++] = us;
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
	return percentile(series->us, series->n, p);
}

void furca_bench_print(const struct furca_bench_series *series)
{
	printf("  %-34s min %9.1f  median %9.1f  max %9.1f us  (%zu rounds)\n", series->name, furca_bench_percentile(series, 0),
	       furca_bench_percentile(series, 50), furca_bench_percentile(series, 100), series->n);
}

int furca_bench_ratio(const char *name, const struct furca_bench_series *over, const struct furca_bench_series *under, double goal, bool at_most)
{
	double ratios[FURCA_BENCH_ROUNDS_MAX], base = furca_bench_percentile(under, 50);
	size_t n = FURCA_MIN(over->n, under->n);

	if (n == 0 || base <= 0) {
		printf("  %s: nothing was measured\n", name);
		return 77;
	}
	for (size_t i = 0; i < n; i++)
		ratios[i] = over->us[i] / under->us[i];
	double ratio = furca_bench_percentile(over, 50) / base;
	bool met = at_most ? ratio <= goal : ratio >= goal;
	printf("  %s: %.2f (middle half of the rounds %.2f to %.2f), goal %s %.1f: ", name, ratio, percentile(ratios, n, 25),
	       percentile(ratios, n, 75), at_most ? "at most" : "at least", goal);
	if (furca_bench_percentile(under, 75) > 2 * furca_bench_percentile(under, 25)) {
		printf("the machine is too noisy to say\n");
		return 77;
	}
	printf("%s\n", met ? "met" : "MISSED");
	return met ? 0 : 1;
}
