#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/coordinate.h"
#include "bridge/wire/pack.h"
#include "snapshot/clone.h"

#include "tests/unit/harness.h"

static struct furca_registry registry;
static struct furca_entry python0, python1, bash1, venv1;

static bool venv_known(void *user, uint64_t venv)
{
	return venv == 7;
}

static const struct furca_coordinates at = {
	.registry = &registry, .default_timeout_us = 5000000, .venv_known = venv_known};

static void add(struct furca_entry *entry, const char *language, uint64_t venv, uint64_t id, const char *name)
{
	memset(entry, 0, sizeof(*entry));
	entry->key = (struct furca_key){furca_lang_find(language, strlen(language)), venv, id};
	ck_assert_int_eq(furca_registry_add(&registry, entry, NULL), 0);
	if (name)
		ck_assert_int_eq(furca_registry_bind(&registry, entry, furca_text_view(name)), 0);
}

static void setup(void)
{
	furca_registry_init(&registry, 4);
	add(&python0, "python", 0, 0, NULL);
	add(&python1, "python", 0, 1, "audit");
	add(&bash1, "bash", 0, 1, "shell");
	add(&venv1, "python", 7, 1, "old");
}

static void pack_json(msgpack_packer *pk, json_t *j)
{
	const char *key;
	json_t *item;
	size_t i;

	if (json_is_object(j)) {
		msgpack_pack_map(pk, json_object_size(j));
		json_object_foreach (j, key, item) {
			furca_pack_text(pk, key);
			pack_json(pk, item);
		}
	} else if (json_is_array(j)) {
		msgpack_pack_array(pk, json_array_size(j));
		json_array_foreach (j, i, item)
			pack_json(pk, item);
	} else if (json_is_string(j)) {
		furca_pack_bytes(pk, json_string_value(j), json_string_length(j));
	} else if (json_is_integer(j)) {
		msgpack_pack_int64(pk, json_integer_value(j));
	} else if (json_is_real(j)) {
		msgpack_pack_double(pk, json_real_value(j));
	} else if (json_is_null(j)) {
		msgpack_pack_nil(pk);
	} else {
		furca_pack_bool(pk, json_is_true(j));
	}
}

/* Arguments as JSON, packed; kept until the next call. */
static struct furca_view args_of(const char *json)
{
	static struct furca_buf buf;
	msgpack_packer pk;
	json_error_t error;
	json_t *j = json_loads(json, JSON_ALLOW_NUL, &error);

	ck_assert_msg(j != NULL, "%s: %s", json, error.text);
	furca_buf_clear(&buf);
	furca_packer(&pk, &buf);
	pack_json(&pk, j);
	json_decref(j);
	return furca_buf_view(&buf);
}

