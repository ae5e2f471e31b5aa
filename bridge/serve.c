/* `furca serve`: puts the rooms together and runs the loop. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "bridge/cli.h"
#include "bridge/json_read.h"
#include "bridge/server.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/nearest.h"

#include "base/banned.h"

#define STOP_TIMEOUT_US (8 * 1000000LL) /* an engine that does not end its sessions by then is ended without them */

/* What options and the configuration file say; the options win. Strings are malloc'ed or NULL. */
struct options {
	char *socket, *state_dir, *workdir;
	double linger_s; /* < 0: for good */
	int inherit;	 /* a connected socket, or -1 */
	enum furca_log_level log_level;
	struct furca_engine_config engine;
};

struct serve {
	struct furca_loop *loop;
	struct furca_server *server;
	struct furca_engine *engine;
	struct furca_listener listener;
	furca_op_id signals_op, stop_op;
	bool stopping, stuck;
};

static void options_done(struct options *o)
{
	free(o->socket);
	free(o->state_dir);
	free(o->workdir);
}

static int set(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

/* --------------------------------------------------------------------------------------------------- configuration file */

static const char *const barrier_words[] = {
#define BARRIER(name, bit, word, required, what) [bit] = word,
#include "snapshot/barrier.def"
#undef BARRIER
};
static const char *const snapshot_words[] = {"auto", "always", "off"};
static const char *const level_words[] = {"debug", "info", "warn", "alert"};

static int word(const char *const *words, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(words[i], text) == 0)
			return (int)i;
	return -1;
}

static int expected(const char *key, const char *what, struct furca_err *err)
{
	return furca_fail(err, FURCA_E_VALIDATION, 0, "'%s' in the configuration must be %s", key, what);
}

static int read_text(const char *key, json_t *value, char **to, struct furca_err *err)
{
	if (!json_is_string(value))
		return expected(key, "text", err);
	return set(to, json_string_value(value));
}

static int read_number(const char *key, json_t *value, double low, double high, double *to, struct furca_err *err)
{
	double n = json_number_value(value);

	if (!json_is_number(value) || n < low || n > high)
		return furca_fail(err, FURCA_E_VALIDATION, 0,
				  "'%s' in the configuration must be a number from %g to %g", key, low, high);
	*to = n;
	return 0;
}

static int read_count(const char *key, json_t *value, unsigned low, unsigned high, unsigned *to, struct furca_err *err)
{
	double n = 0;

	if (!json_is_integer(value))
		return expected(key, "a whole number", err);
	int r = read_number(key, value, low, high, &n, err);
	if (r == 0)
		*to = (unsigned)n;
	return r;
}

static int read_word(const char *key, json_t *value, const char *const *words, size_t n, int *to, struct furca_err *err)
{
	int i = json_is_string(value) ? word(words, n, json_string_value(value)) : -1;

	if (i < 0)
		return furca_fail(err, FURCA_E_VALIDATION, 0, "'%s' in the configuration must be one of '%s' … '%s'",
				  key, words[0], words[n - 1]);
	*to = i;
	return 0;
}

static int read_barriers(const char *key, json_t *value, unsigned *to, struct furca_err *err)
{
	size_t i;
	json_t *entry;
	int bit;

	if (!json_is_array(value))
		return expected(key, "a list of guarantees", err);
	json_array_foreach (value, i, entry) {
		int r = read_word(key, entry, barrier_words, FURCA_COUNT(barrier_words), &bit, err);

		if (r < 0)
			return r;
		*to |= 1U << bit;
	}
	return 0;
}

static const char *const lane_words[] = {"socket", "shared"};

