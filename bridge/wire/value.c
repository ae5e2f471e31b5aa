#include "bridge/wire/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

/* What a head says: how long it is, what follows. */
struct head {
	enum furca_kind kind;
	size_t size;	/* bytes of the head */
	uint64_t count; /* items of a container, or bytes of content */
	int8_t ext;
	union {
		bool b;
		uint64_t u;
		int64_t i;
		double f;
	};
};

static uint64_t big_endian(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static int head_int(const uint8_t *p, size_t have, size_t n, bool is_signed, struct head *ret)
{
	if (have < 1 + n)
		return -EAGAIN;
	uint64_t v = big_endian(p + 1, n);

	ret->size = 1 + n;
	if (is_signed && n < 8 && v >> (8 * n - 1))
		v |= ~0ULL << (8 * n);
	ret->kind = is_signed && (int64_t)v < 0 ? FURCA_INT : FURCA_UINT;
	ret->u = v;
	return 0;
}

static int head_float(const uint8_t *p, size_t have, size_t n, struct head *ret)
{
	if (have < 1 + n)
		return -EAGAIN;
	uint64_t v = big_endian(p + 1, n);

	ret->kind = FURCA_FLOAT;
	ret->size = 1 + n;
	if (n == 4) {
		uint32_t bits = (uint32_t)v;
		float f;

		memcpy(&f, &bits, sizeof(f));
		ret->f = (double)f;
	} else {
		memcpy(&ret->f, &v, sizeof(v));
	}
	return 0;
}

static int head_sized(const uint8_t *p, size_t have, size_t n, enum furca_kind kind, struct head *ret)
{
	size_t extra = kind == FURCA_EXT ? 1 : 0;

	if (have < 1 + n + extra)
		return -EAGAIN;
	ret->kind = kind;
	ret->count = big_endian(p + 1, n);
	ret->size = 1 + n + extra;
	if (extra)
		ret->ext = (int8_t)p[1 + n];
	return 0;
}

static inline int head_short(uint8_t b, struct head *ret)
{
	if (b < 0x80) {
		ret->kind = FURCA_UINT;
		ret->u = b;
	} else if (b < 0x90) {
		ret->kind = FURCA_MAP;
		ret->count = b & 15;
	} else if (b < 0xa0) {
		ret->kind = FURCA_ARRAY;
		ret->count = b & 15;
	} else if (b < 0xc0) {
		ret->kind = FURCA_STR;
		ret->count = b & 31;
	} else {
		ret->kind = FURCA_INT;
		ret->i = (int8_t)b;
	}
	return 0;
}

static int head_long(struct furca_view view, struct head *ret)
{
	size_t have = furca_view_size(view);
	const uint8_t *p = view.at;

	switch (*p) {
	case 0xc0:
		*ret = (struct head){.kind = FURCA_NIL, .size = 1};
		return 0;
	case 0xc1:
		return -EPROTO;
	case 0xc2:
	case 0xc3:
		*ret = (struct head){.kind = FURCA_BOOL, .size = 1, .b = *p == 0xc3};
		return 0;
	case 0xc4:
	case 0xc5:
	case 0xc6:
		return head_sized(p, have, (size_t)1 << (*p - 0xc4), FURCA_BIN, ret);
	case 0xc7:
	case 0xc8:
	case 0xc9:
		return head_sized(p, have, (size_t)1 << (*p - 0xc7), FURCA_EXT, ret);
	case 0xca:
	case 0xcb:
		return head_float(p, have, *p == 0xca ? 4 : 8, ret);
	case 0xcc:
	case 0xcd:
	case 0xce:
	case 0xcf:
		return head_int(p, have, (size_t)1 << (*p - 0xcc), false, ret);
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		return head_int(p, have, (size_t)1 << (*p - 0xd0), true, ret);
	case 0xd4:
	case 0xd5:
	case 0xd6:
	case 0xd7:
	case 0xd8:
		if (have < 2)
			return -EAGAIN;
		*ret = (struct head){.kind = FURCA_EXT, .size = 2, .count = 1U << (*p - 0xd4), .ext = (int8_t)p[1]};
		return 0;
	case 0xd9:
	case 0xda:
	case 0xdb:
		return head_sized(p, have, (size_t)1 << (*p - 0xd9), FURCA_STR, ret);
	case 0xdc:
	case 0xdd:
		return head_sized(p, have, *p == 0xdc ? 2 : 4, FURCA_ARRAY, ret);
	default:
		return head_sized(p, have, *p == 0xde ? 2 : 4, FURCA_MAP, ret);
	}
}

/* Most heads are one byte and say it all. */
static inline int read_head(struct furca_view view, struct head *ret)
{
	*ret = (struct head){.size = 1};
	if (view.at == view.end)
		return -EAGAIN;
	return *view.at < 0xc0 || *view.at >= 0xe0 ? head_short(*view.at, ret) : head_long(view, ret);
}

void furca_scan_reset(struct furca_scan *scan)
{
	scan->at = scan->items = 0;
	scan->depth = 0;
	scan->open[0] = 1;
}

/* Takes one head at scan->at. 0, or -EAGAIN, -EPROTO, -E2BIG; then nothing was taken. */
static int scan_head(struct furca_scan *scan, struct furca_view view)
{
	struct head h;
	size_t content = 0;
	uint64_t inside = 0;
	int r = read_head(view, &h);

	if (r < 0)
		return r;
	bool container = h.kind == FURCA_ARRAY || h.kind == FURCA_MAP;
	if (container)
		inside = h.kind == FURCA_MAP ? 2 * h.count : h.count;
	else if (h.kind == FURCA_STR || h.kind == FURCA_BIN || h.kind == FURCA_EXT)
		content = (size_t)h.count;
	/* Every item takes a byte at least, so a count is a claim on bytes too. */
	size_t left = scan->max_bytes - scan->at;
	if (h.size > left || content > left - h.size || inside > left - h.size)
		return -E2BIG;
	if (scan->items >= scan->max_items || inside > scan->max_items - scan->items - 1)
		return -E2BIG;
	if (container && scan->depth >= scan->max_depth)
		return -E2BIG;
	if (content > furca_view_size(view) - h.size)
		return -EAGAIN;
	scan->items++;
	scan->at += h.size + content;
	scan->open[scan->depth]--;
	if (container)
		scan->open[++scan->depth] = inside;
	return 0;
}

int64_t furca_scan_step(struct furca_scan *scan, struct furca_view view)
{
	if (scan->max_depth > FURCA_SCAN_DEPTH)
		return -E2BIG;
	for (;;) {
		while (scan->open[scan->depth] == 0) {
			if (scan->depth == 0)
				return (int64_t)scan->at;
			scan->depth--;
		}
		int r = scan_head(scan, (struct furca_view){view.at + scan->at, view.end});

		if (r < 0)
			return r;
	}
}

int64_t furca_value_size(struct furca_view view, unsigned max_depth, size_t max_items)
{
	struct furca_scan scan; /* not zeroed: two kilobytes, on every container of a decoder */

	scan.max_depth = max_depth;
	scan.max_items = max_items;
	scan.max_bytes = SIZE_MAX;
	furca_scan_reset(&scan);
	return furca_scan_step(&scan, view);
}

int furca_value_check(struct furca_view view, unsigned max_depth, size_t max_items)
{
	int64_t n = furca_value_size(view, max_depth, max_items);

	if (n < 0)
		return (int)n;
	return view.at + n == view.end ? 0 : -EPROTO;
}

int furca_value_enter(struct furca_view *view, struct furca_value *ret)
{
	struct head h;

	if (view->at == view->end)
		return -ENODATA;
	int r = read_head(*view, &h);
	if (r < 0)
		return -EPROTO;
	*ret = (struct furca_value){.kind = h.kind, .u = h.u, .ext = h.ext, .raw.at = view->at};
	if (h.kind == FURCA_BOOL)
		ret->b = h.b;
	view->at += h.size;
	ret->bytes.at = view->at;
	if (h.kind == FURCA_ARRAY || h.kind == FURCA_MAP) {
		ret->count = (uint32_t)h.count;
	} else if (h.kind == FURCA_STR || h.kind == FURCA_BIN || h.kind == FURCA_EXT) {
		if (h.count > (uint64_t)(view->end - view->at))
			return -EPROTO;
		view->at += h.count;
	}
	ret->bytes.end = ret->raw.end = view->at;
	return 0;
}

/* Moves past `left` values without looking into them; containers add what they hold. False where bytes are missing or malformed. */
static bool skip(struct furca_view *view, uint64_t left)
{
	struct head h;

	for (; left > 0; left--) {
		size_t content = 0;

		if (read_head(*view, &h) < 0)
			return false;
		if (h.kind == FURCA_ARRAY || h.kind == FURCA_MAP)
			left += h.kind == FURCA_MAP ? 2 * h.count : h.count;
		else
			content = (size_t)h.count;
		if (content > furca_view_size(*view) - h.size)
			return false;
		view->at += h.size + content;
	}
	return true;
}

int furca_value_next(struct furca_view *view, struct furca_value *ret)
{
	int r = furca_value_enter(view, ret);

	if (r < 0 || (ret->kind != FURCA_ARRAY && ret->kind != FURCA_MAP))
		return r;
	if (!skip(view, ret->kind == FURCA_MAP ? 2 * (uint64_t)ret->count : ret->count))
		return -EPROTO;
	ret->bytes.end = ret->raw.end = view->at;
	return 0;
}

int furca_value_of(struct furca_view view, struct furca_value *ret)
{
	return furca_value_next(&view, ret);
}

bool furca_view_is(struct furca_view view, const char *text)
{
	size_t n = strlen(text);

	return furca_view_size(view) == n && memcmp(view.at, text, n) == 0;
}

/* Whether the next value is this text; then the view is past it. */
static inline bool is_key(struct furca_view *view, const char *key, size_t n)
{
	struct furca_value k;
	struct furca_view start = *view;

	if (n < 32 && view->at < view->end && *view->at >= 0xa0 && *view->at < 0xc0) {
		if (*view->at != (0xa0 | n) || furca_view_size(*view) <= n || memcmp(view->at + 1, key, n) != 0)
			return false;
		view->at += 1 + n;
		return true;
	}
	if (furca_value_next(view, &k) == 0 && k.kind == FURCA_STR && furca_view_is(k.bytes, key))
		return true;
	*view = start;
	return false;
}

bool furca_map_get(struct furca_view map, const char *key, struct furca_value *ret)
{
	struct furca_value m, v;
	size_t n = strlen(key);
	bool found = false;

	if (furca_value_enter(&map, &m) < 0 || m.kind != FURCA_MAP)
		return false;
	for (uint32_t i = 0; i < m.count; i++) {
		if (is_key(&map, key, n)) {
			if (furca_value_next(&map, &v) < 0)
				return found;
			*ret = v;
			found = true;
		} else if (!skip(&map, 2)) {
			return found;
		}
	}
	return found;
}

bool furca_map_text(struct furca_view map, const char *key, struct furca_view *ret)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || v.kind != FURCA_STR)
		return false;
	*ret = v.bytes;
	return true;
}

