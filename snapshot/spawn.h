/* Starting a program as a child of an init: clean signals, chosen descriptors, the end of its parent is its own end. */
#pragma once

#include "base/err.h"
#include "base/proc.h"

struct furca_spawn {
	char *const *argv; /* NULL-terminated; argv[0] is looked up on the PATH of `env` where it has no slash */
	char *const *env;  /* NULL-terminated "K=V" */
	const char *cwd;
	int control, capability, err; /* borrowed: become 3, 4 and 2; 0 and 1 are /dev/null, nothing else is open */
};

/*
 * Forks and executes. Returns when the program has replaced the child, or has failed to: 0 and *ret (not waited for), or -errno.
 * For single-threaded callers.
 */
int furca_spawn(const struct furca_spawn *spawn, struct furca_proc *ret, struct furca_err *err);
