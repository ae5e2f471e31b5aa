/*
 * The threads of this process while they stand still, one slot each: what the kernel keeps for a thread and does not hand on to a
 * clone, and the making of the thread again in the clone. The registers, the vector state, the signal mask and the alternate
 * stack are in the signal frame on the thread's own stack; a slot has what is not.
 *
 * A slot's word holds its generation and its state in one, so that each side changes both at once: a generation is one attempt
 * to stop the process. The table lies in memory of its own, so that a clone carries it along.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucontext.h>

#include "snapshot/arch.h"

#define FURCA_THREADS_MAX 8192
#define FURCA_THREAD_NAME 16

enum furca_thread_state {
	FURCA_THREAD_FREE,    /* slot unused */
	FURCA_THREAD_TAKEN,   /* being filled by the thread that stops the others */
	FURCA_THREAD_CALLED,  /* the stop signal was sent */
	FURCA_THREAD_ARRIVED, /* the thread is in the handler and fills its slot */
	FURCA_THREAD_FROZEN,  /* the thread waits at the gate or is parked */
};

enum furca_thread_parked {
	FURCA_THREAD_RUNS,
	FURCA_THREAD_HELD,	/* by the caller's policy; clones of this process keep it so */
	FURCA_THREAD_SUSPENDED, /* in a snapshot; a copy made of it decides anew */
};

/* struct sched_attr, version 1; libc has no such type before 2.41. */
struct furca_thread_sched {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t util_min, util_max;
};

/* The system call that a thread was in before the stop signal reached it; nr < 0: none or not known. */
struct furca_thread_call {
	long nr;
	unsigned long argument[6], sp, pc;
};

/* What clone() gives a new thread as its maker has it, and what must therefore be the same for all. */
struct furca_thread_credentials {
	uid_t uid[4]; /* real, effective, saved, file system */
	gid_t gid[4];
	uint32_t effective[2], permitted[2];
	int32_t no_new_privs, seccomp;
};

struct furca_thread {
	struct furca_arch_context context; /* where the thread goes on in a clone */
	uint64_t word;			   /* generation << 8 | state */
	uint32_t parked;		   /* futex: enum furca_thread_parked; not 0, stays when the gate opens */
	uint32_t scan;			   /* pass of the census that last saw it */
	uint32_t released;		   /* 1: leaves the gate although it is shut; see furca_freeze_again */
	pid_t tid, proc_tid; /* its number here, and in /proc (another where /proc is an outer namespace's) */
	unsigned long tls, gs;
	uint32_t *clear_tid; /* the kernel clears and wakes it at the thread's end */
	void *robust;
	size_t robust_size;
	void *rseq;
	uint32_t rseq_size;
	uint32_t affinity_size;
	uint64_t pending; /* signals sent to it and not delivered yet */
	stack_t altstack; /* of the caller, which has no signal frame */
	struct furca_thread_call call;
	void *frame; /* ucontext_t of its signal frame; NULL for the caller */
	unsigned long timer_slack;
	long io_priority;
	char name[FURCA_THREAD_NAME];
	struct furca_thread_credentials credentials;
	struct furca_thread_sched sched;
	unsigned long affinity[16]; /* 1024 processors */
};

static inline uint64_t furca_thread_word(uint32_t generation, enum furca_thread_state state)
{
	return (uint64_t)generation << 8 | (uint64_t)state;
}

static inline uint32_t furca_thread_generation(uint64_t word)
{
	return (uint32_t)(word >> 8);
}

static inline enum furca_thread_state furca_thread_state(uint64_t word)
{
	return (enum furca_thread_state)(word & 0xff);
}

/* Reserves the table, once. 0 or -errno. */
int furca_threads_init(void);

/* The slot with that index; slots from furca_threads_high() on were never used. */
struct furca_thread *furca_threads_at(uint32_t index);
uint32_t furca_threads_high(void);
uint32_t furca_threads_index(const struct furca_thread *thread);

/* Takes a free slot for the caller of furca_clone or for a thread to be called; one at a time. NULL: all are used. */
struct furca_thread *furca_threads_take(uint64_t word);

/* The pthread_t of a thread, by its thread pointer. */
uint64_t furca_thread_pthread(const struct furca_thread *thread);

/* Notes what the kernel keeps of the calling thread. Raw calls only. */
void furca_thread_record(struct furca_thread *thread);

/*
 * In the clone, from its first thread: makes the thread again, going on at its context. With `keep_tid` it gets the number that
 * it has in the slot, otherwise a new one, which is written to the slot and to where libc keeps it. 0 or -errno.
 */
int furca_thread_spawn(struct furca_thread *thread, bool keep_tid);

/* In the clone: the calling (first) thread becomes this one, which was the main thread. `caller` is whose state it was cloned with. */
void furca_thread_become(struct furca_thread *thread, const struct furca_thread *caller, bool keep_tid)
	__attribute__((noreturn));

/*
 * In the clone, first thing on a thread that was made again: gives it back its robust list (but `later`: a snapshot's
 * threads get theirs when they run), rseq area, name, scheduling and affinity where they differ from `first`'s (NULL: all
 * as they were), and the signals that it had not seen yet.
 */
void furca_thread_restore(struct furca_thread *thread, const struct furca_thread *first, bool later);

/* Registers the robust list. */
void furca_thread_restore_robust(const struct furca_thread *thread);
