#include "snapshot/barriers.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "snapshot/cell.h"
#include "snapshot/fds.h"
#include "snapshot/landlock.h"
#include "snapshot/memory.h"
#include "snapshot/namespaces.h"
#include "snapshot/privileges.h"
#include "snapshot/raw.h"

#include "base/banned.h"

/* The barriers around the whole process; putting one of them up means that privileges go. */
#define AROUND                                                                                                         \
	(FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK |                    \
	 FURCA_BARRIER_PRIVILEGES)

#define EXIT_LENT 125
#define TAKE_BACK_TRIES 1000
#define TAKE_BACK_PAUSE_US 1000

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The namespaces that this process began in, as a program or as a clone; 0: not known. */
static struct furca_namespaces home;

struct furca_barriers {
	unsigned wanted, required;
	int cell;		       /* borrowed pidfd, or -1 */
	unsigned flags;		       /* CLONE_NEW* that entering the cell changes */
	int children;		       /* while the cell is lent: where the caller's children belong, or -1 */
	struct furca_namespaces cells; /* the cell's, which are the clone's home */
	bool privileges;	       /* capabilities go, a filter is loaded */
	bool no_cap_left;	       /* entered a user namespace without barriers: what that gives must not stay */
	unsigned filter;	       /* the chosen one */
	struct furca_fd rules;	       /* Landlock, where there is no cell */
	bool scoped;		       /* the rules keep signals inside, too */
	char cwd[4096];
	struct furca_fds fds;
	struct furca_memory memory;
};

void furca_barriers_init(void)
{
	static bool noted;

	if (noted)
		return;
	(void)furca_namespaces_own(&home);
	noted = true;
}

/*
 * The cell was made from where this process began. One that has left that for namespaces of its own (unshare) has files, addresses or names that a
 * clone in the cell would not find; one in a user namespace of its own may not even look at the cell.
 */
static bool is_home(enum furca_namespace which, uint64_t now)
{
	const unsigned seen = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS;

	return !(furca_namespaces_flag(which) & seen) || home.inode[which] == 0 || home.inode[which] == now;
}

/* Whether all that there are here are known; who made the cell may have been short of descriptors. */
static bool complete(const struct furca_namespaces *known, const struct furca_namespaces *own)
{
	for (size_t i = 0; known && i < FURCA_NAMESPACES; i++)
		if (own->inode[i] && !known->inode[i])
			return false;
	return known != NULL;
}

/* Which namespaces of the cell are not ours already. */
static int compare_namespaces(struct furca_barriers *plan, const struct furca_namespaces *known, struct furca_err *err)
{
	struct furca_namespaces own;
	int r = furca_namespaces_own(&own);

	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot see this process's namespaces");
	if (complete(known, &own))
		plan->cells = *known;
	else
		furca_namespaces_of(plan->cell, &plan->cells);
	for (size_t i = 0; i < FURCA_NAMESPACES; i++) {
		uint64_t ours = own.inode[i], theirs = plan->cells.inode[i];

		if (!ours)
			continue;
		if (!is_home(i, ours))
			return furca_fail_suggest(
				err, FURCA_E_CLONE, EXDEV, "Do that in a child process (`unshare` with a command).",
				"the process has left the %s namespace in which it began, and cannot be put into a cell",
				furca_namespaces_name(i));
		if (!theirs)
			return furca_fail_suggest(err, FURCA_E_ISOLATION, ESRCH, "Ask for another cell.",
						  "the cell has ended");
		if (theirs != ours)
			plan->flags |= furca_namespaces_flag(i);
	}
	return 0;
}

/* A root of its own would make the paths of the cell other than ours. */
static int look_at_root(const struct furca_barriers *plan, struct furca_err *err)
{
	char root[8] = "";

	if (readlink("/proc/self/root", root, sizeof(root) - 1) > 0 && strcmp(root, "/") != 0 &&
	    (plan->flags & CLONE_NEWNS))
		return furca_fail_suggest(err, FURCA_E_CLONE, 0, "Leave the chroot.",
					  "a process in a chroot cannot be put into a cell");
	return 0;
}

