#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "engine/loop_private.h"

#include "tests/unit/harness.h"

/* Each test runs twice: as the kernel allows, and as on one without multishot and provided buffers. */
static struct furca_loop *new_loop(int plain)
{
	struct furca_loop *loop;

	ck_assert_int_eq(furca_loop_new(&loop, NULL), 0);
	if (plain)
		furca_loop_plain(loop);
	return loop;
}

struct stream {
	struct furca_loop *loop;
	struct furca_buf got;
	furca_op_id op, other;
	size_t end_at;
	int calls, sent, ended, fd;
};

static void on_bytes(void *owner, const uint8_t *data, ssize_t n)
{
	struct stream *s = owner;

	s->calls++;
	if (n <= 0) {
		s->ended = 1;
		furca_loop_end(s->loop);
		return;
	}
	ck_assert_int_eq(furca_buf_append(&s->got, data, (size_t)n), 0);
	if (s->end_at && s->got.len >= s->end_at)
		furca_loop_end(s->loop);
}

static void on_sent(void *owner, int result, struct furca_buf *buf)
{
	struct stream *s = owner;

	ck_assert_int_eq(result, 0);
	ck_assert_uint_eq(buf->len, 0);
	s->sent++;
}

/* Numbers in a row, so that a byte lost, doubled or moved shows. */
static void fill(struct furca_buf *buf, size_t n)
{
	for (uint32_t i = 0; i < n / 4; i++)
		(void)furca_buf_append(buf, &i, 4);
	ck_assert_int_eq(buf->failed, 0);
}

static int in_order(const struct furca_buf *buf)
{
	for (uint32_t i = 0; i < buf->len / 4; i++)
		if (memcmp(buf->data + (size_t)i * 4, &i, 4) != 0)
			return 0;
	return 1;
}

START_TEST(a_big_message_goes_through_whole)
{
	struct stream s = {.loop = new_loop(_i), .end_at = 8 << 20};
	struct furca_buf buf = {0};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	fill(&buf, 8 << 20);
	ck_assert_int_eq(furca_loop_recv(s.loop, pair[1], on_bytes, &s, &s.op), 0);
	ck_assert_int_eq(furca_loop_send(s.loop, pair[0], &buf, on_sent, &s, &s.other), 0);
	ck_assert_ptr_null(buf.data);
	ck_assert_int_eq(furca_loop_run(s.loop, NULL), 0);
	ck_assert_uint_eq(s.got.len, s.end_at);
	ck_assert(in_order(&s.got));
	s.end_at = 0;
	(void)close(pair[0]);
	ck_assert_int_eq(furca_loop_run(s.loop, NULL), 0);
	ck_assert_int_eq(s.ended, 1);
	ck_assert_int_eq(s.sent, 1);
	furca_loop_free(s.loop);
	furca_buf_done(&s.got);
}
END_TEST

static void resume(void *owner)
{
	struct stream *s = owner;

	furca_loop_recv_pause(s->loop, s->op, false);
}

static void pause_now(void *owner)
{
	struct stream *s = owner;

	furca_loop_recv_pause(s->loop, s->op, true);
}

START_TEST(a_pause_loses_nothing)
{
	struct stream s = {.loop = new_loop(_i), .end_at = 4 << 20};
	struct furca_buf buf = {0};
	furca_op_id timer;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	fill(&buf, 4 << 20);
	ck_assert_int_eq(furca_loop_recv(s.loop, pair[1], on_bytes, &s, &s.op), 0);
	ck_assert_int_eq(furca_loop_send(s.loop, pair[0], &buf, on_sent, &s, &s.other), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(furca_loop_timer(s.loop, furca_now_us() + i * 300, pause_now, &s, &timer), 0);
		ck_assert_int_eq(furca_loop_timer(s.loop, furca_now_us() + i * 300 + 150, resume, &s, &timer), 0);
	}
	ck_assert_int_eq(furca_loop_run(s.loop, NULL), 0);
	ck_assert_uint_eq(s.got.len, s.end_at);
	ck_assert(in_order(&s.got));
	furca_loop_free(s.loop);
	furca_buf_done(&s.got);
	(void)close(pair[0]);
	(void)close(pair[1]);
}
END_TEST

