/* JSON to packed values, with jansson. */
#pragma once

#include <jansson.h>
#include <msgpack.h>

/* Packs a JSON value. Nesting is bounded by jansson's parser. */
void furca_json_pack(msgpack_packer *pk, json_t *value);

/* Packs text that is JSON, and as text what is not: for arguments on a command line. */
void furca_json_pack_text(msgpack_packer *pk, const char *text);
