#include "bridge/wire/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "bridge/wire/limits.h"

#include "base/banned.h"

int furca_memory_check(int fd)
{
	const int sealed = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & sealed) != sealed || fstat(fd, &st) < 0)
		return -EPERM;
	return st.st_size > (off_t)FURCA_MAX_FRAMES ? -E2BIG : 0;
}
