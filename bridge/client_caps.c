/* Capabilities that a client offers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "bridge/client.h"

#include "bridge/wire/pack.h"
#include "base/banned.h"

/* What a callback has answered so far. */
struct furca_answer {
	struct furca_buf value, error;
	uint64_t msgid;
	bool later;
};

/* What this thread serves. Its executes say so, and the engine knows exactly which of them would wait for itself. */
struct serving {
	const struct furca_client *client; /* NULL: nothing */
	uint64_t call_id;
	uint64_t started; /* the last execute that the callback started; 0: none */
	bool exact;	  /* whoever waits for the callback is known to the engine by call_id */
};

static _Thread_local struct serving serving;

bool furca_client_within(struct furca_client *client, uint64_t *ret)
{
	*ret = serving.call_id;
	if (serving.client)
		return serving.client == client && serving.exact;
	/* A callback may have handed its work to this thread. */
	(void)pthread_mutex_lock(&client->lock);
	bool none = client->n_serving == 0;
	(void)pthread_mutex_unlock(&client->lock);
	*ret = 0;
	return none;
}

void furca_client_started(const struct furca_client *client, uint64_t msgid)
{
	if (serving.client == client)
		serving.started = msgid;
}

/*
 * Runs the callback. One that runs while another one waits on this thread holds that one up too: the engine can know it only where the
 * call comes from the very execute that the other one started.
 */
static void serve(struct furca_client *client, const struct furca_offer *offer,
		  const struct furca_capability_call *call)
{
	struct serving outer = serving;

	(void)pthread_mutex_lock(&client->lock);
	client->n_serving++;
	(void)pthread_mutex_unlock(&client->lock);
	serving = (struct serving){.client = client, .call_id = call->call_id};
	serving.exact = call->call_id != 0 && (!outer.client || (outer.client == client && outer.exact && call->ours &&
								 call->execute_id == outer.started));
	offer->fn(offer->user, call);
	serving = outer;
	(void)pthread_mutex_lock(&client->lock);
	client->n_serving--;
	(void)pthread_mutex_unlock(&client->lock);
}

uint64_t furca_client_defer(const struct furca_capability_call *call)
{
	call->answer->later = true;
	return call->answer->msgid;
}

void furca_answer_value(const struct furca_capability_call *call, const void *packed, size_t size)
{
	struct furca_view view = {packed, (const uint8_t *)packed + size};

	furca_buf_clear(&call->answer->value);
	if (furca_value_check(view, 128, SIZE_MAX) < 0)
		furca_answer_error(call, "TypeError",
				   "the capability's client answered with bytes that are no packed value");
	else
		(void)furca_buf_append(&call->answer->value, packed, size);
}

void furca_answer_error(const struct furca_capability_call *call, const char *type, const char *message)
{
	msgpack_packer pk;

	furca_buf_clear(&call->answer->error);
	furca_packer(&pk, &call->answer->error);
	msgpack_pack_map(&pk, 2);
	furca_pack_entry(&pk, "type", type);
	furca_pack_entry(&pk, "message", message);
}

void furca_answer_attribute(const struct furca_capability_call *call, const void *packed, size_t size)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, packed ? "value" : "method");
	if (packed)
		(void)furca_buf_append(&buf, packed, size);
	else
		msgpack_pack_true(&pk);
	furca_answer_value(call, buf.data, buf.len);
}

void furca_take_objects(struct furca_client *client, bool take)
{
	client->objects = take;
}

int furca_object_call(const struct furca_capability_call *call, struct furca_client *client, const char *handle,
		      size_t handle_size, const char *name, bool read, const void *args, size_t args_size,
		      const void *kwargs, size_t kwargs_size, void **ret, size_t *ret_size, struct furca_error *err)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 4U + (args != NULL) + (kwargs != NULL));
	furca_pack_text(&pk, "handle");
	furca_pack_bytes(&pk, handle, handle_size);
	furca_pack_entry(&pk, "name", name);
	furca_pack_text(&pk, "read");
	furca_pack_bool(&pk, read);
	furca_pack_text(&pk, "within");
	msgpack_pack_uint64(&pk, call->call_id);
	if (args) {
		furca_pack_text(&pk, "args");
		(void)furca_buf_append(&buf, args, args_size);
	}
	if (kwargs) {
		furca_pack_text(&pk, "kwargs");
		(void)furca_buf_append(&buf, kwargs, kwargs_size);
	}
	if (buf.failed)
		return furca_client_fail(err, -ENOMEM, NULL, "memory is out");
	return furca_call(client, "call_object", buf.data, buf.len, FURCA_FOREVER, ret, ret_size, err);
}

static struct furca_offer find_offer(struct furca_client *client, struct furca_view name)
{
	struct furca_offer found = {0};

	(void)pthread_mutex_lock(&client->lock);
	for (size_t i = 0; i < client->n_offers; i++)
		if (furca_view_is(name, client->offers[i].name))
			found = client->offers[i];
	(void)pthread_mutex_unlock(&client->lock);
	return found;
}

