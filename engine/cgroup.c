#include "engine/cgroup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"

#include "base/banned.h"

#define PREFIX "furca-"

/* A file of the kernel's: version 1 and 2 say the same with different names. */
enum file { F_MEMORY_MAX, F_SWAP_MAX, F_PIDS_MAX, F_PEAK, F_EVENTS, F_NOW, FILES };

static const char *const files[2][FILES] = {
	{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max", "memory.max_usage_in_bytes",
	 "memory.oom_control", "memory.usage_in_bytes"},
	{"memory.max", "memory.swap.max", "pids.max", "memory.peak", "memory.events", "memory.current"},
};

struct furca_cgroups {
	int version;  /* 1 or 2 */
	char *memory; /* directory of the engine's group; NULL: not to be had */
	char *pids;   /* the same in version 2 */
	uint64_t next;
	uint64_t all_memory, all_processes; /* bounds of all together; 0: not held */
	struct furca_cgroup *all;	    /* what has no limits of its own */
	struct dying *dying;		    /* groups whose last processes had not ended yet */
};

struct dying {
	struct dying *next;
	char *path;
};

struct furca_cgroup {
	struct furca_cgroups *of;
	unsigned refs;
	int version;
	char *memory, *pids;
	uint64_t memory_bytes, processes;
	uint64_t kills_seen, refusals_seen;
};

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_WRONLY | O_CLOEXEC));
	if (fd.n < 0)
		return -errno;
	return furca_fd_write_all(fd.n, text, strlen(text));
}

static ssize_t read_file(const char *dir, const char *name, char *text, size_t size)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	if (fd.n < 0)
		return -errno;
	ssize_t n = furca_fd_read_full(fd.n, text, size - 1);
	if (n >= 0)
		text[n] = '\0';
	return n;
}

static bool has_word(const char *list, const char *word, char separator)
{
	size_t n = strlen(word);

	for (const char *at = list; at; at = strchr(at, separator) ? strchr(at, separator) + 1 : NULL)
		if (strncmp(at, word, n) == 0 && (at[n] == separator || at[n] == '\0' || at[n] == '\n'))
			return true;
	return false;
}

/* The engine's own group in a hierarchy, from /proc/self/cgroup. `controller` "" is version 2. */
static bool own_group(const char *controller, char *ret, size_t size)
{
	char line[PATH_MAX + 64];
	bool found = false;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (*controller ? has_word(list + 1, controller, ',') : list[1] == '\0') {
			(void)snprintf(ret, size, "%s", path);
			found = true;
		}
	}
	if (f)
		(void)fclose(f);
	return found;
}

/* Where a hierarchy is mounted, from /proc/self/mountinfo, and which of its groups is the root of that mount. */
static bool mounted(const char *type, const char *controller, char *ret_at, char *ret_root, size_t size)
{
	char line[2 * PATH_MAX], root[PATH_MAX], at[PATH_MAX];
	bool found = false;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *tail = strstr(line, " - ");
		char kind[32] = "", options[512] = "";

		if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", root, at) != 2 ||
		    sscanf(tail, " - %31s %*s %511s", kind, options) != 2 || strcmp(kind, type) != 0)
			continue;
		if (*controller && !has_word(options, controller, ','))
			continue;
		(void)snprintf(ret_at, size, "%s", at);
		(void)snprintf(ret_root, size, "%s", strcmp(root, "/") == 0 ? "" : root);
		found = true;
	}
	if (f)
		(void)fclose(f);
	return found;
}

/* The directory of the engine's own group in a hierarchy. */
static bool own_dir(const char *type, const char *controller, char *ret, size_t size)
{
	char at[PATH_MAX], root[PATH_MAX], group[PATH_MAX];

	if (!mounted(type, controller, at, root, sizeof(at)) || !own_group(controller, group, sizeof(group)))
		return false;
	const char *below = group;
	if (*root && strncmp(group, root, strlen(root)) == 0)
		below = group + strlen(root);
	return snprintf(ret, size, "%s%s", at, strcmp(below, "/") == 0 ? "" : below) < (int)size;
}

/* Groups of engines that have died are empty; the kernel refuses to remove those that are not. */
static void remove_left(const char *dir)
{
	DIR *d = opendir(dir);

	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		char path[PATH_MAX];

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path))
			continue;
		long pid = strtol(e->d_name + strlen(PREFIX), NULL, 10);
		if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH) {
			DIR *inner = opendir(path);

			for (struct dirent *g; inner && (g = readdir(inner));)
				if (isdigit((unsigned char)g->d_name[0]))
					(void)unlinkat(dirfd(inner), g->d_name, AT_REMOVEDIR);
			if (inner)
				(void)closedir(inner);
			(void)rmdir(path);
		}
	}
	(void)closedir(d);
}

