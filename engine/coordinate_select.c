/* The other half of coordinate.h: arguments of the methods around execute, and `received`. */
#include <string.h>

#include "bridge/wire/advice.h"
#include "bridge/wire/nearest.h"
#include "engine/coordinate.h"
#include "engine/output.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

#define RECEIVED_TEXT 1000 /* bytes of one text in `received` */
#define FURCA_MAX_NEAR 64  /* names that a mistaken one is compared with */

enum field {
	LANGUAGE,
	VENV_ID,
	SESSION_ID,
	SESSION_NAME,
	DETAIL,
	NAME,
	NEW_NAME,
	LABEL,
	STEPS,
	MSGID,
	STREAM,
	OFFSET,
	LENGTH,
	CHANNEL,
	OUTPUT_ID,
	FIELDS
};

static const char *const field_names[FIELDS] = {
	[LANGUAGE] = "language", [VENV_ID] = "venv_id", [SESSION_ID] = "session_id", [SESSION_NAME] = "session_name",
	[DETAIL] = "detail",	 [NAME] = "name",	[NEW_NAME] = "new_name",     [LABEL] = "label",
	[STEPS] = "steps",	 [MSGID] = "msgid",	[STREAM] = "stream",	     [OFFSET] = "offset",
	[LENGTH] = "length",	 [CHANNEL] = "channel", [OUTPUT_ID] = "output_id",
};

#define F(field) (1U << (field))
#define SESSION (F(LANGUAGE) | F(VENV_ID) | F(SESSION_ID) | F(SESSION_NAME))

static const struct method_arguments {
	unsigned allowed, needed;
} methods[FURCA_METHOD_LIMIT] = {
	[FURCA_METHOD_cancel] = {F(MSGID), F(MSGID)},
	[FURCA_METHOD_list_sessions] = {F(DETAIL), 0},
	[FURCA_METHOD_inspect_session] = {SESSION | F(DETAIL) | F(NAME), 0},
	[FURCA_METHOD_close_session] = {SESSION, 0},
	[FURCA_METHOD_close_all_sessions] = {0, 0},
	[FURCA_METHOD_undo] = {SESSION | F(STEPS), 0},
	[FURCA_METHOD_branch_session] = {SESSION | F(NEW_NAME), F(NEW_NAME)},
	[FURCA_METHOD_checkpoint] = {SESSION | F(LABEL), F(LABEL)},
	[FURCA_METHOD_restore] = {SESSION | F(LABEL), F(LABEL)},
	[FURCA_METHOD_read_output] = {F(MSGID) | F(OUTPUT_ID) | F(STREAM) | F(OFFSET) | F(LENGTH), 0},
	[FURCA_METHOD_stats] = {0, 0},
	[FURCA_METHOD_attach_session] = {F(LANGUAGE) | F(SESSION_NAME) | F(CHANNEL), F(CHANNEL)},
};

/* What a field that must be given could be, and so is not to be left out. A channel cannot be written down. */
static const char *const examples[FIELDS] = {[NEW_NAME] = "'copy'", [LABEL] = "'here'", [MSGID] = "1"};

static int wrong(struct furca_err *err, enum field f, const char *what)
{
	return examples[f] ? furca_refuse_needed(err, field_names[f], what, examples[f])
			   : furca_refuse_value(err, field_names[f], what);
}

static int read_uint(enum field f, const struct furca_value *v, uint64_t lowest, uint64_t *ret, struct furca_err *err)
{
	if (v->kind != FURCA_UINT || v->u > INT64_MAX || v->u < lowest)
		return wrong(err, f, lowest ? "an integer above 0" : "an integer from 0 up");
	*ret = v->u;
	return 0;
}

static int read_label(enum field f, const struct furca_value *v, struct furca_view *ret, struct furca_err *err)
{
	size_t characters = 0;

	if (v->kind != FURCA_STR || !furca_view_is_utf8(v->bytes))
		return wrong(err, f, "text");
	if (f == NEW_NAME && !furca_coordinate_good_name(v->bytes))
		return wrong(err, f, "a name of 1 to 64 printable characters");
	for (const uint8_t *p = v->bytes.at; p < v->bytes.end; p++) {
		if (*p < 0x20 || *p == 0x7f)
			return wrong(err, f, "1 to 64 printable characters");
		characters += (*p & 0xc0) != 0x80;
	}
	if (f != SESSION_NAME && f != NAME && (characters == 0 || characters > FURCA_MAX_NAME))
		return wrong(err, f, "1 to 64 printable characters");
	*ret = v->bytes;
	return 0;
}

