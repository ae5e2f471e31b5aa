/*
 * Reading msgpack in place: a cursor over bytes that are not ours, bounded before anything is allocated.
 *
 * msgpack-c packs; it does not read here, because its unpacker allocates as it goes and stops at 32 levels of nesting
 * (MSGPACK_EMBED_STACK_SIZE), while values of sessions pass through the engine unread, as slices. No recursion.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

/* The ext types of values. */
#define FURCA_EXT_INTEGER 1    /* beyond 64 bits: two's complement, big endian */
#define FURCA_EXT_HANDLE 2     /* an object that stays where it is: text */
#define FURCA_EXT_FRAME 3      /* an array or frame, whose memory comes beside the message */
#define FURCA_EXT_DESCRIPTOR 4 /* in a request: stands for the descriptor beside the message */

struct furca_view {
	const uint8_t *at, *end; /* [at, end) */
};

/* What is in a buffer, until that changes. */
static inline struct furca_view furca_buf_view(const struct furca_buf *buf)
{
	return (struct furca_view){buf->data, buf->data + buf->len};
}

static inline struct furca_view furca_text_view(const char *text)
{
	return (struct furca_view){(const uint8_t *)text, (const uint8_t *)text + strlen(text)};
}

enum furca_kind {
	FURCA_NIL,
	FURCA_BOOL,
	FURCA_UINT,  /* `u`: 0 … 2^64-1, however it was packed */
	FURCA_INT,   /* `i`: below 0 only */
	FURCA_FLOAT, /* `f` */
	FURCA_STR,   /* `bytes`: not checked to be UTF-8 */
	FURCA_BIN,
	FURCA_ARRAY, /* `count` items; see furca_value_inside */
	FURCA_MAP,   /* `count` pairs */
	FURCA_EXT,   /* `bytes`, and `ext` its type */
};

struct furca_value {
	enum furca_kind kind;
	union {
		bool b;
		uint64_t u;
		int64_t i;
		double f;
	};
	int8_t ext;
	uint32_t count;		 /* of array and map */
	struct furca_view bytes; /* of str, bin, ext: the content; of array and map: from the first item to `raw.end` */
	struct furca_view raw;	 /* the whole value with its head, to be passed on as it is */
};

/*
 * Whether `view` is exactly one value, whole, nested at most `max_depth` and with at most `max_items` values in all.
 * 0, -EAGAIN where bytes are missing, -EPROTO where it is malformed or goes on behind, -E2BIG where over a bound.
 */
int furca_value_check(struct furca_view view, unsigned max_depth, size_t max_items);

/*
 * The same for a stream, where a value comes in pieces: what was seen is not looked at again, so that the work is
 * proportional to the bytes however they were cut. Bounds are checked on heads alone, before the bytes they announce.
 */
#define FURCA_SCAN_DEPTH 254

struct furca_scan {
	unsigned max_depth; /* at most FURCA_SCAN_DEPTH */
	size_t max_items, max_bytes;
	size_t at, items; /* bytes and values seen of the value under way */
	unsigned depth;
	uint64_t open[FURCA_SCAN_DEPTH + 2]; /* values still due at each level */
};

/* Forgets the value under way; keeps the bounds. Call before the first step too. */
void furca_scan_reset(struct furca_scan *scan);

/*
 * `view` begins where the value begins and holds all of it that has come. Its size in bytes once it is whole, or -EAGAIN,
 * -EPROTO, -E2BIG.
 */
int64_t furca_scan_step(struct furca_scan *scan, struct furca_view view);

/*
 * The size of the first value in `view`, under the same bounds: its bytes, or -EAGAIN, -EPROTO, -E2BIG. For streams.
 * Work is proportional to the bytes in `view`.
 */
int64_t furca_value_size(struct furca_view view, unsigned max_depth, size_t max_items);

/*
 * Takes the next value and moves `view` behind it (behind all of it, for containers). Only on bytes that were checked.
 * 0, or -ENODATA at the end, or -EPROTO.
 */
int furca_value_next(struct furca_view *view, struct furca_value *ret);

/* As furca_value_next, but moves only behind the head, so that a container's items come next. Cheap; for decoders. */
int furca_value_enter(struct furca_view *view, struct furca_value *ret);

/* The items of an array (each one value) or map (key, value, key, …). */
static inline struct furca_view furca_value_inside(const struct furca_value *container)
{
	return container->bytes;
}

/* Whether a value of that ext type stands anywhere in checked bytes. */
bool furca_value_has_ext(struct furca_view view, int8_t ext);

/* Reads the one value that `view` holds. 0 or -errno, as furca_value_next. */
int furca_value_of(struct furca_view view, struct furca_value *ret);

/*
 * Looks up a text key in a map (a view of the whole map value, as `raw`). True and *ret where it is there; the last one
 * wins where a key stands twice. A view that is no map has no keys.
 */
bool furca_map_get(struct furca_view map, const char *key, struct furca_value *ret);

/* The same with a type: false where it is missing, nil, or of another kind. Text is not NUL-terminated. */
bool furca_map_text(struct furca_view map, const char *key, struct furca_view *ret);
bool furca_map_uint(struct furca_view map, const char *key, uint64_t *ret);
bool furca_map_int(struct furca_view map, const char *key, int64_t *ret);
bool furca_map_float(struct furca_view map, const char *key, double *ret); /* also from integers */
bool furca_map_bool(struct furca_view map, const char *key, bool *ret);
/* A bin of exactly `size` bytes, as a struct that goes between processes of one machine; nothing is written where it is another. */
bool furca_map_struct(struct furca_view map, const char *key, void *ret, size_t size);

/* Whether the bytes are the text. */
bool furca_view_is(struct furca_view view, const char *text);

static inline size_t furca_view_size(struct furca_view view)
{
	return (size_t)(view.end - view.at);
}

/* A malloc'ed, NUL-terminated copy; NULL where memory is out. */
char *furca_view_dup(struct furca_view view);

/* Whether the bytes are UTF-8 (no surrogates, no overlong forms). */
bool furca_view_is_utf8(struct furca_view view);
