/* Environments on a loop, with the real tool: empty specifications, which need no index, and local packages. */
#include "tests/unit/harness.h"
#include "tests/unit/spawner.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/env.h"
#include "engine/loop.h"
#include "bridge/wire/pack.h"

#define EMPTY "[project]\ndependencies = []\n"
#define OTHER                                                                                                          \
	"# the same, with one requirement that is not for this system\n[project]\ndependencies = [\"x; sys_platform == 'never'\"]\n"

static struct furca_loop *loop;
static struct furca_store *store;
static struct furca_envs *envs;
static char dir[64], built_dir[4096];
static struct furca_buf last;
static int answers, readies, failures, progresses, retired, stop_after;

static void count_down(void)
{
	if (--stop_after == 0)
		furca_loop_end(loop);
}

static void on_answer(void *user, furca_client_id client, uint64_t msgid, struct furca_view result)
{
	answers++;
	furca_buf_clear(&last);
	ck_assert_int_eq(furca_buf_append(&last, result.at, furca_view_size(result)), 0);
	ck_assert_int_eq(furca_value_check(result, 8, 1000), 0);
	count_down();
}

static void on_progress(void *user, furca_client_id client, uint64_t venv_id, const char *text)
{
	progresses++;
}

static void on_retire(void *user, uint64_t venv_id)
{
	retired++;
}

static void on_ready(void *user, const char *where, const struct furca_err *err, const char *lines)
{
	readies += where != NULL;
	failures += where == NULL;
	(void)snprintf(built_dir, sizeof(built_dir), "%s", where ? where : "");
	count_down();
}

static void on_stopped(void *user)
{
	envs = NULL;
	furca_loop_end(loop);
}

static void start(uint64_t max_bytes)
{
	const struct furca_envs_events events = {.answer = on_answer, .progress = on_progress, .retire = on_retire};
	const struct furca_envs_config config = {.state_dir = dir, .workdir = dir, .max_bytes = max_bytes};
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_int_eq(furca_loop_new(&loop, NULL), 0);
	ck_assert_int_eq(furca_store_open(dir, &store, NULL, NULL), 0);
	ck_assert_msg(furca_envs_new(loop, store, &config, &spawner, &events, &envs, &err) == 0, "%s", err.text);
}

static void stop(void)
{
	furca_envs_stop(envs, on_stopped, NULL);
	ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
	ck_assert_ptr_null(envs);
	furca_store_free(store);
	furca_loop_free(loop);
}

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/furca-env-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	answers = readies = failures = progresses = retired = 0;
	start(0);
}

static void teardown(void)
{
	char command[128];
	pid_t pid;
	int status;

	stop();
	while (waitpid(-1, &status, WNOHANG) > 0)
		;
	(void)snprintf(command, sizeof(command), "exec rm -rf %s", dir);
	char *argv[] = {(char *)"/bin/sh", (char *)"-c", command, NULL};
	ck_assert_int_eq(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

/* Runs the loop until so many answers and readies have come. */
static void await(int n)
{
	stop_after = n;
	ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
}

static struct furca_view last_view(void)
{
	return furca_buf_view(&last);
}

static uint64_t create(const char *spec)
{
	FURCA_AUTO_BUF struct furca_buf args = FURCA_BUF_INIT;
	msgpack_packer pk;
	uint64_t id = 0;

	furca_packer(&pk, &args);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "spec");
	furca_pack_text(&pk, spec);
	furca_envs_request(envs, 1, 7, FURCA_METHOD_create_env, furca_buf_view(&args));
	await(1);
	(void)furca_map_uint(last_view(), "venv_id", &id);
	return id;
}

static void ask(enum furca_method method, uint64_t id)
{
	FURCA_AUTO_BUF struct furca_buf args = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &args);
	msgpack_pack_map(&pk, id ? 1 : 0);
	if (id) {
		furca_pack_text(&pk, "venv_id");
		msgpack_pack_uint64(&pk, id);
	}
	furca_envs_request(envs, 1, 8, method, furca_buf_view(&args));
}

static bool last_is(const char *key, const char *text)
{
	struct furca_view view;

	return furca_map_text(last_view(), key, &view) && furca_view_is(view, text);
}