static void run(struct furca_client *client, struct furca_due *due, struct furca_answer *answer)
{
	struct furca_view params = furca_buf_view(&due->params), name, handle;
	struct furca_value args, kwargs;
	struct furca_capability_call call = {.answer = answer};

	if (!furca_map_text(params, "name", &name) || !furca_map_get(params, "args", &args) ||
	    !furca_map_get(params, "kwargs", &kwargs)) {
		furca_answer_error(&call, "TypeError", "the engine's call lacks name, args or kwargs");
		return;
	}
	struct furca_offer offer = {0};
	FURCA_AUTO_FREE char *method = NULL;
	if (furca_map_text(params, "handle", &handle)) {
		(void)pthread_mutex_lock(&client->lock);
		offer = (struct furca_offer){method = furca_view_dup(name), client->on_handle, client->handle_user};
		(void)pthread_mutex_unlock(&client->lock);
		call.handle = (const char *)handle.at;
		call.handle_size = furca_view_size(handle);
	} else {
		offer = find_offer(client, name);
	}
	if (!offer.fn || !offer.name) {
		furca_answer_error(&call, "AttributeError", "this client offers no such capability any more");
		return;
	}
	call.name = offer.name;
	call.args = args.raw.at;
	call.args_size = furca_view_size(args.raw);
	call.kwargs = kwargs.raw.at;
	call.kwargs_size = furca_view_size(kwargs.raw);
	call.ours = furca_map_uint(params, "execute_msgid", &call.execute_id);
	(void)furca_map_uint(params, "call_id", &call.call_id);
	(void)furca_map_bool(params, "read", &call.read);
	serve(client, &offer, &call);
}

void furca_client_run(struct furca_client *client, struct furca_due *due)
{
	struct furca_answer answer = {.msgid = due->msgid};

	run(client, due, &answer);
	struct furca_view error = furca_buf_view(&answer.error), value = furca_buf_view(&answer.value);
	if (furca_view_size(error) > 0)
		value.at = value.end;
	if (!answer.later)
		furca_client_respond(client, due->msgid, error, value);
	furca_buf_done(&answer.value);
	furca_buf_done(&answer.error);
	furca_buf_done(&due->params);
	free(due);
}

void furca_on_handle_call(struct furca_client *client, furca_capability_fn *fn, void *user)
{
	(void)pthread_mutex_lock(&client->lock);
	client->on_handle = fn;
	client->handle_user = user;
	(void)pthread_mutex_unlock(&client->lock);
}

/* Keeps the callback; a name registered again gets the new one. */
static int keep_offer(struct furca_client *client, const char *name, furca_capability_fn *fn, void *user)
{
	int r = 0;

	(void)pthread_mutex_lock(&client->lock);
	for (size_t i = 0; i < client->n_offers; i++)
		if (strcmp(client->offers[i].name, name) == 0) {
			client->offers[i].fn = fn;
			client->offers[i].user = user;
			goto out;
		}
	struct furca_offer *offers = realloc(client->offers, (client->n_offers + 1) * sizeof(*offers));
	char *copy = strdup(name);
	if (offers)
		client->offers = offers;
	if (offers && copy)
		offers[client->n_offers++] = (struct furca_offer){copy, fn, user};
	else {
		free(copy);
		r = -ENOMEM;
	}
out:
	(void)pthread_mutex_unlock(&client->lock);
	return r;
}

/* The engine's answer to register_capabilities. */
static int read_registered(struct furca_view answer, struct furca_error *err)
{
	struct furca_view message, suggestion = {0};
	uint64_t n;

	if (furca_map_uint(answer, "registered", &n))
		return 0;
	if (!furca_map_text(answer, "error", &message))
		return furca_client_fail(err, -EPROTO, NULL,
					 "the engine's answer to register_capabilities is not understood");
	(void)furca_client_fail(err, -EINVAL, NULL, "%.*s", (int)FURCA_MIN(furca_view_size(message), (size_t)500),
				(const char *)message.at);
	if (err && furca_map_text(answer, "suggestion", &suggestion))
		(void)snprintf(err->suggestion, sizeof(err->suggestion), "%.*s",
			       (int)FURCA_MIN(furca_view_size(suggestion), (size_t)500), (const char *)suggestion.at);
	return -EINVAL;
}

int furca_capability_register(struct furca_client *client, const char *name, const char *effect, const char *doc,
			      const void *params, size_t params_size, furca_capability_fn *fn, void *user,
			      struct furca_error *err)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	FURCA_AUTO_FREE void *answer = NULL;
	size_t size;
	msgpack_packer pk;

	/* First the callback: a call may come before the answer does. */
	if (!fn || keep_offer(client, name, fn, user) < 0)
		return furca_client_fail(err, fn ? -ENOMEM : -EINVAL, NULL, "cannot keep the capability's callback");
	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "capabilities");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_map(&pk, 3 + (doc != NULL) + (params != NULL));
	furca_pack_entry(&pk, "name", name);
	furca_pack_text(&pk, "objects");
	furca_pack_bool(&pk, client->objects);
	furca_pack_entry(&pk, "effect", effect ? effect : "write");
	if (doc)
		furca_pack_entry(&pk, "doc", doc);
	if (params) {
		furca_pack_text(&pk, "params");
		(void)furca_buf_append(&buf, params, params_size);
	}
	if (buf.failed)
		return furca_client_fail(err, -ENOMEM, NULL, "memory is out");
	int r = furca_call(client, "register_capabilities", buf.data, buf.len, FURCA_FOREVER, &answer, &size, err);
	return r < 0 ? r : read_registered((struct furca_view){answer, (uint8_t *)answer + size}, err);
}
