/*
 * What the machine itself allows, as tasks for furca_bench_rounds(): a fork, a message there and back, a copy of page tables. Their series have the
 * role FURCA_BENCH_LIMIT and are the `limit` of a line, so that a figure is seen beside what no program could go below.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* A fork of this process, which is small, and its end. `unused` may be NULL. 0 or -errno. */
int furca_bench_fork(void *unused);

/* A process that answers each message of `request` bytes with one of `answer` bytes, over a socket pair. The caller sets the sizes (at most 4096). */
struct furca_bench_echo {
	size_t request, answer;
	int sock;
	pid_t pid;
};

/* Starts it. 0 or -errno. Ended by furca_bench_echo_close, which waits for it. */
int furca_bench_echo_open(struct furca_bench_echo *echo);
/* One message there and its answer back; blocks. `echo` is a struct furca_bench_echo. 0 or -EIO. */
int furca_bench_echo_run(void *echo);
void furca_bench_echo_close(struct furca_bench_echo *echo);

/* Two stretches of memory, each as large as the lowest page tables of a process that holds so many megabytes in small pages. */
struct furca_bench_tables {
	size_t size; /* bytes */
	char *from, *to;
};

/* Allocates and touches them. 0 or -ENOMEM. Freed by furca_bench_tables_free. */
int furca_bench_tables_new(struct furca_bench_tables *tables, long megabytes);
/* Copies one to the other. `tables` is a struct furca_bench_tables. 0. */
int furca_bench_tables_run(void *tables);
void furca_bench_tables_free(struct furca_bench_tables *tables);
