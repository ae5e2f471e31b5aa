/*
 * Taking privileges away: capabilities (all sets), the bits that would bring them back, and a system call filter for what
 * no namespace covers. Prepared by the original (libcap, libseccomp: they allocate), put up in the clone by raw calls.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Whether this process has CAP_SYS_ADMIN in its user namespace. */
bool furca_privileges_have_admin(void);
