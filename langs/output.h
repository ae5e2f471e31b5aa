/*
 * Where a call's output goes: each call has pipes of its own, and the descriptors that still are
 * the last call's pipes are moved to the new ones when a call begins. A descriptor that the user's
 * code has led elsewhere (exec >file, os.dup2) is left alone; copies of the old pipe at other
 * numbers (exec 3>&1) follow.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"

#define FURCA_OUTPUT_COPIES 64 /* of the pipes at other numbers than 1 and 2; what is beyond is not moved */

/* Numbers at which the pipes in place stand. */
struct furca_output_places {
	unsigned n;
	struct {
		int fd, which; /* 0: stdout's pipe, 1: stderr's */
	} at[2 + FURCA_OUTPUT_COPIES];
};

struct furca_output {
	bool tracked; /* the language sets `copied` whenever code may have copied a pipe to a number
			 above 2, and `changed`: no need to look */
	bool copied;
	bool changed;	     /* with `tracked`: set whenever 1 or 2 may have become another description */
	unsigned redirected; /* as last seen */
	dev_t dev[2];	     /* identity of the pipes in place, 0: none yet */
	ino_t ino[2];
	struct furca_output_places held; /* n > 0: where they stood before a clone cut them off; the
					    next call's go there */
	bool keeps;			 /* code led 1 or 2 elsewhere before this call: its pipes are kept here */
	int kept[2];			 /* at FURCA_HIDDEN_FD or above, for code that wants them back */
};

/*
 * Puts a call's pipes in place: `out` and `error` are handed over and closed. The first time,
 * descriptors 1 and 2 are replaced whatever they are. Descriptors 1 and 2 that are closed are
 * opened again on the pipes where `reopen`. 0 or -errno (then nothing is promised about what was
 * moved). Does not block.
 */
int furca_output_begin(struct furca_output *output, struct furca_fd out, struct furca_fd error, bool reopen);

/*
 * Before a clone whose descriptors are cut off or made again: where the pipes in place stand, to be
 * put into `held` in the clone. Its first call's pipes then take those places, since nothing can be
 * told of them by identity any more.
 */
void furca_output_hold(const struct furca_output *output, struct furca_output_places *ret);

/* Whether a call's pipes are in place, so that the next call may go on with them. */
bool furca_output_in_place(const struct furca_output *output);

/* Which lead elsewhere than to the pipes in place: 1 for descriptor 1, 2 for descriptor 2, 3 for both, 0. */
unsigned furca_output_redirected(struct furca_output *output);
