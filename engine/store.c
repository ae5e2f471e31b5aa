#include "engine/store.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"

#include "base/banned.h"

#define BUSY_MS 2000 /* another engine on the same state directory writes for microseconds */

struct furca_store {
	sqlite3 *db;
};

/* Each entry takes the schema from the version of its index to the next. Never changed once released. */
static const char *const migration[] = {
	"CREATE TABLE env(id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, name TEXT, spec TEXT NOT NULL, "
	"canonical TEXT NOT NULL, created_at REAL NOT NULL, built_at REAL NOT NULL, used_at REAL NOT NULL, "
	"bytes INTEGER NOT NULL, failure TEXT);"
	"CREATE TABLE function(name TEXT NOT NULL PRIMARY KEY, language TEXT NOT NULL, source TEXT NOT NULL, "
	"venv_id INTEGER NOT NULL, capabilities TEXT, doc TEXT, created_at REAL NOT NULL, changed_at REAL NOT NULL);"
	"CREATE TABLE session(language TEXT NOT NULL, venv_id INTEGER NOT NULL, session_id INTEGER NOT NULL, name TEXT, "
	"calls INTEGER NOT NULL, created_at REAL NOT NULL, used_at REAL NOT NULL, "
	"PRIMARY KEY(language, venv_id, session_id));",
};

#define SCHEMA ((int)FURCA_COUNT(migration))

/* What must be readable in a database that calls itself current. */
static const char *const probe[] = {
	"SELECT id, digest, name, spec, canonical, created_at, built_at, used_at, bytes, failure FROM env",
	"SELECT name, language, source, venv_id, capabilities, doc, created_at, changed_at FROM function",
	"SELECT language, venv_id, session_id, name, calls, created_at, used_at FROM session",
};

static int fail(struct furca_store *store, const char *what, struct furca_err *err)
{
	int full = sqlite3_errcode(store->db) == SQLITE_FULL;

	return furca_fail(err, full ? FURCA_E_LIMIT : FURCA_E_SYSTEM, sqlite3_system_errno(store->db),
			  "cannot %s in the state directory: %s", what, sqlite3_errmsg(store->db));
}

static bool is_damage(int code)
{
	return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

static void finalize(sqlite3_stmt **statement)
{
	sqlite3_finalize(*statement);
}

#define AUTO_STATEMENT FURCA_AUTO(finalize)

/* One integer from a query. An SQLite code. */
static int ask(sqlite3 *db, const char *sql, int *ret)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);

	if (code)
		return code;
	code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return code == SQLITE_DONE ? SQLITE_ERROR : code;
	*ret = sqlite3_column_int(statement, 0);
	return SQLITE_OK;
}

/* Whether every page can be read and every column is there. SQLITE_CORRUPT where not. */
static int check(sqlite3 *db)
{
	AUTO_STATEMENT sqlite3_stmt *quick = NULL;
	int code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &quick, NULL);

	if (code)
		return code;
	code = sqlite3_step(quick);
	if (code != SQLITE_ROW)
		return code;
	const unsigned char *text = sqlite3_column_text(quick, 0);
	if (!text || strcmp((const char *)text, "ok"))
		return SQLITE_CORRUPT;
	for (size_t i = 0; i < FURCA_COUNT(probe); i++) {
		AUTO_STATEMENT sqlite3_stmt *statement = NULL;

		code = sqlite3_prepare_v2(db, probe[i], -1, &statement, NULL);
		if (code)
			return code == SQLITE_ERROR ? SQLITE_CORRUPT : code; /* a table or column is missing */
	}
	return SQLITE_OK;
}

/* Brings the schema up to date in one transaction. An SQLite code; SQLITE_SCHEMA where it is newer than ours. */
static int migrate(sqlite3 *db)
{
	int version = 0, code = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	char text[64];

	if (!code)
		code = ask(db, "PRAGMA user_version", &version);
	if (!code && version > SCHEMA)
		code = SQLITE_SCHEMA;
	for (; !code && version < SCHEMA; version++)
		code = sqlite3_exec(db, migration[version], NULL, NULL, NULL);
	(void)snprintf(text, sizeof(text), "PRAGMA user_version=%d; COMMIT", SCHEMA);
	if (!code)
		code = sqlite3_exec(db, text, NULL, NULL, NULL);
	if (code)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return code;
}

static int open_file(struct furca_store *store, const char *path)
{
	int code = sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
				   NULL);

	if (code)
		return code;
	(void)sqlite3_extended_result_codes(store->db, 1);
	(void)sqlite3_busy_timeout(store->db, BUSY_MS);
	/* A crash of the machine may take the last changes, never the file's order; that is worth no fsync in the engine's thread. */
	code = sqlite3_exec(store->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF",
			    NULL, NULL, NULL);
	if (!code)
		code = migrate(store->db);
	return code ? code : check(store->db);
}

