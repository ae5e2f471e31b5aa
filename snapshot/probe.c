#include "snapshot/probe.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/cell.h"
#include "snapshot/landlock.h"
#include "snapshot/maps.h"
#include "snapshot/privileges.h"
#include "snapshot/raw.h"

#include "base/banned.h"

#define CELL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

/* Each try runs in a child of its own: 0, or the errno that it met. `detail` may say more; it is passed back. */
typedef int try_fn(char *detail, size_t size);

static bool needs_user_namespace(void)
{
	return geteuid() != 0 || !furca_privileges_have_admin();
}

static unsigned own_user(void)
{
	return needs_user_namespace() ? CLONE_NEWUSER : 0;
}

static int as_errno(long r)
{
	return r < 0 ? errno : 0;
}

static int try_user_namespace(char *detail, size_t size)
{
	return as_errno(unshare(CLONE_NEWUSER));
}

static int try_namespaces(char *detail, size_t size)
{
	return as_errno(unshare((int)(own_user() | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)));
}

static int try_net_namespace(char *detail, size_t size)
{
	return as_errno(unshare((int)(own_user() | CLONE_NEWNET)));
}

/* A real cell, and joining it as a copy would. What it holds goes into detail, as bits, for furca_probe itself. */
static int try_cell(char *detail, size_t size)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_cell_facts facts;
	FURCA_AUTO(furca_cell_done) struct furca_cell cell = {FURCA_PROC_NONE, FURCA_FD_NONE, FURCA_FD_NONE};
	struct furca_cell_args args = {.namespaces = CELL, .upper_bytes = 1 << 20};
	int sys = 0;

	if (furca_cell_start(&args, &cell, &err) < 0 || furca_cell_report(&cell, &facts, &err) < 0) {
		(void)snprintf(detail, size, "%s", err.text);
		return err.sys ? err.sys : EPERM;
	}
	if (setns(cell.proc.pidfd.n, (int)furca_cell_flags(&args)) < 0) {
		sys = errno;
		(void)snprintf(detail, size, "a cell stands and cannot be joined");
	} else {
		(void)snprintf(detail, size, "%u", facts.held);
	}
	(void)furca_proc_signal(&cell.proc, SIGKILL);
	return sys;
}

static int try_overlay(char *detail, size_t size)
{
	int r = try_cell(detail, size);

	if (r == 0)
		(void)snprintf(detail, size, "over every mount, upper layer in memory");
	return r;
}

static int try_numbers(char *detail, size_t size)
{
	pid_t number = 4321;
	struct clone_args outer = {.flags = own_user() | CLONE_NEWPID, .exit_signal = SIGCHLD};
	struct clone_args inner = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
	int status = 0;
	long pid = syscall(SYS_clone3, &outer, sizeof(outer));

	if (pid == 0) {
		pid = syscall(SYS_clone3, &inner, sizeof(inner));
		if (pid == 0)
			_exit(getpid() == number ? 0 : EPROTO);
		if (pid < 0)
			_exit(errno);
		_exit(waitpid((pid_t)pid, &status, 0) == pid ? WEXITSTATUS(status) : EPROTO);
	}
	if (pid < 0)
		return errno;
	return waitpid((pid_t)pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO;
}

static int try_filter(char *detail, size_t size)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (furca_privileges_prepare(0, &err) < 0)
		return err.sys ? err.sys : EPERM;
	int r = furca_privileges_lower();
	if (r == 0)
		r = furca_privileges_drop();
	if (r == 0)
		r = furca_privileges_filter(0);
	if (r == 0 && (syscall(SYS_keyctl, 0, 0, 0) != -1 || errno != EPERM))
		return EPROTO; /* loaded, and yet does not refuse */
	return -r;
}

