/* bridge/wire/value: every kind at its borders, bounds, bytes cut short, and seeded random bytes. */
#include <errno.h>
#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

#include "tests/unit/harness.h"
#include "tests/unit/random.h"

static struct furca_view view_bytes(const void *bytes, size_t n)
{
	return (struct furca_view){bytes, (const uint8_t *)bytes + n};
}

#define VIEW(literal) view_bytes(literal, sizeof(literal) - 1)

static struct furca_value one(struct furca_view view)
{
	struct furca_value value;

	ck_assert_int_eq(furca_value_check(view, 8, 1000), 0);
	ck_assert_int_eq(furca_value_of(view, &value), 0);
	ck_assert_ptr_eq(value.raw.end, view.end);
	return value;
}

START_TEST(unsigned_integers_at_their_borders)
{
	static const uint64_t border[] = {0,	 127,	      128,	   255,	      256,	 65535,
					  65536, 4294967295U, 4294967296U, INT64_MAX, UINT64_MAX};
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer packer;

	msgpack_packer_init(&packer, &buf, furca_buf_msgpack_write);
	msgpack_pack_uint64(&packer, border[_i]);
	struct furca_value value = one(furca_buf_view(&buf));
	ck_assert_int_eq(value.kind, FURCA_UINT);
	ck_assert(value.u == border[_i]);
}
END_TEST

START_TEST(negative_integers_at_their_borders)
{
	static const int64_t border[] = {-1,	 -32,	 -33,		-128,	       -129,
					 -32768, -32769, -2147483648LL, -2147483649LL, INT64_MIN};
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer packer;

	msgpack_packer_init(&packer, &buf, furca_buf_msgpack_write);
	msgpack_pack_int64(&packer, border[_i]);
	struct furca_value value = one(furca_buf_view(&buf));
	ck_assert_int_eq(value.kind, FURCA_INT);
	ck_assert(value.i == border[_i]);
}
END_TEST

START_TEST(a_positive_number_packed_as_signed_is_unsigned)
{
	struct furca_value value = one(VIEW("\xd1\x01\x00"));

	ck_assert_int_eq(value.kind, FURCA_UINT);
	ck_assert_uint_eq(value.u, 256);
}
END_TEST

START_TEST(floats_and_the_rest)
{
	ck_assert_int_eq(one(VIEW("\xc0")).kind, FURCA_NIL);
	ck_assert(one(VIEW("\xc3")).b);
	ck_assert(!one(VIEW("\xc2")).b);
	ck_assert_double_eq(one(VIEW("\xca\x3f\x80\x00\x00")).f, 1.0);
	ck_assert(isnan(one(VIEW("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00")).f));
	struct furca_value ext = one(VIEW("\xc7\x03\xff"
					  "abc"));
	ck_assert_int_eq(ext.kind, FURCA_EXT);
	ck_assert_int_eq(ext.ext, -1);
	ck_assert(furca_view_is(ext.bytes, "abc"));
	ck_assert_int_eq(one(VIEW("\xd4\x01\x7f")).ext, 1);
}
END_TEST

