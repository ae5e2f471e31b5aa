/*
 * A process with its pidfd. Signals and waits go through the pidfd, never the number, so that a recycled number is never
 * hit. The number serves logs and messages only.
 */
#pragma once

#include <dirent.h>
#include <spawn.h>
#include <sys/types.h>

#include "base/fd.h"

struct furca_proc {
	pid_t pid; /* as this process's pid namespace sees it; 0: none */
	struct furca_fd pidfd;
};

#define FURCA_PROC_NONE ((struct furca_proc){0, {-1}})

/* Closes the pidfd; does not signal or wait. Accepts an empty one. */
void furca_proc_done(struct furca_proc *proc);
struct furca_proc furca_proc_take(struct furca_proc *proc);

#define FURCA_AUTO_PROC FURCA_AUTO(furca_proc_done)

/*
 * posix_spawnp: nothing of this process's threads matters, no signal is blocked in the new one, and each has its default action. `flags`:
 * POSIX_SPAWN_SETSID or POSIX_SPAWN_SETPGROUP. Borrows all. 0 and the child's number, or -errno.
 */
int furca_proc_spawn(const char *program, char *const argv[], char *const env[],
		     const posix_spawn_file_actions_t *actions, short flags, pid_t *ret);

/* Opens the pidfd of `pid`, which must be a child not yet waited for or otherwise known to live. 0 or -errno. */
int furca_proc_open(pid_t pid, struct furca_proc *ret);

/* The pid that a received pidfd stands for, read from fdinfo; 0 where the process is gone, or -errno. */
pid_t furca_proc_pid_of(int pidfd);

/* The next process that a directory stream of /proc lists, by its number; 0: there is none more. */
pid_t furca_proc_listed(DIR *proc);

/* pidfd_send_signal. 0, -ESRCH where it has ended, or -errno. */
int furca_proc_signal(const struct furca_proc *proc, int sig);

/* The same with a number that the handler finds as si_value (and si_code SI_QUEUE). */
int furca_proc_signal_value(const struct furca_proc *proc, int sig, int value);

/*
 * How a process ended that is not our child and that its parent has waited for: a wait status, or -1 where it is not known (it lives, is a zombie still,
 * or the kernel is older than 6.15).
 */
int furca_proc_ended(const struct furca_proc *proc);

/*
 * Waits for a child through its pidfd. Returns 1 and stores a wait status as waitpid(2) gives it, 0 where `block` is 0
 * and it still runs, or -errno (-ECHILD: not our child).
 */
int furca_proc_wait(const struct furca_proc *proc, int block, int *ret_status);
