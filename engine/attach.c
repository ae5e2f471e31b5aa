/* Sessions that are processes which ran before: attach_session. What holds for them stands in doc/attach.md. */
#include "engine/call.h"
#include "engine/engine_private.h"
#include "engine/session.h"

#include "base/banned.h"

/* Where it is to be; nothing is there yet. 0 or -errno with *err. */
static int place(struct furca_engine *engine, const struct furca_selector *selector, struct furca_key *ret,
		 struct furca_err *err)
{
	char advice[FURCA_ERR_TEXT_MAX], at[FURCA_ADVICE_TEXT];

	*ret = (struct furca_key){.lang = furca_lang_find("python", 6)};
	if (selector->lang && selector->lang != ret->lang)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, "Use language='python'.",
					  "Only a Python process can be attached.");
	if (furca_view_size(selector->name)) {
		ret->id = furca_registry_free_id(&engine->registry, ret->lang, 0);
		return furca_registry_by_name(&engine->registry, selector->name)
			       ? furca_coordinate_taken(&engine->registry, "session_name", selector->name, err)
			       : 0;
	}
	if (!furca_registry_by_id(&engine->registry, ret))
		return 0;
	(void)snprintf(advice, sizeof(advice), "Use session_name='agent', or call close_session with %s first.",
		       furca_coordinate_place(at, ret));
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "There is a session 0 already.");
}

struct furca_session *furca_session_attach(struct furca_engine *engine, const struct furca_selector *selector,
					   struct furca_fd channel, struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd mine = channel;
	struct furca_session *s = NULL;
	struct furca_host *host;
	struct furca_key key;

	if (place(engine, selector, &key, err) < 0)
		return NULL;
	host = furca_host_attach(engine, key.lang, furca_fd_take(&mine), &furca_session_host_events, NULL, err);
	if (host)
		s = furca_session_new(engine, &key, err);
	if (!s) {
		furca_host_drop(host);
		return NULL;
	}
	s->attached = true;
	s->version = 1; /* above the pristine state, which it cannot be taken back to */
	furca_commit_drop_all(s);
	if (furca_view_size(selector->name))
		(void)furca_registry_bind(&engine->registry, &s->entry, selector->name);
	furca_session_adopt(s, host);
	return s;
}

static void answer(struct furca_engine *engine, const struct furca_session *s, struct furca_buf *out)
{
	char path[4096];
	msgpack_packer pk;

	(void)snprintf(path, sizeof(path), "%s/_furca_host.abi3.so", furca_lang_libexec());
	furca_packer(&pk, out);
	msgpack_pack_map(&pk, 3);
	furca_pack_text(&pk, "ok");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "session");
	furca_result_session(&pk, &s->entry);
	furca_pack_text(&pk, "module");
	furca_pack_text(&pk, path);
}

void furca_engine_attach(struct furca_engine *engine, furca_client_id client, uint64_t msgid, struct furca_view args,
			 struct furca_fd channel)
{
	FURCA_AUTO_FD struct furca_fd mine = channel;
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_selector selector = {0};
	struct furca_session *s = NULL;
	struct furca_err err = FURCA_ERR_INIT;

	if (engine->stopping)
		(void)furca_fail(&err, FURCA_E_GONE, 0, "The engine is stopping.");
	else if (furca_coordinate_select(FURCA_METHOD_attach_session, args, &selector, &err) == 0 && mine.n < 0)
		(void)furca_fail_suggest(&err, FURCA_E_VALIDATION, 0, FURCA_ADVICE_CHANNEL,
					 "No channel came beside attach_session.");
	if (!err.code)
		s = furca_session_attach(engine, &selector, furca_fd_take(&mine), &err);
	if (s) {
		answer(engine, s, &out);
	} else {
		engine->stats.refused++;
		furca_result_refusal(args, NULL, &err, false, &out);
	}
	furca_engine_answer(engine, client, msgid, &out);
}
