/* The init process: spawning, reaping, names, and the end of everything with the control channel. */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/harness.h"
#include "tests/unit/init_client.h"

#include "base/banned.h"

static void pack_texts(msgpack_packer *packer, const char *const *texts)
{
	size_t n = 0;

	while (texts[n])
		n++;
	(void)msgpack_pack_array(packer, n);
	for (size_t i = 0; i < n; i++)
		furca_pack_text(packer, texts[i]);
}

static void spawn(uint64_t call, const char *cwd, const char *const *argv, int host, int capability, int out)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer packer;
	static const char *const env[] = {"PATH=/usr/bin:/bin", "FURCA_TEST=yes", NULL};
	size_t offset = furca_frame_begin(&buf, &packer, FURCA_INIT_SPAWN, call, 3);

	furca_pack_text(&packer, "argv");
	pack_texts(&packer, argv);
	furca_pack_text(&packer, "env");
	pack_texts(&packer, env);
	furca_pack_text(&packer, "cwd");
	furca_pack_text(&packer, cwd);
	ck_assert_int_eq(furca_frame_end(&buf, offset, 3), 0);
	ck_assert_int_eq(furca_frame_send(init_control.n, buf.data, buf.len, (int[]){host, capability, out}, 3), 0);
	furca_buf_done(&buf);
}

static struct furca_frame_view next(struct furca_fd *ret)
{
	struct furca_fd fds[2];
	struct furca_frame_view frame = init_next(init_control.n, fds);

	if (ret)
		*ret = furca_fd_take(&fds[0]);
	furca_fds_done(fds, 2);
	return frame;
}

START_TEST(spawned_program_gets_what_it_was_promised)
{
	int host[2], capability[2], out[2];
	char text[4096] = "";
	static const char *const argv[] = {
		"sh", "-c",
		"echo cwd=$PWD test=$FURCA_TEST fds=$(cd /proc/self/fd; echo *) in=$(readlink /proc/self/fd/0) >&2;"
		"grep -E '^Sig(Blk|Ign)' /proc/self/status >&2; echo hello >&3; read x <&4; exit $x",
		NULL};

	init_start();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, host), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, capability), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	spawn(7, "/usr", argv, host[1], capability[1], out[1]);
	(void)close(host[1]);
	(void)close(capability[1]);
	(void)close(out[1]);

	struct furca_fd pidfd = FURCA_FD_NONE;
	struct furca_frame_view frame = next(&pidfd);
	ck_assert_int_eq(frame.number, FURCA_INIT_SPAWNED);
	ck_assert_uint_eq(frame.call, 7);
	ck_assert_int_ge(pidfd.n, 0);
	uint64_t pid = number_of(frame, "pid");
	ck_assert_int_eq(furca_proc_pid_of(pidfd.n), (int)pid);

	char hello[6] = "";
	ck_assert_int_eq(furca_fd_read_full(host[0], hello, 5), 5);
	ck_assert_str_eq(hello, "hello");
	ck_assert_int_eq(furca_fd_write_all(capability[0], "42\n", 3), 0);
	frame = next(NULL);
	ck_assert_int_eq(frame.number, FURCA_INIT_EXITED);
	ck_assert_uint_eq(frame.call, 0);
	ck_assert_uint_eq(number_of(frame, "pid"), pid);
	ck_assert_uint_eq(number_of(frame, "status"), 42 << 8);
	ck_assert_uint_gt(number_of(frame, "max_rss_bytes"), 0);
	(void)number_of(frame, "cpu_us");

	ck_assert_int_gt(furca_fd_read_full(out[0], text, sizeof(text) - 1), 0);
	ck_assert_msg(strstr(text, "cwd=/usr test=yes") && strstr(text, "in=/dev/null"), "%s", text);
	ck_assert_msg(strstr(text, "fds=0 1 2 3 4"), "%s", text);
	ck_assert_msg(strstr(text, "SigBlk:\t0000000000000000"), "%s", text);
	/* 32 and 33 are libc's own: posix_spawn, by which make starts a test, leaves them ignored, and nobody may set them. */
	const char *ignored = strstr(text, "SigIgn:\t");
	ck_assert_msg(ignored && (strtoull(ignored + 8, NULL, 16) & ~0x180000000ULL) == 0, "%s", text);
	furca_fd_done(&pidfd);
	init_stop();
}
END_TEST

