#include "bridge/offers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/advice.h"
#include "bridge/wire/nearest.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

static void name_done(struct furca_offer_entry *name)
{
	free(name->text);
	free(name->packed);
	*name = (struct furca_offer_entry){0};
}

void furca_offers_done(struct furca_offers *offers)
{
	for (size_t i = 0; i < offers->count; i++)
		name_done(&offers->names[i]);
	free(offers->names);
	*offers = (struct furca_offers){0};
}

static int compare(const char *text, size_t n, const char *name)
{
	size_t m = strlen(name);
	int r = memcmp(text, name, FURCA_MIN(n, m));

	return r ? r : (n > m) - (n < m);
}

/* The index of the name, or where it would stand (*found false). */
static size_t search(const struct furca_offers *offers, const char *text, size_t n, bool *found)
{
	size_t low = 0, high = offers->count;

	*found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int r = compare(text, n, offers->names[middle].text);

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
		bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
			    *p == '_' || *p == '-' || *p >= 0x80;

		if (!word && (*p != '.' || begins))
			return false;
		begins = *p == '.';
	}
	return !begins && furca_view_is_utf8(view);
}

/* Each key of `map` is one of `known`. 0 or -errno. */
int furca_keys_check(struct furca_view map, const char *where, const char *const *known, size_t n,
		     struct furca_err *err)
{
	struct furca_view whole = map;
	struct furca_value m, key, value;

	if (furca_value_enter(&map, &m) < 0 || m.kind != FURCA_MAP)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Make it a map of named arguments.",
					  "%s must be a map.", where);
	for (uint32_t i = 0; i < m.count; i++) {
		bool ok = false;

		if (furca_value_next(&map, &key) < 0 || furca_value_next(&map, &value) < 0 || key.kind != FURCA_STR)
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
						  "Remove every argument whose name is no text.",
						  "The keys of %s must be text.", where);
		for (size_t k = 0; k < n && !ok; k++)
			ok = furca_view_is(key.bytes, known[k]);
		if (!ok)
			return furca_refuse_unknown(err, "argument", key.bytes, known, n, whole);
	}
	return 0;
}

/* Packs what describe says of a name: the client's own doc and params, its effect as understood. */
static int pack_name(struct furca_offer_entry *name, struct furca_view doc, const struct furca_value *params)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	const char *effect = name->write ? "write" : "read";
	msgpack_packer pk;

	furca_packer(&pk, &buf);
	msgpack_pack_map(&pk, 2 + (doc.at != NULL) + (params != NULL));
	furca_pack_text(&pk, "name");
	furca_pack_text(&pk, name->text);
	furca_pack_text(&pk, "effect");
	furca_pack_text(&pk, effect);
	if (doc.at) {
		furca_pack_text(&pk, "doc");
		furca_pack_bytes(&pk, doc.at, furca_view_size(doc));
	}
	if (params) {
		furca_pack_text(&pk, "params");
		(void)furca_buf_append(&buf, params->raw.at, furca_view_size(params->raw));
	}
	if (buf.failed)
		return buf.failed;
	struct furca_buf taken = furca_buf_take(&buf);
	name->packed = taken.data;
	name->packed_size = taken.len;
	return 0;
}

/* A failure of the capability at `index` of the list, with an example of what its `key` could be. */
static int refuse_offer(struct furca_err *err, uint32_t index, const char *key, const char *example, const char *format,
			...) __attribute__((format(printf, 5, 6)));

static int refuse_offer(struct furca_err *err, uint32_t index, const char *key, const char *example, const char *format,
			...)
{
	char advice[160], text[FURCA_ERR_TEXT_MAX];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (example)
		(void)snprintf(advice, sizeof(advice), "Give it one, for example capabilities.%u.%s=%s.", index, key,
			       example);
	else
		(void)snprintf(advice, sizeof(advice), "Remove capabilities.%u.%s, or change it.", index, key);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "%s", text);
}

