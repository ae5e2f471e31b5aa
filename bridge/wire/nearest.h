/* The known word nearest to one that is not known, for "did you mean". */
#pragma once

#include <stddef.h>

/*
 * The entry of `words` (NULL entries are skipped, `count` at least one word) with the least edit distance to the `n`
 * bytes at `word`. Static string of the caller's table; NULL only if the table holds no word. Looks at 64 bytes at most.
 */
const char *furca_nearest(const char *word, size_t n, const char *const *words, size_t count);
