#include "snapshot/offsets.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>

#include "snapshot/raw.h"

#include "base/banned.h"

#define OFFSETS_MAX 4096
#define CHANGEABLE (O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME) /* what F_SETFL sets */

static struct offset {
	int fd, flags;
	int64_t position;
} noted[OFFSETS_MAX];
static int n_noted;

static int note(int fd)
{
	struct stat st;

	if (furca_raw(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	int64_t position = furca_raw(SYS_lseek, fd, 0, SEEK_CUR);
	if (position < 0)
		return 0;
	if (n_noted == OFFSETS_MAX)
		return -E2BIG;
	noted[n_noted++] = (struct offset){fd, (int)furca_raw(SYS_fcntl, fd, F_GETFL), position};
	return 0;
}

int furca_offsets_note(void)
{
	static char names[8192];
	long directory = furca_raw_open("/proc/self/fd", O_RDONLY | O_DIRECTORY), n;
	int r = 0;

	if (directory < 0)
		return (int)directory;
	n_noted = 0;
	while (r == 0 && (n = furca_raw(SYS_getdents64, directory, names, sizeof(names))) > 0)
		for (long at = 0; at < n && r == 0;) {
			const struct dirent64 *entry = (const void *)(names + at);
			const char *digits = entry->d_name;

			at += entry->d_reclen;
			if (*digits >= '0' && *digits <= '9')
				r = note((int)furca_raw_number(&digits, 10));
		}
	furca_raw_close(directory);
	return r;
}

void furca_offsets_restore(void)
{
	for (int i = 0; i < n_noted; i++) {
		furca_raw(SYS_lseek, noted[i].fd, noted[i].position, SEEK_SET);
		furca_raw(SYS_fcntl, noted[i].fd, F_SETFL, noted[i].flags & CHANGEABLE);
	}
	n_noted = 0;
}
