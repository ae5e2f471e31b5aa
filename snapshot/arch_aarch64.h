/* aarch64; see arch.h. FP/SIMD, SVE and TPIDR2 are in the kernel's signal frame; pointer keys belong to the process. */
#pragma once

#include <stdbool.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* x19 … x30, sp, d8 … d15; offsets stand again in arch_aarch64.S. */
struct furca_arch_context {
	unsigned long x[12], sp, d[8];
};

#define FURCA_ARCH_RSEQ_SIGNATURE 0xd428bc00
#define FURCA_ARCH_SYSCALL_LENGTH 4

static inline long furca_arch_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
}

static inline unsigned long furca_arch_tls(void)
{
	unsigned long value;

	__asm__ volatile("mrs %0, tpidr_el0" : "=r"(value));
	return value;
}

static inline void furca_arch_set_tls(unsigned long value)
{
	__asm__ volatile("msr tpidr_el0, %0" : : "r"(value) : "memory");
}

static inline unsigned long furca_arch_gs(void)
{
	return 0;
}

static inline void furca_arch_set_gs(unsigned long value)
{
	(void)value;
}

/* PR_GET_SHADOW_STACK_STATUS: guarded control stacks, not usable in a clone. */
static inline bool furca_arch_shadow_stack(void)
{
	unsigned long value = 0;

	return furca_arch_call(SYS_prctl, 74, (long)&value, 0, 0, 0, 0) == 0 && (value & 1);
}

static inline unsigned long furca_arch_frame_pc(const ucontext_t *frame)
{
	return (unsigned long)frame->uc_mcontext.pc;
}

static inline unsigned long furca_arch_frame_sp(const ucontext_t *frame)
{
	return (unsigned long)frame->uc_mcontext.sp;
}

static inline long furca_arch_frame_result(const ucontext_t *frame)
{
	return (long)frame->uc_mcontext.regs[0];
}

static inline bool furca_arch_is_syscall(unsigned long pc)
{
	return *(const unsigned int *)pc == 0xd4000001U;
}

static inline void furca_arch_frame_rewind(ucontext_t *frame, long nr, unsigned long first_argument)
{
	frame->uc_mcontext.regs[0] = first_argument;
	frame->uc_mcontext.regs[8] = (unsigned long)nr;
	frame->uc_mcontext.pc -= FURCA_ARCH_SYSCALL_LENGTH;
}

static inline long furca_arch_frame_number(const ucontext_t *frame)
{
	return (long)frame->uc_mcontext.regs[8];
}

static inline unsigned long furca_arch_frame_argument(const ucontext_t *frame, int i)
{
	return (unsigned long)frame->uc_mcontext.regs[i];
}

static inline void furca_arch_frame_interrupt(ucontext_t *frame)
{
	frame->uc_mcontext.regs[0] = (unsigned long)-4;
	frame->uc_mcontext.pc += FURCA_ARCH_SYSCALL_LENGTH;
}

/* The first argument is gone, for the result stands in its register. */
static inline bool furca_arch_frame_call(const ucontext_t *frame, long *ret_nr, unsigned long ret_argument[6])
{
	(void)frame;
	(void)ret_nr;
	(void)ret_argument;
	return false;
}
