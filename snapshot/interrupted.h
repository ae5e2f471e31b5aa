/*
 * System calls that the stop signal interrupts. The kernel restarts most of them by itself (SA_RESTART). Some return EINTR all the
 * same: of these, the ones that wait for ever or until a fixed time are put back onto their call, as if nothing had
 * happened. Those with a time from now on (poll, nanosleep, epoll_wait ... with a timeout) do show EINTR, as after any
 * other handled signal, since starting them again would make the wait longer.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <ucontext.h>

#include "snapshot/thread.h"

/*
 * Finds out whether the calls that this libc waits in can be told from its code afterwards, by waiting in each for an instant, which a
 * timer ends with `sig`: the stop signal, whose handler must be in place and call furca_interrupted_learn_one. Some 1 ms, once in a
 * process and its clones; not before there is a second thread, for libc then takes other ways. Where the calls cannot be told (libc
 * 2.41 and later), or that cannot be found out, notes are taken from the start.
 */
void furca_interrupted_learn(int sig);

/* In the handler of the stop signal that a timer has sent. Async-signal-safe. */
void furca_interrupted_learn_one(const ucontext_t *frame);

/*
 * Before the signal is sent: notes the call that the thread is in. That costs 15 us of reading /proc, so it is only done where
 * furca_interrupted_learn found it needed, or where the handler once could not tell the call from the code (there, that one call has
 * shown EINTR). Raw calls only.
 */
void furca_interrupted_note(struct furca_thread_call *call, pid_t proc_tid);

/*
 * In the handler: rewinds the frame where that call was interrupted and may be started again; says whether. Async-signal-safe.
 */
bool furca_interrupted_repair(struct furca_thread_call *call, ucontext_t *frame);

/*
 * The number of the system call that a stopped thread was in when the signal came, whether it is to be made again or has returned EINTR; -1: none,
 * or it cannot be told. In the process and in a clone. Async-signal-safe.
 */
long furca_interrupted_call(const struct furca_thread *thread);

/*
 * In the handler, last: where a signal came meanwhile that the program handles, the call ends with EINTR after all, as that
 * signal would have made it. Async-signal-safe.
 */
void furca_interrupted_release(ucontext_t *frame, bool rewound);