/* The other way of reading: by poll and recv, from where the ring left off. */
static void on_more(void *owner, unsigned revents)
{
	struct stream *s = owner;
	uint8_t data[4096];
	ssize_t n;

	while ((n = recv(s->fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
		on_bytes(s, data, n);
}

static void on_stopped(void *owner)
{
	struct stream *s = owner;

	s->ended++;
	ck_assert_int_eq(furca_loop_poll(s->loop, s->fd, POLLIN, on_more, s, &s->op), 0);
}

static void stop_now(void *owner)
{
	struct stream *s = owner;

	ck_assert_int_eq(furca_loop_recv_stop(s->loop, &s->op, on_stopped), 0);
}

/* At moments of all kinds: before anything came, while data flows, while the receive is paused. */
START_TEST(a_receive_is_stopped_and_nothing_is_lost)
{
	for (int i = 0; i < 40; i++) {
		struct stream s = {.loop = new_loop(_i), .end_at = 4 << 20};
		struct furca_buf buf = {0};
		furca_op_id timer;
		int pair[2];

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
		s.fd = pair[1];
		fill(&buf, 4 << 20);
		ck_assert_int_eq(furca_loop_recv(s.loop, pair[1], on_bytes, &s, &s.op), 0);
		ck_assert_int_eq(furca_loop_send(s.loop, pair[0], &buf, on_sent, &s, &s.other), 0);
		if (i % 4 == 3)
			ck_assert_int_eq(furca_loop_timer(s.loop, furca_now_us() + i * 10, pause_now, &s, &timer), 0);
		ck_assert_int_eq(furca_loop_timer(s.loop, furca_now_us() + i * 30, stop_now, &s, &timer), 0);
		ck_assert_int_eq(furca_loop_run(s.loop, NULL), 0);
		ck_assert_uint_eq(s.got.len, s.end_at);
		ck_assert(in_order(&s.got));
		ck_assert_int_le(s.ended, 1);
		furca_loop_free(s.loop);
		furca_buf_done(&s.got);
		(void)close(pair[0]);
		(void)close(pair[1]);
	}
}
END_TEST

struct accepting {
	struct furca_loop *loop;
	int n, want;
};

static void on_accept(void *owner, struct furca_fd fd)
{
	struct accepting *a = owner;

	furca_fd_done(&fd);
	if (++a->n == a->want)
		furca_loop_end(a->loop);
}

START_TEST(many_connections_are_accepted)
{
	struct accepting a = {.loop = new_loop(_i), .want = 10};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	furca_op_id op;
	int fds[10];

	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof(addr);
	ck_assert_int_eq(bind(sock, (struct sockaddr *)&addr, sizeof(sa_family_t)), 0); /* autobind */
	ck_assert_int_eq(listen(sock, 16), 0);
	ck_assert_int_eq(getsockname(sock, (struct sockaddr *)&addr, &size), 0);
	ck_assert_int_eq(furca_loop_accept(a.loop, sock, on_accept, &a, &op), 0);
	for (int i = 0; i < 10; i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&addr, size), 0);
	}
	ck_assert_int_eq(furca_loop_run(a.loop, NULL), 0);
	ck_assert_int_eq(a.n, 10);
	for (int i = 0; i < 10; i++)
		(void)close(fds[i]);
	furca_loop_free(a.loop);
	(void)close(sock);
}
END_TEST

struct order {
	struct furca_loop *loop;
	int n, seen[16];
	furca_op_id victim;
};

static struct order order;

#define NOTE(number)                                                                                                   \
	static void note_##number(void *owner)                                                                         \
	{                                                                                                              \
		order.seen[order.n++] = number;                                                                        \
	}
NOTE(1)
NOTE(2)
NOTE(3)

static void kill_victim(void *owner)
{
	furca_loop_drop(order.loop, &order.victim);
}

static void finish(void *owner)
{
	furca_loop_end(order.loop);
}

START_TEST(timers_come_in_order_and_can_be_cancelled)
{
	furca_op_id op;
	int64_t now = furca_now_us();

	order = (struct order){.loop = new_loop(_i)};
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 3000, note_3, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 1000, note_1, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 2500, note_2, NULL, &order.victim), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 2000, note_2, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 1500, kill_victim, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, FURCA_NEVER, note_2, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_timer(order.loop, now + 4000, finish, NULL, &op), 0);
	ck_assert_int_eq(furca_loop_run(order.loop, NULL), 0);
	ck_assert_int_eq(order.n, 3);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(order.seen[i], i + 1);
	furca_loop_free(order.loop);
}
END_TEST

struct polling {
	struct furca_loop *loop;
	int fd, events, hups;
	furca_op_id op;
};

static void on_poll(void *owner, unsigned revents)
{
	struct polling *p = owner;
	char byte[16];

	p->events++;
	while (read(p->fd, byte, sizeof(byte)) > 0)
		;
	if (revents & (POLLHUP | POLLERR)) {
		p->hups++;
		furca_loop_drop(p->loop, &p->op);
		furca_loop_end(p->loop);
	}
}

