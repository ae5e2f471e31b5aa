#include "bridge/caps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/caps_private.h"
#include "bridge/fair.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

/* A client that is offered calls faster than it reads. */
struct slow {
	uint64_t client;
	struct furca_fair fair;
	unsigned memories; /* of calls that wait */
};

struct call {
	uint64_t id, client, owner;
	uint32_t msgid;
	bool write, objects, takes_frames;
	struct furca_fd memory;		 /* with `waiting`, where arrays are in it */
	struct slow *slow;		 /* with `waiting` */
	struct furca_fair_item *waiting; /* not yet sent */
	char name[64];			 /* for messages; cut */
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

static void slow_free(struct furca_caps *caps, struct slow *slow)
{
	if (!slow)
		return;
	(void)furca_idmap_remove(&caps->slow, slow->client);
	furca_fair_done(&slow->fair);
	free(slow);
}

void furca_caps_free(struct furca_caps *caps)
{
	size_t at = 0;
	uint64_t key;
	struct call *call;
	struct slow *slow;

	if (!caps)
		return;
	while ((call = furca_idmap_next(&caps->by_id, &at, &key))) {
		furca_fd_done(&call->memory);
		free(call);
	}
	for (at = 0; (slow = furca_idmap_next(&caps->slow, &at, &key)); at = 0)
		slow_free(caps, slow);
	furca_idmap_done(&caps->slow);
	furca_idmap_done(&caps->by_id);
	furca_idmap_done(&caps->by_msgid);
	furca_caps_objects_done(caps);
	furca_handles_done(&caps->handles);
	furca_offers_done(&caps->offers);
	free(caps);
}

int furca_caps_register(struct furca_caps *caps, uint64_t client, struct furca_view args, struct furca_err *err)
{
	return furca_offers_register(&caps->offers, client, args, err);
}

void furca_caps_describe(const struct furca_caps *caps, struct furca_buf *out)
{
	furca_offers_describe(&caps->offers, out);
}

/* --------------------------------------------------------------------------------------------------------------- calls */

/* Answers a call with an error of ours. `type` is a name that code knows, so that `except` by name works. */
static void fail(struct furca_caps *caps, uint64_t id, const char *type, const char *message, const char *suggestion)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 3);
	furca_pack_entry(&pk, "type", type);
	furca_pack_entry(&pk, "message", message);
	furca_pack_entry(&pk, "suggestion", suggestion);
	caps->events->done(caps->user, id, (struct furca_view){0}, furca_buf_view(&buf), NULL);
}

static void refuse_unknown(struct furca_caps *caps, uint64_t id, struct furca_view name)
{
	const char *nearest = furca_offers_nearest(&caps->offers, name);
	bool plain = furca_view_size(name) <= FURCA_MAX_CAPABILITY_NAME && furca_view_is_utf8(name);
	int n = plain ? (int)furca_view_size(name) : 0;
	char message[FURCA_MAX_CAPABILITY_NAME + 64], suggestion[FURCA_MAX_CAPABILITY_NAME + 128];

	(void)snprintf(message, sizeof(message), "no capability named '%.*s'", n, (const char *)name.at);
	if (nearest)
		(void)snprintf(suggestion, sizeof(suggestion), "The nearest is '%s'; dir(capabilities) lists all.",
			       nearest);
	else
		(void)snprintf(suggestion, sizeof(suggestion),
			       "No client offers any capability now; run without them.");
	fail(caps, id, "AttributeError", message, suggestion);
}

static void refuse_write(struct furca_caps *caps, uint64_t id, const char *name)
{
	char message[FURCA_MAX_CAPABILITY_NAME + 128];

	(void)snprintf(message, sizeof(message),
		       "capability '%s' may change things outside (effect 'write') and this call is read_only", name);
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
	bool write, objects;
	struct furca_view name;		   /* as the client knows it */
	const struct furca_handle *handle; /* or NULL */
};

static struct furca_way way_of(struct furca_caps *caps, const struct call *call)
{
	return (struct furca_way){.of_clients = &caps->handles,
				  .of_code = &caps->objects,
				  .client = call->client,
				  .owner = call->owner,
				  .write = call->write,
				  .objects = call->objects};
}