/* Where no cell holds a barrier, the filter has to; these are added when the barrier is wanted. */
static void choose_filter(struct furca_barriers *plan)
{
	bool ipc = (plan->flags & CLONE_NEWIPC) != 0, net = (plan->flags & CLONE_NEWNET) != 0;

	plan->filter = !net ? FURCA_FILTER_NO_UNIX : 0;
	if ((plan->wanted & FURCA_BARRIER_IPC) && !ipc)
		plan->filter |= FURCA_FILTER_NO_IPC;
	if ((plan->wanted & FURCA_BARRIER_NETWORK) && !net)
		plan->filter |= FURCA_FILTER_NO_NETWORK;
	if ((plan->wanted & FURCA_BARRIER_PROCESSES) && !(plan->flags & CLONE_NEWPID))
		plan->filter |= FURCA_FILTER_NO_OTHERS;
	if ((plan->wanted & FURCA_BARRIER_DISK) && plan->cell < 0)
		plan->filter |= FURCA_FILTER_NO_METADATA;
}

static int plan_privileges(struct furca_barriers *plan, struct furca_err *err)
{
	int r;

	choose_filter(plan);
	r = furca_privileges_prepare(plan->filter, err);
	/* Whether the cell's disk is its own shows only inside it. */
	if (r == 0)
		r = furca_privileges_prepare(plan->filter | FURCA_FILTER_NO_UNIX, err);
	if (r < 0 || plan->cell >= 0 || furca_landlock_abi() < FURCA_LANDLOCK_DISK)
		return r;
	plan->scoped = furca_landlock_abi() >= FURCA_LANDLOCK_SCOPE;
	return furca_landlock_rules((plan->wanted & FURCA_BARRIER_DISK) != 0, &plan->rules, err);
}

/* The advice to give a barrier up: the caller's decision, and not had where the engine itself requires it. */
static int refuse_barrier(struct furca_err *err, int bit, const char *text) __attribute__((format(printf, 3, 0)));

static int refuse_barrier(struct furca_err *err, int bit, const char *text)
{
	const char *word = furca_barrier_word(bit);
	char advice[FURCA_ERR_TEXT_MAX];

	(void)snprintf(
		advice, sizeof(advice),
		"Remove '%s' from isolation.require and use isolation.%s='allow' to do without that guarantee, or run furca where it can "
		"be had (`furca doctor` tells).",
		word, word);
	return furca_fail_suggest(err, FURCA_E_ISOLATION, 0, advice, text, word);
}

/* Whether it holds a FIFO that has a name: what a copy reads from there by that name is gone for the original. */
static bool holds_fifo(void)
{
	DIR *dir = opendir("/proc/self/fd");
	bool ret = !dir; /* unknown */

	for (struct dirent *e; dir && !ret && (e = readdir(dir));) {
		struct statfs fs;
		struct stat st;
		int fd = (int)strtol(e->d_name, NULL, 10);

		ret = e->d_name[0] != '.' && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && fstatfs(fd, &fs) == 0 &&
		      fs.f_type != PIPEFS_MAGIC;
	}
	if (dir)
		(void)closedir(dir);
	return ret;
}

/* What cannot be had without a cell is known before anything is stopped. */
static int refuse_early(const struct furca_barriers *plan, struct furca_err *err)
{
	int abi = furca_landlock_abi();

	if (plan->cell >= 0)
		return 0;
	if ((plan->required & FURCA_BARRIER_DISK) && abi < FURCA_LANDLOCK_DISK)
		return refuse_barrier(err, __builtin_ctz(FURCA_BARRIER_DISK),
				      "there is no cell, and Landlock cannot guard the %s here");
	if ((plan->required & FURCA_BARRIER_DISK) && holds_fifo())
		return furca_fail_suggest(
			err, FURCA_E_ISOLATION, 0,
			"Close the FIFO first, or use isolation.disk='allow' to do without that guarantee.",
			"there is no cell, and Landlock does not keep a copy from emptying the FIFO that is open here");
	if ((plan->required & FURCA_BARRIER_PROCESSES) && abi < FURCA_LANDLOCK_SCOPE)
		return refuse_barrier(err, __builtin_ctz(FURCA_BARRIER_PROCESSES),
				      "there is no cell, and Landlock cannot guard other %s here");
	return 0;
}

