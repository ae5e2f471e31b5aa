#include "bench/execute.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"

#include "base/banned.h"

int furca_bench_execute(struct furca_client *client, const struct furca_execute *args)
{
	struct furca_result result = {0};
	struct furca_error err;

	if (furca_execute(client, args, &result, &err) < 0) {
		(void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.message);
		return -EIO;
	}
	int r = result.ok ? 0 : -EIO;
	if (r < 0)
		(void)fprintf(stderr, "%s: %s\n", program_invocation_short_name,
			      result.error ? result.error : "the call failed");
	furca_result_done(&result);
	return r;
}

void furca_bench_dict(char *ret, size_t size, long megabytes)
{
	(void)snprintf(ret, size, "data = {i: [i * 0.5, i * 1.5] for i in range(%ld)}", megabytes * 1000000 / 210);
}

int furca_bench_open(const char *config, struct furca_client **ret, struct furca_error *err)
{
	char path[] = "/tmp/furca-bench-XXXXXX";
	struct furca_private options = {.config = path};
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(mkostemp(path, O_CLOEXEC));

	if (fd.n < 0 || furca_fd_write_all(fd.n, config, strlen(config)) < 0) {
		(void)snprintf(err->message, sizeof(err->message), "cannot write a configuration to /tmp");
		return -EIO;
	}
	int r = furca_open_private(&options, ret, err);
	(void)unlink(path);
	return r;
}
