#include "bridge/mcp_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <msgpack.h>

#include "base/auto.h"
#include "bridge/json.h"
#include "bridge/json_read.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

static void append_word(struct furca_buf *out, const char *word)
{
	if (isdigit((unsigned char)*word))
		(void)furca_buf_append(out, "_", 1);
	for (; *word; word++)
		(void)furca_buf_append(out, isalnum((unsigned char)*word) ? word : "_", 1);
}

int furca_mcp_capability_name(struct furca_buf *out, const char *server, const char *tool)
{
	if (!*server || !*tool)
		return -EINVAL;
	append_word(out, server);
	(void)furca_buf_append(out, ".", 1);
	append_word(out, tool);
	(void)furca_buf_append(out, "", 1);
	return out->failed || out->len > FURCA_MAX_CAPABILITY_NAME ? -EINVAL : 0;
}

/* The first type of a list that is not null: its entries are names, or schemas with a type. NULL: there is none. */
static const char *first_type(const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);
		const char *name = json_string_value(json_is_object(item) ? json_object_get(item, "type") : item);

		if (name && strcmp(name, "null") != 0)
			return name;
	}
	return NULL;
}

/* The schema's type of a property, or the first of its types that is not null. */
static const char *type_of(json_t *property)
{
	const json_t *type = json_object_get(property, "type");
	const char *name = first_type(type);

	if (!name)
		name = first_type(json_object_get(property, "anyOf"));
	return name ? name : json_string_value(type);
}

static bool fits(json_t *value, const char *type)
{
	return (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
	       (strcmp(type, "number") == 0 && json_is_number(value)) ||
	       (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
	       (strcmp(type, "array") == 0 && json_is_array(value)) ||
	       (strcmp(type, "object") == 0 && json_is_object(value));
}

static void write_value(struct furca_buf *out, const struct furca_value *value, json_t *property)
{
	const char *type = type_of(property);

	if (value->kind == FURCA_STR && type && strcmp(type, "string") != 0) {
		json_t *read =
			json_loadb((const char *)value->bytes.at, furca_view_size(value->bytes), JSON_DECODE_ANY, NULL);
		bool is = read && fits(read, type);

		json_decref(read);
		if (is) {
			(void)furca_buf_append(out, value->bytes.at, furca_view_size(value->bytes));
			return;
		}
	}
	if (furca_json_write(out, value->raw) < 0 && !out->failed)
		out->failed = -EPROTO;
}

static int write_positional(struct furca_buf *out, struct furca_view args, struct furca_view kwargs, json_t *properties,
			    char *refused, size_t size, const char **comma)
{
	struct furca_value list, item, there;
	json_t *property;
	const char *key;
	uint32_t at = 0;

	if (furca_value_of(args, &list) < 0 || list.kind != FURCA_ARRAY || list.count == 0)
		return 0;
	if (list.count > json_object_size(properties)) {
		(void)snprintf(refused, size, "the tool takes %zu arguments, %u were given",
			       json_object_size(properties), list.count);
		return -EINVAL;
	}
	struct furca_view inside = furca_value_inside(&list);
	json_object_foreach (properties, key, property) {
		if (at++ == list.count)
			break;
		if (furca_map_get(kwargs, key, &there)) {
			(void)snprintf(refused, size, "the argument '%s' is given twice", key);
			return -EINVAL;
		}
		(void)furca_value_next(&inside, &item);
		(void)furca_buf_append_text(out, *comma);
		(void)furca_json_write_text(out, key, strlen(key));
		(void)furca_buf_append(out, ":", 1);
		write_value(out, &item, property);
		*comma = ",";
	}
	return 0;
}

int furca_mcp_write_arguments(struct furca_buf *out, struct furca_view args, struct furca_view kwargs, json_t *schema,
			      char *refused, size_t size)
{
	json_t *properties = json_object_get(schema, "properties");
	struct furca_value map, key, value;
	const char *comma = "";

	(void)furca_buf_append(out, "{", 1);
	int r = write_positional(out, args, kwargs, properties, refused, size, &comma);
	if (r < 0)
		return r;
	if (furca_value_of(kwargs, &map) == 0 && map.kind == FURCA_MAP) {
		struct furca_view inside = furca_value_inside(&map);

		for (uint32_t i = 0; i < map.count; i++) {
			if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &value) < 0 ||
			    key.kind != FURCA_STR)
				return -EINVAL;
			FURCA_AUTO_FREE char *name = furca_view_dup(key.bytes);

			(void)furca_buf_append_text(out, comma);
			(void)furca_json_write(out, key.raw);
			(void)furca_buf_append(out, ":", 1);
			write_value(out, &value, name ? json_object_get(properties, name) : NULL);
			comma = ",";
		}
	}
	(void)furca_buf_append(out, "}", 2);
	return out->failed ? -EINVAL : 0;
}

void furca_mcp_pack_error(struct furca_buf *out, const char *type, const char *message)
{
	msgpack_packer pk;

	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "type");
	furca_pack_text(&pk, type);
	furca_pack_text(&pk, "message");
	furca_pack_text(&pk, message);
}

/* The text of all content, one item below the other. False where there is more than text. */
static bool text_of(json_t *content, struct furca_buf *out)
{
	bool only = true;
	json_t *item;
	size_t i;

	json_array_foreach (content, i, item) {
		json_t *text = json_object_get(item, "text");

		if (!json_is_string(text) || strcmp(json_string_value(json_object_get(item, "type")), "text") != 0) {
			only = false;
			continue;
		}
		if (out->len)
			(void)furca_buf_append(out, "\n", 1);
		(void)furca_buf_append(out, json_string_value(text), json_string_length(text));
	}
	return only;
}

void furca_mcp_pack_answer(struct furca_buf *value, struct furca_buf *error, json_t *message, bool wrapped)
{
	json_t *failed = json_object_get(message, "error"), *result = json_object_get(message, "result");
	json_t *structured = json_object_get(result, "structuredContent");
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (failed || !json_is_object(result)) {
		const char *words = json_string_value(json_object_get(failed, "message"));

		furca_mcp_pack_error(error, "ToolError", words ? words : "the server answered with no result");
		return;
	}
	bool only_text = text_of(json_object_get(result, "content"), &text);
	if (json_is_true(json_object_get(result, "isError"))) {
		(void)furca_buf_append(&text, "", 1);
		furca_mcp_pack_error(error, "ToolError", text.failed ? "memory is out" : (const char *)text.data);
		return;
	}
	furca_packer(&pk, value);
	if (wrapped && json_object_get(structured, "result"))
		furca_json_pack(&pk, json_object_get(structured, "result"));
	else if (json_is_object(structured))
		furca_json_pack(&pk, structured);
	else if (only_text) {
		msgpack_pack_str(&pk, text.len);
		msgpack_pack_str_body(&pk, text.data, text.len);
	} else {
		furca_json_pack(&pk, json_object_get(result, "content"));
	}
}
