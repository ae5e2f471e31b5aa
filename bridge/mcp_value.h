/* Between capability calls (packed values) and tools of MCP servers (JSON): names, arguments and results. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

/*
 * Writes "SERVER.TOOL", NUL-terminated, as code can say it: what is no letter, digit or underscore becomes an underscore. 0, or -EINVAL where
 * the name would be empty or too long.
 */
int furca_mcp_capability_name(struct furca_buf *out, const char *server, const char *tool);

/*
 * Writes a call's arguments as a JSON object, NUL-terminated. Positional ones take the schema's properties in their order. Text for a number, a boolean,
 * an array or an object, as a shell has it, is read as JSON where it is that. 0, or -EINVAL with words for whoever called.
 */
int furca_mcp_write_arguments(struct furca_buf *out, struct furca_view args, struct furca_view kwargs, json_t *schema,
			      char *refused, size_t size);

/*
 * Packs a server's response: to `value` its structured content, else its text (more than text: the list of its content); to `error` what
 * the tool or the server says went wrong. `wrapped`: the value stands in structuredContent.result.
 */
void furca_mcp_pack_answer(struct furca_buf *value, struct furca_buf *error, json_t *message, bool wrapped);

/* Packs {type, message}. */
void furca_mcp_pack_error(struct furca_buf *out, const char *type, const char *message);
