#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/stream.h"

#include "tests/unit/harness.h"

struct peer {
	struct furca_loop *loop;
	struct furca_stream stream;
	unsigned frames, fds, want, sent;
	uint64_t last_call;
	int reason, ends;
	bool close_in_frame;
};

static void on_frame(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	struct peer *p = owner;

	ck_assert_uint_eq(frame->call, p->last_call + 1);
	p->last_call = frame->call;
	p->frames++;
	for (unsigned i = 0; i < frame->n_fds; i++) {
		char byte = 0;

		/* Each descriptor is a pipe that holds the number of its frame. */
		ck_assert_int_eq(read(fds[i].n, &byte, 1), 1);
		ck_assert_int_eq((unsigned char)byte, (int)(frame->call & 0xff));
		p->fds++;
	}
	if (p->close_in_frame)
		furca_stream_done(&p->stream);
	if (p->frames == p->want)
		furca_loop_end(p->loop);
}

static void on_end(void *owner, int reason)
{
	struct peer *p = owner;

	p->reason = reason;
	p->ends++;
	furca_loop_end(p->loop);
}

static void pack(struct furca_buf *buf, uint64_t call, size_t bytes, unsigned n_fds)
{
	msgpack_packer pk;
	FURCA_AUTO_FREE char *body = calloc(1, bytes + 1);
	size_t at = furca_frame_begin(buf, &pk, FURCA_HOST_RUN, call, 1);

	msgpack_pack_str(&pk, 1);
	msgpack_pack_str_body(&pk, "x", 1);
	msgpack_pack_bin(&pk, bytes);
	msgpack_pack_bin_body(&pk, body, bytes);
	ck_assert_int_eq(furca_frame_end(buf, at, n_fds), 0);
}

static void on_sent(void *owner)
{
	struct peer *p = owner;

	p->sent++;
}

static void start(struct peer *p, int sock)
{
	ck_assert_int_eq(furca_stream_open(&p->stream, p->loop, furca_fd_own(sock), 8 << 20, on_frame, on_end, p), 0);
}

/* Two streams on one loop, each at an end of a socketpair. */
static void start_both(struct peer *a, struct peer *b)
{
	int pair[2];

	ck_assert_int_eq(furca_loop_new(&a->loop, NULL), 0);
	b->loop = a->loop;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(a, pair[0]);
	start(b, pair[1]);
}

START_TEST(frames_and_descriptors_stay_together)
{
	struct peer a = {0}, b = {.want = 60};

	start_both(&a, &b);
	for (unsigned i = 1; i <= 60; i++) {
		struct furca_buf buf = FURCA_BUF_INIT;
		struct furca_fd fds[3];
		unsigned n = i % 4;

		for (unsigned k = 0; k < n; k++) {
			int ends[2];
			char byte = (char)i;

			ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
			ck_assert_int_eq(write(ends[1], &byte, 1), 1);
			(void)close(ends[1]);
			fds[k] = furca_fd_own(ends[0]);
		}
		pack(&buf, i, i % 5 == 0 ? 200000 : 10, n); /* more than the socket takes at once */
		ck_assert_int_eq(furca_stream_send(&a.stream, &buf, fds, n), 0);
		furca_buf_done(&buf);
	}
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_uint_eq(b.fds, 90);
	furca_stream_done(&a.stream);
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_int_eq(b.ends, 1);
	ck_assert_int_eq(b.reason, 0);
	furca_stream_done(&b.stream);
	furca_stream_done(&b.stream);
	furca_loop_free(a.loop);
}
END_TEST

