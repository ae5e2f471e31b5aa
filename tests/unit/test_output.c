/* Moving a call's output pipes: what follows, what stays. */
#include "langs/output.h"

#include <check.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/banned.h"

#include "tests/unit/harness.h"

struct pipes {
	struct furca_fd read[2], write[2];
};

static void pipes_make(struct pipes *ret)
{
	for (int i = 0; i < 2; i++) {
		int pair[2];

		ck_assert_int_eq(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
		ck_assert_int_eq(furca_fd_dup(pair[0], 100, &ret->read[i]), 0);
		ck_assert_int_eq(close(pair[0]), 0);
		ret->write[i] = furca_fd_own(pair[1]);
	}
}

static void begin(struct furca_output *output, struct pipes *pipes)
{
	pipes_make(pipes);
	ck_assert_int_eq(
		furca_output_begin(output, furca_fd_take(&pipes->write[0]), furca_fd_take(&pipes->write[1]), true), 0);
}

static void expect(int fd, const char *text)
{
	char buf[64] = "";
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	ck_assert_str_eq(n > 0 ? buf : "", text);
}

START_TEST(moves_to_each_call)
{
	struct furca_output output = {0};
	struct pipes first, second;

	begin(&output, &first);
	ck_assert_int_eq(write(1, "a", 1), 1);
	ck_assert_int_eq(write(2, "b", 1), 1);
	begin(&output, &second);
	ck_assert_int_eq(write(1, "c", 1), 1);
	expect(first.read[0].n, "a");
	expect(first.read[1].n, "b");
	expect(second.read[0].n, "c");
	ck_assert(!furca_output_redirected(&output));
	/* No copy of the first call's pipe is left: its reader is at the end of file. */
	ck_assert_int_eq(read(first.read[0].n, (char[1]){0}, 1), 0);
}
END_TEST

START_TEST(copies_follow)
{
	struct furca_output output = {0};
	struct pipes first, second;

	begin(&output, &first);
	ck_assert_int_eq(dup3(1, 2, 0), 2);
	ck_assert_int_eq(dup2(1, 50), 50);
	begin(&output, &second);
	ck_assert_int_eq(write(50, "x", 1), 1);
	ck_assert_int_eq(write(2, "y", 1), 1);
	expect(second.read[0].n, "xy");
	expect(second.read[1].n, "");
	/* What is not the pipe of the same number is still a pipe of the call. */
	ck_assert(!furca_output_redirected(&output));
}
END_TEST

START_TEST(redirections_stay)
{
	struct furca_output output = {0};
	struct pipes first, second;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	begin(&output, &first);
	ck_assert_int_eq(dup2(null, 1), 1);
	begin(&output, &second);
	ck_assert(furca_output_redirected(&output));
	ck_assert_int_eq(write(1, "lost", 4), 4);
	ck_assert_int_eq(write(2, "e", 1), 1);
	expect(second.read[0].n, "");
	expect(second.read[1].n, "e");
}
END_TEST

START_TEST(closed_ones_come_back)
{
	struct furca_output output = {0};
	struct pipes first, second;

	begin(&output, &first);
	ck_assert_int_eq(close(1), 0);
	begin(&output, &second);
	ck_assert_int_eq(write(1, "back", 4), 4);
	expect(second.read[0].n, "back");
}
END_TEST

static void add(TCase *cases)
{
	tcase_set_timeout(cases, 4);
	tcase_add_test(cases, moves_to_each_call);
	tcase_add_test(cases, copies_follow);
	tcase_add_test(cases, redirections_stay);
	tcase_add_test(cases, closed_ones_come_back);
}

int main(void)
{
	return furca_test_main("output", add);
}
