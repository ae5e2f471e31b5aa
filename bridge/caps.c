#include "bridge/caps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/handles.h"
#include "bridge/idmap.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/nearest.h"

#include "base/banned.h"

struct name {
	uint64_t client;
	bool write;
	char *text;
	uint8_t *packed; /* its map in describe's answer */
	size_t packed_size;
};

struct call {
	uint64_t id, client;
	uint32_t msgid;
	bool write;
	char name[64]; /* for messages; cut */
};

struct furca_caps {
	const struct furca_caps_events *events;
	void *user;
	struct name *names; /* sorted by text */
	size_t count;
	struct furca_handles handles;
	struct furca_idmap by_id, by_msgid; /* the same calls, by the engine's number and by ours */
	uint32_t last_msgid;
	struct furca_caps_stats stats;
};

struct furca_caps *furca_caps_new(const struct furca_caps_events *events, void *user)
{
	struct furca_caps *caps = calloc(1, sizeof(*caps));

	if (caps) {
		caps->events = events;
		caps->user = user;
	}
	return caps;
}

static void name_done(struct name *name)
{
	free(name->text);
	free(name->packed);
	*name = (struct name){0};
}

void furca_caps_free(struct furca_caps *caps)
{
	size_t at = 0;
	uint64_t key;
	struct call *call;

	if (!caps)
		return;
	while ((call = furca_idmap_next(&caps->by_id, &at, &key)))
		free(call);
	furca_idmap_done(&caps->by_id);
	furca_idmap_done(&caps->by_msgid);
	furca_handles_done(&caps->handles);
	for (size_t i = 0; i < caps->count; i++)
		name_done(&caps->names[i]);
	free(caps->names);
	free(caps);
}

/* --------------------------------------------------------------------------------------------------------------- names */

static int compare(const char *text, size_t n, const char *name)
{
	size_t m = strlen(name);
	int r = memcmp(text, name, FURCA_MIN(n, m));

	return r ? r : (n > m) - (n < m);
}

/* The index of the name, or where it would stand (*found false). */
static size_t search(const struct furca_caps *caps, const char *text, size_t n, bool *found)
{
	size_t low = 0, high = caps->count;

	*found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int r = compare(text, n, caps->names[middle].text);

		if (r == 0) {
			*found = true;
			return middle;
		}
		if (r < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Dotted words: letters, digits, _ and - ; no empty one. */
static bool name_is_valid(struct furca_view view)
{
	bool begins = true;

	if (furca_view_size(view) == 0 || furca_view_size(view) > FURCA_MAX_CAPABILITY_NAME)
		return false;
	for (const uint8_t *p = view.at; p < view.end; p++) {
		bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_' || *p == '-' ||
			    *p >= 0x80;

		if (!word && (*p != '.' || begins))
			return false;
		begins = *p == '.';
	}
	return !begins && furca_view_is_utf8(view);
}

static int unknown_key(struct furca_view key, const char *where, const char *const *known, size_t n, struct furca_err *err)
{
	size_t size = FURCA_MIN(furca_view_size(key), (size_t)64);
	const char *nearest = furca_nearest((const char *)key.at, furca_view_size(key), known, n);
	char suggestion[128];

	(void)snprintf(suggestion, sizeof(suggestion), "Did you mean '%s'?", nearest);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, suggestion, "Unknown argument '%.*s' of %s", (int)size, (const char *)key.at,
				  where);
}

/* Each key of `map` is one of `known`. 0 or -errno. */
int furca_keys_check(struct furca_view map, const char *where, const char *const *known, size_t n, struct furca_err *err)
{
	struct furca_value m, key, value;

	if (furca_value_enter(&map, &m) < 0 || m.kind != FURCA_MAP)
		return furca_fail(err, FURCA_E_VALIDATION, 0, "%s must be a map", where);
	for (uint32_t i = 0; i < m.count; i++) {
		bool ok = false;

		if (furca_value_next(&map, &key) < 0 || furca_value_next(&map, &value) < 0 || key.kind != FURCA_STR)
			return furca_fail(err, FURCA_E_VALIDATION, 0, "The keys of %s must be text", where);
		for (size_t k = 0; k < n && !ok; k++)
			ok = furca_view_is(key.bytes, known[k]);
		if (!ok)
			return unknown_key(key.bytes, where, known, n, err);
	}
	return 0;
}

/* Packs what describe says of a name: the client's own doc and params, its effect as understood. */
static int pack_name(struct name *name, struct furca_view doc, const struct furca_value *params)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	const char *effect = name->write ? "write" : "read";
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 2 + (doc.at != NULL) + (params != NULL));
	msgpack_pack_str_with_body(&pk, "name", 4);
	msgpack_pack_str_with_body(&pk, name->text, strlen(name->text));
	msgpack_pack_str_with_body(&pk, "effect", 6);
	msgpack_pack_str_with_body(&pk, effect, strlen(effect));
	if (doc.at) {
		msgpack_pack_str_with_body(&pk, "doc", 3);
		msgpack_pack_str_with_body(&pk, doc.at, furca_view_size(doc));
	}
	if (params) {
		msgpack_pack_str_with_body(&pk, "params", 6);
		(void)furca_buf_append(&buf, params->raw.at, furca_view_size(params->raw));
	}
	if (buf.failed)
		return buf.failed;
	struct furca_buf taken = furca_buf_take(&buf);
	name->packed = taken.data;
	name->packed_size = taken.len;
	return 0;
}