static int pack_call(struct furca_caps *caps, struct furca_buf *buf, const struct call *call,
		     const struct target *target, const struct furca_caps_request *from)
{
	struct furca_way way = way_of(caps, call);
	bool frames = false;
	msgpack_packer pk;

	furca_packer(&pk, buf);
	msgpack_pack_map(&pk, 5U + (target->handle != NULL) + from->read);
	furca_pack_text(&pk, "execute_msgid");
	if (target->client == from->client)
		msgpack_pack_uint64(&pk, from->execute_msgid);
	else
		msgpack_pack_nil(&pk);
	furca_pack_text(&pk, "call_id");
	msgpack_pack_uint64(&pk, call->id);
	furca_pack_text(&pk, "name");
	furca_pack_bytes(&pk, target->name.at, furca_view_size(target->name));
	if (target->handle) {
		furca_pack_text(&pk, "handle");
		msgpack_pack_str_with_body(&pk, target->handle->token, target->handle->size);
	}
	if (from->read) {
		furca_pack_text(&pk, "read");
		msgpack_pack_true(&pk);
	}
	furca_pack_text(&pk, "args");
	int r = furca_handles_to_client(&way, from->args, buf, &frames);
	furca_pack_text(&pk, "kwargs");
	if (r == 0)
		r = furca_handles_to_client(&way, from->kwargs, buf, &frames);
	return r == 0 && frames != (from->memory.n >= 0) ? -EBADMSG : r;
}

/* Takes the call out of both tables. */
static void forget(struct furca_caps *caps, struct call *call)
{
	(void)furca_idmap_remove(&caps->by_id, call->id);
	(void)furca_idmap_remove(&caps->by_msgid, call->msgid);
	if (call->waiting) {
		call->slow->memories -= call->memory.n >= 0;
		furca_fair_remove(&call->slow->fair, call->waiting);
	}
	furca_fd_done(&call->memory);
	free(call);
}

static struct slow *slow_of(struct furca_caps *caps, uint64_t client)
{
	struct slow *slow = furca_idmap_get(&caps->slow, client);

	if (slow)
		return slow;
	slow = calloc(1, sizeof(*slow));
	if (slow && furca_idmap_add(&caps->slow, client, slow) < 0) {
		free(slow);
		return NULL;
	}
	if (slow)
		slow->client = client;
	return slow;
}

/* Sends a call now or puts it in its execute's queue. 0 or -errno. */
static int send_in_turn(struct furca_caps *caps, struct call *call, uint64_t key, struct furca_buf *params,
			struct furca_fd *memory)
{
	struct slow *slow = furca_idmap_get(&caps->slow, call->client);
	int r = -EAGAIN;

	if (!slow || !furca_fair_first(&slow->fair))
		r = caps->events->send(caps->user, call->client, call->msgid, furca_buf_view(params), memory);
	if (r != -EAGAIN)
		return r;
	slow = slow_of(caps, call->client);
	if (!slow)
		return -ENOMEM;
	if (memory->n >= 0 && slow->memories >= FURCA_MAX_MEMORIES)
		return -ENOBUFS;
	call->waiting = furca_fair_add(&slow->fair, key, params, call, &r);
	call->slow = slow;
	if (!call->waiting)
		return r;
	slow->memories += memory->n >= 0;
	call->memory = furca_fd_take(memory);
	return 0;
}

/* Opens a call and sends it. 0 or -errno, then nothing is left of it. */
static int open_call(struct furca_caps *caps, const struct target *target, struct furca_caps_request *from)
{
	/* Executes are told apart well enough by this: two that fall together share a queue. */
	uint64_t key = from->client << 32 ^ from->execute_msgid;
	FURCA_AUTO_BUF struct furca_buf params = FURCA_BUF_INIT;
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	*call = (struct call){.id = from->id,
			      .client = target->client,
			      .owner = from->owner,
			      .msgid = free_msgid(caps),
			      .write = target->write,
			      .objects = target->objects,
			      .takes_frames = from->takes_frames,
			      .memory = FURCA_FD_NONE};
	(void)snprintf(call->name, sizeof(call->name), "%.*s", (int)furca_view_size(target->name),
		       (const char *)target->name.at);
	int r = furca_idmap_add(&caps->by_id, from->id, call);
	if (r < 0) {
		free(call);
		return r;
	}
	r = furca_idmap_add(&caps->by_msgid, call->msgid, call);
	if (r == 0)
		r = pack_call(caps, &params, call, target, from);
	if (r == 0)
		r = send_in_turn(caps, call, key, &params, &from->memory);
	if (r < 0) {
		furca_handles_unmake(&caps->objects, furca_buf_view(&params));
		forget(caps, call);
	}
	return r;
}

