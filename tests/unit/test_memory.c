/* Shared mappings in a copy: private, at the same addresses, with the content they had, still shared with the copy's children. */
#include <check.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/copy_lab.h"

#include "base/banned.h"

#define PAGE 4096
#define BIG ((size_t)8 << 20)

static char dir[] = "/tmp/furca-memory-XXXXXX";
static char text[65536];

static char *anon, *big, *file_map, *gone_map, *mem_map, *read_only, *late, *sysv, *shrunk;
static int file_fd, mem_fd;
static sem_t *lock;

static char *map(int fd, size_t size, int prot)
{
	char *at = mmap(NULL, size, prot, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int file(const char *name, size_t size, int flags)
{
	int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0644);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || pwrite(fd, name, strlen(name), 0) < 0)
		return -1;
	if (flags == O_RDWR)
		return fd;
	(void)close(fd);
	return open(name, flags | O_CLOEXEC);
}

static void in_copy(int out)
{
	char buf[16] = "";
	int status;

	dprintf(out, "anon %s big %s %d file %s gone %s mem %s sysv %s\n", anon, big, big[BIG - 1], file_map, gone_map,
		mem_map, sysv);
	(void)memcpy(anon, "ANON", 4);
	(void)memcpy(big, "BIG", 3);
	(void)memcpy(file_map, "FILE", 4);
	(void)memcpy(gone_map, "GONE", 4);
	(void)memcpy(mem_map, "MEM", 3);
	(void)memcpy(sysv, "SYSV", 4);
	/* A mapping and a descriptor of the same file are still one file. */
	ssize_t n = pread(file_fd, buf, 4, 0);
	dprintf(out, "through the descriptor %.*s\n", (int)n, buf);
	n = pread(mem_fd, buf, 3, 0);
	dprintf(out, "through the memfd %.*s\n", (int)n, buf);
	int fd = open("file", O_RDONLY | O_CLOEXEC);
	n = read(fd, buf, 4);
	dprintf(out, "by name %.*s\n", (int)n, buf);
	(void)pwrite(file_fd, "back", 4, 0);
	dprintf(out, "written file %.4s\n", file_map);
	/* Children of the copy share with it. */
	pid_t pid = fork();
	if (pid == 0) {
		(void)memcpy(anon, "kid", 3);
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	dprintf(out, "child wrote %.3s\n", anon);
	dprintf(out, "protect %d\n", mprotect(late, PAGE, PROT_READ | PROT_WRITE));
	late[0] = 'L';
	dprintf(out, "read-only %.9s %d\n", read_only, mprotect(read_only, PAGE, PROT_READ | PROT_WRITE));
	dprintf(out, "shrunk %c\n", shrunk[0]);
	status = sem_trywait(lock);
	dprintf(out, "sem %d %d\n", status, sem_trywait(lock));
}

static int prepare(void)
{
	if (!mkdtemp(dir) || chdir(dir) < 0)
		return __LINE__;
	anon = map(-1, PAGE, PROT_READ | PROT_WRITE);
	big = map(-1, BIG, PROT_READ | PROT_WRITE);
	file_fd = file("file", PAGE, O_RDWR);
	file_map = map(file_fd, PAGE, PROT_READ | PROT_WRITE);
	int fd = file("gone", PAGE, O_RDWR);
	gone_map = map(fd, PAGE, PROT_READ | PROT_WRITE);
	(void)close(fd);
	(void)unlink("gone");
	mem_fd = memfd_create("mem", MFD_CLOEXEC);
	REQUIRE(ftruncate(mem_fd, 2 * PAGE) == 0);
	mem_map = map(mem_fd, 2 * PAGE, PROT_READ | PROT_WRITE);
	late = map(file("late", PAGE, O_RDWR), PAGE, PROT_READ);
	read_only = map(file("read-only", PAGE, O_RDONLY), PAGE, PROT_READ);
	fd = file("shrunk", 3 * PAGE, O_RDWR);
	shrunk = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE);
	REQUIRE(ftruncate(fd, PAGE) == 0);
	(void)close(fd);
	int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	sysv = shmat(id, NULL, 0);
	(void)shmctl(id, IPC_RMID, NULL);
	lock = sem_open("/furca-test-memory", O_CREAT, 0600, 1);
	(void)sem_unlink("/furca-test-memory");
	REQUIRE(anon && big && file_map && gone_map && mem_map && late && read_only && shrunk && sysv != (char *)-1);
	REQUIRE(lock != SEM_FAILED);
	(void)memcpy(anon, "anon", 5);
	(void)memcpy(big, "big", 4);
	big[BIG - 1] = 7;
	(void)memcpy(mem_map, "mem", 4);
	(void)memcpy(sysv, "sysv", 5);
	return 0;
}

static int mappings(void)
{
	int line = prepare(), value;

	if (line)
		return line;
	init_start();
	REQUIRE(lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, true, in_copy, text, sizeof(text)) == 0);
	if (!strstr(text, "anon anon big big 7 file file gone gone mem mem sysv sysv\n") ||
	    !strstr(text, "through the descriptor FILE\nthrough the memfd MEM\nby name FILE\nwritten file back\n") ||
	    !strstr(text, "child wrote kid\nprotect 0\nread-only read-only -1\nshrunk s\nsem 0 -1\n")) {
		dprintf(2, "%s", text);
		return __LINE__;
	}
	REQUIRE(strcmp(anon, "anon") == 0 && strcmp(big, "big") == 0 && strcmp(file_map, "file") == 0);
	REQUIRE(strcmp(gone_map, "gone") == 0 && strcmp(mem_map, "mem") == 0 && strcmp(sysv, "sysv") == 0);
	REQUIRE(strcmp(late, "late") == 0);
	REQUIRE(sem_getvalue(lock, &value) == 0 && value == 1);
	init_stop();
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"mappings are private", mappings},
	};

	return harness_suite("memory", cases, sizeof(cases) / sizeof(cases[0]));
}
