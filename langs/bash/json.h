/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * JSON text of packed values and back, for words of the shell. What JSON has no form for is written so that it can be read by a
 * person: bytes as text, a handle as {"handle": id}, a time as seconds. Integers keep every digit in both directions.
 */
#pragma once

#include <msgpack.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/value.h"

/* Appends the JSON text of one packed value, which has been checked. Non-ASCII text stays as it is; NaN and infinities as Python writes them. */
void furca_json_write(struct furca_buf *out, const struct furca_value *value);

/* Packs the one JSON value in `text` at the end of `out`. 0 or -errno with *err: malformed, deeper than FURCA_MAX_DEPTH. */
int furca_json_read(struct furca_buf *out, const char *text, struct furca_err *err);
