/* JSON to packed values, with jansson. */
#pragma once

#include <jansson.h>
#include <msgpack.h>

/*
 * Reads a file of JSON. NULL with `why`, to be put behind its name: ": No such file or directory", or ", line 3: …".
 */
json_t *furca_json_file(const char *path, char *why, size_t size);

/* Packs a JSON value. Nesting is bounded by jansson's parser. */
void furca_json_pack(msgpack_packer *pk, json_t *value);

/* Packs text that is JSON, and as text what is not: for arguments on a command line. */
void furca_json_pack_text(msgpack_packer *pk, const char *text);
