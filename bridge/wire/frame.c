#include "bridge/wire/frame.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "bridge/wire/limits.h"

#include "base/banned.h"

/* Where too many descriptors of this user are on their way. */
enum { CROWDED_TRIES = 10, CROWDED_PAUSE_MS = 10 };

size_t furca_frame_begin(struct furca_buf *buf, msgpack_packer *ret_packer, enum furca_frame number, uint64_t call,
			 uint32_t fields)
{
	static const uint8_t empty[FURCA_FRAME_HEADER];
	size_t offset = buf->len;

	(void)furca_buf_append(buf, empty, sizeof(empty));
	msgpack_packer_init(ret_packer, buf, furca_buf_msgpack_write);
	msgpack_pack_array(ret_packer, 3);
	msgpack_pack_uint32(ret_packer, (uint32_t)number);
	msgpack_pack_uint64(ret_packer, call);
	msgpack_pack_map(ret_packer, fields);
	return offset;
}

int furca_frame_end(struct furca_buf *buf, size_t offset, unsigned n_fds)
{
	if (buf->failed)
		return buf->failed;
	uint32_t n = (uint32_t)(buf->len - offset - FURCA_FRAME_HEADER);
	uint8_t *head = buf->data + offset;

	for (int i = 0; i < 4; i++)
		head[i] = (uint8_t)(n >> (8 * i));
	head[4] = (uint8_t)n_fds;
	head[5] = FURCA_FRAME_VERSION;
	return 0;
}

static int parse_head(const uint8_t *data, size_t max_bytes, size_t *ret_length, struct furca_err *err)
{
	size_t length = 0;

	for (int i = 3; i >= 0; i--)
		length = length << 8 | data[i];
	if (data[5] != FURCA_FRAME_VERSION || data[6] || data[7] || data[4] > FURCA_FDS_MAX)
		return furca_fail(err, FURCA_E_PROTOCOL, 0, "a frame's header is not one of version %d",
				  FURCA_FRAME_VERSION);
	if (length > max_bytes)
		return furca_fail(err, FURCA_E_LIMIT, 0, "a frame of %zu bytes is over the limit of %zu", length,
				  max_bytes);
	*ret_length = length;
	return 0;
}

int furca_frame_parse(const uint8_t *data, size_t n, size_t max_bytes, struct furca_frame_view *ret, size_t *ret_need,
		      struct furca_err *err)
{
	size_t length = 0;
	struct furca_value head, number, call, body;

	*ret_need = FURCA_FRAME_HEADER;
	if (n < FURCA_FRAME_HEADER)
		return 0;
	int r = parse_head(data, max_bytes, &length, err);
	if (r < 0)
		return r;
	*ret_need = FURCA_FRAME_HEADER + length;
	if (n < *ret_need)
		return 0;

	struct furca_view view = {data + FURCA_FRAME_HEADER, data + *ret_need};
	r = furca_value_check(view, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS);
	if (r < 0)
		return furca_fail(err, FURCA_E_PROTOCOL, 0,
				  "a frame's payload is not one whole msgpack value within bounds");
	/* Entered, not skipped: looking for the end of the array and of the map, which is the payload's, would be two walks more. */
	if (furca_value_enter(&view, &head) < 0 || head.kind != FURCA_ARRAY || head.count != 3)
		return furca_fail(err, FURCA_E_PROTOCOL, 0, "a frame's payload is not an array of three");
	if (furca_value_enter(&view, &number) < 0 || number.kind != FURCA_UINT || furca_value_enter(&view, &call) < 0 ||
	    call.kind != FURCA_UINT || furca_value_enter(&view, &body) < 0 || body.kind != FURCA_MAP)
		return furca_fail(err, FURCA_E_PROTOCOL, 0, "a frame is not [number, call, map]");
	*ret = (struct furca_frame_view){.number = (enum furca_frame)number.u,
					 .call = call.u,
					 .n_fds = data[4],
					 .body = {body.raw.at, data + *ret_need},
					 .size = *ret_need};
	return 1;
}

int furca_frame_send(int sock, const uint8_t *data, size_t n, const int *fds, size_t n_fds)
{
	ssize_t sent = furca_fd_send(sock, data, n, fds, n_fds);

	for (int tries = 0; sent == -ETOOMANYREFS && tries < CROWDED_TRIES; tries++) {
		(void)poll(NULL, 0, CROWDED_PAUSE_MS);
		sent = furca_fd_send(sock, data, n, fds, n_fds);
	}
	if (sent < 0)
		return (int)sent;
	return furca_fd_write_all(sock, data + sent, n - (size_t)sent);
}

