#include "engine/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/banned.h"

#define LEAST 16 /* bytes kept, where fewer are to be shown */

void furca_output_init(struct furca_output *o, size_t max, const char *dir, uint64_t max_spill)
{
	memset(o, 0, sizeof(*o));
	o->max = FURCA_MAX(max, (size_t)LEAST);
	o->shown = max;
	o->dir = dir;
	o->max_spill = max_spill;
	o->spill = FURCA_FD_NONE;
}

void furca_output_done(struct furca_output *o)
{
	furca_buf_done(&o->head);
	free(o->tail);
	o->tail = NULL;
	if (o->map)
		(void)munmap(o->map, o->spilled);
	o->map = NULL;
	if (o->max)
		furca_fd_done(&o->spill);
}

static void spill(struct furca_output *o, const uint8_t *data, size_t n)
{
	if (o->spill_failed || o->spilled >= o->max_spill)
		return;
	n = FURCA_MIN(n, o->max_spill - o->spilled);
	while (n > 0) {
		ssize_t w = pwrite(o->spill.n, data, n, (off_t)o->spilled);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			o->spill_failed = true; /* the disk is full: what is there stays readable */
			return;
		}
		o->spilled += (uint64_t)w;
		data += w;
		n -= (size_t)w;
	}
}

static void tail_add(struct furca_output *o, const uint8_t *data, size_t n)
{
	if (n > o->tail_size) {
		data += n - o->tail_size;
		n = o->tail_size;
	}
	while (n > 0) {
		size_t part = FURCA_MIN(n, o->tail_size - o->tail_at);

		memcpy(o->tail + o->tail_at, data, part);
		o->tail_at = (o->tail_at + part) % o->tail_size;
		data += part;
		n -= part;
	}
}

