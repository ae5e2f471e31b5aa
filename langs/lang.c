#include "langs/lang.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"

#include "base/banned.h"

#define ARGV_MAX 12
#define HUGETLB "glibc.malloc.hugetlb=1"

/*
 * What an environment's interpreter runs: loads the module from its file, without a look at the
 * working directory, where any name may lie, and without a trace in sys.path.
 */
static const char python_start[] = "import sys\n"
				   "if sys.path[:1] == ['']: del sys.path[0]\n"
				   "import _imp\n"
				   "from importlib.machinery import ExtensionFileLoader, ModuleSpec\n"
				   "spec = ModuleSpec('_furca_host', ExtensionFileLoader('_furca_host', sys.argv[1]), "
				   "origin=sys.argv[1])\n"
				   "host = _imp.create_dynamic(spec)\n"
				   "_imp.exec_dynamic(host)\n"
				   "host.serve()\n";

static const char bash_start[] = "enable -f \"$1\" furca_host capability furca-fn furca-reset && furca_host";

static int host_file(const char *name, char **ret, struct furca_err *err)
{
	FURCA_AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/%s", furca_lang_libexec(), name) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a path");
	if (access(path, R_OK) < 0)
		return furca_fail_suggest(err, FURCA_E_SYSTEM, ENOENT,
					  "Install furca completely, or set FURCA_LIBEXEC to its host programs.",
					  "the host program %s is not installed", path);
	*ret = FURCA_TAKE(path);
	return 0;
}

/* Copies a list of at most ARGV_MAX - 1 words. */
static int argv_of(const char *const *words, char ***ret, struct furca_err *err)
{
	char **argv = calloc(ARGV_MAX, sizeof(*argv));

	for (size_t i = 0; argv && words[i]; i++) {
		argv[i] = strdup(words[i]);
		if (!argv[i]) {
			furca_lang_argv_free(argv);
			argv = NULL;
		}
	}
	if (!argv)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a program's arguments");
	*ret = argv;
	return 0;
}

static int python_argv(const char *env_dir, char ***ret_argv, struct furca_err *err)
{
	FURCA_AUTO_FREE char *host = NULL;
	FURCA_AUTO_FREE char *python = NULL;
	int r = host_file(env_dir ? "_furca_host.abi3.so" : "furca-python", &host, err);

	if (r < 0)
		return r;
	if (!env_dir)
		return argv_of((const char *[]){host, NULL}, ret_argv, err);
	if (asprintf(&python, "%s/bin/python", env_dir) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for a path");
	if (access(python, X_OK) < 0)
		return furca_fail(err, FURCA_E_ENVIRONMENT, ENOENT, "the environment has no interpreter at %s", python);
	return argv_of((const char *[]){python, "-c", python_start, host, NULL}, ret_argv, err);
}

static int bash_argv(const char *env_dir, char ***ret_argv, struct furca_err *err)
{
	static const char *const places[] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", NULL};
	FURCA_AUTO_FREE char *host = NULL;
	const char *bash = getenv("FURCA_BASH");
	int r = host_file("furca-bash.so", &host, err);

	(void)env_dir; /* its variables stand in the environment */
	if (r < 0)
		return r;
	for (size_t i = 0; !bash && places[i]; i++)
		if (access(places[i], X_OK) == 0)
			bash = places[i];
	if (!bash)
		return furca_fail_suggest(err, FURCA_E_SYSTEM, ENOENT,
					  "Install bash, or set FURCA_BASH to its program.", "there is no bash here");
	return argv_of((const char *[]){bash, "--norc", "--noprofile", "-p", "-c", bash_start, "bash", host, NULL},
		       ret_argv, err);
}

/* malloc on huge pages; taken out of the environment again by the host, so that the user's children
 * do not see it. */
static const char *const python_env[] = {"GLIBC_TUNABLES=" HUGETLB, NULL};
static const char *const bash_env[] = {NULL};

static const struct furca_lang langs[] = {
	{.name = "python", .default_mode = "stateful", .top_level_value = true, .argv = python_argv, .env = python_env},
	{.name = "bash", .default_mode = "stateless", .top_level_value = false, .argv = bash_argv, .env = bash_env},
};

const struct furca_lang *furca_lang_at(size_t index)
{
	return index < FURCA_COUNT(langs) ? &langs[index] : NULL;
}

const struct furca_lang *furca_lang_find(const char *name, size_t n)
{
	for (size_t i = 0; i < FURCA_COUNT(langs); i++)
		if (strlen(langs[i].name) == n && !memcmp(langs[i].name, name, n))
			return &langs[i];
	return NULL;
}

void furca_lang_argv_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}

static bool same_variable(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return !strncmp(a, b, n) && b[n] == '=';
}

static bool is_tunables(const char *variable)
{
	return same_variable("GLIBC_TUNABLES=", variable);
}

/* The language's own variable; the user's tunables stay beside ours. */
static char *merged(const char *own, const char *base)
{
	char *text = NULL;

	if (!base || !is_tunables(own))
		return strdup(own);
	return asprintf(&text, "%s:%s", base, own + strlen("GLIBC_TUNABLES=")) < 0 ? NULL : text;
}

static const char *find_variable(char *const *environment, const char *like)
{
	for (size_t i = 0; environment && environment[i]; i++)
		if (same_variable(like, environment[i]))
			return environment[i];
	return NULL;
}

char **furca_lang_env(const struct furca_lang *lang, char *const *base)
{
	const char *huge = find_variable(base, "FURCA_HUGE_PAGES=");
	bool plain = huge && !strcmp(huge, "FURCA_HUGE_PAGES=0");
	size_t n = 0, own = 0, at = 0;
	char **environment;

	while (base && base[n])
		n++;
	while (lang->env[own])
		own++;
	environment = calloc(n + own + 1, sizeof(*environment));
	for (size_t i = 0; environment && lang->env[i]; i++) {
		if (plain && is_tunables(lang->env[i]))
			continue;
		environment[at] = merged(lang->env[i], find_variable(base, lang->env[i]));
		if (!environment[at++])
			goto fail;
	}
	for (size_t i = 0; environment && i < n; i++) {
		if (find_variable(environment, base[i]))
			continue;
		environment[at] = strdup(base[i]);
		if (!environment[at++])
			goto fail;
	}
	return environment;
fail:
	furca_lang_argv_free(environment);
	return NULL;
}

/* The directory of the running program; libtool's programs in a build tree lie one deeper. False
 * where it holds no hosts. */
static bool build_tree(char *dir, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", dir, size - 1);
	char probe[PATH_MAX + 16];
	char *slash;

	if (n <= 0)
		return false;
	dir[n] = '\0';
	slash = strrchr(dir, '/');
	if (!slash)
		return false;
	*slash = '\0';
	slash = strrchr(dir, '/');
	if (slash && !strcmp(slash, "/.libs"))
		*slash = '\0';
	(void)snprintf(probe, sizeof(probe), "%s/furca-python", dir);
	return access(probe, X_OK) == 0;
}

const char *furca_lang_libexec(void)
{
	static char dir[PATH_MAX];
	const char *given = getenv("FURCA_LIBEXEC");

	if (given && *given)
		return given;
	if (!dir[0] && !build_tree(dir, sizeof(dir)))
		(void)snprintf(dir, sizeof(dir), "%s", FURCA_LIBEXEC);
	return dir;
}
