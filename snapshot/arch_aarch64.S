/* aarch64; see arch.h. Calling convention: x0 … x4; struct furca_arch_context is x19 … x30, sp, d8 … d15. */
#if defined(__aarch64__)
#define SYS_CLONE 220
#define SYS_CLONE3 435

#define FUNCTION(name) .globl name; .hidden name; .type name, %function; name:
#define END(name) .size name, .-name

	.text
FUNCTION(furca_arch_save)
	stp x19, x20, [x0, #0]
	stp x21, x22, [x0, #16]
	stp x23, x24, [x0, #32]
	stp x25, x26, [x0, #48]
	stp x27, x28, [x0, #64]
	stp x29, x30, [x0, #80]
	mov x1, sp
	str x1, [x0, #96]
	stp d8, d9, [x0, #104]
	stp d10, d11, [x0, #120]
	stp d12, d13, [x0, #136]
	stp d14, d15, [x0, #152]
	mov w0, #0
	ret
END(furca_arch_save)

FUNCTION(furca_arch_jump)
	ldp x19, x20, [x0, #0]
	ldp x21, x22, [x0, #16]
	ldp x23, x24, [x0, #32]
	ldp x25, x26, [x0, #48]
	ldp x27, x28, [x0, #64]
	ldp x29, x30, [x0, #80]
	ldr x2, [x0, #96]
	mov sp, x2
	ldp d8, d9, [x0, #104]
	ldp d10, d11, [x0, #120]
	ldp d12, d13, [x0, #136]
	ldp d14, d15, [x0, #152]
	mov w0, w1
	ret
END(furca_arch_jump)

FUNCTION(furca_arch_clone_at)
	mov x9, x2
	mov x8, #SYS_CLONE3
	svc #0
	cbz x0, 1f
	ret
1:	mov x0, x9
	mov w1, #1
	b furca_arch_jump
END(furca_arch_clone_at)

FUNCTION(furca_arch_clone_at_plain)
	mov x9, x3
	mov x3, x4
	mov x4, x9
	mov x8, #SYS_CLONE
	svc #0
	cbz x0, 1f
	ret
1:	mov x0, x5
	mov w1, #1
	b furca_arch_jump
END(furca_arch_clone_at_plain)

FUNCTION(furca_arch_clone)
	mov x9, x2
	mov x10, x3
	mov x8, #SYS_CLONE3
	svc #0
	cbz x0, 1f
	ret
1:	mov x29, #0
	mov x30, #0
	mov x0, x10
	blr x9
	brk #1
END(furca_arch_clone)

FUNCTION(furca_arch_clone_plain)
	mov x9, x3
	mov x10, x4
	mov x3, #0
	mov x4, #0
	mov x8, #SYS_CLONE
	svc #0
	cbz x0, 1f
	ret
1:	mov x29, #0
	mov x30, #0
	mov x0, x10
	blr x9
	brk #1
END(furca_arch_clone_plain)
#endif
	.section .note.GNU-stack, "", %progbits
