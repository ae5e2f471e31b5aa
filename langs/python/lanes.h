/*
 * Calling out of a session (bridge/wire/lane.h): one lane a thread, made at its first call, private
 * to the process image: a clone and a forked child of the user's make new ones.
 */
#pragma once

#include "langs/host.h"
#include "langs/python/codec.h"

/* Functions of the Python part, for the life of the process. */
struct furca_lanes_hooks {
	PyObject *pack, *unpack; /* as in codec.h */
	PyObject *pack_out;	 /* as `pack`, for arguments of capabilities: what is not plain becomes a handle */
	PyObject *serve;	 /* (number, body): runs a CALL; the frame that answers it */
	PyObject *let_go;	 /* (body): of a LET_GO */
	PyObject *failed;  /* (type, message, traceback, suggestion, frames): the exception of a call that failed */
	PyObject *buffers; /* (what the reader has, or None): an empty list for the buffers of a message's arrays */
	PyObject *store;   /* (such a list): the number of a sealed memfd that holds them */
	PyObject *read;	   /* (descriptor of one): memory of our own with what it holds */
};

/* `host` is borrowed for the life of the process; references of *hooks are taken. */
void furca_lanes_init(const struct furca_host *host, const struct furca_lanes_hooks *hooks);

/*
 * As furca_codec_pack and furca_codec_unpack with those hooks, for values that cross elsewhere. Arrays among them put their buffers into the list
 * `frames` of furca_lanes_buffers (NULL: there may be none), in a form that who has `reader` can read (None: not known); furca_lanes_store makes one
 * descriptor of the list, none of an empty one, which is to go with the message and comes back here as `fds`. 0 or new reference; -1 or NULL with
 * an exception.
 */
PyObject *furca_lanes_buffers(PyObject *reader);
int furca_lanes_pack(PyObject *value, PyObject *frames, struct furca_buf *out);
int furca_lanes_store(PyObject *frames, struct furca_fd *ret);
PyObject *furca_lanes_unpack(struct furca_view view, const struct furca_fd *fds, size_t n_fds);

/*
 * Methods of the module, METH_VARARGS; new reference or NULL. Each blocks without the GIL; signal
 * handlers run meanwhile, and one that raises gives the call up.
 *
 * call(frame, name, args, kwargs, extra, reader=None)      one call; its value. `reader`: versions that who reads its arrays has
 * call_many(frame, name, calls, extra)        `calls`: [(args, kwargs)], without arrays; all under way at once; list of values
 * post(frame, fields)                         one message that has no answer
 * look()                                      takes what came to this thread's lane while nothing was called; never waits
 *
 * For a lane that the caller serves, with descriptors by number:
 * open_lane()                                 one that does not block, if the caller makes it so
 * encode(frame, call, name, args, kwargs, extra, reader=None) -> (bytes, memory or -1), to be closed by the caller
 * send(lane, bytes, memory or -1) -> bytes sent; the memory goes with the first
 * receive(lane) -> (bytes, [memory])
 * decode(buffer, memory or -1) -> None or (bytes used, call, ok, value or exception, how many of the memories); for a CALL, ok is None and the value
 *     the body, for hooks.serve; both are None for what was dealt with
 */
PyObject *furca_lanes_call(PyObject *self, PyObject *args);
PyObject *furca_lanes_call_many(PyObject *self, PyObject *args);
PyObject *furca_lanes_post(PyObject *self, PyObject *args);
PyObject *furca_lanes_look(PyObject *self, PyObject *args);
PyObject *furca_lanes_encode(PyObject *self, PyObject *args);
PyObject *furca_lanes_decode(PyObject *self, PyObject *args);
PyObject *furca_lanes_open(PyObject *self, PyObject *args);
PyObject *furca_lanes_send(PyObject *self, PyObject *args);
PyObject *furca_lanes_receive(PyObject *self, PyObject *args);
