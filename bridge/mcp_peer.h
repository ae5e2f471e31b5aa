/*
 * One MCP server as a child process: its start, its lines of JSON-RPC, its end. Not thread-safe: mcp_servers.c serves all of them in one
 * thread and guards what others see. Nothing here blocks.
 */
#pragma once

#include <poll.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/proc.h"

enum furca_mcp_peer_state {
	FURCA_MCP_PEER_DOWN,	 /* not started, or ended */
	FURCA_MCP_PEER_STARTING, /* its tools are not known yet */
	FURCA_MCP_PEER_UP,
};

struct furca_mcp_peer {
	char *name, *cwd;
	char **argv, **env; /* owned, NULL-terminated */
	enum furca_mcp_peer_state state;
	struct furca_proc proc;
	struct furca_fd in, out; /* its standard input and output */
	struct furca_buf to, from;
	size_t looked; /* bytes of `from` without a new line */
	int64_t deadline_us, started_us;
	char failure[256]; /* why it is down; "" where it was never up */
};

void furca_mcp_peer_done(struct furca_mcp_peer *peer);

/* Starts the process and queues `initialize`. 0, or -errno with `failure` set and the state DOWN. */
int furca_mcp_peer_start(struct furca_mcp_peer *peer);

/* Queues one line: a message made of a format and arguments as printf has them. */
void furca_mcp_peer_say(struct furca_mcp_peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes what is queued, as much as goes. Reads what is there. 0, or -errno: it has ended (-EPIPE), or sent a line that is too long (-E2BIG). */
int furca_mcp_peer_write(struct furca_mcp_peer *peer);
int furca_mcp_peer_read(struct furca_mcp_peer *peer);

/*
 * The next message that has come, or NULL; json_decref. Lines that are no JSON are skipped; an answer that cannot be read (numbers
 * beyond 64 bits, halves of characters) comes as an error, for somebody waits for it.
 */
json_t *furca_mcp_peer_next(struct furca_mcp_peer *peer);

/* Ends it at once and forgets its process; `failure` says how it ended, or `why` where that is not NULL. */
void furca_mcp_peer_kill(struct furca_mcp_peer *peer, const char *why);
