/*
 * The words of refusals. A suggestion is read by a model and applied by a program: it begins with what to change, in the small
 * grammar that doc/protocol.md gives ("Suggestions"): `use KEY=VALUE and KEY=VALUE`, `remove KEY`, `rename 'OLD' to 'NEW'`,
 * `call METHOD with KEY=VALUE first`, alternatives after `, or `. All of these return -EINVAL and fill *err (may be NULL) with
 * FURCA_E_VALIDATION.
 */
#pragma once

#include "base/err.h"
#include "bridge/wire/value.h"

/* Room for the longest text that furca_advice_text writes. */
#define FURCA_ADVICE_TEXT 224

/* Writes bytes as a literal of the grammar: in quotes, at most 64 characters, invalid UTF-8 as '?'. Returns `buf`. */
const char *furca_advice_text(char buf[FURCA_ADVICE_TEXT], struct furca_view text);

/*
 * "Unknown WHAT 'KEY'.": to be renamed to the nearest of `known` (n words; NULL entries are skipped) unless `map`, the packed map it
 * stands in, has that one already; or to be removed.
 */
int furca_refuse_unknown(struct furca_err *err, const char *what, struct furca_view key, const char *const *known,
			 size_t n, struct furca_view map);

/* "The argument 'KEY' must be WHAT.": to be removed. KEY may be dotted. For arguments that may be left out. */
int furca_refuse_value(struct furca_err *err, const char *key, const char *what);

/* The same for an argument that is needed, or is missing: `example` is a literal that would do. `what` NULL: "is missing". */
int furca_refuse_needed(struct furca_err *err, const char *key, const char *what, const char *example);

/*
 * "Unknown KEY 'WORD'.", or "must be one of" where the value is no text: the nearest of `words` is to be used. `needed`: it cannot be
 * left out.
 */
int furca_refuse_word(struct furca_err *err, const char *key, const struct furca_value *given, const char *const *words,
		      size_t n, bool needed);
