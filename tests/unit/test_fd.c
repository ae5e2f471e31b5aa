/* base/fd: ownership, close-on-exec, passing, closing the rest. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#include "tests/unit/harness.h"

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void make_pipe(struct furca_fd ret[2])
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ret[0] = furca_fd_own(fds[0]);
	ret[1] = furca_fd_own(fds[1]);
}

static void make_pair(struct furca_fd ret[2])
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ret[0] = furca_fd_own(fds[0]);
	ret[1] = furca_fd_own(fds[1]);
}

START_TEST(done_closes_once_and_keeps_errno)
{
	struct furca_fd ends[2];

	make_pipe(ends);
	int number = ends[0].n;
	errno = EXDEV;
	furca_fd_done(&ends[0]);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(ends[0].n, -1);
	ck_assert(!is_open(number));
	furca_fd_done(&ends[0]);
	furca_fd_done(&ends[1]);
}
END_TEST

START_TEST(duplicates_are_high_and_close_on_exec)
{
	struct furca_fd copy = FURCA_FD_NONE;

	ck_assert_int_eq(furca_fd_dup(2, 0, &copy), 0);
	ck_assert_int_ge(copy.n, 3);
	ck_assert_int_eq(fcntl(copy.n, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	furca_fd_done(&copy);
	ck_assert_int_eq(furca_fd_dup(2, 700, &copy), 0);
	ck_assert_int_ge(copy.n, 700);
	ck_assert_int_eq(furca_fd_cloexec(copy.n, 0), 0);
	ck_assert_int_eq(fcntl(copy.n, F_GETFD) & FD_CLOEXEC, 0);
	furca_fd_done(&copy);
	ck_assert_int_eq(furca_fd_dup(-1, 3, &copy), -EBADF);
	ck_assert_int_eq(copy.n, -1);
}
END_TEST

START_TEST(close_rest_keeps_the_list_and_the_first_three)
{
	struct furca_fd ends[2], high = FURCA_FD_NONE;

	make_pipe(ends);
	ck_assert_int_eq(furca_fd_dup(ends[0].n, 500, &high), 0);
	int keep[] = {high.n, 1, ends[1].n};
	ck_assert_int_eq(furca_fd_close_rest(keep, 3), 0);
	ck_assert(is_open(high.n));
	ck_assert(is_open(ends[1].n));
	ck_assert(!is_open(ends[0].n));
	ck_assert(is_open(0) && is_open(2));
	ck_assert_int_eq(furca_fd_close_rest(NULL, 0), 0);
	ck_assert(!is_open(high.n));
	ck_assert_int_eq(furca_fd_close_rest(keep, 65), -E2BIG);
}
END_TEST

START_TEST(read_and_write_go_on_past_short_and_nonblocking_ones)
{
	static char out[1 << 20], in[1 << 20];
	struct furca_fd ends[2];

	make_pair(ends);
	memset(out, 'q', sizeof(out));
	ck_assert_int_eq(furca_fd_nonblock(ends[0].n, 1), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(furca_fd_write_all(ends[0].n, out, sizeof(out)) == 0 ? 0 : 1);
	furca_fd_done(&ends[0]);
	ck_assert_int_eq(furca_fd_read_full(ends[1].n, in, sizeof(in)), (ssize_t)sizeof(in));
	ck_assert_mem_eq(in, out, sizeof(in));
	ck_assert_int_eq(furca_fd_read_full(ends[1].n, in, 1), 0);
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	furca_fd_done(&ends[1]);
}
END_TEST

START_TEST(descriptors_travel_and_come_close_on_exec)
{
	struct furca_fd pair[2], pipe_ends[2], got[FURCA_FDS_MAX];
	size_t n = FURCA_FDS_MAX;
	char byte = 0;

	make_pair(pair);
	make_pipe(pipe_ends);
	int fds[] = {pipe_ends[0].n, pipe_ends[1].n};
	ck_assert_int_eq(furca_fd_send(pair[0].n, "x", 1, fds, 2), 1);
	ck_assert_int_eq(furca_fd_recv(pair[1].n, &byte, 1, got, &n), 1);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(fcntl(got[0].n, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(furca_fd_write_all(got[1].n, "y", 1), 0);
	ck_assert_int_eq(furca_fd_read_full(pipe_ends[0].n, &byte, 1), 1);
	ck_assert_int_eq(byte, 'y');
	furca_fds_done(got, 2);
	furca_fds_done(pair, 2);
	furca_fds_done(pipe_ends, 2);
}
END_TEST

START_TEST(too_many_descriptors_are_refused_and_none_leaks)
{
	struct furca_fd pair[2], got[1];
	size_t n = 1;
	char byte;

	make_pair(pair);
	int fds[FURCA_FDS_MAX + 1] = {0};
	ck_assert_int_eq(furca_fd_send(pair[0].n, "x", 1, fds, FURCA_FDS_MAX + 1), -E2BIG);
	int probe = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(furca_fd_send(pair[0].n, "x", 1, fds, 3), 1);
	ck_assert_int_eq(furca_fd_recv(pair[1].n, &byte, 1, got, &n), -EMSGSIZE);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(close(probe), 0);
	ck_assert_int_eq(open("/dev/null", O_RDONLY | O_CLOEXEC), probe);
	ck_assert_int_eq(close(probe), 0);
	furca_fds_done(pair, 2);
}
END_TEST

START_TEST(a_closed_peer_is_an_error_not_a_signal)
{
	struct furca_fd pair[2];

	make_pair(pair);
	furca_fd_done(&pair[1]);
	ck_assert_int_eq(furca_fd_send(pair[0].n, "x", 1, NULL, 0), -EPIPE);
	furca_fd_done(&pair[0]);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, done_closes_once_and_keeps_errno);
	tcase_add_test(tests, duplicates_are_high_and_close_on_exec);
	tcase_add_test(tests, close_rest_keeps_the_list_and_the_first_three);
	tcase_add_test(tests, read_and_write_go_on_past_short_and_nonblocking_ones);
	tcase_add_test(tests, descriptors_travel_and_come_close_on_exec);
	tcase_add_test(tests, too_many_descriptors_are_refused_and_none_leaks);
	tcase_add_test(tests, a_closed_peer_is_an_error_not_a_signal);
}

int main(void)
{
	return furca_test_main("fd", add);
}
