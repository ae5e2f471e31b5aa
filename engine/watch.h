/*
 * The memory of hosts with a limit where no control group can hold it: looked at twenty times a second while there are such hosts. It is
 * what a host and all that it started have of their own together; pages that they share count once. Over the limit the host is ended, and
 * what it started with it. A process alone is held by RLIMIT_DATA besides, at once.
 */
#pragma once

#include <stdint.h>

struct furca_host;

/* Watches the host, and clones of it made from now on, until they end. */
void furca_watch_memory(struct furca_host *host, uint64_t bytes);
