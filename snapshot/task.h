/* What /proc tells of one thread of this process. Raw calls only; numbers are those that /proc shows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "snapshot/thread.h"

struct furca_task {
	char state;	    /* R S D T t Z X as in proc(5) */
	bool kernel_worker; /* made by the kernel for io_uring or vhost */
};

/* 0 or -errno (it has ended). */
int furca_task_read(pid_t proc_tid, struct furca_task *ret);

/* True where /proc numbers processes by another pid namespace than ours. */
bool furca_task_foreign(pid_t pid);
/* Our number of a thread that /proc knows by another; 0 where it has ended. */
pid_t furca_task_tid(pid_t proc_tid);

/* Reads "status" of a thread into buf, or of the process where proc_tid is 0. The length or -errno. */
long furca_task_status(pid_t proc_tid, char *buf, long size);
/* Reads "syscall". */
long furca_task_syscall(pid_t proc_tid, char *buf, long size);

/* Why a thread does not answer a signal, for people. */
struct furca_task_blame {
	char name[FURCA_THREAD_NAME + 1];
	const char *what, *suggestion; /* "thread 12 (name) <what>" */
};
void furca_task_explain(pid_t proc_tid, int sig, struct furca_task_blame *ret);
