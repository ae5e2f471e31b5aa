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

	return furca_arch_call(SYS_arch_prctl, 0x5005 /* ARCH_SHSTK_STATUS */, (long)&value, 0, 0, 0, 0) == 0 &&
	       (value & 1);
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

/* Of a frame whose pc is at the instruction. */
static inline long furca_arch_frame_number(const ucontext_t *frame)
{
	return (long)frame->uc_mcontext.gregs[REG_RAX];
}

/* The first arguments of the call in a frame whose pc is at the instruction: 0 … 2. */
static inline unsigned long furca_arch_frame_argument(const ucontext_t *frame, int i)
{
	return (unsigned long)frame->uc_mcontext.gregs[i == 0 ? REG_RDI : i == 1 ? REG_RSI : REG_RDX];
}

/* Makes such a frame return -EINTR from the call. */
static inline void furca_arch_frame_interrupt(ucontext_t *frame)
{
	frame->uc_mcontext.gregs[REG_RAX] = -4;
	frame->uc_mcontext.gregs[REG_RIP] += FURCA_ARCH_SYSCALL_LENGTH;
}

/*
 * The number is gone from the registers, the arguments are not. Compilers put it there by `mov $number, %eax` right before the
 * instruction, or with one short instruction between that does not touch it.
 */
static inline bool furca_arch_frame_call(const ucontext_t *frame, long *ret_nr, unsigned long ret_argument[6])
{
	static const int order[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
	const unsigned char *p = (const unsigned char *)furca_arch_frame_pc(frame) - FURCA_ARCH_SYSCALL_LENGTH;

	/* mov N(%rsp), %edi or xor $N, %sil */
	if (p[-5] != 0xb8 &&
	    ((p[-4] == 0x8b && p[-3] == 0x7c && p[-2] == 0x24) || (p[-4] == 0x40 && p[-3] == 0x80 && p[-2] == 0xf6)))
		p -= 4;
	if (p[-5] != 0xb8 || p[-1] || p[-2])
		return false;
	*ret_nr = p[-4] | p[-3] << 8;
	for (int i = 0; i < 6; i++)
		ret_argument[i] = (unsigned long)frame->uc_mcontext.gregs[order[i]];
	return true;
}
