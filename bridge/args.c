#include "bridge/args.h"

#include <errno.h>

#include "base/banned.h"

#define HEAD 5 /* a map with a 32-bit count */

void furca_args_begin(struct furca_args *args)
{
	static const uint8_t head[HEAD] = {0xdf};

	*args = (struct furca_args){0};
	(void)furca_buf_append(&args->buf, head, sizeof(head));
	msgpack_packer_init(&args->pk, &args->buf, furca_buf_msgpack_write);
}

void furca_args_done(struct furca_args *args)
{
	furca_buf_done(&args->buf);
}

void furca_args_key(struct furca_args *args, const char *key)
{
	msgpack_pack_str_with_body(&args->pk, key, strlen(key));
	args->count++;
}

void furca_args_text(struct furca_args *args, const char *key, const char *value)
{
	if (value) {
		furca_args_key(args, key);
		msgpack_pack_str_with_body(&args->pk, value, strlen(value));
	}
}

void furca_args_int(struct furca_args *args, const char *key, int64_t value)
{
	if (value != INT64_MIN) {
		furca_args_key(args, key);
		msgpack_pack_int64(&args->pk, value);
	}
}

void furca_args_float(struct furca_args *args, const char *key, double value)
{
	furca_args_key(args, key);
	msgpack_pack_double(&args->pk, value);
}

void furca_args_bool(struct furca_args *args, const char *key, bool value)
{
	furca_args_key(args, key);
	if (value)
		msgpack_pack_true(&args->pk);
	else
		msgpack_pack_false(&args->pk);
}

void furca_args_packed(struct furca_args *args, const char *key, struct furca_view value)
{
	furca_args_key(args, key);
	(void)furca_buf_append(&args->buf, value.at, furca_view_size(value));
}

int furca_args_merge(struct furca_args *args, const void *map, size_t size)
{
	struct furca_value head;

	if (!map)
		return 0;
	struct furca_view view = {map, (const uint8_t *)map + size};
	if (furca_value_check(view, 128, SIZE_MAX) < 0 || furca_value_enter(&view, &head) < 0 || head.kind != FURCA_MAP)
		return -EINVAL;
	args->count += head.count;
	return furca_buf_append(&args->buf, view.at, furca_view_size(view));
}

int furca_args_end(struct furca_args *args, struct furca_view *ret)
{
	if (args->buf.failed)
		return args->buf.failed;
	for (int i = 0; i < 4; i++)
		args->buf.data[1 + i] = (uint8_t)(args->count >> (24 - 8 * i));
	*ret = furca_buf_view(&args->buf);
	return 0;
}
