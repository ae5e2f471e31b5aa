/*
 * Taking privileges away: capabilities (all sets), the bits that would bring them back, and a system call filter for what
 * no namespace covers. Prepared by the original (libcap and libseccomp allocate), put up in the clone by raw calls.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Whether this process has CAP_SYS_ADMIN in its user namespace. */
bool furca_privileges_have_admin(void);

/* What a filter does besides what it always does (keyrings, vsock, mounts, new namespaces, other processes' memory, the kernel). */
#define FURCA_FILTER_NO_UNIX                                                                                           \
	1U /* no unix socket but pairs: their names lead out (the disk or the network is the machine's) */
#define FURCA_FILTER_NO_NETWORK 2U /* no socket but unix ones: there is no net namespace */
#define FURCA_FILTER_NO_METADATA                                                                                       \
	4U		       /* no chmod, utime, xattr, locks …: Landlock guards the disk and does not see them */
#define FURCA_FILTER_NO_IPC 8U /* no SysV and POSIX message objects: there is no ipc namespace */
#define FURCA_FILTER_NO_OTHERS 16U /* no priorities, limits, affinities of others: there is no pid namespace */
#define FURCA_FILTERS 32U	   /* combinations */

/*
 * Compiles a filter, once in a process's life for each combination, and learns the kernel's last capability; malloc, some
 * milliseconds the first time. 0 or -errno.
 */
int furca_privileges_prepare(unsigned filter, struct furca_err *err);

/*
 * Raw. Empties the bounding and the ambient set, sets the securebits and no_new_privs, and keeps of the capabilities only
 * what choosing the numbers of new threads needs. 0 or -errno.
 */
int furca_privileges_lower(void);

/* Raw. Takes the calling thread's last capabilities. 0 or -errno. */
int furca_privileges_drop(void);

/* Raw. Loads a prepared filter for all threads of the process; after furca_privileges_lower. 0 or -errno. */
int furca_privileges_filter(unsigned filter);

/* The system calls that a filter bit refuses wholly (0: those that are always refused), NULL-terminated; for documents. */
const char *const *furca_privileges_denied(unsigned filter_bit);
