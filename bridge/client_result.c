/* The result map as a struct. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/client.h"

#include "base/banned.h"

/* One block: the packed map, then a NUL-terminated copy of each text that is read out of it. */
struct reader {
	struct furca_view map;
	char *at; /* where the next copy goes */
};

static const char *const texts[] = {"stdout", "stderr", "result_text", "error", "error_type", "suggestion", "state"};
enum { STDOUT, STDERR, RESULT_TEXT, ERROR, ERROR_TYPE, SUGGESTION, STATE };

static const char *copy(struct reader *reader, struct furca_view map, const char *key, size_t *ret_size)
{
	struct furca_view text;

	if (!furca_map_text(map, key, &text))
		return NULL;
	char *start = reader->at;
	size_t n = furca_view_size(text);
	memcpy(start, text.at, n);
	start[n] = '\0';
	reader->at += n + 1;
	if (ret_size)
		*ret_size = n;
	return start;
}

static int64_t number(struct furca_view map, const char *key)
{
	int64_t n;

	return furca_map_int(map, key, &n) ? n : FURCA_NONE;
}

static size_t text_size(struct furca_view map)
{
	struct furca_view text;
	struct furca_value session;
	size_t n = 0;

	for (size_t i = 0; i < FURCA_COUNT(texts); i++)
		if (furca_map_text(map, texts[i], &text))
			n += furca_view_size(text) + 1;
	if (furca_map_get(map, "session", &session))
		n += furca_view_size(session.raw) + 2; /* more than its two texts */
	return n;
}

static void read_session(struct reader *reader, struct furca_result *ret)
{
	struct furca_value session;

	ret->session_id = ret->venv_id = FURCA_NONE;
	if (!furca_map_get(reader->map, "session", &session) || session.kind != FURCA_MAP)
		return;
	ret->session_language = copy(reader, session.raw, "language", NULL);
	ret->session_name = copy(reader, session.raw, "session_name", NULL);
	ret->session_id = number(session.raw, "session_id");
	ret->venv_id = number(session.raw, "venv_id");
}

int furca_result_read(struct furca_buf *answer, struct furca_result *ret)
{
	struct furca_view map = {answer->data, answer->data + answer->len};
	const char **fields[] = {&ret->out, &ret->err, &ret->result_text, &ret->error, &ret->error_type, &ret->suggestion, &ret->state};
	char *memory = malloc(answer->len + text_size(map) + 1);

	*ret = (struct furca_result){.memory = memory};
	if (!memory)
		return -ENOMEM;
	memcpy(memory, answer->data, answer->len);
	struct reader reader = {.map = {(uint8_t *)memory, (uint8_t *)memory + answer->len}, .at = memory + answer->len};
	ret->packed = memory;
	ret->packed_size = answer->len;
	for (size_t i = 0; i < FURCA_COUNT(texts); i++)
		*fields[i] = copy(&reader, reader.map, texts[i], i == STDOUT ? &ret->out_size : i == STDERR ? &ret->err_size : NULL);
	read_session(&reader, ret);
	ret->out = ret->out ? ret->out : "";
	ret->err = ret->err ? ret->err : "";
	(void)furca_map_bool(reader.map, "ok", &ret->ok);
	(void)furca_map_bool(reader.map, "session_created", &ret->session_created);
	(void)furca_map_bool(reader.map, "retried", &ret->retried);
	(void)furca_map_float(reader.map, "duration_ms", &ret->duration_ms);
	ret->has_exit_code = furca_map_int(reader.map, "exit_code", &ret->exit_code);
	return 0;
}

void furca_result_done(struct furca_result *result)
{
	free(result->memory);
	*result = (struct furca_result){.session_id = FURCA_NONE, .venv_id = FURCA_NONE};
}
