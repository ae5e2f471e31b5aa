#include "snapshot/mounts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/banned.h"

/* File systems that show the kernel or devices. What they hold is no file of anybody, and writing to it acts on the machine. */
static const char *const kernel_kinds[] = {
	"sysfs",    "cgroup",	 "cgroup2",    "debugfs", "tracefs",  "securityfs", "bpf",  "configfs", "pstore",
	"efivarfs", "selinuxfs", "smackfs",    "devpts",  "devtmpfs", "mqueue",	    "nsfs", "autofs",	"binfmt_misc",
	"fusectl",  "hugetlbfs", "rpc_pipefs", "nfsd",	  "resctrl",  "functionfs", "bdev", "dax",
};

static enum furca_mount_kind kind_of(const char *type)
{
	if (strcmp(type, "proc") == 0)
		return FURCA_MOUNT_PROC;
	for (size_t i = 0; i < FURCA_COUNT(kernel_kinds); i++)
		if (strcmp(type, kernel_kinds[i]) == 0)
			return FURCA_MOUNT_KERNEL;
	return FURCA_MOUNT_FILES;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (char *at = text; *at; at++) {
		if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] && at[3]) {
			*to++ = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
			at += 3;
		} else {
			*to++ = *at;
		}
	}
	*to = '\0';
}

