#include "snapshot/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"

#include "base/banned.h"

int furca_pagemap_open(struct furca_pagemap *ret)
{
	ret->page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret->file = furca_fd_own(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	return ret->file.n < 0 ? -errno : 0;
}

void furca_pagemap_done(struct furca_pagemap *map)
{
	furca_fd_done(&map->file);
}

ssize_t furca_pagemap_words(const struct furca_pagemap *map, uint64_t start, uint64_t end, uint64_t *ret, size_t max)
{
	size_t want = (size_t)FURCA_MIN((end - start) / map->page, (uint64_t)max);
	ssize_t n = pread(map->file.n, ret, want * sizeof(*ret), (off_t)(start / map->page * sizeof(*ret)));

	return n < 0 ? -errno : n / (ssize_t)sizeof(*ret);
}

int furca_pagemap_mappings(int (*fn)(void *data, const struct furca_mapping *mapping), void *data)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int r = maps ? 0 : -errno;

	while (r == 0 && fgets(line, sizeof(line), maps)) {
		unsigned long start, end, inode;
		char mode[5];

		if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &start, &end, mode, &inode) != 4 || mode[0] != 'r' ||
		    mode[3] != 'p' || strstr(line, " [v"))
			continue;
		struct furca_mapping mapping = {
			.start = start, .end = end, .writable = mode[1] == 'w', .anonymous = inode == 0};
		r = fn(data, &mapping);
	}
	if (maps)
		(void)fclose(maps);
	return r;
}
