/*
 * A growing byte buffer with an upper bound. A failed append leaves it as it was and makes it `failed`, so that a run of
 * appends is checked once at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct furca_buf {
	uint8_t *data;
	size_t len, cap;
	size_t max; /* bytes at most; 0: FURCA_BUF_MAX */
	int failed; /* 0, -ENOMEM or -E2BIG: the first append that did not fit */
};

#define FURCA_BUF_MAX ((size_t)1 << 31)
#define FURCA_BUF_INIT ((struct furca_buf){0})

void furca_buf_done(struct furca_buf *buf);
struct furca_buf furca_buf_take(struct furca_buf *buf);

#define FURCA_AUTO_BUF FURCA_AUTO(furca_buf_done)

/* Makes room for `n` more bytes. 0, -ENOMEM or -E2BIG; also stored in `failed`. */
int furca_buf_reserve(struct furca_buf *buf, size_t n);

int furca_buf_append(struct furca_buf *buf, const void *data, size_t n);
int furca_buf_append_text(struct furca_buf *buf, const char *text);
int furca_buf_printf(struct furca_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Drops `n` bytes from the front. Keeps the memory. */
void furca_buf_consume(struct furca_buf *buf, size_t n);
void furca_buf_clear(struct furca_buf *buf);

/* The signature that msgpack_packer wants; `data` is a struct furca_buf. 0 or -1. */
int furca_buf_msgpack_write(void *data, const char *bytes, size_t n);
