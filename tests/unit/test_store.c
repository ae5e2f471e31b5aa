#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/store.h"

#include "tests/unit/harness.h"

static char dir[64], path[96];

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/furca-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/furca.db", dir);
}

static void teardown(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		(void)closedir(d);
	(void)rmdir(dir);
}

static struct furca_store *open_store(char **notice)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_store *store = NULL;

	ck_assert_msg(furca_store_open(dir, &store, notice, &err) == 0, "%s", err.text);
	return store;
}

static int keep_env(void *user, const struct furca_store_env *row)
{
	struct furca_store_env *got = user;

	*got = *row;
	got->digest = strdup(row->digest);
	got->name = row->name ? strdup(row->name) : NULL;
	got->failure = row->failure ? strdup(row->failure) : NULL;
	return 0;
}

static int count(void *user, const struct furca_store_function *row)
{
	++*(int *)user;
	return strcmp(row->name, "stop") ? 0 : 7;
}

static const struct furca_store_env env = {
	.digest = "d1", .spec = "s", .canonical = "{}", .created_at = 1.5, .bytes = UINT64_C(1) << 40};

START_TEST(an_environment_keeps_its_id_over_a_restart)
{
	struct furca_store *store = open_store(NULL);
	struct furca_store_env row = env, got = {0};
	uint64_t id = 0, other = 0;

	ck_assert_int_eq(furca_store_env_put(store, &env, &id, NULL), 0);
	ck_assert_uint_eq(id, 1);
	row.id = id;
	row.name = "n";
	row.failure = "why";
	ck_assert_int_eq(furca_store_env_put(store, &row, NULL, NULL), 0);
	furca_store_free(store);

	store = open_store(NULL);
	ck_assert_int_eq(furca_store_env_each(store, keep_env, &got, NULL), 0);
	ck_assert_uint_eq(got.id, id);
	ck_assert_str_eq(got.digest, "d1");
	ck_assert_str_eq(got.name, "n");
	ck_assert_str_eq(got.failure, "why");
	ck_assert_uint_eq(got.bytes, UINT64_C(1) << 40);
	ck_assert(got.created_at == 1.5);
	free((char *)got.digest);
	free((char *)got.name);
	free((char *)got.failure);
	/* A number is never given again, not even the last one. */
	ck_assert_int_eq(furca_store_env_remove(store, id, NULL), 0);
	ck_assert_int_eq(furca_store_env_put(store, &env, &other, NULL), 0);
	ck_assert_uint_gt(other, id);
	furca_store_free(store);
}
END_TEST

START_TEST(functions_are_replaced_by_name)
{
	struct furca_store *store = open_store(NULL);
	struct furca_store_function f = {.name = "f", .language = "python", .source = "def f(): 1"};
	int n = 0;

	ck_assert_int_eq(furca_store_function_put(store, &f, NULL), 0);
	ck_assert_int_eq(furca_store_function_put(store, &f, NULL), 0);
	f.name = "stop";
	ck_assert_int_eq(furca_store_function_put(store, &f, NULL), 0);
	ck_assert_int_eq(furca_store_function_each(store, count, &n, NULL), 7);
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(furca_store_function_remove(store, "f", NULL), 1);
	ck_assert_int_eq(furca_store_function_remove(store, "f", NULL), 0);
	furca_store_free(store);
}
END_TEST

static int count_session(void *user, const struct furca_store_session *row)
{
	*(uint64_t *)user += row->calls;
	return 0;
}

START_TEST(sessions_are_noted_and_cleared)
{
	struct furca_store *store = open_store(NULL);
	struct furca_store_session s = {.language = "python", .session_id = 3, .name = "audit", .calls = 5};
	uint64_t calls = 0;

	ck_assert_int_eq(furca_store_session_put(store, &s, NULL), 0);
	s.session_id = 4;
	ck_assert_int_eq(furca_store_session_put(store, &s, NULL), 0);
	ck_assert_int_eq(furca_store_session_each(store, count_session, &calls, NULL), 0);
	ck_assert_uint_eq(calls, 10);
	ck_assert_int_eq(furca_store_session_remove(store, "python", 0, 3, NULL), 0);
	ck_assert_int_eq(furca_store_session_clear(store, NULL), 0);
	calls = 0;
	ck_assert_int_eq(furca_store_session_each(store, count_session, &calls, NULL), 0);
	ck_assert_uint_eq(calls, 0);
	furca_store_free(store);
}
END_TEST

static void overwrite(off_t at, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	char junk[512];

	memset(junk, 0xa5, sizeof(junk));
	ck_assert_int_ge(fd, 0);
	for (size_t done = 0; done < n; done += sizeof(junk))
		ck_assert_int_eq(pwrite(fd, junk, sizeof(junk), at + (off_t)done), sizeof(junk));
	(void)close(fd);
}

/* The head (no database at all) and the pages behind it (a database that contradicts itself). */
START_TEST(a_damaged_file_is_moved_aside)
{
	struct furca_store *store = open_store(NULL);
	char *notice = NULL;
	struct stat moved;

	ck_assert_int_eq(furca_store_env_put(store, &env, NULL, NULL), 0);
	furca_store_free(store);
	overwrite(_i ? 4096 : 0, _i ? 16384 : 512);
	store = open_store(&notice);
	ck_assert_ptr_nonnull(notice);
	ck_assert_ptr_nonnull(strstr(notice, ".damaged-"));
	char *name = strstr(notice, "moved to ") + strlen("moved to ");
	*strstr(name, " and a new") = 0;
	ck_assert_int_eq(stat(name, &moved), 0);
	ck_assert_int_eq(furca_store_env_put(store, &env, NULL, NULL), 0);
	furca_store_free(store);
	free(notice);
	store = open_store(&notice);
	ck_assert_ptr_null(notice);
	furca_store_free(store);
}
END_TEST

START_TEST(a_newer_schema_is_refused)
{
	struct furca_store *store = open_store(NULL);
	struct furca_err err = FURCA_ERR_INIT;
	sqlite3 *db;

	furca_store_free(store);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
	ck_assert_int_lt(furca_store_open(dir, &store, NULL, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "newer"));
}
END_TEST

START_TEST(a_missing_directory_is_an_error)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_store *store;

	ck_assert_int_lt(furca_store_open("/nonexistent", &store, NULL, &err), 0);
	ck_assert_int_eq(err.code, FURCA_E_SYSTEM);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_environment_keeps_its_id_over_a_restart);
	tcase_add_test(t, functions_are_replaced_by_name);
	tcase_add_test(t, sessions_are_noted_and_cleared);
	tcase_add_loop_test(t, a_damaged_file_is_moved_aside, 0, 2);
	tcase_add_test(t, a_newer_schema_is_refused);
	tcase_add_test(t, a_missing_directory_is_an_error);
}

int main(void)
{
	return furca_test_main("store", add);
}
