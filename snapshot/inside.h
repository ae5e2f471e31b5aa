/*
 * Whether a stopped thread may be in the middle of something that the whole process needs: libc's allocator or loader, or the
 * interpreter's own core. A thread that is to be parked there would keep a lock that its clone then waits for; a few microseconds
 * later it has left. Threads that sleep in a system call are no danger, for such locks are not held across one, unless they have
 * been woken already.
 */
#pragma once

#include <stdbool.h>
#include <ucontext.h>

/* Finds where the code of libc, the loader, the program and libpython lies. Ordinary code; once is enough, again does no harm. */
void furca_inside_init(void);

/* Of a thread with that signal frame, while all stand still. Async-signal-safe. */
bool furca_inside(const ucontext_t *frame);
