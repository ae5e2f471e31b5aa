#include "snapshot/inside.h"

#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include "snapshot/arch.h"

#include "base/banned.h"

#define RANGES_MAX 16

static struct {
	unsigned long begin, end;
} range[RANGES_MAX];
static size_t n_ranges;

static bool concerned(const char *path)
{
	static const char *const prefix[] = {"libc.so", "libc-", "ld-linux", "ld-musl", "libpthread", "libpython"};
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	/* The program itself has no name here. */
	if (!*path)
		return true;
	for (size_t i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++)
		if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
			return true;
	return false;
}

static int add(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	if (!concerned(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && n_ranges < RANGES_MAX; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_LOAD || !(header->p_flags & PF_X))
			continue;
		range[n_ranges].begin = info->dlpi_addr + header->p_vaddr;
		range[n_ranges].end = range[n_ranges].begin + header->p_memsz;
		n_ranges++;
	}
	return 0;
}

void furca_inside_init(void)
{
	if (n_ranges == 0)
		(void)dl_iterate_phdr(add, NULL);
}

/*
 * It sleeps on a futex whose word has changed, so it has been woken and is about to go on. A condition variable that was signalled
 * counts on such a thread leaving: the next but one who signals it waits for that.
 */
static bool is_woken(const ucontext_t *frame)
{
	unsigned long operation = furca_arch_frame_argument(frame, 1) & FUTEX_CMD_MASK;

	if (furca_arch_frame_number(frame) != SYS_futex || (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET))
		return false;
	return *(const volatile uint32_t *)furca_arch_frame_argument(frame, 0) !=
	       (uint32_t)furca_arch_frame_argument(frame, 2);
}

bool furca_inside(const ucontext_t *frame)
{
	unsigned long pc = furca_arch_frame_pc(frame);

	for (size_t i = 0; i < n_ranges; i++) {
		if (pc < range[i].begin || pc >= range[i].end)
			continue;
		/* Put back onto the system call that it slept in, or returned from it with EINTR. */
		if (furca_arch_is_syscall(pc))
			return is_woken(frame);
		return !(furca_arch_frame_result(frame) == -EINTR &&
			 furca_arch_is_syscall(pc - FURCA_ARCH_SYSCALL_LENGTH));
	}
	return false;
}
