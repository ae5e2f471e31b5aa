/*
 * Cloning the calling process with all its threads, for hosts (langs/) and for any C program.
 *
 * The clone continues where furca_clone was called, with the same memory, the same threads and, in a cell, the same pid and
 * tid numbers. A copy is cut off from the rest of the machine before any of its threads runs again; what it cannot be cut off
 * from is said in the report, and a barrier in `required` that cannot be put up makes the clone fail (fail closed). The caller
 * goes on undisturbed in every case.
 *
 * Three ways, said in the report:
 *   a process with one thread is cloned by the raw system call; nothing is stopped;
 *   one with several has them stopped by a signal, is cloned, and gets every thread again (freeze.h, born.h). In a cell with a pid
 *   namespace each has its old number. Elsewhere the numbers are new and libc is told; locks that name their owner by number
 *   (recursive, error-checking, robust, priority-inheriting, the loader's) are then lost to a thread that holds one, so a
 *   clone is refused where a robust one is held, and a process should rest while it is cloned that way, as a zygote does;
 *   a copy whose threads cannot be made again that way, while they run in the process, is made by libc's fork: its other threads are
 *   gone. The host then owes its runtime what follows a fork (PyOS_AfterFork_Child); after the other two ways it must not do that.
 *
 * A cell that cannot be entered (setns is forbidden) is as none: Landlock and the like serve, where `required` allows.
 *
 * What cannot be cloned (an io_uring ring, a GPU context, a thread in vfork, a debugger, ...; detect.h) is refused with a
 * suggestion. System calls that other threads wait in go on as if nothing had happened, in the process and in the clone; only those
 * with a time limit counted from their start return EINTR (interrupted.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/fd.h"
#include "snapshot/namespaces.h"

enum furca_clone_role {
	FURCA_CLONE_SESSION = 1,   /* a child that lives on: no barriers, new descriptors only where asked */
	FURCA_CLONE_STATELESS = 2, /* a child for one call: no barriers */
	FURCA_CLONE_COPY = 3,	   /* serves one read-only call in a cell, all barriers */
	FURCA_CLONE_SNAPSHOT =
		4, /* parked: no barriers, keeps nothing alive that the session closes, runs no thread until promoted */
	FURCA_CLONE_BRANCH = 5, /* as SESSION, from a session: files reopened, connections cut, generators reseeded */
};

enum furca_barrier {
#define BARRIER(name, bit, word, required, what) FURCA_BARRIER_##name = 1U << (bit),
#include "snapshot/barrier.def"
#undef BARRIER
};
#define FURCA_BARRIERS 8
#define FURCA_BARRIERS_ALL 0xffU

/*
 * The resource limits that may mark processes, so that they are found again; a copy that is in no pid namespace of its own cannot
 * change them. Programs that ask for real-time scheduling lower the first; nobody has a use for the second.
 */
#define FURCA_MARKS                                                                                                    \
	{                                                                                                              \
		RLIMIT_RTTIME, RLIMIT_LOCKS                                                                            \
	}

/* The word and the sentence of the barrier with that bit number (0 … FURCA_BARRIERS - 1); static. */
const char *furca_barrier_word(int bit);
const char *furca_barrier_what(int bit);
/* The bit of a word, or -1. */
int furca_barrier_bit(const char *word, size_t n);
/* The barriers that are required by default. */
unsigned furca_barriers_required(void);

/* How the clone was made; what `isolation.threads` says. */
enum furca_clone_way {
	FURCA_WAY_ALL_THREADS, /* frozen by signal, cloned raw, every thread re-created */
	FURCA_WAY_ONE_THREAD,  /* the process had one thread; nothing to re-create */
	FURCA_WAY_FORK,	       /* libc's fork: other threads are gone in the clone */
};

/*
 * Says whether a thread stays parked in the clone (true) or runs on. `call` is the number of the system call that it waits in, or -1
 * where it does not, or that cannot be told. Called while the world stands still, in the caller and in the clone: must be
 * async-signal-safe and answer alike. Not asked about the caller's thread, nor about threads parked already.
 */
typedef bool furca_park_fn(void *data, uint64_t pthread, long call);

