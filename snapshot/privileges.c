#include "snapshot/privileges.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/clone.h"
#include "snapshot/raw.h"

#include "base/banned.h"

/* The comparisons of libseccomp leave fields out. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* What the kernel looks at of an argument that is an int. */
#define INT 0xffffffffU

static const char *const always[] = {
	/* mounts and namespaces */
	"mount", "umount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
	"fsmount", "fspick", "mount_setattr", "setns", "chroot", "open_by_handle_at", "name_to_handle_at", "swapon",
	"swapoff", "quotactl", "quotactl_fd", "acct",
	/* the kernel as a whole */
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "settimeofday",
	"clock_settime", "adjtimex", "clock_adjtime", "stime", "syslog", "iopl", "ioperm", "bpf", "perf_event_open",
	"lookup_dcookie", "nfsservctl", "vhangup", "sethostname", "setdomainname", "fanotify_init", "userfaultfd",
	"modify_ldt", "vm86", "vm86old",
	/* keyrings are nobody's namespace */
	"add_key", "request_key", "keyctl",
	/* other processes */
	"ptrace", "process_vm_writev", "process_vm_readv", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
	"move_pages", "migrate_pages",
	/* work that the kernel would do behind the filter's back */
	"io_uring_setup", "io_uring_enter", "io_uring_register", NULL};

static const char *const metadata[] = {
	"chmod",	"fchmod",	 "fchmodat",	 "fchmodat2",  "chown",	      "fchown",
	"lchown",	"fchownat",	 "utime",	 "utimes",     "utimensat",   "futimesat",
	"setxattr",	"lsetxattr",	 "fsetxattr",	 "setxattrat", "removexattr", "lremovexattr",
	"fremovexattr", "removexattrat", "file_setattr", "flock",      NULL};

static const char *const ipc[] = {"shmget", "shmat",  "shmctl", "semget", "semop",   "semctl",	  "semtimedop",
				  "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", NULL};

static const char *const others[] = {"ioprio_set", "setpgid", NULL};

/* Calls whose first argument names a process: 0, the caller itself, passes. */
static const char *const self_only[] = {"sched_setaffinity", "sched_setscheduler", "sched_setparam",
					"sched_setattr",     "prlimit64",	   NULL};

static const char *const none[] = {NULL};

const char *const *furca_privileges_denied(unsigned filter_bit)
{
	switch (filter_bit) {
	case 0:
		return always;
	case FURCA_FILTER_NO_METADATA:
		return metadata;
	case FURCA_FILTER_NO_IPC:
		return ipc;
	case FURCA_FILTER_NO_OTHERS:
		return others;
	default:
		return none;
	}
}

static struct sock_fprog programs[FURCA_FILTERS];
static unsigned long last_capability;

bool furca_privileges_have_admin(void)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return false;
	(void)cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &value);
	(void)cap_free(caps);
	return value == CAP_SET;
}

static int refuse_all(scmp_filter_ctx filter, const char *const *names)
{
	int r = 0;

	for (; r == 0 && *names; names++) {
		int number = seccomp_syscall_resolve_name(*names);

		if (number >=
		    0) /* a call that this machine or library does not know cannot be made by number either: see below */
			r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
	}
	return r;
}

/* Calls newer than libseccomp knows, by number: equal on all architectures. */
static int refuse_new(scmp_filter_ctx filter, unsigned bits)
{
	static const struct {
		int number;
		unsigned bit;
	} calls[] = {
		{463, FURCA_FILTER_NO_METADATA}, /* setxattrat */
		{466, FURCA_FILTER_NO_METADATA}, /* removexattrat */
		{467, 0},			 /* open_tree_attr */
		{469, FURCA_FILTER_NO_METADATA}, /* file_setattr */
		{452, FURCA_FILTER_NO_METADATA}, /* fchmodat2 */
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < FURCA_COUNT(calls); i++)
		if (calls[i].bit == 0 || (bits & calls[i].bit))
			r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), calls[i].number, 0);
	return r;
}

/*
 * The flags of new namespaces, by few comparisons, for each costs every copy: all but CLONE_NEWNS and CLONE_NEWTIME lie from CLONE_NEWCGROUP on, and what
 * else lies there is CLONE_IO, which nobody needs. For clone the low byte is a signal, so CLONE_NEWTIME (0x80) cannot be asked for there.
 */