static int plan_fds(struct furca_barriers *plan, const struct furca_barriers_args *args, struct furca_err *err)
{
	FURCA_AUTO_FREE int *keep = malloc((args->n_keep + 1) * sizeof(*keep));
	FURCA_AUTO_FREE int *drop = malloc((args->n_drop + 1) * sizeof(*drop));
	size_t n = args->n_keep, n_drop = args->n_drop;

	if (!keep || !drop)
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "cannot plan the descriptors of a clone");
	if (n)
		memcpy(keep, args->keep, n * sizeof(*keep));
	if (plan->rules.n >= 0)
		keep[n++] = plan->rules.n; /* until the rules are up */
	if (n_drop)
		memcpy(drop, args->drop, n_drop * sizeof(*drop));
	if (plan->cell >= 0)
		drop[n_drop++] = plan->cell; /* when it has been entered */
	return furca_fds_plan(&plan->fds, keep, n, drop, n_drop, err);
}

static int make_plan(struct furca_barriers *plan, const struct furca_barriers_args *args, struct furca_err *err)
{
	int r = plan->cell >= 0 ? compare_namespaces(plan, args->namespaces, err) : 0;

	if (r == 0)
		r = look_at_root(plan, err);
	if (r == 0)
		r = refuse_early(plan, err);
	plan->privileges = (plan->wanted & AROUND) != 0;
	plan->no_cap_left = !plan->privileges && (plan->flags & CLONE_NEWUSER);
	if (r == 0 && plan->privileges)
		r = plan_privileges(plan, err);
	/* The filters that most copies will need are compiled once, early: a zygote's children inherit them. */
	if (r == 0 && !plan->privileges)
		r = furca_privileges_prepare(0, err);
	if (r == 0 && !plan->privileges)
		r = furca_privileges_prepare(FURCA_FILTER_NO_UNIX, err);
	plan->fds.own_files = !(plan->wanted & FURCA_BARRIER_DISK);
	plan->fds.standing = args->standing;
	plan->fds.own_network = (plan->flags & CLONE_NEWNET) != 0;
	plan->fds.no_datagrams = plan->privileges && (plan->filter & FURCA_FILTER_NO_UNIX);
	return r == 0 ? plan_fds(plan, args, err) : r;
}

int furca_barriers_plan(const struct furca_barriers_args *args, struct furca_barriers **ret, struct furca_err *err)
{
	/* Mapped, not malloc'ed: large, and freed in two processes. */
	struct furca_barriers *plan =
		mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (plan == MAP_FAILED)
		return furca_fail(err, FURCA_E_MEMORY, ENOMEM, "cannot plan the barriers of a clone");
	plan->wanted = args->barriers & ~(unsigned)FURCA_BARRIER_THREADS;
	plan->required = args->required & ~(unsigned)FURCA_BARRIER_THREADS;
	plan->cell = args->cell;
	plan->children = -1;
	plan->rules = FURCA_FD_NONE;
	plan->memory.skip = args->shared;
	plan->memory.skip_size = args->shared_size;
	int r = make_plan(plan, args, err);
	if (r < 0) {
		furca_barriers_free(plan);
		return r;
	}
	*ret = plan;
	return 0;
}

void furca_barriers_free(struct furca_barriers *plan)
{
	if (!plan)
		return;
	furca_fds_free(&plan->fds);
	furca_fd_done(&plan->rules);
	(void)munmap(plan, sizeof(*plan));
}

/* ---- raw from here ----------------------------------------------------------------------------------------------- */

static bool remakes_fds(const struct furca_barriers *plan)
{
	return (plan->wanted & FURCA_BARRIER_DESCRIPTORS) || plan->fds.standing;
}

int furca_barriers_census(struct furca_barriers *plan)
{
	if (furca_raw(SYS_getcwd, plan->cwd, sizeof(plan->cwd)) < 0)
		plan->cwd[0] = '\0';
	return remakes_fds(plan) ? furca_fds_census(&plan->fds) : 0;
}

bool furca_barriers_new_pids(const struct furca_barriers *plan)
{
	return (plan->flags & CLONE_NEWPID) != 0;
}

int furca_barriers_enter(struct furca_barriers *plan)
{
	return plan->flags ? (int)furca_raw(SYS_setns, plan->cell, plan->flags) : 0;
}

