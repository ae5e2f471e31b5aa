#include "tests/unit/harness.h"
#include "tests/unit/spawner.h"

#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "engine/loop.h"

static struct furca_loop *loop;
static struct furca_tool *tool;
static int ended, progressed, cancel_at;
static char result_text[256], error_text[FURCA_ERR_TEXT_MAX], suggestion[FURCA_ERR_TEXT_MAX], last_progress[64];
static enum furca_err_code code;
static double timeout_s;

static void setup(void)
{
	ck_assert_int_eq(furca_loop_new(&loop, NULL), 0);
	ended = progressed = cancel_at = 0;
	timeout_s = 0;
	code = FURCA_OK;
	result_text[0] = error_text[0] = 0;
}

static void teardown(void)
{
	int status;

	furca_loop_free(loop);
	while (waitpid(-1, &status, WNOHANG) > 0)
		;
	ck_assert_int_eq(waitpid(-1, &status, 0), -1); /* none is left */
}

static void on_progress(void *user, const char *text)
{
	(void)snprintf(last_progress, sizeof(last_progress), "%s", text);
	if (++progressed == cancel_at)
		furca_tool_cancel(tool);
}

static void on_done(void *user, json_t *result, const struct furca_err *err, json_t *report)
{
	char *text = json_dumps(result, JSON_ENCODE_ANY);

	ended++;
	ck_assert((result == NULL) == (err != NULL));
	(void)snprintf(result_text, sizeof(result_text), "%s", text ? text : "");
	free(text);
	if (err) {
		code = err->code;
		(void)snprintf(error_text, sizeof(error_text), "%s", err->text);
		(void)snprintf(suggestion, sizeof(suggestion), "%s", furca_err_suggestion(err));
	}
	furca_loop_end(loop);
}

static void run(const char *script, const char *request)
{
	char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
	struct furca_tool_request r = {.argv = argv,
				       .cwd = "/",
				       .request = request,
				       .timeout_s = timeout_s,
				       .progress = on_progress,
				       .done = on_done};

	ck_assert_int_eq(furca_tool_start(loop, &spawner, &r, &tool, NULL), 0);
	ck_assert_int_eq(ended, 0);
	ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
	ck_assert_int_eq(ended, 1);
}

START_TEST(the_request_arrives_and_the_result_comes_back)
{
	run("read -r line <&3; echo '{\"progress\":\"half\"}' >&3; echo \"{\\\"result\\\": $line}\" >&3",
	    "[1,\"a b\"]");
	ck_assert_str_eq(result_text, "[1, \"a b\"]");
	ck_assert_int_eq(progressed, 1);
	ck_assert_str_eq(last_progress, "half");
}
END_TEST

START_TEST(an_error_keeps_its_type_and_suggestion)
{
	run("echo '{\"error\":\"bad\",\"type\":\"validation\",\"suggestion\":\"change it\"}' >&3", "1");
	ck_assert_int_eq(code, FURCA_E_VALIDATION);
	ck_assert_str_eq(error_text, "bad");
	ck_assert_str_eq(suggestion, "change it");
}
END_TEST

START_TEST(a_death_without_an_answer_is_an_error)
{
	run("echo '{\"progress\":\"x\"}' >&3; kill -9 $$", "1");
	ck_assert_int_eq(code, FURCA_E_ENVIRONMENT);
}
END_TEST

START_TEST(a_program_that_is_not_there_is_an_error)
{
	char *argv[] = {(char *)"/nonexistent/program", NULL};
	struct furca_tool_request r = {.argv = argv, .cwd = "/", .request = "1", .done = on_done};

	ck_assert_int_eq(furca_tool_start(loop, &spawner, &r, &tool, NULL), 0);
	ck_assert_int_eq(furca_loop_run(loop, NULL), 0);
	ck_assert_int_eq(code, FURCA_E_SYSTEM);
}
END_TEST

/* One that heeds the end of its channel, and one that does not. */
START_TEST(a_cancelled_one_ends)
{
	int64_t before = furca_now_us();

	cancel_at = 1;
	run(_i ? "echo '{\"progress\":\"x\"}' >&3; exec sleep 60"
	       : "read -r l <&3; echo '{\"progress\":\"x\"}' >&3; read -r l <&3; exit 0",
	    "1");
	ck_assert_int_ne(code, FURCA_OK);
	ck_assert_int_lt(furca_now_us() - before, _i ? 10000000 : FURCA_TOOL_GRACE_US);
}
END_TEST

/* One that heeds it, one that does not, and one that has answered in time. */
START_TEST(one_whose_time_is_over_ends)
{
	static const char *const script[] = {"read -r l <&3; read -r l <&3; exit 0", "exec sleep 60",
					     "echo '{\"result\":1}' >&3"};
	int64_t before = furca_now_us();

	timeout_s = 0.3;
	run(script[_i], "1");
	ck_assert_int_eq(code, _i == 2 ? FURCA_OK : FURCA_E_TIMEOUT);
	ck_assert_str_eq(error_text, _i == 2 ? "" : "the helper program did not end within 0.3 seconds");
	ck_assert_int_lt(furca_now_us() - before, _i == 1 ? 10000000 : 300000 + FURCA_TOOL_GRACE_US);
	ck_assert(_i == 2 || furca_now_us() - before >= 300000);
}
END_TEST

START_TEST(a_line_without_end_is_bounded)
{
	run("head -c 6000000 /dev/zero | tr '\\0' x >&3; echo >&3", "1");
	ck_assert_int_eq(code, FURCA_E_LIMIT);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_request_arrives_and_the_result_comes_back);
	tcase_add_test(t, an_error_keeps_its_type_and_suggestion);
	tcase_add_test(t, a_death_without_an_answer_is_an_error);
	tcase_add_test(t, a_program_that_is_not_there_is_an_error);
	tcase_add_loop_test(t, a_cancelled_one_ends, 0, 2);
	tcase_add_loop_test(t, one_whose_time_is_over_ends, 0, 3);
	tcase_add_test(t, a_line_without_end_is_bounded);
}

int main(void)
{
	return furca_test_main("tool", add);
}