static int read_language(const struct furca_value *v, struct furca_selector *s, struct furca_err *err)
{
	char list[128] = "";

	if (v->kind == FURCA_STR)
		s->lang = furca_lang_find((const char *)v->bytes.at, furca_view_size(v->bytes));
	if (s->lang)
		return 0;
	for (size_t i = 0; furca_lang_at(i); i++) {
		size_t n = strlen(list);
		(void)snprintf(list + n, sizeof(list) - n, "%s'%s'", i ? " or " : "", furca_lang_at(i)->name);
	}
	return furca_refuse_value(err, "language", list);
}

static int read_one_of(enum field f, const struct furca_value *v, const char *const *words, size_t n,
		       struct furca_view *ret, struct furca_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (v->kind == FURCA_STR && furca_view_is(v->bytes, words[i])) {
			*ret = v->bytes;
			return 0;
		}
	return furca_refuse_word(err, field_names[f], v, words, n, false);
}

static int read_field(enum furca_method method, enum field f, const struct furca_value *v, struct furca_selector *s,
		      struct furca_err *err)
{
	static const char *const details[] = {"names", "summary", "full"}, *const streams[] = {"stdout", "stderr"};

	switch (f) {
	case LANGUAGE:
		return read_language(v, s, err);
	case VENV_ID:
		s->has_venv = true;
		return read_uint(f, v, 0, &s->venv, err);
	case SESSION_ID:
		s->has_id = true;
		return read_uint(f, v, 0, &s->id, err);
	case SESSION_NAME:
		return read_label(f, v, &s->name, err);
	case DETAIL:
		/* list_sessions shows more for "full" and the same for every other word; any text is accepted there. */
		if (method == FURCA_METHOD_list_sessions)
			return v->kind == FURCA_STR    ? (s->detail = v->bytes, 0)
			       : v->kind == FURCA_BOOL ? 0
						       : wrong(err, f, "text");
		return read_one_of(f, v, details, FURCA_COUNT(details), &s->detail, err);
	case NAME:
	case NEW_NAME:
	case LABEL:
		return read_label(f, v, &s->word, err);
	case STEPS:
		return read_uint(f, v, 1, &s->steps, err);
	case MSGID:
		return read_uint(f, v, 0, &s->msgid, err);
	case STREAM:
		return read_one_of(f, v, streams, FURCA_COUNT(streams), &s->stream, err);
	case OFFSET:
		return read_uint(f, v, 0, &s->offset, err);
	case LENGTH:
		return read_uint(f, v, 0, &s->length, err);
	case CHANNEL:
		return v->kind == FURCA_EXT && v->ext == FURCA_EXT_DESCRIPTOR
			       ? 0
			       : wrong(err, f, "the descriptor beside the message (ext 4)");
	case OUTPUT_ID:
		return read_uint(f, v, 1, &s->output_id, err);
	case FIELDS:
		break;
	}
	return 0;
}

static int known_field(struct furca_view key, unsigned allowed, struct furca_view args, struct furca_err *err)
{
	const char *words[FIELDS];
	size_t n = 0;

	for (int f = 0; f < FIELDS; f++) {
		if (!(allowed & F(f)))
			continue;
		if (furca_view_is(key, field_names[f]))
			return f;
		words[n++] = field_names[f];
	}
	return furca_refuse_unknown(err, "argument", key, words, n, args);
}

int furca_coordinate_select(enum furca_method method, struct furca_view args, struct furca_selector *ret,
			    struct furca_err *err)
{
	const struct method_arguments *m = &methods[method];
	struct furca_value map, key, item;
	unsigned given = 0;

	memset(ret, 0, sizeof(*ret));
	ret->steps = 1;
	ret->length = 1 << 20;
	if (furca_value_of(args, &map) < 0 || map.kind != FURCA_MAP)
		return furca_fail(err, FURCA_E_VALIDATION, 0, "The arguments must be one map.");
	struct furca_view inside = furca_value_inside(&map);
	for (uint32_t i = 0; i < map.count; i++) {
		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &item) < 0 ||
		    key.kind != FURCA_STR)
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
						  "Remove every argument whose name is no text.",
						  "The arguments' names must be text.");
		int f = known_field(key.bytes, m->allowed, args, err);
		if (f < 0)
			return f;
		if (item.kind == FURCA_NIL)
			continue;
		int r = read_field(method, (enum field)f, &item, ret, err);
		if (r < 0)
			return r;
		given |= F(f);
	}
	for (int f = 0; f < FIELDS; f++)
		if (m->needed & F(f) & ~given)
			return examples[f] ? furca_refuse_needed(err, field_names[f], NULL, examples[f])
					   : furca_fail_suggest(err, FURCA_E_VALIDATION, 0, FURCA_ADVICE_CHANNEL,
								"The argument '%s' is missing.", field_names[f]);
	if (method == FURCA_METHOD_read_output && !(given & (F(MSGID) | F(OUTPUT_ID))))
		return furca_refuse_needed(err, field_names[MSGID], NULL, examples[MSGID]);
	return 0;
}