/* One entry of register_capabilities. */
static int parse_name(struct furca_view map, struct name *ret, struct furca_err *err)
{
	static const char *const known[] = {"name", "effect", "doc", "params"};
	struct furca_view text, doc = {0};
	struct furca_value effect, params, d;
	bool has_params;
	int r = furca_keys_check(map, "a capability", known, FURCA_COUNT(known), err);

	if (r < 0)
		return r;
	if (!furca_map_text(map, "name", &text) || !name_is_valid(text))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Give a name such as 'contacts.lookup'.",
					  "A capability's name must be words with dots between them, at most %d bytes",
					  FURCA_MAX_CAPABILITY_NAME);
	/* Not told means write: what may change the world is refused in a read-only call until it is said to be harmless. */
	ret->write = true;
	if (furca_map_get(map, "effect", &effect) && effect.kind != FURCA_NIL) {
		ret->write = effect.kind != FURCA_STR || !furca_view_is(effect.bytes, "read");
		if (ret->write && (effect.kind != FURCA_STR || !furca_view_is(effect.bytes, "write")))
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Use effect 'read' or 'write'.",
						  "The effect of capability '%.*s' must be 'read' or 'write'",
						  (int)FURCA_MIN(furca_view_size(text), (size_t)64), (const char *)text.at);
	}
	if (furca_map_get(map, "doc", &d) && d.kind != FURCA_NIL) {
		if (d.kind != FURCA_STR || !furca_view_is_utf8(d.bytes) || furca_view_size(d.bytes) > FURCA_MAX_CAPABILITY_DOC)
			return furca_fail(err, FURCA_E_VALIDATION, 0, "A capability's doc must be text of at most %d bytes",
					  FURCA_MAX_CAPABILITY_DOC);
		doc = d.bytes;
	}
	has_params = furca_map_get(map, "params", &params) && params.kind != FURCA_NIL;
	if (has_params && furca_view_size(params.raw) > FURCA_MAX_CAPABILITY_DOC)
		return furca_fail(err, FURCA_E_LIMIT, 0, "A capability's params may have %d bytes", FURCA_MAX_CAPABILITY_DOC);
	ret->text = furca_view_dup(text);
	if (!ret->text || pack_name(ret, doc, has_params ? &params : NULL) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "Cannot keep a capability's name");
	return 0;
}

