#include "langs/python/lanes.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

/*
 * How often a waiting call looks for signals that came between its last look and its wait. Signals
 * that come during the wait end it at once.
 */
#define LOOK_MS 200

struct lane {
	struct furca_fd fd;
	unsigned generation;
	pid_t pid;
	uint64_t last_call;
	bool busy; /* a call is under way: one that a signal handler makes meanwhile gets a lane for
		      itself */
	bool temporary; /* not the thread's */
	struct furca_buf in;
};

static struct {
	const struct furca_host *host;
	PyObject *pack_hook, *unpack_hook, *failed;
	pthread_key_t key;
} lanes;

static void lane_free(void *data)
{
	struct lane *lane = data;

	if (!lane)
		return;
	furca_fd_done(&lane->fd);
	furca_buf_done(&lane->in);
	free(lane);
}

void furca_lanes_init(const struct furca_host *host, PyObject *pack_hook, PyObject *unpack_hook,
		      PyObject *failed)
{
	lanes.host = host;
	Py_XINCREF(pack_hook);
	Py_XINCREF(unpack_hook);
	Py_XINCREF(failed);
	lanes.pack_hook = pack_hook;
	lanes.unpack_hook = unpack_hook;
	lanes.failed = failed;
	(void)pthread_key_create(&lanes.key, lane_free);
}

static PyObject *raise_err(const struct furca_err *err)
{
	PyErr_SetString(PyExc_ConnectionError, err->text);
	return NULL;
}

static struct lane *lane_new(void)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	struct furca_err err = FURCA_ERR_INIT;

	if (!lane) {
		(void)PyErr_NoMemory();
		return NULL;
	}
	*lane = (struct lane){.fd = FURCA_FD_NONE,
			      .generation = lanes.host->generation,
			      .pid = getpid(),
			      .in = {.max = FURCA_MAX_CAPABILITY * 2UL}};
	if (furca_host_open_lane(lanes.host, &lane->fd, &err) == 0)
		return lane;
	(void)raise_err(&err);
	lane_free(lane);
	return NULL;
}

/*
 * This thread's lane, opened if it has none or only that of another process image; marked busy
 * until lane_put. NULL with an exception.
 */
static struct lane *lane_get(void)
{
	struct lane *lane = pthread_getspecific(lanes.key);
	bool ours = lane && lane->generation == lanes.host->generation && lane->pid == getpid();

	if (ours && lane->busy) {
		lane = lane_new();
		if (lane)
			lane->temporary = true;
		return lane;
	}
	if (!ours || lane->fd.n < 0) {
		lane_free(lane);
		lane = lane_new();
		(void)pthread_setspecific(lanes.key, lane);
	}
	if (lane)
		lane->busy = true;
	return lane;
}

static void lane_put(struct lane *lane)
{
	lane->busy = false;
	if (lane->temporary)
		lane_free(lane);
}

/* A lane with a call that nobody waits for is closed: the engine drops the call. */
static void lane_drop(struct lane *lane)
{
	furca_fd_done(&lane->fd);
	furca_buf_done(&lane->in);
}

static int pack_field(struct furca_buf *out, msgpack_packer *pk, const char *key, PyObject *value)
{
	msgpack_pack_str_with_body(pk, key, strlen(key));
	return furca_codec_pack(value, lanes.pack_hook, out);
}