/* In the order of the protocol: the first thing wrong is what is told. */
static const struct {
	const char *args, *error, *suggestion;
} refused[] = {
	{"{\"codee\": \"1\", \"language\": \"ruby\"}", "Unknown argument 'codee'", "code"},
	{"{\"code\": \"1\", \"language\": \"ruby\", \"state_mode\": \"frozen\"}", "Unknown language 'ruby'", "bash"},
	{"{\"code\": \"1\"}", "'language' is missing", "python"},
	{"{\"code\": 1, \"language\": \"python\", \"state_mode\": \"frozen\"}", "Unknown state_mode 'frozen'",
	 "read_only"},
	{"{\"code\": 1, \"language\": \"python\", \"venv_id\": 4}", "'code' must be text", NULL},
	{"{\"language\": \"python\"}", "'code' is missing", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": -1}", "'session_id' must be an integer from 0 up",
	 NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": true}", "'session_id' must be", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": 1.0}", "'session_id' must be", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"\"}", "'session_name' must be a name", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"a\\nb\"}", "'session_name' must be a name",
	 NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"timeout_s\": 0}", "'timeout_s' must be a number above 0", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"timeout_s\": \"5\"}", "'timeout_s' must be", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"on_error\": \"stop\"}", "Unknown on_error 'stop'", "rollback"},
	{"{\"code\": \"1\", \"language\": \"python\", \"limits\": {\"memory\": 1}}", "Unknown limit 'memory'",
	 "memory_bytes"},
	{"{\"code\": \"1\", \"language\": \"python\", \"limits\": {\"processes\": 0}}", "limits.processes", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"max_output_bytes\": 99999999999}", "from 0 to", "read_output"},
	{"{\"code\": \"1\", \"language\": \"python\", \"env_vars\": {\"A=B\": \"1\"}}", "'env_vars' must be", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"isolation\": {\"disc\": \"allow\"}}", "Unknown barrier 'disc'",
	 "disk"},
	{"{\"code\": \"1\", \"language\": \"python\", \"isolation\": {\"disk\": \"allow\"}}",
	 "'isolation' is for state_mode='read_only'", NULL},
	{"{\"code\": \"a\\u0000b\", \"language\": \"python\"}", "NUL", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"venv_id\": 4, \"state_mode\": \"stateless\", \"session_id\": 1}",
	 "no environment 4", "create_env"},
	{"{\"code\": \"1\", \"language\": \"python\", \"venv_id\": 0}", "no environment 0", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"stateless\", \"session_id\": 0}",
	 "Cannot use state_mode='stateless' with a session.", "session_id"},
	{"{\"code\": \"1\", \"language\": \"bash\", \"session_id\": 0}",
	 "Cannot use state_mode='stateless' with a session.", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\"}",
	 "Cannot use state_mode='read_only' without specifying a session.", "must refer to an existing session"},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": 0, \"session_name\": \"audit\"}",
	 "different sessions", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": 9, \"session_name\": \"audit\"}",
	 "different sessions", NULL},
	{"{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\", \"session_name\": \"nope\"}",
	 "no session named 'nope'", "stateful"},
	{"{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\", \"session_id\": 5}",
	 "no python session 5", "session"},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"shell\"}", "belongs to another language",
	 "bash"},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"old\"}",
	 "belongs to another language or environment", "venv_id=7"},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"new\"}", "4 sessions exist", "close_session"},
	{"{\"code\": \"1\", \"language\": \"python\", \"session_id\": 2}", "4 sessions exist", NULL},
	{"[]", "one map", NULL},
};

START_TEST(refusals)
{
	struct furca_plan plan;
	struct furca_err err = FURCA_ERR_INIT;

	setup();
	ck_assert_int_lt(furca_coordinate_plan(&at, args_of(refused[_i].args), false, &plan, &err), 0);
	ck_assert_int_eq(err.code, FURCA_E_VALIDATION);
	ck_assert_msg(strstr(err.text, refused[_i].error) != NULL, "%s gave: %s", refused[_i].args, err.text);
	ck_assert(furca_err_suggestion(&err)[0] != '\0');
	if (refused[_i].suggestion)
		ck_assert_msg(strstr(furca_err_suggestion(&err), refused[_i].suggestion) != NULL, "%s suggested: %s",
			      refused[_i].args, furca_err_suggestion(&err));
}
END_TEST

static struct furca_plan plan_of(const char *json)
{
	struct furca_plan plan;
	struct furca_err err = FURCA_ERR_INIT;

	int r = furca_coordinate_plan(&at, args_of(json), false, &plan, &err);
	ck_assert_msg(r == 0, "%s: %s", json, err.text);
	return plan;
}