static int read_key(struct options *o, const char *key, json_t *value, struct furca_err *err)
{
	static const char *const keys[] = {
		"socket",    "state_dir",	 "workdir",	  "max_sessions",    "timeout_s",     "grace_s",
		"snapshots", "undo_depth",	 "require",	  "log_level",	     "zygote_idle_s", "env_max_bytes",
		"without",   "max_memory_bytes", "max_processes", "copy_disk_bytes", "lanes",	      "env_timeout_s"};
	int i = 0, r;

	switch (word(keys, FURCA_COUNT(keys), key)) {
	case 0:
		return read_text(key, value, &o->socket, err);
	case 1:
		return read_text(key, value, &o->state_dir, err);
	case 2:
		return read_text(key, value, &o->workdir, err);
	case 3:
		return read_count(key, value, 1, 1000, &o->engine.max_sessions, err);
	case 4:
		return read_number(key, value, 0.001, 1e7, &o->engine.timeout_s, err);
	case 5:
		return read_number(key, value, 0, 3600, &o->engine.grace_s, err);
	case 6:
		r = read_word(key, value, snapshot_words, FURCA_COUNT(snapshot_words), &i, err);
		if (r == 0)
			o->engine.snapshots = i == 0   ? FURCA_SNAPSHOT_AUTO
					      : i == 1 ? FURCA_SNAPSHOT_ALWAYS
						       : FURCA_SNAPSHOT_OFF;
		return r;
	case 7:
		return read_count(key, value, 0, 64, &o->engine.undo_depth, err);
	case 8:
		return read_barriers(key, value, &o->engine.required, err);
	case 9:
		r = read_word(key, value, level_words, FURCA_COUNT(level_words), &i, err);
		if (r == 0)
			o->log_level = (enum furca_log_level)i;
		return r;
	case 10:
		return read_number(key, value, 0, 1e7, &o->engine.zygote_idle_s, err);
	case 11:
		return read_number(key, value, 0, 1e15, &o->engine.env_max_bytes, err);
	case 12:
		return read_barriers(key, value, &o->engine.without, err);
	case 13:
		return read_number(key, value, -1, 1e15, &o->engine.max_memory_bytes, err);
	case 14:
		return read_count(key, value, 0, 4194304, &o->engine.max_processes, err);
	case 15:
		return read_number(key, value, 4096, 1e15, &o->engine.copy_disk_bytes, err);
	case 16:
		r = read_word(key, value, lane_words, FURCA_COUNT(lane_words), &i, err);
		if (r == 0)
			o->engine.shared_lanes = i == 1;
		return r;
	case 17:
		return read_number(key, value, 0, 1e7, &o->engine.env_timeout_s, err);
	default:
		return furca_fail(err, FURCA_E_VALIDATION, 0,
				  "no option '%.64s' in the configuration; the nearest is '%s'", key,
				  furca_nearest(key, strlen(key), keys, FURCA_COUNT(keys)));
	}
}

static int read_config(struct options *o, const char *path, struct furca_err *err)
{
	char why[FURCA_ERR_TEXT_MAX];
	json_t *root = furca_json_file(path, why, sizeof(why)), *value;
	const char *key;
	int r = 0;

	if (!root)
		return furca_fail(err, FURCA_E_VALIDATION, 0, "cannot read the configuration '%s'%s", path, why);
	if (!json_is_object(root))
		r = furca_fail(err, FURCA_E_VALIDATION, 0, "the configuration '%s' must be a JSON object", path);
	json_object_foreach (root, key, value) {
		r = read_key(o, key, value, err);
		if (r < 0)
			break;
	}
	json_decref(root);
	return r;
}

/* -------------------------------------------------------------------------------------------------------------- options */

enum { OPT_SOCKET = 256, OPT_CONFIG, OPT_STATE, OPT_WORKDIR, OPT_LINGER, OPT_INHERIT, OPT_LEVEL };

static const struct option long_options[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"config", required_argument, NULL, OPT_CONFIG},
	{"state-dir", required_argument, NULL, OPT_STATE},
	{"workdir", required_argument, NULL, OPT_WORKDIR},
	{"linger", required_argument, NULL, OPT_LINGER},
	{"inherit", required_argument, NULL, OPT_INHERIT},
	{"log-level", required_argument, NULL, OPT_LEVEL},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* One option. 0, or -EINVAL where its argument is wrong. */
static int take_option(struct options *o, int c)
{
	char *end;
	int i;

	switch (c) {
	case OPT_SOCKET:
		return set(&o->socket, optarg);
	case OPT_STATE:
		return set(&o->state_dir, optarg);
	case OPT_WORKDIR:
		return set(&o->workdir, optarg);
	case OPT_LINGER:
		o->linger_s = strtod(optarg, &end);
		return *end || end == optarg || !(o->linger_s >= 0 && o->linger_s <= 1e9) ? -EINVAL : 0;
	case OPT_INHERIT:
		o->inherit = (int)strtol(optarg, &end, 10);
		return *end || o->inherit < 3 ? -EINVAL : 0;
	case OPT_LEVEL:
		i = word(level_words, FURCA_COUNT(level_words), optarg);
		o->log_level = (enum furca_log_level)i;
		return i < 0 ? -EINVAL : 0;
	default:
		return 0;
	}
}