int furca_barriers_lend(struct furca_barriers *plan)
{
	/* In a user namespace the others want privileges that are given only inside it. */
	if (!(plan->flags & CLONE_NEWPID) || (plan->flags & CLONE_NEWUSER))
		return -EINVAL;
	long r = furca_raw_open("/proc/thread-self/ns/pid_for_children", O_RDONLY);

	if (r < 0)
		return (int)r;
	plan->children = (int)r;
	/* The way back first: it needs privileges over the present pid namespace, which those of a user namespace below it are not. */
	r = furca_raw(SYS_setns, plan->children, CLONE_NEWPID);
	if (r == 0)
		r = furca_raw(SYS_setns, plan->cell, CLONE_NEWPID);
	if (r < 0) {
		furca_raw_close(plan->children);
		plan->children = -1;
	}
	return (int)r;
}

void furca_barriers_take_back(struct furca_barriers *plan)
{
	/* It takes some hundred bytes of the kernel's memory, and nothing else that could be missing. */
	for (int tries = 0; furca_raw(SYS_setns, plan->children, CLONE_NEWPID) < 0; tries++) {
		if (tries == TAKE_BACK_TRIES)
			furca_raw_exit(EXIT_LENT);
		furca_raw_sleep_us(TAKE_BACK_PAUSE_US);
	}
	furca_raw_close(plan->children);
	plan->children = -1;
}

int furca_barriers_join(struct furca_barriers *plan)
{
	furca_raw_close(plan->children);
	plan->children = -1;
	return (int)furca_raw(SYS_setns, plan->cell, plan->flags & ~(unsigned)CLONE_NEWPID);
}

static int fail_at(struct furca_barriers_result *ret, int stage, long r)
{
	ret->stage = stage;
	ret->sys = (int32_t)-r;
	return (int)r;
}

static void hold(const struct furca_barriers *plan, struct furca_barriers_result *ret, unsigned barrier, int mechanism)
{
	if (!(plan->wanted & barrier))
		return;
	ret->held |= barrier;
	ret->mechanism[__builtin_ctz(barrier)] = (uint8_t)mechanism;
}

/* What the cell's init has put up, from the mark that it left where the disk is the cell's own. */
static bool read_mark(struct furca_cell_facts *facts)
{
	long fd = furca_raw_open(FURCA_CELL_MARK, O_RDONLY | O_NOFOLLOW), n;

	if (fd < 0)
		return false;
	n = furca_raw(SYS_read, fd, facts, sizeof(*facts));
	furca_raw_close(fd);
	return n == (long)sizeof(*facts) && memcmp(facts->magic, FURCA_CELL_MAGIC, sizeof(facts->magic)) == 0;
}

static void note_cell(struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	struct furca_cell_facts facts;

	if (plan->flags & CLONE_NEWPID)
		hold(plan, ret, FURCA_BARRIER_PROCESSES, FURCA_MECHANISM_PID_NAMESPACE);
	if (plan->flags & CLONE_NEWIPC)
		hold(plan, ret, FURCA_BARRIER_IPC, FURCA_MECHANISM_IPC_NAMESPACE);
	if (plan->flags & CLONE_NEWNET)
		hold(plan, ret, FURCA_BARRIER_NETWORK, FURCA_MECHANISM_NET_NAMESPACE);
	if ((plan->flags & CLONE_NEWNS) && read_mark(&facts) && (facts.held & FURCA_BARRIER_DISK)) {
		hold(plan, ret, FURCA_BARRIER_DISK, facts.mechanism[__builtin_ctz(FURCA_BARRIER_DISK)]);
		plan->fds.overlay = (plan->wanted & FURCA_BARRIER_DISK) != 0;
	} else {
		plan->filter |= FURCA_FILTER_NO_UNIX;
		plan->fds.no_datagrams = plan->privileges;
	}
}

