/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "langs/bash/json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

#define MAX_DIGITS 4096 /* of an integer beyond 64 bits */

/* Numbers are written with a point whatever LC_NUMERIC the session has. */
static locale_t c_locale(void)
{
	static locale_t locale;

	if (!locale)
		locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	return locale;
}

static void write_text(struct furca_buf *out, struct furca_view text)
{
	(void)furca_buf_append(out, "\"", 1);
	for (const uint8_t *p = text.at; p < text.end; p++) {
		static const char *const named[128] = {['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r",
						       ['\t'] = "\\t", ['\b'] = "\\b",	['\f'] = "\\f"};

		if (*p < 128 && named[*p])
			(void)furca_buf_append_text(out, named[*p]);
		else if (*p < 32 || *p == 127)
			(void)furca_buf_printf(out, "\\u%04x", *p);
		else
			(void)furca_buf_append(out, p, 1);
	}
	(void)furca_buf_append(out, "\"", 1);
}

static void write_float(struct furca_buf *out, double f)
{
	char text[40];

	if (isnan(f)) {
		(void)furca_buf_append_text(out, "NaN");
		return;
	}
	if (isinf(f)) {
		(void)furca_buf_append_text(out, f < 0 ? "-Infinity" : "Infinity");
		return;
	}
	locale_t before = uselocale(c_locale());
	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, f);
		if (strtod(text, NULL) == f)
			break;
	}
	(void)uselocale(before);
	(void)furca_buf_append_text(out, text);
	if (!strpbrk(text, ".e"))
		(void)furca_buf_append_text(out, ".0");
}

/* A two's complement integer of any size, by division of the bytes. */
static void write_integer(struct furca_buf *out, struct furca_view bytes)
{
	size_t n = furca_view_size(bytes), k = 0;
	bool negative = n > 0 && bytes.at[0] & 0x80;
	FURCA_AUTO_FREE uint8_t *left = malloc(n + 1);
	FURCA_AUTO_FREE char *digits = malloc(3 * n + 2);
	unsigned carry = 1;

	if (!left || !digits)
		return;
	for (size_t i = n; i-- > 0;) {
		unsigned b = negative ? (unsigned)(uint8_t)~bytes.at[i] + carry : bytes.at[i];

		left[i] = (uint8_t)b;
		carry = b >> 8;
	}
	for (size_t start = 0; start < n || k == 0;) {
		unsigned rest = 0;

		for (size_t i = start; i < n; i++) {
			unsigned b = rest << 8 | left[i];

			left[i] = (uint8_t)(b / 10);
			rest = b % 10;
		}
		digits[k++] = (char)('0' + rest);
		while (start < n && left[start] == 0)
			start++;
	}
	if (negative)
		digits[k++] = '-';
	while (k > 0)
		(void)furca_buf_append(out, &digits[--k], 1);
}

static void write_ext(struct furca_buf *out, const struct furca_value *value)
{
	if (value->ext == FURCA_EXT_INTEGER) {
		write_integer(out, value->bytes);
	} else if (value->ext == FURCA_EXT_HANDLE) {
		(void)furca_buf_append_text(out, "{\"handle\": ");
		write_text(out, value->bytes);
		(void)furca_buf_append(out, "}", 1);
	} else {
		(void)furca_buf_printf(out, "{\"ext\": %d, \"bytes\": ", value->ext);
		(void)furca_buf_append(out, "\"", 1);
		for (const uint8_t *p = value->bytes.at; p < value->bytes.end; p++)
			(void)furca_buf_printf(out, "%02x", *p);
		(void)furca_buf_append_text(out, "\"}");
	}
}

/* A map's key is text in JSON. */
static void write_key(struct furca_buf *out, const struct furca_value *key)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

	if (key->kind == FURCA_STR || key->kind == FURCA_BIN) {
		write_text(out, key->bytes);
		return;
	}
	furca_json_write(&text, key);
	write_text(out, furca_buf_view(&text));
}

static void write_container(struct furca_buf *out, const struct furca_value *value)
{
	struct furca_view inside = furca_value_inside(value);
	struct furca_value item;
	bool map = value->kind == FURCA_MAP;

	(void)furca_buf_append(out, map ? "{" : "[", 1);
	for (uint32_t i = 0; i < value->count; i++) {
		if (i > 0)
			(void)furca_buf_append(out, ", ", 2);
		if (map) {
			if (furca_value_next(&inside, &item) < 0)
				break;
			write_key(out, &item);
			(void)furca_buf_append(out, ": ", 2);
		}
		if (furca_value_next(&inside, &item) < 0)
			break;
		furca_json_write(out, &item);
	}
	(void)furca_buf_append(out, map ? "}" : "]", 1);
}

