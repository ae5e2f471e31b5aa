/*
 * Where a call's output goes: each call has pipes of its own, and the descriptors that still are the last call's pipes are
 * moved to the new ones when a call begins. A descriptor that the user's code has led elsewhere (exec >file, os.dup2) is
 * left alone; copies of the old pipe at other numbers (exec 3>&1) follow.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"

struct furca_output {
	dev_t dev[2]; /* identity of the pipes in place, 0: none yet */
	ino_t ino[2];
};

/*
 * Puts a call's pipes in place: `out` and `error` are handed over and closed. The first time, descriptors 1 and 2 are
 * replaced whatever they are. Descriptors 1 and 2 that are closed are opened again on the pipes where `reopen`.
 * 0 or -errno (then nothing is promised about what was moved). Does not block.
 */
int furca_output_begin(struct furca_output *output, struct furca_fd out, struct furca_fd error, bool reopen);

/* Whether descriptor 1 or 2 leads elsewhere than to the pipes in place. */
bool furca_output_redirected(const struct furca_output *output);
