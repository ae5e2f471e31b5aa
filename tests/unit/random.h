/* Seeded random numbers for tests: the seed is printed, and FURCA_TEST_SEED sets it. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t furca_test_seed(void)
{
	const char *text = getenv("FURCA_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : 0x5eed;

	printf("FURCA_TEST_SEED=%#llx\n", (unsigned long long)seed);
	return seed;
}

/* splitmix64 */
static inline uint64_t furca_test_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}
