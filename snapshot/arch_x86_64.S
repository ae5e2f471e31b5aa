/* x86-64; see arch.h. Calling convention: rdi, rsi, rdx, rcx, r8; struct furca_arch_context is 8 words. */
#if defined(__x86_64__)
#define SYS_CLONE 56
#define SYS_CLONE3 435
#define SYS_RT_SIGRETURN 15

#define FUNCTION(name) .globl name; .hidden name; .type name, @function; name:
#define END(name) .size name, .-name

	.text
FUNCTION(furca_arch_save)
	mov %rbx, 0(%rdi)
	mov %rbp, 8(%rdi)
	mov %r12, 16(%rdi)
	mov %r13, 24(%rdi)
	mov %r14, 32(%rdi)
	mov %r15, 40(%rdi)
	lea 8(%rsp), %rdx
	mov %rdx, 48(%rdi)
	mov (%rsp), %rdx
	mov %rdx, 56(%rdi)
	xor %eax, %eax
	ret
END(furca_arch_save)

FUNCTION(furca_arch_jump)
	mov 0(%rdi), %rbx
	mov 8(%rdi), %rbp
	mov 16(%rdi), %r12
	mov 24(%rdi), %r13
	mov 32(%rdi), %r14
	mov 40(%rdi), %r15
	mov 48(%rdi), %rsp
	mov %esi, %eax
	jmp *56(%rdi)
END(furca_arch_jump)

FUNCTION(furca_arch_clone_at)
	mov %rdx, %r8
	mov $SYS_CLONE3, %eax
	syscall
	test %rax, %rax
	jz 1f
	ret
1:	mov %r8, %rdi
	mov $1, %esi
	jmp furca_arch_jump
END(furca_arch_clone_at)

FUNCTION(furca_arch_clone_at_plain)
	mov %rcx, %r10
	mov $SYS_CLONE, %eax
	syscall
	test %rax, %rax
	jz 1f
	ret
1:	mov %r9, %rdi
	mov $1, %esi
	jmp furca_arch_jump
END(furca_arch_clone_at_plain)

FUNCTION(furca_arch_clone)
	mov %rdx, %r8
	mov %rcx, %r9
	mov $SYS_CLONE3, %eax
	syscall
	test %rax, %rax
	jz 1f
	ret
1:	xor %ebp, %ebp
	and $-16, %rsp
	mov %r9, %rdi
	call *%r8
	hlt
END(furca_arch_clone)

FUNCTION(furca_arch_clone_plain)
	mov %rcx, %r9
	xor %r10d, %r10d
	mov $SYS_CLONE, %eax
	syscall
	test %rax, %rax
	jz 1f
	ret
1:	xor %ebp, %ebp
	and $-16, %rsp
	mov %r8, %rdi
	call *%r9
	hlt
END(furca_arch_clone_plain)

FUNCTION(furca_arch_restorer)
	mov $SYS_RT_SIGRETURN, %eax
	syscall
END(furca_arch_restorer)
#endif
	.section .note.GNU-stack, "", %progbits
