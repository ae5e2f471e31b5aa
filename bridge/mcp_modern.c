#include "bridge/mcp_modern.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"

#include "config.h"

#include "base/banned.h"

#define MAX_LISTENERS 64
#define META(name) "io.modelcontextprotocol/" name

const char *const furca_mcp_handshakes[] = {"2025-11-25", "2025-06-18", "2025-03-26", NULL};

/* What each result has, as JSON. */
#define COMPLETE                                                                                                       \
	"\"resultType\":\"complete\",\"_meta\":{\"" META(                                                              \
		"serverInfo") "\":{\"name\":\"furca\",\"title\":\"furca\",\"version\":\"" PACKAGE_VERSION "\"}}"

const char furca_mcp_complete_members[] = "," COMPLETE;

/* All revisions: who knows none after the handshake's can still begin with one. */
static json_t *versions(void)
{
	json_t *list = json_pack("[s]", FURCA_MCP_MODERN);

	for (const char *const *at = furca_mcp_handshakes; *at; at++)
		(void)json_array_append_new(list, json_string(*at));
	return list;
}

static json_t *refuse(const char *message)
{
	return json_pack("{s:i, s:s}", "code", FURCA_MCP_INVALID_PARAMS, "message", message);
}

int furca_mcp_modern(const char *method, json_t *params, json_t **ret_error)
{
	json_t *meta = json_object_get(params, "_meta"), *version = json_object_get(meta, META("protocolVersion"));

	*ret_error = NULL;
	if (!version && strcmp(method, "server/discover") != 0)
		return 0;
	if (!version)
		*ret_error = refuse(
			"params._meta must have '" META("protocolVersion") "' and '" META("clientCapabilities") "'");
	else if (!json_is_object(json_object_get(meta, META("clientCapabilities"))))
		*ret_error = refuse("params._meta must have '" META("clientCapabilities") "', an object");
	else if (!json_is_string(version))
		*ret_error = refuse("'" META("protocolVersion") "' must be text");
	else if (strcmp(json_string_value(version), FURCA_MCP_MODERN) != 0)
		*ret_error = json_pack("{s:i, s:s, s:{s:o, s:O}}", "code", FURCA_MCP_UNSUPPORTED_VERSION, "message",
				       "Unsupported protocol version", "data", "supported", versions(), "requested",
				       version);
	return *ret_error ? -1 : 1;
}

json_t *furca_mcp_complete(json_t *result, int ttl_ms)
{
	json_t *members = json_loads("{" COMPLETE "}", 0, NULL);

	(void)json_object_update(result, members);
	json_decref(members);
	if (ttl_ms >= 0) {
		(void)json_object_set_new(result, "ttlMs", json_integer(ttl_ms));
		(void)json_object_set_new(result, "cacheScope", json_string("private"));
	}
	return result;
}

json_t *furca_mcp_discover(const struct furca_mcp *mcp)
{
	return json_pack("{s:o, s:{s:{s:b}}, s:s}", "supportedVersions", versions(), "capabilities", "tools",
			 "listChanged", mcp->servers != NULL, "instructions", furca_mcp_instructions);
}

/* ------------------------------------------------------------------------------------------------------------- listening */

struct furca_mcp_listener {
	struct furca_mcp_listener *next;
	char *id; /* as JSON: what other threads write must not touch jansson's counts */
	bool tools;
};

static void listener_free(struct furca_mcp_listener *listener)
{
	free(listener->id);
	free(listener);
}

/* One line for a listener: it ends with its number and `after`, and has the number before `between` too where that is not NULL. The lock is held. */
static void write_for(struct furca_mcp *mcp, const struct furca_mcp_listener *listener, const char *before,
		      const char *between, const char *after)
{
	FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;

	(void)furca_buf_printf(&line, "{\"jsonrpc\":\"2.0\",%s%s%s\"" META("subscriptionId") "\":%s%s", before,
			       between ? listener->id : "", between ? between : "", listener->id, after);
	furca_mcp_write_line(&line);
}

static struct furca_mcp_listener *listener_new(const struct furca_mcp *mcp, json_t *id, json_t *params)
{
	struct furca_mcp_listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return NULL;
	listener->id = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
	listener->tools = mcp->servers &&
			  json_is_true(json_object_get(json_object_get(params, "notifications"), "toolsListChanged"));
	if (!listener->id) {
		free(listener);
		return NULL;
	}
	return listener;
}

void furca_mcp_listen(struct furca_mcp *mcp, json_t *id, json_t *params)
{
	struct furca_mcp_listener *listener = NULL;
	unsigned n = 0;

	if (!json_is_object(json_object_get(params, "notifications"))) {
		furca_mcp_error(mcp, id, refuse("params.notifications must be an object"));
		return;
	}
	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_listener *at = mcp->listeners; at; at = at->next)
		n++;
	if (n < MAX_LISTENERS)
		listener = listener_new(mcp, id, params);
	if (listener) {
		listener->next = mcp->listeners;
		mcp->listeners = listener;
		write_for(mcp, listener,
			  "\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{", NULL,
			  listener->tools ? "},\"notifications\":{\"toolsListChanged\":true}}}"
					  : "},\"notifications\":{}}}");
	}
	(void)pthread_mutex_unlock(&mcp->lock);
	if (!listener)
		furca_mcp_error(mcp, id,
				json_pack("{s:i, s:s}", "code", FURCA_MCP_INVALID_REQUEST, "message",
					  "Too many subscriptions are open; cancel one"));
}

bool furca_mcp_unlisten(struct furca_mcp *mcp, json_t *id)
{
	FURCA_AUTO_FREE char *text = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
	struct furca_mcp_listener *found = NULL;

	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_listener **at = &mcp->listeners; text && *at && !found;)
		if (strcmp((*at)->id, text) == 0) {
			found = *at;
			*at = found->next;
		} else {
			at = &(*at)->next;
		}
	(void)pthread_mutex_unlock(&mcp->lock);
	if (found)
		listener_free(found);
	return found;
}

void furca_mcp_tell_listeners(struct furca_mcp *mcp)
{
	(void)pthread_mutex_lock(&mcp->lock);
	for (struct furca_mcp_listener *at = mcp->listeners; at; at = at->next)
		if (at->tools)
			write_for(mcp, at, "\"method\":\"notifications/tools/list_changed\",\"params\":{\"_meta\":{",
				  NULL, "}}}");
	(void)pthread_mutex_unlock(&mcp->lock);
}

void furca_mcp_end_listeners(struct furca_mcp *mcp)
{
	(void)pthread_mutex_lock(&mcp->lock);
	while (mcp->listeners) {
		struct furca_mcp_listener *listener = mcp->listeners;

		mcp->listeners = listener->next;
		write_for(mcp, listener, "\"id\":", ",\"result\":{\"resultType\":\"complete\",\"_meta\":{", "}}}");
		listener_free(listener);
	}
	(void)pthread_mutex_unlock(&mcp->lock);
}
