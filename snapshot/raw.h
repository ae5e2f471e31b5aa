/*
 * System calls and small text work for the time while other threads stand still or do not exist yet: no malloc, no lock, no errno,
 * no TLS. Everything returns what the kernel returned, -errno on failure. Async-signal-safe throughout.
 */
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "snapshot/arch.h"

/* furca_raw(SYS_close, fd): up to six arguments, pointers and numbers alike. */
#define furca_raw(...) FURCA_RAW_FILL(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define FURCA_RAW_FILL(nr, a, b, c, d, e, f, ...)                                                                      \
	furca_arch_call((long)(nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline long furca_raw_open(const char *path, int flags)
{
	return furca_raw(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
}

static inline void furca_raw_close(long fd)
{
	furca_raw(SYS_close, fd);
}

static inline _Noreturn void furca_raw_exit(int status)
{
	for (;;)
		furca_raw(SYS_exit_group, status);
}

static inline int64_t furca_raw_now_us(void)
{
	struct timespec t = {0, 0};

	furca_raw(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline void furca_raw_sleep_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	furca_raw(SYS_nanosleep, &t, 0);
}

#define FURCA_RAW_SHARED true /* the futex lies on a page that two processes see */
#define FURCA_RAW_PRIVATE false

/* Waits while *word is value; timeout_us < 0: for ever. May return early; callers look again. */
static inline void furca_raw_wait(const uint32_t *word, uint32_t value, long timeout_us, bool shared)
{
	struct timespec t = {timeout_us / 1000000, timeout_us % 1000000 * 1000};

	furca_raw(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, timeout_us >= 0 ? &t : NULL);
}

static inline void furca_raw_wake(const uint32_t *word, int n, bool shared)
{
	furca_raw(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), n);
}

#define furca_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define furca_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define furca_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_ACQ_REL)

static inline bool furca_swap_if(uint64_t *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Appends a text or a decimal number at p, which has room; returns the new end (a NUL stands there). */
static inline char *furca_raw_text(char *p, const char *text)
{
	while ((*p = *text++))
		p++;
	return p;
}

static inline char *furca_raw_decimal(char *p, unsigned long value)
{
	char digits[24];
	int n = 0;

	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		*p++ = digits[--n];
	*p = '\0';
	return p;
}

/* Reads a number in base 8, 10 or 16 after blanks (and 0x); *p moves behind it. */
static inline unsigned long furca_raw_number(const char **p, unsigned base)
{
	unsigned long value = 0;
	const char *s = *p;

	while (*s == ' ' || *s == '\t')
		s++;
	if (base == 16 && s[0] == '0' && s[1] == 'x')
		s += 2;
	for (;; s++) {
		unsigned digit = *s >= '0' && *s <= '9'	  ? (unsigned)(*s - '0')
				 : *s >= 'a' && *s <= 'f' ? (unsigned)(*s - 'a' + 10)
							  : 99;

		if (digit >= base)
			break;
		value = value * base + digit;
	}
	*p = s;
	return value;
}

/* Without libc's strcmp: the first call of a function of a library may look it up, which costs a clone 20 times as much. */
static inline bool furca_raw_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* The text behind the first `key` in the NUL-terminated text, or NULL. */
static inline const char *furca_raw_after(const char *text, const char *key)
{
	for (; *text; text++) {
		const char *k = key, *t = text;

		while (*k && *t == *k)
			t++, k++;
		if (!*k)
			return t;
	}
	return NULL;
}

/* Reads a whole small file into buf and terminates it. The length, or -errno. */
static inline long furca_raw_read_file(const char *path, char *buf, long size)
{
	long fd = furca_raw_open(path, O_RDONLY), n = 0, r;

	if (fd < 0)
		return fd;
	while (n < size - 1 && (r = furca_raw(SYS_read, fd, buf + n, size - 1 - n)) > 0)
		n += r;
	buf[n] = '\0';
	furca_raw_close(fd);
	return n;
}
