/* The memory of arrays and frames (ext 3): one sealed memfd beside a message, which the engine passes on and never looks into. */
#pragma once

#define FURCA_EXT_FRAME 3

/*
 * Whether a descriptor is a memfd that nobody can change any more, of at most FURCA_MAX_FRAMES bytes. 0, -EPERM where it is not sealed or no
 * memfd, -E2BIG.
 */
int furca_memory_check(int fd);
