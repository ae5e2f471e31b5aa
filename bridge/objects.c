/* Objects of code that clients hold: their calls on the way to the code, and what comes of them on the way back. */
#include <errno.h>
#include <stdlib.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/caps_private.h"
#include "bridge/wire/advice.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

struct let_go {
	struct furca_caps *caps;
	uint64_t owner;
};

static void let_go_object(void *data, struct furca_view token)
{
	const struct let_go *go = data;

	go->caps->events->let_go(go->caps->user, go->owner, token);
}

void furca_caps_let_go(struct furca_caps *caps, const struct furca_caps_request *from)
{
	struct let_go go = {caps, from->owner};

	caps->stats.refused++;
	furca_handles_each_object(from->args, let_go_object, &go);
	furca_handles_each_object(from->kwargs, let_go_object, &go);
}

void furca_caps_objects_done(struct furca_caps *caps)
{
	struct furca_object_waits *waits;
	uint64_t key;
	size_t at = 0;

	while ((waits = furca_idmap_next(&caps->object_calls, &at, &key)))
		free(waits);
	furca_idmap_done(&caps->object_calls);
	furca_handles_done(&caps->objects);
}

void furca_caps_objects_client_gone(struct furca_caps *caps, uint64_t client)
{
	struct furca_handle *first = furca_handles_take_client(&caps->objects, client);

	for (const struct furca_handle *object = first; object; object = object->next)
		caps->events->let_go(caps->user, object->owner, furca_handle_token(object));
	furca_handles_free_list(first);
	/* Its calls end as they would; the answers find no client. */
}

/* The object of that client that `args` name. */
static const struct furca_handle *object_of(struct furca_caps *caps, uint64_t client, struct furca_view args,
					    struct furca_err *err)
{
	const struct furca_handle *object;
	struct furca_view name;

	if (!furca_map_text(args, "handle", &name)) {
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Give handle as it came from code.",
					 "The argument 'handle' must be the text of a handle that code gave.");
		return NULL;
	}
	object = furca_handles_get(&caps->objects, name);
	if (object && object->client == client)
		return object;
	(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Get the object again from the code that gave it.",
				 "That object does not live any more: it was given back, or its session has ended.");
	return NULL;
}

/* Reads the arguments of call_object, args and kwargs with their handles as code knows them. 0 or -errno. */
static int read_call(struct furca_caps *caps, const struct furca_handle *object, struct furca_view args,
		     struct furca_object_call *ret, struct furca_buf *packed, struct furca_err *err)
{
	static const uint8_t no_args[] = {0x90}, no_kwargs[] = {0x80};
	struct furca_value list = {.kind = FURCA_ARRAY, .raw = {no_args, no_args + 1}},
			   map = {.kind = FURCA_MAP, .raw = {no_kwargs, no_kwargs + 1}};
	struct furca_way way = {.of_clients = &caps->handles,
				.of_code = &caps->objects,
				.client = object->client,
				.owner = object->owner,
				.write = object->write,
				.objects = object->objects};
	bool frames = false;

	ret->owner = object->owner;
	ret->object = furca_handle_token(object);
	ret->name = furca_text_view("");
	(void)furca_map_text(args, "name", &ret->name);
	(void)furca_map_bool(args, "read", &ret->read);
	(void)furca_map_uint(args, "within", &ret->within);
	if (furca_map_get(args, "args", &list) && list.kind != FURCA_ARRAY)
		return furca_refuse_value(err, "args", "a list");
	if (furca_map_get(args, "kwargs", &map) && map.kind != FURCA_MAP)
		return furca_refuse_value(err, "kwargs", "a map");
	int r = furca_handles_to_code(&way, list.raw, packed, &frames);
	size_t n = packed->len;
	if (r == 0)
		r = furca_handles_to_code(&way, map.raw, packed, &frames);
	if (r == 0 && frames)
		r = -EPROTO;
	if (r < 0) {
		furca_handles_unmake(&caps->handles, furca_buf_view(packed));
		return furca_fail(
			err, r == -EPROTO ? FURCA_E_VALIDATION : FURCA_E_LIMIT, 0,
			"The arguments hold arrays, too many handles, or such as are no short text without dots.");
	}
	ret->args = (struct furca_view){packed->data, packed->data + n};
	ret->kwargs = (struct furca_view){packed->data + n, packed->data + packed->len};
	return 0;
}