START_TEST(defaults)
{
	setup();
	struct furca_plan p =
		plan_of("{\"code\": \"1\", \"language\": \"python\", \"session_id\": null, \"venv_id\": null}");

	ck_assert_int_eq(p.mode, FURCA_STATEFUL);
	ck_assert_int_eq(p.timeout_us, 5000000);
	ck_assert_uint_eq(p.max_output, FURCA_DEFAULT_OUTPUT);
	ck_assert(!p.has_id && !p.name.at && !p.blank && !p.rollback && p.venv == 0);
	ck_assert_int_eq(p.retry, FURCA_RETRY_SAFE);
	ck_assert_int_eq(plan_of("{\"code\": \"1\", \"language\": \"bash\"}").mode, FURCA_STATELESS);
	ck_assert_int_eq(plan_of("{\"code\": \"1\", \"language\": \"python\", \"venv_id\": 7}").mode, FURCA_STATELESS);
	ck_assert(plan_of("{\"code\": \" \\n\\t\", \"language\": \"python\"}").blank);
	ck_assert(plan_of("{\"code\": \"\", \"language\": \"python\", \"session_name\": \"new\"}")
			  .blank); /* creates nothing */
}
END_TEST

START_TEST(sessions_are_found)
{
	struct furca_plan p;
	uint64_t id = 99;

	setup();
	p = plan_of("{\"code\": \"1\", \"language\": \"python\"}");
	ck_assert_ptr_eq(furca_coordinate_session(&at, &p, &id), &python0);
	p = plan_of("{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"audit\"}");
	ck_assert_ptr_eq(furca_coordinate_session(&at, &p, &id), &python1);
	p = plan_of(
		"{\"code\": \"1\", \"language\": \"python\", \"session_id\": 1, \"session_name\": \"books\"}"); /* a further name */
	ck_assert_ptr_eq(furca_coordinate_session(&at, &p, &id), &python1);
	p = plan_of(
		"{\"code\": \"1\", \"language\": \"python\", \"venv_id\": 7, \"state_mode\": \"read_only\", \"session_id\": 1}");
	ck_assert_ptr_eq(furca_coordinate_session(&at, &p, &id), &venv1);
	registry.max = 20;
	p = plan_of("{\"code\": \"1\", \"language\": \"python\", \"session_name\": \"new\"}");
	ck_assert_ptr_null(furca_coordinate_session(&at, &p, &id));
	ck_assert_uint_eq(id, 2);
	p = plan_of("{\"code\": \"1\", \"language\": \"python\", \"session_id\": 8, \"session_name\": \"new\"}");
	ck_assert_ptr_null(furca_coordinate_session(&at, &p, &id));
	ck_assert_uint_eq(id, 8);
}
END_TEST

START_TEST(isolation)
{
	setup();
	struct furca_plan p = plan_of(
		"{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\", \"session_id\": 0}");

	ck_assert_uint_eq(p.required, FURCA_BARRIER_MEMORY | FURCA_BARRIER_DISK | FURCA_BARRIER_DESCRIPTORS |
					      FURCA_BARRIER_PROCESSES);
	p = plan_of("{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\", \"session_id\": 0,"
		    "\"isolation\": {\"disk\": \"allow\", \"network\": \"allow\", \"require\": [\"threads\"]}}");
	ck_assert_uint_eq(p.required, FURCA_BARRIER_MEMORY | FURCA_BARRIER_DESCRIPTORS | FURCA_BARRIER_PROCESSES |
					      FURCA_BARRIER_THREADS);
	ck_assert(p.network);
	struct furca_coordinates strict = at;
	strict.required = FURCA_BARRIER_DISK | FURCA_BARRIER_NETWORK;
	ck_assert_int_eq(furca_coordinate_plan(
				 &strict,
				 args_of("{\"code\": \"1\", \"language\": \"python\", \"state_mode\": \"read_only\","
					 "\"session_id\": 0, \"isolation\": {\"disk\": \"allow\"}}"),
				 false, &p, NULL),
			 0);
	ck_assert(p.required & FURCA_BARRIER_DISK); /* the configured minimum cannot be waived */
	ck_assert(p.required & FURCA_BARRIER_NETWORK);
}
END_TEST