START_TEST(lengths_of_text_at_their_borders)
{
	static const size_t border[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	FURCA_AUTO_FREE char *text = calloc(1, border[_i] + 1);
	msgpack_packer packer;

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', border[_i]);
	msgpack_packer_init(&packer, &buf, furca_buf_msgpack_write);
	msgpack_pack_str_with_body(&packer, text, border[_i]);
	struct furca_value value = one(furca_buf_view(&buf));
	ck_assert_int_eq(value.kind, FURCA_STR);
	ck_assert(furca_view_is(value.bytes, text));
	for (size_t cut = 0; cut < FURCA_MIN(buf.len, (size_t)300); cut++)
		ck_assert_int_eq(furca_value_check(view_bytes(buf.data, cut), 8, 1000), -EAGAIN);
}
END_TEST

START_TEST(malformed_is_told_from_incomplete)
{
	ck_assert_int_eq(furca_value_check(VIEW("\xc1"), 8, 8), -EPROTO);
	ck_assert_int_eq(furca_value_check(VIEW("\x01\x02"), 8, 8), -EPROTO);
	ck_assert_int_eq(furca_value_check(VIEW("\x92\x01"), 8, 8), -EAGAIN);
	ck_assert_int_eq(furca_value_check(VIEW("\x92\x01\xc1"), 8, 8), -EPROTO);
	ck_assert_int_eq(furca_value_check(view_bytes("", 0), 8, 8), -EAGAIN);
}
END_TEST

START_TEST(depth_is_bounded)
{
	uint8_t deep[300];

	memset(deep, 0x91, sizeof(deep));
	deep[128] = 0xc0;
	ck_assert_int_eq(furca_value_check(view_bytes(deep, 129), 128, 1000), 0);
	ck_assert_int_eq(furca_value_check(view_bytes(deep, 129), 127, 1000), -E2BIG);
	deep[128] = 0x91;
	ck_assert_int_eq(furca_value_check(view_bytes(deep, sizeof(deep)), 128, 1000), -E2BIG);
	ck_assert_int_eq(furca_value_check(view_bytes(deep, sizeof(deep)), 100000, 1000), -E2BIG);
}
END_TEST

START_TEST(counts_are_bounded_before_the_items_are_there)
{
	ck_assert_int_eq(furca_value_check(VIEW("\xdd\xff\xff\xff\xff"), 8, 1000), -E2BIG);
	ck_assert_int_eq(furca_value_check(VIEW("\xdf\xff\xff\xff\xff"), 8, 1000), -E2BIG);
	ck_assert_int_eq(furca_value_check(VIEW("\x93\x01\x02\x03"), 8, 4), 0);
	ck_assert_int_eq(furca_value_check(VIEW("\x93\x01\x02\x03"), 8, 3), -E2BIG);
	ck_assert_int_eq(furca_value_check(VIEW("\xdb\xff\xff\xff\xff"), 8, 1000), -EAGAIN);
}
END_TEST

START_TEST(maps_are_looked_up_by_type)
{
	struct furca_view map = VIEW("\x85\xa1"
				     "a\x01\xa1"
				     "b\xa2hi\xa1"
				     "c\xc0\xa1"
				     "d\xcb\x40\x04\x00\x00\x00\x00\x00\x00\xa1"
				     "a\x07");
	struct furca_view text;
	uint64_t u = 0;
	int64_t i = 0;
	double f = 0;
	bool b;

	ck_assert_int_eq(furca_value_check(map, 8, 1000), 0);
	ck_assert(furca_map_uint(map, "a", &u) && u == 7);
	ck_assert(furca_map_int(map, "a", &i) && i == 7);
	ck_assert(furca_map_text(map, "b", &text) && furca_view_is(text, "hi"));
	ck_assert(furca_map_float(map, "d", &f) && f == 2.5);
	ck_assert(!furca_map_text(map, "c", &text));
	ck_assert(!furca_map_uint(map, "b", &u));
	ck_assert(!furca_map_bool(map, "a", &b));
	ck_assert(!furca_map_uint(map, "nothing", &u));
	ck_assert(!furca_map_uint(VIEW("\x01"), "a", &u));
}
END_TEST

START_TEST(maps_are_looked_up_past_every_kind)
{
	static const char long_key[] = "a key of more than thirty-one bytes";
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_view map, text;
	msgpack_packer pk;
	uint64_t u = 0;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	/* 127: nil, -32: true, false: "x" as str 8, 2.5: [1, "k", 2] */
	(void)furca_buf_append(&buf, "\x8b\x7f\xc0\xe0\xc3\xc2\xd9\x01x\xca\x40\x20\x00\x00\x93\x01\xa1k\x02", 19);
	/* "k1": "k", "k": {"k": 7}, "k": 42 */
	(void)furca_buf_append(&buf, "\xa2k1\xa1k\xa1k\x81\xa1k\x07\xa1k\x2a", 14);
	/* "k2" as str 8: 256, "": "empty" */
	(void)furca_buf_append(&buf,
			       "\xd9\x02k2\xcd\x01\x00\xa0\xa5"
			       "empty",
			       14);
	msgpack_pack_str_with_body(&pk, long_key, sizeof(long_key) - 1);
	msgpack_pack_uint8(&pk, 5);
	(void)furca_buf_append(&buf, "\xa4last\xd4\x01\x00", 8);
	map = furca_buf_view(&buf);
	ck_assert_int_eq(furca_value_check(map, 8, 1000), 0);
	ck_assert(furca_map_uint(map, "k", &u) && u == 42); /* the last of that name */
	ck_assert(furca_map_text(map, "k1", &text) && furca_view_is(text, "k"));
	ck_assert(furca_map_uint(map, "k2", &u) && u == 256);
	ck_assert(furca_map_text(map, "", &text) && furca_view_is(text, "empty"));
	ck_assert(furca_map_uint(map, long_key, &u) && u == 5);
	ck_assert(!furca_map_uint(map, "x", &u));
	ck_assert(!furca_map_uint(map, "las", &u));
	for (size_t cut = 0; cut < buf.len; cut++) {
		uint8_t *exact = malloc(cut + 1); /* so that a reader that goes too far is caught */
		struct furca_value v;

		memcpy(exact, buf.data, cut);
		exact = realloc(exact, cut ? cut : 1);
		(void)furca_map_get((struct furca_view){exact, exact + cut}, "last", &v);
		(void)furca_map_get((struct furca_view){exact, exact + cut}, long_key, &v);
		free(exact);
	}
}
END_TEST

START_TEST(containers_are_walked)
{
	struct furca_view at = VIEW("\x93\x01\x92\x02\x03\xa1z");
	struct furca_value list, item;

	ck_assert_int_eq(furca_value_next(&at, &list), 0);
	ck_assert_int_eq(furca_value_next(&at, &item), -ENODATA);
	at = furca_value_inside(&list);
	ck_assert_int_eq(furca_value_next(&at, &item), 0);
	ck_assert_int_eq(furca_value_next(&at, &item), 0);
	ck_assert_int_eq(item.kind, FURCA_ARRAY);
	ck_assert_uint_eq(furca_view_size(item.raw), 3);
	ck_assert_int_eq(furca_value_next(&at, &item), 0);
	ck_assert(furca_view_is(item.bytes, "z"));
	ck_assert_int_eq(furca_value_next(&at, &item), -ENODATA);
}
END_TEST

START_TEST(utf8_is_strict)
{
	ck_assert(furca_view_is_utf8(VIEW("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x8d\xb4")));
	ck_assert(!furca_view_is_utf8(VIEW("\xc0\x80")));
	ck_assert(!furca_view_is_utf8(VIEW("\xed\xa0\x80")));
	ck_assert(!furca_view_is_utf8(VIEW("\xf4\x90\x80\x80")));
	ck_assert(!furca_view_is_utf8(VIEW("\xe2\x82")));
	ck_assert(!furca_view_is_utf8(VIEW("\xff")));
	ck_assert(furca_view_is_utf8(VIEW("")));
}
END_TEST

/* Walks a whole value by both ways; what was checked must be walkable to its end. */
static size_t walk(struct furca_view view)
{
	struct furca_value value;
	size_t items = 0;

	while (furca_value_enter(&view, &value) == 0)
		items++;
	ck_assert_ptr_eq(view.at, view.end);
	return items;
}

START_TEST(random_bytes_never_read_beyond_the_end)
{
	uint64_t state = furca_test_seed();

	for (int round = 0; round < 20000; round++) {
		size_t n = furca_test_random(&state) % 64;
		/* Of its exact size, so that a sanitizer or valgrind sees one byte too many. */
		FURCA_AUTO_FREE uint8_t *bytes = malloc(n ? n : 1);

		ck_assert_ptr_nonnull(bytes);
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)furca_test_random(&state);
		struct furca_view view = {bytes, bytes + n};
		int64_t size = furca_value_size(view, 16, 256);
		ck_assert(size == -EAGAIN || size == -EPROTO || size == -E2BIG || (size > 0 && (size_t)size <= n));
		if (size > 0)
			ck_assert_uint_ge(walk((struct furca_view){bytes, bytes + size}), 1);
		if (size == (int64_t)n)
			ck_assert_int_eq(furca_value_check(view, 16, 256), 0);
	}
}
END_TEST

