/*
 * The system call that makes a clone, in the caller or, where the clone is to be born in a cell, in a *hop*: a task that enters the cell
 * for it. What is made, and how, stands in furca_born.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Reserves the stacks, once. 0 or -errno. */
int furca_hop_init(struct furca_err *err);

/*
 * While all stand still, or where libc's fork is told to serve: the pid of the clone and *ret_pidfd, or -errno. Bounded: -ETIMEDOUT where
 * the handlers around fork do not return. Raw calls only.
 */
long furca_hop_clone(bool cell, int *ret_pidfd);

/* Has a thread of this process wait for a child whose end nobody else is told of (own_child in clone.h). */
void furca_hop_reap(pid_t pid);

/* Whether the process or task behind a pidfd has ended. Raw. */
bool furca_hop_ended(int pidfd);
