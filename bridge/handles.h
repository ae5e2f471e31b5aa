/*
 * Handles: objects that stay where they are, while the other side holds their names. There are two tables of them: clients' objects, whose names code
 * holds, and code's objects, whose names clients hold. On its owner's side a handle is ext 2 with a text of the owner's choice; the other side sees ext 2
 * with a name made here, random, so that it can neither be guessed nor be mixed up with another's. Each time a handle crosses it gets a name of its
 * own, which is given back once. Where it comes home, it is its owner's text again.
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
	bool write;   /* its methods may change things: as the capability that gave it */
	bool objects; /* its client takes objects of code, and tells attributes: likewise */
	size_t size;
	char name
		[24]; /* what the other side sees: "@" (a client's) or "#" (code's), 16 digits, and "a" with `objects` */
	char token[]; /* what its own side sees; `size` bytes */
};

/* Its own side's text of it; lives as long. */
static inline struct furca_view furca_handle_token(const struct furca_handle *handle)
{
	return (struct furca_view){(const uint8_t *)handle->token, (const uint8_t *)handle->token + handle->size};
}

/* Between whom a value passes. */
struct furca_way {
	struct furca_handles *of_clients, *of_code; /* the tables */
	uint64_t client, owner;
	bool write, objects; /* of the capability that is called */
};

struct furca_handles {
	struct furca_idmap by_hash;  /* of the name */
	struct furca_idmap by_owner; /* how many each has, as a number */
	size_t count;
};

void furca_handles_done(struct furca_handles *handles);

/*
 * Copies a value that the client gives to code: its objects get names, the owner's own come home. 0, -EPROTO where a handle is no text of 1 to
 * FURCA_MAX_HANDLE bytes without dots, -E2BIG where there are too many, or -ENOMEM; then none was made. *frames becomes true where arrays or frames are
 * in it.
 */
int furca_handles_to_code(const struct furca_way *way, struct furca_view value, struct furca_buf *out, bool *frames);

/*
 * Copies a value that goes from code to the client: its own handles come home, other clients' stay as they are, and the code's objects get names. As
 * furca_handles_to_code, and -EDOM where there is an object and way->objects is false.
 */
int furca_handles_to_client(const struct furca_way *way, struct furca_view value, struct furca_buf *out, bool *frames);

/* Takes out what crossing made of names in `packed`, which is not sent after all. */
void furca_handles_unmake(struct furca_handles *made, struct furca_view packed);

/* Calls `fn` with the text of each object of code's in a value that code sent. */
void furca_handles_each_object(struct furca_view value, void (*fn)(void *data, struct furca_view token), void *data);

/* The handle that `name` begins with, and the method behind its dot; NULL where it is no handle that lives. */
const struct furca_handle *furca_handles_find(const struct furca_handles *handles, struct furca_view name,
					      struct furca_view *ret_method);

/* Whether a name is written as a handle's, living or not. */
bool furca_handles_is_name(struct furca_view name);

/* Takes a handle out by its name. To be freed by the caller; NULL where there is none. */
struct furca_handle *furca_handles_take(struct furca_handles *handles, struct furca_view name);

/* Takes out all that were given to an owner, linked by `next`. To be freed by the caller. */
struct furca_handle *furca_handles_take_owned(struct furca_handles *handles, uint64_t owner);

/* The same of a client. */
struct furca_handle *furca_handles_take_client(struct furca_handles *handles, uint64_t client);

/* The handle of exactly that name, or NULL. */
const struct furca_handle *furca_handles_get(const struct furca_handles *handles, struct furca_view name);

/* Frees what was taken out. */
void furca_handles_free_list(struct furca_handle *first);
