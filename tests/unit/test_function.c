/* Stored functions with an engine that only notes what it is asked to call. */
#include "tests/unit/harness.h"
#include "tests/unit/spawner.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/function.h"
#include "engine/loop.h"
#include "bridge/wire/pack.h"

static struct furca_loop *loop;
static struct furca_store *store;
static struct furca_envs *envs;
static struct furca_functions *functions;
static char dir[64];
static struct furca_buf last, called, called_function;
static enum furca_frame replied;
static bool harmless;
static unsigned calls, replies;
static struct furca_function_from caller;

static void set(struct furca_buf *buf, struct furca_view view)
{
	furca_buf_clear(buf);
	ck_assert_int_eq(furca_buf_append(buf, view.at, furca_view_size(view)), 0);
	ck_assert_int_eq(furca_value_check(view, 16, 10000), 0);
}

static void on_answer(void *user, furca_client_id client, uint64_t msgid, struct furca_view result)
{
	set(&last, result);
	furca_loop_end(loop);
}

static void on_call(void *user, const struct furca_function_call *call)
{
	calls++;
	harmless = call->harmless;
	set(&called, call->args);
	set(&called_function, call->function);
}

static bool on_from(void *user, furca_function_origin origin, struct furca_view args, struct furca_function_from *ret)
{
	*ret = caller;
	return true;
}

static void on_reply(void *user, furca_function_origin origin, enum furca_frame frame, struct furca_view body,
		     struct furca_fd *memory)
{
	replies++;
	replied = frame;
	set(&last, body);
}

static void on_progress(void *user, furca_client_id client, uint64_t venv_id, const char *text)
{
}

static void on_retire(void *user, uint64_t venv_id)
{
}

static void start(void)
{
	const struct furca_envs_events env_events = {.answer = on_answer, .progress = on_progress, .retire = on_retire};
	const struct furca_functions_events events = {
		.answer = on_answer, .call = on_call, .from = on_from, .reply = on_reply};
	const struct furca_envs_config config = {.state_dir = dir, .workdir = dir};

	ck_assert_int_eq(furca_loop_new(&loop, NULL), 0);
	ck_assert_int_eq(furca_store_open(dir, &store, NULL, NULL), 0);
	ck_assert_int_eq(furca_envs_new(loop, store, &config, &spawner, &env_events, &envs, NULL), 0);
	ck_assert_int_eq(furca_functions_new(loop, store, envs, &config, &spawner, &events, &functions, NULL), 0);
}

static void on_envs_stopped(void *user)
{
	furca_loop_end(loop);
}

static void on_stopped(void *user)
{
	furca_envs_stop(envs, on_envs_stopped, NULL);
}

static void stop(void)
{
	furca_functions_stop(functions, on_stopped, NULL);
	ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
	furca_store_free(store);
	furca_loop_free(loop);
}

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/furca-fn-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	caller = (struct furca_function_from){.language = "python", .has_session = true, .session_id = 4};
	calls = replies = 0;
	start();
}

