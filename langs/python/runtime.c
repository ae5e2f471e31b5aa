#include "langs/python/runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/banned.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define REGION                                                                                                         \
	((size_t)64 << 20) /* address space taken at a time; memory comes as it is touched  \
				   */
#define ARENA_SIZES 2	   /* 256 KiB until 3.9, 1 MiB later; anything else is not an arena */

/* As in CPython's objimpl.h, unchanged since 3.4. */
struct arena_allocator {
	void *ctx;
	void *(*alloc)(void *ctx, size_t size);
	void (*free)(void *ctx, void *ptr, size_t size);
};

struct free_arena {
	struct free_arena *next;
};

static struct arena_allocator own; /* the interpreter's own, for other sizes and for arenas made before us */
static struct {
	pthread_mutex_t lock; /* without a GIL, arenas are asked for by several threads */
	char *at, *end;	      /* what is left of the newest region */
	struct free_arena *freed[ARENA_SIZES];
	char *region[4096]; /* to tell our arenas from others */
	size_t regions;
} arenas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const size_t arena_size[ARENA_SIZES] = {(size_t)256 << 10, (size_t)1 << 20};

static int size_class(size_t size)
{
	for (int i = 0; i < ARENA_SIZES; i++)
		if (arena_size[i] == size)
			return i;
	return -1;
}

static bool region_add(void)
{
	size_t length = REGION + HUGE_PAGE;
	char *map, *begin;

	if (arenas.regions == sizeof(arenas.region) / sizeof(arenas.region[0]))
		return false;
	map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return false;
	begin = (char *)(((uintptr_t)map + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	if (begin > map)
		(void)munmap(map, (size_t)(begin - map));
	if (map + length > begin + REGION)
		(void)munmap(begin + REGION, (size_t)(map + length - begin - REGION));
	(void)madvise(begin, REGION, MADV_HUGEPAGE); /* where the kernel refuses, small pages serve */
	arenas.region[arenas.regions++] = begin;
	arenas.at = begin;
	arenas.end = begin + REGION;
	return true;
}

static bool is_ours(const char *ptr)
{
	for (size_t i = arenas.regions; i-- > 0;)
		if (ptr >= arenas.region[i] && ptr < arenas.region[i] + REGION)
			return true;
	return false;
}

static void *arena_alloc(void *ctx, size_t size)
{
	int class = size_class(size);
	void *ptr = NULL;

	if (class < 0)
		return own.alloc(own.ctx, size);
	(void)pthread_mutex_lock(&arenas.lock);
	if (arenas.freed[class]) {
		ptr = arenas.freed[class];
		arenas.freed[class] = arenas.freed[class]->next;
	} else if ((size_t)(arenas.end - arenas.at) >= size || region_add()) {
		ptr = arenas.at;
		arenas.at += size;
	}
	(void)pthread_mutex_unlock(&arenas.lock);
	return ptr ? ptr : own.alloc(own.ctx, size);
}

static void arena_free(void *ctx, void *ptr, size_t size)
{
	int class = size_class(size);
	struct free_arena *arena = ptr;

	(void)pthread_mutex_lock(&arenas.lock);
	if (class >= 0 && is_ours(ptr)) {
		/* The memory goes back to the system but for the page that links the list. */
		(void)madvise((char *)ptr + 4096, size - 4096, MADV_DONTNEED);
		arena->next = arenas.freed[class];
		arenas.freed[class] = arena;
		ptr = NULL;
	}
	(void)pthread_mutex_unlock(&arenas.lock);
	if (ptr)
		own.free(own.ctx, ptr, size);
}

void furca_runtime_arenas(void)
{
	void (*get)(struct arena_allocator *) = NULL;
	void (*set)(struct arena_allocator *) = NULL;
	struct arena_allocator ours = {.alloc = arena_alloc, .free = arena_free};
	const char *wanted = getenv("FURCA_HUGE_PAGES");

	if (wanted && !strcmp(wanted, "0"))
		return;
	*(void **)&get = dlsym(RTLD_DEFAULT, "PyObject_GetArenaAllocator");
	*(void **)&set = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
	if (!get || !set || own.alloc)
		return;
	get(&own);
	set(&ours);
}

static void (*flush_streams)(void);

/* The events of Python's library after which another process may write to the same descriptors. */
static int on_audit(const char *event, PyObject *args, void *data)
{
	static const char *const forks[] = {"os.fork",	 "os.forkpty", "os.posix_spawn",   "os.spawn",
					    "os.system", "os.exec",    "subprocess.Popen", NULL};

	(void)args;
	(void)data;
	if (event[0] != 'o' && event[0] != 's')
		return 0;
	for (int i = 0; forks[i]; i++)
		if (!strcmp(event, forks[i])) {
			flush_streams();
			break;
		}
	return 0;
}

void furca_runtime_watch_forks(void (*flush)(void))
{
	int (*add)(int (*hook)(const char *, PyObject *, void *), void *) = NULL;

	*(void **)&add = dlsym(RTLD_DEFAULT, "PySys_AddAuditHook");
	flush_streams = flush;
	if (add && add(on_audit, NULL) < 0)
		PyErr_Clear();
}

static int names_openssl(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	return info->dlpi_name && strstr(info->dlpi_name, "libcrypto") != NULL;
}

/* Without the search through files that dlopen makes for a library that is not loaded. */
static bool has_openssl(void)
{
	return dl_iterate_phdr(names_openssl, NULL) != 0;
}

void furca_runtime_prepare_openssl(void)
{
	static bool done;
	void *library = done || !has_openssl() ? NULL : dlopen("libcrypto.so.3", RTLD_NOLOAD | RTLD_LAZY);

	if (!library)
		return;
	done = true;
	(void)dlclose(library);
	furca_runtime_reseed_openssl();
}

void furca_runtime_reseed_openssl(void)
{
	static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};
	unsigned char fresh[32];

	if (!has_openssl())
		return;
	for (int i = 0; names[i]; i++) {
		void *library = dlopen(names[i], RTLD_NOLOAD | RTLD_LAZY);
		void (*add)(const void *, int, double) = NULL;

		if (!library)
			continue;
		*(void **)&add = dlsym(library, "RAND_add");
		if (add && getrandom(fresh, sizeof(fresh), 0) == (ssize_t)sizeof(fresh))
			add(fresh, sizeof(fresh), sizeof(fresh));
		(void)dlclose(library);
	}
}
