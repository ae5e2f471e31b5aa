#include "bench/limit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"

#include "base/banned.h"

enum { MESSAGE_MAX = 4096, PAGE = 4096, ENTRY = 8 };

int furca_bench_fork(void *unused)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(0);
	return waitpid(pid, NULL, 0) == pid ? 0 : -errno;
}

static _Noreturn void answer_for_ever(int sock, size_t request, size_t answer)
{
	static char in[MESSAGE_MAX], out[MESSAGE_MAX];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (furca_fd_read_full(sock, in, request) == (ssize_t)request)
		if (furca_fd_write_all(sock, out, answer) < 0)
			break;
	_exit(0);
}

int furca_bench_echo_open(struct furca_bench_echo *echo)
{
	int pair[2];

	if (echo->request > MESSAGE_MAX || echo->answer > MESSAGE_MAX)
		return -EMSGSIZE;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	FURCA_AUTO_FD struct furca_fd own = furca_fd_own(pair[0]);
	FURCA_AUTO_FD struct furca_fd theirs = furca_fd_own(pair[1]);

	echo->pid = fork();
	if (echo->pid < 0)
		return -errno;
	if (echo->pid == 0) {
		(void)close(own.n); /* else it would wait for itself to hang up */
		answer_for_ever(theirs.n, echo->request, echo->answer);
	}
	echo->sock = furca_fd_take(&own).n;
	return 0;
}

int furca_bench_echo_run(void *echo)
{
	static char request[MESSAGE_MAX], answer[MESSAGE_MAX];
	const struct furca_bench_echo *to = echo;

	if (furca_fd_write_all(to->sock, request, to->request) < 0 ||
	    furca_fd_read_full(to->sock, answer, to->answer) != (ssize_t)to->answer)
		return -EIO;
	return 0;
}

void furca_bench_echo_close(struct furca_bench_echo *echo)
{
	(void)close(echo->sock);
	(void)waitpid(echo->pid, NULL, 0);
}

int furca_bench_tables_new(struct furca_bench_tables *tables, long megabytes)
{
	tables->size = ((size_t)megabytes << 20) / PAGE * ENTRY;
	tables->from = malloc(tables->size);
	tables->to = malloc(tables->size);
	if (!tables->from || !tables->to) {
		furca_bench_tables_free(tables);
		return -ENOMEM;
	}
	memset(tables->from, 1, tables->size);
	return furca_bench_tables_run(tables);
}

int furca_bench_tables_run(void *tables)
{
	const struct furca_bench_tables *both = tables;

	memcpy(both->to, both->from, both->size);
	__asm__ volatile("" : : "r"(both->to) : "memory"); /* the copy is wanted, though nobody reads it */
	return 0;
}

void furca_bench_tables_free(struct furca_bench_tables *tables)
{
	free(tables->from);
	free(tables->to);
	*tables = (struct furca_bench_tables){0};
}
