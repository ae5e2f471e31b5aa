#include "snapshot/cell.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "snapshot/init_loop.h"
#include "snapshot/mounts.h"
#include "snapshot/privileges.h"

#include "base/banned.h"

/* What the cell's init writes to its report pipe, once. */
struct report {
	struct furca_cell_facts facts;
	struct furca_err err;
};

/* Who makes the cell, noted before the namespaces change what these answer. */
struct maker {
	uid_t uid;
	gid_t gid;
	bool user_namespace; /* the cell gets one */
};

static bool wants(const struct furca_cell_args *args, unsigned barrier)
{
	return (args->namespaces & barrier) != 0;
}

unsigned furca_cell_flags(const struct furca_cell_args *args)
{
	unsigned flags = 0;

	if (wants(args, FURCA_BARRIER_DISK))
		flags |= CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWCGROUP;
	/* A new pid namespace needs a /proc that shows it, so a mount namespace comes along. */
	if (wants(args, FURCA_BARRIER_PROCESSES))
		flags |= CLONE_NEWPID | CLONE_NEWNS;
	if (wants(args, FURCA_BARRIER_IPC))
		flags |= CLONE_NEWIPC;
	if (wants(args, FURCA_BARRIER_NETWORK) && !args->network)
		flags |= CLONE_NEWNET;
	if (flags && (geteuid() != 0 || !furca_privileges_have_admin()))
		flags |= CLONE_NEWUSER;
	return flags;
}

static int write_text(const char *path, const char *text)
{
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_WRONLY | O_CLOEXEC));

	return fd.n < 0 ? -errno : furca_fd_write_all(fd.n, text, strlen(text));
}

/* Our own uid and gid, under their own numbers, and nobody else's: all that an unprivileged process may map. */
static int map_user(const struct maker *maker, struct furca_err *err)
{
	char text[64];
	int r = write_text("/proc/self/setgroups", "deny");

	(void)snprintf(text, sizeof(text), "%u %u 1", maker->uid, maker->uid);
	if (r == 0)
		r = write_text("/proc/self/uid_map", text);
	(void)snprintf(text, sizeof(text), "%u %u 1", maker->gid, maker->gid);
	if (r == 0)
		r = write_text("/proc/self/gid_map", text);
	return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot map the user into the cell's user namespace") : 0;
}

/* Whether this is the first user namespace: all ids mapped to themselves. */
static bool first_user_namespace(void)
{
	char text[128];
	unsigned long inside, outside, count;
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
	ssize_t n = fd.n < 0 ? -1 : furca_fd_read_full(fd.n, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return sscanf(text, "%lu %lu %lu", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
	       count == 4294967295UL;
}

static void raise_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	FURCA_AUTO_FD struct furca_fd sock = furca_fd_own(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (sock.n >= 0 && ioctl(sock.n, SIOCGIFFLAGS, &request) == 0) {
		request.ifr_flags |= IFF_UP;
		(void)ioctl(sock.n, SIOCSIFFLAGS, &request);
	}
}

/* The next process here gets keep_pid, also when it is made by plain fork. Where that is refused, the maker must choose. */
static void aim_pids(const struct furca_cell_args *args)
{
	char text[32];

	if (args->keep_pid < 2 || !wants(args, FURCA_BARRIER_PROCESSES))
		return;
	(void)snprintf(text, sizeof(text), "%d", args->keep_pid - 1);
	(void)write_text("/proc/sys/kernel/ns_last_pid", text);
}

static void hold(struct furca_cell_facts *facts, int bit, enum furca_mechanism mechanism)
{
	facts->held |= 1U << bit;
	facts->mechanism[bit] = (uint8_t)mechanism;
}

static struct furca_cell_facts facts_of(const struct furca_cell_args *args)
{
	struct furca_cell_facts facts = {.magic = FURCA_CELL_MAGIC};

	if (wants(args, FURCA_BARRIER_DISK))
		hold(&facts, furca_barrier_bit("disk", 4), FURCA_MECHANISM_OVERLAY);
	if (wants(args, FURCA_BARRIER_PROCESSES))
		hold(&facts, furca_barrier_bit("processes", 9), FURCA_MECHANISM_PID_NAMESPACE);
	if (wants(args, FURCA_BARRIER_IPC))
		hold(&facts, furca_barrier_bit("ipc", 3), FURCA_MECHANISM_IPC_NAMESPACE);
	if (wants(args, FURCA_BARRIER_NETWORK) && !args->network)
		hold(&facts, furca_barrier_bit("network", 7), FURCA_MECHANISM_NET_NAMESPACE);
	return facts;
}

/* The mounts of a snapshot's cell: the machine's, which go on changing with it, and a /proc of its own. */
static int own_proc(struct furca_err *err)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot cut the cell's mounts off from the machine's");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot mount a /proc for the cell");
	return 0;
}