START_TEST(the_same_specification_is_the_same_environment)
{
	uint64_t id = create(EMPTY);

	ck_assert_uint_eq(id, 1);
	ck_assert(last_is("state", "declared"));
	ck_assert_uint_eq(create("# comment\n[project]\nname='x'\n"), id);
	ck_assert_uint_eq(create(OTHER), 2);
	stop();
	start(0);
	ck_assert_uint_eq(create(EMPTY), id);
	ck_assert(furca_env_known(envs, 2));
	ck_assert(!furca_env_known(envs, 3));
}
END_TEST

START_TEST(a_bad_specification_is_refused)
{
	ck_assert_uint_eq(create("[project]\ndependencies = ['numpy=1']\n"), 0);
	ck_assert(last_is("error_type", "validation"));
	ck_assert(last_is("state", "unchanged"));
	ck_assert_uint_eq(create("[project]\nrequires-python = '>=9'\n"), 0);
	ck_assert(last_is("error_type", "validation"));
}
END_TEST

START_TEST(many_who_ask_at_once_share_one_build)
{
	uint64_t id = create(EMPTY);

	for (int i = 0; i < 20; i++)
		ck_assert_uint_ne(furca_env_want(envs, id, 5, on_ready, NULL), 0);
	await(20);
	ck_assert_int_eq(readies, 20);
	ck_assert_int_gt(progresses, 0);
	ck_assert_int_lt(progresses, 6); /* one build's lines, told to the one client once each */
	ck_assert_ptr_nonnull(furca_env_dir(envs, id));
	/* From now on at once. */
	ck_assert_uint_eq(furca_env_want(envs, id, 5, on_ready, NULL), 0);
	ck_assert_int_eq(readies, 21);
}
END_TEST

