#include "engine/coordinate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "bridge/wire/advice.h"
#include "bridge/wire/pack.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define RECEIVED_TEXT 1000 /* bytes of one text in `received` */

static const char *const mode_words[] = {
	[FURCA_STATELESS] = "stateless", [FURCA_STATEFUL] = "stateful", [FURCA_READ_ONLY] = "read_only"};

const char *furca_mode_word(enum furca_mode mode)
{
	return mode_words[mode];
}

/* The arguments that are looked at out of their turn, by their places in the table below; and how many there are. */
enum { CODE, LANGUAGE, STATE_MODE, ARGUMENTS = 16 };

/* How a request is being read. */
struct reading {
	const struct furca_coordinates *at;
	struct furca_plan *plan;
	struct furca_value given[ARGUMENTS]; /* nil: not given */
	bool mode_given, isolation_given;
};

typedef int read_fn(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err);

static int read_text(const char *key, const struct furca_value *v, size_t max, struct furca_view *ret,
		     struct furca_err *err)
{
	bool code = strcmp(key, "code") == 0;

	if (v->kind != FURCA_STR || !furca_view_is_utf8(v->bytes))
		return code ? furca_refuse_needed(err, key, "text", "''") : furca_refuse_value(err, key, "text");
	if (furca_view_size(v->bytes) > max && code)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Put the text into a file and run that, for example code='exec(open(\"FILE\").read())'; in bash: '. FILE'.",
			"The argument '%s' has %zu bytes; at most %zu are allowed.", key, furca_view_size(v->bytes),
			max);
	if (furca_view_size(v->bytes) > max) {
		char what[64];

		(void)snprintf(what, sizeof(what), "text of at most %zu bytes", max);
		return furca_refuse_value(err, key, what);
	}
	*ret = v->bytes;
	return 0;
}

static int read_id(const char *key, const struct furca_value *v, uint64_t *ret, struct furca_err *err)
{
	if (v->kind != FURCA_UINT || v->u > INT64_MAX)
		return furca_refuse_value(err, key, "an integer from 0 up");
	*ret = v->u;
	return 0;
}

static int read_number(const char *key, const struct furca_value *v, double *ret, struct furca_err *err)
{
	if (v->kind == FURCA_FLOAT)
		*ret = v->f;
	else if (v->kind == FURCA_UINT)
		*ret = (double)v->u;
	else
		return furca_refuse_value(err, key, "a number above 0");
	return isfinite(*ret) && *ret > 0 ? 0 : furca_refuse_value(err, key, "a number above 0");
}

/* One of some words. */
static int read_word(const char *key, const struct furca_value *v, const char *const *words, size_t n, int *ret,
		     struct furca_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (v->kind == FURCA_STR && furca_view_is(v->bytes, words[i])) {
			*ret = (int)i;
			return 0;
		}
	return furca_refuse_word(err, key, v, words, n, false);
}

static int read_bool(const char *key, const struct furca_value *v, bool *ret, struct furca_err *err)
{
	if (v->kind != FURCA_BOOL)
		return furca_refuse_value(err, key, "true or false");
	*ret = v->b;
	return 0;
}

static bool blank(struct furca_view code)
{
	for (const uint8_t *p = code.at; p < code.end; p++)
		if (!strchr(" \t\r\n\f\v", *p) || *p == '\0')
			return false;
	return true;
}

static int arg_code(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	int rc = read_text(key, v, FURCA_MAX_CODE, &r->plan->code, err);

	if (rc == 0 && memchr(r->plan->code.at, 0, furca_view_size(r->plan->code)))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Remove '\\u0000' from code.",
					  "The argument 'code' contains a NUL character.");
	r->plan->blank = rc == 0 && blank(r->plan->code);
	return rc;
}

static int arg_session_id(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	r->plan->has_id = true;
	return read_id(key, v, &r->plan->id, err);
}

