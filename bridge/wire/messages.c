#include "bridge/wire/messages.h"

#include <string.h>

#include "base/auto.h"
#include "bridge/wire/nearest.h"

#include "base/banned.h"

static const char *const method_names[] = {
#define METHOD(name, number, since, summary) [number] = #name,
#include "bridge/wire/messages.def"
};

static const char *const frame_names[] = {
#define HOST(name, number, direction, since, summary) [number] = #name,
#define LANE(name, number, direction, since, summary) [number] = #name,
#define INIT(name, number, direction, since, summary) [number] = #name,
#include "bridge/wire/messages.def"
};

enum furca_method furca_method_find(const char *name, size_t n)
{
	for (size_t i = 1; i < FURCA_COUNT(method_names); i++)
		if (method_names[i] && strlen(method_names[i]) == n && memcmp(method_names[i], name, n) == 0)
			return (enum furca_method)i;
	return FURCA_METHOD_UNKNOWN;
}

const char *furca_method_name(enum furca_method method)
{
	return method > 0 && (size_t)method < FURCA_COUNT(method_names) && method_names[method] ? method_names[method]
												: "?";
}

const char *furca_frame_name(enum furca_frame frame)
{
	return frame > 0 && (size_t)frame < FURCA_COUNT(frame_names) && frame_names[frame] ? frame_names[frame] : "?";
}

const char *furca_method_nearest(const char *name, size_t n)
{
	return furca_nearest(name, n, method_names + 1, FURCA_COUNT(method_names) - 1);
}
