/* The variables that activate an environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/env.h"

#include "base/banned.h"

/* Whether a variable is one of those that activation sets or takes away. */
static bool is_activation(const char *entry)
{
	static const char *const name[] = {
		"PATH=", "VIRTUAL_ENV=", "VIRTUAL_ENV_PROMPT=", "PYTHONHOME=", "__PYVENV_LAUNCHER__="};

	for (size_t i = 0; i < FURCA_COUNT(name); i++)
		if (!strncmp(entry, name[i], strlen(name[i])))
			return true;
	return false;
}

void furca_env_vars_free(char **vars)
{
	for (size_t i = 0; vars && vars[i]; i++)
		free(vars[i]);
	free(vars);
}

static char *joined(const char *a, const char *b, const char *c, const char *d)
{
	char *made;

	return asprintf(&made, "%s%s%s%s", a, b, c, d) < 0 ? NULL : made;
}

char **furca_env_vars(const char *dir, char *const *base)
{
	const char *path = "/usr/local/bin:/usr/bin:/bin";
	size_t n = 0, used = 0;
	bool failed = false;

	while (base[n])
		n++;
	char **vars = calloc(n + 3, sizeof(*vars));
	if (!vars)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		if (!strncmp(base[i], "PATH=", 5))
			path = base[i] + 5;
		if (!is_activation(base[i]))
			failed |= !(vars[used++] = strdup(base[i]));
	}
	failed |= !(vars[used++] = joined("PATH=", dir, "/bin:", path));
	failed |= !(vars[used++] = joined("VIRTUAL_ENV=", dir, "", ""));
	if (!failed)
		return vars;
	for (size_t i = 0; i < used; i++)
		free(vars[i]);
	free(vars);
	return NULL;
}
