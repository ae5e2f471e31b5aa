/*
 * Python's threads in a copy. Those that sleep or wait for something outside the process when the
 * copy is made stay parked, so that what the session does in the background by the clock does not
 * disturb a look. Those that wait for work inside the process, or compute, live on: the look may
 * need them. Parked ones run after all where the main thread makes no progress.
 *
 * A thread that waits for the GIL is never parked in a copy: where it has asked for the GIL, who gives
 * it up waits until that thread has it. In a snapshot, where all threads are parked, no Python code
 * may run therefore, nor the GIL be given up.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Notes which threads are Python's, before a clone; clones have the note. GIL held. */
void furca_parked_note(void);

/* Whether that thread was noted, and sleeps outside the process in that call. Async-signal-safe; a furca_park_fn. */
bool furca_parked_is(void *data, uint64_t pthread, long call);

/* In a copy with parked threads: code begins to run; a watcher lets them run when the main thread
 * makes no progress. */
void furca_parked_watch(void);