/* 1 to 64 printable characters: no control characters, no line or paragraph separators, not only blanks. */
bool furca_coordinate_good_name(struct furca_view name)
{
	size_t characters = 0;
	bool ink = false;

	for (const uint8_t *p = name.at; p < name.end; p++) {
		if (*p < 0x20 || *p == 0x7f)
			return false;
		if (*p == 0xc2 && p + 1 < name.end && p[1] >= 0x80 && p[1] <= 0x9f)
			return false; /* C1 */
		if (*p == 0xe2 && p + 2 < name.end && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
			return false;
		characters += (*p & 0xc0) != 0x80;
		ink = ink || *p != ' ';
	}
	return ink && characters <= FURCA_MAX_NAME;
}

static int read_name(const char *key, const struct furca_value *v, struct furca_view *ret, struct furca_err *err)
{
	if (v->kind != FURCA_STR || !furca_view_is_utf8(v->bytes) || !furca_coordinate_good_name(v->bytes))
		return furca_refuse_value(err, key, "a name of 1 to 64 printable characters");
	*ret = v->bytes;
	return 0;
}

static int arg_session_name(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	return read_name(key, v, &r->plan->name, err);
}

static int arg_venv_id(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	int rc = read_id(key, v, &r->plan->venv, err);

	/* 0 names no environment; it is looked up like any other and found unknown. */
	if (rc == 0 && r->plan->venv == 0)
		r->plan->venv = UINT64_MAX;
	return rc;
}

static int arg_timeout(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	double s = 0;
	int rc = read_number(key, v, &s, err);

	if (rc == 0)
		r->plan->timeout_us = s > 1e9 ? (int64_t)1e15 : FURCA_MAX((int64_t)(s * 1e6), 1);
	return rc;
}

static int arg_on_error(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	static const char *const words[] = {"keep", "rollback"};
	int n = 0, rc = read_word(key, v, words, FURCA_COUNT(words), &n, err);

	r->plan->rollback = n == 1;
	return rc;
}

static int arg_retry(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	static const char *const words[] = {
		[FURCA_RETRY_SAFE] = "safe", [FURCA_RETRY_ALWAYS] = "always", [FURCA_RETRY_NEVER] = "never"};
	int n = 0, rc = read_word(key, v, words, FURCA_COUNT(words), &n, err);

	r->plan->retry = (enum furca_retry)n;
	return rc;
}

static int refuse_few_files(const char *path, struct furca_err *err)
{
	char what[96];

	(void)snprintf(what, sizeof(what), "an integer from %d up (a process needs some before any code runs)",
		       FURCA_MIN_OPEN_FILES);
	return furca_refuse_value(err, path, what);
}

static int arg_limits(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	static const char *const known[] = {"memory_bytes", "cpu_s", "processes", "open_files"};
	assert(r->plan);
	struct furca_limits *l = &r->plan->limits;
	uint64_t *const whole[] = {&l->memory_bytes, NULL, &l->processes, &l->open_files};
	struct furca_value k, item;

	if (v->kind != FURCA_MAP)
		return furca_refuse_value(err, key, "a map of limits");
	struct furca_view inside = furca_value_inside(v);
	for (uint32_t i = 0; i < v->count; i++) {
		size_t n = 0;
		char path[64];

		if (furca_value_next(&inside, &k) < 0 || furca_value_next(&inside, &item) < 0 || k.kind != FURCA_STR)
			return furca_refuse_value(err, key, "a map of limits");
		while (n < FURCA_COUNT(known) && !furca_view_is(k.bytes, known[n]))
			n++;
		if (n == FURCA_COUNT(known))
			return furca_refuse_unknown(err, "limit", k.bytes, known, n, v->raw);
		if (item.kind == FURCA_NIL)
			continue;
		(void)snprintf(path, sizeof(path), "limits.%s", known[n]);
		if (!whole[n]) {
			int rc = read_number(path, &item, &l->cpu_s, err);
			if (rc < 0)
				return rc;
		} else {
			if (item.kind != FURCA_UINT || item.u == 0 || item.u > INT64_MAX)
				return furca_refuse_value(err, path, "an integer above 0");
			if (whole[n] == &l->open_files && item.u < FURCA_MIN_OPEN_FILES)
				return refuse_few_files(path, err);
			*whole[n] = item.u;
		}
		r->plan->has_limits = true;
	}
	return 0;
}

static int arg_cwd(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	int rc = read_text(key, v, 4095, &r->plan->cwd, err);

	if (rc == 0 &&
	    (furca_view_size(r->plan->cwd) == 0 || memchr(r->plan->cwd.at, 0, furca_view_size(r->plan->cwd))))
		return furca_refuse_value(err, key, "a path");
	return rc;
}

static int arg_env_vars(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	struct furca_value k, item;

	if (v->kind != FURCA_MAP)
		return furca_refuse_value(err, key, "a map from names to text (or null, to unset)");
	if (v->count > FURCA_MAX_ENV_VARS)
		return furca_refuse_value(err, key, "a map of at most 1024 variables");
	struct furca_view inside = furca_value_inside(v);
	for (uint32_t i = 0; i < v->count; i++) {
		if (furca_value_next(&inside, &k) < 0 || furca_value_next(&inside, &item) < 0)
			return furca_refuse_value(err, key, "a map");
		if (k.kind != FURCA_STR || furca_view_size(k.bytes) == 0 ||
		    memchr(k.bytes.at, '=', furca_view_size(k.bytes)) ||
		    memchr(k.bytes.at, 0, furca_view_size(k.bytes)) ||
		    (item.kind != FURCA_STR && item.kind != FURCA_NIL))
			return furca_refuse_value(err, key, "a map from names (without '=') to text, or null to unset");
		/* NAME=value and its NUL: more of one the kernel gives no program. */
		if (furca_view_size(k.bytes) + furca_view_size(item.bytes) + 2 > FURCA_MAX_ENV_VAR ||
		    (item.kind == FURCA_STR && memchr(item.bytes.at, 0, furca_view_size(item.bytes))))
			return furca_refuse_value(err, key,
						  "a map of text without NUL, at most 128 KiB each with its name");
	}
	r->plan->env_vars = v->raw;
	return 0;
}

static int arg_max_output(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	if (v->kind != FURCA_UINT || v->u > FURCA_MAX_OUTPUT)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Remove max_output_bytes, or give a number from 0 to 67108864; read_output gives what is left out.",
			"The argument '%s' must be an integer from 0 to %u.", key, FURCA_MAX_OUTPUT);
	r->plan->max_output = (size_t)v->u;
	return 0;
}