struct furca_clone_args {
	enum furca_clone_role role;
	unsigned barriers; /* to put up (bits of enum furca_barrier); those that cannot are reported as not held */
	unsigned required; /* must hold, else the clone is refused */
	int cell;	   /* borrowed: pidfd of a ready cell's init, which the clone does not have; -1: none */
	const struct furca_namespaces
		*namespaces; /* the cell's, from who made it; NULL: looked up, which takes 40 us */
	const int *keep;     /* descriptors that the clone keeps exactly as they are (its own channels) */
	size_t n_keep;
	const int *drop; /* descriptors that the clone must not have at all (its parent's channels) */
	size_t n_drop;
	furca_park_fn *park; /* NULL: every thread runs on */
	void *park_data;
	bool own_child; /* a child of the caller's own, which its waits and SIGCHLD do not show and which is reaped here: for a process
				   whose parent is none of ours. Otherwise the clone is a child of the caller's parent */
	int64_t timeout_us; /* for stopping the caller's threads; 0: 2 s. The clone then has 5 s to cut itself off */
};

struct furca_clone_report {
	pid_t pid; /* of the clone as the caller's namespace sees it */
	enum furca_clone_way way;
	unsigned held;			       /* barriers that hold */
	const char *mechanism[FURCA_BARRIERS]; /* static words: "clone", "overlayfs", "pid namespace", … or "none" */
	unsigned threads, parked;	       /* threads of the clone, and how many of them are parked */
	int64_t freeze_us, clone_us, isolate_us, thaw_us;
	uint64_t bytes_shared; /* resident bytes at the time of the clone, 0 if not known */
	bool outside;	       /* a cell was given, and could not be used */
};

/*
 * Clones. Returns 1 in the caller (ret_pidfd holds the clone's pidfd; the clone is a child of the caller's *parent*, so
 * that the session's own wait() never sees it, unless own_child says otherwise), 0 in the clone, or -errno in the caller with *err saying what cannot be cloned or
 * which barrier could not be had and what to do about it. Both sides get the report. Bounded; never hangs: a clone that
 * is not complete in time is killed, and the caller's threads go on in any case.
 *
 * The clone starts on the caller's thread with signals as they were. Locks of other threads are held by their owners as before.
 * Not for two threads at once: a second caller waits for the first.
 */
int furca_clone(const struct furca_clone_args *args, struct furca_clone_report *ret, struct furca_fd *ret_pidfd,
		struct furca_err *err);

/*
 * Whether this process holds what no clone can have, as far as is seen at a glance, in some 10 us: mappings of rings and devices, POSIX timers.
 * 0, or -errno with *err saying what it is and what to do, as furca_clone would.
 */
int furca_clone_hindered(struct furca_err *err);

/*
 * Memory that is left out of clones (MADV_DONTFORK), because it is shared with another process: each clone gets zeroed memory of its own there, before any
 * of its threads runs, so that one which was about to look there meets zeros and no fault. For the life of the process and its clones; where the table is
 * full nothing is noted, and false is given. Any thread.
 */
bool furca_clone_blank(const void *at, size_t size);

/*
 * Whether one more task can be made now, by making one that ends at once: true, or false where a limit on processes is reached. Takes
 * some 20 us. Not for two threads at once.
 */
bool furca_clone_possible(void);

/* Sets up the stop signal's handler and learns this machine's features. Call once, early, from the main thread. 0 or -errno. */
int furca_clone_init(struct furca_err *err);

/*
 * In a parked snapshot, on the one thread that runs there: lets the others run; files get the offsets they had when the snapshot was
 * made. Until then that thread serves, and may itself make clones, which have the threads parked or running as their role says. It
 * must not wait for what a parked thread holds; threads are stopped, if at all possible, outside libc and the
 * interpreter's core, so that malloc and the like can be used. 0 or -errno.
 */
int furca_clone_promote(struct furca_err *err);

/* In a copy: its interval timers (setitimer, alarm), which stood still since it was made, go on. A promoted snapshot's do so anyway. */
void furca_clone_start_timers(void);

/* Lets the threads that `park` held back run after all, for instance where the call waits for one of them. Any thread, any time. */
void furca_clone_unpark(void);
