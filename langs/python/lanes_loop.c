/* Lanes that an event loop in Python serves: bytes in and out, without waiting. */
#include <errno.h>

#include "bridge/wire/limits.h"
#include "langs/python/lanes_frame.h"

#include "base/banned.h"

PyObject *furca_lanes_encode(PyObject *self, PyObject *args)
{
	FURCA_AUTO(furca_outgoing_done) struct furca_outgoing out = FURCA_OUTGOING(FURCA_MAX_CAPABILITY + 4096UL);
	struct furca_frame_call call = {0};
	unsigned long long number;
	PyObject *pair;

	if (!PyArg_ParseTuple(args, "iKOOOO|O", &call.number, &number, &call.name, &call.args, &call.kwargs,
			      &call.extra, &call.reader) ||
	    furca_frame_make(&out, number, &call) < 0)
		return NULL;
	pair = Py_BuildValue("(y#i)", (const char *)out.bytes.data, (Py_ssize_t)out.bytes.len, out.memory.n);
	if (pair)
		(void)furca_fd_take(&out.memory);
	return pair;
}

/* decode's answer for a CALL or LET_GO. */
static PyObject *own_frame(const struct furca_frame_view *frame)
{
	PyObject *body = frame->number == FURCA_LANE_CALL ? furca_frame_body(frame) : Py_None, *result;

	if (!body)
		return NULL;
	if (body == Py_None) {
		furca_frame_let_go(frame);
		Py_INCREF(body);
	}
	result = Py_BuildValue("(nKOOi)", (Py_ssize_t)frame->size, (unsigned long long)frame->call, Py_None, body, 0);
	Py_DECREF(body);
	return result;
}

PyObject *furca_lanes_decode(PyObject *self, PyObject *args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_frame_view frame;
	struct furca_fd memory;
	const char *data;
	Py_ssize_t n;
	size_t need;
	PyObject *value, *result;
	int ok, r;

	if (!PyArg_ParseTuple(args, "y#i", &data, &n, &memory.n))
		return NULL;
	r = furca_frame_parse((const uint8_t *)data, (size_t)n, FURCA_MAX_HOST_FRAME, &frame, &need, &err);
	if (r < 0)
		return furca_lane_raise(&err);
	if (r == 0)
		Py_RETURN_NONE;
	if (frame.n_fds > (memory.n >= 0)) {
		PyErr_SetString(PyExc_ConnectionError, "the engine sent less than it said");
		return NULL;
	}
	if (frame.number == FURCA_LANE_CALL || frame.number == FURCA_LANE_LET_GO)
		return own_frame(&frame);
	value = furca_frame_value(&frame, &memory, &ok);
	if (!value && !frame.n_fds)
		return NULL;
	if (!value) { /* arrays that cannot be read here are this call's failure, not the lane's */
		PyObject *type, *traceback;

		PyErr_Fetch(&type, &value, &traceback);
		PyErr_NormalizeException(&type, &value, &traceback);
		Py_XDECREF(type);
		Py_XDECREF(traceback);
		ok = 0;
	}
	result = Py_BuildValue("(nKOOI)", (Py_ssize_t)frame.size, (unsigned long long)frame.call,
			       ok ? Py_True : Py_False, value, frame.n_fds);
	Py_DECREF(value);
	return result;
}

PyObject *furca_lanes_open(PyObject *self, PyObject *args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_fd lane;

	if (furca_lane_open(&lane, &err) < 0)
		return furca_lane_raise(&err);
	return PyLong_FromLong(lane.n);
}

static PyObject *raise_errno(ssize_t r)
{
	errno = (int)-r;
	return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject *furca_lanes_send(PyObject *self, PyObject *args)
{
	const char *data;
	Py_ssize_t n, sent;
	int lane, memory;

	if (!PyArg_ParseTuple(args, "iy#i", &lane, &data, &n, &memory))
		return NULL;
	sent = furca_fd_send(lane, data, (size_t)n, &memory, memory >= 0);
	return sent < 0 ? raise_errno(sent) : PyLong_FromSsize_t(sent);
}

PyObject *furca_lanes_receive(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf in = {.max = 1U << 20};
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds = FURCA_COUNT(fds);
	PyObject *list, *result = NULL;
	ssize_t n;
	int lane;

	if (!PyArg_ParseTuple(args, "i", &lane))
		return NULL;
	if (furca_buf_reserve(&in, 1U << 18) < 0)
		return PyErr_NoMemory();
	n = furca_fd_recv(lane, in.data, in.cap, fds, &n_fds);
	if (n < 0)
		return raise_errno(n);
	list = PyList_New((Py_ssize_t)n_fds);
	for (size_t i = 0; list && i < n_fds; i++)
		(void)PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLong(furca_fd_take(&fds[i]).n));
	furca_fds_done(fds, n_fds);
	if (list)
		result = Py_BuildValue("(y#O)", (const char *)in.data, (Py_ssize_t)n, list);
	Py_XDECREF(list);
	return result;
}
