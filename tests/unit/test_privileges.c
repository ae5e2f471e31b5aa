/* What a copy may not do any more, in a cell and where no cell can be had; and that required barriers fail closed. */
#include <check.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot/landlock.h"
#include "tests/unit/copy_lab.h"

#include "base/banned.h"

static char text[65536];

#define HAS(what)                                                                                                      \
	do {                                                                                                           \
		if (!strstr(text, what)) {                                                                             \
			dprintf(2, "%s:%d: no '%s' in:\n%s", __FILE__, __LINE__, what, text);                          \
			return __LINE__;                                                                               \
		}                                                                                                      \
	} while (0)

static void status_lines(int out)
{
	static const char *const keys[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp:"};
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0)
				dprintf(out, "%s", line);
	if (file)
		(void)fclose(file);
	dprintf(out, "securebits 0x%x\n", prctl(PR_GET_SECUREBITS));
}

static const char *told(long r)
{
	return r < 0 ? strerror(errno) : "worked";
}

static void tries(int out)
{
	status_lines(out);
	dprintf(out, "keyctl %s\n", told(syscall(SYS_add_key, "user", "furca", "x", 1, KEY_SPEC_SESSION_KEYRING)));
	dprintf(out, "vsock %s\n", told(socket(AF_VSOCK, SOCK_STREAM, 0)));
	dprintf(out, "mount %s\n", told(mount("none", "/tmp", "tmpfs", 0, NULL)));
	dprintf(out, "user namespace %s\n", told(unshare(CLONE_NEWUSER)));
	dprintf(out, "ptrace %s\n", told(ptrace(PTRACE_ATTACH, 1, 0, 0)));
	dprintf(out, "io_uring %s\n", told(syscall(SYS_io_uring_setup, 4, NULL)));
	dprintf(out, "parent %d kill %s\n", getppid(), told(kill(1, SIGKILL)));
	int seen = 0;
	for (int i = 0; i < 64; i++) {
		char link[64];

		(void)snprintf(link, sizeof(link), "/proc/1/fd/%d", i);
		seen += open(link, O_PATH | O_CLOEXEC) >= 0;
	}
	dprintf(out, "init's descriptors %d\n", seen);
	dprintf(out, "init's root %s\n", told(open("/proc/1/root/etc", O_PATH | O_CLOEXEC)));
	dprintf(out, "sysctl %s\n", told(open("/proc/sys/vm/swappiness", O_WRONLY | O_CLOEXEC)));
	pid_t pid = fork(); /* plain fork still works under the filter */
	if (pid == 0)
		_exit(0);
	dprintf(out, "fork %s\n", pid > 0 ? "worked" : "failed");
}

static int in_cell(void)
{
	init_start();
	REQUIRE(lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, true, tries, text, sizeof(text)) == 0);
	HAS("CapInh:\t0000000000000000");
	HAS("CapPrm:\t0000000000000000");
	HAS("CapEff:\t0000000000000000");
	HAS("CapBnd:\t0000000000000000");
	HAS("CapAmb:\t0000000000000000");
	HAS("NoNewPrivs:\t1");
	HAS("Seccomp:\t2");
	HAS("keyctl Operation not permitted\nvsock Address family not supported by protocol\n");
	HAS("mount Operation not permitted\nuser namespace Operation not permitted\nptrace Operation not permitted\n");
	HAS("io_uring Operation not permitted\n");
	HAS("init's descriptors 0\ninit's root Permission denied\nsysctl Read-only file system\nfork worked\n");
	REQUIRE(lab_report.held == (FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS));
	REQUIRE(strcmp(lab_report.mechanism[2], "overlayfs") == 0 &&
		strcmp(lab_report.mechanism[4], "pid namespace") == 0);
	init_stop();
	return 0;
}

static char path[] = "/tmp/furca-alone-XXXXXX";
static int opened;
static pid_t other;

/* The kernel looks at the lower half of an argument that is an int; so must the filter. */
static void more_bits(int out)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	unsigned long more = 1UL << 32;
	int pair[2];

	dprintf(out, "lock %s, and %s\n", told(syscall(SYS_fcntl, opened, F_SETLK, &lock)),
		told(syscall(SYS_fcntl, opened, F_SETLK | more, &lock)));
	dprintf(out, "pair %s, and %s\n", told(syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair)),
		told(syscall(SYS_socketpair, AF_UNIX | more, SOCK_DGRAM, 0, pair)));
}

