/* The capabilities that clients have registered, by name: whose they are, what they may do, how they describe themselves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/wire/value.h"

struct furca_offer_entry {
	uint64_t client;
	bool write;
	bool objects; /* its client takes objects of code, and tells attributes of its own */
	char *text;
	uint8_t *packed; /* its map in describe's answer */
	size_t packed_size;
};

struct furca_offers {
	struct furca_offer_entry *names; /* sorted by text */
	size_t count;
};

void furca_offers_done(struct furca_offers *offers);

/* register_capabilities: all of `args`' list or none. The number registered, or -errno with *err (which key, the nearest known one). */
int furca_offers_register(struct furca_offers *offers, uint64_t client, struct furca_view args, struct furca_err *err);

/* The name's entry or NULL; good until the next change. */
const struct furca_offer_entry *furca_offers_find(const struct furca_offers *offers, struct furca_view name);

/* The registered name nearest to one that is not, or NULL where there is none. */
const char *furca_offers_nearest(const struct furca_offers *offers, struct furca_view name);

/* Packs the array of {name, effect, doc?, params?}, by name. */
void furca_offers_describe(const struct furca_offers *offers, struct furca_buf *out);

void furca_offers_client_gone(struct furca_offers *offers, uint64_t client);

/* Whether each key of a packed map is one of the `n` words `known`; `where` names the map in the refusal. 0 or -errno. */
int furca_keys_check(struct furca_view map, const char *where, const char *const *known, size_t n,
		     struct furca_err *err);
