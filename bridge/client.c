#include "bridge/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <msgpack.h>

#include "base/clock.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

enum { RPC_REQUEST, RPC_RESPONSE, RPC_NOTIFICATION };

#define PIECE (256U << 10)

/* Bytes and values, and levels, of a message around the arguments. */
#define AROUND 1024U
#define LEVELS_AROUND 4U

int furca_client_new(struct furca_fd sock, struct furca_client **ret)
{
	FURCA_AUTO_FD struct furca_fd mine = sock;
	FURCA_AUTO_FD struct furca_fd wake = furca_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	struct furca_client *client = calloc(1, sizeof(*client));
	pthread_condattr_t attr;

	if (!client || wake.n < 0 || furca_fd_nonblock(mine.n, 1) < 0) {
		free(client);
		return -ENOMEM;
	}
	(void)pthread_mutex_init(&client->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&client->change, &attr);
	(void)pthread_condattr_destroy(&attr);
	client->sock = furca_fd_take(&mine);
	client->wake = furca_fd_take(&wake);
	client->engine = FURCA_PROC_NONE;
	client->due_end = &client->due;
	client->scan.max_depth = FURCA_MAX_DEPTH + 4;
	client->scan.max_items = SIZE_MAX;
	client->scan.max_bytes = FURCA_MAX_ANSWER + 4096;
	furca_scan_reset(&client->scan);
	*ret = client;
	return 0;
}

static void pending_free(struct furca_pending *pending)
{
	if (pending)
		furca_buf_done(&pending->answer);
	free(pending);
}

static void due_free(struct furca_due *due)
{
	furca_buf_done(&due->params);
	free(due);
}

void furca_client_free(struct furca_client *client)
{
	size_t at = 0;
	uint64_t key;
	struct furca_pending *pending;

	while ((pending = furca_idmap_next(&client->pending, &at, &key)))
		pending_free(pending);
	furca_idmap_done(&client->pending);
	while (client->due) {
		struct furca_due *due = client->due;

		client->due = due->next;
		due_free(due);
	}
	for (size_t i = 0; i < client->n_offers; i++)
		free(client->offers[i].name);
	free(client->offers);
	furca_buf_done(&client->in);
	furca_buf_done(&client->out);
	furca_fd_done(&client->sock);
	furca_fd_done(&client->wake);
	furca_proc_done(&client->engine);
	(void)pthread_cond_destroy(&client->change);
	(void)pthread_mutex_destroy(&client->lock);
	free(client);
}

/* The connection has ended: everybody who waits hears of it. */
static void break_off(struct furca_client *client, int why)
{
	if (!client->broken)
		client->broken = why;
	(void)pthread_cond_broadcast(&client->change);
}

/* ------------------------------------------------------------------------------------------------------------------- out */

/* Sends what the socket takes now. What is left goes out when whoever reads finds the socket writable. */
static void flush(struct furca_client *client)
{
	size_t sent = 0;

	while (sent < client->out.len) {
		ssize_t n = send(client->sock.n, client->out.data + sent, client->out.len - sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN)
				break_off(client, -EPIPE);
			break;
		}
		sent += (size_t)n;
	}
	furca_buf_consume(&client->out, sent);
}

/* As flush, and gets the reader out of its wait where something is left. */
static void flush_and_wake(struct furca_client *client)
{
	static const uint64_t one = 1;

	flush(client);
	if (client->out.len > 0 && client->pumping)
		(void)!write(client->wake.n, &one, sizeof(one));
}

static int queue_request(struct furca_client *client, uint32_t msgid, const char *method, struct furca_view args)
{
	size_t mark = client->out.len;
	msgpack_packer pk;

	furca_packer(&pk, &client->out);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, RPC_REQUEST);
	msgpack_pack_uint32(&pk, msgid);
	furca_pack_text(&pk, method);
	msgpack_pack_array(&pk, 1);
	if (furca_view_size(args) > 0)
		(void)furca_buf_append(&client->out, args.at, furca_view_size(args));
	else
		msgpack_pack_map(&pk, 0);
	if (!client->out.failed)
		return 0;
	client->out.len = mark;
	client->out.failed = 0;
	return -ENOMEM;
}

