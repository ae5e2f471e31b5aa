/*
 * Python's threads in a copy: they stay parked, so that a look at a session is not disturbed by what the session does in the
 * background; they run after all where the look waits for one of them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Notes which threads are Python's, before a clone. GIL held. */
void furca_parked_note(void);

/* Whether that thread was noted and is not the one that noted. Async-signal-safe; a furca_park_fn. */
bool furca_parked_is(void *data, pid_t tid, uint64_t pthread);

/* In a copy with parked threads, GIL held: settles what a parked thread may have asked of the GIL. */
void furca_parked_settle(void);

/* Code begins to run: where threads are parked, a watcher lets them run when the main thread waits. */
void furca_parked_watch(void);
