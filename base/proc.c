#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/banned.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

void furca_proc_done(struct furca_proc *proc)
{
	furca_fd_done(&proc->pidfd);
	proc->pid = 0;
}

int furca_proc_spawn(const char *program, char *const argv[], char *const env[],
		     const posix_spawn_file_actions_t *actions, short flags, pid_t *ret)
{
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	(void)posix_spawnattr_init(&attr);
	r = posix_spawnattr_setflags(&attr, (short)(flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
	if (r == 0)
		r = posix_spawnattr_setsigmask(&attr, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(&attr, &all);
	if (r == 0)
		r = posix_spawnp(ret, program, actions, &attr, argv, env);
	(void)posix_spawnattr_destroy(&attr);
	return -r;
}

struct furca_proc furca_proc_take(struct furca_proc *proc)
{
	struct furca_proc taken = *proc;

	*proc = FURCA_PROC_NONE;
	return taken;
}

int furca_proc_open(pid_t pid, struct furca_proc *ret)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */

	if (fd < 0)
		return -errno;
	*ret = (struct furca_proc){pid, furca_fd_own(fd)};
	return 0;
}

pid_t furca_proc_pid_of(int pidfd)
{
	char path[64], text[1024];

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	if (fd.n < 0)
		return -errno;
	ssize_t n = furca_fd_read_full(fd.n, text, sizeof(text) - 1);
	if (n < 0)
		return (pid_t)n;
	text[n] = '\0';
	char *at = strstr(text, "Pid:");
	if (!at)
		return -EBADF;
	long pid = strtol(at + 4, NULL, 10);
	return pid > 0 ? (pid_t)pid : 0;
}

int furca_proc_signal(const struct furca_proc *proc, int sig)
{
	if (syscall(SYS_pidfd_send_signal, proc->pidfd.n, sig, NULL, 0) < 0)
		return -errno;
	return 0;
}

int furca_proc_signal_value(const struct furca_proc *proc, int sig, int value)
{
	siginfo_t info = {.si_signo = sig, .si_code = SI_QUEUE};

	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = value;
	return syscall(SYS_pidfd_send_signal, proc->pidfd.n, sig, &info, 0) < 0 ? -errno : 0;
}

static int as_wait_status(const siginfo_t *info)
{
	if (info->si_code == CLD_EXITED)
		return (info->si_status & 0xff) << 8;
	return info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

int furca_proc_wait(const struct furca_proc *proc, int block, int *ret_status)
{
	siginfo_t info = {0};
	int r;

	do
		r = waitid((idtype_t)P_PIDFD, (id_t)proc->pidfd.n, &info, WEXITED | (block ? 0 : WNOHANG));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (info.si_pid == 0)
		return 0;
	if (ret_status)
		*ret_status = as_wait_status(&info);
	return 1;
}

/* struct pidfd_info of linux/pidfd.h in its first size, which the headers of 2022 do not have. */
struct pidfd_info_0 {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t exit_code;
};
#define PIDFD_GET_INFO_0 _IOWR(0xff, 11, struct pidfd_info_0)
#define PIDFD_HAS_EXIT (1U << 3)

int furca_proc_ended(const struct furca_proc *proc)
{
	struct pidfd_info_0 info = {.mask = PIDFD_HAS_EXIT};

	if (proc->pidfd.n < 0 || ioctl(proc->pidfd.n, PIDFD_GET_INFO_0, &info) < 0 || !(info.mask & PIDFD_HAS_EXIT))
		return -1;
	return info.exit_code;
}

pid_t furca_proc_listed(DIR *proc)
{
	for (struct dirent *e; (e = readdir(proc));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			return (pid_t)strtol(e->d_name, NULL, 10);
	return 0;
}