/* What the option wants whose value was wrong. */
static int refuse_value(int c)
{
	static const struct {
		int option;
		const char *name, *wants;
	} known[] = {{OPT_LEVEL, "log-level", "debug, info, warn or alert"},
		     {OPT_LINGER, "linger", "seconds from 0 to 1e9"},
		     {OPT_INHERIT, "inherit", "the number of a descriptor from 3 up"}};

	for (size_t i = 0; i < FURCA_COUNT(known); i++)
		if (known[i].option == c)
			return furca_cli_usage("serve", "--%s wants %s, not '%s'", known[i].name, known[i].wants,
					       optarg);
	return furca_cli_usage("serve", "there is no memory for '%s'", optarg);
}

/* -1 to go on, else an exit status. The file is read first, wherever it stands, so that options win. */
static int parse(struct options *o, int argc, char **argv)
{
	struct furca_err err = FURCA_ERR_INIT;
	int c;

	for (int pass = 0; pass < 2; pass++) {
		optind = 1;
		while ((c = furca_cli_next("serve", argc, argv, ":h", long_options)) != -1) {
			if (c == '?')
				return FURCA_EXIT_USAGE;
			if (c == 'h') {
				furca_cli_help("serve");
				return FURCA_EXIT_OK;
			}
			if (pass == 0 && c == OPT_CONFIG && read_config(o, optarg, &err) < 0)
				return furca_cli_usage("serve", "%s", err.text);
			if (pass == 1 && take_option(o, c) < 0)
				return refuse_value(c);
		}
	}
	return optind < argc ? furca_cli_usage("serve", "'%s' is no option", argv[optind]) : -1;
}

