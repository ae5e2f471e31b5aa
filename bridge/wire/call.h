/* A call of a capability on its way from a lane to the client that offers it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fd.h"
#include "bridge/wire/value.h"

struct furca_caps_request {
	uint64_t id;
	uint64_t client, execute_msgid; /* the execute that runs the code, and whose */
	uint64_t owner;			/* of handles in the answer: a session, or a process of its own */
	bool read_only;
	bool takes_frames;		/* arrays and frames may be answered */
	struct furca_view name;
	struct furca_view args, kwargs; /* a packed array, a packed map */
	struct furca_fd memory;		/* beside them, where they hold arrays; whoever gets the call takes it or leaves it to be closed */
};
