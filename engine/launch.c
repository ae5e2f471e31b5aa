#include "engine/launch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/env.h"
#include "engine/stateless.h"
#include "engine/output.h"

#include "base/banned.h"

#define START_US 60000000 /* a zygote that is not ready by then is stuck */
#define REST_US 100000	  /* when all work is done, an environment's zygote that nothing holds ends after that */

struct furca_launch {
	struct furca_engine *engine;
	struct furca_launch *next;
	const struct furca_lang *lang;
	uint64_t venv, ticket;
	furca_client_id client;
	furca_op_id begin_op;
	bool held, holds; /* the environment; its zygote */
	unsigned *called;
	struct furca_zygote *zygote; /* that it waits for */
	char *lines;
	furca_launch_fn *fn;
	void *owner;
};

struct furca_zygote {
	struct furca_engine *engine;
	struct furca_zygote *next;
	const struct furca_lang *lang;
	uint64_t venv;
	struct furca_host *host;
	bool ready;
	unsigned holders; /* launches that were given it */
	uint64_t preload; /* the frame that runs its environment's preload; 0: none under way */
	furca_op_id stuck_op, idle_op;
	struct furca_launch *waiting;
};

static void tell(struct furca_launch *launch, struct furca_host *zygote, const struct furca_err *err)
{
	struct furca_zygote *z = zygote ? zygote->owner : NULL;

	if (z) {
		z->holders++;
		launch->holds = true;
		furca_loop_drop(z->engine->loop, &z->idle_op);
	}
	launch->fn(launch->owner, zygote, err);
}

static void zygote_free(struct furca_zygote *z)
{
	struct furca_engine *engine = z->engine;

	for (struct furca_zygote **at = &engine->zygotes; *at; at = &(*at)->next) {
		if (*at == z) {
			*at = z->next;
			break;
		}
	}
	furca_loop_drop(engine->loop, &z->stuck_op);
	furca_loop_drop(engine->loop, &z->idle_op);
	furca_spare_end(engine, z->host);
	furca_host_drop(z->host);
	free(z);
}

/* Takes the launches that wait, so that their functions may do what they like with the list. */
static void tell_all(struct furca_zygote *z, const struct furca_err *err)
{
	struct furca_host *host = err ? NULL : z->host;

	while (z->waiting) {
		struct furca_launch *launch = z->waiting;

		z->waiting = launch->next;
		launch->zygote = NULL;
		tell(launch, host, err);
	}
}

static void idle(void *owner)
{
	struct furca_zygote *z = owner;

	z->idle_op = FURCA_OP_NONE;
	if (z->holders == 0 && !z->waiting)
		zygote_free(z);
}

/* An environment's zygote that nothing holds ends after a while, at once where all work is done; the own interpreter's stay. */
static void begin_idle(struct furca_zygote *z)
{
	struct furca_engine *engine = z->engine;
	int64_t wait_us = engine->resting ? REST_US : (int64_t)(engine->config.zygote_idle_s * 1e6);

	furca_loop_drop(engine->loop, &z->idle_op);
	if (z->venv && z->holders == 0 && !z->waiting && z->ready && (engine->resting || wait_us > 0))
		(void)furca_loop_timer(engine->loop, furca_now_us() + wait_us, idle, z, &z->idle_op);
}

static void finished(struct furca_zygote *z)
{
	z->ready = true;
	furca_loop_drop(z->engine->loop, &z->stuck_op);
	tell_all(z, NULL);
	begin_idle(z); /* who asked for it may have given up */
}

/* Sends it the imports that its environment asks for; what they print goes nowhere. False: none is due, or they cannot be sent. */
static bool preload(struct furca_zygote *z)
{
	const char *code = z->venv && z->lang->top_level_value ? furca_env_preload(z->engine->envs, z->venv) : NULL;
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_fd fds[2] = {FURCA_FD_NONE, FURCA_FD_NONE};
	msgpack_packer pk;

	if (!code)
		return false;
	for (size_t i = 0; i < FURCA_COUNT(fds); i++)
		fds[i] = furca_fd_own(open("/dev/null", O_WRONLY | O_CLOEXEC));
	z->preload = furca_engine_next(z->engine);
	size_t at = furca_frame_begin(&buf, &pk, FURCA_HOST_RUN, z->preload, 2);
	furca_pack_text(&pk, "code");
	furca_pack_text(&pk, code);
	furca_pack_text(&pk, "label");
	furca_pack_text(&pk, "preload");
	(void)furca_frame_end(&buf, at, 2);
	if (fds[0].n < 0 || fds[1].n < 0 || buf.failed) {
		furca_fds_done(fds, FURCA_COUNT(fds));
		z->preload = 0;
		return false;
	}
	return furca_host_send(z->host, &buf, fds, FURCA_COUNT(fds)) == 0;
}

