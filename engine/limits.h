/*
 * Bounds on processes, and the means to find all of a host's descendants again.
 *
 * Every host gets a tag of its own that its descendants inherit and keep through fork, exec and setsid: an odd value of two
 * resource limits that bound nothing (RLIMIT_RTTIME far beyond any real time, and RLIMIT_LOCKS, which no kernel since 2.6 reads). It needs no privilege and no
 * cgroup. It is there to clean up, not to confine: code can take both off, but for copies without a cell (snapshot/privileges.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct furca_engine;

struct furca_limits {
	uint64_t memory_bytes; /* 0: no bound */
	double cpu_s;
	uint64_t processes, open_files;
};

/* Looks what this machine offers. Once. */
void furca_limits_start(struct furca_engine *engine);

/* Bounds all that the surface init will start, as the configuration says; before it starts anything. */
void furca_limits_bound_all(struct furca_engine *engine);

/* The machine's memory in bytes, what can be had now and all; 0 where it cannot be read. */
void furca_limits_machine(uint64_t *ret_available, uint64_t *ret_total);

/* A tag never used before in this engine. */
uint64_t furca_limits_new_tag(struct furca_engine *engine);

/* 0 or -errno. */
int furca_limits_tag(pid_t pid, uint64_t tag);

/*
 * Ends every process that carries the tag and is no host of the engine. One pass now, others from the loop until none is
 * found. Does not block (a pass reads /proc).
 */
void furca_limits_sweep(struct furca_engine *engine, uint64_t tag);

/*
 * The number that the kernel gave to the newest process or thread of this pid namespace. The same twice: none was made in between,
 * neither here nor in a namespace below. 0 where it cannot be read.
 */
uint64_t furca_limits_newest(struct furca_engine *engine);

/* Threads of a process; 0 where it cannot be read. */
unsigned furca_limits_threads(pid_t pid);

struct furca_host;

/*
 * Bounds a host and what it starts from now on: by a control group where there are any, else by resource limits. The clones of the host
 * are bounded with it. `above`: the limits that it was cloned with, NULL for none: more of one is for an engine that may raise it. 0, or -errno with *err: a
 * bound that was asked for cannot be held here.
 */
int furca_limits_apply(struct furca_host *host, const struct furca_limits *limits, const struct furca_limits *above,
		       struct furca_err *err);

/* One that got a signal; its start is in clock ticks since boot, and where its program's code begins. */
struct furca_signalled {
	pid_t pid;
	unsigned long long start, program;
};

/*
 * Sends `sig` to the processes that the host's code started at `since_us` (furca_now_us) or later, each by pidfd: its
 * descendants, and those whose parents have ended meanwhile unless they have begun a session of their own. Those in
 * `signalled` (an array of struct furca_signalled) get none; those that get one are added to it. Returns how many. Reads /proc.
 */
int furca_limits_signal_children(const struct furca_host *host, int sig, int64_t since_us, struct furca_buf *signalled);

/* Whether a host that ended by SIGKILL was ended for want of memory. */
bool furca_limits_oom(struct furca_engine *engine, const struct furca_host *host);

/* Resident bytes of a process that are of no file; 0 where it cannot be read. Quick. */
uint64_t furca_limits_anonymous(pid_t pid);

/* The tag that a process carries, of whatever engine; 0: none. */
uint64_t furca_limits_tag_of(pid_t pid);

/* Private and shared resident bytes of a process. 0 or -errno. May take a while for large processes without huge pages. */
int furca_limits_memory(pid_t pid, uint64_t *ret_private, uint64_t *ret_shared);
