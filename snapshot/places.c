#include "snapshot/places.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#include "base/banned.h"

#define MAX_PLACES 256
#define MAX_DEPTH 4
#define MAX_LOOKED_AT 4000 /* directory entries, so that a start on a large machine stays quick */

static const char *list[MAX_PLACES + 1];
static size_t n_places, looked_at;

static void add(const char *path)
{
	for (size_t i = 0; i < n_places; i++)
		if (strcmp(list[i], path) == 0)
			return;
	if (n_places < MAX_PLACES && path[0] == '/' && (list[n_places] = strdup(path)))
		n_places++;
}

/* Trees of the system: large, and nobody's place to write. */
static bool is_system(const char *name)
{
	static const char *const names[] = {"proc",  "sys",    "dev",  "usr", "bin",	    "sbin", "lib", "lib32",
					    "lib64", "libx32", "boot", "etc", "lost+found", "snap", "nix"};

	for (size_t i = 0; i < FURCA_COUNT(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static void look(const char *dir, int depth)
{
	DIR *stream = opendir(dir);

	if (!stream)
		return;
	for (struct dirent *e; looked_at < MAX_LOOKED_AT && (e = readdir(stream)); looked_at++) {
		char path[4096];
		struct stat st;

		if (e->d_name[0] == '.' || (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN) ||
		    (depth == 0 && is_system(e->d_name)) ||
		    snprintf(path, sizeof(path), "%s/%s", depth ? dir : "", e->d_name) >= (int)sizeof(path) ||
		    lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		if (st.st_uid == geteuid())
			add(path);
		else if (depth + 1 <= MAX_DEPTH)
			look(path, depth + 1);
	}
	(void)closedir(stream);
}

const char *const *furca_places(const char *cwd)
{
	static const char *const usual[] = {"/tmp", "/var/tmp", "/dev/shm", "/run/lock"};
	const char *home = getenv("HOME");

	if (n_places)
		return list;
	for (size_t i = 0; i < FURCA_COUNT(usual); i++)
		add(usual[i]);
	add(cwd);
	if (home)
		add(home);
	if (geteuid() != 0)
		look("/", 0);
	return list;
}
