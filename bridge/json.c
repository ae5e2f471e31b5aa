#include "bridge/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/wire/limits.h"
#include "furca.h"

#include "base/banned.h"

int furca_base64(struct furca_buf *out, const uint8_t *data, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t size = (n + 2) / 3 * 4;

	if (furca_buf_reserve(out, size) < 0)
		return out->failed;
	uint8_t *to = out->data + out->len;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t three = (uint32_t)data[i] << 16 | (i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0) |
				 (i + 2 < n ? data[i + 2] : 0U);

		*to++ = (uint8_t)digits[three >> 18];
		*to++ = (uint8_t)digits[three >> 12 & 63];
		*to++ = (uint8_t)(i + 1 < n ? digits[three >> 6 & 63] : '=');
		*to++ = (uint8_t)(i + 2 < n ? digits[three & 63] : '=');
	}
	out->len += size;
	return 0;
}

/* The bytes of the UTF-8 character at p, or 0 where there is none. */
static size_t character(const uint8_t *p, const uint8_t *end)
{
	for (size_t n = 1; n <= 4 && n <= (size_t)(end - p); n++)
		if (furca_view_is_utf8((struct furca_view){p, p + n}))
			return n;
	return 0;
}

int furca_json_write_text(struct furca_buf *out, const char *text, size_t size)
{
	static const char *const escapes[128] = {
		['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r",
		['\t'] = "\\t", ['\b'] = "\\b",	 ['\f'] = "\\f",
	};
	const uint8_t *p = (const uint8_t *)text, *end = p + size, *plain = p;

	(void)furca_buf_append(out, "\"", 1);
	while (p < end) {
		size_t n = *p < 0x80 ? 1 : character(p, end);

		if (n > 0 && (*p >= 0x80 || (*p >= 0x20 && !escapes[*p] && *p != 0x7f))) {
			p += n;
			continue;
		}
		(void)furca_buf_append(out, plain, (size_t)(p - plain));
		if (n == 0)
			(void)furca_buf_append_text(out, "\xef\xbf\xbd");
		else if (escapes[*p])
			(void)furca_buf_append_text(out, escapes[*p]);
		else
			(void)furca_buf_printf(out, "\\u%04x", *p);
		p++;
		plain = p;
	}
	(void)furca_buf_append(out, plain, (size_t)(p - plain));
	return furca_buf_append(out, "\"", 1);
}

static void write_float(struct furca_buf *out, double f)
{
	char text[40];

	if (!isfinite(f)) {
		(void)furca_buf_append_text(out, "null");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, f);
		if (strtod(text, NULL) == f)
			break;
	}
	(void)furca_buf_append_text(out, text);
	if (!strpbrk(text, ".e"))
		(void)furca_buf_append_text(out, ".0");
}

/* A two's complement integer of any size in decimal, by long division. */
static void write_integer(struct furca_buf *out, struct furca_view bytes)
{
	size_t n = furca_view_size(bytes), at, left;
	bool negative = n > 0 && bytes.at[0] & 0x80;
	FURCA_AUTO_FREE uint8_t *work = malloc(n + 1);
	FURCA_AUTO_FREE char *digits = malloc(n * 3 + 2);

	/* The division is quadratic: past 4 KiB nobody reads the digits. */
	if (!work || !digits || n == 0 || n > 4096) {
		(void)furca_buf_append_text(out, "null");
		return;
	}
	unsigned carry = negative;
	for (size_t i = n; i-- > 0;) {
		unsigned b = (negative ? (uint8_t)~bytes.at[i] : bytes.at[i]) + carry;

		work[i] = (uint8_t)b;
		carry = b >> 8;
	}
	at = n * 3 + 1;
	digits[at] = '\0';
	do {
		unsigned rest = 0;

		left = 0;
		for (size_t i = 0; i < n; i++) {
			unsigned v = rest << 8 | work[i];

			work[i] = (uint8_t)(v / 10);
			rest = v % 10;
			left |= work[i];
		}
		digits[--at] = (char)('0' + rest);
	} while (left && at > 1);
	(void)furca_buf_append_text(out, negative ? "-" : "");
	(void)furca_buf_append_text(out, digits + at);
}

