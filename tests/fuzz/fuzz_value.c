/*
 * Bytes as msgpack: the check of a whole value, the scan of the same bytes cut into pieces (the first byte says how) and the walks must agree, and
 * stay inside.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"

#define DEPTH 64
#define ITEMS 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each value and what is inside, by next and by enter: both must end where the value ends. */
static void walk(struct furca_view view)
{
	struct furca_view by_next = view, by_enter = view;
	struct furca_value v;
	size_t items = 0;

	while (furca_value_next(&by_next, &v) == 0) {
		assert(v.raw.at >= view.at && v.raw.end <= view.end && v.raw.end == by_next.at);
		assert(v.bytes.at <= v.bytes.end || !v.bytes.at);
		if (v.kind == FURCA_STR)
			(void)furca_view_is_utf8(v.bytes);
		if (v.kind == FURCA_MAP) {
			(void)furca_map_text(v.raw, "name", &(struct furca_view){0});
			(void)furca_map_uint(v.raw, "call", &(uint64_t){0});
		}
	}
	while (furca_value_enter(&by_enter, &v) == 0)
		assert(++items <= ITEMS);
	assert(by_next.at == view.end && by_enter.at == view.end);
	(void)furca_value_has_ext(view, 3);
}

static int64_t in_pieces(const uint8_t *data, size_t size, size_t piece)
{
	struct furca_scan scan = {.max_depth = DEPTH, .max_items = ITEMS, .max_bytes = (size_t)1 << 40};
	int64_t r = -EAGAIN;

	furca_scan_reset(&scan);
	for (size_t n = 0; r == -EAGAIN && n < size;) {
		n = n + piece < size ? n + piece : size;
		r = furca_scan_step(&scan, (struct furca_view){data, data + n});
	}
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct furca_frame_view frame;
	size_t need = 0;

	if (size < 2)
		return 0;
	size_t piece = (size_t)data[0] + 1;
	data++;
	size--;
	int64_t whole = furca_value_size((struct furca_view){data, data + size}, DEPTH, ITEMS);
	assert(whole == in_pieces(data, size, piece));
	assert(whole <= (int64_t)size);
	if (whole > 0) {
		assert(furca_value_check((struct furca_view){data, data + whole}, DEPTH, ITEMS) == 0);
		walk((struct furca_view){data, data + whole});
	}
	if (furca_frame_parse(data, size, 1U << 20, &frame, &need, NULL) == 1) {
		assert(frame.size <= size);
		walk(frame.body);
	}
	return 0;
}
