/*
 * The only part of cloning that depends on the processor. An architecture gives arch_NAME.h (inline parts) and arch_NAME.S:
 *
 *   furca_arch_call       a system call that touches neither errno nor TLS; returns -errno as the kernel does
 *   furca_arch_save       "setjmp without libc": 0, and again the value that furca_arch_jump was given
 *   furca_arch_jump       goes on at a saved context on the current kernel thread
 *   furca_arch_clone      clone3 whose child runs fn(arg) on args->stack; fn must not return
 *   furca_arch_clone_plain   clone of the old kind, where a filter refuses clone3: flags (with the exit signal), top of the stack
 *   furca_arch_clone_at   clone3 whose child goes on at a saved context, which returns 1 there
 *   furca_arch_clone_at_plain   the same by the older call: a thread, which needs no stack before it is at its context
 *   furca_arch_tls, _set_tls   the thread pointer; gs: x86's second base, 0 elsewhere
 *   furca_arch_frame_*    the registers in a signal frame: where the thread stood, and putting it back onto its system call
 *   furca_arch_frame_call      the system call that the frame returned from, read from the code before it; false: not readable
 *
 * Everything here is async-signal-safe and may be used while all other threads stand still.
 */
#pragma once

#include <stddef.h>

#if defined(__x86_64__)
#include "snapshot/arch_x86_64.h"
#elif defined(__aarch64__)
#include "snapshot/arch_aarch64.h"
#else
#error "snapshot/: no arch_*.h for this processor"
#endif

struct clone_args;

int furca_arch_save(struct furca_arch_context *context) __attribute__((returns_twice));
void furca_arch_jump(const struct furca_arch_context *context, int value) __attribute__((noreturn));
long furca_arch_clone(struct clone_args *args, size_t size, void (*fn)(void *), void *arg);
long furca_arch_clone_plain(unsigned long flags, void *stack_top, int *ret_pidfd, void (*fn)(void *), void *arg);
long furca_arch_clone_at(struct clone_args *args, size_t size, const struct furca_arch_context *context);
long furca_arch_clone_at_plain(unsigned long flags, void *stack, void *parent_tid, void *child_tid, unsigned long tls,
			       const struct furca_arch_context *context);
