/* Short forms for packing; text is what C has, bytes are views. */
#pragma once

#include <msgpack.h>
#include <string.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

static inline void furca_packer(msgpack_packer *pk, struct furca_buf *buf)
{
	msgpack_packer_init(pk, buf, furca_buf_msgpack_write);
}

static inline void furca_pack_bytes(msgpack_packer *pk, const void *data, size_t n)
{
	char all[32] = {(char)(0xa0 | n)};

	if (n < sizeof(all)) { /* as keys and words are: head and text in one write */
		if (n > 0)
			memcpy(all + 1, data, n);
		(void)pk->callback(pk->data, all, n + 1);
		return;
	}
	msgpack_pack_str(pk, n);
	msgpack_pack_str_body(pk, data, n);
}

static inline void furca_pack_text(msgpack_packer *pk, const char *text)
{
	furca_pack_bytes(pk, text, strlen(text));
}

/* An entry of a map whose value is text. */
static inline void furca_pack_entry(msgpack_packer *pk, const char *key, const char *text)
{
	furca_pack_text(pk, key);
	furca_pack_text(pk, text);
}

/* nil for NULL */
static inline void furca_pack_text_or_nil(msgpack_packer *pk, const char *text)
{
	if (text)
		furca_pack_text(pk, text);
	else
		msgpack_pack_nil(pk);
}

static inline void furca_pack_bool(msgpack_packer *pk, bool value)
{
	if (value)
		msgpack_pack_true(pk);
	else
		msgpack_pack_false(pk);
}

/* A value that is packed already; nil where the view is empty. */
static inline void furca_pack_raw(msgpack_packer *pk, struct furca_view raw)
{
	if (raw.at && raw.end > raw.at)
		(void)pk->callback(pk->data, (const char *)raw.at, furca_view_size(raw));
	else
		msgpack_pack_nil(pk);
}
