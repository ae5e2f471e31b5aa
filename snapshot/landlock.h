/*
 * Landlock: the barrier that needs neither privileges nor namespaces. Writes below paths are refused instead of discarded; signals and
 * abstract sockets are kept inside.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/fd.h"

/* The kernel's version of Landlock, 0: none. 3 refuses all writes of file content; 6 also scopes signals and abstract sockets. */
int furca_landlock_abi(void);

#define FURCA_LANDLOCK_DISK 3
#define FURCA_LANDLOCK_SCOPE 6

/*
 * A ruleset that refuses (`disk`) every change below every path but the harmless devices, and reading others of /dev, such as terminals; and (where
 * the kernel can) signals to and abstract sockets of processes outside. What lies in / is listed: a directory made there later cannot be read from.
 * 0 and *ret, or -errno.
 */
int furca_landlock_rules(bool disk, struct furca_fd *ret, struct furca_err *err);

/* Raw: puts the rules up for the calling thread and those it makes; needs no_new_privs. 0 or -errno. */
int furca_landlock_enter(int rules);
