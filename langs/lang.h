/*
 * The languages, as the engine sees them: a name, how a zygote is started, what it can do. The
 * engine knows nothing else of a runtime; a third language fills in one more row.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct furca_lang {
	const char *name;	  /* "python", "bash" */
	const char *default_mode; /* state_mode when none is given, without an environment */
	bool top_level_value;	  /* has a value of the last expression (python); else `result` is the
				 exit status */
	/*
	 * Fills argv (NULL-terminated, strings malloc'ed into it, freed by furca_lang_argv_free)
	 * for a zygote. `env_dir` is a ready environment's directory or NULL for the own
	 * interpreter. -ENOENT with *err where the host program is not installed. Blocks on stat(2)
	 * only.
	 */
	int (*argv)(const char *env_dir, char ***ret_argv, struct furca_err *err);
	const char *const *env; /* "K=V", NULL-terminated: what a zygote needs in its environment
				   from the start */
};

/* By index from 0 (NULL behind the last) and by name (NULL: unknown). */
const struct furca_lang *furca_lang_at(size_t index);
const struct furca_lang *furca_lang_find(const char *name, size_t n);
void furca_lang_argv_free(char **argv);

/* `base` (a NULL-terminated environ) with the language's own variables: malloc'ed, for
 * furca_lang_argv_free. NULL: no memory. */
char **furca_lang_env(const struct furca_lang *lang, char *const *base);

/* The directory of host programs: $FURCA_LIBEXEC, else beside the running program in a build tree,
 * else the installed one. */
const char *furca_lang_libexec(void);
