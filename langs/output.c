#include "langs/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/banned.h"

static bool is_pipe_of(const struct stat *st, dev_t dev, ino_t ino)
{
	return ino && st->st_dev == dev && st->st_ino == ino && S_ISFIFO(st->st_mode);
}

/* Which of the pipes in place `fd` is: 0 or 1, or -1. */
static int pipe_at(const struct furca_output *output, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return -1; /* both ends of a pipe are one inode */
	for (int i = 0; i < 2; i++)
		if (is_pipe_of(&st, output->dev[i], output->ino[i]))
			return i;
	return -1;
}

/* Puts `from` at `fd`, keeping whether it is closed on exec. 0 or -errno. */
static int move_to(int from, int fd)
{
	int flags = fcntl(fd, F_GETFD);

	if (dup3(from, fd, flags >= 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0) < 0)
		return -errno;
	return 0;
}

/* Descriptors above 2 that still are the old pipes: listed by the kernel, since user code may have put them anywhere. */
static int move_others(const struct furca_output *output, const int *pipes)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return 0; /* without /proc the copies of the old pipe are late output, no more */
	while ((entry = readdir(dir))) {
		char *end;
		long fd = strtol(entry->d_name, &end, 10);
		int which;

		if (*end || end == entry->d_name || fd <= 2 || fd == dirfd(dir) || fd == pipes[0] || fd == pipes[1])
			continue;
		which = pipe_at(output, (int)fd);
		if (which >= 0 && (r = move_to(pipes[which], (int)fd)) < 0)
			break;
	}
	(void)closedir(dir);
	return r;
}

static int move_standard(const struct furca_output *output, const int *pipes, bool reopen)
{
	for (int i = 0; i < 2; i++) {
		int fd = 1 + i;
		int which = output->ino[0] ? pipe_at(output, fd) : i;
		int r;

		if (which < 0 && reopen && fcntl(fd, F_GETFD) < 0)
			which = i;
		if (which >= 0 && (r = move_to(pipes[which], fd)) < 0)
			return r;
	}
	return 0;
}

/* A descriptor that came in at 0 to 2, because user code had closed that one, makes room. */
static int move_up(struct furca_fd *fd)
{
	struct furca_fd higher;
	int r;

	if (fd->n > 2)
		return 0;
	r = furca_fd_dup(fd->n, 3, &higher);
	if (r < 0)
		return r;
	furca_fd_done(fd);
	*fd = higher;
	return 0;
}

int furca_output_begin(struct furca_output *output, struct furca_fd out, struct furca_fd error, bool reopen)
{
	FURCA_AUTO_FD struct furca_fd first = out;
	FURCA_AUTO_FD struct furca_fd second = error;
	struct furca_output next = {{0}, {0}};
	int r = move_up(&first);

	if (!r)
		r = move_up(&second);
	if (r < 0)
		return r;
	int pipes[2] = {first.n, second.n};

	for (int i = 0; i < 2; i++) {
		struct stat st;

		if (fstat(pipes[i], &st) < 0)
			return -errno;
		next.dev[i] = st.st_dev;
		next.ino[i] = st.st_ino;
	}
	r = move_standard(output, pipes, reopen);
	if (!r && output->ino[0])
		r = move_others(output, pipes);
	if (r < 0)
		return r;
	*output = next;
	return 0;
}

bool furca_output_redirected(const struct furca_output *output)
{
	return pipe_at(output, 1) < 0 || pipe_at(output, 2) < 0;
}
