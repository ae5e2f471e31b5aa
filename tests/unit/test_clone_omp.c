/* OpenMP: a team that worked before the clone works in it. */
#include <omp.h>
#include <stdlib.h>

#include "tests/unit/clone_harness.h"

#define TEAM 4
static double expected;

static double work(int n)
{
	double sum = 0;

#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 16)
	for (int i = 0; i < n; i++)
		sum += 1.0 / (1 + i % 7);
	return sum;
}

static int fibonacci(int n)
{
	int a, b;

	if (n < 2)
		return n;
#pragma omp task shared(a) if (n > 8)
	a = fibonacci(n - 1);
	b = fibonacci(n - 2);
#pragma omp taskwait
	return a + b;
}

static int team_check(void)
{
	int result = 0, members = 0;
	double got = work(20000);

	REQUIRE(got > expected - 1e-6 && got < expected + 1e-6);
#pragma omp parallel
	{
#pragma omp atomic
		members++;
#pragma omp barrier
#pragma omp single
		result = fibonacci(12);
	}
	REQUIRE(result == 144 && members == TEAM);
	return 0;
}

static int team_body(void)
{
	omp_set_dynamic(0);
	omp_set_num_threads(TEAM);
	expected = work(20000);
	for (int i = 0; i < harness_n(); i++) {
		work(2000);
		/* Odd: the team sleeps; even: it still spins. */
		if (i & 1)
			harness_sleep_us(harness_random(500));
		REQUIRE(harness_try(team_check) == 0);
		REQUIRE(team_check() == 0);
	}
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {{"team", team_body}};

	/* Spinning teams of two processes on few processors would only measure the scheduler. */
	setenv("OMP_WAIT_POLICY", "passive", 0);
	return harness_main("clone_omp", cases, 1);
}