static void alone_tries(int out)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	status_lines(out);
	dprintf(out, "create %s\n", told(open("/tmp/furca-alone-new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)));
	dprintf(out, "write %s\n", told(open(path, O_WRONLY | O_CLOEXEC)));
	dprintf(out, "unlink %s chmod %s\n", told(unlink(path)), told(chmod(path, 0777)));
	dprintf(out, "opened %s\n", told(write(opened, "copy", 4)));
	dprintf(out, "kill %s\n", told(kill(other, SIGKILL)));
	dprintf(out, "socket %s %s\n", told(socket(AF_INET, SOCK_STREAM, 0)), told(socket(AF_UNIX, SOCK_STREAM, 0)));
	dprintf(out, "null %s\n", told(open("/dev/null", O_WRONLY | O_CLOEXEC)));
	more_bits(out);
	(void)name;
}

static int without_cell(void)
{
	char buf[8] = "";

	if (furca_landlock_abi() < FURCA_LANDLOCK_SCOPE)
		return 0;
	opened = mkostemp(path, O_CLOEXEC);
	REQUIRE(opened >= 0 && write(opened, "real", 4) == 4 && lseek(opened, 0, SEEK_SET) == 0);
	other = fork();
	if (other == 0) {
		(void)pause();
		_exit(0);
	}
	REQUIRE(lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, false, alone_tries, text, sizeof(text)) == 0);
	HAS("NoNewPrivs:\t1");
	HAS("create Permission denied\nwrite Permission denied\nunlink Permission denied chmod Operation not permitted\n");
	HAS("opened worked\nkill Operation not permitted\nsocket Address family not supported by protocol Address family not");
	HAS("null worked\n");
	HAS("lock Operation not permitted, and Operation not permitted\n");
	HAS("pair Operation not permitted, and Operation not permitted\n");
	REQUIRE(pread(opened, buf, 4, 0) == 4 && strcmp(buf, "real") == 0);
	REQUIRE(kill(other, 0) == 0);
	(void)kill(other, SIGKILL);
	(void)unlink(path);
	REQUIRE(strcmp(lab_report.mechanism[2], "landlock") == 0);
	return 0;
}

static void nothing(int out)
{
	dprintf(out, "ran\n");
}

static int fail_closed(void)
{
	struct furca_fd fds[2], pidfd = FURCA_FD_NONE;
	char why[512];
	struct furca_err err = FURCA_ERR_INIT;

	/* A cell for a snapshot has the machine's disk: a copy that requires its own must not be made in it. */
	init_start();
	REQUIRE(init_cell(init_control.n, FURCA_BARRIER_PROCESSES, false, 0, fds, why, sizeof(why)));
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY,
					.barriers = FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES,
					.required = FURCA_BARRIER_DISK,
					.cell = fds[0].n};
	int r = furca_clone(&args, &lab_report, &pidfd, &err);
	if (r == 0)
		_exit(0);
	REQUIRE(r < 0 && err.code == FURCA_E_ISOLATION && strstr(err.text, "disk"));
	furca_fds_done(fds, 2);
	REQUIRE(lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, true, nothing, text, sizeof(text)) == 0);
	HAS("ran");
	init_stop();
	return 0;
}

static void *nap(void *unused)
{
	return unused;
}

/* Whether this process can make threads and children, and its children are where they are to be. */
static int lives(const char *link)
{
	char now[64] = "";
	pthread_t thread;
	int status = 1;

	REQUIRE(readlink("/proc/thread-self/ns/pid_for_children", now, sizeof(now) - 1) > 0 && strcmp(now, link) == 0);
	REQUIRE(pthread_create(&thread, NULL, nap, NULL) == 0 && pthread_join(thread, NULL) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		char own[64] = "";

		_exit(readlink("/proc/self/ns/pid", own, sizeof(own) - 1) > 0 && strcmp(own, link) == 0 ? 0 : 1);
	}
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}

/* The clone is born in the cell's pid namespace; nothing of the caller is to stay there. */
static int namespaces_stay(void)
{
	char link[64] = "";

	REQUIRE(readlink("/proc/thread-self/ns/pid_for_children", link, sizeof(link) - 1) > 0);
	init_start();
	for (int i = 0; i < 3; i++) {
		REQUIRE(lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, true, nothing, text, sizeof(text)) == 0);
		HAS("ran");
		REQUIRE(lives(link) == 0);
	}
	/* A cell that has ended: no clone, and nothing has changed. */
	struct furca_fd fds[2], pidfd = FURCA_FD_NONE;
	char why[512];
	struct furca_err err = FURCA_ERR_INIT;
	REQUIRE(init_cell(init_control.n, FURCA_BARRIER_PROCESSES, false, 0, fds, why, sizeof(why)));
	struct furca_proc cell = {1, fds[0]};
	(void)furca_proc_signal(&cell, SIGKILL);
	(void)usleep(100000);
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY, .cell = fds[0].n};
	int r = furca_clone(&args, &lab_report, &pidfd, &err);
	if (r == 0)
		_exit(0);
	REQUIRE(r < 0 && lives(link) == 0);
	furca_fds_done(fds, 2);
	init_stop();
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"a copy in a cell has no privileges", in_cell},
		{"without a cell landlock and seccomp stand in", without_cell},
		{"required barriers fail closed", fail_closed},
		{"the original's namespaces stay as they are", namespaces_stay},
	};

	return harness_suite("privileges", cases, sizeof(cases) / sizeof(cases[0]));
}