static bool fits(const struct furca_entry *entry, const struct furca_selector *s)
{
	return (!s->lang || entry->key.lang == s->lang) && (!s->has_venv || entry->key.venv == s->venv) &&
	       (!s->has_id || entry->key.id == s->id);
}

static struct furca_entry *find_by_id(const struct furca_registry *registry, const struct furca_selector *s,
				      struct furca_err *err)
{
	struct furca_entry *found = NULL;

	for (struct furca_entry *entry = registry->first; entry; entry = entry->next) {
		if (!fits(entry, s))
			continue;
		if (found) {
			/* Without an environment the own interpreter's is meant, if that settles it. */
			if (!s->has_venv && found->key.lang == entry->key.lang) {
				found = found->key.venv == 0 ? found : entry;
				continue;
			}
			char advice[128];

			(void)snprintf(
				advice, sizeof(advice),
				"Use language='%s' (and venv_id, where that is not enough), or use session_name.",
				found->key.lang->name);
			(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice,
						 "More than one session has the id %llu.", (unsigned long long)s->id);
			return NULL;
		}
		found = entry;
	}
	return found;
}

const char *furca_coordinate_place(char buf[FURCA_ADVICE_TEXT], const struct furca_key *key)
{
	int n = snprintf(buf, FURCA_ADVICE_TEXT, "session_id=%llu and language='%s'", (unsigned long long)key->id,
			 key->lang->name);

	if (key->venv)
		(void)snprintf(buf + n, FURCA_ADVICE_TEXT - (size_t)n, " and venv_id=%llu",
			       (unsigned long long)key->venv);
	return buf;
}

bool furca_coordinate_example(char buf[FURCA_ADVICE_TEXT], const struct furca_registry *registry,
			      const struct furca_lang *lang, const uint64_t *venv, struct furca_view name)
{
	const struct furca_entry *best = NULL;
	const char *words[FURCA_MAX_NEAR];
	char text[FURCA_ADVICE_TEXT];
	size_t n = 0;

	for (const struct furca_entry *e = registry->first; e; e = e->next) {
		if ((lang && e->key.lang != lang) || (venv && e->key.venv != *venv))
			continue;
		best = e;
		for (unsigned i = 0; i < e->n_names && n < FURCA_MAX_NEAR; i++)
			words[n++] = e->names[i];
	}
	if (!best)
		return false;
	const char *near = name.at && n	   ? furca_nearest((const char *)name.at, furca_view_size(name), words, n)
			   : best->n_names ? best->names[0]
					   : NULL;
	if (near)
		(void)snprintf(buf, FURCA_ADVICE_TEXT, "session_name=%s",
			       furca_advice_text(text, (struct furca_view){(const uint8_t *)near,
									   (const uint8_t *)near + strlen(near)}));
	else
		(void)furca_coordinate_place(buf, &best->key);
	return true;
}

/* What to do where no session is named, or one that is not there. */
static void advise_missing(const struct furca_registry *registry, const struct furca_selector *s,
			   char advice[FURCA_ERR_TEXT_MAX])
{
	char there[FURCA_ADVICE_TEXT], which[FURCA_ADVICE_TEXT + 40] = "", text[FURCA_ADVICE_TEXT], venv[48] = "";
	bool named = s->name.at || s->has_id;
	const struct furca_entry *other = s->name.at ? furca_registry_by_name(registry, s->name) : NULL;

	if (other) {
		(void)snprintf(advice, FURCA_ERR_TEXT_MAX,
			       "Use %s%s, where the session of that name is, or another session_name.",
			       furca_coordinate_place(there, &other->key),
			       other->key.venv ? "" : " and remove venv_id");
		return;
	}
	if (s->has_venv)
		(void)snprintf(venv, sizeof(venv), " and venv_id=%llu", (unsigned long long)s->venv);
	if (s->name.at)
		(void)snprintf(which, sizeof(which), " and session_name=%s", furca_advice_text(text, s->name));
	else if (s->has_id)
		(void)snprintf(which, sizeof(which), " and session_id=%llu", (unsigned long long)s->id);
	if (furca_coordinate_example(there, registry, s->lang, s->has_venv ? &s->venv : NULL, s->name))
		(void)snprintf(
			advice, FURCA_ERR_TEXT_MAX,
			named ? "Use %s%s (list_sessions shows the sessions that exist)."
			      : "Provide session_id or session_name, for example %s%s (list_sessions shows the sessions that exist).",
			there,
			s->name.at || !named || strncmp(there, "session_name", 12) != 0 ? ""
											: " and remove session_id");
	else
		(void)snprintf(
			advice, FURCA_ERR_TEXT_MAX,
			"Call execute with language='%s'%s%s and state_mode='stateful' and code='x=1' first%s (no such session "
			"exists; list_sessions shows all).",
			s->lang ? s->lang->name : furca_lang_at(0)->name, venv, which,
			named ? "" : " and use session_id=0");
}

