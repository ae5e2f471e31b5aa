/* What server.c and server_bytes.c share; nobody else includes it. */
#pragma once

#include "bridge/caps.h"
#include "bridge/conn.h"
#include "bridge/idmap.h"
#include "bridge/server.h"

struct furca_server {
	struct furca_loop *loop;
	struct furca_engine *engine;
	struct furca_caps *caps;
	struct furca_idmap peers; /* client id -> peer */
	furca_client_id last_id;
	furca_op_id accept_op, linger_op;
	int64_t idle_us;
	void (*idle)(void *user);
	void *idle_user;
	bool stopped;
};

/* A connection with its socket. Freed only from the loop's own calls (received, sent, flush), never below an event. */
struct furca_peer {
	struct furca_server *server;
	furca_client_id id;
	struct furca_fd fd;
	struct furca_conn conn;
	furca_op_id recv_op, send_op, flush_op, unpause_op;
	bool paused;
	bool receiving; /* by the ring still, with `frames` set: until what it has taken from the socket has come */
	bool frames;	/* asked for arrays: descriptors come and go beside its messages */
};

/* Ends a connection. */
void furca_peer_free(struct furca_peer *peer);

/* Begins to receive. 0 or -errno. */
int furca_peer_receive(struct furca_peer *peer);

/* Descriptors may come beside the bytes from the next answer on, which waits until they are received in another way. 0, or -errno: the
 * connection ends. */
int furca_peer_take_frames(struct furca_peer *peer);

/* To be called after anything was queued below an event: what one turn of the loop makes goes out in one send. */
void furca_peer_flush_soon(struct furca_peer *peer);