/* Appends one frame. `extra`: a dict of further fields, or NULL. 0, or -1 with an exception. */
static int frame_append(struct furca_buf *out, int number, uint64_t call, PyObject *name,
			PyObject *args, PyObject *kwargs, PyObject *extra)
{
	Py_ssize_t n_extra = extra ? PyDict_Size(extra) : 0, at = 0;
	PyObject *key, *value;
	msgpack_packer pk;
	size_t offset;
	int r;

	/* DESCRIBE and RELEASE carry what is in `extra` alone. */
	offset = furca_frame_begin(out, &pk, (enum furca_frame)number, call,
				   (uint32_t)(n_extra + (args ? 3 : 0)));
	r = 0;
	if (args) {
		r = pack_field(out, &pk, "name", name);
		if (!r)
			r = pack_field(out, &pk, "args", args);
		if (!r)
			r = pack_field(out, &pk, "kwargs", kwargs);
	}
	while (!r && extra && PyDict_Next(extra, &at, &key, &value)) {
		r = furca_codec_pack(key, NULL, out);
		if (!r)
			r = furca_codec_pack(value, NULL, out);
	}
	if (!r &&
	    (furca_frame_end(out, offset, 0) < 0 || out->len - offset > FURCA_MAX_CAPABILITY)) {
		PyErr_Format(PyExc_ValueError, "the arguments are over the limit of %u bytes",
			     FURCA_MAX_CAPABILITY);
		r = -1;
	}
	if (r < 0)
		out->len = offset;
	return r;
}

static PyObject *text_or_none(struct furca_view body, const char *key)
{
	struct furca_view text;

	if (!furca_map_text(body, key, &text))
		Py_RETURN_NONE;
	return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)furca_view_size(text),
				    "replace");
}

/* The exception of a FAILED frame: new reference, or NULL with another exception set. */
static PyObject *frame_exception(const struct furca_frame_view *frame)
{
	PyObject *type = text_or_none(frame->body, "type"),
		 *message = text_or_none(frame->body, "message");
	PyObject *traceback = text_or_none(frame->body, "traceback"),
		 *suggestion = text_or_none(frame->body, "suggestion");
	PyObject *error = NULL;

	if (type && message && traceback && suggestion)
		error = PyObject_CallFunctionObjArgs(lanes.failed, type, message, traceback,
						     suggestion, NULL);
	Py_XDECREF(type);
	Py_XDECREF(message);
	Py_XDECREF(traceback);
	Py_XDECREF(suggestion);
	return error;
}

/* The answer to a function's call that belongs into this very process: (name, source, the
 * capabilities it may call or None). Values never are tuples. */
static PyObject *frame_source(const struct furca_frame_view *frame)
{
	PyObject *name = text_or_none(frame->body, "name"),
		 *source = text_or_none(frame->body, "source");
	PyObject *allowed = NULL, *all = NULL;
	struct furca_value value;

	if (furca_map_get(frame->body, "capabilities", &value)) {
		allowed = furca_codec_unpack(value.raw, NULL);
	} else {
		allowed = Py_None;
		Py_INCREF(allowed);
	}
	if (name && source && allowed)
		all = PyTuple_Pack(3, name, source, allowed);
	Py_XDECREF(name);
	Py_XDECREF(source);
	Py_XDECREF(allowed);
	return all;
}

/* The value of an answer, or its exception object with *ret_ok 0. NULL with an exception where it
 * cannot be told. */
static PyObject *frame_value(const struct furca_frame_view *frame, int *ret_ok)
{
	struct furca_value value;

	*ret_ok = frame->number == FURCA_LANE_VALUE || frame->number == FURCA_LANE_INLINE;
	if (frame->number == FURCA_LANE_INLINE)
		return frame_source(frame);
	if (!*ret_ok)
		return frame_exception(frame);
	if (!furca_map_get(frame->body, "value", &value))
		Py_RETURN_NONE;
	return furca_codec_unpack(value.raw, lanes.unpack_hook);
}

struct exchange {
	struct lane *lane;
	const uint8_t *data; /* still to be sent */
	size_t n;
	int error; /* errno that broke the lane, 0 none */
};

