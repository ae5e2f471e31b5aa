/* Monotonic time in microseconds, and deadlines made of it. Async-signal-safe. */
#pragma once

#include <stdint.h>
#include <time.h>

#define FURCA_NEVER INT64_MAX /* a deadline that never comes */

static inline int64_t furca_now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* `timeout_us` from now; FURCA_NEVER stays. */
static inline int64_t furca_deadline_us(int64_t timeout_us)
{
	return timeout_us == FURCA_NEVER ? FURCA_NEVER : furca_now_us() + timeout_us;
}

/* Seconds since 1970, for people. */
static inline double furca_wall_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