START_TEST(a_pipe_is_polled_to_its_end)
{
	struct polling p = {.loop = new_loop(_i)};
	int pipe_fds[2];

	ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
	p.fd = pipe_fds[0];
	ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);
	ck_assert_int_eq(furca_loop_poll(p.loop, p.fd, POLLIN, on_poll, &p, &p.op), 0);
	(void)close(pipe_fds[1]);
	ck_assert_int_eq(furca_loop_run(p.loop, NULL), 0);
	ck_assert_int_eq(p.hups, 1);
	furca_loop_free(p.loop);
	(void)close(pipe_fds[0]);
}
END_TEST

static void never(void *owner, const uint8_t *data, ssize_t n)
{
	ck_abort_msg("called after its end");
}

START_TEST(a_cancelled_operation_is_silent)
{
	struct furca_loop_stats stats;
	furca_op_id op, timer;
	int pair[2];

	order = (struct order){.loop = new_loop(_i)};
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(furca_loop_recv(order.loop, pair[1], never, NULL, &op), 0);
	ck_assert_int_eq(write(pair[0], "late", 4), 4);
	furca_loop_cancel(order.loop, op);
	furca_loop_cancel(order.loop, op);
	(void)close(pair[1]);
	ck_assert_int_eq(furca_loop_timer(order.loop, furca_now_us() + 20000, finish, NULL, &timer), 0);
	ck_assert_int_eq(furca_loop_run(order.loop, NULL), 0);
	furca_loop_stats(order.loop, &stats);
	ck_assert_uint_eq(stats.operations, 0);
	furca_loop_free(order.loop);
	(void)close(pair[0]);
}
END_TEST

static void on_signal(void *owner, int signo)
{
	ck_assert_int_eq(signo, SIGTERM);
	furca_loop_end(order.loop);
}

START_TEST(signals_come_through_the_ring)
{
	furca_op_id op;
	sigset_t set;

	order = (struct order){.loop = new_loop(_i)};
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	ck_assert_int_eq(furca_loop_signals(order.loop, &set, on_signal, NULL, &op), 0);
	ck_assert_int_eq(kill(getpid(), SIGTERM), 0);
	ck_assert_int_eq(furca_loop_run(order.loop, NULL), 0);
	furca_loop_free(order.loop);
}
END_TEST

static void on_word(void *owner)
{
	furca_loop_end(owner);
}

static void wake(void *owner)
{
	uint32_t *word = owner;

	*word = 1;
	ck_assert_int_ge(syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
}

/* Where the kernel has it. Without (the second time): -EOPNOTSUPP, so that the caller finds another way. */
START_TEST(a_futex_is_waited_for)
{
	uint32_t *word = mmap(NULL, sizeof(*word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	furca_op_id op, soon;

	ck_assert_ptr_ne(word, MAP_FAILED);
	if (_i == 1) {
		ck_assert_int_eq(setenv("FURCA_FAULT", "probe_futex:1:fail", 1), 0);
		furca_fault_init();
	}
	struct furca_loop *loop = new_loop(0);
#ifndef FURCA_NO_FAULTS
	ck_assert(_i == 0 || !furca_loop_has_futex(loop));
#endif
	int r = furca_loop_futex(loop, word, 0, on_word, loop, &op);
	if (furca_loop_has_futex(loop)) {
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(furca_loop_timer(loop, furca_now_us() + 20000, wake, word, &soon), 0);
		ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
		ck_assert_uint_eq(*word, 1);
	} else {
		ck_assert_int_eq(r, -EOPNOTSUPP);
	}
	furca_loop_free(loop);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, a_big_message_goes_through_whole, 0, 2);
	tcase_add_loop_test(t, a_pause_loses_nothing, 0, 2);
	tcase_add_loop_test(t, a_receive_is_stopped_and_nothing_is_lost, 0, 2);
	tcase_add_loop_test(t, many_connections_are_accepted, 0, 2);
	tcase_add_loop_test(t, timers_come_in_order_and_can_be_cancelled, 0, 2);
	tcase_add_loop_test(t, a_pipe_is_polled_to_its_end, 0, 2);
	tcase_add_loop_test(t, a_cancelled_operation_is_silent, 0, 2);
	tcase_add_loop_test(t, signals_come_through_the_ring, 0, 2);
	tcase_add_loop_test(t, a_futex_is_waited_for, 0, 2);
}

int main(void)
{
	return furca_test_main("loop", add);
}
