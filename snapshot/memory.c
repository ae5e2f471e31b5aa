#include "snapshot/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "snapshot/maps.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define SMALL_FILE ((uint64_t)1 << 20) /* cheaper to copy than to find */

struct mapping {
	uint64_t start, end, offset, inode;
	dev_t dev;
	int prot;
};

static bool failed(long r)
{
	return r < 0 && r > -4096;
}

/* Shared mappings of devices and of kernel rings. */
static bool is_device(const char *name)
{
	return strncmp(name, "anon_inode:", 11) == 0 || strncmp(name, "socket:", 7) == 0 ||
	       (strncmp(name, "/dev/", 5) == 0 && strncmp(name, "/dev/shm/", 9) != 0 &&
		strncmp(name, "/dev/zero", 9) != 0 && strncmp(name, "/dev/hugepages/", 15) != 0);
}

static long map_at(const struct mapping *m, int flags, int fd)
{
	return furca_raw(SYS_mmap, m->start, m->end - m->start, m->prot, flags | MAP_FIXED, fd, fd < 0 ? 0 : m->offset);
}

/* From a private file that a descriptor of ours stands for. */
static bool from_descriptor(struct furca_memory *memory, const struct mapping *m)
{
	int fd = memory->fds ? furca_fds_find(memory->fds, m->dev, m->inode) : -1;

	return fd >= 0 && !failed(map_at(m, MAP_SHARED, fd));
}

