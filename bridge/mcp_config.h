/* The configuration of MCP servers, as other MCP clients have it: {"mcpServers": {NAME: {command, args?, env?, cwd?, disabled?}}}. */
#pragma once

#include "bridge/mcp_peer.h"
#include "furca.h"

#define FURCA_MCP_MAX_SERVERS 32

/*
 * Reads the file into `peers` (room for FURCA_MCP_MAX_SERVERS, *ret_n are filled; furca_mcp_peer_done). Unknown keys of an entry are other clients' and
 * ignored. 0, or -errno with *err and nothing filled.
 */
int furca_mcp_config_read(const char *path, struct furca_mcp_peer *peers, size_t *ret_n, struct furca_error *err);
