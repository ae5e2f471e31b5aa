/* `furca top`: the sessions of a running engine and their processes, followed in the terminal. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/cli.h"

#include "base/banned.h"

#define EVERY_MS 1000
#define SCREEN_ON "\033[?1049h\033[?25l" /* the alternate screen, without cursor: what was there comes back */
#define SCREEN_OFF "\033[?25h\033[?1049l"
#define OTHER_LINES 4 /* of the screen, beside sessions and processes */

static volatile sig_atomic_t ended, resized;

static void on_signal(int sig)
{
	if (sig == SIGWINCH)
		resized = 1;
	else
		ended = 1;
}

static int ask(const struct furca_cli *cli, const char *method, const char *detail, void **ret,
	       struct furca_view *ret_view, bool *ret_shown)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};

	furca_args_begin(&args);
	if (detail)
		furca_args_text(&args, "detail", detail);
	return furca_cli_call(cli, method, &args, ret, ret_view, ret_shown);
}

static void print_counts(struct furca_view sessions, struct furca_view stats)
{
	struct furca_value list, s, memory;
	uint64_t own = 0, shared = 0, n = 0, busy = 0, idle = 0;
	char private_text[32], shared_text[32];
	bool is = false;

	if (furca_map_get(sessions, "sessions", &list) && list.kind == FURCA_ARRAY) {
		struct furca_view inside = furca_value_inside(&list);

		while (furca_value_next(&inside, &s) == 0) {
			uint64_t bytes;

			n++;
			busy += furca_map_bool(s.raw, "busy", &is) && is;
			if (!furca_map_get(s.raw, "memory", &memory))
				continue;
			own += furca_map_uint(memory.raw, "private_bytes", &bytes) ? bytes : 0;
			shared += furca_map_uint(memory.raw, "shared_bytes", &bytes) ? bytes : 0;
		}
	}
	if (furca_map_get(stats, "idle_pids", &list) && list.kind == FURCA_ARRAY)
		idle = list.count;
	furca_cli_bytes(private_text, sizeof(private_text), own);
	furca_cli_bytes(shared_text, sizeof(shared_text), shared);
	(void)printf(
		"furca: %llu session%s, %llu busy; %s their own, %s shared with snapshots and copies; %llu idle processes\n",
		(unsigned long long)n, n == 1 ? "" : "s", (unsigned long long)busy, private_text, shared_text,
		(unsigned long long)idle);
}

/* What a process is for, or runs. */
static void describe(char *text, size_t size, struct furca_view process)
{
	struct furca_view label, mode, method;
	struct furca_value call;
	uint64_t calls;
	double seconds = 0;
	bool serves = false;
	size_t n = 0;

	text[0] = '\0';
	if (furca_map_uint(process, "calls", &calls))
		n += (size_t)snprintf(text + n, size - n, "after call %llu", (unsigned long long)calls);
	if (furca_map_bool(process, "serves", &serves) && serves)
		n += (size_t)snprintf(text + n, size - n, "%sserves reads", n ? ", " : "");
	if (furca_map_text(process, "label", &label))
		n += (size_t)snprintf(text + n, size - n, "%s'%.*s'", n ? ", " : "",
				      (int)FURCA_MIN(furca_view_size(label), 256), (const char *)label.at);
	if (furca_map_get(process, "call", &call) && furca_map_text(call.raw, "state_mode", &mode) &&
	    furca_map_text(call.raw, "method", &method)) {
		bool execute = furca_view_is(method, "execute") || furca_view_is(method, "call_function");
		struct furca_view word = execute ? mode : method;

		(void)furca_map_float(call.raw, "running_s", &seconds);
		(void)snprintf(text + n, size - n, "%s%.*s%s for %.1f s", n ? ", " : "", (int)furca_view_size(word),
			       (const char *)word.at, execute ? " call" : "", seconds);
	}
}

static void add_process(struct furca_table *table, const char *first, struct furca_view process, bool last)
{
	char text[512];

	furca_table_add_text(table, first);
	furca_table_add_text(table, last ? "└" : "├");
	furca_table_add_value(table, process, "role");
	furca_table_add_value(table, process, "pid");
	furca_cli_add_memory(table, process, "private_bytes");
	furca_cli_add_memory(table, process, "shared_bytes");
	describe(text, sizeof(text), process);
	furca_table_add_text(table, text);
}

