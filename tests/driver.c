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

/* The only argument, an object of code: where its name stands, and how long it is; 0: it is none. */
static size_t object_of(const struct furca_capability_call *call, const char **ret)
{
	const unsigned char *at = call->args;

	if (call->args_size >= 4 && at[0] == 0x91 && at[1] == 0xc7 && at[3] == 2) { /* [ext8 of type 2] */
		*ret = (const char *)at + 4;
		return at[2];
	}
	if (call->args_size >= 3 && at[0] == 0x91 && at[1] >= 0xd4 && at[1] <= 0xd8 && at[2] == 2) { /* [fixext] */
		*ret = (const char *)at + 3;
		return (size_t)1 << (at[1] - 0xd4);
	}
	return 0;
}

/* What the object answers, as JSON; "" where the call failed. */
static void object_says(const struct furca_capability_call *call, const char *name, bool read, const char *args,
			char *ret, size_t size)
{
	struct furca_error err;
	const char *object;
	void *packed = NULL;
	size_t n = object_of(call, &object), packed_size;

	ret[0] = '\0';
	if (n == 0 || furca_object_call(call, client, object, n, name, read, args, args ? strlen(args) : 0, NULL, 0,
					&packed, &packed_size, &err) < 0)
		return;
	char *json = furca_json(packed, packed_size);
	(void)snprintf(ret, size, "%s", json ? json : "");
	free(json);
	free(packed);
}

/* A capability that is given an object of code: calls it, reads it, and asks it for what it has not. */
static void handed(void *user, const struct furca_capability_call *call)
{
	char(*said)[256] = user;

	object_says(call, "add", false, "\x91\x05", said[0], sizeof(said[0])); /* [5] */
	object_says(call, "size", true, NULL, said[1], sizeof(said[1]));
	object_says(call, "add", true, NULL, said[2], sizeof(said[2]));
	object_says(call, "burn", false, NULL, said[3], sizeof(said[3]));
}

/* A capability whose value is a handle with an attribute and a method. */
static void box(void *user, const struct furca_capability_call *call)
{
	(void)user;
	furca_answer_value(call,
			   "\xd5\x02"
			   "b1",
			   4);
}

static void on_box(void *user, const struct furca_capability_call *call)
{
	(void)user;
	if (call->read && strcmp(call->name, "colour") == 0)
		furca_answer_attribute(call, "\xa3red", 4);
	else if (call->read)
		furca_answer_attribute(call, NULL, 0);
	else
		furca_answer_value(call, "\xa7painted", 8);
}

static void objects(void)
{
	char said[4][256];
	struct furca_error err;

	furca_take_objects(client, true);
	furca_on_handle_call(client, on_box, NULL);
	if (furca_capability_register(client, "agent.hand", "read", NULL, NULL, 0, handed, said, &err) < 0 ||
	    furca_capability_register(client, "agent.box", "read", NULL, NULL, 0, box, NULL, &err) < 0) {
		(void)printf("FAIL  register: %s\n", err.message);
		failures++;
		return;
	}
	struct furca_result r = run("python", "stateful", "audit",
				    "class Basket:\n"
				    "    size = 7\n"
				    "    def add(self, n): self.n = n; return n + 1\n"
				    "basket = Basket()\n"
				    "capabilities.agent.hand(basket)\n"
				    "basket.n");
	check(r.ok && r.result_text && strcmp(r.result_text, "5") == 0 && strstr(said[0], "\"value\":6") != NULL,
	      "a capability calls an object of code", &r);
	check(strstr(said[1], "\"value\":7") && strstr(said[2], "\"method\":true"), "and reads its attributes", &r);
	check(strstr(said[3], "AttributeError") != NULL, "and is told what it has not", &r);
	furca_result_done(&r);

	r = run("python", "stateful", "audit", "b = capabilities.agent.box(); (b.colour, b.paint('blue'))");
	check(r.ok && r.result_text && strcmp(r.result_text, "('red', 'painted')") == 0,
	      "code reads an attribute of a handle and calls a method", &r);
	furca_result_done(&r);
	furca_take_objects(client, false);
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
	objects();
	nested();
	furca_close(client);
	(void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return failures > 0;
}
