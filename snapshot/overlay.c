#include "snapshot/overlay.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot/mounts.h"

#include "base/banned.h"

/*
 * The upper layers stand in one tmpfs over /sys: a directory that every system has, and whose present content is set aside
 * first. The new root grows in a directory of it.
 */
#define BASE "/sys"
#define ROOT BASE "/root"
#define DEFAULT_UPPER ((uint64_t)2 << 30)
enum { LOOKED_UP = 6 }; /* places: temporary directories, the working directory, the home directory */
#define INODES 400000	/* of all upper layers: bounds names as upper_bytes bounds contents */
#define NEW_PATH 8192

struct build {
	const struct furca_overlay_args *args;
	struct furca_mounts mounts;
	struct furca_overlay *overlay;
	size_t room;
	struct furca_fd sys; /* the present /sys, read-only */
};

static int target(char *out, size_t size, const char *path)
{
	int n = snprintf(out, size, ROOT "%s", strcmp(path, "/") == 0 ? "" : path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* Ids that are not mapped here show as 65534; whose uid that is himself cannot be told from them. */
static bool is_ours(const struct stat *st)
{
	return st->st_uid == geteuid() && st->st_gid == getegid() && st->st_uid != 65534 && st->st_gid != 65534;
}

/*
 * In a user namespace of one id a directory of somebody else cannot be copied up (EOVERFLOW), and overlayfs copies up every
 * ancestor of a file that is written. So the ancestors of places that matter are made in the upper layer beforehand, owned by
 * us; overlayfs merges them with those below. Elsewhere a write fails, which is safe.
 */
static void premake(const char *at, const char *upper, const char *place)
{
	char from[4096], to[NEW_PATH];
	size_t skip = strcmp(at, "/") == 0 ? 0 : strlen(at);

	if (!furca_path_below(place, at) || snprintf(from, sizeof(from), "%s", place) >= (int)sizeof(from))
		return;
	for (char *slash = from + skip; *slash;) {
		struct stat st;

		slash = strchrnul(slash + 1, '/');
		char kept = *slash;
		*slash = '\0';
		if (stat(from, &st) < 0 || !S_ISDIR(st.st_mode) || is_ours(&st))
			return;
		if (snprintf(to, sizeof(to), "%s%s", upper, from + skip) >= (int)sizeof(to))
			return;
		(void)mkdir(to, 0755);
		(void)chmod(to, st.st_mode & 07777);
		*slash = kept;
	}
}

static int upper_layer(struct build *build, const char *at, const struct stat *st, char *upper, char *work, size_t size)
{
	(void)snprintf(upper, size, BASE "/u%zu", build->overlay->n);
	(void)snprintf(work, size, BASE "/w%zu", build->overlay->n);
	if ((mkdir(upper, 0755) < 0 && errno != EEXIST) || (mkdir(work, 0755) < 0 && errno != EEXIST))
		return -errno;
	/* The upper directory's own attributes are those of the mount's root. Owners that cannot be set are a detail. */
	if (chown(upper, st->st_uid, st->st_gid) < 0 && !build->args->user_namespace)
		return -errno;
	if (chmod(upper, st->st_mode & 07777) < 0)
		return -errno;
	for (const char *const *place = build->args->places; build->args->user_namespace && place && *place; place++)
		premake(at, upper, *place);
	return 0;
}

static int keep_layer(struct build *build, const char *at, const char *upper, bool writable)
{
	struct furca_overlay *overlay = build->overlay;

	if (overlay->n == build->room) {
		struct furca_layer *layers = reallocarray(overlay->layers, build->room + 32, sizeof(*layers));

		if (!layers)
			return -ENOMEM;
		overlay->layers = layers;
		build->room += 32;
	}
	struct furca_layer layer = {
		.at = strdup(at),
		.lower = furca_fd_own(open(at, O_PATH | O_DIRECTORY | O_CLOEXEC)),
		.upper = furca_fd_own(open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
		.writable = writable,
	};
	overlay->layers[overlay->n++] = layer;
	return !layer.at || layer.lower.n < 0 || layer.upper.n < 0 ? -ENOMEM : 0;
}

/*
 * One overlay for the directory at `at`, without what is mounted below it. The lower layer is named "." from inside it, so
 * that no character of its path can be taken for an option's end. 0, 1 where the kernel refuses this lower layer, or -errno.
 */
static int overlay_at(struct build *build, const char *at, const struct stat *st, bool read_only, bool noexec)
{
	char to[NEW_PATH], upper[64], work[64], options[512];
	/* Renamed directories, hard links that stay one file, and chmod without a copy need trusted.* attributes. */
	const char *extra = build->args->user_namespace ? ",userxattr" : ",redirect_dir=on,index=on,metacopy=on";
	unsigned long flags = MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0) | (noexec ? MS_NOEXEC : 0);
	int r = target(to, sizeof(to), at);

	if (r == 0)
		r = upper_layer(build, at, st, upper, work, sizeof(upper));
	if (r < 0)
		return r;
	if (chdir(at) < 0)
		return errno == ENOENT || errno == EACCES ? 1 : -errno;
	(void)snprintf(options, sizeof(options), "lowerdir=.,upperdir=%s,workdir=%s%s", upper, work, extra);
	if (mount("furca", to, "overlay", flags, options) < 0) {
		(void)snprintf(options, sizeof(options), "lowerdir=.,upperdir=%s,workdir=%s", upper, work);
		if (mount("furca", to, "overlay", flags, options) < 0)
			return 1;
	}
	return keep_layer(build, at, upper, !read_only);
}

/* A single file that is a mount, or stands beside mounts: shown read-only. Sockets, pipes and devices are left out. */
static int file_at(struct build *build, const char *at, const struct stat *st)
{
	char to[NEW_PATH];
	FURCA_AUTO_FD struct furca_fd tree = FURCA_FD_NONE;
	int r = target(to, sizeof(to), at);

	if (r < 0)
		return r;
	if (!S_ISREG(st->st_mode) ||
	    furca_mount_tree(at, false, FURCA_TREE_READ_ONLY | FURCA_TREE_NOSUID | FURCA_TREE_NODEV, &tree) < 0 ||
	    furca_mount_attach(tree.n, to) < 0)
		build->overlay->left_out++;
	return 0;
}

static int split(struct build *build, const char *dir, bool noexec);

static int split_entry(struct build *build, const char *dir, const char *name, bool noexec)
{
	char path[4096], to[NEW_PATH], text[4096];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name) >= (int)sizeof(path) ||
	    lstat(path, &st) < 0)
		return 0;
	int r = target(to, sizeof(to), path);
	if (r < 0)
		return r;
	bool mounted = furca_mounts_at(&build->mounts, path);
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(path, text, sizeof(text) - 1);

		if (n <= 0)
			return 0;
		text[n] = '\0';
		return symlink(text, to) < 0 && errno != EEXIST ? -errno : 0;
	}
	if (S_ISDIR(st.st_mode)) {
		if ((mkdir(to, 0755) < 0 && errno != EEXIST) || chmod(to, st.st_mode & 07777) < 0)
			return -errno;
		if (mounted || strcmp(path, "/proc") == 0 || strcmp(path, BASE) == 0 || strcmp(path, "/dev") == 0)
			return 0; /* its turn comes with the mounts */
		if (furca_mounts_below(&build->mounts, path))
			return split(build, path, noexec);
		r = overlay_at(build, path, &st, false, noexec);
		build->overlay->left_out += r == 1;
		return r < 0 ? r : 0;
	}
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	if (fd.n < 0)
		return -errno;
	return mounted ? 0 : file_at(build, path, &st);
}

