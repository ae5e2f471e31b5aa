#include "bridge/handles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/memory.h"

#include "base/banned.h"

#define EXT_HANDLE 2
#define NAME_SIZE 17 /* "@" and 16 digits */

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
	return (struct furca_view){(const uint8_t *)handle->name, (const uint8_t *)handle->name + NAME_SIZE};
}

void furca_handles_done(struct furca_handles *handles)
{
	struct furca_handle *handle;
	uint64_t key;
	size_t at = 0;

	while ((handle = furca_idmap_next(&handles->by_hash, &at, &key)))
		while (handle) {
			struct furca_handle *next = handle->next;

			free(handle);
			handle = next;
		}
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
	return furca_view_size(name) > 0 && name.at[0] == '@';
}

static const struct furca_handle *lookup(const struct furca_handles *handles, struct furca_view name)
{
	const struct furca_handle *handle;

	if (furca_view_size(name) != NAME_SIZE)
		return NULL;
	for (handle = furca_idmap_get(&handles->by_hash, hash(name)); handle; handle = handle->next)
		if (memcmp(handle->name, name.at, NAME_SIZE) == 0)
			return handle;
	return NULL;
}

const struct furca_handle *furca_handles_find(const struct furca_handles *handles, struct furca_view name, struct furca_view *ret_method)
{
	const uint8_t *dot = memchr(name.at, '.', furca_view_size(name));

	if (!dot || dot + 1 == name.end)
		return NULL;
	*ret_method = (struct furca_view){dot + 1, name.end};
	return lookup(handles, (struct furca_view){name.at, dot});
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
	const struct furca_handle *wanted = lookup(handles, name);

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

void furca_handles_client_gone(struct furca_handles *handles, uint64_t client)
{
	struct furca_handles kept = {0};
	struct furca_handle *handle;
	uint64_t key;
	size_t at = 0;

	while ((handle = furca_idmap_next(&handles->by_hash, &at, &key)))
		while (handle) {
			struct furca_handle *next = handle->next;

			if (handle->client == client || link_handle(&kept, handle) < 0)
				free(handle);
			handle = next;
		}
	furca_idmap_done(&handles->by_hash);
	furca_idmap_done(&handles->by_owner);
	*handles = kept;
}

/* ------------------------------------------------------------------------------------------------------------- rewriting */

static bool token_is_valid(struct furca_view token)
{
	size_t n = furca_view_size(token);

	return n > 0 && n <= FURCA_MAX_HANDLE && !memchr(token.at, '.', n) && furca_view_is_utf8(token);
}

/* Makes a handle and links it. */
static int make(struct furca_handles *handles, uint64_t client, uint64_t owner, bool write, struct furca_view token, const struct furca_handle **ret)
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
	handle->client = client;
	handle->owner = owner;
	handle->write = write;
	handle->size = furca_view_size(token);
	memcpy(handle->token, token.at, handle->size);
	(void)snprintf(handle->name, sizeof(handle->name), "@%016llx", (unsigned long long)number);
	int r = link_handle(handles, handle);
	if (r < 0)
		free(handle);
	else
		*ret = handle;
	return r;
}

static void pack_ext(struct furca_buf *out, const void *data, size_t n)
{
	msgpack_packer pk;

	msgpack_packer_init(&pk, out, furca_buf_msgpack_write);
	msgpack_pack_ext(&pk, n, EXT_HANDLE);
	msgpack_pack_ext_body(&pk, data, n);
}

/* Takes back what was made for a value that failed on the way: the names stand in what was written. */
static void unmake(struct furca_handles *handles, const struct furca_buf *out, size_t mark)
{
	struct furca_view view = {out->data + mark, out->data + out->len};
	struct furca_value v;

	while (view.at < view.end && furca_value_enter(&view, &v) == 0)
		if (v.kind == FURCA_EXT && v.ext == EXT_HANDLE)
			free(furca_handles_take(handles, v.bytes));
}

int furca_handles_to_code(struct furca_handles *handles, uint64_t client, uint64_t owner, bool write, struct furca_view value,
			  struct furca_buf *out, bool *ret_frames)
{
	size_t mark = out->len;
	const struct furca_handle *handle = NULL;
	struct furca_value v;
	int r = 0;

	*ret_frames = false;
	/* Containers have no length in bytes, so a value can be copied piece by piece with some pieces changed. */
	while (r == 0 && value.at < value.end) {
		r = furca_value_enter(&value, &v);
		if (r < 0)
			break;
		if (v.kind != FURCA_EXT || v.ext != EXT_HANDLE) {
			*ret_frames = *ret_frames || (v.kind == FURCA_EXT && v.ext == FURCA_EXT_FRAME);
			r = furca_buf_append(out, v.raw.at, furca_view_size(v.raw));
			continue;
		}
		r = make(handles, client, owner, write, v.bytes, &handle);
		if (r == 0) {
			pack_ext(out, handle->name, NAME_SIZE);
			r = out->failed;
		}
	}
	if (r < 0) {
		unmake(handles, out, mark);
		out->len = mark;
	}
	return r;
}

int furca_handles_to_client(const struct furca_handles *handles, uint64_t client, struct furca_view value, struct furca_buf *out,
			    bool *frames)
{
	struct furca_value v;

	while (value.at < value.end && furca_value_enter(&value, &v) == 0) {
		const struct furca_handle *handle = v.kind == FURCA_EXT && v.ext == EXT_HANDLE ? lookup(handles, v.bytes) : NULL;

		*frames = *frames || (v.kind == FURCA_EXT && v.ext == FURCA_EXT_FRAME);
		if (handle && handle->client == client)
			pack_ext(out, handle->token, handle->size);
		else
			(void)furca_buf_append(out, v.raw.at, furca_view_size(v.raw));
	}
	return out->failed;
}
