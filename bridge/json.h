/*
 * Packed values as JSON text, for people and for MCP. What JSON lacks: bytes become base64 text, NaN and infinities null, keys that are no
 * text their JSON text, a handle {"handle": text}, other extensions {"ext": n, "base64": text}. Integers keep all their digits;
 * bytes that are no UTF-8 in a str become U+FFFD.
 */
#pragma once

#include "base/buf.h"
#include "bridge/wire/value.h"

/* Appends the one value that `view` holds. 0, -EPROTO where it is malformed or nested over 128, or -ENOMEM. */
int furca_json_write(struct furca_buf *out, struct furca_view view);

/* As furca_json_write, with new lines and two spaces for each level. */
int furca_json_write_pretty(struct furca_buf *out, struct furca_view view);

/* Appends text as a JSON string, quotes included. */
int furca_json_write_text(struct furca_buf *out, const char *text, size_t n);

/* Appends bytes as base64, without quotes. */
int furca_base64(struct furca_buf *out, const uint8_t *data, size_t n);