static void on_ready(void *owner, struct furca_host *host)
{
	struct furca_zygote *z = owner;

	if (!preload(z))
		finished(z);
}

/* A preload that fails costs its benefit only: the imports say why when the code asks for them. */
static void on_done(void *owner, struct furca_host *host, uint64_t call, struct furca_view body,
		    struct furca_fd *memory)
{
	struct furca_zygote *z = owner;
	struct furca_view how;

	if (call != z->preload || z->ready)
		return;
	if (furca_map_text(body, "how", &how) && !furca_view_is(how, "ok"))
		furca_log(FURCA_LOG_WARN, "engine", "preload failed venv=%llu", (unsigned long long)z->venv);
	finished(z);
}

static void say_why(const struct furca_zygote *z, struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf text = FURCA_BUF_INIT;
	uint8_t bytes[8192];
	ssize_t n = z->host->errors.n >= 0 ? pread(z->host->errors.n, bytes, sizeof(bytes), 0) : 0;

	while (n > 0 && (bytes[n - 1] == '\n' || bytes[n - 1] == '\0'))
		n--;
	ssize_t from = n > 300 ? n - 300 : 0;
	furca_utf8_lossy(&text, bytes + from, (size_t)FURCA_MAX(n - from, 0));
	(void)furca_fail(err, z->venv ? FURCA_E_ENVIRONMENT : FURCA_E_SYSTEM, 0,
			 "the %s interpreter did not start%s%.*s", z->lang->name, text.len ? ": " : "", (int)text.len,
			 text.data ? (const char *)text.data : "");
}

static void on_dead(void *owner, struct furca_host *host)
{
	struct furca_zygote *z = owner;
	struct furca_err err = FURCA_ERR_INIT;

	say_why(z, &err);
	if (!z->ready && z->venv && z->engine->envs)
		furca_env_suspect(z->engine->envs, z->venv);
	furca_log(FURCA_LOG_WARN, "engine", "zygote ended language=%s venv=%llu status=%d ready=%d", z->lang->name,
		  (unsigned long long)z->venv, host->status, z->ready);
	struct furca_launch *waiting = z->waiting;
	z->waiting = NULL;
	zygote_free(z);
	while (waiting) {
		struct furca_launch *launch = waiting;

		waiting = launch->next;
		launch->zygote = NULL;
		tell(launch, NULL, &err);
	}
}

static void stuck(void *owner)
{
	struct furca_zygote *z = owner;

	z->stuck_op = FURCA_OP_NONE;
	furca_host_kill(z->host);
}

static const struct furca_host_events zygote_events = {.ready = on_ready, .done = on_done, .dead = on_dead};

static struct furca_zygote *zygote_of(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv)
{
	for (struct furca_zygote *z = engine->zygotes; z; z = z->next)
		if (z->lang == lang && z->venv == venv)
			return z;
	return NULL;
}

static struct furca_zygote *zygote_start(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
					 const char *dir, struct furca_err *err)
{
	struct furca_zygote *z = calloc(1, sizeof(*z));

	if (!z) {
		(void)furca_fail(err, FURCA_E_MEMORY, 0, "no memory for another interpreter");
		return NULL;
	}
	z->engine = engine;
	z->lang = lang;
	z->venv = venv;
	z->host = furca_host_spawn(engine, lang, venv, dir, &zygote_events, z, err);
	if (!z->host) {
		free(z);
		return NULL;
	}
	(void)furca_loop_timer(engine->loop, furca_now_us() + START_US, stuck, z, &z->stuck_op);
	z->next = engine->zygotes;
	engine->zygotes = z;
	return z;
}

