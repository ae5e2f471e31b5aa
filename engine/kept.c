/* Output of calls that have ended, for read_output: by client and msgid, newest first, bounded by number and memory. */
#include <stdlib.h>

#include "engine/call.h"
#include "engine/engine_private.h"

#include "base/banned.h"

#define KEPT_CALLS 256		     /* of one client; the bytes of longer output lie in files */
#define KEPT_BYTES ((size_t)64 << 20) /* memory of all */

struct furca_kept {
	struct furca_kept *next;
	furca_client_id client;
	uint64_t msgid;
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

void furca_kept_add(struct furca_engine *engine, struct furca_call *call)
{
	struct furca_kept *kept;
	unsigned of_client = 0;

	if (call->client_gone || call->origin || !call->output[0].max || call->output[0].total + call->output[1].total == 0)
		return;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return;
	kept->client = call->client;
	kept->msgid = call->msgid;
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
	for (struct furca_kept **at = &engine->kept; *at;) {
		if ((*at)->client == client)
			kept_free(engine, at);
		else
			at = &(*at)->next;
	}
}

void furca_kept_free(struct furca_engine *engine)
{
	while (engine->kept)
		kept_free(engine, &engine->kept);
}

static const struct furca_output *find(struct furca_engine *engine, furca_client_id client, uint64_t msgid, int which)
{
	for (struct furca_call *call = engine->calls; call; call = call->next)
		if (call->client == client && call->msgid == msgid && !call->origin)
			return &call->output[which];
	for (struct furca_kept *kept = engine->kept; kept; kept = kept->next)
		if (kept->client == client && kept->msgid == msgid)
			return &kept->output[which];
	return NULL;
}

void furca_kept_read(struct furca_engine *engine, furca_client_id client, const struct furca_selector *s, struct furca_view args,
		     struct furca_buf *out)
{
	const struct furca_output *output = find(engine, client, s->msgid, s->stream.at && furca_view_is(s->stream, "stderr"));
	FURCA_AUTO_BUF struct furca_buf bytes = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (!output) {
		struct furca_err err = FURCA_ERR_INIT;

		char advice[256];
		const struct furca_kept *kept = engine->kept;

		while (kept && kept->client != client)
			kept = kept->next;
		if (kept)
			(void)snprintf(advice, sizeof(advice), "Use msgid=%llu, the last call whose output is kept, or run the call again.",
				       (unsigned long long)kept->msgid);
		else
			(void)snprintf(advice, sizeof(advice),
				       "Call execute with language='bash' and code='echo output' first and use its msgid; no output is kept for this connection.");
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, advice,
					 "No output is kept of the request %llu.", (unsigned long long)s->msgid);
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
	furca_pack_bool(&pk, s->offset + bytes.len >= output->total);
}