static size_t bytes_ahead(const struct furca_frame_reader *reader)
{
	return reader->buf.len - reader->used;
}

/* furca_frame_parse for what is there, which may be nothing. */
static int parse_ahead(const struct furca_frame_reader *reader, size_t max_bytes, struct furca_frame_view *ret,
		       size_t *ret_need, struct furca_err *err)
{
	if (!furca_frame_is_ahead(reader))
		return 0;
	return furca_frame_parse(reader->buf.data + reader->used, bytes_ahead(reader), max_bytes, ret, ret_need, err);
}

/*
 * One receive. Only where nothing is ahead does it take more than what is missing of `need` bytes: the kernel ends a receive behind a message
 * that brought descriptors, so that all that are held here are one frame's. 1, 0 at end of file between frames, or -errno.
 */
static int receive(int sock, struct furca_frame_reader *reader, size_t need, size_t ahead)
{
	size_t have = bytes_ahead(reader), want = have ? need - have : FURCA_MAX(need, ahead);
	size_t room = FURCA_FDS_MAX - reader->n_fds;

	furca_buf_consume(&reader->buf, reader->used);
	reader->used = 0;
	int r = furca_buf_reserve(&reader->buf, want);
	if (r < 0)
		return r;
	bool cut;
	ssize_t n = furca_fd_recv_cut(sock, reader->buf.data + have, want, reader->fds + reader->n_fds, &room, &cut);
	if (n < 0)
		return (int)n;
	if (n == 0)
		return have == 0 ? 0 : -EPROTO;
	reader->n_fds += room;
	reader->cut |= cut;
	reader->buf.len += (size_t)n;
	return 1;
}

/* Those that are here may be the next frame's, if that has begun and this one has none. */
static int hand_out_fds(struct furca_frame_reader *reader, unsigned n, struct furca_fd *fds, size_t *n_fds,
			struct furca_err *err)
{
	if (n == 0 && furca_frame_is_ahead(reader))
		return 1;
	if (n > 0 && reader->cut) {
		reader->cut = false;
		return 1;
	}
	if (n != reader->n_fds)
		return furca_fail(err, FURCA_E_PROTOCOL, 0, "a frame announced %u descriptors and brought %zu", n,
				  reader->n_fds);
	memcpy(fds, reader->fds, n * sizeof(*fds));
	*n_fds = n;
	reader->n_fds = 0;
	return 1;
}

int furca_frame_read(int sock, struct furca_frame_reader *reader, size_t ahead, size_t max_bytes,
		     struct furca_frame_view *ret, struct furca_fd *fds, size_t *n_fds, struct furca_err *err)
{
	size_t need = FURCA_FRAME_HEADER;
	int r;

	*n_fds = 0;
	while ((r = parse_ahead(reader, max_bytes, ret, &need, err)) == 0) {
		r = receive(sock, reader, need, ahead);
		if (r <= 0)
			break;
	}
	if (r == 1) {
		reader->used += ret->size;
		r = hand_out_fds(reader, ret->n_fds, fds, n_fds, err);
	}
	if (r < 0) {
		furca_frame_reader_clear(reader);
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot receive a frame");
	}
	return r;
}

bool furca_frame_is_ahead(const struct furca_frame_reader *reader)
{
	return bytes_ahead(reader) > 0;
}

void furca_frame_reader_clear(struct furca_frame_reader *reader)
{
	furca_fds_done(reader->fds, reader->n_fds);
	reader->n_fds = 0;
	reader->cut = false;
	reader->used = 0;
	furca_buf_clear(&reader->buf);
}

void furca_frame_reader_done(struct furca_frame_reader *reader)
{
	furca_frame_reader_clear(reader);
	furca_buf_done(&reader->buf);
}

int furca_frame_recv(int sock, struct furca_buf *buf, size_t max_bytes, struct furca_frame_view *ret,
		     struct furca_fd *fds, size_t *n_fds, struct furca_err *err)
{
	struct furca_frame_reader reader = {.buf = *buf};
	int r;

	furca_buf_clear(&reader.buf);
	r = furca_frame_read(sock, &reader, 0, max_bytes, ret, fds, n_fds, err);
	if (r == 1 && ret->n_fds > *n_fds)
		r = furca_fail(err, FURCA_E_SYSTEM, EMFILE, "cannot receive a frame's descriptors");
	*buf = reader.buf;
	return r;
}