/* The engine ends a connection that sends what is over its bounds: it is not sent. */
static int check(struct furca_view args)
{
	if (furca_view_size(args) == 0)
		return 0;
	if (furca_view_size(args) > FURCA_MAX_MESSAGE - AROUND)
		return -E2BIG;
	int r = furca_value_check(args, FURCA_MAX_DEPTH - LEVELS_AROUND, FURCA_MAX_ITEMS - AROUND);
	return r == 0 || r == -E2BIG ? r : -EINVAL;
}

int furca_client_send(struct furca_client *client, const char *method, struct furca_view args,
		      furca_output_fn *on_output, void *user, uint32_t *ret_msgid)
{
	struct furca_pending *pending;
	int r = check(args);

	if (r < 0)
		return r;
	pending = calloc(1, sizeof(*pending));
	if (!pending)
		return -ENOMEM;
	pending->on_output = on_output;
	pending->user = user;
	(void)pthread_mutex_lock(&client->lock);
	do
		client->last_msgid++;
	while (client->last_msgid == 0 || furca_idmap_get(&client->pending, client->last_msgid));
	uint32_t msgid = client->last_msgid;
	r = client->broken ? client->broken : furca_idmap_add(&client->pending, msgid, pending);
	if (r == 0) {
		r = queue_request(client, msgid, method, args);
		if (r < 0)
			(void)furca_idmap_remove(&client->pending, msgid);
		else
			flush_and_wake(client);
	}
	(void)pthread_mutex_unlock(&client->lock);
	if (r < 0)
		pending_free(pending);
	else
		*ret_msgid = msgid;
	return r;
}

/* The engine ends a connection that sends what is over its bounds: the answer alone fails, with all others left as they are. */
static struct furca_view bounded(struct furca_view answer, struct furca_buf *instead)
{
	msgpack_packer pk;

	if (furca_view_size(answer) == 0 || furca_value_check(answer, FURCA_MAX_DEPTH - 1, FURCA_MAX_ITEMS - 8) == 0)
		return (struct furca_view){NULL, NULL};
	furca_packer(&pk, instead);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "type");
	furca_pack_text(&pk, "ValueError");
	furca_pack_text(&pk, "message");
	furca_pack_text(&pk, "the answer is nested too deep, or has too many values");
	return furca_buf_view(instead);
}

void furca_client_respond(struct furca_client *client, uint64_t msgid, struct furca_view error,
			  struct furca_view result)
{
	FURCA_AUTO_BUF struct furca_buf instead = FURCA_BUF_INIT;
	struct furca_view over = bounded(furca_view_size(error) > 0 ? error : result, &instead);
	msgpack_packer pk;

	if (over.at) {
		error = over;
		result = (struct furca_view){NULL, NULL};
	}
	(void)pthread_mutex_lock(&client->lock);
	size_t mark = client->out.len;
	furca_packer(&pk, &client->out);
	msgpack_pack_array(&pk, 4);
	msgpack_pack_int(&pk, RPC_RESPONSE);
	msgpack_pack_uint64(&pk, msgid);
	if (furca_view_size(error) > 0)
		(void)furca_buf_append(&client->out, error.at, furca_view_size(error));
	else
		msgpack_pack_nil(&pk);
	if (furca_view_size(result) > 0)
		(void)furca_buf_append(&client->out, result.at, furca_view_size(result));
	else
		msgpack_pack_nil(&pk);
	if (client->out.failed) {
		client->out.len = mark;
		client->out.failed = 0;
	}
	flush_and_wake(client);
	(void)pthread_mutex_unlock(&client->lock);
}

/* -------------------------------------------------------------------------------------------------------------------- in */

static void take_response(struct furca_client *client, uint64_t msgid, const struct furca_value *error,
			  const struct furca_value *result)
{
	struct furca_pending *pending = furca_idmap_get(&client->pending, msgid);

	if (!pending || pending->done)
		return; /* forgotten */
	pending->refused = error->kind != FURCA_NIL;
	struct furca_view answer = pending->refused ? error->raw : result->raw;
	pending->failed = furca_buf_append(&pending->answer, answer.at, furca_view_size(answer));
	pending->done = true;
	(void)pthread_cond_broadcast(&client->change);
}

static void take_request(struct furca_client *client, uint64_t msgid, struct furca_view params)
{
	struct furca_due *due = calloc(1, sizeof(*due));

	if (!due || furca_buf_append(&due->params, params.at, furca_view_size(params)) < 0) {
		if (due)
			due_free(due);
		break_off(client, -ENOMEM); /* a call that is never answered would hang its code */
		return;
	}
	due->msgid = msgid;
	*client->due_end = due;
	client->due_end = &due->next;
	(void)pthread_cond_broadcast(&client->change);
}

