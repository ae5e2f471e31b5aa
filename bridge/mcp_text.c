/* What a model reads of a result. What became of the session stands first, where no truncation can hide it. */
#include <string.h>

#include "base/auto.h"
#include "bridge/json.h"
#include "bridge/mcp.h"

#include "base/banned.h"

static void append_view(struct furca_buf *out, struct furca_view text)
{
	(void)furca_buf_append(out, text.at, furca_view_size(text));
}

/* Begins a new line unless one has just begun. */
static void new_line(struct furca_buf *out)
{
	if (out->len > 0 && out->data[out->len - 1] != '\n')
		(void)furca_buf_append(out, "\n", 1);
}

static void write_state(struct furca_buf *out, struct furca_view map)
{
	struct furca_view state, type;
	bool ok = false;

	(void)furca_map_bool(map, "ok", &ok);
	if (!furca_map_text(map, "state", &state))
		return;
	if (furca_view_is(state, "rolled_back"))
		(void)furca_buf_append_text(
			out, "[state: rolled_back: the session was taken back to the last state that was kept]\n");
	else if (furca_view_is(state, "lost"))
		(void)furca_buf_append_text(out, "[state: lost: the session is empty]\n");
	else if (!ok && furca_view_is(state, "committed"))
		(void)furca_buf_append_text(out, "[state: committed: the session keeps what ran before the error]\n");
	else if (!ok && !(furca_map_text(map, "error_type", &type) && furca_view_is(type, "validation")))
		(void)furca_buf_append_text(out, "[state: unchanged]\n");
}

/* A stream, under a heading where it needs one. */
static void write_stream(struct furca_buf *out, struct furca_view map, const char *key, const char *heading)
{
	struct furca_view text;

	if (!furca_map_text(map, key, &text) || furca_view_size(text) == 0)
		return;
	new_line(out);
	(void)furca_buf_append_text(out, heading);
	append_view(out, text);
}

static void write_truncated(struct furca_buf *out, struct furca_view map, uint64_t msgid)
{
	static const char *const streams[] = {"stdout", "stderr"};
	struct furca_value cut;
	uint64_t n;

	if (!furca_map_get(map, "truncated", &cut))
		return;
	for (size_t i = 0; i < FURCA_COUNT(streams); i++)
		if (furca_map_uint(cut.raw, streams[i], &n) && n > 0) {
			new_line(out);
			(void)furca_buf_printf(
				out,
				"[%llu bytes of %s left out in the middle; read_output(msgid=%llu, stream=\"%s\", offset=0, "
				"length=65536) has them]\n",
				(unsigned long long)n, streams[i], (unsigned long long)msgid, streams[i]);
		}
}

static void write_display_text(struct furca_buf *out, struct furca_view map)
{
	struct furca_value list, item, image;
	struct furca_view inside, text;

	if (!furca_map_get(map, "display", &list) || list.kind != FURCA_ARRAY)
		return;
	inside = furca_value_inside(&list);
	while (furca_value_next(&inside, &item) == 0)
		if (!furca_map_get(item.raw, "image/png", &image) && !furca_map_get(item.raw, "image/jpeg", &image) &&
		    furca_map_text(item.raw, "text/plain", &text)) {
			new_line(out);
			append_view(out, text);
		}
}

static void write_text(struct furca_buf *out, struct furca_view map, uint64_t msgid)
{
	write_state(out, map);
	write_stream(out, map, "background_output", "[from the background since the last call]\n");
	write_stream(out, map, "stdout", "");
	write_stream(out, map, "stderr", "[stderr]\n");
	write_truncated(out, map, msgid);
	write_display_text(out, map);
	write_stream(out, map, "result_text", "");
	write_stream(out, map, "error", "");
	write_stream(out, map, "suggestion", "Suggestion: ");
	if (out->len == 0)
		(void)furca_buf_append_text(out, "(no output)");
}

static void write_images(struct furca_buf *out, struct furca_view map)
{
	static const char *const kinds[] = {"image/png", "image/jpeg"};
	struct furca_value list, item, image;
	struct furca_view inside;

	if (!furca_map_get(map, "display", &list) || list.kind != FURCA_ARRAY)
		return;
	inside = furca_value_inside(&list);
	while (furca_value_next(&inside, &item) == 0)
		for (size_t i = 0; i < FURCA_COUNT(kinds); i++)
			if (furca_map_get(item.raw, kinds[i], &image) && image.kind == FURCA_BIN) {
				(void)furca_buf_printf(out, ",{\"type\":\"image\",\"mimeType\":\"%s\",\"data\":\"",
						       kinds[i]);
				(void)furca_base64(out, image.bytes.at, furca_view_size(image.bytes));
				(void)furca_buf_append_text(out, "\"}");
				break;
			}
}

/* The map but for what stands in the content already as an image, and with the number that read_output takes. */
static void write_structured(struct furca_buf *out, struct furca_view map, uint64_t msgid)
{
	struct furca_value head, key, value;
	const char *comma = "";

	(void)furca_buf_append_text(out, ",\"structuredContent\":{");
	if (msgid) {
		(void)furca_buf_printf(out, "\"msgid\":%llu", (unsigned long long)msgid);
		comma = ",";
	}
	if (furca_value_enter(&map, &head) == 0 && head.kind == FURCA_MAP)
		for (uint32_t i = 0; i < head.count; i++) {
			if (furca_value_next(&map, &key) < 0 || furca_value_next(&map, &value) < 0)
				break;
			if (key.kind != FURCA_STR || furca_view_is(key.bytes, "display"))
				continue;
			(void)furca_buf_append_text(out, comma);
			(void)furca_json_write(out, key.raw);
			(void)furca_buf_append(out, ":", 1);
			(void)furca_json_write(out, value.raw);
			comma = ",";
		}
	(void)furca_buf_append(out, "}", 1);
}

static void write_is_error(struct furca_buf *out, struct furca_view map)
{
	bool ok = true;

	(void)furca_map_bool(map, "ok", &ok);
	(void)furca_buf_printf(out, ",\"isError\":%s", ok ? "false" : "true");
}

int furca_mcp_write_result(struct furca_buf *out, struct furca_view map, uint64_t msgid)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;

	write_text(&text, map, msgid);
	(void)furca_buf_append_text(out, "\"content\":[{\"type\":\"text\",\"text\":");
	(void)furca_json_write_text(out, (const char *)text.data, text.len);
	(void)furca_buf_append(out, "}", 1);
	write_images(out, map);
	(void)furca_buf_append(out, "]", 1);
	write_structured(out, map, msgid);
	write_is_error(out, map);
	return text.failed ? text.failed : out->failed;
}

int furca_mcp_write_answer(struct furca_buf *out, struct furca_view map)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	struct furca_view error;

	if (furca_map_text(map, "error", &error)) {
		append_view(&text, error);
		write_stream(&text, map, "suggestion", "Suggestion: ");
	} else {
		(void)furca_json_write(&text, map);
	}
	(void)furca_buf_append_text(out, "\"content\":[{\"type\":\"text\",\"text\":");
	(void)furca_json_write_text(out, (const char *)text.data, text.len);
	(void)furca_buf_append_text(out, "}]");
	write_structured(out, map, 0);
	write_is_error(out, map);
	return text.failed ? text.failed : out->failed;
}