START_TEST(selectors)
{
	struct furca_selector s;
	struct furca_err err = FURCA_ERR_INIT;
	bool missing;

	setup();
	ck_assert_int_eq(
		furca_coordinate_select(FURCA_METHOD_close_session, args_of("{\"session_name\": \"audit\"}"), &s, NULL),
		0);
	ck_assert_ptr_eq(furca_coordinate_find(&registry, &s, &missing, NULL), &python1);
	ck_assert_int_eq(furca_coordinate_select(FURCA_METHOD_close_session, args_of("{\"session_id\": 0}"), &s, NULL),
			 0);
	ck_assert_ptr_eq(furca_coordinate_find(&registry, &s, &missing, NULL), &python0);
	ck_assert_int_eq(furca_coordinate_select(FURCA_METHOD_close_session, args_of("{\"session_id\": 1}"), &s, NULL),
			 0);
	ck_assert_ptr_null(furca_coordinate_find(&registry, &s, &missing, &err)); /* python and bash have one */
	ck_assert(!missing);
	ck_assert_ptr_nonnull(strstr(furca_err_suggestion(&err), "language"));
	ck_assert_int_eq(furca_coordinate_select(FURCA_METHOD_close_session,
						 args_of("{\"session_id\": 1, \"language\": \"bash\"}"), &s, NULL),
			 0);
	ck_assert_ptr_eq(furca_coordinate_find(&registry, &s, &missing, NULL), &bash1);
	ck_assert_int_eq(
		furca_coordinate_select(FURCA_METHOD_close_session, args_of("{\"session_name\": \"nope\"}"), &s, NULL),
		0);
	ck_assert_ptr_null(furca_coordinate_find(&registry, &s, &missing, NULL));
	ck_assert(missing);
	ck_assert_int_eq(furca_coordinate_select(FURCA_METHOD_close_session, args_of("{}"), &s, NULL), 0);
	ck_assert_ptr_null(furca_coordinate_find(&registry, &s, &missing, NULL));
	ck_assert(!missing);
	err = FURCA_ERR_INIT;
	ck_assert_int_lt(
		furca_coordinate_select(FURCA_METHOD_undo, args_of("{\"session_id\": 1, \"step\": 2}"), &s, &err), 0);
	ck_assert_ptr_nonnull(strstr(furca_err_suggestion(&err), "'steps'"));
	ck_assert_int_lt(
		furca_coordinate_select(FURCA_METHOD_undo, args_of("{\"session_id\": 1, \"steps\": 0}"), &s, NULL), 0);
	ck_assert_int_lt(furca_coordinate_select(FURCA_METHOD_cancel, args_of("{}"), &s, NULL), 0);
	ck_assert_int_lt(furca_coordinate_select(FURCA_METHOD_stats, args_of("{\"x\": 1}"), &s, NULL), 0);
}
END_TEST

START_TEST(received_is_bounded)
{
	struct furca_buf out = FURCA_BUF_INIT, json = FURCA_BUF_INIT;
	struct furca_plan plan;

	setup();
	(void)furca_buf_append_text(
		&json, "{\"language\": \"python\", \"state_mode\": null, \"session_name\": \"new\", \"code\": \"");
	for (int i = 0; i < 10000; i++)
		(void)furca_buf_append_text(&json, "xy");
	(void)furca_buf_append(&json, "\"}", 3);
	struct furca_view args = args_of((char *)json.data);
	ck_assert_int_lt(furca_coordinate_plan(&at, args, false, &plan, NULL), 0);
	furca_coordinate_received(args, &plan, &out);
	ck_assert_uint_lt(out.len, 1200);
	struct furca_view map = {out.data, out.data + out.len}, mode;
	ck_assert_int_eq(furca_value_check(map, 8, 100), 0);
	ck_assert(furca_map_text(map, "state_mode", &mode) && furca_view_is(mode, "stateful"));
	furca_buf_done(&out);
	furca_buf_done(&json);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_loop_test(t, refusals, 0, (int)(sizeof(refused) / sizeof(*refused)));
	tcase_add_test(t, defaults);
	tcase_add_test(t, sessions_are_found);
	tcase_add_test(t, isolation);
	tcase_add_test(t, selectors);
	tcase_add_test(t, received_is_bounded);
}

int main(void)
{
	return furca_test_main("coordinate", add_tests);
}
