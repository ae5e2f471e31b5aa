/* bridge/wire/frame: round trips, streams in pieces, what a peer may not do, descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "tests/unit/harness.h"
#include "tests/unit/random.h"

static void put(struct furca_buf *buf, uint64_t call, const char *code, unsigned n_fds)
{
	msgpack_packer packer;
	size_t offset = furca_frame_begin(buf, &packer, FURCA_HOST_RUN, call, 1);

	furca_pack_text(&packer, "code");
	furca_pack_text(&packer, code);
	ck_assert_int_eq(furca_frame_end(buf, offset, n_fds), 0);
}

static int parse(const struct furca_buf *buf, size_t n, struct furca_frame_view *ret, size_t *need)
{
	struct furca_err err = FURCA_ERR_INIT;

	return furca_frame_parse(buf->data, n, 1 << 20, ret, need, &err);
}

START_TEST(frames_come_out_of_a_stream_as_they_went_in)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_frame_view frame;
	struct furca_view code;
	size_t need = 0;

	put(&buf, 1, "one", 0);
	put(&buf, UINT64_MAX, "two", 2);
	ck_assert_int_eq(parse(&buf, buf.len, &frame, &need), 1);
	ck_assert_int_eq(frame.number, FURCA_HOST_RUN);
	ck_assert_uint_eq(frame.call, 1);
	ck_assert(furca_map_text(frame.body, "code", &code) && furca_view_is(code, "one"));
	furca_buf_consume(&buf, frame.size);
	ck_assert_int_eq(parse(&buf, buf.len, &frame, &need), 1);
	ck_assert(frame.call == UINT64_MAX && frame.n_fds == 2 && frame.size == buf.len);
}
END_TEST

START_TEST(a_frame_cut_anywhere_asks_for_more)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_frame_view frame;

	put(&buf, 5, "print('hello')", 0);
	for (size_t n = 0; n < buf.len; n++) {
		size_t need = 0;

		ck_assert_int_eq(parse(&buf, n, &frame, &need), 0);
		ck_assert_uint_eq(need, n < FURCA_FRAME_HEADER ? FURCA_FRAME_HEADER : buf.len);
	}
}
END_TEST

START_TEST(what_the_header_may_not_say)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_frame_view frame;
	struct furca_err err = FURCA_ERR_INIT;
	size_t need;

	put(&buf, 1, "x", 0);
	/* The length is refused on the header alone, before anything of that size is asked for. */
	ck_assert_int_eq(furca_frame_parse(buf.data, FURCA_FRAME_HEADER, 4, &frame, &need, &err), -E2BIG);
	buf.data[5] = 9;
	ck_assert_int_eq(parse(&buf, buf.len, &frame, &need), -EPROTO);
	buf.data[5] = FURCA_FRAME_VERSION;
	buf.data[4] = FURCA_FDS_MAX + 1;
	ck_assert_int_eq(parse(&buf, buf.len, &frame, &need), -EPROTO);
	buf.data[4] = 0;
	buf.data[7] = 1;
	ck_assert_int_eq(parse(&buf, buf.len, &frame, &need), -EPROTO);
}
END_TEST

START_TEST(what_the_payload_may_not_be)
{
	static const struct {
		const char *bytes;
		size_t n;
	} payloads[] = {{"\xc0", 1},
			{"\x93\x01\x02", 3},
			{"\x92\x01\x02", 3},
			{"\x93\x01\x02\x03", 4},
			{"\x93\xa1x\x02\x80", 5},
			{"\x93\x01\x02\x80\xc0", 5},
			{"\xc1", 1},
			{"", 0},
			{"\x93\xff\x02\x80", 4}};
	struct furca_frame_view frame;
	struct furca_err err = FURCA_ERR_INIT;
	uint8_t data[32] = {(uint8_t)payloads[_i].n, 0, 0, 0, 0, FURCA_FRAME_VERSION, 0, 0};
	size_t need;

	memcpy(data + FURCA_FRAME_HEADER, payloads[_i].bytes, payloads[_i].n);
	ck_assert_int_eq(furca_frame_parse(data, FURCA_FRAME_HEADER + payloads[_i].n, 1024, &frame, &need, &err),
			 -EPROTO);
	ck_assert_int_eq(err.code, FURCA_E_PROTOCOL);
}
END_TEST