static void teardown(void)
{
	char *argv[] = {(char *)"rm", (char *)"-rf", dir, NULL};
	pid_t pid;
	int status;

	stop();
	ck_assert_int_eq(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

/* Text arguments by pairs, NULL at the end. */
static void pack_texts(struct furca_buf *out, const char *const *pairs)
{
	uint32_t n = 0;
	msgpack_packer pk;

	while (pairs[2 * n])
		n++;
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, n);
	for (uint32_t i = 0; i < 2 * n; i++)
		furca_pack_text(&pk, pairs[i]);
}

static void request(enum furca_method method, const char *const *pairs)
{
	FURCA_AUTO_BUF struct furca_buf args = FURCA_BUF_INIT;

	pack_texts(&args, pairs);
	furca_buf_clear(&last);
	furca_functions_request(functions, 1, 2, method, furca_buf_view(&args), NULL);
	if (!last.len && method == FURCA_METHOD_add_function)
		ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
}

#define ADD(name, language, source)                                                                                    \
	request(FURCA_METHOD_add_function, (const char *[]){"name", name, "language", language, "source", source, NULL})

static bool text_is(const struct furca_buf *map, const char *key, const char *text)
{
	struct furca_view view;

	return furca_map_text(furca_buf_view(map), key, &view) && furca_view_is(view, text);
}

static bool text_has(const struct furca_buf *map, const char *key, const char *part)
{
	struct furca_view view = {0};
	FURCA_AUTO_FREE char *text = furca_map_text(furca_buf_view(map), key, &view) ? furca_view_dup(view) : NULL;

	return text && strstr(text, part);
}

static bool is_ok(void)
{
	bool ok = false;

	return furca_map_bool(furca_buf_view(&last), "ok", &ok) && ok;
}

START_TEST(one_is_kept_over_a_restart)
{
	ADD("f", "python", "def f(x):\n    'Doubles.'\n    return 2 * x\n");
	ck_assert(is_ok());
	ADD("g", "bash", "# Lists.\nls \"$@\"\n");
	ck_assert(is_ok());
	stop();
	start();
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_value list, first;
	struct furca_view doc;
	ck_assert_int_eq(furca_functions_describe(functions, &out), 0);
	ck_assert_int_eq(furca_value_of(furca_buf_view(&out), &list), 0);
	ck_assert_uint_eq(list.count, 2);
	struct furca_view inside = furca_value_inside(&list);
	ck_assert_int_eq(furca_value_next(&inside, &first), 0);
	ck_assert(furca_map_text(first.raw, "doc", &doc) && furca_view_is(doc, "Doubles."));
	request(FURCA_METHOD_remove_function, (const char *[]){"name", "f", NULL});
	ck_assert(is_ok());
	request(FURCA_METHOD_call_function, (const char *[]){"name", "f", NULL});
	ck_assert(!is_ok() && text_is(&last, "error_type", "validation") && text_has(&last, "suggestion", "'g'"));
	ck_assert(text_is(&last, "stdout", ""));
	ck_assert_uint_eq(calls, 0);
}
END_TEST

static const struct {
	const char *name, *language, *source, *part;
} bad[] = {
	{"f", "python", "def f(:\n", "line 1"},		 {"f", "python", "def g(): pass\n", "does not define 'f'"},
	{"f", "python", "x = 'f'\n", "does not define"}, {"f", "bash", "if true; then\n", "not valid bash"},
	{"f", "ruby", "1", "Unknown language 'ruby'"},	 {"for", "python", "1", "word of the language"},
	{"a-b", "python", "1", "cannot be the name"},	 {"", "python", "1", "cannot be the name"},
	{"_f", "python", "1", "cannot be the name"},
};

START_TEST(bad_ones_are_refused)
{
	ADD(bad[_i].name, bad[_i].language, bad[_i].source);
	ck_assert(!is_ok());
	ck_assert(text_is(&last, "error_type", "validation"));
	ck_assert(text_is(&last, "state", "unchanged"));
	ck_assert_msg(text_has(&last, "error", bad[_i].part), "%.*s", (int)last.len, (const char *)last.data);
}
END_TEST

START_TEST(a_call_carries_its_coordinate)
{
	ADD("f", "python", "def f(): pass\n");
	request(FURCA_METHOD_call_function,
		(const char *[]){"name", "f", "session_name", "audit", "state_mode", "stateful", NULL});
	ck_assert_uint_eq(calls, 1);
	ck_assert(text_is(&called, "language", "python") && text_is(&called, "session_name", "audit") &&
		  text_is(&called, "state_mode", "stateful"));
	ck_assert(!text_is(&called, "name", "f"));
	ck_assert(text_is(&called_function, "name", "f"));
	request(FURCA_METHOD_call_function, (const char *[]){"name", "f", "session", "audit", NULL});
	ck_assert(text_is(&last, "error", "Unknown argument 'session'.") && text_has(&last, "suggestion", "session_"));
}
END_TEST

static void lane(const char *const *pairs)
{
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;

	pack_texts(&body, pairs);
	furca_functions_lane(functions, 9, furca_buf_view(&body), NULL);
}

static void finish(bool ok, const char *key, const char *text)
{
	FURCA_AUTO_BUF struct furca_buf result = FURCA_BUF_INIT;
	FURCA_AUTO_BUF struct furca_buf done = FURCA_BUF_INIT;
	msgpack_packer pk;

	furca_packer(&pk, &done);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "raised");
	if (ok)
		msgpack_pack_nil(&pk);
	else
		pack_texts(&done, (const char *[]){"type", "KeyError", "message", "'no such key'", "suggestion",
						   "Look for another.", NULL});
	furca_packer(&pk, &result);
	msgpack_pack_map(&pk, 4);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, ok);
	furca_pack_text(&pk, key);
	furca_pack_text(&pk, text);
	furca_pack_text(&pk, "error_type");
	furca_pack_text_or_nil(&pk, ok ? NULL : "exception");
	furca_pack_text(&pk, "exit_code");
	msgpack_pack_int(&pk, 0);
	furca_functions_finished(functions, 9, furca_buf_view(&result), furca_buf_view(&done), NULL);
}