int furca_caps_object_call(struct furca_caps *caps, uint64_t client, uint64_t msgid, struct furca_view args,
			   struct furca_err *err)
{
	static const char *const known[] = {"handle", "name", "args", "kwargs", "read", "within"};
	FURCA_AUTO_BUF struct furca_buf packed = FURCA_BUF_INIT;
	FURCA_AUTO_FREE struct furca_object_waits *waits = calloc(1, sizeof(*waits));
	struct furca_object_call call = {0};
	uint64_t id = 0;
	int r = furca_keys_check(args, "call_object", known, FURCA_COUNT(known), err);
	const struct furca_handle *object = r < 0 ? NULL : object_of(caps, client, args, err);

	if (!object)
		return r < 0 ? r : -EINVAL;
	r = read_call(caps, object, args, &call, &packed, err);
	if (r < 0)
		return r;
	if (!waits)
		return furca_fail(err, FURCA_E_MEMORY, 0, "No memory for the call.");
	*waits = (struct furca_object_waits){.client = client, .owner = call.owner, .msgid = msgid};
	r = caps->events->object_call(caps->user, &call, &id);
	if (r == 0)
		r = furca_idmap_add(&caps->object_calls, id, waits);
	if (r == 0) {
		FURCA_TAKE(waits);
		return 0;
	}
	furca_handles_unmake(&caps->handles, furca_buf_view(&packed));
	if (r == -ENOENT)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Call it while a capability serves that code, or give the object back to code that uses it.",
			"No code of that object's session waits for a capability now, and so none can run the object.");
	return furca_fail(err, FURCA_E_LIMIT, 0, "Too many calls of that session's objects are under way.");
}

/* {ok: false} with what the code raised, or with the end of the code. */
static void pack_failure(struct furca_buf *out, struct furca_view error)
{
	static const char *const keys[] = {"type", "message", "traceback"};
	struct furca_view text[FURCA_COUNT(keys)] = {furca_text_view("ReferenceError"),
						     furca_text_view("the code that has the object ended meanwhile"),
						     furca_text_view("")};
	msgpack_packer pk;

	for (size_t i = 0; i < FURCA_COUNT(keys); i++)
		(void)furca_map_text(error, keys[i], &text[i]);
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 3 + FURCA_COUNT(keys));
	furca_pack_text(&pk, "ok");
	msgpack_pack_false(&pk);
	furca_pack_entry(&pk, "error_type", "exception");
	furca_pack_text(&pk, "error");
	furca_pack_bytes(&pk, text[1].at, furca_view_size(text[1]));
	for (size_t i = 0; i < FURCA_COUNT(keys); i++) {
		furca_pack_text(&pk, keys[i]);
		furca_pack_bytes(&pk, text[i].at, furca_view_size(text[i]));
	}
}

void furca_caps_object_done(struct furca_caps *caps, uint64_t id, struct furca_view value, struct furca_view error)
{
	FURCA_AUTO_FREE struct furca_object_waits *waits = furca_idmap_remove(&caps->object_calls, id);
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	bool frames = false;
	msgpack_packer pk;

	if (!waits)
		return;
	if (furca_view_size(value) > 0) {
		struct furca_way way = {.of_clients = &caps->handles,
					.of_code = &caps->objects,
					.client = waits->client,
					.owner = waits->owner,
					.write = true,
					.objects = true};

		furca_packer(&pk, &out);
		msgpack_pack_map(&pk, 2);
		furca_pack_text(&pk, "ok");
		msgpack_pack_true(&pk);
		furca_pack_text(&pk, "value");
		if (furca_handles_to_client(&way, value, &out, &frames) < 0)
			furca_buf_clear(&out);
	}
	if (out.len == 0)
		pack_failure(&out, error);
	caps->events->answer(caps->user, waits->client, waits->msgid, furca_buf_view(&out));
}

int furca_caps_object_release(struct furca_caps *caps, uint64_t client, struct furca_view args, struct furca_err *err)
{
	static const char *const known[] = {"handle"};
	int r = furca_keys_check(args, "release_object", known, FURCA_COUNT(known), err);
	const struct furca_handle *object = r < 0 ? NULL : object_of(caps, client, args, err);
	struct furca_view name;

	if (!object)
		return r < 0 ? r : -EINVAL;
	(void)furca_map_text(args, "handle", &name);
	FURCA_AUTO_FREE struct furca_handle *taken = furca_handles_take(&caps->objects, name);
	caps->events->let_go(caps->user, taken->owner, furca_handle_token(taken));
	return 0;
}
