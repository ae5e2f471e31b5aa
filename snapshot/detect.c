#include "snapshot/detect.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot/clone.h"
#include "snapshot/freeze.h"
#include "snapshot/maps.h"
#include "snapshot/raw.h"
#include "snapshot/task.h"

#include "base/banned.h"

/* Names as /proc shows them, in front of a descriptor's or a mapping's. */
static const struct {
	const char *prefix, *what, *suggestion;
} uncopyable[] = {
	{"anon_inode:[io_uring]", "an io_uring ring",
	 "Close the ring before this call; its kernel side belongs to one process."},
	{"/[aio]", "an asynchronous I/O context (io_setup)", "Destroy the context (io_destroy) before this call."},
	{"[aio]", "an asynchronous I/O context (io_setup)", "Destroy the context (io_destroy) before this call."},
	{"anon_inode:[userfaultfd]", "a userfaultfd", "Close it before this call."},
	{"anon_inode:[perf_event]", "a perf event", "Close it before this call."},
	{"anon_inode:kvm", "a virtual machine", "Run virtual machines in a process of their own."},
	{"anon_inode:[fanotify]", "a fanotify group", "Close it before this call."},
	{"/dev/nvidia", "a GPU context", "Use the GPU in a child process; its memory cannot be copied."},
	{"/dev/dri/", "a GPU context", "Use the GPU in a child process; its memory cannot be copied."},
	{"/dev/kfd", "a GPU context", "Use the GPU in a child process; its memory cannot be copied."},
	{"/dev/infiniband", "an RDMA device", "Close the device before this call."},
	{"/dev/vfio", "a VFIO device", "Close the device before this call."},
};

static int refuse_name(const char *name, const char *where, struct furca_err *err)
{
	for (size_t i = 0; i < sizeof(uncopyable) / sizeof(uncopyable[0]); i++)
		if (strncmp(name, uncopyable[i].prefix, strlen(uncopyable[i].prefix)) == 0)
			return furca_fail_suggest(err, FURCA_E_CLONE, 0, uncopyable[i].suggestion,
						  "the process holds %s (%s), which cannot be copied",
						  uncopyable[i].what, where);
	return 0;
}

/* Its file cannot be opened again, which a clone does, without breaking the lease: its holder, who would have to give it up, waits for the clone. */
static int refuse_lease(int fd, const char *where, struct furca_err *err)
{
	if (fcntl(fd, F_GETLEASE) != F_WRLCK)
		return 0;
	return furca_fail_suggest(err, FURCA_E_CLONE, 0,
				  "Give the lease up (F_SETLEASE with F_UNLCK) before this call.",
				  "the process holds a write lease on a file (%s), which a clone would break", where);
}

static int look_at_descriptors(struct furca_err *err)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	int r = 0;

	if (!directory)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot list the open descriptors");
	while (r == 0 && (entry = readdir(directory))) {
		char name[256], where[40];
		ssize_t n = readlinkat(dirfd(directory), entry->d_name, name, sizeof(name) - 1);

		if (n <= 0)
			continue;
		name[n] = '\0';
		/* The common ones first. */
		if (name[0] != '/' && name[0] != 'a')
			continue;
		snprintf(where, sizeof(where), "descriptor %.12s", entry->d_name);
		r = refuse_name(name, where, err);
		if (r == 0 && name[0] == '/')
			r = refuse_lease((int)strtol(entry->d_name, NULL, 10), where, err);
	}
	closedir(directory);
	return r;
}

/* 1: this kernel cannot; the list is read instead. */
static int look_at_mappings_by_query(int maps, struct furca_err *err)
{
	char name[256];
	struct furca_map_query query = {.size = sizeof(query), .flags = FURCA_MAP_SHARED | FURCA_MAP_NEXT};

	for (;;) {
		query.name_size = sizeof(name);
		query.name = (uintptr_t)name;
		query.build_id_size = 0;
		name[0] = '\0';
		if (ioctl(maps, FURCA_MAP_QUERY, &query) < 0)
			return errno == ENOENT ? 0 : 1;
		int r = refuse_name(name, "mapping", err);
		if (r < 0)
			return r;
		query.address = query.end;
	}
}

static int look_at_mappings(struct furca_err *err)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int r;

	if (!maps)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot list the mappings");
	r = look_at_mappings_by_query(fileno(maps), err);
	while (r == 1 && fgets(line, sizeof(line), maps)) {
		const char *permissions = strchr(line, ' '), *name = strpbrk(line, "/[");

		if (permissions && permissions[4] == 's' && name && refuse_name(name, "mapping", err) < 0)
			r = -err->sys;
	}
	fclose(maps);
	return r < 0 ? r : 0;
}

