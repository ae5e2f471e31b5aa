#include "snapshot/task.h"

#include <errno.h>
#include <string.h>

#include "snapshot/raw.h"

#include "base/banned.h"

/* Of the flags in /proc/PID/stat. */
#define PF_IO_WORKER 0x00000010UL
#define PF_USER_WORKER 0x00004000UL

static long read_task(pid_t proc_tid, const char *file, char *buf, long size)
{
	char path[64], *p = furca_raw_text(path, "/proc/self/");

	if (proc_tid) {
		p = furca_raw_text(p, "task/");
		p = furca_raw_decimal(p, (unsigned long)proc_tid);
		p = furca_raw_text(p, "/");
	}
	furca_raw_text(p, file);
	return furca_raw_read_file(path, buf, size);
}

long furca_task_status(pid_t proc_tid, char *buf, long size)
{
	return read_task(proc_tid, "status", buf, size);
}

long furca_task_syscall(pid_t proc_tid, char *buf, long size)
{
	return read_task(proc_tid, "syscall", buf, size);
}

int furca_task_read(pid_t proc_tid, struct furca_task *ret)
{
	char buf[512];
	long n = read_task(proc_tid, "stat", buf, sizeof(buf));

	if (n <= 0)
		return n < 0 ? (int)n : -ESRCH;
	/* The name may hold anything, so the last parenthesis counts. */
	const char *p = strrchr(buf, ')');
	if (!p || p[1] != ' ' || !p[2])
		return -ESRCH;
	ret->state = p[2];
	p += 3;
	/* state is field 3, flags is field 9. */
	for (int field = 3; field < 8; field++) {
		while (*p == ' ')
			p++;
		while (*p && *p != ' ')
			p++;
	}
	ret->kernel_worker = (furca_raw_number(&p, 10) & (PF_IO_WORKER | PF_USER_WORKER)) != 0;
	return 0;
}

bool furca_task_foreign(pid_t pid)
{
	char link[24], own[24];
	long n = furca_raw(SYS_readlinkat, AT_FDCWD, "/proc/self", link, sizeof(link) - 1);

	if (n < 0)
		return true;
	link[n] = '\0';
	furca_raw_decimal(own, (unsigned long)pid);
	return strcmp(link, own) != 0;
}

pid_t furca_task_tid(pid_t proc_tid)
{
	char buf[2048];
	const char *p;
	pid_t tid = 0;

	if (furca_task_status(proc_tid, buf, sizeof(buf)) <= 0 || !(p = furca_raw_after(buf, "\nNSpid:")))
		return 0;
	/* One number for each namespace from /proc's down; ours is the last. */
	while (*p == '\t' || *p == ' ')
		tid = (pid_t)furca_raw_number(&p, 10);
	return tid;
}

static bool blocks(pid_t proc_tid, int sig)
{
	char buf[2048];
	const char *p;

	if (furca_task_status(proc_tid, buf, sizeof(buf)) <= 0 || !(p = furca_raw_after(buf, "\nSigBlk:")))
		return false;
	return furca_raw_number(&p, 16) >> (sig - 1) & 1;
}

void furca_task_explain(pid_t proc_tid, int sig, struct furca_task_blame *ret)
{
	struct furca_task task = {.state = '?'};
	long n = read_task(proc_tid, "comm", ret->name, sizeof(ret->name));

	while (n > 0 && ret->name[n - 1] == '\n')
		n--;
	ret->name[n > 0 ? n : 0] = '\0';
	(void)furca_task_read(proc_tid, &task);
	if (task.kernel_worker) {
		ret->what = "works inside the kernel for io_uring or vhost and cannot be copied";
		ret->suggestion = "Close the io_uring rings of this session before reading it.";
	} else if (task.state == 'D') {
		ret->what = "is in vfork or in an uninterruptible wait of the kernel";
		ret->suggestion =
			"Try again when the program that is being started, or the slow disk operation, is done.";
	} else if (task.state == 'T' || task.state == 't') {
		ret->what = "is stopped, by a debugger or by SIGSTOP";
		ret->suggestion = "Let it go on, or detach the debugger.";
	} else if (blocks(proc_tid, sig)) {
		ret->what = "blocks signal 33, which libc keeps free and furca stops threads with";
		ret->suggestion = "Block signals through libc (pthread_sigmask), not by the raw system call.";
	} else if (task.state == 'R') {
		ret->what = "did not get a processor in time";
		ret->suggestion = "Try again when the machine is less busy.";
	} else {
		ret->what = "did not answer the stop signal";
		ret->suggestion = "Try again; if it stays so, end this thread.";
	}
}
