/*
 * The interval timers of a process (setitimer, alarm), which the kernel does not hand on to a clone. What is left of them is noted before
 * a clone is made. In a snapshot and in a copy they stand still until it is promoted, or begins its call; then they go on with
 * what was left. Raw calls only.
 */
#pragma once

/* In the process to be cloned. Timers that stand still stay as they were noted. */
void furca_timers_note(void);

/* In the clone, first of these: none of the timers runs here yet. */
void furca_timers_born(void);

/* Sets what stands still; again does nothing. */
void furca_timers_start(void);
