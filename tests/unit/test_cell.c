/* Cells: what is inside, what stays outside, what is told, and that they end. */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "snapshot/cell.h"
#include "tests/unit/harness.h"
#include "tests/unit/init_client.h"

#include "base/banned.h"

#define ALL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

static char lab[] = "/tmp/furca-cell-XXXXXX";

static void write_file(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", lab, name);
	file = fopen(path, "we");
	ck_assert_msg(file != NULL, "%s", path);
	(void)fputs(text, file);
	(void)fclose(file);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(lab));
	write_file("one", "1\n");
	write_file("two", "2\n");
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/dir", lab);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	write_file("dir/inner", "inner\n");
	ck_assert_int_eq(chdir(lab), 0);
	init_start();
}

static void teardown(void)
{
	init_stop();
	pid_t pid = fork();
	if (pid == 0) {
		(void)execlp("rm", "rm", "-rf", lab, (char *)NULL);
		_exit(127);
	}
	(void)waitpid(pid, NULL, 0);
	(void)memcpy(lab + sizeof(lab) - 7, "XXXXXX", 6);
}

/* Runs a shell script inside the cell; its stdout comes back. Returns the exit status. */
static int in_cell(int pidfd, const char *script, char *text, size_t size)
{
	int out[2], status;

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP;

		if (geteuid() != 0)
			flags |= CLONE_NEWUSER;
		if (setns(pidfd, flags) < 0) {
			perror("setns");
			_exit(126);
		}
		(void)dup2(out[1], 1);
		pid = fork();
		if (pid == 0) {
			if (chdir(lab) < 0)
				_exit(125);
			(void)execl("/bin/sh", "sh", "-c", script, (char *)NULL);
			_exit(127);
		}
		(void)waitpid(pid, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	(void)close(out[1]);
	ssize_t n = furca_fd_read_full(out[0], text, size - 1);
	text[n < 0 ? 0 : n] = '\0';
	(void)close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void cell(unsigned namespaces, struct furca_fd ret[2])
{
	char why[512];

	ck_assert_msg(init_cell(init_control.n, namespaces, false, 64 << 20, ret, why, sizeof(why)), "%s", why);
	ck_assert_int_ge(ret[0].n, 0);
	ck_assert_int_ge(ret[1].n, 0);
}

START_TEST(writes_stay_inside_and_are_told)
{
	struct furca_fd fds[2];
	char text[4096], expect[4096];

	cell(ALL, fds);
	int status = in_cell(
		fds[0].n,
		"set -e; echo new >one; rm two; echo three >three; mkdir d2; echo x >d2/x; echo more >>dir/inner;"
		"cat one dir/inner three; ls",
		text, sizeof(text));
	ck_assert_msg(status == 0, "%d %s", status, text);
	ck_assert_str_eq(text, "new\ninner\nmore\nthree\nd2\ndir\none\nthree\n");
	ck_assert_int_eq(access("two", F_OK), 0);
	ck_assert_int_ne(access("three", F_OK), 0);
	ck_assert_uint_eq(init_changes(fds[1].n, 100, text, sizeof(text)), 6);
	for (int i = 0; i < 6; i++) {
		(void)snprintf(
			expect, sizeof(expect), "%c%s/%s", "MDAAAM" [i], lab,
			(const char *[]) { "one", "two", "three", "d2", "d2/x", "dir/inner" }[i]);
		ck_assert_msg(strstr(text, expect) != NULL, "%s not in %s", expect, text);
	}
	ck_assert_uint_eq(init_changes(fds[1].n, 2, text, sizeof(text)), 6);
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(untouched_and_reopened_files_are_no_change)
{
	struct furca_fd fds[2];
	char text[4096];

	cell(ALL, fds);
	ck_assert_int_eq(in_cell(fds[0].n, "cat one; exec 5<>two; exec 5>&-; : >>one", text, sizeof(text)), 0);
	ck_assert_uint_eq(init_changes(fds[1].n, 100, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "");
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(changes_of_directories_links_and_modes)
{
	struct furca_fd fds[2];
	char text[8192], expect[512];
	static const struct {
		char kind;
		const char *path;
	} want[] = {{'D', "dir"}, {'A', "dir"},	 {'A', "dir/other"}, {'M', "one"},
		    {'D', "two"}, {'A', "link"}, {'A', "pipe"}};

	cell(ALL, fds);
	/* A directory that is removed and made again hides what it held; a name may change its kind. */
	ck_assert_int_eq(
		in_cell(fds[0].n,
			"rm -r dir; mkdir dir; : >dir/other; chmod 600 one; mv two three; ln -s one link; mkfifo pipe;"
			"mkdir -p a/b; rmdir a/b a; ls dir",
			text, sizeof(text)),
		0);
	ck_assert_str_eq(text, "other\n");
	ck_assert_uint_eq(init_changes(fds[1].n, 100, text, sizeof(text)), 8); /* and "three" */
	for (size_t i = 0; i < FURCA_COUNT(want); i++) {
		(void)snprintf(expect, sizeof(expect), "%c%s/%s", want[i].kind, lab, want[i].path);
		ck_assert_msg(strstr(text, expect) != NULL, "%s not in %s", expect, text);
	}
	ck_assert_ptr_null(strstr(text, "/a"));
	furca_fds_done(fds, 2);
}
END_TEST

/* What the engine goes by where it does not ask for the changes: none leaves the mark as it was. Each in a cell of its own. */
START_TEST(each_change_is_marked)
{
	static const struct {
		const char *what;
		bool changes;
	} act[] = {{"cat one; ls -R .", false},
		   {":", false},
		   {": >new", true},
		   {"echo more >>one", true},
		   {": >one", true},
		   {"chmod 600 one", true},
		   {"touch -d @1 one", true},
		   {"rm two", true},
		   {"mv two three", true},
		   {"ln one three", true},
		   {"ln -s one link", true},
		   {"mkfifo pipe", true},
		   {"mkdir new", true},
		   {"rm -r dir", true},
		   {"chmod 700 dir", true},
		   {"mv one two", true},
		   {"touch -r one t; echo 2 >one; touch -r t one; rm t", true},
		   {"touch -r one t; echo 2 >t; touch -r one t; mv t one", true},
		   {"cp -p one t; mv t one", false},
		   {"chmod 700 /", true},
		   {"chmod 700 /dev/shm", true},
		   {"rm dir/inner", true}};

	for (size_t i = 0; i < FURCA_COUNT(act); i++) {
		struct furca_fd fds[2];
		char text[4096];
		uint64_t mark;

		cell(ALL, fds);
		struct furca_upper upper = init_upper(fds[1].n, &mark);
		ck_assert_int_eq(in_cell(fds[0].n, act[i].what, text, sizeof(text)), 0);
		ck_assert_msg(!act[i].changes || furca_upper_mark(&upper) != mark, "%s", act[i].what);
		ck_assert_msg(i > 1 || furca_upper_mark(&upper) == mark, "%s", act[i].what);
		ck_assert_msg((init_changes(fds[1].n, 100, text, sizeof(text)) > 0) == act[i].changes, "%s: %s",
			      act[i].what, text);
		furca_upper_done(&upper);
		furca_fds_done(fds, 2);
	}
}
END_TEST

START_TEST(directories_can_be_renamed)
{
	struct furca_fd fds[2];
	char text[4096];

	cell(ALL, fds);
	ck_assert_int_eq(in_cell(fds[0].n, "mv dir moved && cat moved/inner && ln one hard && echo y >hard && cat one",
				 text, sizeof(text)),
			 0);
	ck_assert_str_eq(text, "inner\ny\n");
	ck_assert_int_eq(access("dir/inner", F_OK), 0);
	(void)init_changes(fds[1].n, 100, text, sizeof(text));
	ck_assert_msg(strstr(text, "moved") && strstr(text, "/dir"), "%s", text);
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(the_cell_has_its_own_proc_dev_and_network)
{
	struct furca_fd fds[2];
	char text[8192];

	cell(ALL, fds);
	int status = in_cell(
		fds[0].n,
		"echo pids: $(ls /proc | grep -c '^[0-9]'); cat /proc/1/comm; ls /dev | tr '\\n' ' ';"
		"echo; cat /proc/net/dev | grep -v lo: | tail -n +3 | wc -l; ls /sys | wc -l;"
		"touch /proc/sys/kernel/x 2>&1 | grep -o 'Read-only\\|denied\\|Permission'; touch /sys/x 2>/dev/null || echo ro;"
		"echo nul >/dev/null && head -c 3 /dev/zero | wc -c; : >/dev/shm/x && echo shm; id -u",
		text, sizeof(text));
	ck_assert_msg(status == 0, "%s", text);
	ck_assert_msg(strstr(text, "furca-init"), "%s", text);
	ck_assert_msg(strstr(text, "null") && !strstr(text, "vda") && strstr(text, "\n0\n"), "%s", text);
	ck_assert_msg(strstr(text, "ro\n3\nshm\n"), "%s", text);
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(path_sockets_lead_nowhere)
{
	struct furca_fd fds[2];
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char text[4096], script[1024];
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/sock", lab);
	ck_assert_int_eq(bind(sock, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(listen(sock, 1), 0);
	cell(ALL, fds);
	(void)snprintf(
		script, sizeof(script),
		"/usr/bin/python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); print(s.connect_ex('%s'))\"",
		name.sun_path);
	ck_assert_int_eq(in_cell(fds[0].n, script, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "111\n");
	(void)close(sock);
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(the_disk_has_a_bound)
{
	struct furca_fd fds[2];
	char text[4096], why[512];

	ck_assert_msg(init_cell(init_control.n, ALL, false, 4 << 20, fds, why, sizeof(why)), "%s", why);
	ck_assert_int_ne(in_cell(fds[0].n, "head -c 16000000 /dev/zero >big 2>/dev/null", text, sizeof(text)), 0);
	ck_assert_int_ne(access("big", F_OK), 0);
	furca_fds_done(fds, 2);
}
END_TEST

static bool gone(const char *pids)
{
	for (int i = 0; i < 200; i++) {
		bool all = true;

		for (const char *at = pids; *at; at = strchrnul(at, ' ')) {
			at += *at == ' ';
			all &= kill((pid_t)strtol(at, NULL, 10), 0) < 0;
		}
		if (all)
			return true;
		(void)usleep(5000);
	}
	return false;
}

START_TEST(one_kill_ends_all_inside)
{
	struct furca_fd fds[2];
	char text[4096];
	struct furca_proc proc;

	cell(ALL, fds);
	ck_assert_int_eq(
		in_cell(fds[0].n, "for i in 1 2 3; do setsid sleep 1000 >&- 2>&- & done; echo ok", text, sizeof(text)),
		0);
	pid_t pid = furca_proc_pid_of(fds[0].n);
	ck_assert_int_gt(pid, 0);
	proc = (struct furca_proc){pid, fds[0]};
	ck_assert_int_eq(furca_proc_signal(&proc, SIGKILL), 0);
	struct furca_frame_view frame = init_next(init_control.n, NULL);
	ck_assert_int_eq(frame.number, FURCA_INIT_EXITED);
	ck_assert_uint_eq(number_of(frame, "pid"), (uint64_t)pid);
	char number[32];
	(void)snprintf(number, sizeof(number), "%d", pid);
	ck_assert(gone(number));
	furca_fds_done(fds, 2);
}
END_TEST

START_TEST(a_cell_makes_cells_below_itself)
{
	struct furca_fd outer[2], inner[2];
	char text[4096], why[512];

	cell(FURCA_BARRIER_PROCESSES, outer); /* a snapshot's: the machine's files, its own numbers */
	ck_assert_msg(init_cell(outer[1].n, ALL, false, 1 << 20, inner, why, sizeof(why)), "%s", why);
	ck_assert_int_eq(in_cell(inner[0].n, "echo x >one; cat one", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "x\n");
	(void)init_changes(inner[1].n, 10, text, sizeof(text));
	ck_assert_msg(strstr(text, "/one"), "%s", text);
	furca_fds_done(inner, 2);
	furca_fds_done(outer, 2);
}
END_TEST

START_TEST(several_at_once)
{
	struct furca_fd fds[8][2];
	char text[256];
	int64_t before = furca_now_us();

	for (int i = 0; i < 8; i++)
		cell(ALL, fds[i]);
	printf("a cell takes %lld us\n", (long long)(furca_now_us() - before) / 8);
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(in_cell(fds[i][0].n, "cat one; echo mine >one", text, sizeof(text)), 0);
		ck_assert_str_eq(text, "1\n");
	}
	for (int i = 0; i < 8; i++)
		furca_fds_done(fds[i], 2);
}
END_TEST

static void add(TCase *all)
{
	tcase_set_timeout(all, 30);
	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, writes_stay_inside_and_are_told);
	tcase_add_test(all, untouched_and_reopened_files_are_no_change);
	tcase_add_test(all, changes_of_directories_links_and_modes);
	tcase_add_test(all, directories_can_be_renamed);
	tcase_add_test(all, each_change_is_marked);
	tcase_add_test(all, the_cell_has_its_own_proc_dev_and_network);
	tcase_add_test(all, path_sockets_lead_nowhere);
	tcase_add_test(all, the_disk_has_a_bound);
	tcase_add_test(all, one_kill_ends_all_inside);
	tcase_add_test(all, a_cell_makes_cells_below_itself);
	tcase_add_test(all, several_at_once);
}

int main(void)
{
	return furca_test_main("cell", add);
}
