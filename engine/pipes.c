#include "engine/pipes.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"

#include "base/banned.h"

#define MAX_BACKGROUND 16		   /* pairs of pipes of earlier calls that a session keeps reading */
#define BACKGROUND_BYTES ((size_t)1 << 17) /* kept between two calls: head and tail */

/* Sends what is whole; keeps the beginning of a character for the next time. */
static void stream_bytes(struct furca_pipes *p, int which, const uint8_t *data, size_t n, bool last)
{
	static const char *const names[] = {"stdout", "stderr"};
	FURCA_AUTO_BUF struct furca_buf bytes = FURCA_BUF_INIT, text = FURCA_BUF_INIT, params = FURCA_BUF_INIT;
	msgpack_packer pk;

	(void)furca_buf_append(&bytes, p->carry[which], p->n_carry[which]);
	(void)furca_buf_append(&bytes, data, n);
	size_t whole = last ? bytes.len : furca_utf8_whole(bytes.data, bytes.len);
	if (bytes.failed)
		return;
	p->n_carry[which] = bytes.len - whole;
	if (bytes.len > whole)
		memcpy(p->carry[which], bytes.data + whole, bytes.len - whole);
	if (whole == 0)
		return;
	furca_utf8_lossy(&text, bytes.data, whole);
	furca_packer(&pk, &params);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "execute_msgid");
	msgpack_pack_uint64(&pk, p->msgid);
	furca_pack_text(&pk, "stream");
	furca_pack_text(&pk, names[which]);
	furca_pack_text(&pk, "data");
	furca_pack_bytes(&pk, text.data, text.len);
	if (!params.failed)
		p->engine->events.notify(p->engine->user, p->client, "output", furca_buf_view(&params));
}

static void unlink_background(struct furca_pipes *p)
{
	if (!p->background)
		return;
	if (p->background->last == p)
		p->background->last = NULL;
	for (struct furca_pipes **at = &p->background->first; *at; at = &(*at)->next) {
		if (*at != p)
			continue;
		*at = p->next;
		p->background->count--;
		break;
	}
	p->background = NULL;
}

static void on_bytes(void *owner, int which, const uint8_t *data, size_t n)
{
	struct furca_pipes *p = owner;

	if (n == 0) {
		p->open--;
		if (p->open == 0 && p->background) {
			unlink_background(p);
			furca_pipes_free(p);
		}
		return;
	}
	if (p->output) {
		furca_output_add(&p->output[which], data, n);
		if (p->stream)
			stream_bytes(p, which, data, n, false);
	} else if (p->background) {
		furca_output_add(&p->background->text, data, n);
	}
}

struct furca_pipes *furca_pipes_new(struct furca_engine *engine, struct furca_output output[2], bool stream,
				    furca_client_id client, uint64_t msgid, struct furca_fd ret_write_ends[2],
				    struct furca_err *err)
{
	struct furca_pipes *p = calloc(1, sizeof(*p));
	int r = p ? 0 : -ENOMEM;

	ret_write_ends[0] = ret_write_ends[1] = FURCA_FD_NONE;
	for (int i = 0; i < 2 && r == 0; i++)
		r = furca_drain_open(&p->drain[i], engine->loop, i, on_bytes, p, &ret_write_ends[i]);
	if (r < 0) {
		(void)furca_fail(err, FURCA_E_SYSTEM, -r, "cannot make a pipe for the code's output");
		furca_fds_done(ret_write_ends, 2);
		furca_pipes_free(p);
		return NULL;
	}
	p->engine = engine;
	p->output = output;
	p->open = 2;
	p->stream = stream;
	p->client = client;
	p->msgid = msgid;
	return p;
}

void furca_pipes_put(struct furca_pipes *p, int which, const uint8_t *data, size_t n)
{
	if (!p->output || n == 0)
		return;
	furca_drain_now(&p->drain[which]);
	furca_output_add(&p->output[which], data, n);
	if (p->stream)
		stream_bytes(p, which, data, n, false);
}

void furca_pipes_finish(struct furca_pipes *p)
{
	for (int i = 0; i < 2; i++) {
		furca_drain_now(&p->drain[i]);
		if (p->stream && p->n_carry[i])
			stream_bytes(p, i, NULL, 0, true);
	}
	p->output = NULL;
	p->stream = false;
}

struct furca_pipes *furca_pipes_again(struct furca_background *background, uint64_t tag, struct furca_output output[2],
				      bool stream, furca_client_id client, uint64_t msgid)
{
	struct furca_pipes *p = background->last;

	if (!p || p->tag != tag || p->open != 2)
		return NULL;
	unlink_background(p);
	p->output = output;
	p->stream = stream;
	p->client = client;
	p->msgid = msgid;
	p->n_carry[0] = p->n_carry[1] = 0;
	return p;
}

void furca_pipes_keep(struct furca_pipes *p, struct furca_background *background, bool reusable)
{
	if (p->open == 0) {
		furca_pipes_free(p);
		return;
	}
	p->background = background;
	background->last = reusable ? p : NULL;
	p->next = background->first;
	background->first = p;
	if (++background->count <= MAX_BACKGROUND)
		return;
	while (p->next)
		p = p->next;
	unlink_background(p);
	furca_pipes_free(p);
}

void furca_pipes_free(struct furca_pipes *p)
{
	if (!p)
		return;
	for (int i = 0; i < 2; i++)
		furca_drain_done(&p->drain[i]);
	free(p);
}

void furca_background_init(struct furca_background *background)
{
	memset(background, 0, sizeof(*background));
	furca_output_init(&background->text, BACKGROUND_BYTES, NULL, 0);
}

void furca_background_done(struct furca_background *background)
{
	while (background->first) {
		struct furca_pipes *p = background->first;

		unlink_background(p);
		furca_pipes_free(p);
	}
	furca_output_done(&background->text);
}

void furca_background_take(struct furca_background *background, struct furca_buf *out)
{
	struct furca_pipes *next;

	for (struct furca_pipes *p = background->first; p; p = next) {
		next = p->next; /* reading may find its end and free it */
		for (int i = 0; i < 2 && p; i++) {
			unsigned count = background->count;

			furca_drain_now(&p->drain[i]);
			if (background->count != count)
				p = NULL;
		}
		if (!p && background->first == NULL)
			break;
	}
	(void)furca_output_text(&background->text, out);
	furca_output_done(&background->text);
	furca_output_init(&background->text, BACKGROUND_BYTES, NULL, 0);
}
