/*
 * Stopping all other threads of this process, by a signal, from one of them.
 *
 * The stop signal is 33: libc keeps it for its own setuid broadcast and hides it from sigfillset, sigprocmask and sigaction, so
 * threads that "block everything" are reached all the same and no user code claims it. The handler tells ours by the siginfo and
 * hands libc's on. A stopped thread waits inside the handler, at the gate: its registers lie in the signal frame on its own stack.
 *
 * A thread that does not answer may depend on one that has been stopped (it is in vfork, or creates a thread with all signals
 * blocked): then all go on, and the next attempt allows more time. After the deadline the thread that is to blame is named.
 *
 * A thread may be parked: it stays in the handler when the gate opens, until furca_freeze_unpark. The next freeze finds it there.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "snapshot/thread.h"

#define FURCA_FREEZE_SIGNAL 33

/* Called on a thread that was made again in a clone, on its own stack, before it waits at the gate. Raw calls only. */
typedef void furca_freeze_reborn_fn(struct furca_thread *thread);

/* Sets up the table and the handler; again where somebody (libc's first pthread_create) has taken it. Cheap. 0 or -errno. */
int furca_freeze_init(furca_freeze_reborn_fn *reborn, struct furca_err *err);

/* Threads of this process, the calling one included. Raw. 1 or more, or -errno (no /proc). */
int furca_freeze_count(void);

/*
 * Stops all threads but the calling one, which must have blocked all signals. On 0 nothing but the caller runs in this process
 * until furca_freeze_thaw; raw calls only from then on. Otherwise everybody goes on, *err names the thread that could not be
 * stopped and why, and it is -errno (ETIMEDOUT: no answer until `deadline_us`). A parked thread counts as stopped.
 */
int furca_freeze(int64_t deadline_us, struct furca_err *err);

/*
 * While all stand still: lets the threads that `which` picks run for a moment and stops them again. The others stay where they are, so
 * that many threads that are each in a bad place most of the time come to a good one all the same, one after the other. 0, or
 * -errno with *err: everybody goes on, as furca_freeze. `which` must be async-signal-safe.
 */
int furca_freeze_again(bool (*which)(const struct furca_thread *thread), int64_t deadline_us, struct furca_err *err);

/* The generation of the present freeze: slots whose word is furca_thread_word(it, FURCA_THREAD_FROZEN) stand still. */
uint32_t furca_freeze_generation(void);

/*
 * While all stand still: has every thread that is not parked note the signals that are pending for it (its own and the process's),
 * which nobody else can see as cheaply. `caller` is the calling thread's slot. 0 or -ETIMEDOUT. Raw.
 */
int furca_freeze_roll_call(const struct furca_thread *caller, int64_t deadline_us);

/* Opens the gate. */
void furca_freeze_thaw(void);

/* Lets parked threads run: bits 1 << enum furca_thread_parked. Returns how many. Raw. */
int furca_freeze_unpark(uint32_t which);

/* How many are parked. Raw. */
int furca_freeze_parked(void);

/* In a clone, alone: forgets slots of threads that the clone does not have, and numbers of /proc. */
void furca_freeze_adopt(void);
