/* Requests and what comes of them: the functions of include/furca.h that pack arguments and read results. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "base/clock.h"
#include "bridge/args.h"
#include "bridge/client.h"

#include "base/banned.h"

static int64_t deadline_of(double timeout_s)
{
	if (timeout_s < 0 || timeout_s > 1e9)
		return FURCA_NEVER;
	return furca_deadline_us((int64_t)(timeout_s * 1e6));
}

static int explain(struct furca_error *err, int r)
{
	switch (r) {
	case -ETIMEDOUT:
		return furca_client_fail(err, r, "Wait longer, or cancel the call.", "no answer came in time");
	case -ENOENT:
		return furca_client_fail(err, r, "Wait for each id once.", "no call of that id is under way");
	case -EDEADLK:
		return furca_client_fail(err, r, "Wait from another thread, or after the callback.",
					 "a callback for output must not wait for the connection it reads");
	case -ENOMEM:
		return furca_client_fail(err, r, NULL, "memory is out");
	case -E2BIG:
		return furca_client_fail(err, r, "Send less at once; large data by a file.",
					 "the arguments are too large, nested too deep or too many for one message");
	case -EINVAL:
		return furca_client_fail(err, r, "Pack a map.", "the arguments are no packed map");
	case -EPROTO:
		return furca_client_fail(err, r, "Connect again; use a client and an engine of one release.",
					 "the engine and this library do not understand each other");
	default:
		return furca_client_fail(err, r, "Connect again; the engine's log says why it ended.",
					 "the engine has closed the connection");
	}
}

/* A protocol error {code, message}. */
static int refused(struct furca_error *err, const struct furca_buf *answer)
{
	struct furca_view map = {answer->data, answer->data + answer->len}, message, code;

	if (!furca_map_text(map, "message", &message) || !furca_map_text(map, "code", &code))
		return furca_client_fail(err, -EPROTO, NULL, "the engine refused the request");
	return furca_client_fail(err, -EPROTO, NULL, "%.*s (%.*s)",
				 (int)FURCA_MIN(furca_view_size(message), (size_t)400), (const char *)message.at,
				 (int)FURCA_MIN(furca_view_size(code), (size_t)40), (const char *)code.at);
}

