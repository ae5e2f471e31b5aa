/* Options of the command line, and what is wrong with them. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "bridge/cli.h"
#include "bridge/wire/nearest.h"

#include "base/banned.h"

#define MAX_NAMES 32 /* options of one command */

bool furca_cli_number(const char *s, int64_t *ret)
{
	char *end;

	errno = 0;
	long long n = strtoll(s, &end, 10);
	if (errno || end == s || *end || n < 0)
		return false;
	*ret = n;
	return true;
}

/* --------------------------------------------------------------------------------------------------------------- mistakes */

/* One that is unknown, or short for several. */
static void say_unknown(const char *name, const char *word, const struct option *longs)
{
	const char *names[MAX_NAMES], *nearest;
	size_t n = strcspn(word, "="), count = 0, begins = 0;

	for (size_t i = 0; longs[i].name && count < MAX_NAMES; i++) {
		names[count++] = longs[i].name;
		begins += strncmp(longs[i].name, word + 2, n - 2) == 0;
	}
	nearest = furca_nearest(word + 2, n - 2, names, count);
	if (begins > 1)
		(void)furca_cli_usage(name, "'%.*s' is the beginning of several options: write more of it", (int)n,
				      word);
	else
		(void)furca_cli_usage(name, "there is no option '%.*s'; the nearest is '--%s'", (int)n, word, nearest);
}

/* Whether getopt_long has refused a value of this option, which takes none. */
static bool took_value(const struct option *longs, const char *word)
{
	const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;

	for (; equals && longs->name; longs++)
		if (longs->val == optopt && longs->has_arg == no_argument)
			return true;
	return false;
}

int furca_cli_next(const char *name, int argc, char **argv, const char *shorts, const struct option *longs)
{
	opterr = 0;
	int c = getopt_long(argc, argv, shorts, longs, NULL);
	const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";

	if (c == '?' && optopt == 0)
		say_unknown(name, word, longs);
	else if (c == '?' && took_value(longs, word))
		(void)furca_cli_usage(name, "'%.*s' has no value", (int)strcspn(word, "="), word);
	else if (c == '?')
		(void)furca_cli_usage(name, "there is no option '-%c'", optopt);
	else if (c == ':')
		(void)furca_cli_usage(name, "'%s' wants a value behind it", word);
	return c == ':' ? '?' : c;
}

/* ----------------------------------------------------------------------------------------------------------- what is shared */

enum { OPT_SOCKET = 256, OPT_JSON, OPT_ENV, OPT_OWN };

static const struct option common[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"json", no_argument, NULL, OPT_JSON},
	{"env", required_argument, NULL, OPT_ENV},
	{"language", required_argument, NULL, 'l'},
	{"help", no_argument, NULL, 'h'},
};

/* Both tables as getopt_long has them; an own option's value is OPT_OWN and its place, whatever its letter. */
static void make_tables(const struct furca_cli_own *own, struct option *longs, char *shorts)
{
	size_t n = FURCA_COUNT(common), letters = strlen(":hl:");

	memcpy(longs, common, sizeof(common));
	memcpy(shorts, ":hl:", letters);
	for (size_t i = 0; own && own[i].name && i < FURCA_CLI_MAX_OWN; i++) {
		longs[n++] = (struct option){own[i].name, own[i].value ? required_argument : no_argument, NULL,
					     OPT_OWN + (int)i};
		if (own[i].letter)
			shorts[letters++] = own[i].letter;
		if (own[i].letter && own[i].value)
			shorts[letters++] = ':';
	}
	longs[n] = (struct option){0};
	shorts[letters] = '\0';
}

static bool take_own(const struct furca_cli_own *own, int c)
{
	for (int i = 0; own && own[i].name; i++) {
		if (c != OPT_OWN + i && (!own[i].letter || c != own[i].letter))
			continue;
		if (own[i].value)
			*own[i].value = optarg;
		else
			*own[i].given = true;
		return true;
	}
	return false;
}

int furca_cli_options(int argc, char **argv, const char *name, const struct furca_cli_own *own, struct furca_cli *ret)
{
	struct option longs[FURCA_COUNT(common) + FURCA_CLI_MAX_OWN + 1];
	char shorts[8 + 2 * FURCA_CLI_MAX_OWN];
	int c;

	*ret = (struct furca_cli){.name = name, .venv_id = FURCA_NONE};
	make_tables(own, longs, shorts);
	optind = 1;
	while ((c = furca_cli_next(name, argc, argv, shorts, longs)) != -1) {
		if (take_own(own, c))
			continue;
		switch (c) {
		case OPT_SOCKET:
			ret->socket = optarg;
			break;
		case OPT_JSON:
			ret->json = true;
			break;
		case OPT_ENV:
			if (!furca_cli_number(optarg, &ret->venv_id))
				return furca_cli_usage(name, "--env wants an environment's number, not '%s'", optarg);
			break;
		case 'l':
			ret->language = optarg;
			break;
		case 'h':
			furca_cli_help(name);
			return FURCA_EXIT_OK;
		default:
			return FURCA_EXIT_USAGE;
		}
	}
	ret->argc = argc - optind;
	ret->argv = argv + optind;
	return -1;
}
