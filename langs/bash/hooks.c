/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * bash calls libc through its procedure linkage table; the slots of a few calls are pointed at functions of ours. Nothing of
 * this is visible to code or to children (an LD_PRELOAD would be both), and our own calls go to libc directly.
 *
 *   execve     `exec prog` would replace the session: it runs in a child, the call ends with its status
 *   exit       a fatal error inside bash (out of memory, exec of what is not there) ends the call
 *   setrlimit  with too few descriptors left the host could not take the next call's pipes: see furca_bash_limit_begin
 *   kill, killpg   the session does not stop itself for ever
 *   sigaction  says when bash has changed handlers; the interrupt's is ours, whatever trap code sets
 *   sigprocmask   says when bash has changed which signals are blocked
 *   waitpid    says when bash waits
 *   close, dup, dup2, fcntl, open   the host's own descriptors do not exist for code, whatever number it tries; and what may have
 *              made a copy of an output pipe is noted (langs/output.h)
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/wire/host.h"
#include "langs/bash/bash_abi.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define OPEN_FILES_MIN 1024 /* hard limit of descriptors that the session itself keeps */

#if defined(__x86_64__) || defined(__aarch64__)
#define ELF_RELOCATION ElfW(Rela)
#endif

static bool hidden(int fd)
{
	const int *saved = furca_bash.saved;
	const struct furca_output *output = &furca_bash.host.output;

	if (fd > 2 && output->keeps && (fd == output->kept[0] || fd == output->kept[1]))
		return true;
	return fd > 2 && (fd == furca_bash.host.control.n || fd == furca_bash.host.capability.n || fd == saved[0] ||
			  fd == saved[1] || fd == saved[2]);
}

/* The first time in a call that 0, 1 or 2 is changed: as it was is kept for `exec prog`, which is to change nothing. */
static void save_standard(int fd)
{
	bool *saved = &furca_bash.saves[fd];

	furca_bash.host.output.changed = true;
	if (*saved || furca_bash.phase != FURCA_BASH_CALL || !furca_bash_is_host())
		return;
	*saved = true;
	furca_bash.saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, FURCA_HIDDEN_FD);
	if (furca_bash.saved[fd] < 0 && errno == EINVAL) /* ulimit -n */
		furca_bash.saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int hook_close(int fd)
{
	if (hidden(fd)) {
		errno = EBADF;
		return -1;
	}
	if (fd >= 0 && fd < 3)
		save_standard(fd);
	return close(fd);
}

static int hook_dup2(int from, int to)
{
	if (hidden(from) || hidden(to)) {
		errno = EBADF;
		return -1;
	}
	if (to >= 0 && to < 3)
		save_standard(to);
	else
		furca_bash.host.output.copied = true;
	return dup2(from, to);
}

/* /dev/stdout is the pipe once more; and where 1 or 2 is closed, it is what is opened next. */
static int hook_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if ((flags & O_ACCMODE) != O_RDONLY)
		furca_bash.host.output.copied = true;
	furca_bash.host.output.changed |= furca_bash.host.output.redirected != 0;
	return open(path, flags, mode);
}

static int hook_open2(const char *path, int flags)
{
	return hook_open(path, flags, 0);
}

static int hook_dup(int fd)
{
	furca_bash.host.output.copied = furca_bash.host.output.changed = true;
	return hidden(fd) ? (errno = EBADF, -1) : fcntl(fd, F_DUPFD, 0);
}

static int hook_fcntl(int fd, int command, ...)
{
	va_list ap;
	void *argument;

	va_start(ap, command);
	argument = va_arg(ap, void *);
	va_end(ap);
	if (hidden(fd)) {
		errno = EBADF;
		return -1;
	}
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		furca_bash.host.output.copied = furca_bash.host.output.changed = true;
	return fcntl(fd, command, argument);
}

static rlim_t open_files; /* the soft limit of code, where it is under OPEN_FILES_MIN; else 0 */

static int hook_setrlimit(int what, const struct rlimit *limit)
{
	struct rlimit mine = *limit, now;

	if (what != RLIMIT_NOFILE || !furca_bash_is_host() || getrlimit(RLIMIT_NOFILE, &now) < 0)
		return setrlimit((__rlimit_resource_t)what, limit);
	if (mine.rlim_max < OPEN_FILES_MIN)
		mine.rlim_max = FURCA_MIN(now.rlim_max, OPEN_FILES_MIN);
	if (setrlimit(RLIMIT_NOFILE, &mine) < 0)
		return -1;
	open_files = mine.rlim_cur < OPEN_FILES_MIN ? FURCA_MAX(mine.rlim_cur, 1) : 0;
	return 0;
}