static int arg_within(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	if (v->kind != FURCA_UINT)
		return furca_refuse_value(err, key,
					  "the call_id of the capability call that is being served, or 0 for none");
	r->plan->within_given = true;
	r->plan->within = v->u;
	return 0;
}

static int arg_stream(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	return read_bool(key, v, &r->plan->stream, err);
}

static int add_required(struct reading *r, const struct furca_value *list, struct furca_err *err)
{
	struct furca_view inside = furca_value_inside(list);
	const char *words[FURCA_BARRIERS];
	struct furca_value item;

	for (int i = 0; i < FURCA_BARRIERS; i++)
		words[i] = furca_barrier_word(i);
	if (list->kind != FURCA_ARRAY)
		return furca_refuse_value(err, "isolation.require", "a list of barriers");
	for (uint32_t i = 0; i < list->count; i++) {
		if (furca_value_next(&inside, &item) < 0 || item.kind != FURCA_STR)
			return furca_refuse_value(err, "isolation.require", "a list of barriers");
		int bit = furca_barrier_bit((const char *)item.bytes.at, furca_view_size(item.bytes));
		if (bit < 0)
			return furca_refuse_unknown(err, "barrier", item.bytes, words, FURCA_BARRIERS,
						    (struct furca_view){0});
		r->plan->required |= 1U << bit;
	}
	return 0;
}

static int arg_isolation(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	const char *known[FURCA_BARRIERS + 1];
	struct furca_value k, item;

	for (int i = 0; i < FURCA_BARRIERS; i++)
		known[i] = furca_barrier_word(i);
	known[FURCA_BARRIERS] = "require";
	if (v->kind != FURCA_MAP)
		return furca_refuse_value(err, key, "a map such as {\"network\": \"allow\"}");
	r->isolation_given = v->count > 0;
	struct furca_view inside = furca_value_inside(v);
	for (uint32_t i = 0; i < v->count; i++) {
		if (furca_value_next(&inside, &k) < 0 || furca_value_next(&inside, &item) < 0 || k.kind != FURCA_STR)
			return furca_refuse_value(err, key, "a map");
		if (furca_view_is(k.bytes, "require")) {
			int rc = item.kind == FURCA_NIL ? 0 : add_required(r, &item, err);
			if (rc < 0)
				return rc;
			continue;
		}
		char advice[128];
		int bit = furca_barrier_bit((const char *)k.bytes.at, furca_view_size(k.bytes));
		if (bit < 0)
			return furca_refuse_unknown(err, "barrier", k.bytes, known, FURCA_COUNT(known), v->raw);
		if (item.kind == FURCA_NIL || (item.kind == FURCA_STR && furca_view_is(item.bytes, "deny")))
			continue;
		(void)snprintf(advice, sizeof(advice),
			       "Remove isolation.%s, or waive the barrier with isolation.%s='allow'.", known[bit],
			       known[bit]);
		if (item.kind != FURCA_STR || !furca_view_is(item.bytes, "allow"))
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice,
						  "The argument 'isolation.%s' must be \"allow\" or \"deny\".",
						  known[bit]);
		r->plan->waived |= 1U << bit;
	}
	return 0;
}

/* language and state_mode are read before the others; here they are known only. */
static int arg_known(struct reading *r, const char *key, const struct furca_value *v, struct furca_err *err)
{
	return 0;
}

