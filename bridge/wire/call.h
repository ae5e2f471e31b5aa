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
	bool takes_frames; /* arrays and frames may be answered */
	bool read;	   /* `name` is a handle's attribute, to be read */
	struct furca_view name;
	struct furca_view args, kwargs; /* a packed array, a packed map */
	struct furca_fd
		memory; /* beside them, where they hold arrays; whoever gets the call takes it or leaves it to be closed */
};

/* A call of an object that code gave to a client, on its way there. */
struct furca_object_call {
	uint64_t owner;	 /* whose object it is; as above */
	uint64_t within; /* the capability call that the client serves; 0: any that code of this owner waits for */
	bool read; /* `name` is an attribute, to be read; otherwise a method, or empty: the object itself is called */
	struct furca_view object, name; /* text: the code's own for the object */
	struct furca_view args, kwargs; /* a packed array, a packed map */
};