/* Puts names in, each in the place of its predecessor where there is one. The array has room. */
static void merge(struct furca_caps *caps, struct name *fresh, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool found;
		size_t at = search(caps, fresh[i].text, strlen(fresh[i].text), &found);

		if (found) {
			name_done(&caps->names[at]);
		} else {
			memmove(caps->names + at + 1, caps->names + at, (caps->count - at) * sizeof(*caps->names));
			caps->count++;
		}
		caps->names[at] = fresh[i];
		fresh[i] = (struct name){0};
	}
}

int furca_caps_register(struct furca_caps *caps, uint64_t client, struct furca_view args, struct furca_err *err)
{
	static const char *const known[] = {"capabilities"};
	struct furca_value list, entry;
	struct furca_view inside;
	int r = furca_keys_check(args, "register_capabilities", known, FURCA_COUNT(known), err);

	if (r < 0)
		return r;
	if (!furca_map_get(args, "capabilities", &list) || list.kind != FURCA_ARRAY)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Give capabilities: [{name, effect, doc?, params?}].",
					  "register_capabilities needs a list 'capabilities'");
	if (caps->count + list.count > FURCA_MAX_CAPABILITIES)
		return furca_fail(err, FURCA_E_LIMIT, 0, "At most %d capabilities can be registered", FURCA_MAX_CAPABILITIES);
	struct name *names = realloc(caps->names, (caps->count + list.count + 1) * sizeof(*names));
	FURCA_AUTO_FREE struct name *fresh = calloc((size_t)list.count + 1, sizeof(*fresh));
	if (names)
		caps->names = names;
	if (!names || !fresh)
		return furca_fail(err, FURCA_E_MEMORY, 0, "Cannot keep %u capabilities", list.count);
	inside = furca_value_inside(&list);
	for (uint32_t i = 0; i < list.count && r == 0; i++) {
		fresh[i].client = client;
		r = furca_value_next(&inside, &entry) < 0 ? -EPROTO : parse_name(entry.raw, &fresh[i], err);
	}
	if (r == 0)
		merge(caps, fresh, list.count);
	else
		for (uint32_t i = 0; i < list.count; i++)
			name_done(&fresh[i]);
	return r < 0 ? r : (int)list.count;
}

void furca_caps_describe(const struct furca_caps *caps, struct furca_buf *out)
{
	msgpack_packer pk;

	msgpack_packer_init(&pk, out, furca_buf_msgpack_write);
	msgpack_pack_array(&pk, caps->count);
	for (size_t i = 0; i < caps->count; i++)
		(void)furca_buf_append(out, caps->names[i].packed, caps->names[i].packed_size);
}

/* --------------------------------------------------------------------------------------------------------------- calls */

static void pack_text(msgpack_packer *pk, const char *key, const char *text)
{
	msgpack_pack_str_with_body(pk, key, strlen(key));
	msgpack_pack_str_with_body(pk, text, strlen(text));
}

/* Answers a call with an error of ours. `type` is a name that code knows, so that `except` by name works. */
static void fail(struct furca_caps *caps, uint64_t id, const char *type, const char *message, const char *suggestion)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	msgpack_packer_init(&pk, &buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 3);
	pack_text(&pk, "type", type);
	pack_text(&pk, "message", message);
	pack_text(&pk, "suggestion", suggestion);
	caps->events->done(caps->user, id, (struct furca_view){0}, (struct furca_view){buf.data, buf.data + buf.len});
}

