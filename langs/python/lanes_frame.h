/* Frames of lanes from Python values and back: what lanes.c and lanes_loop.c share. */
#pragma once

#include "bridge/wire/frame.h"
#include "langs/python/lanes.h"

extern struct furca_lanes_hooks furca_lane_hooks;

/* A frame that goes out, and the memory of its arrays beside it. */
struct furca_outgoing {
	struct furca_buf bytes;
	struct furca_fd memory;
};

#define FURCA_OUTGOING(bound) ((struct furca_outgoing){{.max = (bound)}, FURCA_FD_NONE})

void furca_outgoing_done(struct furca_outgoing *out);

/*
 * Appends one frame. `extra`: a dict of further fields, or NULL; `frames`: collects the buffers of arrays, NULL: there may be none. Its length is
 * filled in by furca_frame_close. 0, or -1 with an exception and nothing left of it.
 */
int furca_frame_pack(struct furca_buf *out, size_t *ret_offset, int number, uint64_t call, PyObject *name,
		     PyObject *args, PyObject *kwargs, PyObject *extra, PyObject *frames);
int furca_frame_close(struct furca_buf *out, size_t offset, unsigned n_fds);

/* A call as the methods of lanes.h take it; borrowed. NULL is as None. */
struct furca_frame_call {
	int number;
	PyObject *name, *args, *kwargs, *extra, *reader;
};

/* One call; its value: new reference, or NULL with an exception. As the methods of lanes.h. */
PyObject *furca_lanes_ask(const struct furca_frame_call *call);

/* Makes one frame with what goes beside it. 0, or -1 with an exception. */
int furca_frame_make(struct furca_outgoing *out, uint64_t number, const struct furca_frame_call *call);

/* The value of an answer, or its exception object with *ret_ok 0. NULL with an exception where it cannot be told. `fds`: the frame's. */
PyObject *furca_frame_value(const struct furca_frame_view *frame, const struct furca_fd *fds, int *ret_ok);

/* What the engine says by itself, in bytes that Python takes: new reference or NULL. */
PyObject *furca_frame_body(const struct furca_frame_view *frame);

/* Deals with a LET_GO: nothing comes of it. */
void furca_frame_let_go(const struct furca_frame_view *frame);

/* Raises ConnectionError. NULL. */
PyObject *furca_lane_raise(const struct furca_err *err);

/* A lane of this process image that takes arrays, nonblocking. 0 or -errno. */
int furca_lane_open(struct furca_fd *ret, struct furca_err *err);
