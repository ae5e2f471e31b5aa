/* A spawner for tests of what runs helper programs: children of the test itself, started at once. */
#pragma once

#include <check.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tool.h"

static inline void spawner_spawn(void *user, char *const *argv, char *const *env, const char *cwd,
				 struct furca_fd channel, struct furca_fd errors,
				 void (*spawned)(void *tool, struct furca_proc proc, const struct furca_err *err),
				 void *tool)
{
	struct furca_proc proc = FURCA_PROC_NONE;
	struct furca_err err = FURCA_ERR_INIT;
	posix_spawn_file_actions_t actions;
	int r;
	struct furca_fd moved;
	pid_t pid;

	ck_assert_int_eq(furca_fd_dup(channel.n, 10, &moved),
			 0); /* dup2 of a descriptor on itself would keep close-on-exec */
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, moved.n, 3);
	(void)posix_spawn_file_actions_adddup2(&actions, errors.n, 2);
	r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, env);
	(void)posix_spawn_file_actions_destroy(&actions);
	furca_fd_done(&moved);
	furca_fd_done(&channel);
	furca_fd_done(&errors);
	if (r == 0)
		r = -furca_proc_open(pid, &proc);
	if (r)
		(void)furca_fail(&err, FURCA_E_SYSTEM, r, "cannot start %s", argv[0]);
	spawned(tool, proc, r ? &err : NULL);
}

static const struct furca_tool_spawner spawner = {.spawn = spawner_spawn};
