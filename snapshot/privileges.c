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
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/filter.h"
#include "snapshot/raw.h"

#include "base/banned.h"

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

static void refuse(struct furca_filter *filter, int number, int error)
{
	furca_filter_add(filter, &(struct furca_filter_rule){.number = number, .error = error});
}

static void refuse_if(struct furca_filter *filter, int number, int error, struct furca_filter_test when)
{
	furca_filter_add(filter, &(struct furca_filter_rule){number, error, 1, {when}});
}

static void refuse_if_both(struct furca_filter *filter, int number, struct furca_filter_test a,
			   struct furca_filter_test b)
{
	furca_filter_add(filter, &(struct furca_filter_rule){number, EPERM, 2, {a, b}});
}

static void refuse_all(struct furca_filter *filter, const char *const *names)
{
	for (; *names; names++)
		refuse(filter, seccomp_syscall_resolve_name(*names), EPERM);
}

/* Calls newer than libseccomp knows, by number: equal on all architectures. */
static void refuse_new(struct furca_filter *filter, unsigned bits)
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

	for (size_t i = 0; i < FURCA_COUNT(calls); i++)
		if (calls[i].bit == 0 || (bits & calls[i].bit))
			refuse(filter, calls[i].number, EPERM);
}

static void namespaces(struct furca_filter *filter)
{
	const unsigned flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
			       CLONE_NEWCGROUP;

	/* For clone the low byte is a signal, so CLONE_NEWTIME (0x80) cannot be asked for there. */
	refuse_if(filter, SYS_clone, EPERM, (struct furca_filter_test){0, FURCA_FILTER_ANY, flags, 0});
	refuse_if(filter, SYS_unshare, EPERM, (struct furca_filter_test){0, FURCA_FILTER_ANY, flags | 0x80, 0});
	/* The flags of clone3 lie in memory, where a filter cannot look; libc falls back to clone. */
	refuse(filter, SYS_clone3, ENOSYS);
}

static void sockets(struct furca_filter *filter, unsigned bits)
{
	uint32_t families = 0;

	if (!(bits & FURCA_FILTER_NO_UNIX))
		families |= 1U << AF_UNIX;
	if (!(bits & FURCA_FILTER_NO_NETWORK))
		families |= 1U << AF_INET | 1U << AF_INET6 | 1U << AF_NETLINK;
	refuse_if(filter, SYS_socket, EAFNOSUPPORT, (struct furca_filter_test){0, FURCA_FILTER_OUTSIDE, families, 0});
	/* A datagram socket of a pair can send to any name. */
	if (bits & FURCA_FILTER_NO_UNIX)
		refuse_if_both(filter, SYS_socketpair, (struct furca_filter_test){0, FURCA_FILTER_IS, 0, AF_UNIX},
			       (struct furca_filter_test){1, FURCA_FILTER_IS, 0xf, SOCK_DGRAM});
}

static void refuse_second(struct furca_filter *filter, int number, const unsigned *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		refuse_if(filter, number, EPERM, (struct furca_filter_test){1, FURCA_FILTER_IS, 0, values[i]});
}

static void controls(struct furca_filter *filter, unsigned bits)
{
	static const unsigned terminal[] = {TIOCSTI, 0x541c /* TIOCLINUX */};
	static const unsigned attributes[] = {0x40086602 /* FS_IOC_SETFLAGS */, 0x401c5820 /* FS_IOC_FSSETXATTR */};
	static const unsigned locks[] = {F_SETLK, F_SETLKW, 37 /* F_OFD_SETLK */, 38 /* F_OFD_SETLKW */, F_SETLEASE};

	refuse_second(filter, SYS_ioctl, terminal, FURCA_COUNT(terminal));
	if (bits & FURCA_FILTER_NO_METADATA) {
		refuse_second(filter, SYS_ioctl, attributes, FURCA_COUNT(attributes));
		refuse_second(filter, SYS_fcntl, locks, FURCA_COUNT(locks));
	}
}

static void processes(struct furca_filter *filter)
{
	refuse_all(filter, others);
	for (const char *const *name = self_only; *name; name++)
		refuse_if(filter, seccomp_syscall_resolve_name(*name), EPERM,
			  (struct furca_filter_test){0, FURCA_FILTER_NOT, 0, 0});
	/* setpriority(PRIO_PROCESS, 0, …) alone */
	refuse_if(filter, SYS_setpriority, EPERM, (struct furca_filter_test){0, FURCA_FILTER_NOT, 0, 0});
	refuse_if(filter, SYS_setpriority, EPERM, (struct furca_filter_test){1, FURCA_FILTER_NOT, 0, 0});
}

static void add_rules(struct furca_filter *filter, unsigned bits)
{
	refuse_all(filter, always);
	refuse_new(filter, bits);
	namespaces(filter);
	sockets(filter, bits);
	controls(filter, bits);
	if (bits & FURCA_FILTER_NO_METADATA)
		refuse_all(filter, metadata);
	if (bits & FURCA_FILTER_NO_IPC)
		refuse_all(filter, ipc);
	if (bits & FURCA_FILTER_NO_OTHERS)
		processes(filter);
	else /* A cell's init runs as the same user, who may set its limits: without descriptors or memory it could not list what was written. */
		refuse_if_both(filter, SYS_prlimit64, (struct furca_filter_test){0, FURCA_FILTER_IS, 0, 1},
			       (struct furca_filter_test){2, FURCA_FILTER_NOT, 0, 0});
}

int furca_privileges_prepare(unsigned filter, struct furca_err *err)
{
	static struct furca_filter rules;
	int r;

	last_capability = (unsigned long)cap_max_bits();
	if (programs[filter].len)
		return 0;
	rules.n = 0;
	add_rules(&rules, filter);
	r = furca_filter_compile(&rules, &programs[filter]);
	return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot compile a system call filter") : 0;
}

const struct sock_fprog *furca_privileges_program(unsigned filter)
{
	return &programs[filter];
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