/* Sends what goes and reads what is there, waiting at most once. Without the GIL. */
static void exchange_step(struct exchange *x)
{
	struct pollfd p = {.fd = x->lane->fd.n, .events = (short)(POLLIN | (x->n ? POLLOUT : 0))};
	ssize_t n;

	if (poll(&p, 1, LOOK_MS) <= 0)
		return;
	if (x->n && (p.revents & POLLOUT)) {
		n = send(p.fd, x->data, x->n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0) {
			x->data += n;
			x->n -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			x->error = errno;
		}
	}
	if (!(p.revents & (POLLIN | POLLHUP | POLLERR)))
		return;
	if (furca_buf_reserve(&x->lane->in, 65536) < 0) {
		x->error = ENOMEM;
		return;
	}
	n = recv(p.fd, x->lane->in.data + x->lane->in.len, x->lane->in.cap - x->lane->in.len,
		 MSG_DONTWAIT);
	if (n > 0)
		x->lane->in.len += (size_t)n;
	else if (n == 0)
		x->error = EPIPE;
	else if (errno != EAGAIN && errno != EINTR)
		x->error = errno;
}

/* Waits for the next whole frame; 0, or -1 with an exception and the lane dropped. The frame stays
 * at the front of lane->in. */
static int exchange_frame(struct exchange *x, struct furca_frame_view *ret)
{
	for (;;) {
		size_t need;
		struct furca_err err = FURCA_ERR_INIT;
		int r = furca_frame_parse(x->lane->in.data, x->lane->in.len, FURCA_MAX_HOST_FRAME,
					  ret, &need, &err);

		if (r == 1 && !x->n)
			return 0;
		if (r < 0 || x->error) {
			lane_drop(x->lane);
			PyErr_SetString(PyExc_ConnectionError,
					r < 0 ? err.text
					      : "the engine closed the lane of this call");
			return -1;
		}
		Py_BEGIN_ALLOW_THREADS exchange_step(x);
		Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0)
		{
			lane_drop(x->lane);
			return -1;
		}
	}
}

/* Collects the answers to calls first … first + n - 1 into `values`. The first failure by place is
 * raised. */
static PyObject *collect(struct exchange *x, uint64_t first, Py_ssize_t n, PyObject *values)
{
	Py_ssize_t left = n;
	PyObject *failure = NULL;
	uint64_t failure_call = UINT64_MAX;

	while (left > 0) {
		struct furca_frame_view frame;
		PyObject *value;
		int ok;

		if (exchange_frame(x, &frame) < 0)
			goto fail;
		value = NULL;
		if (frame.call >= first && frame.call - first < (uint64_t)n) {
			value = frame_value(&frame, &ok);
			left--;
			if (!value)
				goto fail;
			if (!ok && frame.call < failure_call) {
				Py_XDECREF(failure);
				failure = value;
				failure_call = frame.call;
				Py_INCREF(value);
			}
			if (PyList_SetItem(values, (Py_ssize_t)(frame.call - first), value) < 0)
				goto fail;
		}
		furca_buf_consume(&x->lane->in, frame.size);
	}
	if (x->lane->in.cap > 1U << 20)
		furca_buf_done(&x->lane->in);
	if (failure) {
		PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
		goto fail;
	}
	return values;
fail:
	if (left > 0 && x->lane->fd.n >= 0)
		lane_drop(x->lane);
	Py_XDECREF(failure);
	Py_DECREF(values);
	return NULL;
}

/* Sends what nobody answers. True, or false with an exception and the lane dropped. */
static bool post(struct exchange *x)
{
	while (x->n && !x->error) {
		Py_BEGIN_ALLOW_THREADS exchange_step(x);
		Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) break;
	}
	if (!x->n)
		return true;
	lane_drop(x->lane);
	if (!PyErr_Occurred())
		PyErr_SetString(PyExc_ConnectionError, "the engine closed the lane of this call");
	return false;
}

PyObject *furca_lanes_post(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf out = {.max = 65536};
	struct lane *lane;
	PyObject *fields;
	bool good = false;
	int number;

	if (!PyArg_ParseTuple(args, "iO!", &number, &PyDict_Type, &fields))
		return NULL;
	lane = lane_get();
	if (!lane)
		return NULL;
	if (frame_append(&out, number, ++lane->last_call, NULL, NULL, NULL, fields) == 0) {
		struct exchange x = {.lane = lane, .data = out.data, .n = out.len};

		good = post(&x);
	}
	lane_put(lane);
	if (!good)
		return NULL;
	Py_RETURN_NONE;
}

