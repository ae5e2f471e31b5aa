/*
 * Output of calls that have ended, for read_output: by client and msgid while the client is there, and by a number of the engine's for every
 * client, newest first, bounded by number and memory.
 */
#include <stdlib.h>

#include "engine/call.h"
#include "engine/engine_private.h"

#include "base/banned.h"

#define KEPT_CALLS 256		      /* of one client; the bytes of longer output lie in files */
#define KEPT_GONE 64		      /* of clients that have gone, all together; and FURCA_MAX_SPILL bytes */
#define KEPT_BYTES ((size_t)64 << 20) /* memory of all */

struct furca_kept {
	struct furca_kept *next;
	furca_client_id client; /* 0: it has gone */
	uint64_t msgid, id;
	struct furca_output output[2];
};

static void kept_free(struct furca_engine *engine, struct furca_kept **at)
{
	struct furca_kept *kept = *at;

	*at = kept->next;
	for (int i = 0; i < 2; i++) {
		engine->kept_bytes -= furca_output_memory(&kept->output[i]);
		furca_output_done(&kept->output[i]);
	}
	free(kept);
}

void furca_kept_number(struct furca_engine *engine, struct furca_call *call)
{
	if (!call->client_gone && !call->origin && call->output[0].max &&
	    call->output[0].total + call->output[1].total > 0)
		call->output_id = furca_engine_next(engine);
}

void furca_kept_add(struct furca_engine *engine, struct furca_call *call)
{
	struct furca_kept *kept;
	unsigned of_client = 0;

	if (!call->output_id)
		return;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return;
	kept->client = call->client;
	kept->msgid = call->msgid;
	kept->id = call->output_id;
	for (int i = 0; i < 2; i++) {
		furca_output_seal(&call->output[i]);
		kept->output[i] = call->output[i];
		call->output[i] = (struct furca_output){.spill = FURCA_FD_NONE};
		engine->kept_bytes += furca_output_memory(&kept->output[i]);
	}
	kept->next = engine->kept;
	engine->kept = kept;
	for (struct furca_kept **at = &engine->kept; *at;) {
		struct furca_kept *k = *at;

		of_client += k->client == kept->client;
		if (k != kept && ((k->client == kept->client && (k->msgid == kept->msgid || of_client > KEPT_CALLS)) ||
				  (engine->kept_bytes > KEPT_BYTES && !k->next))) {
			kept_free(engine, at);
			if (engine->kept_bytes > KEPT_BYTES)
				at = &engine->kept; /* the oldest went; maybe one more must */
			continue;
		}
		at = &k->next;
	}
}

void furca_kept_client_gone(struct furca_engine *engine, furca_client_id client)
{
	unsigned n = 0;
	uint64_t bytes = 0;

	for (struct furca_kept **at = &engine->kept; *at;) {
		struct furca_kept *k = *at;

		if (k->client == client)
			k->client = 0;
		if (k->client == 0) {
			n++;
			bytes += k->output[0].total + k->output[1].total;
		}
		/* The newest stays, however long it is. */
		if (k->client == 0 && n > 1 && (n > KEPT_GONE || bytes > FURCA_MAX_SPILL))
			kept_free(engine, at);
		else
			at = &k->next;
	}
}

void furca_kept_free(struct furca_engine *engine)
{
	while (engine->kept)
		kept_free(engine, &engine->kept);
}

static const struct furca_output *find(struct furca_engine *engine, furca_client_id client,
				       const struct furca_selector *s)
{
	int which = s->stream.at && furca_view_is(s->stream, "stderr");

	for (struct furca_call *call = engine->calls; call && !s->output_id; call = call->next)
		if (call->client == client && call->msgid == s->msgid && !call->origin)
			return &call->output[which];
	for (struct furca_kept *kept = engine->kept; kept; kept = kept->next)
		if (s->output_id ? kept->id == s->output_id : kept->client == client && kept->msgid == s->msgid)
			return &kept->output[which];
	return NULL;
}

/* Names what is kept, if anything is. */
static void not_kept(const struct furca_engine *engine, furca_client_id client, const struct furca_selector *s,
		     struct furca_err *err)
{
	const char *key = s->output_id ? "output_id" : "msgid";
	const struct furca_kept *kept = engine->kept;
	char advice[256];

	while (kept && !s->output_id && kept->client != client)
		kept = kept->next;
	if (kept)
		(void)snprintf(advice, sizeof(advice),
			       "Use %s=%llu, the last call whose output is kept, or run the call again.", key,
			       (unsigned long long)(s->output_id ? kept->id : kept->msgid));
	else
		(void)snprintf(
			advice, sizeof(advice),
			"Call execute with language='bash' and code='echo output' first and use its %s; no output is kept%s.",
			key, s->output_id ? "" : " for this connection");
	(void)furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "No output is kept %s %llu.",
				 s->output_id ? "under the number" : "of the request",
				 (unsigned long long)(s->output_id ? s->output_id : s->msgid));
}

void furca_kept_read(struct furca_engine *engine, furca_client_id client, const struct furca_selector *s,
		     struct furca_view args, struct furca_buf *out)
{
	const struct furca_output *output = find(engine, client, s);
	FURCA_AUTO_BUF struct furca_buf bytes = FURCA_BUF_INIT;
	struct furca_err err = FURCA_ERR_INIT;
	msgpack_packer pk;

	if (!output) {
		not_kept(engine, client, s, &err);
		furca_result_refusal(args, NULL, &err, false, out);
		return;
	}
	(void)furca_output_read(output, s->offset, FURCA_MIN(s->length, FURCA_MAX_OUTPUT), &bytes);
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 5);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "data");
	msgpack_pack_bin(&pk, bytes.len);
	msgpack_pack_bin_body(&pk, bytes.data, bytes.len);
	furca_pack_text(&pk, "offset");
	msgpack_pack_uint64(&pk, s->offset);
	furca_pack_text(&pk, "total");
	msgpack_pack_uint64(&pk, output->total);
	furca_pack_text(&pk, "end");
	/* Where the disk was full nothing stands behind what it took. */
	furca_pack_bool(&pk, s->offset + bytes.len >= output->total || (bytes.len == 0 && s->length > 0));
}
