#include "engine/lost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine_private.h"
#include "engine/store.h"

#include "base/banned.h"

#define EVERY_S 10

struct furca_lost {
	struct furca_lost *next;
	const struct furca_lang *lang;
	uint64_t venv, id, calls;
	double used_at;
	char *name;
};

static int collect(void *user, const struct furca_store_session *row)
{
	struct furca_lost **first = user, *lost;
	const struct furca_lang *lang = furca_lang_find(row->language, strlen(row->language));

	if (!lang || !(lost = calloc(1, sizeof(*lost))))
		return 0;
	*lost = (struct furca_lost){*first,
				    lang,
				    row->venv_id,
				    row->session_id,
				    row->calls,
				    row->used_at,
				    row->name ? strdup(row->name) : NULL};
	*first = lost;
	return 0;
}

struct furca_lost *furca_lost_read(struct furca_engine *engine)
{
	struct furca_lost *first = NULL;
	struct furca_err err = FURCA_ERR_INIT;

	if (furca_store_session_each(engine->store, collect, &first, &err) < 0 ||
	    furca_store_session_clear(engine->store, &err) < 0)
		furca_log_err("engine", "sessions of the last engine", &err);
	return first;
}

void furca_lost_free(struct furca_lost *lost)
{
	while (lost) {
		struct furca_lost *next = lost->next;

		free(lost->name);
		free(lost);
		lost = next;
	}
}

static bool is_it(const struct furca_lost *lost, const struct furca_key *key, struct furca_view name)
{
	if (lost->lang != key->lang || lost->venv != key->venv)
		return false;
	return name.at ? lost->name && furca_view_is(name, lost->name) : lost->id == key->id;
}

void furca_lost_tell(struct furca_engine *engine, struct furca_session *s, struct furca_view name)
{
	for (struct furca_lost **at = &engine->lost; *at; at = &(*at)->next) {
		struct furca_lost *lost = *at;
		time_t used = (time_t)lost->used_at;
		char when[32] = "?";
		struct tm tm;

		if (!is_it(lost, &s->entry.key, name))
			continue;
		if (gmtime_r(&used, &tm))
			(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
		(void)furca_buf_printf(
			&s->note,
			"The state of the earlier session (%llu calls, last used %s) was lost when the engine ended: "
			"this call began in an empty session. Build again what it needs.",
			(unsigned long long)lost->calls, when);
		*at = lost->next;
		lost->next = NULL;
		furca_lost_free(lost);
		return;
	}
}

void furca_lost_note(struct furca_session *s)
{
	struct furca_err err = FURCA_ERR_INIT;
	double now = furca_wall_s();
	const struct furca_store_session row = {
		.language = s->entry.key.lang->name,
		.venv_id = s->entry.key.venv,
		.session_id = s->entry.key.id,
		.name = s->entry.n_names ? s->entry.names[0] : NULL,
		.calls = s->calls,
		.created_at = s->created_at,
		.used_at = s->used_at,
	};

	if (now - s->noted_at < EVERY_S && now >= s->noted_at)
		return;
	s->noted_at = now;
	if (furca_store_session_put(s->engine->store, &row, &err) < 0)
		furca_log_err("engine", "note of a session", &err);
}

void furca_lost_forget(struct furca_session *s)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (s->noted_at > 0 && furca_store_session_remove(s->engine->store, s->entry.key.lang->name, s->entry.key.venv,
							  s->entry.key.id, &err) < 0)
		furca_log_err("engine", "note of a session", &err);
}