static void refuse_unknown(struct furca_caps *caps, uint64_t id, struct furca_view name)
{
	FURCA_AUTO_FREE const char **words = calloc(caps->count + 1, sizeof(*words));
	const char *nearest = NULL;
	bool plain = furca_view_size(name) <= FURCA_MAX_CAPABILITY_NAME && furca_view_is_utf8(name);
	int n = plain ? (int)furca_view_size(name) : 0;
	char message[FURCA_MAX_CAPABILITY_NAME + 64], suggestion[FURCA_MAX_CAPABILITY_NAME + 128];

	for (size_t i = 0; words && i < caps->count; i++)
		words[i] = caps->names[i].text;
	if (words && caps->count)
		nearest = furca_nearest((const char *)name.at, furca_view_size(name), words, caps->count);
	(void)snprintf(message, sizeof(message), "no capability named '%.*s'", n, (const char *)name.at);
	if (nearest)
		(void)snprintf(suggestion, sizeof(suggestion), "The nearest is '%s'; dir(capabilities) lists all.", nearest);
	else
		(void)snprintf(suggestion, sizeof(suggestion), "No client offers any capability now; run without them.");
	fail(caps, id, "AttributeError", message, suggestion);
}

static void refuse_write(struct furca_caps *caps, uint64_t id, const char *name)
{
	char message[FURCA_MAX_CAPABILITY_NAME + 128];

	(void)snprintf(message, sizeof(message), "capability '%s' may change things outside (effect 'write') and this call is read_only",
		       name);
	fail(caps, id, "PermissionError", message,
	     "Run this code with state_mode='stateful', or use capabilities whose effect is 'read'.");
}

/* A number that no open call has. */
static uint32_t free_msgid(struct furca_caps *caps)
{
	do
		caps->last_msgid++;
	while (caps->last_msgid == 0 || furca_idmap_get(&caps->by_msgid, caps->last_msgid));
	return caps->last_msgid;
}

/* Where a call goes: to a registered name, or to a method of a handle. */
struct target {
	uint64_t client;
	bool write;
	struct furca_view name;		   /* as the client knows it */
	const struct furca_handle *handle; /* or NULL */
};

static int pack_call(const struct furca_caps *caps, struct furca_buf *buf, const struct call *call, const struct target *target,
		     const uint64_t *execute_msgid, struct furca_view args, struct furca_view kwargs)
{
	msgpack_packer pk;

	msgpack_packer_init(&pk, buf, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, target->handle ? 6 : 5);
	msgpack_pack_str_with_body(&pk, "execute_msgid", 13);
	if (execute_msgid)
		msgpack_pack_uint64(&pk, *execute_msgid);
	else
		msgpack_pack_nil(&pk);
	msgpack_pack_str_with_body(&pk, "call_id", 7);
	msgpack_pack_uint64(&pk, call->id);
	msgpack_pack_str_with_body(&pk, "name", 4);
	msgpack_pack_str_with_body(&pk, target->name.at, furca_view_size(target->name));
	if (target->handle) {
		msgpack_pack_str_with_body(&pk, "handle", 6);
		msgpack_pack_str_with_body(&pk, target->handle->token, target->handle->size);
	}
	msgpack_pack_str_with_body(&pk, "args", 4);
	(void)furca_handles_to_client(&caps->handles, call->client, args, buf);
	msgpack_pack_str_with_body(&pk, "kwargs", 6);
	return furca_handles_to_client(&caps->handles, call->client, kwargs, buf);
}

/* Takes the call out of both tables. */
static void forget(struct furca_caps *caps, struct call *call)
{
	(void)furca_idmap_remove(&caps->by_id, call->id);
	(void)furca_idmap_remove(&caps->by_msgid, call->msgid);
	free(call);
}

/* Opens a call and sends it. 0 or -errno, then nothing is left of it. */
static int open_call(struct furca_caps *caps, uint64_t id, const struct target *target, const uint64_t *execute_msgid, struct furca_view args,
		     struct furca_view kwargs)
{
	FURCA_AUTO_BUF struct furca_buf params = FURCA_BUF_INIT;
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	*call = (struct call){.id = id, .client = target->client, .msgid = free_msgid(caps), .write = target->write};
	(void)snprintf(call->name, sizeof(call->name), "%.*s", (int)furca_view_size(target->name), (const char *)target->name.at);
	int r = furca_idmap_add(&caps->by_id, id, call);
	if (r < 0) {
		free(call);
		return r;
	}
	r = furca_idmap_add(&caps->by_msgid, call->msgid, call);
	if (r == 0)
		r = pack_call(caps, &params, call, target, execute_msgid, args, kwargs);
	if (r == 0)
		r = caps->events->send(caps->user, call->client, call->msgid, (struct furca_view){params.data, params.data + params.len});
	if (r < 0)
		forget(caps, call);
	return r;
}

