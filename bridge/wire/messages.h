/* Numbers and names of every message, from messages.def. */
#pragma once

#include <stddef.h>

enum furca_method {
	FURCA_METHOD_UNKNOWN = 0,
#define METHOD(name, number, since, summary) FURCA_METHOD_##name = number,
#include "bridge/wire/messages.def"
	FURCA_METHOD_LIMIT
};

/* Frames between the engine and its processes; one number space. */
enum furca_frame {
	FURCA_FRAME_NONE = 0,
#define HOST(name, number, direction, since, summary) FURCA_HOST_##name = number,
#define LANE(name, number, direction, since, summary) FURCA_LANE_##name = number,
#define INIT(name, number, direction, since, summary) FURCA_INIT_##name = number,
#include "bridge/wire/messages.def"
};

/* FURCA_METHOD_UNKNOWN where no method has that name; `n` is its length. */
enum furca_method furca_method_find(const char *name, size_t n);

/* "execute"; "?" for an unknown number. */
const char *furca_method_name(enum furca_method method);

/* "RUN"; "?" for an unknown number. */
const char *furca_frame_name(enum furca_frame frame);

/* The known method nearest to `name` by edit distance, for a suggestion; never NULL. */
const char *furca_method_nearest(const char *name, size_t n);