/* One entry of register_capabilities. */
static int parse_name(struct furca_view map, uint32_t index, struct furca_offer_entry *ret, struct furca_err *err)
{
	static const char *const known[] = {"name", "effect", "doc", "params", "objects"};
	struct furca_view text, doc = {0};
	struct furca_value effect, params, d, objects;
	bool has_params;
	int r = furca_keys_check(map, "a capability", known, FURCA_COUNT(known), err);

	if (r < 0)
		return r;
	if (!furca_map_text(map, "name", &text) || !name_is_valid(text))
		return refuse_offer(err, index, "name", "'contacts.lookup'",
				    "A capability's name must be words with dots between them, at most %d bytes.",
				    FURCA_MAX_CAPABILITY_NAME);
	/* Not told means write: what may change the world is refused in a read-only call until it is said to be harmless. */
	ret->write = true;
	if (furca_map_get(map, "effect", &effect) && effect.kind != FURCA_NIL) {
		ret->write = effect.kind != FURCA_STR || !furca_view_is(effect.bytes, "read");
		if (ret->write && (effect.kind != FURCA_STR || !furca_view_is(effect.bytes, "write")))
			return refuse_offer(err, index, "effect", "'write' or 'read'",
					    "The effect of capability '%.*s' must be 'read' or 'write'.",
					    (int)FURCA_MIN(furca_view_size(text), (size_t)64), (const char *)text.at);
	}
	if (furca_map_get(map, "objects", &objects) && objects.kind != FURCA_NIL) {
		if (objects.kind != FURCA_BOOL)
			return refuse_offer(err, index, "objects", "true",
					    "A capability's 'objects' must be true or false.");
		ret->objects = objects.b;
	}
	if (furca_map_get(map, "doc", &d) && d.kind != FURCA_NIL) {
		if (d.kind != FURCA_STR || !furca_view_is_utf8(d.bytes) ||
		    furca_view_size(d.bytes) > FURCA_MAX_CAPABILITY_DOC)
			return refuse_offer(err, index, "doc", NULL,
					    "A capability's doc must be text of at most %d bytes.",
					    FURCA_MAX_CAPABILITY_DOC);
		doc = d.bytes;
	}
	has_params = furca_map_get(map, "params", &params) && params.kind != FURCA_NIL;
	if (has_params && furca_view_size(params.raw) > FURCA_MAX_CAPABILITY_DOC)
		return refuse_offer(err, index, "params", NULL, "A capability's params may have %d bytes.",
				    FURCA_MAX_CAPABILITY_DOC);
	ret->text = furca_view_dup(text);
	if (!ret->text || pack_name(ret, doc, has_params ? &params : NULL) < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "Cannot keep a capability's name");
	return 0;
}

/* Puts names in, each in the place of its predecessor where there is one. The array has room. */
static void merge(struct furca_offers *offers, struct furca_offer_entry *fresh, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool found;
		size_t at = search(offers, fresh[i].text, strlen(fresh[i].text), &found);

		if (found) {
			name_done(&offers->names[at]);
		} else {
			memmove(offers->names + at + 1, offers->names + at,
				(offers->count - at) * sizeof(*offers->names));
			offers->count++;
		}
		offers->names[at] = fresh[i];
		fresh[i] = (struct furca_offer_entry){0};
	}
}

int furca_offers_register(struct furca_offers *offers, uint64_t client, struct furca_view args, struct furca_err *err)
{
	static const char *const known[] = {"capabilities"};
	struct furca_value list, entry;
	struct furca_view inside;
	int r = furca_keys_check(args, "register_capabilities", known, FURCA_COUNT(known), err);

	if (r < 0)
		return r;
	if (!furca_map_get(args, "capabilities", &list) || list.kind != FURCA_ARRAY)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Give a list of {name, effect, doc?, params?, objects?}, for example capabilities=[].",
			"register_capabilities needs a list 'capabilities'.");
	if (offers->count + list.count > FURCA_MAX_CAPABILITIES)
		return furca_fail_suggest(
			err, FURCA_E_LIMIT, 0,
			"Use capabilities=[], or fewer than that; others go with the connection that offers them.",
			"At most %d capabilities can be registered.", FURCA_MAX_CAPABILITIES);
	struct furca_offer_entry *names = realloc(offers->names, (offers->count + list.count + 1) * sizeof(*names));
	FURCA_AUTO_FREE struct furca_offer_entry *fresh = calloc((size_t)list.count + 1, sizeof(*fresh));
	if (names)
		offers->names = names;
	if (!names || !fresh)
		return furca_fail(err, FURCA_E_MEMORY, 0, "Cannot keep %u capabilities", list.count);
	inside = furca_value_inside(&list);
	for (uint32_t i = 0; i < list.count && r == 0; i++) {
		fresh[i].client = client;
		r = furca_value_next(&inside, &entry) < 0 ? -EPROTO : parse_name(entry.raw, i, &fresh[i], err);
	}
	if (r == 0)
		merge(offers, fresh, list.count);
	else
		for (uint32_t i = 0; i < list.count; i++)
			name_done(&fresh[i]);
	return r < 0 ? r : (int)list.count;
}

void furca_offers_describe(const struct furca_offers *offers, struct furca_buf *out)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_array(&pk, offers->count);
	for (size_t i = 0; i < offers->count; i++)
		(void)furca_buf_append(out, offers->names[i].packed, offers->names[i].packed_size);
}

const struct furca_offer_entry *furca_offers_find(const struct furca_offers *offers, struct furca_view name)
{
	bool found;
	size_t at = search(offers, (const char *)name.at, furca_view_size(name), &found);

	return found ? &offers->names[at] : NULL;
}

const char *furca_offers_nearest(const struct furca_offers *offers, struct furca_view name)
{
	FURCA_AUTO_FREE const char **words = calloc(offers->count + 1, sizeof(*words));

	if (!words || offers->count == 0)
		return NULL;
	for (size_t i = 0; i < offers->count; i++)
		words[i] = offers->names[i].text;
	return furca_nearest((const char *)name.at, furca_view_size(name), words, offers->count);
}

void furca_offers_client_gone(struct furca_offers *offers, uint64_t client)
{
	size_t kept = 0;

	for (size_t i = 0; i < offers->count; i++) {
		if (offers->names[i].client == client)
			name_done(&offers->names[i]);
		else
			offers->names[kept++] = offers->names[i];
	}
	offers->count = kept;
}
