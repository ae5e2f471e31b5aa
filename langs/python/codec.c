#include "langs/python/codec.h"

#include <errno.h>
#include <msgpack.h>

#include "bridge/wire/limits.h"

#include "base/banned.h"

struct pack {
	msgpack_packer packer;
	struct furca_buf *out;
	PyObject *hook, *frames;
	size_t values;
};

#define MOST_VALUES (FURCA_MAX_ITEMS - 4096U) /* the rest is for what is around them in their message */

static int pack_value(struct pack *p, PyObject *value, int depth);

/* The exception for `what`, naming the value's type. -1. */
static int no_form(PyObject *value, const char *advice)
{
	PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");

	if (name)
		(void)PyErr_Format(PyExc_TypeError, "a value of type %U has no form on the wire; %s", name, advice);
	Py_XDECREF(name);
	return -1;
}

static int overfull(const struct pack *p)
{
	if (p->out->failed == -ENOMEM)
		(void)PyErr_NoMemory();
	else
		(void)PyErr_Format(PyExc_ValueError, "the value is too large for the wire, which takes %zu bytes of it",
				   p->out->max);
	return -1;
}

static int pack_big(struct pack *p, PyObject *value)
{
	PyObject *bits = PyObject_CallMethod(value, "bit_length", NULL), *bytes = NULL;
	char *data;
	Py_ssize_t n;
	int r = -1;

	if (bits) {
		PyObject *method = PyObject_GetAttrString(value, "to_bytes");
		PyObject *args = Py_BuildValue("(ns)", PyLong_AsSsize_t(bits) / 8 + 1, "big");
		PyObject *kwargs = Py_BuildValue("{s:O}", "signed", Py_True);

		if (method && args && kwargs)
			bytes = PyObject_Call(method, args, kwargs);
		Py_XDECREF(method);
		Py_XDECREF(args);
		Py_XDECREF(kwargs);
	}
	if (bytes && PyBytes_AsStringAndSize(bytes, &data, &n) == 0) {
		msgpack_pack_ext(&p->packer, (size_t)n, FURCA_EXT_INTEGER);
		msgpack_pack_ext_body(&p->packer, data, (size_t)n);
		r = 0;
	}
	Py_XDECREF(bits);
	Py_XDECREF(bytes);
	return r;
}

static int pack_int(struct pack *p, PyObject *value)
{
	int overflow;
	long long small = PyLong_AsLongLongAndOverflow(value, &overflow);

	if (small == -1 && PyErr_Occurred())
		return -1;
	if (!overflow) {
		msgpack_pack_int64(&p->packer, small);
		return 0;
	}
	if (overflow > 0) {
		unsigned long long large = PyLong_AsUnsignedLongLong(value);

		if (!PyErr_Occurred()) {
			msgpack_pack_uint64(&p->packer, large);
			return 0;
		}
		PyErr_Clear();
	}
	return pack_big(p, value);
}

static int pack_str(struct pack *p, PyObject *value)
{
	PyObject *bytes = PyUnicode_AsUTF8String(value);
	char *data;
	Py_ssize_t n;

	if (!bytes) {
		if (PyErr_ExceptionMatches(PyExc_UnicodeError)) {
			PyErr_Clear();
			PyErr_SetString(PyExc_TypeError, "text with a lone surrogate has no form on the wire; "
							 "encode it first, "
							 "for example with errors='backslashreplace'");
		}
		return -1;
	}
	if (PyBytes_AsStringAndSize(bytes, &data, &n) == 0)
		msgpack_pack_str_with_body(&p->packer, data, (size_t)n);
	Py_DECREF(bytes);
	return 0;
}

static int pack_bytes(struct pack *p, PyObject *value)
{
	PyObject *bytes = PyBytes_FromObject(value);
	char *data;
	Py_ssize_t n;

	if (!bytes || PyBytes_AsStringAndSize(bytes, &data, &n) < 0) {
		Py_XDECREF(bytes);
		return -1;
	}
	msgpack_pack_bin_with_body(&p->packer, data, (size_t)n);
	Py_DECREF(bytes);
	return 0;
}

