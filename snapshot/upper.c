#include "snapshot/upper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/auto.h"

#include "base/banned.h"

#define MAX_PATH 8192

int furca_upper_note(struct furca_upper *upper, const char *path)
{
	return furca_buf_append(&upper->directories, path, strlen(path) + 1);
}

/* A stream of its own on the directory `path` of `dir`, or NULL. */
static DIR *open_at(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream && fd >= 0)
		(void)close(fd);
	return stream;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int furca_upper_note_tree(struct furca_upper *upper, const char *path)
{
	DIR *stream = open_at(upper->top.n, path);
	int r = stream ? furca_upper_note(upper, path) : -errno;

	for (struct dirent *e; r == 0 && (e = readdir(stream));) {
		char below[MAX_PATH];

		if (is_dots(e->d_name) || e->d_type != DT_DIR)
			continue;
		int n = snprintf(below, sizeof(below), "%s/%s", path, e->d_name);
		r = n < 0 || (size_t)n >= sizeof(below) ? -ENAMETOOLONG : furca_upper_note_tree(upper, below);
	}
	if (stream)
		(void)closedir(stream);
	return r;
}

int furca_upper_entries(int dir, struct furca_buf *ret)
{
	DIR *stream = open_at(dir, ".");
	int r = stream ? 0 : -errno;

	for (struct dirent *e; r == 0 && (e = readdir(stream));) {
		struct furca_upper_entry entry = {.name = ""};

		if (is_dots(e->d_name) || fstatat(dir, e->d_name, &entry.st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		(void)snprintf(entry.name, sizeof(entry.name), "%s", e->d_name);
		r = furca_buf_append(ret, &entry, sizeof(entry));
	}
	if (stream)
		(void)closedir(stream);
	return r;
}

static void mix(uint64_t *mark, uint64_t value)
{
	*mark = (*mark ^ value) * 0x9e3779b97f4a7c15ULL;
	*mark ^= *mark >> 32;
}

uint64_t furca_upper_mark(const struct furca_upper *upper)
{
	const char *at = (const char *)upper->directories.data, *end = at + upper->directories.len;
	struct statfs fs;
	struct stat st;
	uint64_t mark = 1;

	if (upper->top.n < 0 || at == end || fstatfs(upper->top.n, &fs) < 0)
		return 0;
	/* Times may be coarse: the number of files and the modes tell of what came at the same moment. */
	mix(&mark, fs.f_files - fs.f_ffree);
	for (; at < end; at += strlen(at) + 1) {
		if (fstatat(upper->top.n, at, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		mix(&mark, st.st_mode);
		mix(&mark, (uint64_t)st.st_ctim.tv_sec * 1000000000U + (uint64_t)st.st_ctim.tv_nsec);
	}
	return mark | 1;
}

void furca_upper_done(struct furca_upper *upper)
{
	furca_fd_done(&upper->top);
	furca_buf_done(&upper->directories);
}