bool furca_map_uint(struct furca_view map, const char *key, uint64_t *ret)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || v.kind != FURCA_UINT)
		return false;
	*ret = v.u;
	return true;
}

bool furca_map_struct(struct furca_view map, const char *key, void *ret, size_t size)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || v.kind != FURCA_BIN || furca_view_size(v.bytes) != size)
		return false;
	memcpy(ret, v.bytes.at, size);
	return true;
}

bool furca_map_int(struct furca_view map, const char *key, int64_t *ret)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || (v.kind != FURCA_INT && (v.kind != FURCA_UINT || v.u > INT64_MAX)))
		return false;
	*ret = v.i;
	return true;
}

bool furca_map_float(struct furca_view map, const char *key, double *ret)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v))
		return false;
	if (v.kind == FURCA_FLOAT)
		*ret = v.f;
	else if (v.kind == FURCA_UINT)
		*ret = (double)v.u;
	else if (v.kind == FURCA_INT)
		*ret = (double)v.i;
	else
		return false;
	return true;
}

bool furca_map_bool(struct furca_view map, const char *key, bool *ret)
{
	struct furca_value v;

	if (!furca_map_get(map, key, &v) || v.kind != FURCA_BOOL)
		return false;
	*ret = v.b;
	return true;
}