/* From the cell's own copy of a named file, which opening for writing makes. */
static bool from_overlay(struct furca_memory *memory, const struct mapping *m)
{
	struct stat st;
	bool done = false;

	if (!memory->fds || !memory->fds->overlay || memory->name[0] != '/')
		return false;
	/* Looks first: a file that is too large must not be copied up. */
	if (furca_raw(SYS_newfstatat, AT_FDCWD, memory->name, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_ino != m->inode || st.st_size > FURCA_FDS_COPY_UP)
		return false;
	long fd = furca_raw_open(memory->name, O_RDWR);
	if (fd < 0)
		return false;
	done = !failed(map_at(m, MAP_SHARED, (int)fd));
	furca_raw_close(fd);
	return done;
}

/* Memory that processes share, as opposed to a file on a disk, which is as live as the disk. */
static bool is_memory(const char *name)
{
	static const char *const prefix[] = {"/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "/anon_hugepage"};

	for (size_t i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++)
		if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
			return true;
	return !*name;
}

#define WINDOW 256 /* pages asked about at once */

static bool swap_is_used(void)
{
	struct sysinfo info;

	return furca_raw(SYS_sysinfo, &info) < 0 || info.totalswap != info.freeswap;
}

/* Whether only the kernel's cache holds what is in it: a page that is not there has never been written. */
static bool is_all_cached(const struct furca_memory *memory)
{
	return is_memory(memory->name) && !swap_is_used();
}

/* Which pages of a window are in memory; all of them where the kernel does not say. */
static void look_at_window(uint64_t at, uint64_t size, unsigned char there[WINDOW])
{
	if (furca_raw(SYS_mincore, at, size, there) < 0)
		memset(there, 1, WINDOW);
}

static uint64_t existing(const struct mapping *m, bool cached)
{
	unsigned char there[WINDOW];
	uint64_t bytes = 0;

	if (!cached)
		return m->end - m->start;
	for (uint64_t at = m->start; at < m->end; at += WINDOW * 4096) {
		uint64_t size = m->end - at < WINDOW * 4096 ? m->end - at : WINDOW * 4096;

		look_at_window(at, size, there);
		for (uint64_t i = 0; i < size / 4096; i++)
			bytes += there[i] & 1 ? 4096 : 0;
	}
	return bytes;
}

/*
 * Copies through the kernel: a page behind the end of a file that has shrunk gives an error there, not a SIGBUS here. Such pages
 * become zeros. False: one is there, and the kernel does not read it (memfd_secret).
 */
static bool copy_pages(uint64_t to, uint64_t from, uint64_t size)
{
	unsigned char there[WINDOW];
	long self = furca_raw(SYS_getpid);

	for (uint64_t at = 0; at < size;) {
		struct iovec source = {(void *)(from + at), size - at},
			     target = {(void *)(to + at), size - at}; // NOLINT
		long n = furca_raw(SYS_process_vm_readv, self, &target, 1, &source, 1, 0);

		if (n > 0) {
			at += (uint64_t)n;
			continue;
		}
		look_at_window((from + at) & ~4095ULL, 4096, there);
		if (there[0] & 1)
			return false;
		at += 4096 - (at & 4095);
	}
	return true;
}

/* The runs of pages that exist; a hole stays one. */
static bool copy_existing(uint64_t to, const struct mapping *m, bool cached)
{
	unsigned char there[WINDOW];

	if (!cached)
		return copy_pages(to, m->start, m->end - m->start);
	for (uint64_t at = m->start; at < m->end; at += WINDOW * 4096) {
		uint64_t n = (m->end - at < WINDOW * 4096 ? m->end - at : WINDOW * 4096) / 4096;

		look_at_window(at, n * 4096, there);
		for (uint64_t i = 0, run; i < n; i += run) {
			for (run = 1; i + run < n && (there[i + run] & 1) == (there[i] & 1);)
				run++;
			if ((there[i] & 1) && !copy_pages(to + (at - m->start) + i * 4096, at + i * 4096, run * 4096))
				return false;
		}
	}
	return true;
}

static bool from_copy(struct furca_memory *memory, const struct mapping *m)
{
	bool cached = is_all_cached(memory);
	uint64_t size = m->end - m->start, bytes = existing(m, cached);

	memory->unreadable = false;
	if (memory->bytes + bytes > FURCA_MEMORY_COPY)
		return false;
	long copy = furca_raw(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (failed(copy))
		return false;
	if (!(m->prot & PROT_READ))
		furca_raw(SYS_mprotect, m->start, size, PROT_READ);
	memory->unreadable = !copy_existing((uint64_t)copy, m, cached);
	if (memory->unreadable) {
		furca_raw(SYS_munmap, copy, size);
		return false;
	}
	if (m->prot != (PROT_READ | PROT_WRITE))
		furca_raw(SYS_mprotect, copy, size, m->prot);
	if (!failed(furca_raw(SYS_mremap, copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m->start))) {
		memory->bytes += bytes;
		return true;
	}
	furca_raw(SYS_munmap, copy, size);
	return false;
}

static char *hexadecimal(char *to, uint64_t value)
{
	char digits[20];
	int n = 0;

	do
		digits[n++] = "0123456789abcdef"[value & 15];
	while (value >>= 4);
	while (n)
		*to++ = digits[--n];
	*to = '\0';
	return to;
}

/* A private view of the same object, found by the kernel's own link to it (privileged) or by its name. */
static bool from_object(struct furca_memory *memory, const struct mapping *m)
{
	char path[96];
	struct stat st;

	(void)hexadecimal(furca_raw_text(hexadecimal(furca_raw_text(path, "/proc/self/map_files/"), m->start), "-"),
			  m->end);
	long fd = furca_raw_open(path, O_RDONLY);
	if (fd < 0 && memory->name[0] == '/') {
		fd = furca_raw_open(memory->name, O_RDONLY);
		if (fd >= 0 && (furca_raw(SYS_fstat, fd, &st) < 0 || st.st_ino != m->inode)) {
			furca_raw_close(fd);
			return false;
		}
	}
	if (fd < 0)
		return false;
	bool done = !failed(map_at(m, MAP_PRIVATE, (int)fd));
	furca_raw_close(fd);
	return done;
}

static bool skipped(const struct furca_memory *memory, const struct mapping *m)
{
	uint64_t skip = (uint64_t)(uintptr_t)memory->skip;

	return skip && m->start >= skip && m->end <= skip + memory->skip_size;
}

static int privatise(struct furca_memory *memory, const struct mapping *m)
{
	uint64_t size = m->end - m->start;

	if (skipped(memory, m))
		return 0;
	/* What the kernel will never let be written harms nobody. */
	long r = furca_raw(SYS_mprotect, m->start, size, m->prot | PROT_WRITE);
	if (r == -EACCES)
		return 0;
	if (r == -EPERM) { /* mseal: nothing can be put in its place */
		memory->failed_at = m->start;
		return -EPERM;
	}
	if (!(m->prot & PROT_WRITE))
		furca_raw(SYS_mprotect, m->start, size, m->prot);
	memory->copied++;
	if (is_device(memory->name)) {
		if (!failed(map_at(m, MAP_PRIVATE | MAP_ANONYMOUS, -1)))
			return 0;
	} else if (from_descriptor(memory, m) || from_overlay(memory, m)) {
		return 0;
	} else if (is_memory(memory->name)) {
		if (from_copy(memory, m))
			return 0;
		memory->viewed++;
		if (from_object(memory, m))
			return 0;
	} else if ((size <= SMALL_FILE && from_copy(memory, m)) || from_object(memory, m) || from_copy(memory, m)) {
		return 0;
	}
	memory->failed_at = m->start;
	return memory->unreadable ? -EFAULT : -ENOMEM;
}

static int by_query(struct furca_memory *memory, long maps)
{
	uint64_t at = 0;

	for (;;) {
		struct furca_map_query q = {.size = sizeof(q),
					    .flags = FURCA_MAP_SHARED | FURCA_MAP_NEXT,
					    .address = at,
					    .name_size = sizeof(memory->name),
					    .name = (uintptr_t)memory->name};
		memory->name[0] = '\0';
		long r = furca_raw(SYS_ioctl, maps, FURCA_MAP_QUERY, &q);

		if (r == -ENOENT)
			return 0;
		if (r < 0)
			return (int)r;
		struct mapping m = {.start = q.start,
				    .end = q.end,
				    .offset = q.offset,
				    .inode = q.inode,
				    .dev = makedev(q.dev_major, q.dev_minor),
				    .prot = ((q.vma_flags & FURCA_MAP_READABLE) ? PROT_READ : 0) |
					    ((q.vma_flags & FURCA_MAP_WRITABLE) ? PROT_WRITE : 0) |
					    ((q.vma_flags & FURCA_MAP_EXECUTABLE) ? PROT_EXEC : 0)};
		r = privatise(memory, &m);
		if (r < 0)
			return (int)r;
		at = q.end;
	}
}

/* "7f00-7f01 rw-s 00000000 00:01 123   name", of which only shared ones matter. */
static bool parse_line(struct furca_memory *memory, const char *line, struct mapping *m)
{
	const char *at = line;

	m->start = furca_raw_number(&at, 16);
	at++;
	m->end = furca_raw_number(&at, 16);
	const char *mode = at + 1;
	if (mode[3] != 's')
		return false;
	m->prot =
		(mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) | (mode[2] == 'x' ? PROT_EXEC : 0);
	at = mode + 4;
	m->offset = furca_raw_number(&at, 16);
	unsigned long major_n = furca_raw_number(&at, 16);
	at++;
	unsigned long minor_n = furca_raw_number(&at, 16);
	m->dev = makedev(major_n, minor_n);
	m->inode = furca_raw_number(&at, 10);
	while (*at == ' ')
		at++;
	size_t n = strlen(at);
	if (n >= sizeof(memory->name))
		n = 0;
	memcpy(memory->name, at, n);
	memory->name[n] = '\0';
	return true;
}

/* Older kernels: the whole list. It is read anew after each change, from behind the mapping that was changed. */
static int by_list(struct furca_memory *memory, long maps)
{
	size_t have = 0;
	uint64_t done = 0;
	long n;

	while ((n = furca_raw(SYS_read, maps, memory->text + have, sizeof(memory->text) - 1 - have)) > 0) {
		char *line = memory->text, *end;

		have += (size_t)n;
		while ((end = memchr(line, '\n', have - (size_t)(line - memory->text)))) {
			struct mapping m;

			*end = '\0';
			if (parse_line(memory, line, &m) && m.start >= done) {
				int r = privatise(memory, &m);

				if (r < 0)
					return r;
				done = m.end;
			}
			line = end + 1;
		}
		have -= (size_t)(line - memory->text);
		memmove(memory->text, line, have);
	}
	return (int)n;
}

int furca_memory_privatise(struct furca_memory *memory)
{
	long maps = furca_raw_open("/proc/self/maps", O_RDONLY);

	if (maps < 0)
		return (int)maps;
	int r = by_query(memory, maps);
	if (r == -ENOTTY || r == -EINVAL) {
		furca_raw(SYS_lseek, maps, 0, SEEK_SET);
		r = by_list(memory, maps);
	}
	furca_raw_close(maps);
	return r;
}