static int try_landlock(char *detail, size_t size)
{
	struct furca_err err = FURCA_ERR_INIT;
	FURCA_AUTO_FD struct furca_fd rules = FURCA_FD_NONE;
	int abi = furca_landlock_abi();

	(void)snprintf(detail, size, "version %d", abi);
	if (furca_landlock_rules(true, &rules, &err) < 0)
		return err.sys ? err.sys : ENOSYS;
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	int r = furca_landlock_enter(rules.n);
	if (r < 0)
		return -r;
	return open("/tmp/furca-probe", O_CREAT | O_WRONLY | O_CLOEXEC, 0600) >= 0 ? EPROTO : 0;
}

static int try_scope(char *detail, size_t size)
{
	int abi = furca_landlock_abi();

	(void)snprintf(detail, size, "version %d", abi);
	return abi >= FURCA_LANDLOCK_SCOPE ? 0 : ENOSYS;
}

static int try_close_range(char *detail, size_t size)
{
	return as_errno(syscall(SYS_close_range, 1000, 1001, 0));
}

static int try_same(char *detail, size_t size)
{
	if (fcntl(0, 1024 + 3 /* F_DUPFD_QUERY */, 0) >= 0) {
		(void)snprintf(detail, size, "F_DUPFD_QUERY");
		return 0;
	}
	(void)snprintf(detail, size, "kcmp");
	return as_errno(syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, 0, 0));
}

static int try_peers(char *detail, size_t size)
{
	return as_errno(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
}

static int try_maps(char *detail, size_t size)
{
	struct furca_map_query query = {.size = sizeof(query), .flags = FURCA_MAP_SHARED | FURCA_MAP_NEXT};
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	if (ioctl(fd, FURCA_MAP_QUERY, &query) == 0 || errno == ENOENT)
		return 0;
	(void)snprintf(detail, size, "the list of mappings is read instead");
	return errno;
}

static int try_pidfd(char *detail, size_t size)
{
	return as_errno(syscall(SYS_pidfd_open, getpid(), 0));
}

static int try_signal(char *detail, size_t size)
{
	return as_errno(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0));
}

static int try_huge_pages(char *detail, size_t size)
{
	FURCA_AUTO_FD struct furca_fd fd =
		furca_fd_own(open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC));
	ssize_t n = fd.n < 0 ? -1 : furca_fd_read_full(fd.n, detail, size - 1);

	if (n <= 0)
		return ENOENT;
	detail[n] = '\0';
	detail[strcspn(detail, "\n")] = '\0';
	return strstr(detail, "[never]") ? ENODEV : 0;
}

static int try_ring(char *detail, size_t size)
{
	struct io_uring_params params = {0};

	return as_errno(syscall(SYS_io_uring_setup, 4, &params));
}

static int try_children(char *detail, size_t size)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	return as_errno(open(path, O_RDONLY | O_CLOEXEC));
}

static int try_map_files(char *detail, size_t size)
{
	char path[96];
	long page = sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return errno;
	(void)snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)at,
		       (unsigned long)at + (unsigned long)page);
	int r = as_errno(open(path, O_RDONLY | O_CLOEXEC));
	if (r)
		(void)snprintf(detail, size, "large shared mappings without a name are copied");
	return r;
}

static const struct {
	const char *feature, *guarantee, *lost;
	try_fn *fn;
} table[] = {
	{"user namespaces", "disk", "An ordinary user has no cells; only root or Landlock can isolate.",
	 try_user_namespace},
	{"mount, pid, ipc and uts namespaces", "processes", "A copy could signal and see other processes.",
	 try_namespaces},
	{"net namespaces", "network", "A copy is kept off the network by the filter alone.", try_net_namespace},
	{"overlayfs in a cell", "disk", "A copy's writes fail (Landlock) instead of being discarded.", try_overlay},
	{"clone3 set_tid", "threads", "Threads cannot keep their numbers; a copy of a threaded session is refused.",
	 try_numbers},
	{"signals to threads", "threads", "Threads cannot be stopped for a clone.", try_signal},
	{"capabilities and seccomp", "privileges", "A copy keeps what its user may do: keyrings, vsock, terminals.",
	 try_filter},
	{"Landlock", "disk", "Without namespaces nothing guards the disk.", try_landlock},
	{"Landlock scope", "processes", "Without namespaces nothing guards other processes.", try_scope},
	{"close_range", "descriptors", "Descriptors are closed one by one.", try_close_range},
	{"comparing descriptors", "descriptors", "Duplicates of a descriptor no longer share their offset in a copy.",
	 try_same},
	{"unix sock_diag", "descriptors", "Socket pairs are cut in a copy instead of made again.", try_peers},
	{"PROCMAP_QUERY", "speed", "Finding shared mappings takes longer.", try_maps},
	{"map_files", "speed", "Large shared mappings are copied.", try_map_files},
	{"pidfd", "processes", "Processes cannot be held safely; furca does not run.", try_pidfd},
	{"/proc children", "processes", "What outlives a session's host is found later.", try_children},
	{"transparent huge pages", "speed", "Clones of large sessions take longer: page tables are copied.",
	 try_huge_pages},
	{"io_uring", "speed", "The engine cannot start its ring.", try_ring},
};