static void write_ext(struct furca_buf *out, const struct furca_value *v)
{
	size_t n = furca_view_size(v->bytes);

	if (v->ext == FURCA_EXT_INTEGER) {
		write_integer(out, v->bytes);
	} else if (v->ext == FURCA_EXT_HANDLE) {
		(void)furca_buf_append_text(out, "{\"handle\":");
		(void)furca_json_write_text(out, (const char *)v->bytes.at, n);
		(void)furca_buf_append(out, "}", 1);
	} else {
		(void)furca_buf_printf(out, "{\"ext\":%d,\"base64\":\"", v->ext);
		(void)furca_base64(out, v->bytes.at, n);
		(void)furca_buf_append_text(out, "\"}");
	}
}

static void new_line(struct furca_buf *out, int level)
{
	if (level >= 0)
		(void)furca_buf_printf(out, "\n%*s", 2 * level, "");
}

static void write_value(struct furca_buf *out, struct furca_view *view, int level);

static void write_key(struct furca_buf *out, struct furca_view *view)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	struct furca_view at = *view;
	struct furca_value key;

	if (furca_value_enter(&at, &key) == 0 && key.kind == FURCA_STR) {
		write_value(out, view, -1);
		return;
	}
	write_value(&text, view, -1);
	(void)furca_json_write_text(out, (const char *)text.data, text.len);
}

/* `level` below 0: all on one line. Depth was checked. */
static void write_container(struct furca_buf *out, struct furca_view *view, const struct furca_value *v, int level)
{
	bool map = v->kind == FURCA_MAP;
	int inside = level < 0 ? -1 : level + 1;

	(void)furca_buf_append(out, map ? "{" : "[", 1);
	for (uint32_t i = 0; i < v->count; i++) {
		if (i > 0)
			(void)furca_buf_append(out, ",", 1);
		new_line(out, inside);
		if (map) {
			write_key(out, view);
			(void)furca_buf_append(out, ": ", level < 0 ? 1 : 2);
		}
		write_value(out, view, inside);
	}
	if (v->count > 0)
		new_line(out, level);
	(void)furca_buf_append(out, map ? "}" : "]", 1);
}

static void write_value(struct furca_buf *out, struct furca_view *view, int level)
{
	struct furca_value v;

	if (furca_value_enter(view, &v) < 0)
		return;
	switch (v.kind) {
	case FURCA_NIL:
		(void)furca_buf_append_text(out, "null");
		break;
	case FURCA_BOOL:
		(void)furca_buf_append_text(out, v.b ? "true" : "false");
		break;
	case FURCA_UINT:
		(void)furca_buf_printf(out, "%" PRIu64, v.u);
		break;
	case FURCA_INT:
		(void)furca_buf_printf(out, "%" PRId64, v.i);
		break;
	case FURCA_FLOAT:
		write_float(out, v.f);
		break;
	case FURCA_STR:
		(void)furca_json_write_text(out, (const char *)v.bytes.at, furca_view_size(v.bytes));
		break;
	case FURCA_BIN:
		(void)furca_buf_append(out, "\"", 1);
		(void)furca_base64(out, v.bytes.at, furca_view_size(v.bytes));
		(void)furca_buf_append(out, "\"", 1);
		break;
	case FURCA_ARRAY:
	case FURCA_MAP:
		write_container(out, view, &v, level);
		break;
	case FURCA_EXT:
		write_ext(out, &v);
		break;
	}
}

static int write_checked(struct furca_buf *out, struct furca_view view, int level)
{
	if (furca_value_check(view, FURCA_MAX_DEPTH, SIZE_MAX) < 0)
		return -EPROTO;
	write_value(out, &view, level);
	return out->failed;
}

int furca_json_write(struct furca_buf *out, struct furca_view view)
{
	return write_checked(out, view, -1);
}

int furca_json_write_pretty(struct furca_buf *out, struct furca_view view)
{
	return write_checked(out, view, 0);
}

char *furca_json(const void *packed, size_t size)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_view view = {packed, (const uint8_t *)packed + size};

	if (furca_json_write(&out, view) < 0 || furca_buf_append(&out, "", 1) < 0)
		return NULL;
	return (char *)furca_buf_take(&out).data;
}
