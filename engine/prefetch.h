/*
 * Which page faults a session's reads had, told to its next parked copies, which take them before their call comes (snapshot/pages.h). A read that takes
 * many faults in spite of that tells anew; after a while all is forgotten, so that no copy goes on taking pages that nobody looks at. Sessions with a limit
 * of memory go without.
 *
 * A session's own process learns by itself what it writes in every call, and takes that after each commit while it is idle (langs/hot.h).
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

struct furca_host;

struct furca_prefetch {
	struct furca_buf pages; /* a packed map; empty: nothing is known */
	unsigned copies;	/* that were told */
};

/* A run with more faults than that is worth a list. A trivial look at a session takes some 250, half of its time. */
#define FURCA_PREFETCH_FAULTS 48

/* From the PAGES of a read. */
void furca_prefetch_learn(struct furca_prefetch *prefetch, struct furca_view pages);

/* A parked copy stands. */
void furca_prefetch_tell(struct furca_prefetch *prefetch, struct furca_host *copy);

/* Whether pages may be taken in advance there. */
bool furca_prefetch_allowed(const struct furca_host *host);

void furca_prefetch_done(struct furca_prefetch *prefetch);