static char *make_in(const char *dir, uint64_t instance)
{
	char *path = NULL;

	remove_left(dir);
	if (asprintf(&path, "%s/" PREFIX "%d-%llx", dir, (int)getpid(), (unsigned long long)instance) < 0)
		return NULL;
	if (mkdir(path, 0755) < 0) {
		free(path);
		return NULL;
	}
	return path;
}

static bool take_version_2(struct furca_cgroups *c, uint64_t instance)
{
	char dir[PATH_MAX], controllers[512];

	if (!own_dir("cgroup2", "", dir, sizeof(dir)) ||
	    read_file(dir, "cgroup.controllers", controllers, sizeof(controllers)) <= 0 ||
	    !has_word(controllers, "memory", ' ') || !has_word(controllers, "pids", ' ') ||
	    write_file(dir, "cgroup.subtree_control", "+memory +pids") < 0)
		return false;
	c->memory = make_in(dir, instance);
	if (c->memory && write_file(c->memory, "cgroup.subtree_control", "+memory +pids") < 0) {
		(void)rmdir(c->memory);
		free(c->memory);
		c->memory = NULL;
	}
	c->pids = c->memory ? strdup(c->memory) : NULL;
	c->version = 2;
	return c->pids != NULL;
}

struct furca_cgroups *furca_cgroups_new(uint64_t instance)
{
	struct furca_cgroups *c = calloc(1, sizeof(*c));
	char dir[PATH_MAX];

	if (!c)
		return NULL;
	if (take_version_2(c, instance))
		return c;
	c->version = 1;
	if (own_dir("cgroup", "memory", dir, sizeof(dir)))
		c->memory = make_in(dir, instance);
	if (own_dir("cgroup", "pids", dir, sizeof(dir)))
		c->pids = make_in(dir, instance);
	if (!c->memory && !c->pids) {
		furca_cgroups_free(c);
		return NULL;
	}
	return c;
}

/* Tries again what could not be removed before. */
static void bury(struct furca_cgroups *c)
{
	for (struct dying **at = &c->dying; *at;) {
		struct dying *d = *at;

		if (rmdir(d->path) < 0 && errno == EBUSY) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		free(d->path);
		free(d);
	}
}

/* Takes the path. */
static void remove_group(struct furca_cgroups *c, char *path)
{
	struct dying *d;

	if (!path || rmdir(path) == 0 || errno != EBUSY || !(d = calloc(1, sizeof(*d)))) {
		free(path);
		return;
	}
	*d = (struct dying){c->dying, path};
	c->dying = d;
}

void furca_cgroups_free(struct furca_cgroups *c)
{
	if (!c)
		return;
	if (c->all) { /* the last processes are ending */
		furca_cgroup_unref(c->all);
		for (int i = 0; i < 100 && c->dying; i++) {
			(void)usleep(2000);
			bury(c);
		}
	}
	bury(c);
	while (c->dying) {
		struct dying *d = c->dying;

		c->dying = d->next;
		free(d->path);
		free(d);
	}
	if (c->memory)
		(void)rmdir(c->memory);
	if (c->pids)
		(void)rmdir(c->pids);
	free(c->memory);
	free(c->pids);
	free(c);
}

bool furca_cgroups_memory(const struct furca_cgroups *c)
{
	return c && c->memory;
}

bool furca_cgroups_processes(const struct furca_cgroups *c)
{
	return c && c->pids;
}

static int make_group(const char *dir, uint64_t number, char **ret)
{
	char *path = NULL;

	if (asprintf(&path, "%s/%llu", dir, (unsigned long long)number) < 0)
		return -ENOMEM;
	if (mkdir(path, 0755) < 0) {
		int sys = errno;

		free(path);
		return -sys;
	}
	*ret = path;
	return 0;
}

static int set_number(const char *dir, const char *name, uint64_t value)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return write_file(dir, name, text);
}

struct furca_cgroup *furca_cgroup_new(struct furca_cgroups *c, uint64_t memory_bytes, uint64_t processes,
				      struct furca_err *err)
{
	struct furca_cgroup *group = calloc(1, sizeof(*group));
	uint64_t number = ++c->next;
	int r = group ? 0 : -ENOMEM;

