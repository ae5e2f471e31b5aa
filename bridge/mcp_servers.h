/*
 * Other MCP servers, whose tools code in sessions calls as capabilities: `capabilities.SERVER.TOOL(…)`, in bash `capability SERVER.TOOL
 * key=value`. Each is a child process that speaks on its standard input and output. One thread of its own serves them all; it never
 * waits for a server, and a call that is under way holds no thread of the client library.
 *
 * A tool that says readOnlyHint may be called by read-only code; one that does not say may change something, and may not. A server
 * that ends fails the calls that it had, and is started again by the next one.
 */
#pragma once

#include "base/buf.h"
#include "furca.h"

struct furca_mcp_servers;

/*
 * Reads CONFIG ({"mcpServers": {NAME: {command, args?, env?, cwd?, disabled?}}}, as other MCP clients have it) and starts the servers.
 * `changed` is called, from any thread, when there are other tools than before. 0, or -errno with *err: the file is not such a configuration.
 * A server that does not start is said on standard error, and to code that calls it.
 */
int furca_mcp_servers_start(const char *config, struct furca_client *client, void (*changed)(void *user), void *user,
			    struct furca_mcp_servers **ret, struct furca_error *err);

/* Blocks until each server has started or failed to, `timeout_us` at most. Accepts NULL. */
void furca_mcp_servers_wait(struct furca_mcp_servers *servers, int64_t timeout_us);

/* Gives up the calls of that execute's code. Accepts NULL. */
void furca_mcp_servers_cancel(struct furca_mcp_servers *servers, uint64_t execute_id);

/* Appends a line for each tool, for a model to read. Accepts NULL. */
void furca_mcp_servers_describe(struct furca_mcp_servers *servers, struct furca_buf *out);

/* Ends the servers: first their input, then by signal. Blocks for a few seconds at most. Accepts NULL. */
void furca_mcp_servers_stop(struct furca_mcp_servers *servers);
