/* What host.c, host_run.c and host_attach.c share; nobody else includes it. */
#pragma once

#include "bridge/wire/pack.h"
#include "langs/host.h"

enum furca_host_next { FURCA_HOST_GO_ON, FURCA_HOST_CLOSED };

/* The process that calls is the host from now on (furca_host_is_self). */
void furca_host_be_self(struct furca_host *host);

/* Sends READY. */
void furca_host_ready(struct furca_host *host);

/* Receives one message, blocking, and does what it says. */
enum furca_host_next furca_host_serve_one(struct furca_host *host);

/* Serves until CLOSE; ends the process where the channel breaks. */
void furca_host_serve_on(struct furca_host *host);

/* Moves a descriptor to a high number, out of the user's sight, close-on-exec. 0 or -errno. */
int furca_host_hide(struct furca_fd *fd);

/* Ends the frame that was begun at `offset` of host->out and sends it, with descriptors (borrowed). Ends the process where the channel breaks. */
void furca_host_send_frame(struct furca_host *host, size_t offset, const int *fds, size_t n_fds);

/* RUN: runs the code and answers DONE. Takes descriptors out of `fds`. */
void furca_host_run(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds, size_t n_fds);

/* DONE for a call that the host itself could not begin. */
void furca_host_refuse(struct furca_host *host, uint64_t call, const struct furca_err *err);

static inline void furca_host_pack_uint(msgpack_packer *pk, const char *key, uint64_t value)
{
	furca_pack_text(pk, key);
	msgpack_pack_uint64(pk, value);
}

/* A packed value that may be missing. */
static inline void furca_host_pack_value(msgpack_packer *pk, const char *key, const struct furca_buf *value)
{
	furca_pack_text(pk, key);
	if (value->len && !value->failed)
		(void)furca_buf_msgpack_write(pk->data, (const char *)value->data, value->len);
	else
		msgpack_pack_nil(pk);
}