	bury(c);
	if (group) {
		group->of = c;
		group->refs = 1;
		group->version = c->version;
		group->memory_bytes = memory_bytes;
		group->processes = processes;
	}
	if (r == 0 && memory_bytes) {
		r = make_group(c->memory, number, &group->memory);
		if (r == 0)
			r = set_number(group->memory, files[c->version - 1][F_MEMORY_MAX], memory_bytes);
		if (r == 0) /* without swap accounting this file is not there, and swap not bounded */
			(void)set_number(group->memory, files[c->version - 1][F_SWAP_MAX],
					 c->version == 2 ? 0 : memory_bytes);
	}
	if (r == 0 && processes) {
		if (c->version == 2 && group->memory)
			group->pids = strdup(group->memory);
		else
			r = make_group(c->pids, number, &group->pids);
		if (r == 0)
			r = group->pids ? set_number(group->pids, files[c->version - 1][F_PIDS_MAX], processes)
					: -ENOMEM;
	}
	if (r < 0) {
		(void)furca_fail_suggest(err, FURCA_E_SYSTEM, -r, "Remove limits, or ask for less.",
					 "cannot make a control group");
		furca_cgroup_unref(group);
		return NULL;
	}
	return group;
}

struct furca_cgroup *furca_cgroup_ref(struct furca_cgroup *group)
{
	if (group)
		group->refs++;
	return group;
}

void furca_cgroup_unref(struct furca_cgroup *group)
{
	if (!group || --group->refs > 0)
		return;
	remove_group(group->of, group->memory);
	remove_group(group->of, group->pids);
	free(group);
}

int furca_cgroup_enter(struct furca_cgroup *group, pid_t pid)
{
	int r = group->memory ? set_number(group->memory, "cgroup.procs", (uint64_t)pid) : 0;

	if (r == 0 && group->pids && (group->version == 1 || !group->memory))
		r = set_number(group->pids, "cgroup.procs", (uint64_t)pid);
	return r;
}

/* The number behind `key` in a file of the group's; with an empty key the file's own. 0 where it is not there. */
static uint64_t number_of(const char *dir, const char *name, const char *key)
{
	char text[512];

	if (!dir || read_file(dir, name, text, sizeof(text)) <= 0)
		return 0;
	char *at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

void furca_cgroup_news(struct furca_cgroup *group, uint64_t *ret_kills, uint64_t *ret_refusals)
{
	*ret_kills = *ret_refusals = 0;
	if (!group)
		return;
	uint64_t kills = number_of(group->memory, files[group->version - 1][F_EVENTS], "oom_kill ");
	uint64_t refusals = number_of(group->pids, "pids.events", "max ");

	*ret_kills = kills - FURCA_MIN(kills, group->kills_seen);
	*ret_refusals = refusals - FURCA_MIN(refusals, group->refusals_seen);
	group->kills_seen = kills;
	group->refusals_seen = refusals;
}

uint64_t furca_cgroup_peak(const struct furca_cgroup *group)
{
	return group ? number_of(group->memory, files[group->version - 1][F_PEAK], "") : 0;
}

uint64_t furca_cgroup_memory_limit(const struct furca_cgroup *group)
{
	return group ? group->memory_bytes : 0;
}

void furca_cgroups_bound_all(struct furca_cgroups *c, uint64_t memory_bytes, uint64_t processes, pid_t first)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (!c || (!(memory_bytes && c->memory) && !(processes && c->pids)))
		return;
	if (c->version == 1 && c->memory)
		(void)write_file(c->memory, "memory.use_hierarchy", "1"); /* always so in newer kernels */
	/* The bounds stand on the engine's group; what version 2 calls a leaf holds the processes. */
	c->all = furca_cgroup_new(c, memory_bytes && c->memory ? memory_bytes : 0, processes && c->pids ? processes : 0,
				  &err);
	if (!c->all || furca_cgroup_enter(c->all, first) < 0) {
		furca_cgroup_unref(c->all);
		c->all = NULL;
		return;
	}
	if (memory_bytes && c->memory && set_number(c->memory, files[c->version - 1][F_MEMORY_MAX], memory_bytes) == 0)
		c->all_memory = memory_bytes;
	if (processes && c->pids && set_number(c->pids, files[c->version - 1][F_PIDS_MAX], processes) == 0)
		c->all_processes = processes;
}

struct furca_cgroup *furca_cgroups_all(const struct furca_cgroups *c)
{
	return c ? c->all : NULL;
}

void furca_cgroups_usage(const struct furca_cgroups *c, struct furca_cgroups_usage *ret)
{
	*ret = (struct furca_cgroups_usage){0};
	if (!c || !c->all)
		return;
	ret->memory_limit = c->all_memory;
	ret->processes_limit = c->all_processes;
	if (c->all_memory) {
		ret->memory = number_of(c->memory, files[c->version - 1][F_NOW], "");
		ret->memory_peak = number_of(c->memory, files[c->version - 1][F_PEAK], "");
	}
	if (c->all_processes)
		ret->processes = number_of(c->pids, "pids.current", "");
}
