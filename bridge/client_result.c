/* The result map as a struct. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/client.h"

#include "base/banned.h"

/* One block: the packed map, then a NUL-terminated copy of each text that is read out of it. */
struct reader {
	struct furca_result *result;
	char *at; /* where the next copy goes */
};

enum field_kind { LEFT, TEXT, SIZED_TEXT, BOOL, NUMBER, FLOAT, EXIT_CODE, SESSION };

/* What is read out of the map and where it goes; `size` belongs to a SIZED_TEXT. */
struct field {
	const char *key;
	enum field_kind kind;
	size_t place, size;
};

#define PLACE(member) offsetof(struct furca_result, member)

/* In the order in which the engine packs them; LEFT: not read here. */
static const struct field result_fields[] = {
	{"ok", BOOL, PLACE(ok), 0},
	{"stdout", SIZED_TEXT, PLACE(out), PLACE(out_size)},
	{"stderr", SIZED_TEXT, PLACE(err), PLACE(err_size)},
	{"result", LEFT, 0, 0},
	{"result_text", TEXT, PLACE(result_text), 0},
	{"display", LEFT, 0, 0},
	{"background_output", LEFT, 0, 0},
	{"error", TEXT, PLACE(error), 0},
	{"error_type", TEXT, PLACE(error_type), 0},
	{"suggestion", TEXT, PLACE(suggestion), 0},
	{"exit_code", EXIT_CODE, PLACE(exit_code), 0},
	{"state", TEXT, PLACE(state), 0},
	{"session", SESSION, 0, 0},
	{"session_created", BOOL, PLACE(session_created), 0},
	{"changes", LEFT, 0, 0},
	{"isolation", LEFT, 0, 0},
	{"truncated", LEFT, 0, 0},
	{"duration_ms", FLOAT, PLACE(duration_ms), 0},
	{"timing", LEFT, 0, 0},
	{"retried", BOOL, PLACE(retried), 0},
	{NULL, LEFT, 0, 0},
};

static const struct field session_fields[] = {
	{"language", TEXT, PLACE(session_language), 0},
	{"session_name", TEXT, PLACE(session_name), 0},
	{"session_id", NUMBER, PLACE(session_id), 0},
	{"venv_id", NUMBER, PLACE(venv_id), 0},
	{NULL, LEFT, 0, 0},
};

static void read_map(struct reader *reader, struct furca_view inside, uint32_t count, const struct field *fields);

static void *place(struct reader *reader, size_t offset)
{
	return (char *)reader->result + offset;
}

static const char *copy(struct reader *reader, struct furca_view text)
{
	char *start = reader->at;
	size_t n = furca_view_size(text);

	memcpy(start, text.at, n);
	start[n] = '\0';
	reader->at += n + 1;
	return start;
}

static bool is_integer(const struct furca_value *v)
{
	return v->kind == FURCA_INT || (v->kind == FURCA_UINT && v->u <= INT64_MAX);
}

/* A value of another kind than it should have is as one that is missing. */
static void read_field(struct reader *reader, const struct field *field, const struct furca_value *v)
{
	switch (field->kind) {
	case LEFT:
		return;
	case SIZED_TEXT:
	case TEXT:
		if (v->kind != FURCA_STR)
			return;
		*(const char **)place(reader, field->place) = copy(reader, v->bytes);
		if (field->kind == SIZED_TEXT)
			*(size_t *)place(reader, field->size) = furca_view_size(v->bytes);
		return;
	case BOOL:
		if (v->kind == FURCA_BOOL)
			*(bool *)place(reader, field->place) = v->b;
		return;
	case EXIT_CODE:
		reader->result->has_exit_code = is_integer(v);
		__attribute__((fallthrough));
	case NUMBER:
		if (is_integer(v))
			*(int64_t *)place(reader, field->place) = v->i;
		return;
	case FLOAT:
		if (v->kind == FURCA_FLOAT)
			*(double *)place(reader, field->place) = v->f;
		else if (is_integer(v))
			*(double *)place(reader, field->place) = (double)v->i;
		return;
	case SESSION:
		if (v->kind == FURCA_MAP)
			read_map(reader, furca_value_inside(v), v->count, session_fields);
		return;
	}
}

/* The field of that key, looked for from `next` on and around; NULL where there is none. */
static const struct field *find_field(const struct field *fields, const struct field *next, struct furca_view key)
{
	const struct field *at = next;

	do {
		if (!at->key)
			at = fields;
		if (furca_view_is(key, at->key))
			return at;
		at++;
	} while (at != next && (at->key || next != fields));
	return NULL;
}

/* One pass: fields mostly stand in their order, so that each is found where the last one was left. */
static void read_map(struct reader *reader, struct furca_view inside, uint32_t count, const struct field *fields)
{
	const struct field *next = fields;
	struct furca_value key, value;

	for (uint32_t i = 0; i < count; i++) {
		if (furca_value_next(&inside, &key) < 0 || furca_value_next(&inside, &value) < 0)
			return;
		const struct field *field = key.kind == FURCA_STR ? find_field(fields, next, key.bytes) : NULL;
		if (!field)
			continue;
		read_field(reader, field, &value);
		next = field + 1;
	}
}

int furca_result_read(struct furca_buf *answer, struct furca_result *ret)
{
	/* Each text is copied with a NUL behind it, which takes the place of its head. */
	char *memory = malloc(2 * answer->len + 1);
	struct furca_value map = {.kind = FURCA_NIL};

	*ret = (struct furca_result){
		.memory = memory, .session_id = FURCA_NONE, .venv_id = FURCA_NONE, .out = "", .err = ""};
	if (!memory)
		return -ENOMEM;
	memcpy(memory, answer->data, answer->len);
	struct reader reader = {ret, memory + answer->len};
	struct furca_view view = {(uint8_t *)memory, (uint8_t *)memory + answer->len};
	ret->packed = memory;
	ret->packed_size = answer->len;
	if (furca_value_enter(&view, &map) == 0 && map.kind == FURCA_MAP)
		read_map(&reader, view, map.count, result_fields);
	return 0;
}

void furca_result_done(struct furca_result *result)
{
	free(result->memory);
	*result = (struct furca_result){.session_id = FURCA_NONE, .venv_id = FURCA_NONE};
}