/* Runs the function for a notification, without the lock; the message lies in a buffer that only the pumper touches. */
static void take_notification(struct furca_client *client, struct furca_view method, struct furca_view params)
{
	struct furca_view stream, data = {0};
	struct furca_value v;
	uint64_t id;

	if (furca_view_is(method, "output") && furca_map_uint(params, "execute_msgid", &id) &&
	    furca_map_text(params, "stream", &stream) && furca_map_get(params, "data", &v) &&
	    (v.kind == FURCA_STR || v.kind == FURCA_BIN)) {
		struct furca_pending *pending = furca_idmap_get(&client->pending, id);

		if (!pending || !pending->on_output)
			return;
		furca_output_fn *fn = pending->on_output;
		void *user = pending->user;
		const char *name = furca_view_is(stream, "stderr") ? "stderr" : "stdout";
		data = v.bytes;
		(void)pthread_mutex_unlock(&client->lock);
		fn(user, name, (const char *)data.at, furca_view_size(data));
		(void)pthread_mutex_lock(&client->lock);
	} else if (client->on_notification) {
		furca_notification_fn *fn = client->on_notification;
		void *user = client->notification_user;
		FURCA_AUTO_FREE char *name = furca_view_dup(method);

		(void)pthread_mutex_unlock(&client->lock);
		if (name)
			fn(user, name, params.at, furca_view_size(params));
		(void)pthread_mutex_lock(&client->lock);
	}
}

static void take_message(struct furca_client *client, struct furca_view view)
{
	struct furca_value m, type, id, a, b, first = {0};
	struct furca_view inside;

	if (furca_value_enter(&view, &m) < 0 || m.kind != FURCA_ARRAY || m.count < 3)
		goto broken;
	inside = view;
	if (furca_value_next(&inside, &type) < 0 || type.kind != FURCA_UINT)
		goto broken;
	if (type.u != RPC_NOTIFICATION && (m.count != 4 || furca_value_next(&inside, &id) < 0))
		goto broken;
	if (furca_value_next(&inside, &a) < 0 || furca_value_next(&inside, &b) < 0)
		goto broken;
	if (type.u == RPC_RESPONSE) {
		if (id.kind == FURCA_UINT)
			take_response(client, id.u, &a, &b);
		else
			break_off(client,
				  -EPROTO); /* an error that belongs to no request: the engine could not read us */
		return;
	}
	inside = furca_value_inside(&b);
	if (b.kind != FURCA_ARRAY || b.count != 1 || furca_value_next(&inside, &first) < 0 || first.kind != FURCA_MAP ||
	    a.kind != FURCA_STR)
		goto broken;
	if (type.u == RPC_NOTIFICATION)
		take_notification(client, a.bytes, first.raw);
	else
		take_request(client, id.u, first.raw);
	return;
broken:
	break_off(client, -EPROTO);
}

/* Every whole message in `in`. */
static void take_messages(struct furca_client *client)
{
	size_t used = 0;

	while (!client->broken && used < client->in.len) {
		struct furca_view view = {client->in.data + used, client->in.data + client->in.len};
		int64_t n = furca_scan_step(&client->scan, view);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			break_off(client, -EPROTO);
			return;
		}
		furca_scan_reset(&client->scan);
		take_message(client, (struct furca_view){view.at, view.at + n});
		used += (size_t)n;
	}
	furca_buf_consume(&client->in, used);
	if (client->in.len == 0 && client->in.cap > 4 * PIECE)
		furca_buf_done(&client->in);
}

static void receive(struct furca_client *client)
{
	if (furca_buf_reserve(&client->in, PIECE) < 0) {
		break_off(client, -ENOMEM);
		return;
	}
	ssize_t n =
		recv(client->sock.n, client->in.data + client->in.len, client->in.cap - client->in.len, MSG_DONTWAIT);
	if (n > 0) {
		client->in.len += (size_t)n;
		take_messages(client);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		break_off(client, -EPIPE);
	}
}

/* --------------------------------------------------------------------------------------------------------------- waiting */