static void limit_to(rlim_t n)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = FURCA_MIN(n, limit.rlim_max);
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

void furca_bash_limit_begin(void)
{
	if (open_files)
		limit_to(open_files);
}

void furca_bash_limit_end(void)
{
	if (open_files)
		limit_to(OPEN_FILES_MIN);
}

/* A session that stops itself has nobody who would continue it: as if it had been continued at once. */
static bool stops_host(pid_t pid, int sig)
{
	return (sig == SIGSTOP || sig == SIGTSTP) && furca_bash_is_host() && pid == furca_bash.host.pid;
}

static int hook_kill(pid_t pid, int sig)
{
	return stops_host(pid, sig) ? 0 : kill(pid, sig);
}

static int hook_killpg(pid_t group, int sig)
{
	return stops_host(group, sig) ? 0 : killpg(group, sig);
}

/* A fatal error of bash's: the call ends, not the session. */
static void __attribute__((noreturn)) hook_exit(int status)
{
	if (furca_bash_is_host() && furca_bash.phase == FURCA_BASH_CALL) {
		last_command_exit_value = status;
		furca_bash.ended_as = FURCA_BASH_FATAL;
		siglongjmp(furca_bash.top, EXITPROG);
	}
	exit(status);
}

static int hook_sigaction(int sig, const struct sigaction *act, struct sigaction *before)
{
	if (act && sig == FURCA_HOST_INTERRUPT && furca_bash_is_host())
		act = NULL;
	if (act)
		furca_bash.handlers_changed = 1;
	return sigaction(sig, act, before);
}

static int hook_sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
	if (set)
		furca_bash.mask_changed = 1;
	return sigprocmask(how, set, before);
}

/* While bash waits for a child its job table stands still, although it has SIGCHLD blocked: the interrupt may look into it. */
static pid_t hook_waitpid(pid_t pid, int *status, int options)
{
	pid_t r;

	furca_bash.waiting = 1;
	r = waitpid(pid, status, options);
	furca_bash.waiting = 0;
	return r;
}

static void restore_standard_fds(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (furca_bash.saved[fd] >= 0)
			(void)dup2(furca_bash.saved[fd], fd);
		else if (furca_bash.saves[fd]) /* it was closed */
			(void)close(fd);
}

/* Undoes what bash's exec builtin did on its way to execve. */
static void undo_exec(void)
{
	adjust_shell_level(1);
	initialize_signals(1);
	if (restore_traps)
		restore_traps();
	else
		initialize_traps();
	if (furca_bash.copy)
		furca_bash_disarm_exit_trap();
	if (job_control)
		restart_job_control();
	furca_bash_signals_arm();
	restore_standard_fds();
}

