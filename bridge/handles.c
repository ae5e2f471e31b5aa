#include "bridge/handles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

#define CLIENTS '@' /* begins the name of a client's object */
#define CODES '#'   /* and that of code's */

/* FNV-1a. Names are random, so nobody can choose them to collide. */
static uint64_t hash(struct furca_view name)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (const uint8_t *p = name.at; p < name.end; p++)
		h = (h ^ *p) * 0x100000001b3ULL;
	return h;
}

static struct furca_view name_of(const struct furca_handle *handle)
{
	return furca_text_view(handle->name);
}

void furca_handles_done(struct furca_handles *handles)
{
	struct furca_handle *handle;
	uint64_t key;
	size_t at = 0;

	while ((handle = furca_idmap_next(&handles->by_hash, &at, &key)))
		furca_handles_free_list(handle);
	furca_idmap_done(&handles->by_hash);
	furca_idmap_done(&handles->by_owner);
	handles->count = 0;
}

/* Counts one more or less; what cannot be counted for want of memory is given back later, by its client's end. */
static void count_owner(struct furca_handles *handles, uint64_t owner, intptr_t by)
{
	intptr_t n = (intptr_t)furca_idmap_remove(&handles->by_owner, owner) + by;

	if (n > 0)
		(void)furca_idmap_add(&handles->by_owner, owner, (void *)n);
}

bool furca_handles_is_name(struct furca_view name)
{
	return furca_view_size(name) > 0 && name.at[0] == CLIENTS;
}

const struct furca_handle *furca_handles_get(const struct furca_handles *handles, struct furca_view name)
{
	const struct furca_handle *handle;

	for (handle = furca_idmap_get(&handles->by_hash, hash(name)); handle; handle = handle->next)
		if (furca_view_is(name, handle->name))
			return handle;
	return NULL;
}

const struct furca_handle *furca_handles_find(const struct furca_handles *handles, struct furca_view name,
					      struct furca_view *ret_method)
{
	const uint8_t *dot = memchr(name.at, '.', furca_view_size(name));

	if (!dot || dot + 1 == name.end)
		return NULL;
	*ret_method = (struct furca_view){dot + 1, name.end};
	return furca_handles_get(handles, (struct furca_view){name.at, dot});
}

static int link_handle(struct furca_handles *handles, struct furca_handle *handle)
{
	uint64_t key = hash(name_of(handle));
	struct furca_handle *first = furca_idmap_remove(&handles->by_hash, key);

	handle->next = first;
	int r = furca_idmap_add(&handles->by_hash, key, handle);
	if (r == 0) {
		handles->count++;
		count_owner(handles, handle->owner, 1);
	} else if (first)
		(void)furca_idmap_add(&handles->by_hash, key, first); /* its place is free */
	return r;
}

struct furca_handle *furca_handles_take(struct furca_handles *handles, struct furca_view name)
{
	const struct furca_handle *wanted = furca_handles_get(handles, name);

	if (!wanted)
		return NULL;
	struct furca_handle *first = furca_idmap_remove(&handles->by_hash, hash(name)), **at = &first;
	while (*at != wanted)
		at = &(*at)->next;
	struct furca_handle *handle = *at;
	*at = handle->next;
	handle->next = NULL;
	if (first)
		(void)furca_idmap_add(&handles->by_hash, hash(name), first);
	handles->count--;
	count_owner(handles, handle->owner, -1);
	return handle;
}

struct furca_handle *furca_handles_take_owned(struct furca_handles *handles, uint64_t owner)
{
	intptr_t n = (intptr_t)furca_idmap_get(&handles->by_owner, owner);
	struct furca_handle *taken = NULL, *handle;
	uint64_t key;

	/* Taking one out may move others to slots that were passed, so it goes round until all were found. */
	for (intptr_t before = n + 1; n > 0 && n < before;) {
		size_t at = 0;

		before = n;
		while (n > 0 && (handle = furca_idmap_next(&handles->by_hash, &at, &key))) {
			while (handle && handle->owner != owner)
				handle = handle->next;
			if (!handle)
				continue;
			handle = furca_handles_take(handles, name_of(handle));
			handle->next = taken;
			taken = handle;
			n--;
			at--; /* another may have come to this slot, or be behind it */
		}
	}
	return taken;
}

struct furca_handle *furca_handles_take_client(struct furca_handles *handles, uint64_t client)
{
	struct furca_handles kept = {0};
	struct furca_handle *handle, *taken = NULL;
	uint64_t key;
	size_t at = 0;

	while ((handle = furca_idmap_next(&handles->by_hash, &at, &key)))
		while (handle) {
			struct furca_handle *next = handle->next;

			if (handle->client == client || link_handle(&kept, handle) < 0) {
				handle->next = taken;
				taken = handle;
			}
			handle = next;
		}
	furca_idmap_done(&handles->by_hash);
	furca_idmap_done(&handles->by_owner);
	*handles = kept;
	return taken;
}

void furca_handles_free_list(struct furca_handle *first)
{
	while (first) {
		struct furca_handle *next = first->next;

		free(first);
		first = next;
	}
}