/* Who serves that name. False where nobody does; then the call has been refused. */
static bool find_target(struct furca_caps *caps, uint64_t id, struct furca_view name, struct target *ret)
{
	bool found;
	size_t at;

	if (furca_handles_is_name(name)) {
		ret->handle = furca_handles_find(&caps->handles, name, &ret->name);
		if (!ret->handle)
			fail(caps, id, "ReferenceError", "that handle does not live any more: it was given back, or its client has gone",
			     "Get the object again from the capability that gave it.");
		else {
			ret->client = ret->handle->client;
			ret->write = ret->handle->write;
		}
		return ret->handle != NULL;
	}
	at = search(caps, (const char *)name.at, furca_view_size(name), &found);
	if (!found) {
		refuse_unknown(caps, id, name);
		return false;
	}
	ret->client = caps->names[at].client;
	ret->write = caps->names[at].write;
	ret->name = name;
	return true;
}

/* A call that could not be sent. */
static void fail_unsent(struct furca_caps *caps, uint64_t id, int r)
{
	if (r == -ENOBUFS)
		fail(caps, id, "BlockingIOError", "the client that offers this capability does not read its calls fast enough",
		     "Make fewer calls at once, or smaller ones, and try again.");
	else if (r == -ENOMEM || r == -E2BIG)
		fail(caps, id, "MemoryError", "the call is too large to be sent", "Send less.");
	else
		fail(caps, id, "ConnectionError", "the client that offers this capability has gone",
		     "Run the code again when it has connected and registered again.");
}

void furca_caps_call(struct furca_caps *caps, uint64_t id, uint64_t execute_client, uint64_t execute_msgid, bool read_only,
		     struct furca_view name, struct furca_view args, struct furca_view kwargs)
{
	struct target target = {0};
	char text[FURCA_MAX_CAPABILITY_NAME + 1];

	caps->stats.calls++;
	if (!find_target(caps, id, name, &target)) {
		caps->stats.refused++;
		return;
	}
	if (read_only && target.write) {
		caps->stats.refused++;
		(void)snprintf(text, sizeof(text), "%.*s", (int)FURCA_MIN(furca_view_size(target.name), sizeof(text) - 1),
			       (const char *)target.name.at);
		refuse_write(caps, id, text);
		return;
	}
	int r = open_call(caps, id, &target, target.client == execute_client ? &execute_msgid : NULL, args, kwargs);
	if (r < 0) {
		caps->stats.refused++;
		fail_unsent(caps, id, r);
	}
}

/* The value of a call, its handles renamed for code. */
static void pass_value(struct furca_caps *caps, uint64_t id, uint64_t client, bool write, struct furca_view value)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	int r = furca_handles_to_code(&caps->handles, client, write, value, &out);

	if (r == 0)
		caps->events->done(caps->user, id, (struct furca_view){out.data, out.data + out.len}, (struct furca_view){0});
	else if (r == -EPROTO)
		fail(caps, id, "TypeError", "the capability's client gave a handle that is no short text without dots", "Mend the client.");
	else
		fail(caps, id, "MemoryError", "too many handles are held, or memory is out", "Let go of handles that are not needed.");
}

