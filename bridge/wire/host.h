/*
 * The frames between the engine and a host: the program inside a session's process (langs/). Each process image has a
 * control channel of its own (a SOCK_STREAM socketpair, nobody else holds the other end) and a capability socket of its own;
 * both are hidden from user code at high numbers and close-on-exec. A clone gets new ones with CLONE; it never uses its parent's.
 *
 * Fields are map entries [name: type]; missing and nil are the same; unknown ones are ignored. Times are microseconds.
 * A host answers each RUN with one DONE, each CLONE with one CLONED, each INSPECT with one INSPECTED, carrying the same
 * `call`. It reads one message at a time and may find the next already there (the engine pipelines RUN behind CLONE).
 *
 * TO_HOST
 *   RUN       code: str                  UTF-8; for bash without NUL
 *             label: str                 names the code in tracebacks: "3" gives <call 3>
 *             cwd: str?  env: {str: str|nil}?   applied before the code (nil unsets)
 *             read_only: bool            tells code so; the copy's barriers do the work
 *             faults: uint?              tell PAGES if the code takes more page faults than that
 *             max_result: uint  max_text: uint   bytes of `result` and `result_text`
 *             function: {name: str, source: str, capabilities: [str]?, args: array, kwargs: map}?   instead of code
 *             frames: str?               `result` may hold arrays and frames (ext 3), with their memory beside DONE; for a reader that has these
 *                                        versions, written as in ext 3
 *             descriptors: [stdout, stderr]   write ends of this call's own pipes; or none: the last call's stay,
 *                                             which nobody else holds; then [memory], that of arrays in `function`'s arguments.
 *                                             A host that has taken a signal since the last call answers "pipes" and has run
 *                                             nothing: send it again with new ones
 *   CLONE     role: uint                 enum furca_clone_role
 *             barriers: uint  required: uint   bits of enum furca_barrier: what to put up, what must hold
 *             label: str                 for the process's name in ps
 *             hot: bool?                 the snapshot of a session: it is to take the page faults that commits bring while it is idle
 *             huge: bool?                and memory allows that it joins huge pages again while it is idle
 *             namespaces: bin?           of that cell, as its CELL_READY has it
 *             descriptors: [control, capability] or [control, capability, cell]   `cell`: pidfd of a cell's init
 *   PROMOTE   (no fields)                parked snapshot: become the live process; answer READY
 *   INSPECT   detail: str  name: str?
 *   CLOSE     (no fields)                run EXIT traps and atexit, then end with status 0
 *   ATTACH    (no fields)                first message to a process that attached itself (attach_session): descriptors: [capability].
 *                                        It gets RUN, with pipes always, CLONE of role COPY, and CLOSE: let the engine go; no others
 *   WARM      pages: map (of PAGES)        parked copy: take these faults before the next RUN; no answer
 *
 * FROM_HOST
 *   READY     pid: uint (its own view)  language: str  version: str
 *   DONE      how: str                   ok exception exit interrupted pipes refused full; bash also: errexit fatal syntax signal exec
 *             exit_code: int             as the result map has it
 *             error: str?                for a model: user frames only
 *             suggestion: str?
 *             raised: {type: str, message: str, suggestion: str?, frames: str?}?   the exception that ended a function, for who called it; `frames`:
 *                                        the arrays among its arguments could not be read, so that nothing ran: the versions that are here
 *             result: any?               plain and within max_result, else missing
 *             unsent: str?               why it is missing, of a RUN with `frames`
 *             result_text: str?  result_text_cut: uint   bytes left out of it
 *             display: [map]?
 *             changes: {added: [str], rebound: [str], deleted: [str], count: uint}?
 *             changed: bool              false: nothing in memory differs from before the call, so no commit is due
 *             hindrance: str?  remedy: str?   why no snapshot of what changed can be made, and what to do about it
 *             redirected: bool           stdout or stderr lead elsewhere now (exec >file), kept for later calls
 *             run_us: uint
 *             pages: bool?               PAGES follows
 *             descriptors: [memory] of the arrays in `result`, or none
 *   CLONED    pid: uint?  error: str?  suggestion: str?  stage: str?   either pid and a descriptor, or error; stage: what
 *                                        hinders it, the "process" itself or a "barrier"
 *             isolation: {str: str}      guarantee -> mechanism or "none", for a copy
 *             freeze_us clone_us isolate_us: uint  bytes_shared: uint  threads: uint
 *             outside: bool              of the cell that CLONE brought, which could not be used
 *             descriptors: [pidfd] of the clone, none with error
 *   INSPECTED state: any                 as inspect_session has it
 *   PAGES     written: bin  mapped: bin  lists of snapshot/pages.h, of a RUN with `faults` that took more
 */
#pragma once

#include <stdint.h>

/* Where a host finds its channels when it is started (not cloned). */
#define FURCA_HOST_CONTROL_FD 3
#define FURCA_HOST_CAPABILITY_FD 4

/*
 * The signal that interrupts a call (a number: SIGRTMIN differs between C libraries). Its si_value says which one. A host ignores those
 * for calls that have ended; one for a call that has not begun ends it before its first line.
 */
#define FURCA_HOST_INTERRUPT 58

static inline int furca_host_interrupt_value(uint64_t call)
{
	return (int)(call & 0x7fffffff);
}

/* DONE's `how` where the host wants pipes of this call's own. */
#define FURCA_HOST_HOW_PIPES "pipes"

/* DONE's `how` where what came with the code does not fit the process (cwd, env, a function's names): no code ran, and nothing has changed. */
#define FURCA_HOST_HOW_REFUSED "refused"

/* Or it can hold no descriptor more: likewise. */
#define FURCA_HOST_HOW_FULL "full"

/* Hosts move what must survive below user code's feet here or above. */
#define FURCA_HIDDEN_FD 900

/* Descriptors that a host has beyond what its code may have: a message's, and those that a clone opens on its way, twice. */
#define FURCA_HOST_FILES 128