/* The environment is there (or none is needed): now its zygote. */
static void want_zygote(struct furca_launch *launch, const char *dir)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_zygote *z = zygote_of(launch->engine, launch->lang, launch->venv);

	if (!z)
		z = zygote_start(launch->engine, launch->lang, launch->venv, dir, &err);
	if (!z) {
		tell(launch, NULL, &err);
	} else if (z->ready) {
		tell(launch, z->host, NULL);
	} else {
		struct furca_launch **last = &z->waiting;

		while (*last)
			last = &(*last)->next;
		*last = launch;
		launch->next = NULL;
		launch->zygote = z;
	}
}

static void on_env(void *user, const char *dir, const struct furca_err *err, const char *lines)
{
	struct furca_launch *launch = user;

	launch->ticket = 0;
	if (launch->called)
		*launch->called = 1;
	launch->called = NULL;
	if (!dir) {
		launch->lines = lines ? strdup(lines) : NULL;
		tell(launch, NULL, err);
		return;
	}
	want_zygote(launch, dir);
}

static void begin(void *owner)
{
	struct furca_launch *launch = owner;

	launch->begin_op = FURCA_OP_NONE;
	if (launch->venv == 0) {
		want_zygote(launch, NULL);
		return;
	}
	/* `ready` may come from within, and may end this launch: a ticket is written down only where it did not. */
	unsigned called = 0;
	launch->called = &called;
	uint64_t ticket = furca_env_want(launch->engine->envs, launch->venv, launch->client, on_env, launch);
	if (!called) {
		launch->called = NULL;
		launch->ticket = ticket;
	}
}

struct furca_launch *furca_launch_begin(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv,
					furca_client_id client, furca_launch_fn *fn, void *owner)
{
	struct furca_launch *launch = calloc(1, sizeof(*launch));

	if (!launch)
		return NULL;
	engine->resting = false;
	launch->engine = engine;
	launch->lang = lang;
	launch->venv = venv;
	launch->fn = fn;
	launch->owner = owner;
	launch->client = client;
	if (furca_loop_defer(engine->loop, begin, launch, &launch->begin_op) < 0) {
		free(launch);
		return NULL;
	}
	if (venv != 0) { /* from now on: who removes it next is told that it is in use */
		furca_env_hold(engine->envs, venv);
		launch->held = true;
	}
	return launch;
}

static void let_go(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv)
{
	struct furca_zygote *z = zygote_of(engine, lang, venv);

	/* One that has replaced the launch's own counts nothing of it. */
	if (z && z->holders > 0 && --z->holders == 0)
		begin_idle(z);
}

void furca_launch_end(struct furca_launch *launch)
{
	if (!launch)
		return;
	if (launch->holds)
		let_go(launch->engine, launch->lang, launch->venv);
	if (launch->zygote) {
		for (struct furca_launch **at = &launch->zygote->waiting; *at; at = &(*at)->next) {
			if (*at == launch) {
				*at = launch->next;
				break;
			}
		}
	}
	furca_loop_drop(launch->engine->loop, &launch->begin_op);
	if (launch->ticket)
		furca_env_unwant(launch->engine->envs, launch->ticket);
	if (launch->held)
		furca_env_release(launch->engine->envs, launch->venv);
	free(launch->lines);
	free(launch);
}

const char *furca_launch_lines(const struct furca_launch *launch)
{
	return launch->lines;
}

bool furca_launch_building(const struct furca_launch *launch)
{
	return launch->ticket != 0;
}

struct furca_host *furca_zygote_find(struct furca_engine *engine, const struct furca_lang *lang, uint64_t venv)
{
	struct furca_zygote *z = zygote_of(engine, lang, venv);

	return z && z->ready ? z->host : NULL;
}

void furca_zygote_retire(struct furca_engine *engine, uint64_t venv)
{
	struct furca_zygote *next;

	for (struct furca_zygote *z = engine->zygotes; z; z = next) {
		next = z->next;
		if (z->venv == venv && venv != 0 && !z->waiting)
			zygote_free(z);
	}
}

void furca_zygotes_rest(struct furca_engine *engine)
{
	engine->resting = true;
	for (struct furca_zygote *z = engine->zygotes; z; z = z->next)
		begin_idle(z);
}

void furca_zygotes_close(struct furca_engine *engine)
{
	struct furca_err err = FURCA_ERR_INIT;

	(void)furca_fail(&err, FURCA_E_GONE, 0, "the engine is stopping");
	while (engine->zygotes) {
		struct furca_zygote *z = engine->zygotes;

		tell_all(z, &err);
		zygote_free(z);
	}
}