START_TEST(spoilt_frames_never_read_beyond_the_end)
{
	uint64_t state = furca_test_seed();

	for (int round = 0; round < 20000; round++) {
		FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
		struct furca_frame_view frame;
		size_t need;

		put(&buf, furca_test_random(&state), "some code", 0);
		for (uint64_t i = furca_test_random(&state) % 4; i > 0; i--)
			buf.data[furca_test_random(&state) % buf.len] = (uint8_t)furca_test_random(&state);
		size_t n = furca_test_random(&state) % (buf.len + 1);
		FURCA_AUTO_FREE uint8_t *exact = malloc(n ? n : 1);
		ck_assert_ptr_nonnull(exact);
		memcpy(exact, buf.data, n);
		int r = furca_frame_parse(exact, n, 1 << 16, &frame, &need, NULL);
		ck_assert(r == 1 || r == 0 || r == -EPROTO || r == -E2BIG);
		if (r == 1)
			ck_assert(frame.size <= n && frame.body.end <= exact + n);
	}
}
END_TEST

START_TEST(descriptors_ride_with_their_frame)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT, in = FURCA_BUF_INIT;
	struct furca_fd got[FURCA_FDS_MAX];
	struct furca_frame_view frame;
	struct furca_err err = FURCA_ERR_INIT;
	size_t n = 0;
	int pair[2], ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	put(&buf, 1, "first", 2);
	ck_assert_int_eq(furca_frame_send(pair[0], buf.data, buf.len, ends, 2), 0);
	furca_buf_clear(&buf);
	put(&buf, 2, "second", 0);
	ck_assert_int_eq(furca_frame_send(pair[0], buf.data, buf.len, NULL, 0), 0);
	ck_assert_int_eq(furca_frame_recv(pair[1], &in, 1 << 20, &frame, got, &n, &err), 1);
	ck_assert(frame.call == 1 && n == 2);
	furca_fds_done(got, n);
	ck_assert_int_eq(furca_frame_recv(pair[1], &in, 1 << 20, &frame, got, &n, &err), 1);
	ck_assert(frame.call == 2 && n == 0);
	(void)close(pair[0]);
	ck_assert_int_eq(furca_frame_recv(pair[1], &in, 1 << 20, &frame, got, &n, &err), 0);
	(void)close(pair[1]);
	(void)close(ends[0]);
	(void)close(ends[1]);
}
END_TEST

START_TEST(announced_descriptors_must_come)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT, in = FURCA_BUF_INIT;
	struct furca_fd got[FURCA_FDS_MAX];
	struct furca_frame_view frame;
	struct furca_err err = FURCA_ERR_INIT;
	size_t n = 0;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	put(&buf, 1, "x", 1);
	ck_assert_int_eq(furca_frame_send(pair[0], buf.data, buf.len, NULL, 0), 0);
	ck_assert_int_eq(furca_frame_recv(pair[1], &in, 1 << 20, &frame, got, &n, &err), -EPROTO);
	(void)close(pair[0]);
	(void)close(pair[1]);
}
END_TEST

/* What a reader reads from, and what it has handed out last. */
struct stream {
	int in, out;
	struct furca_frame_reader reader;
	struct furca_frame_view frame;
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds;
};

static void stream_open(struct stream *s)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	*s = (struct stream){.in = pair[0], .out = pair[1]};
}

static void stream_close(struct stream *s)
{
	furca_fds_done(s->fds, s->n_fds);
	furca_frame_reader_done(&s->reader);
	(void)close(s->in);
	(void)close(s->out);
}