START_TEST(a_build_survives_a_restart_and_damage_is_built_again)
{
	uint64_t id = create(EMPTY);
	char path[4200];

	(void)furca_env_want(envs, id, 0, on_ready, NULL);
	await(1);
	stop();
	start(0);
	ck_assert_ptr_nonnull(furca_env_dir(envs, id));
	ck_assert_uint_ne(furca_env_want(envs, id, 9, on_ready, NULL), 0); /* looked at whole, but not built */
	await(1);
	ck_assert_int_eq(readies, 2);
	ck_assert_int_eq(progresses, 0);
	ck_assert_int_eq(retired, 0);
	/* Seen at once: the interpreter. Seen when all is looked at: any other file. */
	(void)snprintf(path, sizeof(path), "%s/%s", built_dir, _i ? "pyvenv.cfg" : "bin/python");
	ck_assert_int_eq(unlink(path), 0);
	if (_i)
		furca_env_suspect(envs, id);
	ck_assert_uint_ne(furca_env_want(envs, id, 9, on_ready, NULL), 0);
	await(1);
	ck_assert_int_eq(readies, 3);
	ck_assert_int_eq(retired, 1);
	ck_assert_int_gt(progresses, 0);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(the_last_one_who_gives_up_cancels_the_build)
{
	uint64_t id = create(EMPTY);
	uint64_t one = furca_env_want(envs, id, 0, on_ready, NULL), two = furca_env_want(envs, id, 0, on_ready, NULL);

	furca_env_unwant(envs, one);
	furca_env_unwant(envs, one);
	await(1);
	ck_assert_int_eq(readies, 1);
	furca_env_unwant(envs, two);

	uint64_t other = create(OTHER);
	one = furca_env_want(envs, other, 0, on_ready, NULL);
	furca_env_unwant(envs, one);
	(void)furca_env_want(envs, other, 0, on_ready, NULL); /* while it is being cancelled: built anew */
	await(1);
	ck_assert_int_eq(readies, 2);
	ck_assert_int_eq(failures, 0);
}
END_TEST

START_TEST(a_failed_build_says_why_and_is_tried_again)
{
	uint64_t id = create("[project]\ndependencies = ['nothing @ file:///nonexistent/package']\n");

	ask(FURCA_METHOD_build_env, id);
	await(1);
	ck_assert(last_is("error_type", "environment"));
	(void)furca_env_want(envs, id, 0, on_ready, NULL);
	await(1);
	ck_assert_int_eq(failures, 1);
	ask(FURCA_METHOD_list_envs, 0);
	struct furca_value list, first;
	ck_assert(furca_map_get(last_view(), "envs", &list));
	struct furca_view inside = furca_value_inside(&list), text;
	ck_assert_int_eq(furca_value_next(&inside, &first), 0);
	ck_assert(furca_map_text(first.raw, "failure", &text));
	ck_assert(furca_map_text(first.raw, "state", &text) && furca_view_is(text, "failed"));
}
END_TEST

START_TEST(one_in_use_is_not_removed)
{
	uint64_t id = create(EMPTY);

	(void)furca_env_want(envs, id, 0, on_ready, NULL);
	await(1);
	furca_env_hold(envs, id);
	ask(FURCA_METHOD_remove_env, id);
	ck_assert(last_is("error_type", "limit"));
	furca_env_release(envs, id);
	ask(FURCA_METHOD_remove_env, id);
	ck_assert(!furca_env_known(envs, id));
	ck_assert_int_eq(access(built_dir, F_OK), -1);
	ck_assert_int_eq(retired, 1);
	ask(FURCA_METHOD_remove_env, id);
	ck_assert(last_is("error_type", "validation"));
	ck_assert_uint_gt(create(EMPTY), id);
}
END_TEST

START_TEST(the_least_recently_used_one_is_collected)
{
	stop();
	start(1); /* one byte: no two can stay */
	uint64_t a = create(EMPTY), b = create(OTHER);

	(void)furca_env_want(envs, a, 0, on_ready, NULL);
	await(1);
	furca_env_hold(envs, a);
	(void)furca_env_want(envs, b, 0, on_ready, NULL);
	await(1);
	ck_assert_ptr_nonnull(furca_env_dir(envs, a)); /* held */
	ck_assert_ptr_nonnull(furca_env_dir(envs, b)); /* just built */
	furca_env_hold(envs, b);
	furca_env_release(envs, a);
	ck_assert_ptr_null(furca_env_dir(envs, a));
	ck_assert_ptr_nonnull(furca_env_dir(envs, b));
	ck_assert_int_eq(retired, 1);
	(void)furca_env_want(envs, a, 0, on_ready, NULL);
	await(1);
	ck_assert_int_eq(readies, 3);
}
END_TEST

START_TEST(stopping_fails_who_waits)
{
	uint64_t id = create(EMPTY);

	(void)furca_env_want(envs, id, 0, on_ready, NULL);
	stop_after = -1;
	stop();
	ck_assert_int_eq(failures, 1);
	start(0);
	ck_assert_ptr_null(furca_env_dir(envs, id));
}
END_TEST

START_TEST(activation_puts_its_bin_first)
{
	char *base[] = {(char *)"A=1", (char *)"PATH=/x", (char *)"VIRTUAL_ENV=/old", (char *)"PYTHONHOME=/p", NULL};
	char **vars = furca_env_vars("/e", base);

	ck_assert_ptr_nonnull(vars);
	ck_assert_str_eq(vars[0], "A=1");
	ck_assert_str_eq(vars[1], "PATH=/e/bin:/x");
	ck_assert_str_eq(vars[2], "VIRTUAL_ENV=/e");
	ck_assert_ptr_null(vars[3]);
	furca_env_vars_free(vars);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_same_specification_is_the_same_environment);
	tcase_add_test(t, a_bad_specification_is_refused);
	tcase_add_test(t, many_who_ask_at_once_share_one_build);
	tcase_add_loop_test(t, a_build_survives_a_restart_and_damage_is_built_again, 0, 2);
	tcase_add_test(t, the_last_one_who_gives_up_cancels_the_build);
	tcase_add_test(t, a_failed_build_says_why_and_is_tried_again);
	tcase_add_test(t, one_in_use_is_not_removed);
	tcase_add_test(t, the_least_recently_used_one_is_collected);
	tcase_add_test(t, stopping_fails_who_waits);
	tcase_add_test(t, activation_puts_its_bin_first);
}

int main(void)
{
	return furca_test_main("env", add);
}
