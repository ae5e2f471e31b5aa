/* The program: finds the subcommand. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/fault.h"
#include "bridge/cli.h"
#include "bridge/wire/nearest.h"

#include "config.h"

#include "base/banned.h"

static void print_commands(FILE *out)
{
	(void)fprintf(out, "furca runs agents' code at a coordinate: language, state mode, session, environment.\n\n"
			   "usage: furca COMMAND [OPTION…]\n\n");
	for (const struct furca_command *c = furca_commands; c->name; c++)
		(void)fprintf(out, "  %-12s %s\n", c->name, c->summary);
	(void)fprintf(out, "\n`furca COMMAND --help` says more. `furca --version` prints the version.\n");
}

static const struct furca_command *find(const char *name)
{
	for (const struct furca_command *c = furca_commands; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

static int unknown(const char *name)
{
	const char *names[32];
	size_t n = 0;

	if (*name == '-') {
		(void)fprintf(
			stderr,
			"furca: '%s' stands before a command: options go behind it, as in `furca exec -e 1`. `furca help` lists all.\n",
			name);
		return FURCA_EXIT_USAGE;
	}
	for (const struct furca_command *c = furca_commands; c->name && n < FURCA_COUNT(names); c++)
		names[n++] = c->name;
	(void)fprintf(stderr, "furca: no command '%s'; the nearest is '%s'. `furca help` lists all.\n", name,
		      furca_nearest(name, strlen(name), names, n));
	return FURCA_EXIT_USAGE;
}

void furca_cli_help(const char *name)
{
	const struct furca_command *c = find(name);

	if (c)
		(void)printf("usage: furca %s %s", c->name, c->help);
}

int furca_cmd_help(int argc, char **argv)
{
	if (argc < 2 || argv[1][0] == '-') {
		print_commands(stdout);
		return FURCA_EXIT_OK;
	}
	if (!find(argv[1]))
		return unknown(argv[1]);
	furca_cli_help(argv[1]);
	return FURCA_EXIT_OK;
}

int main(int argc, char **argv)
{
	furca_fault_init();
	if (argc < 2) {
		print_commands(stderr);
		return FURCA_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		(void)printf("furca %s\n", PACKAGE_VERSION);
		return FURCA_EXIT_OK;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_commands(stdout);
		return FURCA_EXIT_OK;
	}
	const struct furca_command *c = find(argv[1]);
	if (!c)
		return unknown(argv[1]);
	return c->run(argc - 1, argv + 1);
}