/* Sends a frame with `n_fds` copies of `fd`, in two messages where `cut` is over 0: the first has so many bytes, and the descriptors. */
static void stream_put(const struct stream *s, uint64_t call, const char *code, int fd, unsigned n_fds, size_t cut)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	int fds[FURCA_FDS_MAX];

	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = fd;
	put(&buf, call, code, n_fds);
	if (!cut || cut > buf.len)
		cut = buf.len;
	ck_assert_int_eq(furca_frame_send(s->in, buf.data, cut, fds, n_fds), 0);
	ck_assert_int_eq(furca_frame_send(s->in, buf.data + cut, buf.len - cut, NULL, 0), 0);
}

static int stream_next(struct stream *s, size_t ahead)
{
	struct furca_err err = FURCA_ERR_INIT;

	furca_fds_done(s->fds, s->n_fds);
	return furca_frame_read(s->out, &s->reader, ahead, 1 << 20, &s->frame, s->fds, &s->n_fds, &err);
}

static int bytes_left(const struct stream *s)
{
	int n = -1;

	ck_assert_int_eq(ioctl(s->out, FIONREAD, &n), 0);
	return n;
}

START_TEST(frames_are_received_together_and_handed_out_one_by_one)
{
	struct stream s;

	stream_open(&s);
	for (uint64_t call = 1; call <= 3; call++)
		stream_put(&s, call, "code", -1, 0, 0);
	(void)shutdown(s.in, SHUT_WR);
	for (uint64_t call = 1; call <= 3; call++) {
		ck_assert_int_eq(stream_next(&s, 4096), 1);
		ck_assert_uint_eq(s.frame.call, call);
		ck_assert_int_eq(bytes_left(&s), 0);
		ck_assert_int_eq(furca_frame_is_ahead(&s.reader), call < 3);
	}
	ck_assert_int_eq(stream_next(&s, 4096), 0);
	stream_close(&s);
}
END_TEST

START_TEST(nothing_past_a_frame_is_received_where_that_is_not_wanted)
{
	struct stream s;

	stream_open(&s);
	stream_put(&s, 1, "code", -1, 0, 0);
	stream_put(&s, 2, "code", -1, 0, 0);
	ck_assert_int_eq(stream_next(&s, 0), 1);
	ck_assert(!furca_frame_is_ahead(&s.reader) && bytes_left(&s) > 0);
	ck_assert_int_eq(stream_next(&s, 0), 1);
	ck_assert(s.frame.call == 2 && bytes_left(&s) == 0);
	stream_close(&s);
}
END_TEST

/* Four frames, each with a file of its own in so many copies or with none, cut somewhere. */
static void check_descriptors(unsigned which, size_t cut, size_t ahead)
{
	struct stat sent, came;
	struct stream s;
	int files[4];

	stream_open(&s);
	for (unsigned i = 0; i < 4; i++) {
		files[i] = memfd_create("frame", MFD_CLOEXEC);
		ck_assert_int_ge(files[i], 0);
		stream_put(&s, i, "code", files[i], which >> i & 1 ? i + 1 : 0, cut);
	}
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(stream_next(&s, ahead), 1);
		ck_assert_uint_eq(s.frame.call, i);
		ck_assert_uint_eq(s.n_fds, which >> i & 1 ? i + 1 : 0);
		ck_assert_int_eq(fstat(files[i], &sent), 0);
		for (size_t k = 0; k < s.n_fds; k++) {
			ck_assert_int_eq(fstat(s.fds[k].n, &came), 0);
			ck_assert(came.st_ino == sent.st_ino && came.st_dev == sent.st_dev);
		}
		(void)close(files[i]);
	}
	stream_close(&s);
}

START_TEST(each_frame_has_its_own_descriptors_in_any_order)
{
	static const size_t cuts[] = {0, 1, 7, 8, 9, 20}, aheads[] = {0, 16, 4096};

	for (unsigned which = 0; which < 16; which++)
		for (size_t i = 0; i < FURCA_COUNT(cuts); i++)
			for (size_t k = 0; k < FURCA_COUNT(aheads); k++)
				check_descriptors(which, cuts[i], aheads[k]);
}
END_TEST

