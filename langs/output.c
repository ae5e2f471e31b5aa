#include "langs/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "bridge/wire/host.h"

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

static void add_place(const struct furca_output *output, int fd, struct furca_output_places *places)
{
	int which = pipe_at(output, fd);

	if (which < 0 || places->n == FURCA_COUNT(places->at))
		return;
	places->at[places->n].fd = fd;
	places->at[places->n++].which = which;
}

/* All descriptors that are the pipes in place: listed by the kernel, since user code may have put
 * them anywhere. */
void furca_output_hold(const struct furca_output *output, struct furca_output_places *ret)
{
	DIR *dir;
	struct dirent *entry;

	*ret = output->held; /* cut off before, and no call since: a clone of a clone */
	if (ret->n || !output->ino[0])
		return;
	add_place(output, 1, ret);
	add_place(output, 2, ret);
	if (output->tracked && !output->copied)
		return;
	dir = opendir("/proc/self/fd");
	if (!dir)
		return; /* without /proc the copies of the old pipe are late output, no more */
	while ((entry = readdir(dir))) {
		char *end;
		long fd = strtol(entry->d_name, &end, 10);

		if (!*end && end != entry->d_name && fd > 2 && fd != dirfd(dir))
			add_place(output, (int)fd, ret);
	}
	(void)closedir(dir);
}

/* The first time 1 and 2 are taken whatever they are; later, where they are closed and `reopen`. */
static int move_unplaced(const struct furca_output *output, const int *pipes, bool reopen)
{
	int r = 0;

	for (int i = 0; i < 2 && r == 0; i++)
		if (!output->ino[0] || (reopen && fcntl(1 + i, F_GETFD) < 0))
			r = move_to(pipes[i], 1 + i);
	return r;
}

static int move_placed(const struct furca_output_places *places, const int *pipes)
{
	int r = 0;

	for (unsigned i = 0; i < places->n && r == 0; i++)
		if (places->at[i].fd != pipes[0] && places->at[i].fd != pipes[1])
			r = move_to(pipes[places->at[i].which], places->at[i].fd);
	return r;
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

/* Whether 1 and 2 now are a call's pipes, each its own. */
static bool in_place(const struct furca_output_places *places)
{
	return places->n >= 2 && places->at[0].fd == 1 && places->at[0].which == 0 && places->at[1].fd == 2 &&
	       places->at[1].which == 1;
}

static void keep(struct furca_output *output, const struct furca_output_places *places, const int *pipes)
{
	for (int i = 0; output->keeps && i < 2; i++)
		(void)close(output->kept[i]);
	output->keeps = false;
	if (in_place(places) || (pipe_at(output, 1) == 0 && pipe_at(output, 2) == 1))
		return;
	for (int i = 0; i < 2; i++) {
		output->kept[i] = fcntl(pipes[i], F_DUPFD_CLOEXEC, FURCA_HIDDEN_FD);
		if (output->kept[i] < 0) {
			if (i == 1)
				(void)close(output->kept[0]);
			return;
		}
	}
	output->keeps = true;
}

int furca_output_begin(struct furca_output *output, struct furca_fd out, struct furca_fd error, bool reopen)
{
	FURCA_AUTO_FD struct furca_fd first = out;
	FURCA_AUTO_FD struct furca_fd second = error;
	struct furca_output next = {0};
	struct furca_output_places places = output->held;
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
	if (!places.n)
		furca_output_hold(output, &places);
	next.tracked = output->tracked;
	next.changed = true;
	for (unsigned i = 0; i < places.n; i++)
		next.copied |= places.at[i].fd > 2;
	r = move_unplaced(output, pipes, reopen);
	if (!r)
		r = move_placed(&places, pipes);
	if (r < 0)
		return r;
	next.keeps = output->keeps;
	next.kept[0] = output->kept[0];
	next.kept[1] = output->kept[1];
	*output = next;
	keep(output, &places, pipes);
	return 0;
}

unsigned furca_output_redirected(struct furca_output *output)
{
	if (!output->tracked || output->changed)
		output->redirected = (pipe_at(output, 1) < 0 ? 1U : 0U) | (pipe_at(output, 2) < 0 ? 2U : 0U);
	output->changed = false;
	return output->redirected;
}

bool furca_output_in_place(const struct furca_output *output)
{
	return output->ino[0] != 0 && output->held.n == 0;
}
