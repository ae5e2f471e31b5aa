/* A first session from C: cc session.c $(pkg-config --cflags --libs furca) */
#include <furca.h>
#include <stdio.h>

static void run(struct furca_client *client, const char *mode, const char *code)
{
	struct furca_execute args = FURCA_EXECUTE("python", code);
	struct furca_result result;
	struct furca_error err;

	args.state_mode = mode;
	args.session_name = "audit";
	if (furca_execute(client, &args, &result, &err) < 0) {
		fprintf(stderr, "%s\n%s\n", err.message, err.suggestion);
		return;
	}
	printf("%s (%s)\n", result.result_text ? result.result_text : result.ok ? "ok" : result.error, result.state);
	furca_result_done(&result);
}

int main(void)
{
	struct furca_client *client;
	struct furca_error err;

	if (furca_open_private(NULL, &client, &err) < 0) {
		fprintf(stderr, "%s\n%s\n", err.message, err.suggestion);
		return 1;
	}
	run(client, "stateful", "rows = list(range(10))");
	run(client, "read_only", "rows.clear(); len(rows)"); /* 0 (unchanged) */
	run(client, "read_only", "len(rows)");		    /* 10 (unchanged) */
	furca_close(client);
	return 0;
}
