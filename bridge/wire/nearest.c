#include "bridge/wire/nearest.h"

#include <string.h>

#include "base/auto.h"

#include "base/banned.h"

enum { LONGEST = 64 };

static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
	size_t row[LONGEST + 1];

	n = FURCA_MIN(n, (size_t)LONGEST);
	m = FURCA_MIN(m, (size_t)LONGEST);
	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = FURCA_MIN(change, FURCA_MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[m];
}

const char *furca_nearest(const char *word, size_t n, const char *const *words, size_t count)
{
	const char *best = NULL;
	size_t least = (size_t)-1;

	for (size_t i = 0; i < count; i++) {
		if (!words[i])
			continue;
		size_t d = distance(word, n, words[i], strlen(words[i]));
		if (d < least) {
			least = d;
			best = words[i];
		}
	}
	return best;
}