static bool has_option(const char *options, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = options; (at = strstr(at, word)); at += n)
		if ((at == options || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
			return true;
	return false;
}

/* Whether looking at the mount point meets this very mount, and not one that lies over it. */
static bool visible(const char *at, uint64_t id)
{
	struct statx stx;

	if (statx(AT_FDCWD, at, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID, &stx) < 0)
		return false;
	return !(stx.stx_mask & STATX_MNT_ID) || stx.stx_mnt_id == id;
}

/* 36 35 98:0 /root /at opt,opt [tags] - type source superopts */
static int parse_line(char *line, struct furca_mount *ret)
{
	char *save = NULL, *fields[6] = {NULL};
	char *dash = strstr(line, " - ");

	if (!dash)
		return 0;
	*dash = '\0';
	for (int i = 0; i < 6; i++)
		fields[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
	char *type = strtok_r(dash + 3, " \n", &save);
	if (!fields[5] || !type)
		return 0;
	unescape(fields[4]);
	*ret = (struct furca_mount){.id = strtoull(fields[0], NULL, 10),
				    .kind = kind_of(type),
				    .read_only = has_option(fields[5], "ro"),
				    .noexec = has_option(fields[5], "noexec")};
	if (!visible(fields[4], ret->id))
		return 0;
	ret->at = strdup(fields[4]);
	return ret->at ? 1 : -ENOMEM;
}

int furca_mounts_read(struct furca_mounts *ret, struct furca_err *err)
{
	struct furca_mounts mounts = {0};
	char *line = NULL;
	size_t size = 0, room = 0;
	int r = 0;
	FILE *file = fopen("/proc/self/mountinfo", "re");

	if (!file)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot read /proc/self/mountinfo");
	while (r >= 0 && getline(&line, &size, file) > 0) {
		if (mounts.n == room) {
			struct furca_mount *list = reallocarray(mounts.list, room += 64, sizeof(*list));

			if (!list) {
				r = -ENOMEM;
				break;
			}
			mounts.list = list;
		}
		r = parse_line(line, &mounts.list[mounts.n]);
		if (r > 0)
			mounts.n++;
	}
	free(line);
	(void)fclose(file);
	if (r >= 0 && mounts.n == 0)
		r = -ENOENT;
	if (r < 0) {
		furca_mounts_done(&mounts);
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot list what is mounted");
	}
	*ret = mounts;
	return 0;
}

void furca_mounts_done(struct furca_mounts *mounts)
{
	for (size_t i = 0; i < mounts->n; i++)
		free(mounts->list[i].at);
	free(mounts->list);
	*mounts = (struct furca_mounts){0};
}

bool furca_path_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1) /* the root */
		return true;
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

bool furca_mounts_below(const struct furca_mounts *mounts, const char *dir)
{
	for (size_t i = 0; i < mounts->n; i++)
		if (strcmp(mounts->list[i].at, dir) != 0 && furca_path_below(mounts->list[i].at, dir))
			return true;
	return false;
}

bool furca_mounts_at(const struct furca_mounts *mounts, const char *path)
{
	for (size_t i = 0; i < mounts->n; i++)
		if (strcmp(mounts->list[i].at, path) == 0)
			return true;
	return false;
}

int furca_mount_tree(const char *path, bool recursive, unsigned attributes, struct furca_fd *ret)
{
	unsigned deep = recursive ? AT_RECURSIVE : 0;
	struct mount_attr attr = {.attr_set = ((attributes & FURCA_TREE_READ_ONLY) ? MOUNT_ATTR_RDONLY : 0) |
					      ((attributes & FURCA_TREE_NOSUID) ? MOUNT_ATTR_NOSUID : 0) |
					      ((attributes & FURCA_TREE_NODEV) ? MOUNT_ATTR_NODEV : 0)};
	FURCA_AUTO_FD struct furca_fd tree =
		furca_fd_own((int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | deep));

	if (tree.n < 0)
		return -errno;
	if (attr.attr_set && syscall(SYS_mount_setattr, tree.n, "", AT_EMPTY_PATH | deep, &attr, sizeof(attr)) < 0)
		return -errno;
	*ret = furca_fd_take(&tree);
	return 0;
}

int furca_mount_attach(int tree, const char *at)
{
	if (syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

static int node(const char *dir, const char *name, unsigned major_n, unsigned minor_n, bool make)
{
	char path[4096], from[64];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (make) {
		if (mknod(path, S_IFCHR | 0666, makedev(major_n, minor_n)) == 0 && chmod(path, 0666) == 0)
			return 0;
		(void)unlink(path); /* a user namespace may refuse: bind instead */
	}
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	if (fd.n < 0)
		return -errno;
	(void)snprintf(from, sizeof(from), "/dev/%s", name);
	return mount(from, path, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static int fill_dev(const char *dev, const struct furca_dev *how)
{
	static const struct {
		const char *name;
		unsigned major_n, minor_n;
	} nodes[] = {{"null", 1, 3},   {"zero", 1, 5},	  {"full", 1, 7},
		     {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
	static const char *const links[][2] = {{"pts/ptmx", "ptmx"},
					       {"/proc/self/fd", "fd"},
					       {"/proc/self/fd/0", "stdin"},
					       {"/proc/self/fd/1", "stdout"},
					       {"/proc/self/fd/2", "stderr"}};
	char path[4096];

	for (size_t i = 0; i < FURCA_COUNT(nodes); i++) {
		int r = node(dev, nodes[i].name, nodes[i].major_n, nodes[i].minor_n, how->nodes);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < FURCA_COUNT(links); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dev, links[i][1]);
		if (symlink(links[i][0], path) < 0)
			return -errno;
	}
	return 0;
}

static int sub_mount(const char *dev, const char *name, const char *type, unsigned long flags, const char *options)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s", dev, name);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	if (strcmp(name, "shm") == 0)
		(void)chmod(path, 01777);
	return type && mount("furca", path, type, flags | MS_NOSUID, options) < 0 ? -errno : 0;
}

static int write_mark(const char *dev, const struct furca_dev *how)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/.furca", dev);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444));
	return fd.n < 0 ? -errno : furca_fd_write_all(fd.n, how->mark, how->mark_size);
}

int furca_mount_dev(const char *dev, const struct furca_dev *how, struct furca_err *err)
{
	int r;

	if (mount("furca", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=64") < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot mount a private /dev");
	r = fill_dev(dev, how);
	/* devpts may be refused; then there are no new terminals in the cell. With MS_NODEV none could be opened: its ptmx is a device. */
	if (r == 0 && sub_mount(dev, "pts", "devpts", MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") < 0)
		r = sub_mount(dev, "pts", NULL, 0, NULL);
	if (r == 0)
		r = sub_mount(dev, "shm", how->own_shm ? "tmpfs" : NULL, MS_NODEV, "mode=1777,size=1g");
	if (r == 0)
		r = sub_mount(dev, "mqueue", how->mqueue ? "mqueue" : NULL, MS_NODEV | MS_NOEXEC, NULL);
	if (r == 0)
		r = write_mark(dev, how);
	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot fill the private /dev");
	/* Nodes would still be writable in name and mode for uid 0 without any capability. */
	if (mount(NULL, dev, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot make the private /dev read-only");
	return 0;
}