void furca_json_write(struct furca_buf *out, const struct furca_value *value)
{
	switch (value->kind) {
	case FURCA_NIL:
		(void)furca_buf_append_text(out, "null");
		break;
	case FURCA_BOOL:
		(void)furca_buf_append_text(out, value->b ? "true" : "false");
		break;
	case FURCA_UINT:
		(void)furca_buf_printf(out, "%llu", (unsigned long long)value->u);
		break;
	case FURCA_INT:
		(void)furca_buf_printf(out, "%lld", (long long)value->i);
		break;
	case FURCA_FLOAT:
		write_float(out, value->f);
		break;
	case FURCA_STR:
	case FURCA_BIN:
		write_text(out, value->bytes);
		break;
	case FURCA_ARRAY:
	case FURCA_MAP:
		write_container(out, value);
		break;
	case FURCA_EXT:
		write_ext(out, value);
		break;
	}
}

/* Reading: recursive, bounded by FURCA_MAX_DEPTH. */
struct reader {
	const char *at;
	unsigned depth;
	struct furca_err *err;
};

static int read_value(struct reader *r, struct furca_buf *out);

static int malformed(struct reader *r, const char *what)
{
	return furca_fail(r->err, FURCA_E_VALIDATION, EINVAL, "%s in the JSON text at '%.20s'", what, r->at);
}

static void skip_space(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
}

static int read_hex4(const char *p, unsigned *ret)
{
	unsigned n = 0;

	for (int i = 0; i < 4; i++) {
		char c = p[i];

		if (c >= '0' && c <= '9')
			n = n << 4 | (unsigned)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			n = n << 4 | (unsigned)((c | 32) - 'a' + 10);
		else
			return -EINVAL;
	}
	*ret = n;
	return 0;
}

static void put_utf8(struct furca_buf *out, unsigned c)
{
	uint8_t b[4];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t head[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = n; i-- > 1; c >>= 6)
		b[i] = (uint8_t)(0x80 | (c & 0x3f));
	b[0] = (uint8_t)(head[n] | c);
	(void)furca_buf_append(out, b, n);
}

/* Behind the backslash. */
static int read_escape(struct reader *r, struct furca_buf *text)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known = *r->at ? strchr(from, *r->at) : NULL;
	unsigned c, low;

	if (known) {
		(void)furca_buf_append(text, &to[known - from], 1);
		r->at++;
		return 0;
	}
	if (*r->at != 'u' || read_hex4(r->at + 1, &c) < 0)
		return malformed(r, "an unknown escape");
	r->at += 5;
	if (c >= 0xd800 && c < 0xdc00) {
		if (r->at[0] != '\\' || r->at[1] != 'u' || read_hex4(r->at + 2, &low) < 0 || low < 0xdc00 ||
		    low > 0xdfff)
			return malformed(r, "half a surrogate pair");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		r->at += 6;
	} else if (c >= 0xdc00 && c < 0xe000) {
		return malformed(r, "half a surrogate pair");
	}
	put_utf8(text, c);
	return 0;
}

static int read_text(struct reader *r, struct furca_buf *out)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	msgpack_packer packer;
	int n;

	for (r->at++; *r->at != '"';) {
		size_t plain = strcspn(r->at, "\"\\");

		(void)furca_buf_append(&text, r->at, plain);
		r->at += plain;
		if (!*r->at)
			return malformed(r, "no end of a string");
		if (*r->at == '\\') {
			r->at++;
			n = read_escape(r, &text);
			if (n < 0)
				return n;
		}
	}
	r->at++;
	if (!furca_view_is_utf8(furca_buf_view(&text)))
		return malformed(r, "a string that is not UTF-8");
	furca_packer(&packer, out);
	msgpack_pack_str_with_body(&packer, text.data ? (const char *)text.data : "", text.len);
	return text.failed;
}

/* An integer beyond 64 bits: decimal digits to two's complement bytes. */
static int pack_big(struct reader *r, struct furca_buf *out, const char *digits, size_t n, bool negative)
{
	uint8_t bytes[MAX_DIGITS / 2 + 1];
	size_t size = 1; /* little endian, with room for the sign */
	msgpack_packer packer;

	if (n > MAX_DIGITS)
		return malformed(r, "an integer of too many digits");
	bytes[0] = 0;
	for (size_t i = 0; i < n; i++) {
		unsigned carry = (unsigned)(digits[i] - '0');

		for (size_t k = 0; k < size; k++) {
			carry += bytes[k] * 10U;
			bytes[k] = (uint8_t)carry;
			carry >>= 8;
		}
		if (carry)
			bytes[size++] = (uint8_t)carry;
	}
	if (bytes[size - 1] & 0x80)
		bytes[size++] = 0;
	for (size_t k = 0, carry = 1; negative && k < size; k++) {
		carry += (uint8_t)~bytes[k];
		bytes[k] = (uint8_t)carry;
		carry >>= 8;
	}
	for (size_t k = 0; k < size / 2; k++) {
		uint8_t b = bytes[k];

		bytes[k] = bytes[size - 1 - k];
		bytes[size - 1 - k] = b;
	}
	furca_packer(&packer, out);
	msgpack_pack_ext_with_body(&packer, bytes, size, FURCA_EXT_INTEGER);
	return 0;
}