START_TEST(a_lane_into_the_callers_namespace_gets_the_source)
{
	ADD("f", "python", "def f(): pass\n");
	lane((const char *[]){"name", "f", NULL});
	ck_assert_int_eq(replied, FURCA_LANE_INLINE);
	ck_assert(text_is(&last, "source", "def f(): pass\n"));
	/* Another session is another process, unless it is the caller's own. */
	lane((const char *[]){"name", "f", "session_name", "other", NULL});
	ck_assert_uint_eq(calls, 1);
	ck_assert(text_is(&called, "session_name", "other") && text_is(&called, "state_mode", "stateful") && !harmless);
	finish(true, "result", "v");
	ck_assert_int_eq(replied, FURCA_LANE_VALUE);
	ck_assert(text_is(&last, "value", "v"));
	caller.own_session = true;
	lane((const char *[]){"name", "f", "session_name", "own", NULL});
	ck_assert_int_eq(replied, FURCA_LANE_INLINE);
}
END_TEST

START_TEST(a_read_only_caller_changes_nothing)
{
	ADD("f", "python", "def f(): pass\n");
	caller.read_only = true;
	lane((const char *[]){"name", "f", "session_name", "other", NULL});
	ck_assert_int_eq(replied, FURCA_LANE_FAILED);
	ck_assert(text_is(&last, "type", "PermissionError"));
	ck_assert_uint_eq(calls, 0);
	lane((const char *[]){"name", "f", "state_mode", "stateless", NULL});
	ck_assert_uint_eq(calls, 1);
	ck_assert(harmless);
	/* Its own namespace is a copy already. */
	lane((const char *[]){"name", "f", NULL});
	ck_assert_int_eq(replied, FURCA_LANE_INLINE);
}
END_TEST

START_TEST(a_read_only_call_without_a_session_reads_the_callers)
{
	uint64_t id = 0;

	ADD("f", "python", "def f(): pass\n");
	lane((const char *[]){"name", "f", "state_mode", "read_only", NULL});
	ck_assert_uint_eq(calls, 1);
	ck_assert(furca_map_uint(furca_buf_view(&called), "session_id", &id));
	ck_assert_uint_eq(id, 4);
}
END_TEST

START_TEST(failures_keep_their_type)
{
	ADD("f", "python", "def f(): pass\n");
	lane((const char *[]){"name", "f", "state_mode", "stateless", NULL});
	finish(false, "error", "Traceback (most recent call last):\n  File \"x\", line 1\nKeyError: 'no such key'\n");
	ck_assert_int_eq(replied, FURCA_LANE_FAILED);
	ck_assert(text_is(&last, "type", "KeyError"));
	ck_assert(text_has(&last, "message", "no such key"));
	ck_assert(text_has(&last, "traceback", "line 1"));
	ck_assert(text_is(&last, "suggestion", "Look for another."));
	lane((const char *[]){"name", "f", "state_mode", "stateless", NULL});
	finish(true, "result_text", "<object>");
	ck_assert(text_is(&last, "type", "TypeError"));
	lane((const char *[]){"name", "nope", NULL});
	ck_assert(text_is(&last, "type", "LookupError"));
}
END_TEST

START_TEST(a_bash_function_gives_what_it_prints)
{
	ADD("f", "bash", "echo hi");
	lane((const char *[]){"name", "f", NULL});
	ck_assert(text_is(&called, "state_mode", "stateless") && text_is(&called, "language", "bash"));
	finish(true, "stdout", "hi\n\n");
	ck_assert_int_eq(replied, FURCA_LANE_VALUE);
	ck_assert(text_is(&last, "value", "hi"));
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, one_is_kept_over_a_restart);
	tcase_add_loop_test(t, bad_ones_are_refused, 0, (int)FURCA_COUNT(bad));
	tcase_add_test(t, a_call_carries_its_coordinate);
	tcase_add_test(t, a_lane_into_the_callers_namespace_gets_the_source);
	tcase_add_test(t, a_read_only_caller_changes_nothing);
	tcase_add_test(t, a_read_only_call_without_a_session_reads_the_callers);
	tcase_add_test(t, failures_keep_their_type);
	tcase_add_test(t, a_bash_function_gives_what_it_prints);
}

int main(void)
{
	return furca_test_main("function", add);
}