/* Renames the damaged file, and its log with it. 0 or -errno. */
static int move_aside(const char *path, char **ret_notice, struct furca_err *err)
{
	static const char *const suffix[] = {"", "-wal", "-shm"};
	unsigned long long stamp = (unsigned long long)(furca_wall_s() * 1000);

	for (size_t i = 0; i < FURCA_COUNT(suffix); i++) {
		FURCA_AUTO_FREE char *from = NULL, *to = NULL;

		if (asprintf(&from, "%s%s", path, suffix[i]) < 0 ||
		    asprintf(&to, "%s.damaged-%llu%s", path, stamp, suffix[i]) < 0)
			return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to open the state");
		if (rename(from, to) < 0 && (i == 0 || errno != ENOENT))
			return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot move the damaged %s aside", from);
	}
	if (asprintf(ret_notice, "the state in %s was damaged; it was moved to %s.damaged-%llu and a new one begun",
		     path, path, stamp) < 0)
		*ret_notice = NULL;
	return 0;
}

int furca_store_open(const char *dir, struct furca_store **ret, char **ret_notice, struct furca_err *err)
{
	FURCA_AUTO_FREE char *path = NULL, *notice = NULL;
	struct furca_store *store = calloc(1, sizeof(*store));
	int code, r = 0;

	if (!store || asprintf(&path, "%s/furca.db", dir) < 0) {
		path = NULL;
		free(store);
		return furca_fail(err, FURCA_E_MEMORY, 0, "no memory to open the state");
	}
	code = open_file(store, path);
	if (is_damage(code)) {
		sqlite3_close(FURCA_TAKE(store->db));
		r = move_aside(path, &notice, err);
		if (!r)
			code = open_file(store, path);
	}
	if (!r && code == SQLITE_SCHEMA)
		r = furca_fail_suggest(err, FURCA_E_UNSUPPORTED, 0, "Use the newer furca, or another --state-dir.",
				       "the state in %s was written by a newer furca", path);
	else if (!r && code)
		r = fail(store, "open furca.db", err);
	if (r < 0) {
		furca_store_free(store);
		return r;
	}
	if (ret_notice)
		*ret_notice = FURCA_TAKE(notice);
	*ret = store;
	return 0;
}

void furca_store_free(struct furca_store *store)
{
	if (store)
		(void)sqlite3_close(store->db);
	free(store);
}

/*
 * Runs a statement with parameters by a format: t text (NULL: null), u uint64_t, f double. 0 or -errno. *ret_changes (may be NULL) is how
 * many rows it changed.
 */
static int run(struct furca_store *store, const char *what, int *ret_changes, struct furca_err *err, const char *sql,
	       const char *format, ...)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;
	va_list args;

	if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL))
		return fail(store, what, err);
	va_start(args, format);
	for (int i = 0; format[i]; i++) {
		if (format[i] == 't')
			(void)sqlite3_bind_text(statement, i + 1, va_arg(args, const char *), -1, SQLITE_STATIC);
		else if (format[i] == 'u')
			(void)sqlite3_bind_int64(statement, i + 1, (sqlite3_int64)va_arg(args, uint64_t));
		else
			(void)sqlite3_bind_double(statement, i + 1, va_arg(args, double));
	}
	va_end(args);
	if (sqlite3_step(statement) != SQLITE_DONE)
		return fail(store, what, err);
	if (ret_changes)
		*ret_changes = sqlite3_changes(store->db);
	return 0;
}

/* The number of the environment of that digest. */
static int env_id(struct furca_store *store, const char *digest, uint64_t *ret, struct furca_err *err)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;

	if (sqlite3_prepare_v2(store->db, "SELECT id FROM env WHERE digest = ?1", -1, &statement, NULL) ||
	    sqlite3_bind_text(statement, 1, digest, -1, SQLITE_STATIC) || sqlite3_step(statement) != SQLITE_ROW)
		return fail(store, "find the environment", err);
	*ret = (uint64_t)sqlite3_column_int64(statement, 0);
	return 0;
}

int furca_store_env_put(struct furca_store *store, const struct furca_store_env *row, uint64_t *ret_id,
			struct furca_err *err)
{
	static const char add[] =
		"INSERT INTO env(digest, name, spec, canonical, created_at, built_at, used_at, bytes, failure) "
		"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(digest) DO NOTHING"; /* another engine's of this directory */
	static const char replace[] =
		"INSERT OR REPLACE INTO env(digest, name, spec, canonical, created_at, built_at, used_at, bytes, "
		"failure, id) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
	int r = run(store, "keep the environment", NULL, err, row->id ? replace : add,
		    row->id ? "ttttfffutu" : "ttttfffut", row->digest, row->name, row->spec, row->canonical,
		    row->created_at, row->built_at, row->used_at, row->bytes, row->failure, row->id);

	if (r < 0)
		return r;
	if (ret_id && row->id)
		*ret_id = row->id;
	else if (ret_id)
		r = env_id(store, row->digest, ret_id, err);
	return r;
}

int furca_store_env_remove(struct furca_store *store, uint64_t id, struct furca_err *err)
{
	return run(store, "forget the environment", NULL, err, "DELETE FROM env WHERE id = ?1", "u", id);
}

static const char *text_of(sqlite3_stmt *statement, int column)
{
	return (const char *)sqlite3_column_text(statement, column);
}