/*
 * Mounts that came along into a less privileged namespace are locked, and overlayfs refuses a lower directory with locked mounts
 * below it. So a directory that contains mount points is rebuilt by hand, and each child without gets its own overlay.
 */
static int split(struct build *build, const char *dir, bool noexec)
{
	int r = 0;
	DIR *stream = opendir(dir);

	if (!stream) {
		build->overlay->left_out++;
		return 0;
	}
	for (struct dirent *e; r == 0 && (e = readdir(stream));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = split_entry(build, dir, e->d_name, noexec);
	(void)closedir(stream);
	return r;
}

static int proc_at(struct build *build, const char *to)
{
	FURCA_AUTO_FD struct furca_fd tree = FURCA_FD_NONE;
	int r;

	/* Read-only also for our own entries: uid 0 without any capability still owns root's files in it. */
	if (build->args->new_proc)
		return mount("proc", to, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL) < 0 ? -errno : 0;
	r = furca_mount_tree("/proc", false, FURCA_TREE_READ_ONLY | FURCA_TREE_NOSUID | FURCA_TREE_NODEV, &tree);
	return r < 0 ? r : furca_mount_attach(tree.n, to);
}

static int dev_at(struct build *build, const char *to, struct furca_err *err)
{
	struct furca_dev how = {.nodes = !build->args->user_namespace,
				.own_shm = !furca_mounts_at(&build->mounts, "/dev/shm"),
				.mqueue = build->args->new_ipc,
				.mark = build->args->mark,
				.mark_size = build->args->mark_size};

	return furca_mount_dev(to, &how, err);
}

static int place_mount(struct build *build, const struct furca_mount *mount, struct furca_err *err)
{
	char to[NEW_PATH];
	struct stat st;
	const char *at = mount->at;
	int r = target(to, sizeof(to), at);

	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "the path of a mount is too long");
	if (strcmp(at, "/dev") == 0)
		return dev_at(build, to, err);
	if (strcmp(at, "/proc") == 0) {
		r = proc_at(build, to);
		return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot mount a /proc for the cell") : 0;
	}
	if (strcmp(at, BASE) == 0) {
		r = furca_mount_attach(build->sys.n, to);
		return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot show /sys read-only") : 0;
	}
	if (furca_path_below(at, "/proc") || furca_path_below(at, BASE) ||
	    (furca_path_below(at, "/dev") && strcmp(at, "/dev/shm") != 0) || lstat(at, &st) < 0)
		return 0;
	if (mount->kind != FURCA_MOUNT_FILES) {
		build->overlay->left_out++;
		return 0;
	}
	if (!S_ISDIR(st.st_mode))
		r = file_at(build, at, &st);
	else if (build->args->user_namespace && furca_mounts_below(&build->mounts, at))
		r = split(build, at, mount->noexec);
	else
		r = overlay_at(build, at, &st, mount->read_only, mount->noexec);
	if (r == 1 && strcmp(at, "/") == 0)
		r = split(build, at, mount->noexec); /* refused as a whole, for whatever reason: piece by piece */
	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot put an overlay over %s", at);
	build->overlay->left_out += r == 1;
	return 0;
}

