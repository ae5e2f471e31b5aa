/*
 * What a clone would not have: kernel objects that are tied to the process or to its memory, and threads that differ from each other
 * in what a clone hands on to all of them. Found before it harms anybody; a refusal says what it is and what to do.
 */
#pragma once

#include "base/err.h"
#include "snapshot/thread.h"

/*
 * Looks at descriptors, mappings, timers and the processor's state of this process. Ordinary code, nothing stands still; takes
 * about 1 us for each descriptor. `threads` is how many there are. 0, or -errno with *err (FURCA_E_CLONE).
 */
int furca_detect_process(int threads, struct furca_err *err);

/*
 * While all threads stand still, the caller's slot filled: notes which signals are pending for each thread, and compares credentials,
 * filters, file table and working directory with the caller's. Raw calls only. As above.
 */
int furca_detect_threads(struct furca_thread *caller, int64_t deadline_us, struct furca_err *err);

/* Whether a thread that stands still holds a robust mutex; such locks name their owner by thread number. Raw. */
bool furca_detect_robust_held(const struct furca_thread *thread);
