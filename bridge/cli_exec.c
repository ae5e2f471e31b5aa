/* `furca exec`: one call, shown to a person. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bridge/cli.h"
#include "bridge/cli_show.h"
#include "bridge/json.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

#define EXIT_TIMEOUT 124
#define EXIT_INTERRUPTED 130
#define EXIT_NO_ANSWER 125

struct exec {
	struct furca_execute args;
	const char *socket, *file;
	char *code, cwd[4096];
	enum furca_images images;
	bool json, private_engine;
	bool streamed[2]; /* something of stdout, stderr came as a stream */
	bool open_line;	  /* what was last written to stdout did not end in a new line */
};

/* --------------------------------------------------------------------------------------------------------------- options */

enum { OPT_SOCKET = 256, OPT_JSON, OPT_ENV, OPT_ON_ERROR, OPT_CWD, OPT_MAX, OPT_IMAGES, OPT_PRIVATE };

static const struct option long_options[] = {
	{"language", required_argument, NULL, 'l'},
	{"mode", required_argument, NULL, 'm'},
	{"session", required_argument, NULL, 's'},
	{"env", required_argument, NULL, OPT_ENV},
	{"timeout", required_argument, NULL, 't'},
	{"code", required_argument, NULL, 'e'},
	{"on-error", required_argument, NULL, OPT_ON_ERROR},
	{"cwd", required_argument, NULL, OPT_CWD},
	{"max-output", required_argument, NULL, OPT_MAX},
	{"images", required_argument, NULL, OPT_IMAGES},
	{"private", no_argument, NULL, OPT_PRIVATE},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* A number in [low, high], or a usage message. */
static int read_number(const char *option, double low, double high, double *ret)
{
	char *end;
	double n = strtod(optarg, &end);

	if (end == optarg || *end || !(n >= low && n <= high))
		return furca_cli_usage("exec", "%s wants a number from %.15g to %.15g, not '%s'", option, low, high,
				       optarg);
	*ret = n;
	return -1;
}

/* One option. -1 to go on, or an exit status. */
static int take_option(struct exec *x, int c)
{
	double n = 0;
	int status = -1;

	switch (c) {
	case 'l':
		x->args.language = optarg;
		break;
	case 'm':
		x->args.state_mode = optarg;
		break;
	case 's':
		if (!furca_cli_number(optarg, &x->args.session_id))
			x->args.session_name = optarg;
		break;
	case 't':
		status = read_number("--timeout", 0.001, 1e7, &x->args.timeout_s);
		break;
	case 'e':
		if (x->code)
			return furca_cli_usage("exec", "one piece of code at a time: -e CODE, FILE or -");
		x->code = strdup(optarg);
		x->args.code_size = strlen(optarg);
		break;
	case OPT_ENV:
		if (!furca_cli_number(optarg, &x->args.venv_id))
			status = furca_cli_usage("exec", "--env wants an environment's number, not '%s'", optarg);
		break;
	case OPT_ON_ERROR:
		x->args.on_error = optarg;
		break;
	case OPT_CWD:
		if (!realpath(optarg, x->cwd))
			status = furca_cli_usage("exec", "cannot use '%s' as directory: %s", optarg, strerror(errno));
		x->args.cwd = x->cwd;
		break;
	case OPT_MAX:
		status = read_number("--max-output", 1, FURCA_MAX_OUTPUT, &n);
		x->args.max_output_bytes = (uint64_t)n;
		break;
	case OPT_IMAGES:
		if (!furca_cli_images(optarg, &x->images))
			status = furca_cli_usage("exec", "--images wants " FURCA_IMAGES_WORDS ", not '%s'", optarg);
		break;
	case OPT_PRIVATE:
		x->private_engine = true;
		break;
	case OPT_SOCKET:
		x->socket = optarg;
		break;
	case OPT_JSON:
		x->json = true;
		break;
	case 'h':
		furca_cli_help("exec");
		return FURCA_EXIT_OK;
	default:
		return FURCA_EXIT_USAGE;
	}
	return status;
}

static int read_code(struct exec *x)
{
	FURCA_AUTO_BUF struct furca_buf buf = {.max = FURCA_MAX_CODE + 1};
	bool input = !x->file || strcmp(x->file, "-") == 0;
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(input ? -1 : open(x->file, O_RDONLY | O_CLOEXEC));
	ssize_t n;

	if (!input && fd.n < 0)
		return furca_cli_usage("exec", "cannot read '%s': %s; code itself goes after -e", x->file,
				       strerror(errno));
	do {
		if (furca_buf_reserve(&buf, 65536) < 0 && furca_buf_reserve(&buf, 1) < 0)
			return furca_cli_usage("exec", "code may have %u bytes", FURCA_MAX_CODE);
		n = read(input ? 0 : fd.n, buf.data + buf.len, 65536);
		buf.len += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		return furca_cli_usage("exec", "cannot read '%s': %s", input ? "-" : x->file, strerror(errno));
	if (!furca_view_is_utf8(furca_buf_view(&buf)) || memchr(buf.data, 0, buf.len))
		return furca_cli_usage("exec", "'%s' is no text: code is UTF-8 without NUL bytes",
				       input ? "-" : x->file);
	x->args.code_size = buf.len;
	(void)furca_buf_append(&buf, "", 1);
	x->code = (char *)furca_buf_take(&buf).data;
	return -1;
}

static const char *language_of(const char *file)
{
	const char *dot = file ? strrchr(file, '.') : NULL;

	return dot && (strcmp(dot, ".sh") == 0 || strcmp(dot, ".bash") == 0) ? "bash" : "python";
}

/* More words than one piece of code has. */
static int refuse_more(const struct exec *x, const char *first, const char *more)
{
	if (x->code)
		return furca_cli_usage("exec", "'%s' is not expected: the code stands behind -e already", first);
	if (*more == '-' && more[1])
		return furca_cli_usage("exec", "'%s' stands behind '%s', where no options are: put it before", more,
				       first);
	bool shell = strcmp(x->args.language ? x->args.language : language_of(first), "bash") == 0;
	return furca_cli_usage("exec", "'%s' is not expected: the code of '%s' gets no arguments; set them in code: %s",
			       more, first,
			       shell ? "-l bash -e 'set -- ARG; . ./FILE'"
				     : "-e \"import sys; sys.argv = ['FILE', 'ARG']; exec(open('FILE').read())\"");
}

static int parse(struct exec *x, int argc, char **argv)
{
	int c, status = -1;

	optind = 1;
	while ((c = furca_cli_next("exec", argc, argv, "+:hl:m:s:t:e:", long_options)) != -1) {
		status = take_option(x, c);
		if (status >= 0)
			return status;
	}
	if (argc - optind > 1 || (x->code && argc > optind))
		return refuse_more(x, argv[optind], argv[argc - optind > 1 ? optind + 1 : optind]);
	if (argc > optind)
		x->file = argv[optind];
	if (!x->code && !x->file && isatty(0))
		return furca_cli_usage("exec", "no code: give -e CODE, FILE or -");
	if (!x->code)
		status = read_code(x);
	if (status >= 0)
		return status;
	if (x->args.code_size == 0) { /* the library counts to the NUL then, which is the same */
		free(x->code);
		x->code = strdup("");
	}
	if (!x->args.language)
		x->args.language = language_of(x->file);
	/* Whoever names a session means it, in bash too, where the protocol's default is stateless. */
	if (!x->args.state_mode && (x->args.session_name || x->args.session_id != FURCA_NONE))
		x->args.state_mode = "stateful";
	x->args.code = x->code;
	return -1;
}

/* --------------------------------------------------------------------------------------------------------------- showing */

static void on_output(void *user, const char *stream, const char *data, size_t size)
{
	struct exec *x = user;
	int fd = strcmp(stream, "stderr") == 0 ? 2 : 1;

	x->streamed[fd - 1] = true;
	(void)furca_fd_write_all(fd, data, size);
	if (fd == 1 && size > 0)
		x->open_line = data[size - 1] != '\n';
}

static void close_line(struct exec *x)
{
	if (x->open_line)
		(void)furca_fd_write_all(1, "\n", 1);
	x->open_line = false;
}

/* What the call displayed. True where that stands for the text of its value. */
static bool show_displays(struct exec *x, struct furca_view map)
{
	if (!furca_cli_displays(map))
		return false;
	close_line(x);
	return furca_cli_show_displays(map, x->images);
}

static void show_background(struct furca_view map)
{
	struct furca_view text;

	if (furca_map_text(map, "background_output", &text) && furca_view_size(text) > 0)
		(void)fprintf(stderr, "%s[output from the background since the last call]\n%.*s%s\n",
			      furca_cli_color(2, FURCA_DIM), (int)furca_view_size(text), (const char *)text.at,
			      furca_cli_color(2, FURCA_PLAIN));
}

/* A private engine ends with the command, and its output with it. */
static void show_truncated(struct furca_view map, bool private_engine)
{
	struct furca_value cut;
	uint64_t out = 0, err = 0, id = 0;
	char advice[64] = "--max-output keeps more";

	if (!furca_map_get(map, "truncated", &cut))
		return;
	(void)furca_map_uint(cut.raw, "stdout", &out);
	(void)furca_map_uint(cut.raw, "stderr", &err);
	if (!private_engine && furca_map_uint(map, "output_id", &id))
		(void)snprintf(advice, sizeof(advice), "`furca output %llu%s` shows all", (unsigned long long)id,
			       out > 0 ? "" : " --stderr");
	if (out + err > 0)
		(void)fprintf(stderr, "furca exec: %llu bytes of output were left out; %s\n",
			      (unsigned long long)(out + err), advice);
}

/* What became of the session, where the user would not expect it. */
static const char *state_text(const struct furca_result *r)
{
	if (!r->state || !r->error)
		return NULL;
	if (strcmp(r->state, "rolled_back") == 0)
		return "The session was taken back to the last state that was kept.";
	if (strcmp(r->state, "lost") == 0)
		return "The session's state is lost.";
	return NULL;
}

static void show(struct exec *x, const struct furca_result *r)
{
	struct furca_view map = {r->packed, (const uint8_t *)r->packed + r->packed_size};
	const char *state = state_text(r);

	show_background(map);
	if (!x->streamed[0])
		on_output(x, "stdout", r->out, r->out_size);
	if (!x->streamed[1])
		on_output(x, "stderr", r->err, r->err_size);
	bool value_shown = show_displays(x, map);
	if (r->result_text && !value_shown) {
		close_line(x);
		(void)printf("%s\n", r->result_text);
	}
	(void)fflush(stdout);
	show_truncated(map, x->private_engine);
	if (!r->error)
		return;
	if (isatty(1) && isatty(2))
		close_line(x);
	size_t n = strlen(r->error);
	(void)fprintf(stderr, "%s%s%s%s", furca_cli_color(2, FURCA_RED), r->error, furca_cli_color(2, FURCA_PLAIN),
		      n && r->error[n - 1] == '\n' ? "" : "\n");
	furca_cli_advise("exec", r->suggestion);
	if (state)
		(void)fprintf(stderr, "%s\n", state);
}

static void show_json(const struct furca_result *r)
{
	FURCA_AUTO_FREE char *json = furca_json(r->packed, r->packed_size);

	if (json)
		(void)printf("%s\n", json);
	(void)fflush(stdout);
}

/* The exit status of the code. */
static int status_of(const struct furca_result *r)
{
	const char *type = r->error_type ? r->error_type : "";

	if (strcmp(type, "validation") == 0)
		return FURCA_EXIT_USAGE;
	if (strcmp(type, "isolation") == 0)
		return FURCA_EXIT_CANNOT;
	if (strcmp(type, "timeout") == 0)
		return EXIT_TIMEOUT;
	if (strcmp(type, "interrupted") == 0)
		return EXIT_INTERRUPTED;
	if (r->has_exit_code && (r->exit_code != 0 || r->ok))
		return (int)(r->exit_code & 255);
	return r->ok ? FURCA_EXIT_OK : FURCA_EXIT_FAILED;
}

/* --------------------------------------------------------------------------------------------------------------- running */

/* Ctrl-C: the first interrupts the code, the second leaves. Signals wait in a thread of their own; SIGUSR1 ends it. */
struct interrupt {
	struct furca_client *client;
	uint64_t id;
};

static void *wait_for_signals(void *user)
{
	struct interrupt *i = user;
	sigset_t set;
	int signo;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGUSR1);
	if (sigwait(&set, &signo) != 0 || signo == SIGUSR1)
		return NULL;
	(void)furca_cancel(i->client, i->id, NULL);
	if (sigwait(&set, &signo) != 0 || signo == SIGUSR1)
		return NULL;
	_exit(EXIT_INTERRUPTED);
}

static int run(struct exec *x, struct furca_client *client)
{
	struct interrupt interrupt = {.client = client};
	struct furca_result result = {0};
	struct furca_error err;
	pthread_t thread;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGUSR1);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (!x->json) {
		x->args.on_output = on_output;
		x->args.user = x;
	}
	if (furca_start(client, &x->args, &interrupt.id, &err) < 0) {
		(void)furca_cli_fail("exec", err.message, err.suggestion);
		return EXIT_NO_ANSWER;
	}
	bool waiting = pthread_create(&thread, NULL, wait_for_signals, &interrupt) == 0;
	int r = furca_wait(client, interrupt.id, FURCA_FOREVER, &result, &err);
	if (waiting) { /* it touches the client: it must be gone before that is closed */
		(void)pthread_kill(thread, SIGUSR1);
		(void)pthread_join(thread, NULL);
	}
	if (r < 0) {
		(void)furca_cli_fail("exec", err.message, err.suggestion);
		return EXIT_NO_ANSWER;
	}
	if (x->json)
		show_json(&result);
	else
		show(x, &result);
	int status = status_of(&result);
	furca_result_done(&result);
	return status;
}

int furca_cmd_exec(int argc, char **argv)
{
	struct exec x = {.args = FURCA_EXECUTE(NULL, NULL), .images = furca_cli_images_default()};
	struct furca_client *client;
	struct furca_error err;
	int status = parse(&x, argc, argv);

	if (status < 0) {
		struct furca_private options = {.program = "/proc/self/exe"};

		if (!x.private_engine)
			status = furca_cli_connect("exec", x.socket, true, &client);
		else if (furca_open_private(&options, &client, &err) < 0)
			status = furca_cli_fail("exec", err.message, err.suggestion);
		else
			status = FURCA_EXIT_OK;
		if (status == FURCA_EXIT_OK) {
			status = run(&x, client);
			furca_close(client);
		}
	}
	free(x.code);
	return status;
}