void furca_caps_answer(struct furca_caps *caps, uint64_t client, uint64_t msgid, const struct furca_value *error,
		       const struct furca_value *result)
{
	struct call *call = furca_idmap_get(&caps->by_msgid, msgid);
	struct furca_view type, message;

	if (!call || call->client != client) {
		caps->stats.stale_answers++;
		return;
	}
	uint64_t id = call->id;
	bool write = call->write;
	forget(caps, call);
	if (error->kind == FURCA_NIL) {
		pass_value(caps, id, client, write, result->raw);
	} else if (error->kind == FURCA_STR) {
		/* Some msgpack-rpc libraries answer with plain text. */
		FURCA_AUTO_FREE char *text = furca_view_dup(error->bytes);

		fail(caps, id, "RuntimeError", text ? text : "the capability failed", "See the message.");
	} else if (furca_map_text(error->raw, "type", &type) && furca_map_text(error->raw, "message", &message)) {
		caps->events->done(caps->user, id, (struct furca_view){0}, error->raw);
	} else {
		fail(caps, id, "RuntimeError", "the capability failed, and its client's error is no map {type, message}",
		     "Mend the client: answer with error {type, message, traceback?}.");
	}
}

void furca_caps_release(struct furca_caps *caps, struct furca_view name)
{
	FURCA_AUTO_FREE struct furca_handle *handle = furca_handles_take(&caps->handles, name);
	FURCA_AUTO_BUF struct furca_buf params = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (!handle)
		return;
	msgpack_packer_init(&pk, &params, furca_buf_msgpack_write);
	msgpack_pack_map(&pk, 1);
	msgpack_pack_str_with_body(&pk, "handle", 6);
	msgpack_pack_str_with_body(&pk, handle->token, handle->size);
	if (!params.failed)
		caps->events->release(caps->user, handle->client, (struct furca_view){params.data, params.data + params.len});
}

void furca_caps_drop(struct furca_caps *caps, uint64_t id)
{
	struct call *call = furca_idmap_get(&caps->by_id, id);

	if (call)
		forget(caps, call);
}

/* The next open call of that client, or NULL. */
static struct call *call_of(const struct furca_caps *caps, uint64_t client, size_t *at)
{
	struct call *call;
	uint64_t key;

	while ((call = furca_idmap_next(&caps->by_id, at, &key)))
		if (call->client == client)
			return call;
	return NULL;
}

/* The numbers of that client's open calls, taken out of the tables first: an answer may lead to new calls. */
static void fail_calls_of(struct furca_caps *caps, uint64_t client)
{
	size_t at = 0, n = 0;
	struct call *call;
	FURCA_AUTO_FREE struct call **gone = calloc(caps->by_id.count + 1, sizeof(struct call *));

	while (gone && (call = call_of(caps, client, &at)))
		gone[n++] = call;
	for (size_t i = 0; i < n; i++) {
		(void)furca_idmap_remove(&caps->by_id, gone[i]->id);
		(void)furca_idmap_remove(&caps->by_msgid, gone[i]->msgid);
	}
	for (size_t i = 0; i < n; i++) {
		char message[160];

		(void)snprintf(message, sizeof(message), "the client that offers '%s' disconnected during the call; whether it was done is unknown",
			       gone[i]->name);
		uint64_t id = gone[i]->id;
		free(gone[i]);
		fail(caps, id, "ConnectionError", message, "Find out whether it was done; run the code again when the client is back.");
	}
}

void furca_caps_client_gone(struct furca_caps *caps, uint64_t client)
{
	size_t kept = 0;

	for (size_t i = 0; i < caps->count; i++) {
		if (caps->names[i].client == client)
			name_done(&caps->names[i]);
		else
			caps->names[kept++] = caps->names[i];
	}
	caps->count = kept;
	furca_handles_client_gone(&caps->handles, client);
	fail_calls_of(caps, client);
}

void furca_caps_stats(const struct furca_caps *caps, struct furca_caps_stats *ret)
{
	*ret = caps->stats;
	ret->names = caps->count;
	ret->open = caps->by_id.count;
	ret->handles = caps->handles.count;
}