static const struct argument {
	const char *key;
	read_fn *read;
} arguments[ARGUMENTS] = {
	[CODE] = {"code", arg_code},
	[LANGUAGE] = {"language", arg_known},
	[STATE_MODE] = {"state_mode", arg_known},
	{"session_id", arg_session_id},
	{"session_name", arg_session_name},
	{"venv_id", arg_venv_id},
	{"timeout_s", arg_timeout},
	{"on_error", arg_on_error},
	{"retry", arg_retry},
	{"limits", arg_limits},
	{"cwd", arg_cwd},
	{"env_vars", arg_env_vars},
	{"max_output_bytes", arg_max_output},
	{"stream", arg_stream},
	{"isolation", arg_isolation},
	{"within", arg_within},
};

/* Takes the values of the map, in one walk. */
static int take_values(struct reading *r, struct furca_view args, struct furca_err *err)
{
	const char *known[ARGUMENTS];
	struct furca_value map, key, item;

	for (size_t i = 0; i < ARGUMENTS; i++)
		known[i] = arguments[i].key;
	if (furca_value_of(args, &map) < 0 || map.kind != FURCA_MAP)
		return furca_fail(err, FURCA_E_VALIDATION, 0, "The arguments must be one map.");
	struct furca_view inside = furca_value_inside(&map);
	for (uint32_t i = 0; i < map.count; i++) {
		size_t at = 0;

		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &item) < 0 ||
		    key.kind != FURCA_STR)
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
						  "Remove every argument whose name is no text.",
						  "The arguments' names must be text.");
		while (at < ARGUMENTS && !furca_view_is(key.bytes, known[at]))
			at++;
		if (at == ARGUMENTS)
			return furca_refuse_unknown(err, "argument", key.bytes, known, ARGUMENTS, args);
		r->given[at] = item;
	}
	return 0;
}

static int read_language(struct reading *r, struct furca_err *err)
{
	const struct furca_value *v = &r->given[LANGUAGE];
	const char *words[16];
	size_t n = 0;

	if (v->kind == FURCA_STR)
		r->plan->lang = furca_lang_find((const char *)v->bytes.at, furca_view_size(v->bytes));
	if (r->plan->lang)
		return 0;
	for (; n < FURCA_COUNT(words) && furca_lang_at(n); n++)
		words[n] = furca_lang_at(n)->name;
	return furca_refuse_word(err, "language", v->kind == FURCA_NIL ? NULL : v, words, n, true);
}

static int read_mode(struct reading *r, struct furca_err *err)
{
	int n = 0;

	if (r->given[STATE_MODE].kind == FURCA_NIL)
		return 0;
	int rc = read_word("state_mode", &r->given[STATE_MODE], mode_words, FURCA_COUNT(mode_words), &n, err);
	r->plan->mode = (enum furca_mode)n;
	r->mode_given = true;
	return rc;
}

static int read_arguments(struct reading *r, bool function, struct furca_err *err)
{
	if (r->given[CODE].kind == FURCA_NIL && !function)
		return furca_refuse_needed(err, "code", NULL, "''");
	for (size_t i = 0; i < ARGUMENTS; i++) {
		int rc = r->given[i].kind == FURCA_NIL ? 0 : arguments[i].read(r, arguments[i].key, &r->given[i], err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The session that id and name of the plan mean together, and whether they contradict each other. */
static int check_session(const struct furca_coordinates *at, const struct furca_plan *plan, struct furca_err *err)
{
	struct furca_key key = {plan->lang, plan->venv, plan->id};
	struct furca_entry *by_name = plan->name.at ? furca_registry_by_name(at->registry, plan->name) : NULL;
	struct furca_entry *by_id = plan->has_id ? furca_registry_by_id(at->registry, &key) : NULL;
	int n = (int)furca_view_size(plan->name);
	const char *name = (const char *)plan->name.at;
	bool elsewhere = by_name && (by_name->key.lang != plan->lang || by_name->key.venv != plan->venv);

	if (by_name && plan->has_id && !elsewhere && by_name->key.id != plan->id)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Remove session_id, or remove session_name, or give the pair that belongs together.",
			"session_id %llu and session_name '%.*s' are different sessions.", (unsigned long long)plan->id,
			n, name);
	if (plan->mode == FURCA_READ_ONLY && !elsewhere) {
		if (plan->name.at ? !by_name : !by_id) {
			char there[FURCA_ADVICE_TEXT], advice[FURCA_ERR_TEXT_MAX];

			if (furca_coordinate_example(there, at->registry, plan->lang, &plan->venv, plan->name))
				(void)snprintf(
					advice, sizeof(advice),
					"Use %s, or another existing session_id or session_name (list_sessions shows them), or create this one with "
					"state_mode='stateful'.",
					there);
			else
				(void)snprintf(
					advice, sizeof(advice),
					"Use state_mode='stateful' to create it (no session_id or session_name exists here; list_sessions shows all).");
			if (plan->name.at)
				return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice,
							  "There is no session named '%.*s'.", n, name);
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "There is no %s session %llu.",
						  plan->lang->name, (unsigned long long)plan->id);
		}
	}
	if (elsewhere) {
		char advice[FURCA_ERR_TEXT_MAX];

		(void)snprintf(
			advice, sizeof(advice),
			by_name->key.venv
				? "Use language='%s' and venv_id=%llu for that session, or another session_name."
				: "Use language='%s' and remove venv_id for that session, or use another session_name.",
			by_name->key.lang->name, (unsigned long long)by_name->key.venv);
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice,
					  "The session name '%.*s' belongs to another language or environment.", n,
					  name);
	}
	if (plan->mode == FURCA_STATEFUL && !by_name && !by_id && !plan->blank &&
	    at->registry->count >= at->registry->max) {
		/* Without id and name it is session 0, which may exist. */
		struct furca_key zero = {plan->lang, plan->venv, 0};

		if (plan->has_id || plan->name.at || !furca_registry_by_id(at->registry, &zero))
			return furca_fail_suggest(
				err, FURCA_E_VALIDATION, 0,
				"Use state_mode='stateless' and remove session_id and session_name, or close a session that is not needed with close_session "
				"(list_sessions shows them).",
				"%u sessions exist, which is the limit.", at->registry->count);
	}
	return 0;
}

