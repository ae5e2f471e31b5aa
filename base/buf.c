#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

void furca_buf_done(struct furca_buf *buf)
{
	furca_auto_free(&buf->data);
	*buf = (struct furca_buf){.max = buf->max};
}

struct furca_buf furca_buf_take(struct furca_buf *buf)
{
	struct furca_buf taken = *buf;

	*buf = (struct furca_buf){.max = buf->max};
	return taken;
}

int furca_buf_reserve(struct furca_buf *buf, size_t n)
{
	size_t max = buf->max ? buf->max : FURCA_BUF_MAX;

	if (buf->failed)
		return buf->failed;
	if (n > max || buf->len > max - n)
		return buf->failed = -E2BIG;
	if (buf->len + n <= buf->cap)
		return 0;
	size_t cap = buf->cap ? buf->cap : 256;
	while (cap < buf->len + n)
		cap *= 2;
	uint8_t *data = realloc(buf->data, FURCA_MIN(cap, FURCA_MAX(max, buf->len + n)));
	if (!data)
		return buf->failed = -ENOMEM;
	buf->data = data;
	buf->cap = FURCA_MIN(cap, FURCA_MAX(max, buf->len + n));
	return 0;
}

int furca_buf_append(struct furca_buf *buf, const void *data, size_t n)
{
	int r = buf->failed || n > buf->cap - buf->len ? furca_buf_reserve(buf, n)
						       : 0; /* packers append a few bytes at a time */

	if (r < 0)
		return r;
	if (n > 0)
		memcpy(buf->data + buf->len, data, n);
	buf->len += n;
	return 0;
}

int furca_buf_append_text(struct furca_buf *buf, const char *text)
{
	return furca_buf_append(buf, text, strlen(text));
}

int furca_buf_printf(struct furca_buf *buf, const char *format, ...)
{
	va_list args, again;

	va_start(args, format);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, format, args);
	int r = n < 0 ? -EINVAL : furca_buf_reserve(buf, (size_t)n + 1);
	if (r == 0) {
		(void)vsnprintf((char *)buf->data + buf->len, (size_t)n + 1, format, again);
		buf->len += (size_t)n;
	}
	va_end(again);
	va_end(args);
	return r;
}

void furca_buf_consume(struct furca_buf *buf, size_t n)
{
	if (n >= buf->len) {
		buf->len = 0;
		return;
	}
	memmove(buf->data, buf->data + n, buf->len - n);
	buf->len -= n;
}

void furca_buf_clear(struct furca_buf *buf)
{
	buf->len = 0;
	buf->failed = 0;
}

int furca_buf_msgpack_write(void *data, const char *bytes, size_t n)
{
	return furca_buf_append(data, bytes, n) < 0 ? -1 : 0;
}
