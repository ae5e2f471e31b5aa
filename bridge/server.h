/*
 * The listening socket and its connections: joins conn.h, caps.h and the engine on the engine's loop. One thread; nothing
 * here blocks but furca_server_listen.
 */
#pragma once

#include "base/err.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "engine/loop.h"

struct furca_server;

/* A listening socket, not yet accepting, and the lock that says that it is ours. */
struct furca_listener {
	struct furca_fd socket, lock;
	char *path; /* absolute or as given; malloc'ed */
};

/*
 * Binds a unix socket, mode 0600, and listens. What a crashed engine left at `path` is replaced; a socket that somebody serves, or a
 * file that is no socket, is refused. Connects to `path` to find out, which does not wait. 0 or -errno.
 */
int furca_listener_open(const char *path, struct furca_listener *ret, struct furca_err *err);

/* Removes the socket and its lock from the file system, if they are ours, and closes them. Accepts an empty one. */
void furca_listener_done(struct furca_listener *listener);

/*
 * Makes the server. It owns the engine's client side: furca_server_events are to be given to furca_engine_new with the server as
 * `user`, then furca_server_start.
 */
int furca_server_new(struct furca_loop *loop, struct furca_server **ret, struct furca_err *err);
extern const struct furca_engine_events furca_server_events;

/* Begins to accept on the listener's socket (borrowed) and to serve the engine (borrowed). 0 or -errno. */
int furca_server_start(struct furca_server *server, struct furca_engine *engine, const struct furca_listener *listener,
		       struct furca_err *err);

/* Serves one connected socket, without accepting others. 0 or -errno. */
int furca_server_adopt(struct furca_server *server, struct furca_engine *engine, struct furca_fd fd,
		       struct furca_err *err);

/* Stops accepting and closes every connection. The engine may still call the events; they do nothing. */
void furca_server_stop(struct furca_server *server);

/* Not before the engine's last event. Accepts NULL. */
void furca_server_free(struct furca_server *server);

/*
 * When the last client has been gone for `idle_us`, `fn` is called (once); a client that comes in time starts the wait anew.
 * For engines that a command started on the way.
 */
int furca_server_linger(struct furca_server *server, int64_t idle_us, void (*fn)(void *user), void *user);
