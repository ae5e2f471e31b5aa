#include "langs/python/lanes_frame.h"

#include <string.h>

#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

struct furca_lanes_hooks furca_lane_hooks;

void furca_outgoing_done(struct furca_outgoing *out)
{
	furca_buf_done(&out->bytes);
	furca_fd_done(&out->memory);
}

PyObject *furca_lane_raise(const struct furca_err *err)
{
	PyErr_SetString(PyExc_ConnectionError, err->text);
	return NULL;
}

int furca_lanes_pack(PyObject *value, PyObject *frames, struct furca_buf *out)
{
	return furca_codec_pack(value, furca_lane_hooks.pack, frames, out);
}

PyObject *furca_lanes_buffers(PyObject *reader)
{
	return PyObject_CallFunctionObjArgs(furca_lane_hooks.buffers, reader, NULL);
}

int furca_lanes_store(PyObject *frames, struct furca_fd *ret)
{
	PyObject *fd;

	*ret = FURCA_FD_NONE;
	if (!frames || PyList_Size(frames) == 0)
		return 0;
	fd = PyObject_CallFunctionObjArgs(furca_lane_hooks.store, frames, NULL);
	if (!fd)
		return -1;
	*ret = furca_fd_own((int)PyLong_AsLong(fd));
	Py_DECREF(fd);
	return ret->n < 0 ? -1 : 0;
}

PyObject *furca_lanes_unpack(struct furca_view view, const struct furca_fd *fds, size_t n_fds)
{
	PyObject *memory = NULL, *value;

	if (n_fds == 1) {
		memory = PyObject_CallFunction(furca_lane_hooks.read, "i", fds[0].n);
		if (!memory)
			return NULL;
	}
	value = furca_codec_unpack(view, furca_lane_hooks.unpack, memory);
	Py_XDECREF(memory);
	return value;
}

/* Where the values of such a frame go: objects may be held by clients, not by functions in other processes. */
static PyObject *hook_of(int number)
{
	return number == FURCA_LANE_CAPABILITY || number == FURCA_LANE_ANSWER ? furca_lane_hooks.pack_out
									      : furca_lane_hooks.pack;
}

static int pack_field(struct furca_buf *out, msgpack_packer *pk, const char *key, PyObject *value, PyObject *hook,
		      PyObject *frames)
{
	furca_pack_text(pk, key);
	return furca_codec_pack(value, hook, frames, out);
}

int furca_frame_pack(struct furca_buf *out, size_t *ret_offset, int number, uint64_t call, PyObject *name,
		     PyObject *args, PyObject *kwargs, PyObject *extra, PyObject *frames)
{
	Py_ssize_t n_extra = extra ? PyDict_Size(extra) : 0, at = 0;
	PyObject *key, *value, *hook = hook_of(number);
	msgpack_packer pk;
	int r;

	/* All but calls carry what is in `extra` alone. */
	*ret_offset = furca_frame_begin(out, &pk, (enum furca_frame)number, call, (uint32_t)(n_extra + (args ? 3 : 0)));
	r = 0;
	if (args) {
		r = pack_field(out, &pk, "name", name, NULL, NULL);
		if (!r)
			r = pack_field(out, &pk, "args", args, hook, frames);
		if (!r)
			r = pack_field(out, &pk, "kwargs", kwargs, hook, frames);
	}
	while (!r && extra && PyDict_Next(extra, &at, &key, &value)) {
		r = furca_codec_pack(key, NULL, NULL, out);
		if (!r)
			r = furca_codec_pack(value, hook, NULL, out);
	}
	if (r < 0)
		out->len = *ret_offset;
	return r;
}

int furca_frame_close(struct furca_buf *out, size_t offset, unsigned n_fds)
{
	if (furca_frame_end(out, offset, n_fds) == 0 && out->len - offset <= FURCA_MAX_CAPABILITY)
		return 0;
	PyErr_Format(PyExc_ValueError, "the arguments are over the limit of %u bytes", FURCA_MAX_CAPABILITY);
	out->len = offset;
	return -1;
}

static PyObject *not_none(PyObject *value)
{
	return value == Py_None ? NULL : value;
}

int furca_frame_make(struct furca_outgoing *out, uint64_t number, const struct furca_frame_call *call)
{
	PyObject *frames = furca_lanes_buffers(call->reader ? call->reader : Py_None);
	size_t offset;
	int r = frames ? furca_frame_pack(&out->bytes, &offset, call->number, number, call->name, not_none(call->args),
					  call->kwargs, not_none(call->extra), frames)
		       : -1;

	if (!r)
		r = furca_lanes_store(frames, &out->memory);
	if (!r)
		r = furca_frame_close(&out->bytes, offset, out->memory.n >= 0);
	Py_XDECREF(frames);
	return r;
}

PyObject *furca_frame_body(const struct furca_frame_view *frame)
{
	return PyBytes_FromStringAndSize((const char *)frame->body.at, (Py_ssize_t)furca_view_size(frame->body));
}

void furca_frame_let_go(const struct furca_frame_view *frame)
{
	PyObject *body = furca_frame_body(frame);
	PyObject *none = body ? PyObject_CallFunctionObjArgs(furca_lane_hooks.let_go, body, NULL) : NULL;

	if (!none)
		PyErr_Clear(); /* it is held a while longer */
	Py_XDECREF(none);
	Py_XDECREF(body);
}

static PyObject *text_or_none(struct furca_view body, const char *key)
{
	struct furca_view text;

	if (!furca_map_text(body, key, &text))
		Py_RETURN_NONE;
	return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)furca_view_size(text), "replace");
}

/* The exception of a FAILED frame: new reference, or NULL with another exception set. */
static PyObject *frame_exception(const struct furca_frame_view *frame)
{
	PyObject *type = text_or_none(frame->body, "type"), *message = text_or_none(frame->body, "message");
	PyObject *traceback = text_or_none(frame->body, "traceback"),
		 *suggestion = text_or_none(frame->body, "suggestion"), *frames = text_or_none(frame->body, "frames");
	PyObject *error = NULL;

	if (type && message && traceback && suggestion && frames)
		error = PyObject_CallFunctionObjArgs(furca_lane_hooks.failed, type, message, traceback, suggestion,
						     frames, NULL);
	Py_XDECREF(frames);
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
	PyObject *name = text_or_none(frame->body, "name"), *source = text_or_none(frame->body, "source");
	PyObject *allowed = NULL, *all = NULL;
	struct furca_value value;

	if (furca_map_get(frame->body, "capabilities", &value)) {
		allowed = furca_codec_unpack(value.raw, NULL, NULL);
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

PyObject *furca_frame_value(const struct furca_frame_view *frame, const struct furca_fd *fds, int *ret_ok)
{
	struct furca_value value;

	*ret_ok = frame->number == FURCA_LANE_VALUE || frame->number == FURCA_LANE_INLINE;
	if (frame->number == FURCA_LANE_INLINE)
		return frame_source(frame);
	if (!*ret_ok)
		return frame_exception(frame);
	if (!furca_map_get(frame->body, "value", &value))
		Py_RETURN_NONE;
	return furca_lanes_unpack(value.raw, fds, frame->n_fds);
}
