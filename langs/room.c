#include "langs/room.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/wire/host.h"

#include "base/banned.h"

#define MANY 1024 /* under a lower limit none is taken from code */

/* The lowest number that is free; 0 is where it is not open itself. The limit where none is. */
static rlim_t lowest_free(rlim_t limit)
{
	int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return errno == EBADF ? 0 : limit;
	(void)close(fd);
	return (rlim_t)fd;
}

void furca_room_reserve(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max < MANY ||
	    limit.rlim_cur + FURCA_HOST_FILES <= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max - FURCA_HOST_FILES;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* That one number is not open shows mostly, for a tenth of what finding the lowest free one costs, that some below the limit are free. */
static bool crowded(rlim_t limit)
{
	if (limit > FURCA_HOST_FILES / 2 && fcntl((int)(limit - FURCA_HOST_FILES / 2 - 1), F_GETFD) < 0)
		return false;
	return lowest_free(limit) + FURCA_HOST_FILES / 2 > limit;
}

void furca_room_make(struct furca_room *room)
{
	struct rlimit limit;

	if (room->made || getrlimit(RLIMIT_NOFILE, &limit) < 0 || !crowded(limit.rlim_cur))
		return;
	room->own = room->raised = limit;
	room->raised.rlim_cur = FURCA_MIN(limit.rlim_cur + FURCA_HOST_FILES, limit.rlim_max);
	room->made = room->raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &room->raised) == 0;
}

bool furca_room_give_back(struct furca_room *room)
{
	struct rlimit limit;

	if (!room->made)
		return false;
	room->made = false;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == room->raised.rlim_cur &&
	    limit.rlim_max == room->raised.rlim_max)
		(void)setrlimit(RLIMIT_NOFILE, &room->own);
	return true;
}
