/* A packed map of named arguments, built entry by entry; its count is filled in at the end. */
#pragma once

#include <msgpack.h>
#include <string.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

struct furca_args {
	struct furca_buf buf;
	msgpack_packer pk; /* packs a value after furca_args_key; it points to buf, so the structure must not move */
	uint32_t count;
};

void furca_args_begin(struct furca_args *args);
void furca_args_done(struct furca_args *args);

#define FURCA_AUTO_ARGS FURCA_AUTO(furca_args_done)

/* A key; its value is to be packed next with `pk`. */
void furca_args_key(struct furca_args *args, const char *key);

/* Key and value; NULL text and INT64_MIN are left out. */
void furca_args_text(struct furca_args *args, const char *key, const char *value);
void furca_args_int(struct furca_args *args, const char *key, int64_t value);
void furca_args_float(struct furca_args *args, const char *key, double value);
void furca_args_bool(struct furca_args *args, const char *key, bool value);
void furca_args_packed(struct furca_args *args, const char *key, struct furca_view value);

/* The entries of another packed map, or nothing for NULL. 0, or -EINVAL where it is no map. */
int furca_args_merge(struct furca_args *args, const void *map, size_t size);

/* Ends the map. 0 and a view that lasts as long as `args`, or -ENOMEM. */
int furca_args_end(struct furca_args *args, struct furca_view *ret);