START_TEST(a_stream_may_be_closed_by_its_own_frame)
{
	struct peer b = {.want = 1, .close_in_frame = true};
	struct furca_buf buf = FURCA_BUF_INIT;
	int pair[2];

	ck_assert_int_eq(furca_loop_new(&b.loop, NULL), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(&b, pair[1]);
	pack(&buf, 1, 10, 0);
	pack(&buf, 2, 10, 0);
	ck_assert_int_eq(write(pair[0], buf.data, buf.len), (ssize_t)buf.len);
	ck_assert_int_eq(furca_loop_run(b.loop, NULL), 0);
	ck_assert_uint_eq(b.frames, 1);
	furca_buf_done(&buf);
	furca_loop_free(b.loop);
	(void)close(pair[0]);
}
END_TEST

START_TEST(garbage_ends_the_stream)
{
	struct peer b = {.want = 1};
	int pair[2];

	ck_assert_int_eq(furca_loop_new(&b.loop, NULL), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(&b, pair[1]);
	ck_assert_int_eq(write(pair[0], "\xff\xff\xff\x7f\x00\x01\x00\x00", 8), 8); /* a size over the bound */
	ck_assert_int_eq(furca_loop_run(b.loop, NULL), 0);
	ck_assert_int_eq(b.ends, 1);
	ck_assert_int_lt(b.reason, 0);
	furca_stream_done(&b.stream);
	furca_loop_free(b.loop);
	(void)close(pair[0]);
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_bounded)
{
	struct peer a = {0};
	int pair[2], r = 0;

	ck_assert_int_eq(furca_loop_new(&a.loop, NULL), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(&a, pair[0]);
	for (unsigned i = 1; i < 100 && r == 0; i++) {
		struct furca_buf buf = FURCA_BUF_INIT;

		pack(&buf, i, 1 << 20, 0);
		r = furca_stream_send(&a.stream, &buf, NULL, 0);
		furca_buf_done(&buf);
	}
	ck_assert_int_eq(r, -ENOBUFS);
	furca_stream_done(&a.stream);
	furca_loop_free(a.loop);
	(void)close(pair[1]);
}
END_TEST

/* What the socket took at once is not told, what had to wait for its reader is. */
START_TEST(what_is_sent_late_is_told)
{
	struct peer a = {0}, b = {.want = 1};
	struct furca_buf buf = FURCA_BUF_INIT;

	start_both(&a, &b);
	furca_stream_tell_sent(&a.stream, on_sent);
	pack(&buf, 1, 10, 0);
	ck_assert_int_eq(furca_stream_send(&a.stream, &buf, NULL, 0), 0);
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_uint_eq(a.sent, 0);
	b.want = 2;
	pack(&buf, 2, 4 << 20, 0);
	ck_assert_int_eq(furca_stream_send(&a.stream, &buf, NULL, 0), 0);
	ck_assert_uint_eq(a.sent, 0);
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_uint_ge(a.sent, 1);
	furca_stream_done(&a.stream);
	furca_stream_done(&b.stream);
	furca_loop_free(a.loop);
	furca_buf_done(&buf);
}
END_TEST

/* Where no descriptor is left the frame comes without, and the stream goes on. */
START_TEST(what_finds_no_descriptor_comes_without)
{
	struct peer a = {0}, b = {.want = 1};
	struct furca_buf buf = FURCA_BUF_INIT;
	struct rlimit before, none;
	int ends[2];

	start_both(&a, &b);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	struct furca_fd fds[] = {furca_fd_own(ends[0]), furca_fd_own(ends[1])};
	pack(&buf, 1, 10, 2);
	ck_assert_int_eq(furca_stream_send(&a.stream, &buf, fds, 2), 0);
	pack(&buf, 2, 10, 0);
	ck_assert_int_eq(furca_stream_send(&a.stream, &buf, NULL, 0), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){0, before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	b.want = 2;
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_uint_eq(b.frames, 2);
	ck_assert_uint_eq(b.fds, 0);
	ck_assert_int_eq(b.ends, 0);
	furca_stream_done(&a.stream);
	furca_stream_done(&b.stream);
	furca_loop_free(a.loop);
	furca_buf_done(&buf);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_test(t, frames_and_descriptors_stay_together);
	tcase_add_test(t, a_stream_may_be_closed_by_its_own_frame);
	tcase_add_test(t, garbage_ends_the_stream);
	tcase_add_test(t, a_peer_that_does_not_read_is_bounded);
	tcase_add_test(t, what_is_sent_late_is_told);
	tcase_add_test(t, what_finds_no_descriptor_comes_without);
}

int main(void)
{
	return furca_test_main("stream", add);
}