/* Makes paths absolute and directories exist. 0 or -errno. */
static int resolve(struct options *o, struct furca_err *err)
{
	char buf[4096];

	if (!o->socket && o->inherit < 0 && (furca_default_socket(buf, sizeof(buf)) < 0 || set(&o->socket, buf) < 0))
		return furca_fail(err, FURCA_E_VALIDATION, 0, "the default socket's path is too long");
	if (!o->state_dir && (furca_default_state_dir(buf, sizeof(buf)) < 0 || set(&o->state_dir, buf) < 0))
		return furca_fail(err, FURCA_E_VALIDATION, 0, "the default state directory's path is too long");
	int r = furca_make_dirs(o->state_dir);
	if (r < 0)
		return furca_fail_suggest(err, FURCA_E_SYSTEM, -r, "Give a --state-dir that is yours.",
					  "cannot make the state directory '%s'", o->state_dir);
	char *real = realpath(o->state_dir, NULL), *work = realpath(o->workdir ? o->workdir : ".", NULL);
	if (real)
		(void)set(&o->state_dir, real);
	if (work)
		(void)set(&o->workdir, work);
	free(real);
	if (!work)
		return furca_fail_suggest(err, FURCA_E_SYSTEM, errno, "Give a --workdir that exists.",
					  "cannot use '%s' as working directory", o->workdir ? o->workdir : ".");
	free(work);
	o->engine.state_dir = o->state_dir;
	o->engine.workdir = o->workdir;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------ end */

static void on_stopped(void *user)
{
	struct serve *s = user;

	s->engine = NULL;
	furca_loop_drop(s->loop, &s->stop_op);
	furca_loop_end(s->loop);
}

static void on_stop_timeout(void *owner)
{
	struct serve *s = owner;

	s->stop_op = FURCA_OP_NONE;
	s->stuck = true;
	furca_log(FURCA_LOG_WARN, "bridge", "end forced after_s=%d", (int)(STOP_TIMEOUT_US / 1000000));
	furca_loop_end(s->loop);
}

/* Connections go first, so that clients see the end at once; then the sessions. */
static void stop(struct serve *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	furca_server_stop(s->server);
	furca_listener_done(&s->listener);
	(void)furca_loop_timer(s->loop, furca_deadline_us(STOP_TIMEOUT_US), on_stop_timeout, s, &s->stop_op);
	furca_engine_stop(s->engine, on_stopped, s);
}

static void on_signal(void *owner, int signo)
{
	furca_log(FURCA_LOG_INFO, "bridge", "stopping signal=%d", signo);
	stop(owner);
}

static void on_idle(void *user)
{
	stop(user);
}

/* ---------------------------------------------------------------------------------------------------------------- start */

static void nothing(int signo)
{
}

/*
 * SIGPIPE gets a handler, not SIG_IGN: writes fail with EPIPE all the same, and programs that are started find it at its default again.
 * The signals that end us are blocked and come through the loop.
 */
static int take_signals(struct serve *s, struct furca_err *err)
{
	struct sigaction pipe_action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	sigset_t set_;

	(void)sigaction(SIGPIPE, &pipe_action, NULL);
	(void)sigemptyset(&set_);
	(void)sigaddset(&set_, SIGTERM);
	(void)sigaddset(&set_, SIGINT);
	(void)sigaddset(&set_, SIGHUP);
	int r = furca_loop_signals(s->loop, &set_, on_signal, s, &s->signals_op);
	return r < 0 ? furca_fail(err, FURCA_E_SYSTEM, -r, "cannot wait for signals") : 0;
}

static int begin_serving(struct serve *s, const struct options *o, struct furca_err *err)
{
	int r;

	if (o->inherit >= 0) {
		r = furca_server_adopt(s->server, s->engine, furca_fd_own(o->inherit), err);
		return r < 0 ? r : furca_server_linger(s->server, 0, on_idle, s);
	}
	r = furca_server_start(s->server, s->engine, &s->listener, err);
	if (r == 0 && o->linger_s >= 0)
		r = furca_server_linger(s->server, (int64_t)(o->linger_s * 1e6), on_idle, s);
	if (r == 0) {
		(void)printf("ready %s\n", o->socket);
		(void)fflush(stdout);
	}
	return r;
}

static int start(struct serve *s, const struct options *o, struct furca_err *err)
{
	int r = o->inherit < 0 ? 0 : furca_fd_cloexec(o->inherit, 1);

	if (r < 0)
		return furca_fail(err, FURCA_E_VALIDATION, -r, "--inherit %d is no open descriptor", o->inherit);
	r = furca_loop_new(&s->loop, err);
	if (r == 0)
		r = furca_server_new(s->loop, &s->server, err);
	/* The engine forks its init before the socket exists, so that no child holds it. */
	if (r == 0)
		r = furca_engine_new(s->loop, &o->engine, &furca_server_events, s->server, &s->engine, err);
	if (r == 0)
		r = take_signals(s, err);
	if (r == 0 && o->inherit < 0)
		r = furca_listener_open(o->socket, &s->listener, err);
	if (r == 0)
		r = begin_serving(s, o, err);
	return r;
}

static int run(const struct options *o)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct serve s = {.listener = {FURCA_FD_NONE, FURCA_FD_NONE, NULL}};
	bool started = start(&s, o, &err) == 0;
	int status = FURCA_EXIT_OK;

	if (started)
		(void)furca_loop_run(s.loop, &err);
	else if (s.engine) {
		stop(&s);
		(void)furca_loop_run(s.loop, NULL);
	}
	if (err.code) {
		status = err.sys == ENOSYS || err.sys == EPERM || err.code == FURCA_E_UNSUPPORTED ? FURCA_EXIT_CANNOT
												  : FURCA_EXIT_FAILED;
		(void)furca_cli_fail_err("serve", &err);
	}
	furca_listener_done(&s.listener);
	/* What did not end goes with this process: its init sees the control channel close. */
	if (s.stuck)
		_exit(FURCA_EXIT_FAILED);
	furca_server_free(s.server);
	furca_loop_free(s.loop);
	return status;
}

int furca_cmd_serve(int argc, char **argv)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct options o = {
		.linger_s = -1,
		.inherit = -1,
		.log_level = FURCA_LOG_INFO,
		.engine = {.max_sessions = FURCA_DEFAULT_SESSIONS,
			   .timeout_s = 300,
			   .grace_s = 2,
			   .snapshots = FURCA_SNAPSHOT_AUTO,
			   .undo_depth = 8,
			   .zygote_idle_s = 600,
			   .env_timeout_s = 1800,
			   .max_processes = 8192},
	};
	int status = parse(&o, argc, argv);

	if (status < 0 && resolve(&o, &err) < 0)
		status = furca_cli_fail_err("serve", &err);
	if (status < 0) {
		furca_log_set_level(o.log_level);
		status = run(&o);
	}
	options_done(&o);
	return status;
}