int furca_call(struct furca_client *client, const char *method, const void *args, size_t args_size, double timeout_s,
	       void **ret, size_t *ret_size, struct furca_error *err)
{
	FURCA_AUTO_BUF struct furca_buf answer = FURCA_BUF_INIT;
	struct furca_view view = {args, args ? (const uint8_t *)args + args_size : NULL};
	uint32_t msgid;
	bool is_error = false;

	int r = furca_client_send(client, method, view, NULL, NULL, &msgid);
	if (r == 0)
		r = furca_client_wait(client, msgid, deadline_of(timeout_s), &answer, &is_error);
	if (r == -ETIMEDOUT)
		furca_client_forget(client, msgid);
	if (r < 0)
		return explain(err, r);
	if (is_error)
		return refused(err, &answer);
	struct furca_buf taken = furca_buf_take(&answer);
	*ret = taken.data;
	*ret_size = taken.len;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------- arguments */

static int pack_execute(struct furca_args *map, struct furca_client *client, const struct furca_execute *args)
{
	struct furca_view more = {args->more, args->more ? (const uint8_t *)args->more + args->more_size : NULL};
	struct furca_value given;
	uint64_t within;

	furca_args_begin(map);
	furca_args_key(map, "code");
	size_t n = args->code_size ? args->code_size : strlen(args->code);
	msgpack_pack_str_with_body(&map->pk, args->code, n);
	furca_args_text(map, "language", args->language);
	furca_args_text(map, "state_mode", args->state_mode);
	furca_args_text(map, "session_name", args->session_name);
	furca_args_int(map, "session_id", args->session_id);
	furca_args_int(map, "venv_id", args->venv_id);
	if (args->timeout_s > 0)
		furca_args_float(map, "timeout_s", args->timeout_s);
	furca_args_text(map, "on_error", args->on_error);
	furca_args_text(map, "retry", args->retry);
	furca_args_text(map, "cwd", args->cwd);
	if (args->max_output_bytes)
		furca_args_int(map, "max_output_bytes",
			       (int64_t)FURCA_MIN(args->max_output_bytes, (uint64_t)INT64_MAX));
	if (args->on_output)
		furca_args_bool(map, "stream", true);
	if (!furca_map_get(more, "within", &given) && furca_client_within(client, &within))
		furca_args_int(map, "within", (int64_t)within);
	return furca_args_merge(map, args->more, args->more_size);
}

/* ------------------------------------------------------------------------------------------------------------ executions */

int furca_start(struct furca_client *client, const struct furca_execute *args, uint64_t *ret_id,
		struct furca_error *err)
{
	FURCA_AUTO_ARGS struct furca_args map = {0};
	struct furca_view view;
	uint32_t msgid = 0;

	if (!args->code)
		return furca_client_fail(err, -EINVAL, "Set code.", "an execute needs code");
	int r = pack_execute(&map, client, args);
	if (r == 0)
		r = furca_args_end(&map, &view);
	if (r == 0)
		r = furca_client_send(client, "execute", view, args->on_output, args->user, &msgid);
	if (r == -EINVAL)
		return furca_client_fail(err, r, "Pack a map.", "the further arguments are no packed map");
	if (r < 0)
		return explain(err, r);
	furca_client_started(client, msgid);
	*ret_id = msgid;
	return 0;
}

int furca_wait(struct furca_client *client, uint64_t id, double timeout_s, struct furca_result *ret,
	       struct furca_error *err)
{
	FURCA_AUTO_BUF struct furca_buf answer = FURCA_BUF_INIT;
	bool is_error = false;
	int r = id > UINT32_MAX ? -ENOENT
				: furca_client_wait(client, (uint32_t)id, deadline_of(timeout_s), &answer, &is_error);

	if (r < 0)
		return explain(err, r);
	if (is_error)
		return refused(err, &answer);
	r = furca_result_read(&answer, ret);
	return r < 0 ? explain(err, r) : 0;
}

int furca_execute(struct furca_client *client, const struct furca_execute *args, struct furca_result *ret,
		  struct furca_error *err)
{
	uint64_t id = 0;
	int r = furca_start(client, args, &id, err);

	return r < 0 ? r : furca_wait(client, id, FURCA_FOREVER, ret, err);
}

static int call_with(struct furca_client *client, const char *method, struct furca_args *args, void **ret,
		     size_t *ret_size, struct furca_error *err)
{
	struct furca_view view;
	int r = furca_args_end(args, &view);

	return r < 0 ? explain(err, r)
		     : furca_call(client, method, view.at, furca_view_size(view), FURCA_FOREVER, ret, ret_size, err);
}

int furca_cancel(struct furca_client *client, uint64_t id, struct furca_error *err)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	size_t size;
	bool cancelled = false;

	furca_args_begin(&args);
	furca_args_key(&args, "msgid");
	msgpack_pack_uint64(&args.pk, id);
	int r = call_with(client, "cancel", &args, &answer, &size, err);
	if (r < 0)
		return r;
	(void)furca_map_bool((struct furca_view){answer, (uint8_t *)answer + size}, "cancelled", &cancelled);
	return cancelled;
}

static int session_call(struct furca_client *client, const char *method, const struct furca_session *session,
			const char *detail, void **ret, size_t *ret_size, struct furca_error *err)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};

	furca_args_begin(&args);
	if (session) {
		furca_args_text(&args, "language", session->language);
		furca_args_text(&args, "session_name", session->name);
		furca_args_int(&args, "session_id", session->id);
		furca_args_int(&args, "venv_id", session->venv_id);
	}
	furca_args_text(&args, "detail", detail);
	return call_with(client, method, &args, ret, ret_size, err);
}

int furca_list_sessions(struct furca_client *client, void **ret, size_t *ret_size, struct furca_error *err)
{
	return session_call(client, "list_sessions", NULL, NULL, ret, ret_size, err);
}

int furca_inspect_session(struct furca_client *client, const struct furca_session *session, const char *detail,
			  void **ret, size_t *ret_size, struct furca_error *err)
{
	return session_call(client, "inspect_session", session, detail, ret, ret_size, err);
}

int furca_close_session(struct furca_client *client, const struct furca_session *session, void **ret, size_t *ret_size,
			struct furca_error *err)
{
	return session_call(client, "close_session", session, NULL, ret, ret_size, err);
}

void furca_on_notification(struct furca_client *client, furca_notification_fn *fn, void *user)
{
	(void)pthread_mutex_lock(&client->lock);
	client->on_notification = fn;
	client->notification_user = user;
	(void)pthread_mutex_unlock(&client->lock);
}

int furca_serve(struct furca_client *client, double timeout_s, struct furca_error *err)
{
	int r = furca_client_serve(client, deadline_of(timeout_s));

	return r == -ETIMEDOUT ? 0 : explain(err, r);
}
