/*
 * What outlives the engine: one SQLite file, `furca.db`, in the state directory. It holds environments, stored functions and a
 * note of each session that lives, so that a later engine can say what was lost. Sessions themselves are not here.
 *
 * The schema has a version (PRAGMA user_version) and is migrated forward when opened. A file that is damaged is moved aside,
 * never deleted, and a new one begun; a file of a newer furca is refused. Every call is a short transaction on the calling
 * thread in WAL mode without fsync: it may wait for the disk, microseconds as a rule, and is not for hot paths.
 *
 * Rows passed to callbacks are borrowed for the callback; rows passed in are copied. Text is UTF-8; NULL is "none" where a
 * field allows it (marked ?).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct furca_store;

/*
 * Opens or makes DIR/furca.db (DIR must be there). *ret_notice, if not NULL, gets a malloc'ed sentence where a damaged file was
 * moved aside, else NULL. 0, or -errno with *err. Blocks for the disk.
 */
int furca_store_open(const char *dir, struct furca_store **ret, char **ret_notice, struct furca_err *err);
void furca_store_free(struct furca_store *store);

struct furca_store_env {
	uint64_t id;			      /* the venv_id: 1 and up, never reused; 0 when it is new */
	const char *digest;		      /* of the normalised specification with its interpreter; unique */
	const char *name;		      /* ? */
	const char *spec;		      /* the pyproject.toml text as first given */
	const char *canonical;		      /* the normalised specification, canonical JSON */
	double created_at, built_at, used_at; /* wall seconds; 0: never */
	uint64_t bytes;			      /* size on disk when built */
	const char *failure;		      /* ? why the last build failed */
};

/* Adds a row (id 0: a new id is chosen and stored in *ret_id) or replaces the one with that id. ret_id may be NULL. */
int furca_store_env_put(struct furca_store *store, const struct furca_store_env *row, uint64_t *ret_id,
			struct furca_err *err);
int furca_store_env_remove(struct furca_store *store, uint64_t id, struct furca_err *err);
/* Calls `each` for every row, by id. Stops at the first nonzero return and returns it. */
int furca_store_env_each(struct furca_store *store, int (*each)(void *user, const struct furca_store_env *row),
			 void *user, struct furca_err *err);

struct furca_store_function {
	const char *name; /* unique */
	const char *language, *source;
	uint64_t venv_id;	  /* 0: the own interpreter */
	const char *capabilities; /* ? JSON list of the names it may call; NULL: all */
	const char *doc;	  /* ? */
	double created_at, changed_at;
};

/* Adds or replaces by name. */
int furca_store_function_put(struct furca_store *store, const struct furca_store_function *row, struct furca_err *err);
/* 1 where it was there, 0 where not, or -errno. */
int furca_store_function_remove(struct furca_store *store, const char *name, struct furca_err *err);
int furca_store_function_each(struct furca_store *store,
			      int (*each)(void *user, const struct furca_store_function *row), void *user,
			      struct furca_err *err);

/* A session that lived when the row was written; read by the next engine to say "state was lost". */
struct furca_store_session {
	const char *language;
	uint64_t venv_id, session_id;
	const char *name; /* ? */
	uint64_t calls;
	double created_at, used_at;
};

int furca_store_session_put(struct furca_store *store, const struct furca_store_session *row, struct furca_err *err);
int furca_store_session_remove(struct furca_store *store, const char *language, uint64_t venv_id, uint64_t session_id,
			       struct furca_err *err);
/* Removes all of them: after an orderly end, or once they have been read. */
int furca_store_session_clear(struct furca_store *store, struct furca_err *err);
int furca_store_session_each(struct furca_store *store, int (*each)(void *user, const struct furca_store_session *row),
			     void *user, struct furca_err *err);
