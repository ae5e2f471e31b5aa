#include "engine/lineage.h"

#include "engine/engine_private.h"

#include "base/banned.h"

/* One process, or the pristine state, which has none. */
struct one {
	const char *role;
	const struct furca_host *host;	   /* NULL: none */
	const struct furca_commit *commit; /* NULL: no state of its own */
	const struct furca_call *call;	   /* under way in it, or NULL */
	bool serves;
};

typedef void one_fn(void *data, const struct one *one);

static void each_commit(const struct furca_session *s, one_fn *fn, void *data)
{
	const struct furca_host *source = furca_read_source(s);

	for (const struct furca_commit *c = s->top; c; c = c->below)
		fn(data, &(struct one){c->host || !c->standing ? "snapshot" : "pristine", c->host, c, NULL,
				       c->host && c->host == source});
	for (const struct furca_commit *c = s->labelled; c; c = c->below)
		fn(data, &(struct one){"checkpoint", c->host, c, NULL, false});
}

static void each(const struct furca_session *s, one_fn *fn, void *data)
{
	if (s->live)
		fn(data, &(struct one){"live", s->live, NULL, s->running, furca_read_source(s) == s->live});
	each_commit(s, fn, data);
	if (s->parked)
		fn(data, &(struct one){"parked copy", s->parked, s->top, NULL,
				       s->parked_ready && s->top && s->top->version == s->version});
	for (const struct furca_call *call = s->engine->calls; call; call = call->next)
		if (call->session == s && call->own_host && call->host)
			fn(data, &(struct one){"copy", call->host, NULL, call, false});
}

static void count(void *data, const struct one *one)
{
	(void)one;
	(*(uint32_t *)data)++;
}

void furca_lineage_memory(msgpack_packer *pk, const struct furca_host *host)
{
	uint64_t private_bytes = 0, shared_bytes = 0;

	if (host && host->proc.pid > 0)
		(void)furca_limits_memory(host->proc.pid, &private_bytes, &shared_bytes);
	furca_pack_text(pk, "memory");
	msgpack_pack_map(pk, 2);
	furca_pack_text(pk, "private_bytes");
	msgpack_pack_uint64(pk, private_bytes);
	furca_pack_text(pk, "shared_bytes");
	msgpack_pack_uint64(pk, shared_bytes);
}

static void pack_call(msgpack_packer *pk, const struct furca_call *call)
{
	furca_pack_text(pk, "call");
	msgpack_pack_map(pk, 3);
	furca_pack_text(pk, "method");
	furca_pack_text(pk, furca_method_name(call->method));
	furca_pack_text(pk, "state_mode");
	furca_pack_text(pk, furca_mode_word(call->plan.mode));
	furca_pack_text(pk, "running_s");
	msgpack_pack_double(pk,
			    (double)(furca_now_us() - (call->started_us ? call->started_us : call->asked_us)) / 1e6);
}

static void pack(void *data, const struct one *one)
{
	msgpack_packer *pk = data;
	const char *label = one->commit ? one->commit->label : NULL;
	bool there = one->host && !one->host->dead && one->host->proc.pid > 0;

	msgpack_pack_map(pk, 4U + (one->commit != NULL) + (label != NULL) + (one->call != NULL));
	furca_pack_text(pk, "role");
	furca_pack_text(pk, one->role);
	furca_pack_text(pk, "pid");
	if (there)
		msgpack_pack_int64(pk, one->host->proc.pid);
	else
		msgpack_pack_nil(pk);
	furca_lineage_memory(pk, there ? one->host : NULL);
	furca_pack_text(pk, "serves");
	furca_pack_bool(pk, one->serves);
	if (one->commit) {
		furca_pack_text(pk, "calls");
		msgpack_pack_uint64(pk, one->commit->calls);
	}
	if (label) {
		furca_pack_text(pk, "label");
		furca_pack_text(pk, label);
	}
	if (one->call)
		pack_call(pk, one->call);
}

void furca_lineage_pack(msgpack_packer *pk, const struct furca_session *session)
{
	uint32_t n = 0;

	each(session, count, &n);
	msgpack_pack_array(pk, n);
	each(session, pack, pk);
}