/* ------------------------------------------------------------------------------------------------------------- rewriting */

static bool token_is_valid(struct furca_view token)
{
	size_t n = furca_view_size(token);

	return n > 0 && n <= FURCA_MAX_HANDLE && !memchr(token.at, '.', n) && furca_view_is_utf8(token);
}

/* Makes a handle in that table and links it. 0, -EPROTO, -E2BIG or -ENOMEM. */
static int make(struct furca_handles *handles, const struct furca_way *way, char kind, struct furca_view token,
		const struct furca_handle **ret)
{
	struct furca_handle *handle;
	uint64_t number;

	if (!token_is_valid(token))
		return -EPROTO;
	if (handles->count >= FURCA_MAX_HANDLES)
		return -E2BIG;
	handle = calloc(1, sizeof(*handle) + furca_view_size(token));
	if (!handle || getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
		free(handle);
		return -ENOMEM;
	}
	handle->client = way->client;
	handle->owner = way->owner;
	handle->write = way->write;
	handle->objects = way->objects;
	handle->size = furca_view_size(token);
	memcpy(handle->token, token.at, handle->size);
	(void)snprintf(handle->name, sizeof(handle->name), "%c%016llx%s", kind, (unsigned long long)number,
		       way->objects ? "a" : "");
	int r = link_handle(handles, handle);
	if (r < 0)
		free(handle);
	else
		*ret = handle;
	return r;
}

static int pack_ext(struct furca_buf *out, const void *data, size_t n)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_ext(&pk, n, FURCA_EXT_HANDLE);
	msgpack_pack_ext_body(&pk, data, n);
	return out->failed;
}

static bool is_handle(const struct furca_value *v)
{
	return v->kind == FURCA_EXT && v->ext == FURCA_EXT_HANDLE;
}

void furca_handles_unmake(struct furca_handles *made, struct furca_view packed)
{
	struct furca_value v;

	while (packed.at < packed.end && furca_value_enter(&packed, &v) == 0)
		if (is_handle(&v))
			free(furca_handles_take(made, v.bytes));
}

/* A handle that crosses: to its own side it goes as that side knows it, to the other one by a new name. */
typedef int cross_fn(const struct furca_way *way, const struct furca_value *v, struct furca_buf *out);

static int cross_to_code(const struct furca_way *way, const struct furca_value *v, struct furca_buf *out)
{
	const struct furca_handle *handle = furca_handles_get(way->of_code, v->bytes);

	if (handle && handle->client == way->client && handle->owner == way->owner)
		return pack_ext(out, handle->token, handle->size);
	int r = make(way->of_clients, way, CLIENTS, v->bytes, &handle);
	return r < 0 ? r : pack_ext(out, handle->name, strlen(handle->name));
}

static int cross_to_client(const struct furca_way *way, const struct furca_value *v, struct furca_buf *out)
{
	const struct furca_handle *handle = furca_handles_get(way->of_clients, v->bytes);

	if (handle && handle->client == way->client)
		return pack_ext(out, handle->token, handle->size);
	if (furca_handles_is_name(v->bytes))
		return furca_buf_append(out, v->raw.at, furca_view_size(v->raw));
	if (!way->objects)
		return -EDOM;
	int r = make(way->of_code, way, CODES, v->bytes, &handle);
	return r < 0 ? r : pack_ext(out, handle->name, strlen(handle->name));
}

/* Containers have no length in bytes, so a value can be copied piece by piece with some pieces changed. */
static int copy(const struct furca_way *way, cross_fn *cross, struct furca_handles *made, struct furca_view value,
		struct furca_buf *out, bool *frames)
{
	size_t mark = out->len;
	struct furca_value v;
	int r = out->failed;

	while (r == 0 && value.at < value.end) {
		r = furca_value_enter(&value, &v);
		if (r < 0)
			break;
		*frames = *frames || (v.kind == FURCA_EXT && v.ext == FURCA_EXT_FRAME);
		r = is_handle(&v) ? cross(way, &v, out) : furca_buf_append(out, v.raw.at, furca_view_size(v.raw));
	}
	if (r < 0) {
		furca_handles_unmake(made, (struct furca_view){out->data + mark, out->data + out->len});
		out->len = mark;
	}
	return r;
}

int furca_handles_to_code(const struct furca_way *way, struct furca_view value, struct furca_buf *out, bool *frames)
{
	return copy(way, cross_to_code, way->of_clients, value, out, frames);
}

int furca_handles_to_client(const struct furca_way *way, struct furca_view value, struct furca_buf *out, bool *frames)
{
	return copy(way, cross_to_client, way->of_code, value, out, frames);
}

void furca_handles_each_object(struct furca_view value, void (*fn)(void *data, struct furca_view token), void *data)
{
	struct furca_value v;

	while (value.at < value.end && furca_value_enter(&value, &v) == 0)
		if (is_handle(&v) && !furca_handles_is_name(v.bytes))
			fn(data, v.bytes);
}