/* The lineage of each session: its live process, the states that undo goes back to, newest first, and its copies. `most` lines at most. */
static void print_processes(struct furca_view answer, size_t most)
{
	static const char *const heads[] = {"", "", "PROCESS", "PID", "PRIVATE", "SHARED", "WHAT"};
	struct furca_value list, s, processes, process;
	struct furca_table table;

	if (!furca_map_get(answer, "sessions", &list) || list.kind != FURCA_ARRAY || list.count == 0 || most < 3)
		return;
	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	most -= 2; /* a line between, and the heads */
	for (struct furca_view inside = furca_value_inside(&list); furca_value_next(&inside, &s) == 0;) {
		char name[96];
		struct furca_view given;
		uint64_t id = 0;

		(void)furca_map_uint(s.raw, "session_id", &id);
		(void)snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
		if (furca_map_text(s.raw, "session_name", &given))
			(void)snprintf(name, sizeof(name), "%.*s", (int)furca_view_size(given), (const char *)given.at);
		if (!furca_map_get(s.raw, "processes", &processes) || processes.kind != FURCA_ARRAY)
			continue;
		struct furca_view each = furca_value_inside(&processes);
		for (uint32_t n = 1; most > 0 && furca_value_next(&each, &process) == 0; most--, n++)
			add_process(&table, n == 1 ? name : "", process.raw, n == processes.count);
	}
	(void)fputc('\n', stdout);
	furca_table_print(&table, stdout);
	furca_table_done(&table);
}

/* Asks and prints once. `most` lines of sessions and processes at most. An exit status; a failure has been told. */
static int show(const struct furca_cli *cli, const char *before, size_t most)
{
	FURCA_AUTO_FREE void *sessions = NULL, *stats = NULL;
	struct furca_view sessions_view, stats_view;
	bool shown;
	int status = ask(cli, "list_sessions", "full", &sessions, &sessions_view, &shown);

	if (status != FURCA_EXIT_OK || shown)
		return status;
	status = ask(cli, "stats", NULL, &stats, &stats_view, &shown);
	if (status != FURCA_EXIT_OK)
		return status;
	(void)fputs(before, stdout);
	print_counts(sessions_view, stats_view);
	(void)fputc('\n', stdout);
	size_t printed = furca_cli_print_sessions(sessions_view, most);
	print_processes(sessions_view, most - FURCA_MIN(most, printed));
	return FURCA_EXIT_OK;
}

/* Waits for the next turn. False where it is to end: q, or a signal. */
static bool wait_turn(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	int n = poll(&in, 1, EVERY_MS);
	char key;

	if (n < 0)
		return errno == EINTR && !ended;
	if (n > 0 && (read(0, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 4))
		return false;
	return !ended;
}

static size_t screen_rows(void)
{
	struct winsize size;

	if (ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_row > OTHER_LINES)
		return size.ws_row - OTHER_LINES;
	return 20;
}

static int follow(const struct furca_cli *cli)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: the wait ends */
	struct termios before, raw;
	int status;

	if (tcgetattr(0, &before) < 0)
		return show(cli, "", SIZE_MAX);
	for (size_t i = 0; i < FURCA_COUNT(signals); i++)
		(void)sigaction(signals[i], &action, NULL);
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	(void)tcsetattr(0, TCSANOW, &raw);
	(void)fputs(SCREEN_ON, stdout);
	do {
		resized = 0;
		status = show(cli, "\033[H\033[J", screen_rows());
		if (status == FURCA_EXIT_OK)
			(void)fputs("\nq ends", stdout);
		(void)fflush(stdout);
	} while (status == FURCA_EXIT_OK && wait_turn());
	(void)fputs(SCREEN_OFF, stdout);
	(void)fflush(stdout);
	(void)tcsetattr(0, TCSANOW, &before);
	/* What was said on the screen that is gone is said again. */
	return status == FURCA_EXIT_OK ? status : show(cli, "", SIZE_MAX);
}

int furca_cmd_top(int argc, char **argv)
{
	struct furca_cli cli;
	bool once = false;
	const struct furca_cli_own own[] = {{.name = "once", .given = &once}, {0}};
	int status = furca_cli_options(argc, argv, "top", own, &cli);
	if (status >= 0)
		return status;
	if (cli.argc > 0)
		return furca_cli_usage("top", "'%s' is not expected", cli.argv[0]);
	return once || cli.json || !isatty(0) || !isatty(1) ? show(&cli, "", SIZE_MAX) : follow(&cli);
}
