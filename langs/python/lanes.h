/*
 * Calling out of a session (bridge/wire/lane.h): one lane a thread, made at its first call, private
 * to the process image: a clone and a forked child of the user's make new ones.
 */
#pragma once

#include "langs/host.h"
#include "langs/python/codec.h"

/* `host` is borrowed for the life of the process; `pack_hook` and `unpack_hook` as in codec.h,
   `failed`(type, message, traceback, suggestion) makes the exception of a call that failed:
   references are taken. */
void furca_lanes_init(const struct furca_host *host, PyObject *pack_hook, PyObject *unpack_hook,
		      PyObject *failed);

/*
 * Methods of the module, METH_VARARGS; new reference or NULL. Each blocks without the GIL; signal
 * handlers run meanwhile, and one that raises gives the call up.
 *
 * call(frame, name, args, kwargs, extra)      one call; its value
 * call_many(frame, name, calls)               `calls`: [(args, kwargs)]; all under way at once;
 * list of values post(frame, fields)                         one message that has no answer
 * encode(frame, call, name, args, kwargs, extra) -> bytes of a frame, for a lane that the caller
 * serves decode(buffer) -> None or (bytes used, call, ok, value or exception) open_lane() ->
 * descriptor number
 */
PyObject *furca_lanes_call(PyObject *self, PyObject *args);
PyObject *furca_lanes_call_many(PyObject *self, PyObject *args);
PyObject *furca_lanes_post(PyObject *self, PyObject *args);
PyObject *furca_lanes_encode(PyObject *self, PyObject *args);
PyObject *furca_lanes_decode(PyObject *self, PyObject *args);
PyObject *furca_lanes_open(PyObject *self, PyObject *args);