PyObject *furca_lanes_call(PyObject *self, PyObject *args)
{
	PyObject *name, *call_args, *kwargs, *extra, *values, *value = NULL;
	FURCA_AUTO_BUF struct furca_buf out = {.max = FURCA_MAX_CAPABILITY + 4096UL};
	struct lane *lane;
	int number;

	if (!PyArg_ParseTuple(args, "iOOOO", &number, &name, &call_args, &kwargs, &extra))
		return NULL;
	lane = lane_get();
	if (!lane)
		return NULL;
	values = NULL;
	if (frame_append(&out, number, ++lane->last_call, name,
			 call_args == Py_None ? NULL : call_args, kwargs,
			 extra == Py_None ? NULL : extra) == 0)
		values = PyList_New(1);
	if (values) {
		struct exchange x = {.lane = lane, .data = out.data, .n = out.len};

		values = collect(&x, lane->last_call, 1, values);
	}
	lane_put(lane);
	if (values) {
		value = PyList_GetItem(values, 0);
		Py_XINCREF(value);
		Py_DECREF(values);
	}
	return value;
}

PyObject *furca_lanes_call_many(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf out = {.max = FURCA_MAX_CAPABILITY * 2UL};
	PyObject *name, *calls, *extra, *values = NULL;
	struct lane *lane;
	Py_ssize_t n;
	uint64_t first;
	int number;

	if (!PyArg_ParseTuple(args, "iOO!O", &number, &name, &PyList_Type, &calls, &extra))
		return NULL;
	lane = lane_get();
	if (!lane)
		return NULL;
	n = PyList_Size(calls);
	first = lane->last_call + 1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *call_args, *kwargs;

		if (!PyArg_ParseTuple(PyList_GetItem(calls, i), "OO", &call_args, &kwargs) ||
		    frame_append(&out, number, ++lane->last_call, name, call_args, kwargs,
				 extra == Py_None ? NULL : extra) < 0)
			goto put;
	}
	values = PyList_New(n);
	if (values) {
		struct exchange x = {.lane = lane, .data = out.data, .n = out.len};

		values = collect(&x, first, n, values);
	}
put:
	lane_put(lane);
	return values;
}

PyObject *furca_lanes_encode(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf out = {.max = FURCA_MAX_CAPABILITY + 4096UL};
	PyObject *name, *call_args, *kwargs, *extra;
	unsigned long long call;
	int number;

	if (!PyArg_ParseTuple(args, "iKOOOO", &number, &call, &name, &call_args, &kwargs, &extra) ||
	    frame_append(&out, number, call, name, call_args == Py_None ? NULL : call_args, kwargs,
			 extra == Py_None ? NULL : extra) < 0)
		return NULL;
	return PyBytes_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.len);
}

PyObject *furca_lanes_decode(PyObject *self, PyObject *args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_frame_view frame;
	const char *data;
	Py_ssize_t n;
	size_t need;
	PyObject *value, *result;
	int ok, r;

	if (!PyArg_ParseTuple(args, "y#", &data, &n))
		return NULL;
	r = furca_frame_parse((const uint8_t *)data, (size_t)n, FURCA_MAX_HOST_FRAME, &frame, &need,
			      &err);
	if (r < 0)
		return raise_err(&err);
	if (r == 0)
		Py_RETURN_NONE;
	value = frame_value(&frame, &ok);
	if (!value)
		return NULL;
	result = Py_BuildValue("(nKOO)", (Py_ssize_t)frame.size, (unsigned long long)frame.call,
			       ok ? Py_True : Py_False, value);
	Py_DECREF(value);
	return result;
}

PyObject *furca_lanes_open(PyObject *self, PyObject *args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_fd lane;

	if (furca_host_open_lane(lanes.host, &lane, &err) < 0)
		return raise_err(&err);
	return PyLong_FromLong(lane.n);
}
