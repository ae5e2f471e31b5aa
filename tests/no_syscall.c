/*
 * Runs a command with some system calls failing, so that fallbacks for older kernels and for tight containers are tested:
 *
 *     no_syscall clone3,pidfd_open[:EPERM] COMMAND ARGS...
 *
 * The error is ENOSYS unless named (ENOSYS, EPERM, EACCES, EINVAL, ENOSPC). Everything that COMMAND starts is held to it. Exit status: the
 * command's; 2 usage; 77 where no filter can be installed.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int error_of(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} known[] = {{"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"EACCES", EACCES}, {"EINVAL", EINVAL}, {"ENOSPC", ENOSPC}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].number;
	return -1;
}

static int usage(const char *what)
{
	(void)fprintf(stderr, "no_syscall: %s\nusage: no_syscall NAME[,NAME...][:ERROR] COMMAND [ARG...]\n", what);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return usage("too few arguments");
	char *colon = strchr(argv[1], ':');
	int error = colon ? error_of(colon + 1) : ENOSYS;
	if (error < 0)
		return usage("unknown error name");
	if (colon)
		*colon = '\0';

	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	if (!filter)
		return 77;
	char *rest = argv[1];
	for (char *name; (name = strsep(&rest, ","));) {
		int number = seccomp_syscall_resolve_name(name);

		if (number == __NR_SCMP_ERROR)
			return usage("no such system call");
		if (seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint16_t)error), number, 0) < 0)
			return usage("the system call cannot be filtered");
	}
	if (seccomp_load(filter) < 0) {
		(void)fprintf(stderr, "no_syscall: cannot install the filter: %s\n", strerror(errno));
		return 77;
	}
	seccomp_release(filter);
	(void)execvp(argv[2], argv + 2);
	(void)fprintf(stderr, "no_syscall: cannot run %s: %s\n", argv[2], strerror(errno));
	return 127;
}
