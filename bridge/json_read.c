#include "bridge/json_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bridge/wire/pack.h"

#include "base/banned.h"

void furca_json_pack(msgpack_packer *pk, json_t *value)
{
	const char *key;
	json_t *item;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		msgpack_pack_map(pk, json_object_size(value));
		json_object_foreach (value, key, item) {
			furca_pack_text(pk, key);
			furca_json_pack(pk, item);
		}
		break;
	case JSON_ARRAY:
		msgpack_pack_array(pk, json_array_size(value));
		json_array_foreach (value, i, item)
			furca_json_pack(pk, item);
		break;
	case JSON_STRING:
		msgpack_pack_str_with_body(pk, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		msgpack_pack_int64(pk, json_integer_value(value));
		break;
	case JSON_REAL:
		msgpack_pack_double(pk, json_real_value(value));
		break;
	case JSON_TRUE:
		msgpack_pack_true(pk);
		break;
	case JSON_FALSE:
		msgpack_pack_false(pk);
		break;
	case JSON_NULL:
		msgpack_pack_nil(pk);
		break;
	}
}

void furca_json_pack_text(msgpack_packer *pk, const char *text)
{
	json_error_t where;
	json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);

	if (value)
		furca_json_pack(pk, value);
	else
		furca_pack_text(pk, text);
	json_decref(value);
}

json_t *furca_json_file(const char *path, char *why, size_t size)
{
	json_error_t where;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);

	if (!root && where.line < 0)
		(void)snprintf(why, size, ": %s", strerror(errno));
	else if (!root)
		(void)snprintf(why, size, ", line %d: %s", where.line, where.text);
	return root;
}