static int pack_list(struct pack *p, PyObject *value, int depth)
{
	bool tuple = PyTuple_Check(value);
	Py_ssize_t n = tuple ? PyTuple_Size(value) : PyList_Size(value);

	msgpack_pack_array(&p->packer, (size_t)n);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i);
		int r;

		if (!item)
			return -1; /* a hook made the list shorter */
		Py_INCREF(item);
		r = pack_value(p, item, depth + 1);
		Py_DECREF(item);
		if (r < 0)
			return r;
	}
	return 0;
}

static int pack_dict(struct pack *p, PyObject *value, int depth)
{
	Py_ssize_t n = PyDict_Size(value), at = 0, packed = 0;
	PyObject *key, *item;

	msgpack_pack_map(&p->packer, (size_t)n);
	while (packed < n && PyDict_Next(value, &at, &key, &item)) {
		int r;

		Py_INCREF(key);
		Py_INCREF(item);
		r = pack_value(p, key, depth + 1);
		if (!r)
			r = pack_value(p, item, depth + 1);
		Py_DECREF(key);
		Py_DECREF(item);
		if (r < 0)
			return r;
		packed++;
	}
	if (packed == n)
		return 0;
	PyErr_SetString(PyExc_RuntimeError, "a dict changed its size while it was packed");
	return -1;
}

static int pack_hooked(struct pack *p, PyObject *value)
{
	PyObject *pair;
	char *data;
	Py_ssize_t n;
	int type;

	if (PyAnySet_Check(value))
		return no_form(value, "send a list");
	if (!p->hook)
		return no_form(value, "send plain values");
	pair = PyObject_CallFunctionObjArgs(p->hook, value, p->frames ? p->frames : Py_None, NULL);
	if (!pair)
		return -1;
	if (pair == Py_None) {
		Py_DECREF(pair);
		return no_form(value, "send plain values: None, bool, int, float, str, bytes, list, tuple, dict");
	}
	if (!PyArg_ParseTuple(pair, "iy#", &type, &data, &n)) {
		Py_DECREF(pair);
		return -1;
	}
	msgpack_pack_ext(&p->packer, (size_t)n, (int8_t)type);
	msgpack_pack_ext_body(&p->packer, data, (size_t)n);
	Py_DECREF(pair);
	return 0;
}

static int pack_value(struct pack *p, PyObject *value, int depth)
{
	if (p->out->failed)
		return overfull(p);
	if (++p->values > MOST_VALUES) {
		(void)PyErr_Format(
			PyExc_ValueError,
			"the value holds more values than the %u that the wire takes; pass an array or bytes",
			MOST_VALUES);
		return -1;
	}
	if (value == Py_None)
		return msgpack_pack_nil(&p->packer), 0;
	if (value == Py_True)
		return msgpack_pack_true(&p->packer), 0;
	if (value == Py_False)
		return msgpack_pack_false(&p->packer), 0;
	if (PyLong_Check(value))
		return pack_int(p, value);
	if (PyFloat_Check(value))
		return msgpack_pack_double(&p->packer, PyFloat_AsDouble(value)), 0;
	if (PyUnicode_Check(value))
		return pack_str(p, value);
	if (PyBytes_Check(value) || PyByteArray_Check(value) || PyMemoryView_Check(value))
		return pack_bytes(p, value);
	if (depth >= FURCA_PYTHON_DEPTH && (PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value))) {
		(void)PyErr_Format(PyExc_ValueError, "the value is nested deeper than %d levels", FURCA_PYTHON_DEPTH);
		return -1;
	}
	if (PyList_Check(value) || PyTuple_Check(value))
		return pack_list(p, value, depth);
	if (PyDict_Check(value))
		return pack_dict(p, value, depth);
	return pack_hooked(p, value);
}

int furca_codec_pack(PyObject *value, PyObject *hook, PyObject *frames, struct furca_buf *out)
{
	struct pack p = {.out = out, .hook = hook, .frames = frames};
	size_t begin = out->len;
	int r;

	msgpack_packer_init(&p.packer, out, furca_buf_msgpack_write);
	r = pack_value(&p, value, 0);
	if (!r && out->failed)
		r = overfull(&p);
	if (r < 0) {
		out->len = begin;
		out->failed = 0;
	}
	return r;
}