static int base_tmpfs(struct build *build, struct furca_err *err)
{
	char options[128];
	uint64_t bytes = build->args->upper_bytes ? build->args->upper_bytes : DEFAULT_UPPER;
	int r = furca_mount_tree(BASE, true, FURCA_TREE_READ_ONLY | FURCA_TREE_NOSUID | FURCA_TREE_NODEV, &build->sys);

	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot copy the mounts below " BASE);
	(void)snprintf(options, sizeof(options), "mode=755,size=%llu,nr_inodes=%d", (unsigned long long)bytes, INODES);
	if (mount("furca", BASE, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 || mkdir(ROOT, 0755) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot mount a tmpfs for what is written");
	/* A view of its own, without what will be mounted in it. */
	r = furca_mount_tree(BASE, false, 0, &build->overlay->upper.top);
	if (r < 0)
		return furca_fail(err, FURCA_E_ISOLATION, -r, "cannot look at what is written");
	/* pivot_root wants a mount point; where the root is split, nothing else makes it one. */
	if (mount(ROOT, ROOT, NULL, MS_BIND, NULL) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot bind the new root");
	return 0;
}

/* Takes over `dir`. */
static int keep_rebuilt(struct furca_overlay *overlay, const char *at, struct furca_fd *dir, const struct stat *st)
{
	struct furca_rebuilt *list = reallocarray(overlay->rebuilt, overlay->n_rebuilt + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	overlay->rebuilt = list;
	struct furca_rebuilt *new = &list[overlay->n_rebuilt++];
	*new = (struct furca_rebuilt){.at = strdup(at), .dir = furca_fd_take(dir), .mode = st->st_mode};
	return new->at ? furca_upper_entries(new->dir.n, &new->entries) : -ENOMEM;
}

/* The directory `path` of the new root, and those below it, as far as no mount covers them. */
static int note_rebuilt(struct furca_overlay *overlay, const char *path)
{
	char to[NEW_PATH];
	struct stat raw, shown;
	int r = target(to, sizeof(to), path);

	if (r < 0)
		return r;
	FURCA_AUTO_FD struct furca_fd dir = furca_fd_own(
		openat(overlay->upper.top.n, to + sizeof(BASE), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir.n < 0 || fstat(dir.n, &raw) < 0 || lstat(to, &shown) < 0)
		return -errno;
	if (raw.st_dev != shown.st_dev || raw.st_ino != shown.st_ino)
		return 0;
	r = furca_upper_note(&overlay->upper, to + sizeof(BASE));
	if (r == 0)
		r = keep_rebuilt(overlay, path, &dir, &raw);
	const size_t own = overlay->n_rebuilt - 1;
	for (size_t i = 0; r == 0; i++) {
		const struct furca_buf *entries = &overlay->rebuilt[own].entries;
		const struct furca_upper_entry *e = (const struct furca_upper_entry *)(const void *)entries->data + i;
		char below[4096];

		if (i == entries->len / sizeof(*e))
			break;
		if (S_ISDIR(e->st.st_mode) &&
		    snprintf(below, sizeof(below), "%s/%s", path[1] ? path : "", e->name) < (int)sizeof(below))
			r = note_rebuilt(overlay, below);
	}
	return r;
}

/* How everything stands before anything runs here. */
static int note_upper(struct furca_overlay *overlay, struct furca_err *err)
{
	char path[64];
	int r = note_rebuilt(overlay, "/");

	for (size_t i = 0; r == 0 && i < overlay->n; i++) {
		(void)snprintf(path, sizeof(path), "u%zu", i);
		r = furca_upper_note_tree(&overlay->upper, path);
	}
	overlay->mark = furca_upper_mark(&overlay->upper);
	return r < 0 ? furca_fail(err, FURCA_E_ISOLATION, -r, "cannot note what the cell's disk holds at first") : 0;
}

static int swap_root(struct furca_err *err)
{
	if (chdir(ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot make the new tree the root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot leave the old tree");
	return 0;
}

/* A path's first look-up in an overlay costs a copy's start as much as its mount namespaces; those it begins with are looked up here. */
static void look_up(const char *const *places)
{
	struct stat st;

	for (size_t i = 0; places && i < LOOKED_UP && places[i]; i++)
		(void)stat(places[i], &st);
	(void)stat("/dev/null", &st);
}

int furca_overlay_build(const struct furca_overlay_args *args, struct furca_overlay *ret, struct furca_err *err)
{
	struct furca_overlay overlay = {.user_namespace = args->user_namespace, .upper.top = FURCA_FD_NONE};
	struct build build = {.args = args, .overlay = &overlay, .sys = FURCA_FD_NONE};
	int r = 0;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return furca_fail(err, FURCA_E_ISOLATION, errno, "cannot cut the mounts off from the machine's");
	r = furca_mounts_read(&build.mounts, err);
	if (r == 0)
		r = base_tmpfs(&build, err);
	for (size_t i = 0; r == 0 && i < build.mounts.n; i++)
		r = place_mount(&build, &build.mounts.list[i], err);
	if (r == 0 && !furca_mounts_at(&build.mounts, "/dev"))
		r = dev_at(&build, ROOT "/dev", err); /* a plain directory here: a container's, or a chroot */
	if (r == 0)
		r = note_upper(&overlay, err);
	if (r == 0)
		r = swap_root(err);
	if (r == 0)
		look_up(args->places);
	furca_mounts_done(&build.mounts);
	furca_fd_done(&build.sys);
	if (r < 0)
		furca_overlay_done(&overlay);
	else
		*ret = overlay;
	return r;
}

void furca_overlay_done(struct furca_overlay *overlay)
{
	for (size_t i = 0; i < overlay->n; i++) {
		free(overlay->layers[i].at);
		furca_fd_done(&overlay->layers[i].lower);
		furca_fd_done(&overlay->layers[i].upper);
	}
	free(overlay->layers);
	for (size_t i = 0; i < overlay->n_rebuilt; i++) {
		free(overlay->rebuilt[i].at);
		furca_fd_done(&overlay->rebuilt[i].dir);
		furca_buf_done(&overlay->rebuilt[i].entries);
	}
	free(overlay->rebuilt);
	furca_upper_done(&overlay->upper);
	*overlay = (struct furca_overlay){.upper.top = FURCA_FD_NONE};
}