START_TEST(failure_to_spawn_says_why)
{
	static const char *const missing[] = {"/nonexistent/program", NULL}, *const cat[] = {"cat", NULL};
	struct furca_view error;

	init_start();
	spawn(1, "/", missing, 1, 1, 1);
	struct furca_frame_view frame = next(NULL);
	ck_assert_int_eq(frame.number, FURCA_INIT_SPAWNED);
	ck_assert(furca_map_text(frame.body, "error", &error));
	char *text = furca_view_dup(error);
	ck_assert_msg(strstr(text, "/nonexistent/program") && strstr(text, "No such file"), "%s", text);
	free(text);
	spawn(2, "/nonexistent", cat, 1, 1, 1);
	frame = next(NULL);
	ck_assert(furca_map_text(frame.body, "error", &error));
	text = furca_view_dup(error);
	ck_assert_msg(strstr(text, "working directory"), "%s", text);
	free(text);
	init_stop();
}
END_TEST

START_TEST(orphans_are_reaped_and_told)
{
	/* The shell ends at once; its background child goes on and comes to the init. */
	static const char *const argv[] = {"sh", "-c", "(sleep 0.1; exit 3) & exit 0", NULL};
	int statuses = 0;

	init_start();
	spawn(1, "/", argv, 1, 1, 1);
	ck_assert_int_eq(next(NULL).number, FURCA_INIT_SPAWNED);
	for (int i = 0; i < 2; i++)
		statuses += (int)number_of(next(NULL), "status");
	ck_assert_int_eq(statuses, 3 << 8);
	init_stop();
}
END_TEST

START_TEST(everything_ends_with_the_control_channel)
{
	/* Grandchildren in other sessions that ignore signals, some already orphans: all hold the pipe open. */
	static const char *const argv[] = {
		"sh", "-c",
		"trap '' TERM HUP INT; for i in 1 2 3; do setsid sh -c 'sleep 100 & setsid sleep 100 & wait' & done; echo go >&2; wait",
		NULL};
	int out[2];
	char go[3], rest;

	init_start();
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	spawn(1, "/", argv, 1, 1, out[1]);
	(void)close(out[1]);
	ck_assert_int_eq(next(NULL).number, FURCA_INIT_SPAWNED);
	ck_assert_int_eq(furca_fd_read_full(out[0], go, 3), 3);
	(void)usleep(50000);
	int64_t before = furca_now_us();
	init_stop();
	ck_assert_int_eq(furca_fd_read_full(out[0], &rest, 1), 0); /* nobody is left to write */
	ck_assert_int_lt(furca_now_us() - before, 1000000);
}
END_TEST

START_TEST(signals_of_users_do_not_end_it)
{
	char path[64], text[64] = "";

	init_start();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(furca_proc_signal(&init, (int[]){SIGTERM, SIGINT, SIGHUP}[i]), 0);
	(void)usleep(20000);
	ck_assert_int_eq(furca_proc_wait(&init, 0, NULL), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", init.pid);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	ck_assert_int_gt(furca_fd_read_full(fd.n, text, sizeof(text) - 1), 0);
	ck_assert_str_eq(text, "furca-init");
	init_stop();
}
END_TEST

START_TEST(nonsense_ends_it)
{
	int status;

	init_start();
	ck_assert_int_eq(furca_fd_write_all(init_control.n, "nonsense nonsense", 17), 0);
	ck_assert_int_eq(furca_proc_wait(&init, 1, &status), 1);
	furca_fd_done(&init_control);
	furca_proc_done(&init);
}
END_TEST

static void add(TCase *all)
{
	tcase_set_timeout(all, 20);
	tcase_add_test(all, spawned_program_gets_what_it_was_promised);
	tcase_add_test(all, failure_to_spawn_says_why);
	tcase_add_test(all, orphans_are_reaped_and_told);
	tcase_add_test(all, everything_ends_with_the_control_channel);
	tcase_add_test(all, signals_of_users_do_not_end_it);
	tcase_add_test(all, nonsense_ends_it);
}

int main(void)
{
	return furca_test_main("init", add);
}
