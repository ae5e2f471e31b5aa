#include "engine/method.h"

#include <stdio.h>
#include <string.h>

#include "bridge/wire/advice.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

int furca_method_known(struct furca_view args, const char *const *known, size_t count, struct furca_err *err)
{
	struct furca_value map, key, value;

	if (furca_value_of(args, &map) < 0 || map.kind != FURCA_MAP)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Send one map of named arguments.",
					  "The arguments must be one map.");
	struct furca_view inside = furca_value_inside(&map);
	for (uint32_t i = 0; i < map.count; i++) {
		bool found = false;

		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &value) < 0 ||
		    key.kind != FURCA_STR)
			return furca_fail_suggest(err, FURCA_E_VALIDATION, 0,
						  "Remove every argument whose name is no text.",
						  "The arguments' names must be text.");
		for (size_t k = 0; k < count && !found; k++)
			found = furca_view_is(key.bytes, known[k]);
		if (found)
			continue;
		return furca_refuse_unknown(err, "argument", key.bytes, known, count, args);
	}
	return 0;
}

/* Says that an argument is missing (`what` NULL) or not what it must be. One that is needed gets an example. */
static int refuse(const char *key, bool required, const char *what, struct furca_err *err)
{
	static const char *const examples[][2] = {
		{"language", "'python'"},
		{"name", "'f'"},
		{"source", "'def f():\\n    return 1'"},
		{"spec", "'[project]\\nname = \"env\"\\nversion = \"0\"'"},
		{"venv_id", "1"},
	};

	for (size_t i = 0; i < FURCA_COUNT(examples) && required; i++)
		if (strcmp(key, examples[i][0]) == 0)
			return furca_refuse_needed(err, key, what, examples[i][1]);
	return furca_refuse_value(err, key, what ? what : "given");
}

/* Finds a value that is not nil. 1, 0 or -EINVAL. */
static int get(struct furca_view args, const char *key, bool required, struct furca_value *ret, struct furca_err *err)
{
	if (furca_map_get(args, key, ret) && ret->kind != FURCA_NIL)
		return 1;
	if (!required)
		return 0;
	return refuse(key, required, NULL, err);
}

int furca_method_text(struct furca_view args, const char *key, bool required, size_t max_bytes, struct furca_view *ret,
		      struct furca_err *err)
{
	struct furca_value value;
	int r = get(args, key, required, &value, err);

	if (r <= 0)
		return r;
	if (value.kind != FURCA_STR || !furca_view_is_utf8(value.bytes) ||
	    memchr(value.bytes.at, 0, furca_view_size(value.bytes)))
		return refuse(key, required, "text (UTF-8 without NUL)", err);
	if (furca_view_size(value.bytes) > max_bytes) {
		char what[64];

		(void)snprintf(what, sizeof(what), "text of at most %zu bytes", max_bytes);
		return refuse(key, required, what, err);
	}
	*ret = value.bytes;
	return 1;
}

int furca_method_uint(struct furca_view args, const char *key, bool required, uint64_t *ret, struct furca_err *err)
{
	struct furca_value value;
	int r = get(args, key, required, &value, err);

	if (r <= 0)
		return r;
	if (value.kind != FURCA_UINT)
		return refuse(key, required, "an integer of 0 or more", err);
	*ret = value.u;
	return 1;
}

/* The six keys of the refusal form. */
static void pack_refusal(msgpack_packer *pk, const struct furca_err *err, const char *lines, struct furca_view received)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

	(void)furca_buf_append_text(&text, err->text);
	if (lines && *lines)
		(void)furca_buf_printf(&text, "\n%s", lines);
	furca_pack_text(pk, "ok");
	msgpack_pack_false(pk);
	furca_pack_text(pk, "error");
	furca_pack_bytes(pk, text.data, text.len);
	furca_pack_text(pk, "error_type");
	furca_pack_text(pk, furca_err_type(err->code));
	furca_pack_text(pk, "suggestion");
	furca_pack_text(pk, furca_err_suggestion(err));
	furca_pack_text(pk, "received");
	if (furca_view_size(received))
		furca_pack_raw(pk, received);
	else
		msgpack_pack_map(pk, 0);
	furca_pack_text(pk, "state");
	furca_pack_text(pk, "unchanged");
}

void furca_method_refuse(struct furca_buf *out, const struct furca_err *err, const char *lines,
			 struct furca_view received)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 6);
	pack_refusal(&pk, err, lines, received);
}

void furca_method_refuse_call(struct furca_buf *out, const struct furca_err *err, struct furca_view received)
{
	static const char *const empty[] = {"stdout", "stderr"};
	static const char *const nil[] = {"result", "result_text", "exit_code", "session"};
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 6 + FURCA_COUNT(empty) + FURCA_COUNT(nil));
	pack_refusal(&pk, err, NULL, received);
	for (size_t i = 0; i < FURCA_COUNT(empty); i++) {
		furca_pack_text(&pk, empty[i]);
		furca_pack_text(&pk, "");
	}
	for (size_t i = 0; i < FURCA_COUNT(nil); i++) {
		furca_pack_text(&pk, nil[i]);
		msgpack_pack_nil(&pk);
	}
}
