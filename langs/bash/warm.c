/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The first command in a clone takes some hundred copy-on-write faults. A copy that waits for its call takes them in advance:
 * the data of bash and its libraries, the top of its heap, the stack in use. Nothing is lost where the kernel is too old for it.
 */
#include <link.h>
#include <stdint.h>
#include <unistd.h>

#include "base/madvise.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define HEAP_BYTES (512UL << 10)
#define STACK_PAGES 16

static int warm_object(struct dl_phdr_info *object, size_t size, void *data)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t at = (object->dlpi_addr + segment->p_vaddr) & -page;
		uintptr_t end = object->dlpi_addr + segment->p_vaddr + segment->p_memsz;

		if (segment->p_type != PT_LOAD)
			continue;
		if (!(segment->p_flags & PF_W)) { /* fork does not copy the tables of these */
			(void)madvise((void *)at, end - at, MADV_POPULATE_READ);
			continue;
		}
		for (; at < end; at += page) /* one by one: some have been made read-only by the linker */
			(void)madvise((void *)at, page, MADV_POPULATE_WRITE);
	}
	return 0;
}

void furca_bash_warm(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t top = (uintptr_t)sbrk(0), stack = (uintptr_t)&page & -page;
	uintptr_t heap = top > HEAP_BYTES ? (top - HEAP_BYTES) & -page : 0;

	(void)dl_iterate_phdr(warm_object, NULL);
	if (heap)
		for (; heap < top; heap += page) /* the heap may be shorter than that */
			(void)madvise((void *)heap, page, MADV_POPULATE_WRITE);
	(void)madvise((void *)(stack - STACK_PAGES * page), (STACK_PAGES + 1) * page, MADV_POPULATE_WRITE);
}
