/*
 * Room for descriptors between calls: code that has opened as many as its limit allows must not keep the host from receiving what the next call or clone
 * brings. Where few numbers are free the limit is raised while the host waits, and is as it was before code runs again.
 */
#pragma once

#include <stdbool.h>
#include <sys/resource.h>

/* Zeroed: the limit is the code's own. A clone inherits it with the limit. */
struct furca_room {
	bool made;
	struct rlimit own, raised;
};

/* When a host begins: leaves a little between what code may have and the hard limit, beyond which nothing is to be had. Code may take that too. */
void furca_room_reserve(void);

/* After code has run. */
void furca_room_make(struct furca_room *room);

/* Before code runs. Leaves a limit that was changed since. Whether room had been made. */
bool furca_room_give_back(struct furca_room *room);