/* In the child: returns -1 with ENOEXEC (bash goes on to run a script without #!), else does not return. */
static int exec_child(const char *path, char *const argv[], char *const envp[], int report, const sigset_t *mask)
{
	(void)sigprocmask(SIG_SETMASK, mask, NULL);
	(void)execve(path, argv, envp);

	int err = errno;
	if (err == ENOEXEC) {
		(void)close(report);
		errno = err;
		return -1;
	}
	if (write(report, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

static int hook_execve(const char *path, char *const argv[], char *const envp[])
{
	int report[2], err = 0, status = 0;
	sigset_t all, child, old;

	if (!furca_bash_is_host() || furca_bash.phase != FURCA_BASH_CALL)
		return execve(path, argv, envp);
	if (pipe2(report, O_CLOEXEC) < 0)
		return -1;
	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &old);
	pid_t pid = fork();
	if (pid == 0)
		return exec_child(path, argv, envp, report[1], &old);
	(void)close(report[1]);
	furca_bash_signals_arm(); /* the exec builtin has put them back */
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	(void)sigprocmask(SIG_BLOCK, &child, NULL); /* bash must not reap this child */
	if (pid < 0) {
		err = errno;
	} else {
		while (read(report[0], &err, sizeof(err)) < 0 && errno == EINTR)
			;
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			if (furca_bash.interrupts > 2)
				(void)kill(pid, SIGKILL);
	}
	(void)close(report[0]);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (err) {
		errno = err;
		return -1;
	}
	undo_exec();
	last_command_exit_value = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	furca_bash.ended_as = FURCA_BASH_EXEC;
	siglongjmp(furca_bash.top, EXITPROG);
}

static const struct {
	const char *name;
	void *function;
} hooks[] = {
	{"execve", (void *)hook_execve},
	{"exit", (void *)hook_exit},
	{"setrlimit", (void *)hook_setrlimit},
	{"setrlimit64", (void *)hook_setrlimit},
	{"close", (void *)hook_close},
	{"dup2", (void *)hook_dup2},
	{"fcntl", (void *)hook_fcntl},
	{"fcntl64", (void *)hook_fcntl},
	{"kill", (void *)hook_kill},
	{"killpg", (void *)hook_killpg},
	{"waitpid", (void *)hook_waitpid},
	{"sigaction", (void *)hook_sigaction},
	{"sigprocmask", (void *)hook_sigprocmask},
	{"dup", (void *)hook_dup},
	{"open", (void *)hook_open},
	{"open64", (void *)hook_open},
	{"__open_2", (void *)hook_open2},
	{"__open64_2", (void *)hook_open2},
};

/* bash's dynamic section. */
struct image {
	uintptr_t base;
	const ElfW(Sym) * symbols;
	const char *names;
	const ELF_RELOCATION *table[2];
	size_t n[2];
	bool read_only; /* slots were bound at start and protected */
	int redirected;
};

/* Some libcs relocate the pointers of the dynamic section in place, some do not. */
static const void *absolute(const struct image *image, uintptr_t p)
{
	return (const void *)(p < image->base ? p + image->base : p);
}

static void read_dynamic(struct image *image, const ElfW(Dyn) * d)
{
	for (; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB:
			image->symbols = absolute(image, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			image->names = absolute(image, d->d_un.d_ptr);
			break;
		case DT_JMPREL:
			image->table[0] = absolute(image, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			image->n[0] = d->d_un.d_val / sizeof(ELF_RELOCATION);
			break;
		case DT_RELA:
			image->table[1] = absolute(image, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			image->n[1] = d->d_un.d_val / sizeof(ELF_RELOCATION);
			break;
		case DT_FLAGS:
			image->read_only |= (d->d_un.d_val & DF_BIND_NOW) != 0;
			break;
		case DT_FLAGS_1:
			image->read_only |= (d->d_un.d_val & DF_1_NOW) != 0;
			break;
		}
}

static void redirect(struct image *image, const ELF_RELOCATION *relocation)
{
	const char *name = image->names + image->symbols[ELF64_R_SYM(relocation->r_info)].st_name;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void **slot = (void **)(image->base + relocation->r_offset);
	void *start = (void *)((uintptr_t)slot & -page);

	for (size_t i = 0; i < FURCA_COUNT(hooks); i++) {
		if (strcmp(name, hooks[i].name) != 0)
			continue;
		if (mprotect(start, page, PROT_READ | PROT_WRITE) < 0)
			return;
		*slot = hooks[i].function;
		if (image->read_only)
			(void)mprotect(start, page, PROT_READ);
		image->redirected++;
	}
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
	struct image *image = data;
	const ElfW(Dyn) *dynamic = NULL;

	image->base = info->dlpi_addr;
	for (size_t i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (dynamic)
		read_dynamic(image, dynamic);
	if (image->symbols && image->names)
		for (int k = 0; k < 2; k++)
			for (size_t i = 0; image->table[k] && i < image->n[k]; i++)
				redirect(image, image->table[k] + i);
	return 1; /* the first object is bash itself */
}

int furca_bash_hooks_init(struct furca_err *err)
{
	struct image image = {0};

	(void)dl_iterate_phdr(visit, &image);
	if (image.redirected < 10)
		return furca_fail(err, FURCA_E_SYSTEM, ENOTSUP, "only %d of bash's library calls could be redirected",
				  image.redirected);
	return image.redirected;
}

void furca_bash_disarm_exit_trap(void)
{
	char *text;

	furca_bash.copy = true;
	if (!signal_is_trapped(0))
		return;
	text = strdup(trap_list[0]);
	restore_default_signal(0);
	trap_list[0] = text; /* trap -p may still show it */
	furca_bash.exit_trap = text;
}

void furca_bash_rearm_exit_trap(void)
{
	char *text = furca_bash.exit_trap;

	furca_bash.copy = false;
	furca_bash.exit_trap = NULL;
	if (!text || signal_is_trapped(0) || trap_list[0] != text)
		return;
	trap_list[0] = NULL;
	set_signal(0, text);
	free(text);
}
