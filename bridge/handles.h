/*
 * Handles: objects that stay with the client that offers a capability, while code holds their names. On a client's own connection a
 * handle is ext 2 with a text that the client chose; code sees ext 2 with a name made here, random, so that it can neither be guessed nor
 * be mixed up with another client's. Each time a handle crosses to code it gets a name of its own, which is given back once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "bridge/idmap.h"
#include "bridge/wire/value.h"

struct furca_handle {
	struct furca_handle *next; /* of the same hash */
	uint64_t client, owner;
	bool write; /* its methods may change things: as the capability that gave it */
	size_t size;
	char name[24]; /* what code sees: "@" and 16 digits */
	char token[];  /* what the client sees; `size` bytes */
};

struct furca_handles {
	struct furca_idmap by_hash; /* of the name */
	struct furca_idmap by_owner; /* how many each has, as a number */
	size_t count;
};

void furca_handles_done(struct furca_handles *handles);

/*
 * Copies a value that `client` gave to code, its handles renamed. 0, -EPROTO where a handle is no text of 1 to FURCA_MAX_HANDLE bytes without
 * dots, -E2BIG where there are too many, or -ENOMEM; then none was made. *ret_frames: whether arrays or frames are in it.
 */
int furca_handles_to_code(struct furca_handles *handles, uint64_t client, uint64_t owner, bool write, struct furca_view value,
			  struct furca_buf *out, bool *ret_frames);

/* Copies a value that goes from code to `client`: its own handles get its own texts back, others stay as they are. 0 or -ENOMEM. *frames becomes true where
 * arrays or frames are in it. */
int furca_handles_to_client(const struct furca_handles *handles, uint64_t client, struct furca_view value, struct furca_buf *out,
			    bool *frames);

/* The handle that `name` begins with, and the method behind its dot; NULL where it is no handle that lives. */
const struct furca_handle *furca_handles_find(const struct furca_handles *handles, struct furca_view name, struct furca_view *ret_method);

/* Whether a name is written as a handle's, living or not. */
bool furca_handles_is_name(struct furca_view name);

/* Takes a handle out by its name. To be freed by the caller; NULL where there is none. */
struct furca_handle *furca_handles_take(struct furca_handles *handles, struct furca_view name);

/* Takes out all that were given to an owner, linked by `next`. To be freed by the caller. */
struct furca_handle *furca_handles_take_owned(struct furca_handles *handles, uint64_t owner);

/* All handles of a client end. */
void furca_handles_client_gone(struct furca_handles *handles, uint64_t client);
