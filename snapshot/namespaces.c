#include "snapshot/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/proc.h"

#include "base/banned.h"

static const struct {
	unsigned flag;
	const char *name;
	unsigned long request;
} kinds[] = {
#define NAMESPACE(flag, name, request) {flag, #name, _IO(0xff, request)},
	FURCA_NAMESPACE_KINDS(NAMESPACE)
#undef NAMESPACE
};

unsigned furca_namespaces_flag(enum furca_namespace which)
{
	return kinds[which].flag;
}

const char *furca_namespaces_name(enum furca_namespace which)
{
	return kinds[which].name;
}

/* From a link such as "net:[4026531840]", which costs less than to follow it. */
static uint64_t own(int dir, size_t which)
{
	char link[64];
	ssize_t n = readlinkat(dir, kinds[which].name, link, sizeof(link) - 1);
	const char *at;

	if (n <= 0)
		return 0;
	link[n] = '\0';
	at = strchr(link, '[');
	return at ? strtoul(at + 1, NULL, 10) : 0;
}

int furca_namespaces_own(struct furca_namespaces *ret)
{
	FURCA_AUTO_FD struct furca_fd dir =
		furca_fd_own(open("/proc/thread-self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC));

	if (dir.n < 0)
		return -errno;
	for (size_t i = 0; i < FURCA_NAMESPACES; i++)
		ret->inode[i] = own(dir.n, i);
	return 0;
}

static uint64_t of(int pidfd, size_t which)
{
	char path[64];
	struct stat st;
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(ioctl(pidfd, kinds[which].request, 0));

	if (fd.n >= 0)
		return fstat(fd.n, &st) == 0 ? st.st_ino : 0;
	pid_t pid = furca_proc_pid_of(pidfd); /* an older kernel */
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kinds[which].name);
	return pid > 0 && stat(path, &st) == 0 ? st.st_ino : 0;
}

void furca_namespaces_of(int pidfd, struct furca_namespaces *ret)
{
	for (size_t i = 0; i < FURCA_NAMESPACES; i++)
		ret->inode[i] = of(pidfd, i);
}