struct unpack {
	struct furca_view view; /* what is left */
	PyObject *hook, *memory;
};

static PyObject *unpack_next(struct unpack *u, bool key);

static PyObject *unpack_array(struct unpack *u, const struct furca_value *value, bool key)
{
	PyObject *list = PyList_New((Py_ssize_t)value->count), *tuple;

	for (uint32_t i = 0; list && i < value->count; i++) {
		PyObject *item = unpack_next(u, key);

		if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	if (!list || !key)
		return list;
	tuple = PyList_AsTuple(list);
	Py_DECREF(list);
	return tuple;
}

static PyObject *unpack_map(struct unpack *u, const struct furca_value *value)
{
	PyObject *dict = PyDict_New();

	for (uint32_t i = 0; dict && i < value->count; i++) {
		PyObject *name = unpack_next(u, true);
		PyObject *item = name ? unpack_next(u, false) : NULL;

		if (!item || PyDict_SetItem(dict, name, item) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(name);
		Py_XDECREF(item);
	}
	return dict;
}

static PyObject *unpack_ext(const struct unpack *u, const struct furca_value *value)
{
	const char *data = (const char *)value->bytes.at;
	Py_ssize_t n = (Py_ssize_t)furca_view_size(value->bytes);
	PyObject *type, *method, *args, *kwargs, *result = NULL;

	if (value->ext != FURCA_EXT_INTEGER) {
		if (u->hook)
			return PyObject_CallFunction(u->hook, "iy#O", (int)value->ext, data, n,
						     u->memory ? u->memory : Py_None);
		return PyErr_Format(PyExc_ValueError, "a value of the unknown extension type %d", (int)value->ext);
	}
	type = (PyObject *)&PyLong_Type;
	method = PyObject_GetAttrString(type, "from_bytes");
	args = Py_BuildValue("(y#s)", data, n, "big");
	kwargs = Py_BuildValue("{s:O}", "signed", Py_True);
	if (method && args && kwargs)
		result = PyObject_Call(method, args, kwargs);
	Py_XDECREF(method);
	Py_XDECREF(args);
	Py_XDECREF(kwargs);
	return result;
}

static PyObject *unpack_next(struct unpack *u, bool key)
{
	struct furca_value value;
	const char *data;
	Py_ssize_t n;

	if (furca_value_enter(&u->view, &value) < 0)
		return PyErr_Format(PyExc_ValueError, "a packed value is cut short");
	data = (const char *)value.bytes.at;
	n = (Py_ssize_t)furca_view_size(value.bytes);
	switch (value.kind) {
	case FURCA_NIL:
		Py_RETURN_NONE;
	case FURCA_BOOL:
		return PyBool_FromLong(value.b);
	case FURCA_UINT:
		return PyLong_FromUnsignedLongLong(value.u);
	case FURCA_INT:
		return PyLong_FromLongLong(value.i);
	case FURCA_FLOAT:
		return PyFloat_FromDouble(value.f);
	case FURCA_STR:
		return PyUnicode_DecodeUTF8(data, n, "strict");
	case FURCA_BIN:
		return PyBytes_FromStringAndSize(data, n);
	case FURCA_ARRAY:
		return unpack_array(u, &value, key);
	case FURCA_MAP:
		return unpack_map(u, &value);
	case FURCA_EXT:
		return unpack_ext(u, &value);
	}
	return PyErr_Format(PyExc_ValueError, "a packed value of an unknown kind");
}

PyObject *furca_codec_unpack(struct furca_view view, PyObject *hook, PyObject *memory)
{
	struct unpack u = {view, hook, memory};

	return unpack_next(&u, false);
}

PyObject *furca_codec_text(struct furca_view view)
{
	if (!view.at)
		Py_RETURN_NONE;
	return PyUnicode_DecodeUTF8((const char *)view.at, (Py_ssize_t)furca_view_size(view), "surrogateescape");
}
