#include "engine/done.h"

#include <stddef.h>

#include "base/banned.h"

/* Kinds, and those of values that are passed on as they are. */
enum take { TEXT, NUMBER, TRUTH, ANY, MAP, LIST };

/* In the order in which hosts pack them. */
static const struct field {
	const char *key;
	enum take take;
	size_t at; /* in struct furca_done */
} fields[] = {
#define FIELD(name, take)                                                                                              \
	{                                                                                                              \
#name, take, offsetof(struct furca_done, name)                                                         \
	}
	FIELD(how, TEXT),
	FIELD(exit_code, ANY),
	FIELD(changed, TRUTH),
	FIELD(redirected, TRUTH),
	FIELD(run_us, NUMBER),
	FIELD(error, TEXT),
	FIELD(suggestion, TEXT),
	FIELD(unsent, TEXT),
	FIELD(result, ANY),
	FIELD(result_text, ANY),
	FIELD(display, LIST),
	FIELD(changes, MAP),
	FIELD(result_text_cut, NUMBER),
	FIELD(pages, TRUTH),
	FIELD(hindrance, TEXT),
	FIELD(remedy, TEXT),
#undef FIELD
};

static void take(const struct field *field, const struct furca_value *value, struct furca_done *ret)
{
	void *to = (char *)ret + field->at;

	switch (field->take) {
	case TEXT:
		if (value->kind == FURCA_STR)
			*(struct furca_view *)to = value->bytes;
		return;
	case NUMBER:
		if (value->kind == FURCA_UINT)
			*(uint64_t *)to = value->u;
		return;
	case TRUTH:
		if (value->kind == FURCA_BOOL)
			*(bool *)to = value->b;
		return;
	case MAP:
	case LIST:
		if (value->kind != (field->take == MAP ? FURCA_MAP : FURCA_ARRAY))
			return;
		__attribute__((fallthrough));
	case ANY:
		*(struct furca_view *)to = value->raw;
		return;
	}
}

/* The place of the field, looked for from `next` on and around; their number where there is none. */
static size_t find(size_t next, struct furca_view key)
{
	for (size_t i = 0; i < FURCA_COUNT(fields); i++) {
		size_t at = (next + i) % FURCA_COUNT(fields);

		if (furca_view_is(key, fields[at].key))
			return at;
	}
	return FURCA_COUNT(fields);
}

void furca_done_read(struct furca_view body, struct furca_done *ret)
{
	struct furca_value map, key, value;
	size_t next = 0;

	*ret = (struct furca_done){.changed = true, .redirected = true};
	(void)furca_value_enter(&body, &map);
	while (furca_value_next(&body, &key) == 0 && furca_value_next(&body, &value) == 0) {
		size_t at = key.kind == FURCA_STR ? find(next, key.bytes) : FURCA_COUNT(fields);

		if (at == FURCA_COUNT(fields))
			continue;
		take(&fields[at], &value, ret);
		next = at + 1;
	}
}

int64_t furca_done_status(const struct furca_done *done, int64_t otherwise)
{
	struct furca_value v;

	if (furca_value_of(done->exit_code, &v) < 0 ||
	    (v.kind != FURCA_INT && (v.kind != FURCA_UINT || v.u > INT64_MAX)))
		return otherwise;
	return v.i;
}