char *furca_view_dup(struct furca_view view)
{
	size_t n = furca_view_size(view);
	char *copy = malloc(n + 1);

	if (!copy)
		return NULL;
	if (n > 0)
		memcpy(copy, view.at, n);
	copy[n] = '\0';
	return copy;
}

bool furca_view_is_utf8(struct furca_view view)
{
	for (const uint8_t *p = view.at; p < view.end;) {
		uint8_t b = *p++;
		unsigned more = b < 0x80		? 0
				: b >= 0xc2 && b < 0xe0 ? 1
				: b >= 0xe0 && b < 0xf0 ? 2
				: b >= 0xf0 && b < 0xf5 ? 3
							: 9;

		if (more == 9 || (size_t)(view.end - p) < more)
			return false;
		if (more && ((b == 0xe0 && *p < 0xa0) || (b == 0xed && *p >= 0xa0) || (b == 0xf0 && *p < 0x90) ||
			     (b == 0xf4 && *p >= 0x90)))
			return false;
		for (; more; more--, p++)
			if ((*p & 0xc0) != 0x80)
				return false;
	}
	return true;
}

bool furca_value_has_ext(struct furca_view view, int8_t ext)
{
	struct furca_value v;

	while (furca_value_enter(&view, &v) == 0)
		if (v.kind == FURCA_EXT && v.ext == ext)
			return true;
	return false;
}
