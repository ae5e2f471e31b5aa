/*
 * What the subcommands of `furca` share: their table, options that recur, the connection, and how answers are shown. Exit status
 * of the program: 0, 1 failed, 2 usage, 77 cannot run here; `furca exec` has the code's own.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/args.h"
#include "bridge/wire/value.h"
#include "furca.h"

enum { FURCA_EXIT_OK = 0, FURCA_EXIT_FAILED = 1, FURCA_EXIT_USAGE = 2, FURCA_EXIT_CANNOT = 77 };

struct furca_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* one line, for `furca help` */
	const char *help;    /* what --help prints */
};

/* All subcommands, by name; the last has none. */
extern const struct furca_command furca_commands[];

int furca_cmd_serve(int argc, char **argv);
int furca_cmd_stop(int argc, char **argv);
int furca_cmd_exec(int argc, char **argv);
int furca_cmd_output(int argc, char **argv);
int furca_cmd_sessions(int argc, char **argv);
int furca_cmd_inspect(int argc, char **argv);
int furca_cmd_close(int argc, char **argv);
int furca_cmd_top(int argc, char **argv);
int furca_cmd_undo(int argc, char **argv);
int furca_cmd_branch(int argc, char **argv);
int furca_cmd_checkpoint(int argc, char **argv);
int furca_cmd_restore(int argc, char **argv);
int furca_cmd_envs(int argc, char **argv);
int furca_cmd_functions(int argc, char **argv);
int furca_cmd_doctor(int argc, char **argv);
int furca_cmd_schema(int argc, char **argv);
int furca_cmd_mcp(int argc, char **argv);
int furca_cmd_bench(int argc, char **argv);
int furca_cmd_demo(int argc, char **argv);
int furca_cmd_help(int argc, char **argv);

/* Options of commands that talk to an engine. */
struct furca_cli {
	const char *name; /* of the subcommand */
	const char *socket;
	const char *language;
	int64_t venv_id; /* FURCA_NONE */
	bool json;
	int argc; /* what is left */
	char **argv;
};

/* An option of one command alone. A table of them ends with one without a name. */
struct furca_cli_own {
	const char *name; /* without its dashes */
	char letter;	  /* its short form; 0: none */
	const char **value;
	bool *given; /* of one that has no value */
};

#define FURCA_CLI_MAX_OWN 4 /* options in such a table */

/*
 * Reads the options that these commands share (--socket, --json, --language, --env, --help), and `own` ones (NULL: none), and leaves the rest in
 * ret->argc, argv. What is not given stays as it was. Returns -1 to go on, or an exit status.
 */
int furca_cli_options(int argc, char **argv, const char *name, const struct furca_cli_own *own, struct furca_cli *ret);

/*
 * getopt_long for commands that read their own: `shorts` begins with ":", or "+:". For a wrong option it says on standard error what is
 * wrong, with the nearest name that there is, and returns '?': the command ends with FURCA_EXIT_USAGE.
 */
struct option;
int furca_cli_next(const char *name, int argc, char **argv, const char *shorts, const struct option *longs);

/* "furca NAME: …" on standard error and how to get help. Returns FURCA_EXIT_USAGE. */
int furca_cli_usage(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the help text of a subcommand on standard output. */
void furca_cli_help(const char *name);

/*
 * A suggestion of the engine's in the words of the command line: options and commands in the place of arguments and methods. `name`: of the subcommand that
 * was told it. free(); NULL where memory is out.
 */
char *furca_cli_words(const char *name, const char *suggestion);

/* Prints it on standard error, if there is one (NULL, "": none). */
void furca_cli_advise(const char *name, const char *suggestion);

/* Prints an error and its suggestion on standard error. Returns FURCA_EXIT_FAILED. */
int furca_cli_fail(const char *name, const char *message, const char *suggestion);
int furca_cli_fail_err(const char *name, const struct furca_err *err);

/*
 * Connects to the running engine at `socket` (NULL: the default one). With `start`, starts one in the background where none runs at the
 * default one: it lives on until an hour after its last client. 0 or an exit status, after a message.
 */
int furca_cli_connect(const char *name, const char *socket, bool start, struct furca_client **ret);

/* Whether `s` is a number that names a session's id. */
bool furca_cli_number(const char *s, int64_t *ret);

/* Adds the session that `target` (a name or an id), --language and --env name. */
void furca_cli_session(struct furca_args *args, const struct furca_cli *cli, const char *target);

/*
 * Calls a method and hands out its answer (a packed map, free()). A refusal is printed. 0 or an exit status. With --json the answer is
 * printed as it is, and *ret_shown is true.
 */
int furca_cli_call(const struct furca_cli *cli, const char *method, struct furca_args *args, void **ret,
		   struct furca_view *ret_view, bool *ret_shown);

/* The same for commands that show nothing more than one line made from `done`. */
int furca_cli_simple(const struct furca_cli *cli, const char *method, struct furca_args *args, const char *done);

/* Escape sequences, or "" where standard output (1) or error (2) is no terminal or NO_COLOR is set. */
const char *furca_cli_color(int fd, const char *sequence);
#define FURCA_RED "\033[31m"
#define FURCA_DIM "\033[2m"
#define FURCA_BOLD "\033[1m"
#define FURCA_PLAIN "\033[0m"

/*
 * A table for people: columns as wide as they need, the last one cut at the terminal's width. Cells are copied; control characters are
 * shown as '?'. cli_frame.c lays out frames.
 */
struct furca_table {
	size_t columns, rows;
	char **cells;
};

void furca_table_begin(struct furca_table *table, size_t columns, const char *const *heads);
void furca_table_add(struct furca_table *table, const char *text, size_t n);
void furca_table_add_text(struct furca_table *table, const char *text);
/* The value of a key in a packed map: text as it is, nil as "-", others as JSON. */
void furca_table_add_value(struct furca_table *table, struct furca_view map, const char *key);
void furca_table_print(struct furca_table *table, FILE *out);
void furca_table_done(struct furca_table *table);

/* How many columns of a terminal UTF-8 text takes. */
size_t furca_cli_width(const char *text);

/* Prints text in at most so many columns, with "…" in place of the last where it needs more. Returns how many it took. */
size_t furca_cli_print_cut(FILE *out, const char *text, size_t most);

/* The columns of the terminal that a file is; 4096 where it is none or does not say. */
size_t furca_cli_line_width(FILE *out);

/*
 * The answer of list_sessions as a table on standard output, `most` sessions at most. Returns how many there were.
 */
size_t furca_cli_print_sessions(struct furca_view answer, size_t most);

/* Adds the cell of a number of bytes in the entry `memory` of a packed map; "-" where it is not there. */
void furca_cli_add_memory(struct furca_table *table, struct furca_view map, const char *key);

/* "1.5 MiB" */
void furca_cli_bytes(char *buf, size_t size, uint64_t bytes);

/* Where the engine keeps what outlives it: $XDG_STATE_HOME/furca, ~/.local/state/furca, /var/lib/furca. 0 or -ENAMETOOLONG. */
int furca_default_state_dir(char *buf, size_t size);

/* Makes a directory and those above it, mode 0700. 0 or -errno. */
int furca_make_dirs(const char *path);
