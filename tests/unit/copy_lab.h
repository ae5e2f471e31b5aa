/*
 * A copy of the test's process in a full cell, for tests of what the barriers do: the copy runs a function that writes to a pipe,
 * the original reads. To be used in a body for harness_run.
 */
#pragma once

#include <check.h>
#include <unistd.h>

#include "snapshot/cell.h"
#include "tests/unit/clone_harness.h"
#include "tests/unit/init_client.h"

#define LAB_CELL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

static struct furca_clone_report lab_report;
static struct furca_err lab_err;

/*
 * Clones into a fresh cell (cell: true) or none; the copy calls fn(out) and ends. *text gets what it wrote. 0, or -errno of
 * furca_clone with lab_err.
 */
__attribute__((unused)) static int lab_copy(unsigned barriers, bool cell, void (*fn)(int out), char *text, size_t size)
{
	struct furca_fd fds[2] = {FURCA_FD_NONE, FURCA_FD_NONE}, pidfd = FURCA_FD_NONE;
	char why[512];
	int out[2];

	lab_err = FURCA_ERR_INIT;
	text[0] = '\0';
	if (cell && !init_cell(init_control.n, barriers & LAB_CELL, false, 64 << 20, fds, why, sizeof(why))) {
		dprintf(2, "no cell: %s\n", why);
		return -EPERM;
	}
	if (pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY,
					.barriers = barriers,
					.required = barriers,
					.cell = fds[0].n,
					.keep = &out[1],
					.n_keep = 1,
					.drop = &init_control.n,
					.n_drop = 1};
	int r = furca_clone(&args, &lab_report, &pidfd, &lab_err);
	if (r == 0) {
		fn(out[1]);
		_exit(0);
	}
	(void)close(out[1]);
	if (r > 0) {
		ssize_t n = furca_fd_read_full(out[0], text, size - 1);

		text[n < 0 ? 0 : n] = '\0';
		struct furca_proc proc = {1, pidfd};
		(void)furca_proc_signal(&proc, SIGKILL);
		r = 0;
	} else {
		dprintf(2, "no clone: %s\n", lab_err.text);
	}
	(void)close(out[0]);
	furca_fd_done(&pidfd);
	if (fds[0].n >= 0) {
		struct furca_proc proc = {1, fds[0]};
		(void)furca_proc_signal(&proc, SIGKILL);
	}
	furca_fds_done(fds, 2);
	return r;
}
