/* What host.c and host_attach.c share; nobody else includes it. */
#pragma once

#include "langs/host.h"

enum furca_host_next { FURCA_HOST_GO_ON, FURCA_HOST_CLOSED };

/* Sends READY. */
void furca_host_ready(struct furca_host *host);

/* Receives one message, blocking, and does what it says. */
enum furca_host_next furca_host_serve_one(struct furca_host *host);

/* Serves until CLOSE; ends the process where the channel breaks. */
void furca_host_serve_on(struct furca_host *host);

/* Moves a descriptor to a high number, out of the user's sight, close-on-exec. 0 or -errno. */
int furca_host_hide(struct furca_fd *fd);
