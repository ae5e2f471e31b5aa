#include "bench/execute.h"

#include <errno.h>
#include <stdio.h>

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