static int look_at_timers(struct furca_err *err)
{
	char buf[64];

	/* Missing without CONFIG_CHECKPOINT_RESTORE; set_tid is missing then, too. */
	if (furca_raw_read_file("/proc/self/timers", buf, sizeof(buf)) <= 0)
		return 0;
	return furca_fail_suggest(err, FURCA_E_CLONE, 0, "Delete the timer (timer_delete), or use timerfd_create.",
				  "the process has a POSIX timer (timer_create), which a clone does not inherit");
}

static int look_at_tracer(struct furca_err *err)
{
	char buf[2048];
	const char *p;

	if (furca_task_status(0, buf, sizeof(buf)) <= 0 || !(p = furca_raw_after(buf, "\nTracerPid:")))
		return 0;
	unsigned long tracer = furca_raw_number(&p, 10);
	if (!tracer)
		return 0;
	return furca_fail_suggest(err, FURCA_E_CLONE, 0, "Detach the debugger or tracer.",
				  "process %lu traces this process, whose threads cannot be stopped meanwhile", tracer);
}

/*
 * After unshare(CLONE_NEWPID) the next child is the new namespace's number 1, which ends with it. That is not to be a task of ours, and a clone is to
 * have its original's number. (The namespace has no link before there is that child.)
 */
static int look_at_children(struct furca_err *err)
{
	char own[64], theirs[64];
	ssize_t n = readlink("/proc/thread-self/ns/pid", own, sizeof(own));
	ssize_t m = readlink("/proc/thread-self/ns/pid_for_children", theirs, sizeof(theirs));

	if (n <= 0 || (m < 0 && errno != ENOENT) || (n == m && memcmp(own, theirs, (size_t)n) == 0))
		return 0;
	return furca_fail_suggest(err, FURCA_E_CLONE, 0, "Do that in a child process (`unshare` with a command).",
				  "the next children of the process go to another pid namespace (unshare)");
}

int furca_clone_hindered(struct furca_err *err)
{
	int r = look_at_mappings(err);

	if (r == 0)
		r = look_at_timers(err);
	return r < 0 ? r : look_at_children(err);
}

int furca_detect_process(int threads, struct furca_err *err)
{
	struct furca_err own = FURCA_ERR_INIT;
	int r;

	if (!err)
		err = &own;
	if ((r = look_at_descriptors(err)) < 0 || (r = furca_clone_hindered(err)) < 0)
		return r;
	if (threads == 1)
		return 0;
	if ((r = look_at_tracer(err)) < 0)
		return r;
	if (furca_arch_shadow_stack())
		return furca_fail_suggest(
			err, FURCA_E_CLONE, 0, "Start the session with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off.",
			"the threads of the process run on shadow stacks, which cannot be made again");
	return 0;
}

static const char *difference(const struct furca_thread *thread, const struct furca_thread *caller)
{
	if (memcmp(&thread->credentials, &caller->credentials, sizeof(thread->credentials)) != 0)
		return "credentials or a system call filter of its own";
	if (furca_raw(SYS_kcmp, caller->tid, thread->tid, KCMP_FILES, 0, 0) > 0)
		return "a table of descriptors of its own";
	if (furca_raw(SYS_kcmp, caller->tid, thread->tid, KCMP_FS, 0, 0) > 0)
		return "a working directory of its own";
	return NULL;
}

int furca_detect_threads(struct furca_thread *caller, int64_t deadline_us, struct furca_err *err)
{
	static char buf[2048];
	uint64_t word = furca_thread_word(furca_freeze_generation(), FURCA_THREAD_FROZEN), common = 0;
	const char *p;

	if (furca_freeze_roll_call(caller, deadline_us) < 0)
		return furca_fail_suggest(err, FURCA_E_CLONE, ETIMEDOUT, "Try again when the machine is less busy.",
					  "the stopped threads did not get a processor in time");
	furca_raw(SYS_rt_sigpending, &caller->pending, 8);
	/* A clone does not inherit what is pending for the process as a whole. */
	if (furca_task_status(0, buf, sizeof(buf)) > 0 && (p = furca_raw_after(buf, "\nShdPnd:")))
		common = furca_raw_number(&p, 16);
	caller->pending &= ~common;
	for (uint32_t i = 0; i < furca_threads_high(); i++) {
		struct furca_thread *thread = furca_threads_at(i);

		if (thread->word != word || thread == caller)
			continue;
		thread->pending &= ~common;
		const char *what = difference(thread, caller);
		if (what)
			return furca_fail_suggest(err, FURCA_E_CLONE, 0,
						  "End that thread, or let all threads share these things.",
						  "thread %d (%s) has %s", thread->tid, thread->name, what);
	}
	return 0;
}

bool furca_detect_robust_held(const struct furca_thread *thread)
{
	const struct robust_list_head *head = thread->robust;

	return head && (head->list.next != &head->list || head->list_op_pending);
}