static int read_number(struct reader *r, struct furca_buf *out)
{
	const char *start = r->at, *digits = start + (*start == '-');
	size_t n = strspn(digits, "0123456789");
	msgpack_packer packer;
	char *end;

	furca_packer(&packer, out);
	if (n == 0 || (n > 1 && *digits == '0'))
		return malformed(r, "no number");
	r->at = digits + n;
	if (*r->at == '.' || (*r->at | 32) == 'e') {
		double f = strtod_l(start, &end, c_locale());

		if (end[-1] < '0' || end[-1] > '9')
			return malformed(r, "no number");
		r->at = end;
		msgpack_pack_double(&packer, f);
		return 0;
	}
	errno = 0;
	if (*start == '-') {
		long long i = strtoll(start, NULL, 10);

		if (errno == 0)
			msgpack_pack_long_long(&packer, i);
	} else {
		unsigned long long u = strtoull(start, NULL, 10);

		if (errno == 0)
			msgpack_pack_unsigned_long_long(&packer, u);
	}
	return errno == 0 ? 0 : pack_big(r, out, digits, n, *start == '-');
}

/* One item of a container, or a pair with its key. */
static int read_item(struct reader *r, struct furca_buf *out, bool map)
{
	skip_space(r);
	if (map) {
		if (*r->at != '"')
			return malformed(r, "no text as a key");
		int n = read_text(r, out);
		if (n < 0)
			return n;
		skip_space(r);
		if (*r->at++ != ':')
			return malformed(r, "no colon behind a key");
	}
	return read_value(r, out);
}

/* Whether a map's one pair is "handle" and the engine's name for an object: it stands for the object, as it does in what is written. */
static bool names_handle(const struct furca_buf *pair)
{
	static const char head[] = "\xa6handle";
	size_t key = sizeof(head) - 1, n = pair->len - key - 1;

	return pair->len > key + 1 && memcmp(pair->data, head, key) == 0 && (n == 17 || n == 18) &&
	       pair->data[key] == (0xa0 | n) && pair->data[key + 1] == '@';
}

static int read_container(struct reader *r, struct furca_buf *out)
{
	FURCA_AUTO_BUF struct furca_buf inside = FURCA_BUF_INIT;
	bool map = *r->at == '{';
	char close = map ? '}' : ']';
	msgpack_packer packer;
	uint32_t n = 0;

	if (r->depth == FURCA_MAX_DEPTH - 8)
		return malformed(r, "too deep a nesting");
	r->depth++;
	r->at++;
	skip_space(r);
	if (*r->at == close)
		r->at++;
	else
		for (;;) {
			int failed = read_item(r, &inside, map);

			if (failed < 0)
				return failed;
			n++;
			skip_space(r);
			if (*r->at == close) {
				r->at++;
				break;
			}
			if (*r->at != ',')
				return malformed(r, "no comma or end of a list");
			r->at++;
		}
	r->depth--;
	furca_packer(&packer, out);
	if (map && n == 1 && names_handle(&inside)) {
		msgpack_pack_ext_with_body(&packer, inside.data + 8, inside.len - 8, FURCA_EXT_HANDLE);
		return out->failed;
	}
	if (map)
		msgpack_pack_map(&packer, n);
	else
		msgpack_pack_array(&packer, n);
	(void)furca_buf_append(out, inside.data, inside.len);
	return inside.failed;
}

static int read_value(struct reader *r, struct furca_buf *out)
{
	static const struct {
		const char *text, *packed;
	} word[] = {{"null", "\xc0"}, {"false", "\xc2"}, {"true", "\xc3"}};

	skip_space(r);
	if (*r->at == '"')
		return read_text(r, out);
	if (*r->at == '[' || *r->at == '{')
		return read_container(r, out);
	for (size_t i = 0; i < FURCA_COUNT(word); i++)
		if (strncmp(r->at, word[i].text, strlen(word[i].text)) == 0) {
			r->at += strlen(word[i].text);
			return furca_buf_append(out, word[i].packed, 1);
		}
	return read_number(r, out);
}

int furca_json_read(struct furca_buf *out, const char *text, struct furca_err *err)
{
	struct reader reader = {.at = text, .err = err};
	int r = read_value(&reader, out);

	if (r < 0)
		return r;
	skip_space(&reader);
	if (*reader.at)
		return malformed(&reader, "more than one value");
	return out->failed;
}
