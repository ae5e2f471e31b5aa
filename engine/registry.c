#include "engine/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "bridge/wire/advice.h"

#include "base/banned.h"

struct furca_used_ids {
	struct furca_used_ids *next;
	const struct furca_lang *lang;
	uint64_t venv;
	uint64_t low; /* every id from 1 to below this was used */
	uint64_t *above;
	size_t n_above, cap;
};

void furca_registry_init(struct furca_registry *registry, unsigned max)
{
	*registry = (struct furca_registry){.max = max};
}

void furca_registry_done(struct furca_registry *registry)
{
	while (registry->used) {
		struct furca_used_ids *used = registry->used;

		registry->used = used->next;
		free(used->above);
		free(used);
	}
}

static bool same_key(const struct furca_key *a, const struct furca_key *b)
{
	return a->lang == b->lang && a->venv == b->venv && a->id == b->id;
}

struct furca_entry *furca_registry_by_id(const struct furca_registry *registry, const struct furca_key *key)
{
	for (struct furca_entry *entry = registry->first; entry; entry = entry->next)
		if (same_key(&entry->key, key))
			return entry;
	return NULL;
}

struct furca_entry *furca_registry_by_name(const struct furca_registry *registry, struct furca_view name)
{
	for (struct furca_entry *entry = registry->first; entry; entry = entry->next)
		for (unsigned i = 0; i < entry->n_names; i++)
			if (furca_view_is(name, entry->names[i]))
				return entry;
	return NULL;
}

static struct furca_used_ids *find_used(const struct furca_registry *registry, const struct furca_lang *lang,
					uint64_t venv)
{
	for (struct furca_used_ids *used = registry->used; used; used = used->next)
		if (used->lang == lang && used->venv == venv)
			return used;
	return NULL;
}

uint64_t furca_registry_free_id(const struct furca_registry *registry, const struct furca_lang *lang, uint64_t venv)
{
	const struct furca_used_ids *used = find_used(registry, lang, venv);

	return used ? used->low : 1;
}

/* Moves `low` over the ids above it that were used too. */
static void raise_low(struct furca_used_ids *used)
{
	for (size_t i = 0; i < used->n_above;) {
		if (used->above[i] != used->low) {
			i++;
			continue;
		}
		used->above[i] = used->above[--used->n_above];
		used->low++;
		i = 0;
	}
}

static int add_above(struct furca_used_ids *used, uint64_t id)
{
	if (used->n_above == used->cap) {
		size_t cap = used->cap ? used->cap * 2 : 16;
		uint64_t *above = realloc(used->above, cap * sizeof(*above));

		if (!above)
			return -ENOMEM;
		used->above = above;
		used->cap = cap;
	}
	used->above[used->n_above++] = id;
	return 0;
}

/* 1 where it is used for the first time, 0 where it was used before, or -ENOMEM. */
static int note_used(struct furca_registry *registry, const struct furca_key *key)
{
	struct furca_used_ids *used = find_used(registry, key->lang, key->venv);

	if (!used) {
		used = calloc(1, sizeof(*used));
		if (!used)
			return -ENOMEM;
		*used = (struct furca_used_ids){.next = registry->used, .lang = key->lang, .venv = key->venv, .low = 1};
		registry->used = used;
	}
	if (key->id == 0 || key->id < used->low)
		return 0;
	for (size_t i = 0; i < used->n_above; i++)
		if (used->above[i] == key->id)
			return 0;
	if (add_above(used, key->id) < 0)
		return -ENOMEM;
	raise_low(used);
	return 1;
}

static void give_back(struct furca_registry *registry, const struct furca_key *key)
{
	struct furca_used_ids *used = find_used(registry, key->lang, key->venv);
	size_t i = 0;

	if (!used || key->id == 0)
		return;
	while (used->low > key->id + 1) { /* those between were used */
		if (add_above(used, used->low - 1) < 0)
			return;
		used->low--;
	}
	if (used->low == key->id + 1) {
		used->low--;
		return;
	}
	while (i < used->n_above && used->above[i] != key->id)
		i++;
	if (i < used->n_above)
		used->above[i] = used->above[--used->n_above];
}

int furca_registry_full(const struct furca_registry *registry, const struct furca_entry *keep, struct furca_err *err)
{
	const struct furca_entry *other = registry->first == keep && keep ? keep->next : registry->first;
	char advice[FURCA_ERR_TEXT_MAX], venv[48] = "";

	if (!other)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Start the engine with a higher max_sessions in its configuration.",
					  "%u sessions exist, which is the limit.", registry->count);
	if (other->key.venv)
		(void)snprintf(venv, sizeof(venv), " and venv_id=%llu", (unsigned long long)other->key.venv);
	(void)snprintf(
		advice, sizeof(advice),
		"Close a session that is not needed (list_sessions shows them), for example call close_session with session_id=%llu and "
		"language='%s'%s first, which is the oldest.",
		(unsigned long long)other->key.id, other->key.lang->name, venv);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "%u sessions exist, which is the limit.",
				  registry->count);
}

int furca_registry_add(struct furca_registry *registry, struct furca_entry *entry, struct furca_err *err)
{
	struct furca_entry **last = &registry->first;

	if (registry->count >= registry->max)
		return furca_registry_full(registry, NULL, err);
	int r = note_used(registry, &entry->key);
	if (r < 0)
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory for another session");
	entry->first_use = r > 0;
	while (*last)
		last = &(*last)->next;
	*last = entry;
	entry->next = NULL;
	registry->count++;
	return 0;
}

void furca_registry_remove(struct furca_registry *registry, struct furca_entry *entry)
{
	for (struct furca_entry **at = &registry->first; *at; at = &(*at)->next) {
		if (*at != entry)
			continue;
		*at = entry->next;
		registry->count--;
		break;
	}
	for (unsigned i = 0; i < entry->n_names; i++)
		free(entry->names[i]);
	free((void *)entry->names);
	entry->names = NULL;
	entry->n_names = 0;
}

void furca_registry_undo(struct furca_registry *registry, struct furca_entry *entry)
{
	furca_registry_remove(registry, entry);
	if (entry->first_use)
		give_back(registry, &entry->key);
	entry->first_use = false;
}

int furca_registry_bind(struct furca_registry *registry, struct furca_entry *entry, struct furca_view name)
{
	if (furca_registry_by_name(registry, name) == entry)
		return 0;
	char *copy = furca_view_dup(name);
	char **names = copy ? realloc((void *)entry->names, (entry->n_names + 1) * sizeof(*names)) : NULL;

	if (!names) {
		free(copy);
		return -ENOMEM;
	}
	entry->names = names;
	entry->names[entry->n_names++] = copy;
	return 0;
}

void furca_registry_unbind(struct furca_entry *entry, struct furca_view name)
{
	for (unsigned i = 0; i < entry->n_names; i++) {
		if (!furca_view_is(name, entry->names[i]))
			continue;
		free(entry->names[i]);
		entry->n_names--;
		memmove(entry->names + i, entry->names + i + 1, (entry->n_names - i) * sizeof(*entry->names));
		return;
	}
}