/* More than `max` has come: from now on a head that stays, a ring for the tail, and a file for everything. */
static void overflow(struct furca_output *o)
{
	size_t keep = o->max - o->max / 2;

	o->tail_size = o->max / 2;
	o->tail = malloc(o->tail_size);
	if (!o->tail) {
		o->tail_size = 0;
		o->spill_failed = true;
		return;
	}
	if (o->dir)
		o->spill = furca_fd_own(open(o->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	if (o->spill.n < 0)
		o->spill_failed = true;
	spill(o, o->head.data, o->head.len);
	if (o->head.len <= keep)
		return;
	if (o->spilled < o->head.len)
		tail_add(o, o->head.data + keep, o->head.len - keep);
	o->head.len = keep;
}

/* Bytes of the file; what cannot be had is zeros. */
static void read_file(const struct furca_output *o, uint64_t offset, uint8_t *to, size_t n)
{
	if (o->map) {
		memcpy(to, o->map + offset, n);
		return;
	}
	while (n > 0) {
		ssize_t got = pread(o->spill.n, to, n, (off_t)offset);

		if (got <= 0) {
			memset(to, 0, n);
			return;
		}
		to += got;
		offset += (uint64_t)got;
		n -= (size_t)got;
	}
}

/* The file takes no more: its last bytes become the ring's first. */
static void tail_load(struct furca_output *o)
{
	size_t n = (size_t)FURCA_MIN(o->tail_size, o->spilled - FURCA_MIN(o->spilled, o->head.len));
	FURCA_AUTO_FREE uint8_t *bytes = malloc(n + 1);

	if (!bytes)
		return;
	read_file(o, o->spilled - n, bytes, n);
	tail_add(o, bytes, n);
}

void furca_output_add(struct furca_output *o, const uint8_t *data, size_t n)
{
	size_t room = o->max - FURCA_MIN(o->max, o->head.len);

	o->total += n;
	if (!o->tail) {
		size_t part = FURCA_MIN(n, room);

		(void)furca_buf_append(&o->head, data, part);
		data += part;
		n -= part;
		if (n == 0)
			return;
		overflow(o);
	}
	uint64_t before = o->total - n;
	bool whole = o->spilled == before;

	spill(o, data, n);
	if (o->spilled == o->total)
		return; /* the file has it all, so the tail is read from there when it is asked for */
	if (!o->tail_size)
		return;
	if (!whole) {
		tail_add(o, data, n);
		return;
	}
	tail_load(o);
	tail_add(o, data + (o->spilled - before), n - (size_t)(o->spilled - before));
}

/* Length of the character that begins at `p`, or minus the number of bytes that are none (the longest bad part). */
static int utf8_at(const uint8_t *p, size_t n, bool *ret_cut)
{
	uint8_t lead = p[0], low = 0x80, high = 0xbf;
	int need;

	*ret_cut = false;
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		need = 1;
	else if (lead >= 0xe0 && lead <= 0xef)
		need = 2;
	else if (lead >= 0xf0 && lead <= 0xf4)
		need = 3;
	else
		return -1;
	if (lead == 0xe0)
		low = 0xa0;
	else if (lead == 0xed)
		high = 0x9f;
	else if (lead == 0xf0)
		low = 0x90;
	else if (lead == 0xf4)
		high = 0x8f;
	for (int i = 1; i <= need; i++) {
		if ((size_t)i >= n) {
			*ret_cut = true;
			return -i;
		}
		if (p[i] < low || p[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return need + 1;
}

void furca_utf8_lossy(struct furca_buf *out, const uint8_t *data, size_t n)
{
	size_t at = 0, good = 0;
	bool cut;

	while (at < n) {
		int step = utf8_at(data + at, n - at, &cut);

		if (step > 0) {
			at += (size_t)step;
			continue;
		}
		(void)furca_buf_append(out, data + good, at - good);
		(void)furca_buf_append(out, "\xef\xbf\xbd", 3);
		at += (size_t)-step;
		good = at;
	}
	(void)furca_buf_append(out, data + good, at - good);
}

size_t furca_utf8_whole(const uint8_t *data, size_t n)
{
	bool cut;

	for (size_t back = 1; back <= 3 && back <= n; back++) {
		uint8_t byte = data[n - back];

		if ((byte & 0xc0) == 0x80)
			continue;
		if (byte >= 0xc0)
			(void)utf8_at(data + n - back, back, &cut);
		else
			cut = false;
		return cut ? n - back : n;
	}
	return n;
}

/* The last `n` bytes that came. */
static void copy_tail(const struct furca_output *o, uint8_t *to, size_t n)
{
	if (o->spilled == o->total && (o->map || o->spill.n >= 0)) {
		read_file(o, o->total - n, to, n);
		return;
	}
	size_t from = (o->tail_at + o->tail_size - n) % o->tail_size, first = FURCA_MIN(n, o->tail_size - from);

	memcpy(to, o->tail + from, first);
	memcpy(to + first, o->tail, n - first);
}

/* Where fewer are to be shown than are kept. */
static uint64_t text_of_few(const struct furca_output *o, struct furca_buf *out)
{
	FURCA_AUTO_BUF struct furca_buf head = FURCA_BUF_INIT, tail = FURCA_BUF_INIT;
	size_t skip = 0;

	(void)furca_output_read(o, 0, o->shown - o->shown / 2, &head);
	(void)furca_output_read(o, o->total - o->shown / 2, o->shown / 2, &tail);
	head.len = furca_utf8_whole(head.data, head.len);
	while (skip < tail.len && (tail.data[skip] & 0xc0) == 0x80)
		skip++;
	furca_utf8_lossy(out, head.data, head.len);
	furca_utf8_lossy(out, tail.data + skip, tail.len - skip);
	return o->total - head.len - (tail.len - skip);
}

uint64_t furca_output_text(const struct furca_output *o, struct furca_buf *out)
{
	if (o->shown < LEAST && o->total > o->shown)
		return text_of_few(o, out);
	size_t tail = FURCA_MIN(o->total - FURCA_MIN(o->total, o->head.len), o->tail_size);
	uint64_t left_out = o->total - o->head.len - tail;

	if (left_out == 0 && tail == 0) {
		furca_utf8_lossy(out, o->head.data, o->head.len);
		return 0;
	}
	FURCA_AUTO_FREE uint8_t *joined = malloc(tail + 1);
	if (!joined) {
		furca_utf8_lossy(out, o->head.data, o->head.len);
		return left_out + tail;
	}
	copy_tail(o, joined, tail);
	size_t head = o->head.len, skip = 0;
	if (left_out > 0) {
		head = furca_utf8_whole(o->head.data, o->head.len);
		while (skip < 3 && skip < tail && (joined[skip] & 0xc0) == 0x80)
			skip++;
	}
	if (left_out == 0) { /* one text, not two: a character may lie across the seam */
		FURCA_AUTO_BUF struct furca_buf whole = FURCA_BUF_INIT;

		(void)furca_buf_append(&whole, o->head.data, head);
		(void)furca_buf_append(&whole, joined, tail);
		furca_utf8_lossy(out, whole.data, whole.len);
		return 0;
	}
	furca_utf8_lossy(out, o->head.data, head);
	furca_utf8_lossy(out, joined + skip, tail - skip);
	return left_out + (o->head.len - head) + skip;
}

void furca_output_seal(struct furca_output *o)
{
	if (o->spill.n < 0 || o->map)
		return;
	if (o->spilled > 0) {
		void *map = mmap(NULL, o->spilled, PROT_READ, MAP_SHARED, o->spill.n, 0);

		if (map != MAP_FAILED)
			o->map = map;
		else if (o->spilled == o->total && o->tail_size)
			tail_load(o);
	}
	furca_fd_done(&o->spill);
	if (o->map) {
		furca_buf_done(&o->head);
		if (o->spilled == o->total) {
			free(o->tail);
			o->tail = NULL;
			o->tail_size = 0;
		}
	}
}

size_t furca_output_memory(const struct furca_output *o)
{
	return o->head.cap + o->tail_size;
}

static size_t read_spill(const struct furca_output *o, uint64_t offset, size_t n, struct furca_buf *out)
{
	if (furca_buf_reserve(out, n) < 0)
		return 0;
	ssize_t r = pread(o->spill.n, out->data + out->len, n, (off_t)offset);
	if (r <= 0)
		return 0;
	out->len += (size_t)r;
	return (size_t)r;
}

size_t furca_output_read(const struct furca_output *o, uint64_t offset, size_t length, struct furca_buf *out)
{
	size_t before = out->len;

	while (length > 0 && offset < o->total) {
		const uint8_t *from;
		size_t n;

		if (o->map && offset < o->spilled) {
			from = o->map + offset;
			n = o->spilled - offset;
		} else if (o->spill.n >= 0 && offset < o->spilled) { /* still running */
			n = read_spill(o, offset, FURCA_MIN(length, o->spilled - offset), out);
			if (n == 0)
				break;
			offset += n;
			length -= n;
			continue;
		} else if (offset < o->head.len) {
			from = o->head.data + offset;
			n = o->head.len - offset;
		} else if (o->tail_size && o->total - offset <= o->tail_size) {
			size_t at = (o->tail_at + o->tail_size - (size_t)(o->total - offset)) % o->tail_size;

			from = o->tail + at;
			n = FURCA_MIN((size_t)(o->total - offset), o->tail_size - at);
		} else {
			break;
		}
		n = FURCA_MIN(n, length);
		if (furca_buf_append(out, from, n) < 0)
			break;
		offset += n;
		length -= n;
	}
	return out->len - before;
}