static int namespaces(scmp_filter_ctx filter)
{
	static const struct {
		int number;
		struct scmp_arg_cmp when;
	} refused[] = {
		{SCMP_SYS(clone), SCMP_A0(SCMP_CMP_GE, CLONE_NEWCGROUP)},
		{SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWNS, CLONE_NEWNS)},
		{SCMP_SYS(unshare), SCMP_A0(SCMP_CMP_GE, CLONE_NEWCGROUP)},
		{SCMP_SYS(unshare), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWNS, CLONE_NEWNS)},
		{SCMP_SYS(unshare), SCMP_A0(SCMP_CMP_MASKED_EQ, 0x80, 0x80)},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < FURCA_COUNT(refused); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i].number, 1, refused[i].when);
	/* The flags of clone3 lie in memory, where a filter cannot look; libc falls back to clone. */
	return r ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int sockets(scmp_filter_ctx filter, unsigned bits)
{
	int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				 SCMP_A0(SCMP_CMP_GT, AF_NETLINK));

	for (unsigned family = 0; r == 0 && family <= AF_NETLINK; family++) {
		bool network = family == AF_INET || family == AF_INET6 || family == AF_NETLINK;

		if ((family == AF_UNIX && !(bits & FURCA_FILTER_NO_UNIX)) ||
		    (network && !(bits & FURCA_FILTER_NO_NETWORK)))
			continue;
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				     SCMP_A0(SCMP_CMP_EQ, family));
	}
	/* A datagram socket of a pair can send to any name. */
	if (r == 0 && (bits & FURCA_FILTER_NO_UNIX))
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socketpair), 2,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, INT, AF_UNIX),
				     SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_DGRAM));
	return r;
}

/*
 * A file system's own controls change a file, or make a snapshot, by a descriptor that is open for reading. Those that only read are known by their
 * direction (_IOC_READ, bit 31); few that have it change something as well.
 */
static int file_controls(scmp_filter_ctx filter)
{
	static const unsigned types[] = {'f', 'v', 'X', 'r' /* fat */, 0x94 /* btrfs, and clones of ranges */,
					 0xf5 /* f2fs */};
	static const unsigned others_too[] = {
		0x800c6613 /* FS_IOC_SET_ENCRYPTION_POLICY */, 0xc0506617 /* FS_IOC_ADD_ENCRYPTION_KEY */,
		0xc0406618 /* FS_IOC_REMOVE_ENCRYPTION_KEY */, 0xc0406619 /* and for all users */,
		0xc0c89425 /* BTRFS_IOC_SET_RECEIVED_SUBVOL */};
	int r = 0;

	for (size_t i = 0; r == 0 && i < FURCA_COUNT(types); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, 0x8000ff00, types[i] << 8));
	for (size_t i = 0; r == 0 && i < FURCA_COUNT(others_too); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, INT, others_too[i]));
	return r;
}

static int controls(scmp_filter_ctx filter, unsigned bits)
{
	static const unsigned terminal[] = {TIOCSTI, 0x541c /* TIOCLINUX */};
	static const unsigned file[] = {F_SETLK,
					F_SETLKW,
					37 /* F_OFD_SETLK */,
					38 /* F_OFD_SETLKW */,
					F_SETLEASE,
					1036 /* F_SET_RW_HINT */,
					1038 /* F_SET_FILE_RW_HINT */,
					1040 /* F_SETDELEG */};
	int r = 0;

	for (size_t i = 0; r == 0 && i < FURCA_COUNT(terminal); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, INT, terminal[i]));
	if (r < 0 || !(bits & FURCA_FILTER_NO_METADATA))
		return r;
	for (size_t i = 0; r == 0 && i < FURCA_COUNT(file); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, INT, file[i]));
	return r ? r : file_controls(filter);
}

static int processes(scmp_filter_ctx filter)
{
	static const unsigned marks[] = FURCA_MARKS;
	int r = refuse_all(filter, others);

	for (const char *const *name = self_only; r == 0 && *name; name++) {
		int number = seccomp_syscall_resolve_name(*name);

		if (number >= 0)
			r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 1, SCMP_A0(SCMP_CMP_NE, 0));
	}
	/* What the engine finds left behind by, where no pid namespace ends it (engine/limits.h). */
	for (size_t i = 0; r == 0 && i < FURCA_COUNT(marks); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setrlimit), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, INT, marks[i]));
	for (size_t i = 0; r == 0 && i < FURCA_COUNT(marks); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 2,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, INT, marks[i]), SCMP_A2(SCMP_CMP_NE, 0));
	/* setpriority(PRIO_PROCESS, 0, …) alone */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setpriority), 1, SCMP_A0(SCMP_CMP_NE, 0));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setpriority), 1, SCMP_A1(SCMP_CMP_NE, 0));
	return r;
}

