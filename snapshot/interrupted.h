/*
 * System calls that the stop signal interrupts. The kernel restarts most of them by itself (SA_RESTART). Some return EINTR all the
 * same: of these, the ones that wait for ever or until a fixed time are put back onto their call, as if nothing had
 * happened. Those with a time from now on (poll, nanosleep, epoll_wait ... with a timeout) do show EINTR, as after any
 * other handled signal, since starting them again would make the wait longer.
 */
#pragma once

#include <sys/types.h>
#include <ucontext.h>

#include "snapshot/thread.h"

/* Before the signal is sent: notes the call that the thread is in. Raw calls only. */
void furca_interrupted_note(struct furca_thread_call *call, pid_t proc_tid);

/* In the handler: rewinds the frame where that call was interrupted and may be started again. Async-signal-safe. */
void furca_interrupted_repair(const struct furca_thread_call *call, ucontext_t *frame);
