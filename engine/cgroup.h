/*
 * Control groups for sessions and calls that have limits: memory and number of processes, of a process with all it starts. Version 2
 * where the engine's own group can be delegated from, else the memory and pids hierarchies of version 1 where they are writable; where
 * neither is, there are none, and limits.c uses what resource limits can do.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct furca_cgroups; /* the engine's place in the hierarchies */
struct furca_cgroup;  /* one group below it */

/* Looks for writable hierarchies and makes the engine's group in them; clears away what dead engines left. NULL: none (or no memory). */
struct furca_cgroups *furca_cgroups_new(uint64_t instance);
void furca_cgroups_free(struct furca_cgroups *cgroups);

/* What can be bounded; false for NULL. */
bool furca_cgroups_memory(const struct furca_cgroups *cgroups);
bool furca_cgroups_processes(const struct furca_cgroups *cgroups);

/*
 * Bounds all that `first`, the first process, will start, whether it has a group of its own or not. 0: no bound; what the hierarchies
 * do not allow is left out, which furca_cgroups_usage then shows. Accepts NULL.
 */
void furca_cgroups_bound_all(struct furca_cgroups *cgroups, uint64_t memory_bytes, uint64_t processes, pid_t first);

/* The group of all that has no limits of its own, borrowed; NULL where it is not bounded. Accepts NULL. */
struct furca_cgroup *furca_cgroups_all(const struct furca_cgroups *cgroups);

/* All together, in bytes and processes; a limit of 0 is not held, and its usage not known. */
struct furca_cgroups_usage {
	uint64_t memory, memory_peak, memory_limit, processes, processes_limit;
};
void furca_cgroups_usage(const struct furca_cgroups *cgroups, struct furca_cgroups_usage *ret);

/* A group with these bounds (0: none). refs is 1. NULL with *err. */
struct furca_cgroup *furca_cgroup_new(struct furca_cgroups *cgroups, uint64_t memory_bytes, uint64_t processes,
				      struct furca_err *err);
struct furca_cgroup *furca_cgroup_ref(struct furca_cgroup *group); /* accepts NULL */
/* The last one removes the group; its processes must be ending. Accepts NULL. */
void furca_cgroup_unref(struct furca_cgroup *group);

/* Moves a process (not its children) into the group. 0 or -errno. May take some milliseconds. */
int furca_cgroup_enter(struct furca_cgroup *group, pid_t pid);

/*
 * How many processes of the group the kernel has ended for want of memory, and how many it has refused to make, since this was last asked.
 * Accepts NULL.
 */
void furca_cgroup_news(struct furca_cgroup *group, uint64_t *ret_kills, uint64_t *ret_refusals);

/* How much memory it used at most; 0 where not known. */
uint64_t furca_cgroup_peak(const struct furca_cgroup *group);
uint64_t furca_cgroup_memory_limit(const struct furca_cgroup *group);