/* A cell's init runs as the same user, who may set its limits: without descriptors or memory it could not list what was written. */
static int limits_of_init(scmp_filter_ctx filter)
{
	return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 2,
				SCMP_A0(SCMP_CMP_MASKED_EQ, INT, 1), SCMP_A2(SCMP_CMP_NE, 0));
}

static int add_rules(scmp_filter_ctx filter, unsigned bits)
{
	int r = refuse_all(filter, always);

	if (r == 0)
		r = refuse_new(filter, bits);
	if (r == 0)
		r = namespaces(filter);
	if (r == 0)
		r = sockets(filter, bits);
	if (r == 0)
		r = controls(filter, bits);
	if (r == 0 && (bits & FURCA_FILTER_NO_METADATA))
		r = refuse_all(filter, metadata);
	if (r == 0 && (bits & FURCA_FILTER_NO_IPC))
		r = refuse_all(filter, ipc);
	if (r == 0 && (bits & FURCA_FILTER_NO_OTHERS))
		r = processes(filter);
	else if (r == 0)
		r = limits_of_init(filter);
	return r;
}

/* Takes the compiled filter out of libseccomp, which only writes it to a descriptor. */
static int export_program(scmp_filter_ctx filter, struct sock_fprog *ret)
{
	struct stat st;
	FURCA_AUTO_FD struct furca_fd file = furca_fd_own(memfd_create("filter", MFD_CLOEXEC));

	if (file.n < 0)
		return -errno;
	int r = seccomp_export_bpf(filter, file.n);
	if (r < 0)
		return r;
	if (fstat(file.n, &st) < 0)
		return -errno;
	struct sock_filter *program = malloc((size_t)st.st_size);
	if (!program)
		return -ENOMEM;
	if (pread(file.n, program, (size_t)st.st_size, 0) != st.st_size) {
		free(program);
		return -EIO;
	}
	*ret = (struct sock_fprog){(unsigned short)((size_t)st.st_size / sizeof(*program)), program};
	return 0;
}

int furca_privileges_prepare(unsigned filter, struct furca_err *err)
{
	int r;

	last_capability = (unsigned long)cap_max_bits();
	if (programs[filter].len)
		return 0;
	scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
	if (!context)
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "cannot compile a system call filter");
	/* Calls in another architecture's numbers (x32, i386) are not there; a binary tree is quicker to load and to run. */
	(void)seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	(void)seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	r = add_rules(context, filter);
	if (r == 0)
		r = export_program(context, &programs[filter]);
	seccomp_release(context);
	return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot compile a system call filter") : 0;
}

static int set_capabilities(uint64_t wanted)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};

	if (wanted) {
		long r = furca_raw(SYS_capget, &head, data);

		if (r < 0)
			return (int)r;
		wanted &= data[0].permitted | (uint64_t)data[1].permitted << 32;
	}
	for (int i = 0; i < 2; i++) {
		uint32_t part = (uint32_t)(wanted >> (32 * i));

		data[i] = (struct __user_cap_data_struct){part, part, 0};
	}
	return (int)furca_raw(SYS_capset, &head, data);
}

int furca_privileges_lower(void)
{
	unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
			     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
	long r = furca_raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

	if (r < 0)
		return (int)r;
	/*
	 * Without CAP_SETPCAP neither of these is allowed, nor of use: no capability is there, and under no_new_privs no program
	 * brings one back.
	 */
	for (unsigned long cap = 0; cap < last_capability; cap++)
		if (furca_raw(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0) == -EPERM)
			break;
	(void)furca_raw(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	(void)furca_raw(SYS_prctl, PR_SET_SECUREBITS, bits, 0, 0, 0);
	/* Older kernels ask for CAP_SYS_ADMIN where CAP_CHECKPOINT_RESTORE does not exist. */
	return set_capabilities(1ULL << (last_capability > 40 ? 40 : CAP_SYS_ADMIN));
}

int furca_privileges_drop(void)
{
	return set_capabilities(0);
}

int furca_privileges_filter(unsigned filter)
{
	long r = furca_raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			   SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &programs[filter]);

	return r > 0 ? -EBUSY : (int)r; /* above 0: the number of a thread that could not be brought along */
}