_Static_assert(FURCA_COUNT(table) <= FURCA_COUNT(((struct furca_probe *)0)->row),
	       "the probe has rows for all features");

struct outcome {
	int sys;
	char detail[96];
};

/* Runs one try in a child. A child that dies or hangs is a feature that is not there. */
static struct outcome run(try_fn *fn)
{
	struct outcome outcome = {.sys = EPROTO};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return outcome;
	FURCA_AUTO_FD struct furca_fd in = furca_fd_own(ends[0]);
	struct furca_fd out = furca_fd_own(ends[1]);
	pid_t pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)alarm(5);
		outcome.sys = fn(outcome.detail, sizeof(outcome.detail));
		(void)furca_fd_write_all(out.n, &outcome, sizeof(outcome));
		_exit(0);
	}
	furca_fd_done(&out);
	if (pid < 0)
		return outcome;
	if (furca_fd_read_full(in.n, &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome))
		outcome = (struct outcome){EPROTO, "the test died"};
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return outcome;
}

static void add_row(struct furca_probe *probe, size_t i)
{
	struct outcome outcome = run(table[i].fn);
	struct furca_probe_row *row = &probe->row[probe->rows++];

	*row = (struct furca_probe_row){.feature = table[i].feature,
					.guarantee = table[i].guarantee,
					.lost = table[i].lost,
					.there = outcome.sys == 0};
	(void)snprintf(row->detail, sizeof(row->detail), "%s", outcome.detail);
	if (!row->there && !row->detail[0])
		(void)snprintf(row->detail, sizeof(row->detail), "%s", strerror(outcome.sys));
}

static bool has(const struct furca_probe *probe, try_fn *fn)
{
	for (size_t i = 0; i < FURCA_COUNT(table); i++)
		if (table[i].fn == fn)
			return probe->row[i].there;
	return false;
}

/* What a copy can be given here: by a cell, else by what stands in for one. */
static unsigned barriers_of(const struct furca_probe *probe)
{
	struct outcome cell = run(try_cell);
	unsigned bits = FURCA_BARRIER_MEMORY | FURCA_BARRIER_DESCRIPTORS;
	unsigned held = 0;

	if (cell.sys == 0 && sscanf(cell.detail, "%u", &held) == 1) {
		bits |= held;
		bits |= has(probe, try_numbers) ? FURCA_BARRIER_THREADS : 0;
	} else if (has(probe, try_filter)) {
		bits |= has(probe, try_landlock) ? FURCA_BARRIER_DISK : 0;
		bits |= has(probe, try_scope) ? FURCA_BARRIER_PROCESSES : 0;
		bits |= FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK;
	}
	return has(probe, try_filter) ? bits | FURCA_BARRIER_PRIVILEGES : bits;
}

int furca_probe(const struct furca_probe **ret, struct furca_err *err)
{
	static struct furca_probe probe;

	if (!probe.rows) {
		for (size_t i = 0; i < FURCA_COUNT(table); i++)
			add_row(&probe, i);
		probe.root = geteuid() == 0;
		probe.user_namespaces = needs_user_namespace();
		probe.barriers = barriers_of(&probe);
	}
	*ret = &probe;
	return 0;
}
