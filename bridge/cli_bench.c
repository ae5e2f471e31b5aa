/* furca bench, furca demo: find and run programs that lie beside the host programs, as furca-bench-NAME and furca-demo. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/cli.h"

#include "base/banned.h"

#define PREFIX "furca-bench-"

/* The directory with the programs: $FURCA_LIBEXEC, the running program's own (a build tree), or the installed one. */
static void find_directory(char *ret, size_t size)
{
	const char *named = getenv("FURCA_LIBEXEC");
	char self[PATH_MAX], probe[PATH_MAX + sizeof(PREFIX) + 8];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)snprintf(ret, size, "%s", named && *named ? named : FURCA_LIBEXEC);
	if ((named && *named) || n <= 0)
		return;
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return;
	*slash = '\0';
	(void)snprintf(probe, sizeof(probe), "%s/" PREFIX "call", self);
	if (access(probe, X_OK) == 0)
		(void)snprintf(ret, size, "%s", self);
}

static int list(const char *directory)
{
	struct dirent **names;
	int n = scandir(directory, &names, NULL, alphasort), found = 0;

	for (int i = 0; i < n; i++) {
		size_t skip = sizeof(PREFIX) - 1;

		if (strncmp(names[i]->d_name, PREFIX, skip) == 0 && !strchr(names[i]->d_name, '.')) {
			(void)printf("%s\n", names[i]->d_name + skip);
			found++;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	if (found)
		return FURCA_EXIT_OK;
	(void)furca_cli_fail("bench", "no benchmark is installed",
			     "Install furca completely, or set FURCA_LIBEXEC to its host programs.");
	return FURCA_EXIT_CANNOT;
}

/*
 * `--json FILE` and `--quick`, wherever they stand behind the name, are told to the program by the environment: it may start others.
 * Returns how many arguments are left, or -1.
 */
static int take_options(int argc, char **argv)
{
	int left = 2;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			(void)setenv("FURCA_BENCH_QUICK", "1", 1);
		} else if (strcmp(argv[i], "--json") == 0) {
			char path[PATH_MAX], *file = argv[++i], *absolute = NULL;

			if (!file || !*file)
				return -1;
			if (*file != '/' && getcwd(path, sizeof(path)) && asprintf(&absolute, "%s/%s", path, file) < 0)
				return -1;
			(void)setenv("FURCA_BENCH_JSON", absolute ? absolute : file, 1);
			free(absolute);
		} else {
			argv[left++] = argv[i];
		}
	}
	argv[left] = NULL;
	return left;
}

/* Becomes that program; the engine that it starts is this one. Returns where it cannot. */
static void start(const char *path, char **argv)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		(void)setenv("FURCA_PROGRAM", self, 0);
	}
	(void)execv(path, argv);
}

int furca_cmd_demo(int argc, char **argv)
{
	char directory[PATH_MAX], path[PATH_MAX + 16];

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		furca_cli_help("demo");
		return FURCA_EXIT_OK;
	}
	if (argc > 2 || (argc == 2 && argv[1][0] == '-'))
		return furca_cli_usage("demo", "it takes a folder for the data, nothing else");
	find_directory(directory, sizeof(directory));
	(void)snprintf(path, sizeof(path), "%s/furca-demo", directory);
	start(path, argv);
	(void)fprintf(stderr, "furca demo: cannot run %s: %s\n", path, strerror(errno));
	return FURCA_EXIT_CANNOT;
}

int furca_cmd_bench(int argc, char **argv)
{
	char directory[PATH_MAX], path[2 * PATH_MAX];

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		furca_cli_help("bench");
		return FURCA_EXIT_OK;
	}
	find_directory(directory, sizeof(directory));
	if (argc < 2)
		return list(directory);
	if (argv[1][0] == '-' || strchr(argv[1], '/'))
		return furca_cli_usage("bench", "'%s' is no benchmark; `furca bench` lists them", argv[1]);
	if (take_options(argc, argv) < 0)
		return furca_cli_usage("bench", "--json needs a file");
	(void)snprintf(path, sizeof(path), "%s/" PREFIX "%s", directory, argv[1]);
	start(path, argv + 1);
	if (errno == ENOENT)
		return furca_cli_usage("bench", "'%s' is no benchmark; `furca bench` lists them", argv[1]);
	(void)fprintf(stderr, "furca bench: cannot run %s: %s\n", path, strerror(errno));
	return FURCA_EXIT_FAILED;
}
