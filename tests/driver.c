/*
 * The proposal's examples through the client library, each checked. It starts an engine of its own; $FURCA names the program.
 * Also the README's example in C. Exit status 0, or 1 with what was wrong, or 77 where there is no engine.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <furca.h>

static struct furca_client *client;
static int failures;

static void check(int good, const char *what, const struct furca_result *r)
{
	(void)printf("%s  %s (%.1f ms)\n", good ? "ok  " : "FAIL", what, r->duration_ms);
	if (!good) {
		(void)printf("      stdout %s stderr %s error %s\n", r->out, r->err, r->error ? r->error : "none");
		failures++;
	}
}

/* Runs code in a mode and session; the result is read by `check` and freed by the caller. */
static struct furca_result run(const char *language, const char *mode, const char *session, const char *code)
{
	struct furca_execute args = FURCA_EXECUTE(language, code);
	struct furca_result result;
	struct furca_error err;

	args.state_mode = mode;
	args.session_name = session;
	if (furca_execute(client, &args, &result, &err) < 0) {
		(void)fprintf(stderr, "driver: %s\n%s\n", err.message, err.suggestion);
		exit(1);
	}
	return result;
}

/* The agent's own capability: contacts.lookup(name). */
static void lookup(void *user, const struct furca_capability_call *call)
{
	static const char answer[] = "\xaf"
				     "ada@example.org"; /* msgpack: text of 15 bytes */

	(void)user;
	furca_answer_value(call, answer, sizeof(answer) - 1);
}

static void modes(void)
{
	struct furca_result r =
		run("bash", NULL, NULL, "printf 'month,amount\\n1,30\\n2,10\\n3,20\\n' > ledger.csv; ls");

	check(r.ok && strcmp(r.out, "ledger.csv\n") == 0, "bash, one command", &r);
	furca_result_done(&r);

	r = run("python", "stateful", "audit",
		"import csv\n"
		"ledger = [int(row['amount']) for row in csv.DictReader(open('ledger.csv'))]");
	check(r.ok && r.session_created && strcmp(r.state, "committed") == 0,
	      "python, stateful: load the ledger into session 'audit'", &r);
	furca_result_done(&r);

	r = run("python", "read_only", "audit", "ledger.sort(); import os; os.remove('ledger.csv'); ledger");
	check(r.ok && r.result_text && strcmp(r.result_text, "[10, 20, 30]") == 0 && strcmp(r.state, "unchanged") == 0,
	      "python, read_only: sort in place, delete the file", &r);
	furca_result_done(&r);

	r = run("python", "stateful", "audit", "import os; (ledger, os.path.exists('ledger.csv'))");
	check(r.ok && r.result_text && strcmp(r.result_text, "([30, 10, 20], True)") == 0,
	      "the session and the disk are untouched", &r);
	furca_result_done(&r);

	r = run("python", "stateless", NULL, "'ledger' in globals()");
	check(r.ok && r.result_text && strcmp(r.result_text, "False") == 0, "python, stateless: knows nothing of it",
	      &r);
	furca_result_done(&r);
}

static void refusals(void)
{
	struct furca_result r = run("python", "read_only", NULL, "ledger");

	check(!r.ok && strcmp(r.error_type, "validation") == 0 &&
		      strncmp(r.error, "Cannot use state_mode='read_only' without specifying a session.", 62) == 0 &&
		      r.suggestion != NULL,
	      "a wrong combination explains itself", &r);
	furca_result_done(&r);
}

static void capabilities(void)
{
	struct furca_error err;
	struct furca_result r;

	if (furca_capability_register(client, "contacts.lookup", "read", "the address of a contact", NULL, 0, lookup,
				      NULL, &err) < 0) {
		(void)printf("FAIL  register: %s\n", err.message);
		failures++;
		return;
	}
	r = run("python", "read_only", "audit", "capabilities.contacts.lookup('Ada')");
	check(r.ok && r.result_text && strcmp(r.result_text, "'ada@example.org'") == 0,
	      "code calls the agent's capability", &r);
	furca_result_done(&r);
}

static double now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A capability that runs code: from session 'audit' in 'second', and from there in 'audit', which waits for it. */
static void ask(void *user, const struct furca_capability_call *call)
{
	unsigned *depth = user;
	struct furca_result r;

	(void)call;
	if ((*depth)++ == 0) {
		r = run("python", "stateful", "second", "capabilities.agent.ask()");
		check(r.ok, "a capability runs code in another session", &r);
	} else {
		double before = now_s();
		r = run("python", "stateful", "audit", "1");
		check(!r.ok && strcmp(r.error_type, "validation") == 0 && now_s() - before < 0.9,
		      "code that would wait for itself, over two sessions, is refused at once", &r);
	}
	furca_result_done(&r);
}

static void nested(void)
{
	struct furca_error err;
	unsigned depth = 0;

	if (furca_capability_register(client, "agent.ask", "write", NULL, NULL, 0, ask, &depth, &err) < 0) {
		(void)printf("FAIL  register: %s\n", err.message);
		failures++;
		return;
	}
	struct furca_result r = run("python", "stateful", "audit", "capabilities.agent.ask()");
	check(r.ok && depth == 2, "and the others go on", &r);
	furca_result_done(&r);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

int main(void)
{
	char dir[] = "/tmp/furca-driver-XXXXXX", state[64];
	struct furca_private options = {.program = getenv("FURCA"), .workdir = dir, .state_dir = state};
	struct furca_error err;

	if (!mkdtemp(dir))
		return 1;
	(void)snprintf(state, sizeof(state), "%s/.state", dir);
	if (furca_open_private(&options, &client, &err) < 0) {
		(void)fprintf(stderr, "driver: %s\n%s\n", err.message, err.suggestion);
		(void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
		return 77;
	}
	modes();
	refusals();
	capabilities();
	nested();
	furca_close(client);
	(void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return failures > 0;
}
