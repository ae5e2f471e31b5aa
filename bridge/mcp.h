/*
 * `furca mcp`: the Model Context Protocol on standard input and output, revisions 2026-07-28 (mcp_modern.h),
 * 2025-11-25, 2025-06-18 and 2025-03-26. One thread reads; each tools/call runs in a thread of its own, which waits in the client library. Answers are whole lines, written
 * under one lock.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include <jansson.h>

#include "base/buf.h"
#include "bridge/wire/value.h"
#include "furca.h"

struct furca_mcp {
	struct furca_client *client;
	atomic_bool initialized;
	struct furca_mcp_servers *servers; /* --tools, or NULL */
	unsigned held;			   /* guarantees that the engine gives, bits of enum furca_barrier */
	pthread_mutex_t lock;		   /* output, and the list of calls */
	pthread_cond_t idle;		   /* a call has begun, or ended */
	struct furca_mcp_call *calls;
	struct furca_mcp_listener *listeners;
};

/* What a client may tell its model of this server. */
extern const char furca_mcp_instructions[];

/* A tools/call under way. */
struct furca_mcp_call {
	struct furca_mcp *mcp;
	struct furca_mcp_call *next;
	json_t *id, *arguments, *progress_token; /* owned; the token may be NULL */
	const struct furca_mcp_tool *tool;
	uint32_t msgid; /* of the execute under way, 0: none */
	bool cancelled, begun,
		modern; /* `begun`: the engine has been asked; `modern`: of a revision without handshake */
	int64_t started_us, told_us;
	uint64_t told; /* progress so far: it must grow */
};

struct furca_mcp_tool {
	const char *name, *title, *description; /* no description: made for this machine */
	const char *schema;			/* of the arguments, as JSON; NULL: the one of execute_code */
	bool read_only, destructive, idempotent, open_world;
	void (*run)(struct furca_mcp_call *call, const struct furca_mcp_tool *tool);
	const char *method;
};

extern const struct furca_mcp_tool furca_mcp_tools[]; /* the last has no name */

/* The answer to tools/list, with the tools for this machine. json_decref. */
json_t *furca_mcp_list_tools(const struct furca_mcp *mcp);

/* The result of an execute as the members of a CallToolResult (content, structuredContent, isError), without braces. */
int furca_mcp_write_result(struct furca_buf *out, struct furca_view map, uint64_t msgid);

/* The same for other methods: the answer as text and as it is. */
int furca_mcp_write_answer(struct furca_buf *out, struct furca_view map);

/* Writes a line whole, adding its end. The lock is held. */
void furca_mcp_write_line(struct furca_buf *line);

/* Answers a request with an error {code, message, data?} (taken over); `id` NULL: null. Takes the lock. */
void furca_mcp_error(struct furca_mcp *mcp, json_t *id, json_t *error);

/* Answers a call with the members of its result, or with a JSON-RPC error. Takes the lock. */
void furca_mcp_respond(struct furca_mcp_call *call, const struct furca_buf *members);
void furca_mcp_fail(struct furca_mcp_call *call, int code, const char *message);

/* notifications/progress, where the caller asked for them. */
void furca_mcp_progress(struct furca_mcp_call *call, const char *message, size_t size);