START_TEST(a_long_frame_behind_a_short_one_is_completed)
{
	FURCA_AUTO_FREE char *code = calloc(1, 100001);
	struct furca_view text;
	struct stream s;

	ck_assert_ptr_nonnull(code);
	memset(code, 'x', 100000);
	stream_open(&s);
	for (uint64_t call = 0; call < 4; call++)
		stream_put(&s, call, call % 2 ? code : "short", -1, 0, 0);
	for (uint64_t call = 0; call < 4; call++) {
		ck_assert_int_eq(stream_next(&s, 4096), 1);
		ck_assert_uint_eq(s.frame.call, call);
		ck_assert(furca_map_text(s.frame.body, "code", &text) &&
			  furca_view_is(text, call % 2 ? code : "short"));
	}
	stream_close(&s);
}
END_TEST

START_TEST(a_frame_ahead_is_bounded_before_memory_is_taken)
{
	static const uint8_t head[FURCA_FRAME_HEADER] = {0, 0, 0, 4, 0, FURCA_FRAME_VERSION}; /* 64 MiB */
	struct stream s;

	stream_open(&s);
	stream_put(&s, 1, "code", -1, 0, 0);
	ck_assert_int_eq(furca_fd_write_all(s.in, head, sizeof(head)), 0);
	ck_assert_int_eq(stream_next(&s, 4096), 1);
	ck_assert_int_eq(stream_next(&s, 4096), -E2BIG);
	ck_assert_uint_le(s.reader.buf.cap, 4096);
	stream_close(&s);
}
END_TEST

START_TEST(what_is_ahead_can_be_dropped_with_its_descriptors)
{
	struct stream s;
	int ends[2];
	char byte;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	stream_open(&s);
	stream_put(&s, 1, "code", -1, 0, 0);
	stream_put(&s, 2, "code", ends[1], 1, 0);
	(void)close(ends[1]);
	ck_assert_int_eq(stream_next(&s, 4096), 1);
	ck_assert(s.n_fds == 0 && furca_frame_is_ahead(&s.reader));
	furca_frame_reader_clear(&s.reader);
	ck_assert(!furca_frame_is_ahead(&s.reader));
	ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* nobody holds the other end */
	stream_put(&s, 3, "code", -1, 0, 0);
	ck_assert(stream_next(&s, 4096) == 1 && s.frame.call == 3);
	(void)close(ends[0]);
	stream_close(&s);
}
END_TEST

START_TEST(descriptors_that_no_frame_announced_are_an_error)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct stream s;
	int ends[2], r;
	char byte;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	stream_open(&s);
	put(&buf, 1, "code", 0);
	put(&buf, 2, "code", 0);
	ck_assert_int_eq(furca_frame_send(s.in, buf.data, buf.len, &ends[1], 1), 0);
	(void)close(ends[1]);
	r = stream_next(&s, 4096);
	if (r == 1) /* they might be the second's */
		r = stream_next(&s, 4096);
	ck_assert_int_eq(r, -EPROTO);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	(void)close(ends[0]);
	stream_close(&s);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, frames_come_out_of_a_stream_as_they_went_in);
	tcase_add_test(tests, a_frame_cut_anywhere_asks_for_more);
	tcase_add_test(tests, what_the_header_may_not_say);
	tcase_add_loop_test(tests, what_the_payload_may_not_be, 0, 9);
	tcase_add_test(tests, spoilt_frames_never_read_beyond_the_end);
	tcase_add_test(tests, descriptors_ride_with_their_frame);
	tcase_add_test(tests, announced_descriptors_must_come);
	tcase_add_test(tests, frames_are_received_together_and_handed_out_one_by_one);
	tcase_add_test(tests, nothing_past_a_frame_is_received_where_that_is_not_wanted);
	tcase_add_test(tests, each_frame_has_its_own_descriptors_in_any_order);
	tcase_add_test(tests, a_long_frame_behind_a_short_one_is_completed);
	tcase_add_test(tests, a_frame_ahead_is_bounded_before_memory_is_taken);
	tcase_add_test(tests, what_is_ahead_can_be_dropped_with_its_descriptors);
	tcase_add_test(tests, descriptors_that_no_frame_announced_are_an_error);
}

int main(void)
{
	return furca_test_main("frame", add);
}
