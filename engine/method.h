/*
 * What the methods of a client share: looking at their arguments, and the refusal form. Nothing here blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/value.h"

/*
 * Whether every key of the packed map `args` is one of `known` (`count` words). 0, or -EINVAL with *err naming the key
 * and the nearest known one.
 */
int furca_method_known(struct furca_view args, const char *const *known, size_t count, struct furca_err *err);

/*
 * An argument by name: 1 and *ret, 0 where it is missing or nil and not `required`, or -EINVAL with *err. Text must be UTF-8
 * without NUL and at most max_bytes.
 */
int furca_method_text(struct furca_view args, const char *key, bool required, size_t max_bytes, struct furca_view *ret,
		      struct furca_err *err);
int furca_method_uint(struct furca_view args, const char *key, bool required, uint64_t *ret, struct furca_err *err);

/*
 * Packs the refusal form: {ok: false, error, error_type, suggestion, received, state: "unchanged"}. `lines` (NULL: none) stand
 * below the error's text. `received` is a packed map, empty for {}.
 */
void furca_method_refuse(struct furca_buf *out, const struct furca_err *err, const char *lines,
			 struct furca_view received);

/* The same as a whole result map, as execute and call_function answer with. */
void furca_method_refuse_call(struct furca_buf *out, const struct furca_err *err, struct furca_view received);
