/*
 * Frames between the engine and the processes it started: an 8-byte header (payload length, little endian; the number
 * of descriptors attached; a version; two zero bytes), then one msgpack array [frame number, call, map of fields].
 * Descriptors ride on the first byte of the frame's header. No I/O here but in the blocking helpers at the end.
 */
#pragma once

#include <msgpack.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "bridge/wire/messages.h"
#include "bridge/wire/value.h"

#define FURCA_FRAME_HEADER 8
#define FURCA_FRAME_VERSION 1

/* A frame as parsed; views point into the caller's bytes. */
struct furca_frame_view {
	enum furca_frame number;
	uint64_t call;		/* the call, or 0 */
	unsigned n_fds;		/* descriptors that belong to it */
	struct furca_view body; /* the map of fields, checked: complete, bounded, well formed */
	size_t size;		/* bytes of the whole frame, header included */
};

/*
 * Begins a frame at the end of `buf` and packs `fields`-many entries next: the caller packs key and value of each with
 * *ret_packer, then calls furca_frame_end. The packer writes to `buf`, which must stay where it is. Returns the offset
 * of the frame for furca_frame_end.
 */
size_t furca_frame_begin(struct furca_buf *buf, msgpack_packer *ret_packer, enum furca_frame number, uint64_t call,
			 uint32_t fields);

/* Fills in the length and the number of descriptors. 0, or buf->failed. */
int furca_frame_end(struct furca_buf *buf, size_t offset, unsigned n_fds);

/*
 * Looks for a whole frame at the start of `n` bytes. 1 and *ret where there is one; 0 where more bytes are needed
 * (*ret_need says how many in all); -EPROTO or -E2BIG where the peer broke the protocol. `max_bytes` bounds the payload
 * and is checked on the header alone.
 */
int furca_frame_parse(const uint8_t *data, size_t n, size_t max_bytes, struct furca_frame_view *ret, size_t *ret_need,
		      struct furca_err *err);

/* Blocking: sends a finished frame with descriptors (borrowed). 0 or -errno. */
int furca_frame_send(int sock, const uint8_t *data, size_t n, const int *fds, size_t n_fds);

/*
 * Blocking: receives one frame into `buf` (cleared first) and at most FURCA_FDS_MAX descriptors into `fds`; *n_fds says how many
 * came. 1, 0 at end of file between frames, or -errno. The view points into `buf`.
 */
int furca_frame_recv(int sock, struct furca_buf *buf, size_t max_bytes, struct furca_frame_view *ret,
		     struct furca_fd *fds, size_t *n_fds, struct furca_err *err);

/* What a reader of frames that takes more at once than one has received and not handed out. Zeroed, it is empty; its fields are frame.c's. */
struct furca_frame_reader {
	struct furca_buf buf;
	size_t used; /* bytes of it that belong to frames handed out */
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds; /* of the one frame that is in `buf`, or begins there, and has some */
	bool cut;     /* its descriptors did not come, for want of any left here */
};

/*
 * furca_frame_recv for a reader that goes on: takes up to `ahead` bytes (0: none past the frame) with one system call where none are left of the
 * last one, and makes none where a whole frame is left. The view points into the reader until the next call. Where this process has no descriptor left
 * for those that come with a frame, *n_fds is 0 and ret->n_fds is not.
 */
int furca_frame_read(int sock, struct furca_frame_reader *reader, size_t ahead, size_t max_bytes,
		     struct furca_frame_view *ret, struct furca_fd *fds, size_t *n_fds, struct furca_err *err);

/* Whether bytes of another frame have been received: the socket need not become readable for it. */
bool furca_frame_is_ahead(const struct furca_frame_reader *reader);

/* Drops what was received ahead. Keeps the memory, and with it the last frame's view. */
void furca_frame_reader_clear(struct furca_frame_reader *reader);

/* Frees the memory of a reader with nothing ahead. */
void furca_frame_reader_done(struct furca_frame_reader *reader);