static int build(const struct furca_cell_args *args, const struct maker *maker, struct furca_cell_facts *facts,
		 struct furca_overlay *overlay, struct furca_err *err)
{
	int r = maker->user_namespace ? map_user(maker, err) : 0;

	if (r == 0 && furca_fault(FURCA_FAULT_CELL_MAKE))
		r = furca_fail(err, FURCA_E_ISOLATION, EIO, "the failure point CELL_MAKE failed");
	if (r < 0)
		return r;
	*facts = facts_of(args);
	aim_pids(args);
	if (wants(args, FURCA_BARRIER_NETWORK) && !args->network)
		raise_loopback();
	if (!wants(args, FURCA_BARRIER_DISK))
		return wants(args, FURCA_BARRIER_PROCESSES) ? own_proc(err) : 0;

	struct furca_overlay_args disk = {
		.user_namespace = maker->user_namespace || !first_user_namespace(),
		.new_proc = wants(args, FURCA_BARRIER_PROCESSES),
		.new_ipc = wants(args, FURCA_BARRIER_IPC),
		.upper_bytes = args->upper_bytes,
		.places = args->places,
		.mark = facts,
		.mark_size = sizeof(*facts),
	};
	return furca_overlay_build(&disk, overlay, err);
}

__attribute__((noreturn)) static void cell_main(const struct furca_cell_args *args, const struct maker *maker,
						int control, int out)
{
	struct report report = {.err = FURCA_ERR_INIT};
	struct furca_overlay overlay = {.upper.top = FURCA_FD_NONE};
	int keep[] = {control, out};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setsid();
	if (furca_fd_close_rest(keep, FURCA_COUNT(keep)) < 0)
		_exit(1);
	int r = build(args, maker, &report.facts, &overlay, &report.err);
	/*
	 * Nobody inside may read our memory or descriptors (the upper layers). Joining by pidfd is a ptrace check too: a maker
	 * without privileges passes it only while we are dumpable; then our capabilities keep those inside out, who have none.
	 */
	if (!maker->user_namespace)
		(void)prctl(PR_SET_DUMPABLE, 0);
	if (furca_fd_write_all(out, &report, sizeof(report)) < 0 || r < 0)
		_exit(1);
	(void)close(out);
	furca_init_loop(control, wants(args, FURCA_BARRIER_DISK) ? &overlay : NULL, args->places);
}

int furca_cell_start(const struct furca_cell_args *args, struct furca_cell *ret, struct furca_err *err)
{
	int ends[2], report[2], pidfd = -1;
	unsigned flags = furca_cell_flags(args);
	struct maker maker = {geteuid(), getegid(), (flags & CLONE_NEWUSER) != 0};
	struct clone_args how = {
		.flags = (uint64_t)flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};

	if (args->keep_pid == 1 || !wants(args, FURCA_BARRIER_PROCESSES))
		return furca_fail(err, FURCA_E_ISOLATION, 0, "a cell has a pid namespace, and its number 1 is taken");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make the cell's control channel");
	FURCA_AUTO_FD struct furca_fd ours = furca_fd_own(ends[0]);
	FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(ends[1]);
	if (pipe2(report, O_CLOEXEC) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make a pipe");
	FURCA_AUTO_FD struct furca_fd in = furca_fd_own(report[0]);
	FURCA_AUTO_FD struct furca_fd out = furca_fd_own(report[1]);

	/* Without CLONE_VM this is a fork: the child goes on here with a copy of our memory. */
	long pid = syscall(SYS_clone3, &how, sizeof(how));
	if (pid == 0)
		cell_main(args, &maker, theirs.n, out.n);
	if (pid < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot make namespaces (%s)", strerror(errno));
	*ret = (struct furca_cell){.proc = {(pid_t)pid, furca_fd_own(pidfd)},
				   .control = furca_fd_take(&ours),
				   .report = furca_fd_take(&in)};
	return 0;
}

int furca_cell_report(struct furca_cell *cell, struct furca_cell_facts *ret, struct furca_err *err)
{
	struct report report;
	ssize_t n = furca_fd_read_full(cell->report.n, &report, sizeof(report));

	furca_fd_done(&cell->report);
	if (n != (ssize_t)sizeof(report))
		return furca_fail(err, FURCA_E_ISOLATION, 0, "the cell's init ended before the cell stood");
	if (report.err.code) {
		if (err && !err->code)
			*err = report.err;
		return -(report.err.sys ? report.err.sys : EPERM);
	}
	*ret = report.facts;
	return 0;
}

void furca_cell_done(struct furca_cell *cell)
{
	furca_proc_done(&cell->proc);
	furca_fd_done(&cell->control);
	furca_fd_done(&cell->report);
}