/* Whatever is required and held neither by now nor by a later step. */
static unsigned missing(const struct furca_barriers *plan, const struct furca_barriers_result *ret)
{
	unsigned later = FURCA_BARRIER_MEMORY | FURCA_BARRIER_DESCRIPTORS | FURCA_BARRIER_PRIVILEGES;

	if (plan->rules.n >= 0)
		later |= FURCA_BARRIER_DISK | (plan->scoped ? FURCA_BARRIER_PROCESSES : 0);
	if (plan->filter & FURCA_FILTER_NO_IPC)
		later |= FURCA_BARRIER_IPC;
	if (plan->filter & FURCA_FILTER_NO_NETWORK)
		later |= FURCA_BARRIER_NETWORK;
	return plan->required & ~ret->held & ~(later & plan->wanted);
}

/* A signal to process group 0 leaves a pid namespace unless the group is new. Fails, harmlessly, where it is new already. */
static void leave_session(const struct furca_barriers *plan)
{
	if (plan->wanted & AROUND)
		furca_raw(SYS_setsid);
}

static long enter_cwd(const struct furca_barriers *plan)
{
	long r;

	if (!(plan->flags & CLONE_NEWNS))
		return 0;
	/* Joining a mount namespace has put us at its root, so a directory that has gone leaves us there. */
	r = plan->cwd[0] == '/' ? furca_raw(SYS_chdir, plan->cwd) : 0;
	return r == -ENOENT || r == -EACCES || r == -ENOTDIR ? 0 : r;
}

static int make_private(struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	int r;

	furca_fds_drop(&plan->fds);
	if (remakes_fds(plan)) {
		r = furca_fds_privatise(&plan->fds);
		if (r < 0)
			return fail_at(ret, FURCA_STAGE_FDS, r);
		ret->buried = plan->fds.buried;
		ret->copied = plan->fds.copied;
		hold(plan, ret, FURCA_BARRIER_DESCRIPTORS, FURCA_MECHANISM_PRIVATE_DESCRIPTORS);
	} else if (plan->fds.netlink >= 0) {
		furca_raw_close(plan->fds.netlink);
		plan->fds.netlink = -1;
	}
	if (plan->wanted & FURCA_BARRIER_MEMORY) {
		plan->memory.fds = (plan->wanted & FURCA_BARRIER_DESCRIPTORS) ? &plan->fds : NULL;
		r = furca_memory_privatise(&plan->memory);
		if (r < 0 && (plan->required & FURCA_BARRIER_MEMORY))
			return fail_at(ret, FURCA_STAGE_MEMORY, r);
		ret->copied += plan->memory.copied;
		if (plan->memory.viewed && (plan->required & FURCA_BARRIER_MEMORY))
			return fail_at(ret, FURCA_STAGE_MEMORY, -E2BIG);
		if (r == 0 && !plan->memory.viewed)
			hold(plan, ret, FURCA_BARRIER_MEMORY, FURCA_MECHANISM_PRIVATE_MAPPINGS);
	}
	return 0;
}

int furca_barriers_apply(struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	long r;
	int s;

	for (size_t i = 0; i < FURCA_NAMESPACES; i++)
		if (plan->flags & furca_namespaces_flag(i))
			home.inode[i] = plan->cells.inode[i];
	note_cell(plan, ret);
	if (missing(plan, ret))
		return fail_at(ret, FURCA_STAGE_ENTER, -ENODATA);
	leave_session(plan);
	r = enter_cwd(plan);
	if (r < 0)
		return fail_at(ret, FURCA_STAGE_CWD, r);
	s = make_private(plan, ret);
	if (s == 0)
		ret->stage = FURCA_STAGE_DONE;
	return s;
}

int furca_barriers_lower(struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	int r;

	if (!plan->privileges)
		return 0;
	r = furca_privileges_lower();
	if (r < 0)
		return fail_at(ret, FURCA_STAGE_PRIVILEGES, r);
	if (plan->rules.n >= 0) {
		r = furca_landlock_enter(plan->rules.n);
		if (r < 0 &&
		    (plan->required & ~ret->held & (FURCA_BARRIER_DISK | (plan->scoped ? FURCA_BARRIER_PROCESSES : 0))))
			return fail_at(ret, FURCA_STAGE_LANDLOCK, r);
		furca_raw_close(plan->rules.n);
		plan->rules.n = -1;
		if (r == 0)
			hold(plan, ret, FURCA_BARRIER_DISK, FURCA_MECHANISM_LANDLOCK);
		if (r == 0 && plan->scoped)
			hold(plan, ret, FURCA_BARRIER_PROCESSES, FURCA_MECHANISM_SCOPE);
	}
	return 0;
}