int furca_store_env_each(struct furca_store *store, int (*each)(void *user, const struct furca_store_env *row),
			 void *user, struct furca_err *err)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;
	int code, r = 0;

	if (sqlite3_prepare_v2(
		    store->db,
		    "SELECT id, digest, name, spec, canonical, created_at, built_at, used_at, bytes, failure "
		    "FROM env ORDER BY id",
		    -1, &statement, NULL))
		return fail(store, "read the environments", err);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW && r == 0) {
		struct furca_store_env row = {
			.id = (uint64_t)sqlite3_column_int64(statement, 0),
			.digest = text_of(statement, 1),
			.name = text_of(statement, 2),
			.spec = text_of(statement, 3),
			.canonical = text_of(statement, 4),
			.created_at = sqlite3_column_double(statement, 5),
			.built_at = sqlite3_column_double(statement, 6),
			.used_at = sqlite3_column_double(statement, 7),
			.bytes = (uint64_t)sqlite3_column_int64(statement, 8),
			.failure = text_of(statement, 9),
		};
		r = each(user, &row);
	}
	return r ? r : code == SQLITE_DONE ? 0 : fail(store, "read the environments", err);
}

int furca_store_function_put(struct furca_store *store, const struct furca_store_function *row, struct furca_err *err)
{
	return run(
		store, "keep the function", NULL, err,
		"INSERT OR REPLACE INTO function(name, language, source, venv_id, capabilities, doc, created_at, changed_at) "
		"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
		"tttuttff", row->name, row->language, row->source, row->venv_id, row->capabilities, row->doc,
		row->created_at, row->changed_at);
}

int furca_store_function_remove(struct furca_store *store, const char *name, struct furca_err *err)
{
	int changes = 0,
	    r = run(store, "forget the function", &changes, err, "DELETE FROM function WHERE name = ?1", "t", name);

	return r < 0 ? r : changes > 0;
}

int furca_store_function_each(struct furca_store *store,
			      int (*each)(void *user, const struct furca_store_function *row), void *user,
			      struct furca_err *err)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;
	int code, r = 0;

	if (sqlite3_prepare_v2(store->db,
			       "SELECT name, language, source, venv_id, capabilities, doc, created_at, changed_at "
			       "FROM function ORDER BY name",
			       -1, &statement, NULL))
		return fail(store, "read the functions", err);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW && r == 0) {
		struct furca_store_function row = {
			.name = text_of(statement, 0),
			.language = text_of(statement, 1),
			.source = text_of(statement, 2),
			.venv_id = (uint64_t)sqlite3_column_int64(statement, 3),
			.capabilities = text_of(statement, 4),
			.doc = text_of(statement, 5),
			.created_at = sqlite3_column_double(statement, 6),
			.changed_at = sqlite3_column_double(statement, 7),
		};
		r = each(user, &row);
	}
	return r ? r : code == SQLITE_DONE ? 0 : fail(store, "read the functions", err);
}

int furca_store_session_put(struct furca_store *store, const struct furca_store_session *row, struct furca_err *err)
{
	return run(store, "note the session", NULL, err,
		   "INSERT OR REPLACE INTO session(language, venv_id, session_id, name, calls, created_at, used_at) "
		   "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
		   "tuutuff", row->language, row->venv_id, row->session_id, row->name, row->calls, row->created_at,
		   row->used_at);
}

int furca_store_session_remove(struct furca_store *store, const char *language, uint64_t venv_id, uint64_t session_id,
			       struct furca_err *err)
{
	return run(store, "forget the session", NULL, err,
		   "DELETE FROM session WHERE language = ?1 AND venv_id = ?2 AND session_id = ?3", "tuu", language,
		   venv_id, session_id);
}

int furca_store_session_clear(struct furca_store *store, struct furca_err *err)
{
	return run(store, "forget the sessions", NULL, err, "DELETE FROM session", "");
}

int furca_store_session_each(struct furca_store *store, int (*each)(void *user, const struct furca_store_session *row),
			     void *user, struct furca_err *err)
{
	AUTO_STATEMENT sqlite3_stmt *statement = NULL;
	int code, r = 0;

	if (sqlite3_prepare_v2(store->db,
			       "SELECT language, venv_id, session_id, name, calls, created_at, used_at FROM session "
			       "ORDER BY language, venv_id, session_id",
			       -1, &statement, NULL))
		return fail(store, "read the sessions", err);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW && r == 0) {
		struct furca_store_session row = {
			.language = text_of(statement, 0),
			.venv_id = (uint64_t)sqlite3_column_int64(statement, 1),
			.session_id = (uint64_t)sqlite3_column_int64(statement, 2),
			.name = text_of(statement, 3),
			.calls = (uint64_t)sqlite3_column_int64(statement, 4),
			.created_at = sqlite3_column_double(statement, 5),
			.used_at = sqlite3_column_double(statement, 6),
		};
		r = each(user, &row);
	}
	return r ? r : code == SQLITE_DONE ? 0 : fail(store, "read the sessions", err);
}