struct furca_entry *furca_coordinate_find(const struct furca_registry *registry, const struct furca_selector *s,
					  bool *ret_missing, struct furca_err *err)
{
	char advice[FURCA_ERR_TEXT_MAX];
	struct furca_entry *entry;

	if (ret_missing)
		*ret_missing = false;
	if (!s->has_id && !s->name.at) {
		advise_missing(registry, s, advice);
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "No session is named.");
		return NULL;
	}
	struct furca_err unclear = FURCA_ERR_INIT;
	entry = s->name.at ? furca_registry_by_name(registry, s->name) : find_by_id(registry, s, &unclear);
	if (unclear.code) {
		if (err && !err->code)
			*err = unclear;
		return NULL;
	}
	if (entry && fits(entry, s))
		return entry;
	if (ret_missing)
		*ret_missing = true;
	advise_missing(registry, s, advice);
	if (s->name.at)
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "There is no session named '%.*s'.",
					 (int)FURCA_MIN(furca_view_size(s->name), 256), (const char *)s->name.at);
	else
		(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "There is no session %llu.",
					 (unsigned long long)s->id);
	return NULL;
}

static void pack_cut(msgpack_packer *pk, const struct furca_value *v)
{
	size_t n = v->kind == FURCA_STR ? furca_view_size(v->bytes) : 0;

	if (n > RECEIVED_TEXT || (v->kind == FURCA_STR && !furca_view_is_utf8(v->bytes))) {
		FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

		furca_utf8_lossy(&text, v->bytes.at, furca_utf8_whole(v->bytes.at, FURCA_MIN(n, RECEIVED_TEXT)));
		if (n > RECEIVED_TEXT)
			(void)furca_buf_append_text(&text, "…");
		furca_pack_bytes(pk, text.data, text.len);
	} else if (furca_view_size(v->raw) > 16 * RECEIVED_TEXT) {
		furca_pack_text(pk, "…");
	} else {
		furca_pack_raw(pk, v->raw);
	}
}

void furca_coordinate_received(struct furca_view args, const struct furca_plan *plan, struct furca_buf *out)
{
	struct furca_value map, key, item;
	msgpack_packer pk;

	furca_packer(&pk, out);
	if (furca_value_of(args, &map) < 0 || map.kind != FURCA_MAP) {
		msgpack_pack_map(&pk, 0);
		return;
	}
	bool mode = !plan || !plan->lang || (furca_map_get(args, "state_mode", &item) && item.kind != FURCA_NIL);
	struct furca_view inside = furca_value_inside(&map);
	uint32_t count = 0;
	for (uint32_t i = 0; i < map.count; i++)
		if (furca_value_next(&inside, &key) == 0 && furca_value_next(&inside, &item) == 0 &&
		    key.kind == FURCA_STR && item.kind != FURCA_NIL)
			count++;
	msgpack_pack_map(&pk, count + !mode);
	inside = furca_value_inside(&map);
	for (uint32_t i = 0; i < map.count; i++) {
		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &item) < 0 ||
		    key.kind != FURCA_STR || item.kind == FURCA_NIL)
			continue;
		pack_cut(&pk, &key);
		pack_cut(&pk, &item);
	}
	if (!mode) {
		furca_pack_text(&pk, "state_mode");
		furca_pack_text(&pk, furca_mode_word(plan->mode));
	}
}

int furca_coordinate_taken(const struct furca_registry *registry, const char *key, struct furca_view name,
			   struct furca_err *err)
{
	char advice[FURCA_ERR_TEXT_MAX], text[FURCA_ADVICE_TEXT], free_name[FURCA_MAX_NAME * 4 + 8];

	for (unsigned n = 2;; n++) {
		/* A long name is cut at a character, so that the number fits. */
		size_t keep = furca_utf8_whole(name.at, FURCA_MIN(furca_view_size(name), FURCA_MAX_NAME - 6));
		(void)snprintf(free_name, sizeof(free_name), "%.*s-%u", (int)keep, (const char *)name.at, n);
		if (!furca_registry_by_name(registry, furca_text_view(free_name)))
			break;
	}
	(void)snprintf(advice, sizeof(advice), "Use %s=%s, or close that session first.", key,
		       furca_advice_text(text, furca_text_view(free_name)));
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "There is a session named '%.*s' already.",
				  (int)FURCA_MIN(furca_view_size(name), (size_t)FURCA_MAX_NAME * 4),
				  (const char *)name.at);
}