static int poll_ms(int64_t deadline_us)
{
	if (deadline_us == FURCA_NEVER)
		return -1;
	int64_t left = deadline_us - furca_now_us();
	return left <= 0 ? 0 : (int)FURCA_MIN(left / 1000 + 1, (int64_t)3600 * 1000);
}

/* One turn at the socket, for all; called with the lock by the one thread that has set `pumping`. */
static void pump(struct furca_client *client, int64_t deadline_us)
{
	struct pollfd fds[2] = {
		{.fd = client->sock.n, .events = (short)(POLLIN | (client->out.len ? POLLOUT : 0))},
		{.fd = client->wake.n, .events = POLLIN},
	};
	uint64_t count;

	(void)pthread_mutex_unlock(&client->lock);
	int n = poll(fds, 2, poll_ms(deadline_us));
	(void)pthread_mutex_lock(&client->lock);
	if (n <= 0)
		return;
	if (fds[1].revents)
		(void)!read(client->wake.n, &count, sizeof(count));
	if (fds[0].revents & POLLOUT)
		flush(client);
	if (fds[0].revents & ~POLLOUT)
		receive(client);
}

/* Waits for somebody else to bring news. */
static void wait_for_change(struct furca_client *client, int64_t deadline_us)
{
	if (deadline_us == FURCA_NEVER) {
		(void)pthread_cond_wait(&client->change, &client->lock);
		return;
	}
	struct timespec t = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};
	(void)pthread_cond_timedwait(&client->change, &client->lock, &t);
}

static void run_due(struct furca_client *client)
{
	struct furca_due *due = client->due;

	client->due = due->next;
	if (!client->due)
		client->due_end = &client->due;
	(void)pthread_mutex_unlock(&client->lock);
	furca_client_run(client, due);
	(void)pthread_mutex_lock(&client->lock);
}

/* Serves until `pending` is done (NULL: never), with the lock. 0, -ETIMEDOUT or what broke the connection. */
static int serve(struct furca_client *client, const struct furca_pending *pending, int64_t deadline_us)
{
	for (;;) {
		if (pending && pending->done)
			return 0;
		if (client->due) {
			run_due(client);
			continue;
		}
		if (client->broken)
			return client->broken;
		bool over = deadline_us != FURCA_NEVER && furca_now_us() >= deadline_us;
		if (client->pumping) {
			if (over)
				return -ETIMEDOUT;
			wait_for_change(client, deadline_us);
			continue;
		}
		client->pumping = true;
		client->pumper = pthread_self();
		pump(client, over ? 0 : deadline_us);
		client->pumping = false;
		(void)pthread_cond_broadcast(&client->change);
		if (over && !(pending && pending->done) && !client->due)
			return client->broken ? client->broken : -ETIMEDOUT;
	}
}

static bool inside_output_callback(struct furca_client *client)
{
	return client->pumping && pthread_equal(client->pumper, pthread_self());
}

int furca_client_wait(struct furca_client *client, uint32_t msgid, int64_t deadline_us, struct furca_buf *ret,
		      bool *ret_refused)
{
	int r;

	(void)pthread_mutex_lock(&client->lock);
	struct furca_pending *pending = furca_idmap_get(&client->pending, msgid);
	if (!pending || pending->waited)
		r = -ENOENT;
	else if (inside_output_callback(client))
		r = -EDEADLK;
	else {
		pending->waited = true;
		r = serve(client, pending, deadline_us);
		pending->waited = false;
		if (r == 0)
			r = pending->failed;
		if (r == 0) {
			*ret = furca_buf_take(&pending->answer);
			*ret_refused = pending->refused;
		}
		if (r != -ETIMEDOUT)
			pending_free(furca_idmap_remove(&client->pending, msgid));
	}
	(void)pthread_mutex_unlock(&client->lock);
	return r;
}

void furca_client_forget(struct furca_client *client, uint32_t msgid)
{
	(void)pthread_mutex_lock(&client->lock);
	pending_free(furca_idmap_remove(&client->pending, msgid));
	(void)pthread_mutex_unlock(&client->lock);
}

int furca_client_serve(struct furca_client *client, int64_t deadline_us)
{
	(void)pthread_mutex_lock(&client->lock);
	int r = inside_output_callback(client) ? -EDEADLK : serve(client, NULL, deadline_us);
	(void)pthread_mutex_unlock(&client->lock);
	return r;
}
