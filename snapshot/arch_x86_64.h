/* x86-64; see arch.h. */
#pragma once

#include <stdbool.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* Offsets stand again in arch_x86_64.S. */
struct furca_arch_context {
	unsigned long rbx, rbp, r12, r13, r14, r15, sp, pc;
};

#define FURCA_ARCH_RSEQ_SIGNATURE 0x53053053
#define FURCA_ARCH_SYSCALL_LENGTH 2

/* The kernel wants an SA_RESTORER trampoline here. */
#define FURCA_ARCH_SA_RESTORER 0x04000000
void furca_arch_restorer(void);

static inline long furca_arch_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static inline unsigned long furca_arch_tls(void)
{
	unsigned long value = 0;

	furca_arch_call(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, (long)&value, 0, 0, 0, 0);
	return value;
}

static inline void furca_arch_set_tls(unsigned long value)
{
	furca_arch_call(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, (long)value, 0, 0, 0, 0);
}

static inline unsigned long furca_arch_gs(void)
{
	unsigned long value = 0;

	furca_arch_call(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, (long)&value, 0, 0, 0, 0);
	return value;
}

static inline void furca_arch_set_gs(unsigned long value)
{
	if (value)
		furca_arch_call(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, (long)value, 0, 0, 0, 0);
}

/* A thread on a user shadow stack could not return into its old frames in a clone. */
static inline bool furca_arch_shadow_stack(void)
{
	unsigned long value = 0;

	return furca_arch_call(SYS_arch_prctl, 0x5005 /* ARCH_SHSTK_STATUS */, (long)&value, 0, 0, 0, 0) == 0 && (value & 1);
}

static inline unsigned long furca_arch_frame_pc(const ucontext_t *frame)
{
	return (unsigned long)frame->uc_mcontext.gregs[REG_RIP];
}

static inline unsigned long furca_arch_frame_sp(const ucontext_t *frame)
{
	return (unsigned long)frame->uc_mcontext.gregs[REG_RSP];
}

static inline long furca_arch_frame_result(const ucontext_t *frame)
{
	return (long)frame->uc_mcontext.gregs[REG_RAX];
}

static inline bool furca_arch_is_syscall(unsigned long pc)
{
	const unsigned char *p = (const unsigned char *)pc;

	return p[0] == 0x0f && p[1] == 0x05;
}

/* Makes the frame return onto its system call once more. */
static inline void furca_arch_frame_rewind(ucontext_t *frame, long nr, unsigned long first_argument)
{
	(void)first_argument;
	frame->uc_mcontext.gregs[REG_RAX] = nr;
	frame->uc_mcontext.gregs[REG_RIP] -= FURCA_ARCH_SYSCALL_LENGTH;
}