int furca_barriers_seal_thread(const struct furca_barriers *plan)
{
	return plan->privileges || plan->no_cap_left ? furca_privileges_drop() : 0;
}

/* The barriers that a process would not have without its filter. */
static unsigned on_filter(const struct furca_barriers *plan)
{
	unsigned bits = FURCA_BARRIER_PRIVILEGES;

	if (plan->filter & FURCA_FILTER_NO_IPC)
		bits |= FURCA_BARRIER_IPC;
	if (plan->filter & FURCA_FILTER_NO_NETWORK)
		bits |= FURCA_BARRIER_NETWORK;
	/* Landlock alone leaves holes: metadata of files, sockets with names, limits of other processes. */
	if (plan->filter & (FURCA_FILTER_NO_METADATA | FURCA_FILTER_NO_UNIX))
		bits |= FURCA_BARRIER_DISK;
	if (plan->filter & FURCA_FILTER_NO_OTHERS)
		bits |= FURCA_BARRIER_PROCESSES;
	return bits & plan->wanted;
}

int furca_barriers_seal(const struct furca_barriers *plan, struct furca_barriers_result *ret)
{
	int r = furca_barriers_seal_thread(plan);

	if (r < 0)
		return fail_at(ret, FURCA_STAGE_PRIVILEGES, r);
	if (!plan->privileges)
		return 0;
	r = furca_privileges_filter(plan->filter);
	if (r < 0) {
		unsigned lost = on_filter(plan);

		if (lost & plan->required)
			return fail_at(ret, FURCA_STAGE_FILTER, r);
		ret->held &= ~lost;
		for (int bit = 0; bit < FURCA_BARRIERS; bit++)
			if (lost & 1U << bit)
				ret->mechanism[bit] = FURCA_MECHANISM_NONE;
		return 0;
	}
	hold(plan, ret, FURCA_BARRIER_PRIVILEGES, FURCA_MECHANISM_CAPABILITIES);
	if (plan->filter & FURCA_FILTER_NO_IPC)
		hold(plan, ret, FURCA_BARRIER_IPC, FURCA_MECHANISM_SECCOMP);
	if (plan->filter & FURCA_FILTER_NO_NETWORK)
		hold(plan, ret, FURCA_BARRIER_NETWORK, FURCA_MECHANISM_SECCOMP);
	return 0;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

int furca_barriers_fail(const struct furca_barriers *plan, const struct furca_barriers_result *result,
			struct furca_err *err)
{
	if (result->stage == FURCA_STAGE_ENTER && result->sys == ENODATA) {
		unsigned bits = missing(plan, result);

		return refuse_barrier(err, bits ? __builtin_ctz(bits) : 0,
				      "the barrier '%s' is required and cannot be put up here");
	}
	if (result->stage == FURCA_STAGE_MEMORY && result->sys == E2BIG)
		return furca_fail_suggest(
			err, FURCA_E_ISOLATION, 0,
			"Keep it in private memory or in a file, or use isolation.memory='allow': the copy then sees what is written to it "
			"later.",
			"the process shares more than %d MiB of memory with others (MAP_SHARED), too much to be copied",
			(int)(FURCA_MEMORY_COPY >> 20));
	if (result->stage == FURCA_STAGE_MEMORY && result->sys == EFAULT)
		return furca_fail_suggest(
			err, FURCA_E_ISOLATION, 0,
			"Unmap it before this call, or use isolation.memory='allow': the copy then sees what is written to it later.",
			"the process shares memory that the kernel does not let anybody copy (memfd_secret, a device)");
	if (result->stage == FURCA_STAGE_MEMORY && result->sys == EPERM)
		return furca_fail_suggest(
			err, FURCA_E_ISOLATION, 0,
			"Use isolation.memory='allow': the copy then sees what is written to it later.",
			"the process shares memory that is sealed (mseal), so that a copy cannot put its own in its place");
	return furca_fail(err, FURCA_E_ISOLATION, result->sys, "the copy could not %s (%s)",
			  furca_barriers_stage_text(result->stage), strerror(result->sys));
}