static int check_mode(const struct furca_coordinates *at, const struct furca_plan *plan, struct furca_err *err)
{
	bool session = plan->has_id || plan->name.at;

	if (plan->venv && (!at->venv_known || !at->venv_known(at->user, plan->venv)))
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Remove venv_id, or use one that create_env gave out (list_envs shows them).",
					  "There is no environment %llu.",
					  plan->venv == UINT64_MAX ? 0 : (unsigned long long)plan->venv);
	if (plan->mode == FURCA_STATELESS && session)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Remove session_id and session_name, or use state_mode='stateful' or 'read_only'.",
			"Cannot use state_mode='stateless' with a session.");
	if (plan->mode == FURCA_READ_ONLY && !session)
		return furca_fail_suggest(
			err, FURCA_E_VALIDATION, 0,
			"Provide session_id or session_name (must refer to an existing session), or use state_mode='stateless'.",
			"Cannot use state_mode='read_only' without specifying a session.");
	return 0;
}

int furca_coordinate_plan(const struct furca_coordinates *at, struct furca_view args, bool function,
			  struct furca_plan *ret, struct furca_err *err)
{
	struct reading r = {.at = at, .plan = ret};

	memset(ret, 0, sizeof(*ret));
	ret->timeout_us = at->default_timeout_us;
	ret->max_output = FURCA_DEFAULT_OUTPUT;
	int rc = take_values(&r, args, err);
	if (rc == 0)
		rc = read_language(&r, err);
	if (rc == 0)
		rc = read_mode(&r, err);
	if (rc == 0)
		rc = read_arguments(&r, function, err);
	if (rc < 0)
		return rc;
	if (!r.mode_given)
		ret->mode = !ret->venv && strcmp(ret->lang->default_mode, "stateful") == 0 ? FURCA_STATEFUL
											   : FURCA_STATELESS;
	if (r.isolation_given && ret->mode != FURCA_READ_ONLY)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
					  "Remove isolation, or use state_mode='read_only'.",
					  "The argument 'isolation' is for state_mode='read_only' only.");
	ret->network = ret->waived & FURCA_BARRIER_NETWORK;
	ret->required |= (furca_barriers_required() & ~ret->waived & ~at->without) | at->required;
	ret->waived &= ~ret->required;
	rc = check_mode(at, ret, err);
	return rc < 0 ? rc : check_session(at, ret, err);
}

struct furca_entry *furca_coordinate_session(const struct furca_coordinates *at, const struct furca_plan *plan,
					     uint64_t *ret_id)
{
	struct furca_key key = {plan->lang, plan->venv, plan->id};

	if (plan->name.at) {
		struct furca_entry *entry = furca_registry_by_name(at->registry, plan->name);
		if (entry)
			return entry;
		if (!plan->has_id) {
			*ret_id = furca_registry_free_id(at->registry, plan->lang, plan->venv);
			return NULL;
		}
	}
	*ret_id = key.id;
	return furca_registry_by_id(at->registry, &key);
}
