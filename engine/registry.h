/*
 * Which sessions exist: by (language, environment, id), and by name. A name belongs to one session; a session may have several. Knows
 * nothing of what a session is.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "bridge/wire/value.h"
#include "langs/lang.h"

struct furca_key {
	const struct furca_lang *lang;
	uint64_t venv; /* 0: the own interpreter */
	uint64_t id;
};

/* Stands in the session's own structure. */
struct furca_entry {
	struct furca_key key;
	char **names; /* in the order of binding; the first is the one that is shown */
	unsigned n_names;
	bool first_use; /* of its id; set by furca_registry_add */
	struct furca_entry *next;
};

struct furca_used_ids; /* of one (language, environment) */

struct furca_registry {
	struct furca_entry *first; /* in the order of making */
	struct furca_used_ids *used;
	unsigned count, max;
};

void furca_registry_init(struct furca_registry *registry, unsigned max);
void furca_registry_done(struct furca_registry *registry); /* entries are the caller's */

struct furca_entry *furca_registry_by_id(const struct furca_registry *registry, const struct furca_key *key);
struct furca_entry *furca_registry_by_name(const struct furca_registry *registry, struct furca_view name);

/* The lowest id from 1 up that was never used under (lang, venv). */
uint64_t furca_registry_free_id(const struct furca_registry *registry, const struct furca_lang *lang, uint64_t venv);

/* Refuses one more session; the suggestion names the oldest but `keep` (NULL: none) for closing. Returns -EINVAL. */
int furca_registry_full(const struct furca_registry *registry, const struct furca_entry *keep, struct furca_err *err);

/*
 * Adds an entry (zeroed but for its key, which must not exist). 0, or -errno: the limit is reached (FURCA_E_LIMIT), or no
 * memory.
 */
int furca_registry_add(struct furca_registry *registry, struct furca_entry *entry, struct furca_err *err);

/* Takes it out and frees its names. Its id stays used. */
void furca_registry_remove(struct furca_registry *registry, struct furca_entry *entry);

/* The same for one that nobody was told of: where its id was used for it alone it is as if it never was (without memory it stays used). */
void furca_registry_undo(struct furca_registry *registry, struct furca_entry *entry);

/* Binds a name that is free, or is the entry's already. 0 or -ENOMEM. */
int furca_registry_bind(struct furca_registry *registry, struct furca_entry *entry, struct furca_view name);

/* Frees a name that the entry has. */
void furca_registry_unbind(struct furca_entry *entry, struct furca_view name);
