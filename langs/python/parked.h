/*
 * Python's threads in a copy. Those that sleep or wait for something outside the process when the
 * copy is made stay parked, so that what the session does in the background by the clock does not
 * disturb a look. Those that wait for work inside the process, or compute, live on: the look may
 * need them. Parked ones run after all where the main thread makes no progress.
 *
 * A thread that waits for the GIL is never parked on purpose: who gives the GIL up must be able to
 * wake it. One that came there between note and freeze is freed by the watcher.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Notes which threads are Python's and sleep, before a clone. GIL held. */
void furca_parked_note(void);

/* Whether that thread was noted. Async-signal-safe; a furca_park_fn. */
bool furca_parked_is(void *data, pid_t tid, uint64_t pthread);

/* In a copy with parked threads: code begins to run; a watcher lets them run when the main thread
 * makes no progress. */
void furca_parked_watch(void);
