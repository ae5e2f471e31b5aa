/*
 * Revision 2026-07-28 of the Model Context Protocol: no handshake. Each request names its revision and what its client can do in `_meta`, each result says
 * that it is complete and who gave it, lists say how long they may be kept, and notifications that nobody asked for come only where a
 * `subscriptions/listen` is open. Requests that name none are of the revisions with `initialize`; one connection may have both.
 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "bridge/mcp.h"

#define FURCA_MCP_MODERN "2026-07-28"

/* Of earlier revisions, newest first, NULL behind the last. */
extern const char *const furca_mcp_handshakes[];

/* What a client's request has in its params, as JSON. */
#define FURCA_MCP_ENVELOPE                                                                                                 \
	"\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" FURCA_MCP_MODERN                                       \
	"\",\"io.modelcontextprotocol/clientCapabilities\":{},\"io.modelcontextprotocol/clientInfo\":{\"name\":\"furca\"," \
	"\"version\":\"1\"}}"

enum furca_mcp_error {
	FURCA_MCP_UNSUPPORTED_VERSION = -32022,
	FURCA_MCP_PARSE_ERROR = -32700,
	FURCA_MCP_INVALID_REQUEST = -32600,
	FURCA_MCP_METHOD_NOT_FOUND = -32601,
	FURCA_MCP_INVALID_PARAMS = -32602,
	FURCA_MCP_INTERNAL_ERROR = -32603,
};

/* Whether a request is of this revision: 1, or 0 where it names none; -1 with the `error` to answer it with (json_decref). */
int furca_mcp_modern(const char *method, json_t *params, json_t **ret_error);

/* The answer to server/discover. */
json_t *furca_mcp_discover(const struct furca_mcp *mcp);

/* Makes a result one of this revision (taken over, NULL passes); may be kept for `ttl_ms`, negative: nothing is said of that. */
json_t *furca_mcp_complete(json_t *result, int ttl_ms);

/* The same for members of a result as text: begins with a comma. */
extern const char furca_mcp_complete_members[];

/*
 * subscriptions/listen: acknowledges and notes it, under the number `id`; or answers with an error. It ends with notifications/cancelled, or with the input,
 * which answers it. All take the lock of *mcp; any thread.
 */
void furca_mcp_listen(struct furca_mcp *mcp, json_t *id, json_t *params);
bool furca_mcp_unlisten(struct furca_mcp *mcp, json_t *id);
void furca_mcp_tell_listeners(struct furca_mcp *mcp);
void furca_mcp_end_listeners(struct furca_mcp *mcp);
