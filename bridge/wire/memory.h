/*
 * What comes beside a message: the memory of its arrays and frames (ext 3), one sealed memfd, which the engine passes on and never looks
 * into; or a descriptor that is an argument (ext 4).
 */
#pragma once

/*
 * Whether a descriptor is a memfd that nobody can change any more, of at most FURCA_MAX_FRAMES bytes. 0, -EPERM where it is not sealed or no
 * memfd, -E2BIG.
 */
int furca_memory_check(int fd);
