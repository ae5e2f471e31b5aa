/* Between host_proc.c, which owns the process and its end, and host_request.c, which asks things of it. For these two files only. */
#pragma once

#include "engine/host_proc.h"

/* The object with its two socketpairs, not yet a process; the other ends are given out. NULL with *err. */
struct furca_host *furca_host_new(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
				  struct furca_fd ret_ends[2], struct furca_err *err);
void furca_host_free(struct furca_host *host);

/* From now on it can be signalled; its end may have been told already, which furca_host_know_end looks up. */
void furca_host_know(struct furca_host *host, struct furca_proc proc);
void furca_host_know_end(struct furca_host *host);

/* The end of the process, told once, after all that it had still said. `status` as host->status. May free the host. */
void furca_host_ended(struct furca_host *host, int status);

/* Answers every request under way with an error that says `why`. */
void furca_host_fail_requests(struct furca_host *host, const char *why);

/* CLONED or INSPECTED has come: answers the request it belongs to. */
void furca_host_answered(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds);
