#include "bridge/mcp_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "bridge/client.h"
#include "bridge/json_read.h"

#include "base/banned.h"

static const char form[] =
	"Write {\"mcpServers\": {\"NAME\": {\"command\": \"PROGRAM\", \"args\": [\"…\"], \"env\": {\"KEY\": \"VALUE\"}}}}.";

/* A NULL-terminated copy of the strings, behind `first`. NULL where one is no text or memory is out. */
static char **texts(const char *first, json_t *list)
{
	size_t n = json_array_size(list), at = 0;
	char **out = calloc(n + 2, sizeof(*out));
	bool ok = out != NULL && (!list || json_is_array(list));

	if (ok && first)
		ok = (out[at++] = strdup(first)) != NULL;
	for (size_t i = 0; ok && i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i));

		ok = text && (out[at++] = strdup(text)) != NULL;
	}
	if (ok)
		return out;
	for (char **p = out; p && *p; p++)
		free(*p);
	free(out);
	return NULL;
}

/* This process's environment with the map's entries instead of its own. */
static char **environment(json_t *map)
{
	json_t *list = json_array(), *value;
	const char *key;
	char **out;

	for (char **e = environ; *e; e++) {
		FURCA_AUTO_FREE char *name = strndup(*e, strcspn(*e, "="));

		if (name && !json_object_get(map, name))
			(void)json_array_append_new(list, json_string(*e));
	}
	json_object_foreach (map, key, value) {
		const char *text = json_string_value(value);
		FURCA_AUTO_FREE char *entry = NULL;

		if (!text || asprintf(&entry, "%s=%s", key, text) < 0) {
			entry = NULL;
			json_decref(list);
			return NULL;
		}
		(void)json_array_append_new(list, json_string(entry));
	}
	out = texts(NULL, list);
	json_decref(list);
	return out;
}

static int read_server(const char *name, json_t *entry, struct furca_mcp_peer *ret, struct furca_error *err)
{
	const char *command = json_string_value(json_object_get(entry, "command")),
		   *cwd = json_string_value(json_object_get(entry, "cwd"));
	json_t *env = json_object_get(entry, "env");

	if (!command && json_object_get(entry, "url"))
		return furca_client_fail(
			err, -EINVAL,
			"Give the command of a server that speaks on standard input and output; a bridge such as mcp-proxy has one.",
			"the MCP server '%s' is reached by a URL, which is not supported", name);
	if (!command || (env && !json_is_object(env)))
		return furca_client_fail(err, -EINVAL, form,
					 "the MCP server '%s' has no command, or an env that is no object of texts",
					 name);
	*ret = (struct furca_mcp_peer){.name = strdup(name),
				       .cwd = cwd ? strdup(cwd) : NULL,
				       .argv = texts(command, json_object_get(entry, "args")),
				       .env = environment(env),
				       .proc = FURCA_PROC_NONE,
				       .in = FURCA_FD_NONE,
				       .out = FURCA_FD_NONE};
	if (ret->name && ret->argv && ret->env && (!cwd || ret->cwd))
		return 0;
	furca_mcp_peer_done(ret);
	return furca_client_fail(err, -EINVAL, form,
				 "the args of the MCP server '%s' must be a list of texts, its env a map of texts",
				 name);
}

int furca_mcp_config_read(const char *path, struct furca_mcp_peer *peers, size_t *ret_n, struct furca_error *err)
{
	char why[256];
	json_t *root = furca_json_file(path, why, sizeof(why)), *entry;
	json_t *servers = json_object_get(root, "mcpServers");
	const char *name;
	size_t n = 0;
	int r = 0;

	if (!root)
		return furca_client_fail(err, -EINVAL, form, "cannot read '%s'%s", path, why);
	if (!json_is_object(servers))
		r = furca_client_fail(err, -EINVAL, form, "'%s' has no object \"mcpServers\"", path);
	json_object_foreach (servers, name, entry) {
		if (r < 0 || json_is_true(json_object_get(entry, "disabled")))
			continue;
		if (n == FURCA_MCP_MAX_SERVERS)
			r = furca_client_fail(err, -E2BIG, NULL, "'%s' has more than %d MCP servers", path,
					      FURCA_MCP_MAX_SERVERS);
		else
			r = read_server(name, entry, &peers[n], err);
		n += r == 0;
	}
	json_decref(root);
	for (size_t i = 0; r < 0 && i < n; i++)
		furca_mcp_peer_done(&peers[i]);
	*ret_n = r < 0 ? 0 : n;
	return r;
}
