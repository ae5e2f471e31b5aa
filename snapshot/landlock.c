#include "snapshot/landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot/raw.h"

#include "base/banned.h"

/* The kernel's structure as of version 6; older ones are a prefix of it. */
struct rules {
	uint64_t files, network, scoped;
};

#define WRITE_FILE (1ULL << 1)
#define READ_FILE (1ULL << 2)
#define TRUNCATE (1ULL << 14)
#define IOCTL_DEVICE (1ULL << 15)
/* REMOVE_DIR to MAKE_SYM, REFER */
#define CHANGES (WRITE_FILE | 0x1ff0ULL | 1ULL << 13 | TRUNCATE)
#define SCOPE (1ULL | 2ULL) /* abstract sockets, signals */

int furca_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

static void allow(int rules, int dir, const char *path, uint64_t access)
{
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(openat(dir, path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd.n};

	if (fd.n >= 0)
		(void)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static void allow_devices(int rules, uint64_t access)
{
	static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

	for (size_t i = 0; i < FURCA_COUNT(devices); i++)
		allow(rules, AT_FDCWD, devices[i], access & (READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE));
	allow(rules, AT_FDCWD, "/dev/shm", READ_FILE);
}

/* What is read from a terminal is gone for others: of /dev no more can be read. Rules only allow, so everything beside it is named. */
static int allow_reading(int rules)
{
	DIR *root = opendir("/");

	if (!root)
		return -errno;
	for (struct dirent *e; (e = readdir(root));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, "dev") != 0)
			allow(rules, dirfd(root), e->d_name, READ_FILE);
	(void)closedir(root);
	return 0;
}

int furca_landlock_rules(bool disk, struct furca_fd *ret, struct furca_err *err)
{
	int abi = furca_landlock_abi();
	struct rules rules = {0};
	size_t size = abi >= FURCA_LANDLOCK_SCOPE ? sizeof(rules) : abi >= 4 ? 16 : 8;

	if (disk)
		rules.files = READ_FILE | CHANGES | (abi >= 5 ? IOCTL_DEVICE : 0);
	if (abi >= FURCA_LANDLOCK_SCOPE)
		rules.scoped = SCOPE;
	if (abi < FURCA_LANDLOCK_DISK)
		return furca_fail(err, FURCA_E_ISOLATION, ENOSYS, "this kernel's Landlock is missing or too old");
	struct furca_fd fd = furca_fd_own((int)syscall(SYS_landlock_create_ruleset, &rules, size, 0));
	if (fd.n < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot make Landlock rules");
	int r = disk ? allow_reading(fd.n) : 0;
	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot list / for Landlock's rules");
	if (disk)
		allow_devices(fd.n, rules.files);
	*ret = fd;
	return 0;
}

int furca_landlock_enter(int rules)
{
	return (int)furca_raw(SYS_landlock_restrict_self, rules, 0);
}