/* Who serves that name. False where nobody does; then the call has been refused. */
static bool find_target(struct furca_caps *caps, uint64_t id, struct furca_view name, bool read, struct target *ret)
{
	const struct furca_offer_entry *entry;

	if (furca_handles_is_name(name)) {
		ret->handle = furca_handles_find(&caps->handles, name, &ret->name);
		if (!ret->handle)
			fail(caps, id, "ReferenceError",
			     "that handle does not live any more: it was given back, or its client has gone",
			     "Get the object again from the capability that gave it.");
		else if (read && !ret->handle->objects)
			fail(caps, id, "TypeError", "the client that has this object does not tell its attributes",
			     "Call one of its methods.");
		else {
			ret->client = ret->handle->client;
			ret->write = ret->handle->write;
			ret->objects = ret->handle->objects;
			return true;
		}
		return false;
	}
	if (read) {
		fail(caps, id, "TypeError", "a capability has no attributes that could be read",
		     "Call it, or read an attribute of a handle.");
		return false;
	}
	entry = furca_offers_find(&caps->offers, name);
	if (!entry) {
		refuse_unknown(caps, id, name);
		return false;
	}
	ret->client = entry->client;
	ret->write = entry->write;
	ret->objects = entry->objects;
	ret->name = name;
	return true;
}

/* A call that could not be sent. */
static void fail_unsent(struct furca_caps *caps, uint64_t id, int r)
{
	if (r == -ENOBUFS)
		fail(caps, id, "BlockingIOError",
		     "the client that offers this capability does not read its calls fast enough",
		     "Make fewer calls at once, or smaller ones, and try again.");
	else if (r == -EOPNOTSUPP)
		fail(caps, id, "TypeError", "the client that offers this capability does not take arrays and frames",
		     "Send plain values, for example .tolist() or .to_dict('list').");
	else if (r == -EDOM)
		fail(caps, id, "TypeError", "the client that offers this capability takes plain values, no objects",
		     "Send plain values: numbers, text, bytes, lists and maps.");
	else if (r == -EPROTO)
		fail(caps, id, "TypeError", "an object's name is no short text without dots",
		     "Call from code that furca runs.");
	else if (r == -EBADMSG)
		fail(caps, id, "TypeError", "arrays and their memory did not come together",
		     "Call from code that furca runs.");
	else if (r == -ENOMEM || r == -E2BIG)
		fail(caps, id, "MemoryError", "the call is too large to be sent", "Send less.");
	else
		fail(caps, id, "ConnectionError", "the client that offers this capability has gone",
		     "Run the code again when it has connected and registered again.");
}

void furca_caps_call(struct furca_caps *caps, struct furca_caps_request *from)
{
	struct target target = {0};
	char text[FURCA_MAX_CAPABILITY_NAME + 1];

	caps->stats.calls++;
	if (!find_target(caps, from->id, from->name, from->read, &target)) {
		furca_caps_let_go(caps, from);
		return;
	}
	if (from->read_only && target.write) {
		(void)snprintf(text, sizeof(text), "%.*s",
			       (int)FURCA_MIN(furca_view_size(target.name), sizeof(text) - 1),
			       (const char *)target.name.at);
		furca_caps_let_go(caps, from);
		refuse_write(caps, from->id, text);
		return;
	}
	int r = open_call(caps, &target, from);
	if (r < 0) {
		furca_caps_let_go(caps, from);
		fail_unsent(caps, from->id, r);
	}
}

void furca_caps_writable(struct furca_caps *caps, uint64_t client)
{
	struct slow *slow = furca_idmap_get(&caps->slow, client);
	struct furca_fair_item *item;

	while (slow && (item = furca_fair_first(&slow->fair))) {
		struct call *call = item->owner;
		bool had = call->memory.n >= 0;
		int r = caps->events->send(caps->user, client, call->msgid, furca_buf_view(&item->bytes),
					   &call->memory);

		if (r == -EAGAIN)
			return;
		slow->memories -= had;
		call->waiting = NULL;
		furca_fair_remove(&slow->fair, item);
		if (r < 0) {
			uint64_t id = call->id;

			forget(caps, call);
			fail_unsent(caps, id, r);
			slow = furca_idmap_get(&caps->slow, client); /* the answer may have led anywhere */
		}
	}
	slow_free(caps, slow);
}

