#include <string.h>

#include "snapshot/barriers.h"

#include "base/banned.h"

static const struct {
	const char *word, *what;
	unsigned required;
} table[FURCA_BARRIERS] = {
#define BARRIER(name, bit, word, required, what) [bit] = {word, what, required},
#include "snapshot/barrier.def"
#undef BARRIER
};

const char *furca_barrier_word(int bit)
{
	return bit >= 0 && bit < FURCA_BARRIERS ? table[bit].word : "";
}

const char *furca_barrier_what(int bit)
{
	return bit >= 0 && bit < FURCA_BARRIERS ? table[bit].what : "";
}

int furca_barrier_bit(const char *word, size_t n)
{
	for (int bit = 0; bit < FURCA_BARRIERS; bit++)
		if (strlen(table[bit].word) == n && memcmp(table[bit].word, word, n) == 0)
			return bit;
	return -1;
}

unsigned furca_barriers_required(void)
{
	unsigned bits = 0;

	for (int bit = 0; bit < FURCA_BARRIERS; bit++)
		bits |= table[bit].required << bit;
	return bits;
}

const char *furca_barriers_stage_text(int stage)
{
	static const char *const text[] = {
#define STAGE(name, what) [FURCA_STAGE_##name] = what,
		FURCA_BARRIERS_STAGES(STAGE)
#undef STAGE
	};

	return stage >= 0 && (size_t)stage < FURCA_COUNT(text) ? text[stage] : "an unknown step";
}

const char *furca_mechanism_word(int mechanism)
{
	static const char *const word[] = {
#define MECHANISM(name, w) [FURCA_MECHANISM_##name] = w,
		FURCA_MECHANISMS(MECHANISM)
#undef MECHANISM
	};

	return mechanism >= 0 && (size_t)mechanism < FURCA_COUNT(word) ? word[mechanism] : "none";
}