static void pack_random(msgpack_packer *packer, uint64_t *state, int depth)
{
	uint64_t n = furca_test_random(state) % 5;

	switch (furca_test_random(state) % (depth > 0 ? 8 : 6)) {
	case 0:
		msgpack_pack_nil(packer);
		break;
	case 1:
		msgpack_pack_int64(packer, (int64_t)furca_test_random(state));
		break;
	case 2:
		msgpack_pack_double(packer, (double)furca_test_random(state));
		break;
	case 3:
		msgpack_pack_str_with_body(packer, "abcd", n);
		break;
	case 4:
		msgpack_pack_bin_with_body(packer, "\0\xff\x80\x7f", n);
		break;
	case 5:
		msgpack_pack_ext_with_body(packer, "ext!", n, (int8_t)n);
		break;
	case 6:
		msgpack_pack_array(packer, n);
		for (uint64_t i = 0; i < n; i++)
			pack_random(packer, state, depth - 1);
		break;
	default:
		msgpack_pack_map(packer, n);
		for (uint64_t i = 0; i < 2 * n; i++)
			pack_random(packer, state, depth - 1);
		break;
	}
}

START_TEST(what_is_packed_is_well_formed_and_cut_or_spoilt_is_noticed)
{
	uint64_t state = furca_test_seed();

	for (int round = 0; round < 2000; round++) {
		FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
		msgpack_packer packer;

		msgpack_packer_init(&packer, &buf, furca_buf_msgpack_write);
		pack_random(&packer, &state, 5);
		ck_assert_int_eq(furca_value_check(furca_buf_view(&buf), 16, 100000), 0);
		ck_assert_int_eq(furca_value_check(view_bytes(buf.data, buf.len - 1), 16, 100000), -EAGAIN);
		/* One byte changed may still be well formed; it must not read beyond the end. */
		buf.data[furca_test_random(&state) % buf.len] ^= (uint8_t)(1U << furca_test_random(&state) % 8);
		(void)furca_value_check(furca_buf_view(&buf), 16, 100000);
	}
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_loop_test(tests, unsigned_integers_at_their_borders, 0, 11);
	tcase_add_loop_test(tests, negative_integers_at_their_borders, 0, 10);
	tcase_add_test(tests, a_positive_number_packed_as_signed_is_unsigned);
	tcase_add_test(tests, floats_and_the_rest);
	tcase_add_loop_test(tests, lengths_of_text_at_their_borders, 0, 8);
	tcase_add_test(tests, malformed_is_told_from_incomplete);
	tcase_add_test(tests, depth_is_bounded);
	tcase_add_test(tests, counts_are_bounded_before_the_items_are_there);
	tcase_add_test(tests, maps_are_looked_up_by_type);
	tcase_add_test(tests, maps_are_looked_up_past_every_kind);
	tcase_add_test(tests, containers_are_walked);
	tcase_add_test(tests, utf8_is_strict);
	tcase_add_test(tests, random_bytes_never_read_beyond_the_end);
	tcase_add_test(tests, what_is_packed_is_well_formed_and_cut_or_spoilt_is_noticed);
}

int main(void)
{
	return furca_test_main("value", add);
}