/* The value of a call that is not open any more, its handles renamed for code. */
static void pass_value(struct furca_caps *caps, const struct call *call, struct furca_view value,
		       struct furca_fd *memory)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_way way = way_of(caps, call);
	uint64_t id = call->id;
	bool frames = false;

	if (furca_value_has_ext(value, FURCA_EXT_FRAME) && !call->takes_frames) {
		fail(caps, id, "TypeError",
		     "the capability answered with an array or a frame, which cannot be had here",
		     "Ask for plain values, or call it from Python.");
		return;
	}
	int r = furca_handles_to_code(&way, value, &out, &frames);
	if (r == 0 && frames != (memory && memory->n >= 0))
		fail(caps, id, "TypeError", "the capability's client sent an array without its memory",
		     "Mend the client.");
	else if (r == 0)
		caps->events->done(caps->user, id, furca_buf_view(&out), (struct furca_view){0}, memory);
	else if (r == -EPROTO)
		fail(caps, id, "TypeError", "the capability's client gave a handle that is no short text without dots",
		     "Mend the client.");
	else
		fail(caps, id, "MemoryError", "too many handles are held, or memory is out",
		     "Let go of handles that are not needed.");
}

void furca_caps_answer(struct furca_caps *caps, uint64_t client, uint64_t msgid, const struct furca_value *error,
		       const struct furca_value *result, struct furca_fd *memory)
{
	struct call *call = furca_idmap_get(&caps->by_msgid, msgid);
	struct furca_view type, message;

	if (!call || call->client != client) {
		caps->stats.stale_answers++;
		return;
	}
	struct call was = *call;
	uint64_t id = was.id;
	forget(caps, call);
	if (error->kind == FURCA_NIL) {
		pass_value(caps, &was, result->raw, memory);
	} else if (error->kind == FURCA_STR) {
		/* Some msgpack-rpc libraries answer with plain text. */
		FURCA_AUTO_FREE char *text = furca_view_dup(error->bytes);

		fail(caps, id, "RuntimeError", text ? text : "the capability failed", "See the message.");
	} else if (furca_map_text(error->raw, "type", &type) && furca_map_text(error->raw, "message", &message)) {
		caps->events->done(caps->user, id, (struct furca_view){0}, error->raw, NULL);
	} else {
		fail(caps, id, "RuntimeError",
		     "the capability failed, and its client's error is no map {type, message}",
		     "Mend the client: answer with error {type, message, traceback?}.");
	}
}

/* Tells a client that its handle, taken out already, is not held any more. */
static void tell_release(struct furca_caps *caps, const struct furca_handle *handle)
{
	FURCA_AUTO_BUF struct furca_buf params = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &params);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "handle");
	msgpack_pack_str_with_body(&pk, handle->token, handle->size);
	if (!params.failed)
		caps->events->release(caps->user, handle->client, furca_buf_view(&params));
}

void furca_caps_release(struct furca_caps *caps, struct furca_view name)
{
	FURCA_AUTO_FREE struct furca_handle *handle = furca_handles_take(&caps->handles, name);

	if (handle)
		tell_release(caps, handle);
}

void furca_caps_owner_gone(struct furca_caps *caps, uint64_t owner)
{
	struct furca_handle *first = furca_handles_take_owned(&caps->handles, owner);

	for (const struct furca_handle *handle = first; handle; handle = handle->next)
		tell_release(caps, handle);
	furca_handles_free_list(first);
	furca_handles_free_list(furca_handles_take_owned(&caps->objects, owner));
}

uint64_t furca_caps_serves(const struct furca_caps *caps, uint64_t id)
{
	const struct call *call = furca_idmap_get(&caps->by_id, id);

	return call ? call->client : 0;
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
	slow_free(caps, furca_idmap_get(&caps->slow, client));
	for (size_t i = 0; i < n; i++) {
		char message[160];

		(void)snprintf(
			message, sizeof(message),
			"the client that offers '%s' disconnected during the call; whether it was done is unknown",
			gone[i]->name);
		uint64_t id = gone[i]->id;
		furca_fd_done(&gone[i]->memory);
		free(gone[i]);
		fail(caps, id, "ConnectionError", message,
		     "Find out whether it was done; run the code again when the client is back.");
	}
}

void furca_caps_client_gone(struct furca_caps *caps, uint64_t client)
{
	furca_offers_client_gone(&caps->offers, client);
	furca_handles_free_list(furca_handles_take_client(&caps->handles, client));
	furca_caps_objects_client_gone(caps, client);
	fail_calls_of(caps, client);
}

void furca_caps_stats(const struct furca_caps *caps, struct furca_caps_stats *ret)
{
	const struct slow *slow;
	uint64_t key;
	size_t at = 0;

	*ret = caps->stats;
	ret->names = caps->offers.count;
	ret->open = caps->by_id.count;
	ret->handles = caps->handles.count;
	while ((slow = furca_idmap_next(&caps->slow, &at, &key)))
		ret->waiting += slow->fair.bytes;
}
