#include "langs/python/dotted.h"

#include <stdbool.h>
#include <stddef.h>
#include <structmember.h>

#include "langs/python/lanes_frame.h"

#include "base/banned.h"

struct dotted {
	PyObject_HEAD PyObject *name, *own,
		*handle; /* text; what may be called by it, or None: everything; whose method it is, or None */
};

static struct {
	PyTypeObject *kind;
	PyObject *limits, *within, *unused;
	PyObject *deeper, *invoke, *missing, *events, *running; /* names */
} dotted;

static PyObject *dotted_make(PyTypeObject *type, PyObject *name, PyObject *own, PyObject *handle)
{
	struct dotted *self = (struct dotted *)PyType_GenericAlloc(type, 0);

	if (!self)
		return NULL;
	Py_INCREF(name);
	Py_INCREF(own);
	Py_INCREF(handle);
	self->name = name;
	self->own = own;
	self->handle = handle;
	return (PyObject *)self;
}

static PyObject *dotted_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *name, *own = Py_None, *handle = Py_None;

	(void)kwargs;
	return PyArg_ParseTuple(args, "U|OO", &name, &own, &handle) ? dotted_make(type, name, own, handle) : NULL;
}

static int dotted_traverse(PyObject *object, visitproc visit, void *arg)
{
	const struct dotted *self = (struct dotted *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->own);
	Py_VISIT(self->handle);
	return 0;
}

static void dotted_dealloc(PyObject *object)
{
	struct dotted *self = (struct dotted *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	Py_XDECREF(self->name);
	Py_XDECREF(self->own);
	Py_XDECREF(self->handle);
	PyObject_GC_Del(object);
	Py_DECREF(type);
}

/* Whether nothing bounds what the code that runs here may call by this name. */
static bool is_free(const struct dotted *self)
{
	if (!dotted.kind || self->own != Py_None || PyDict_Size(dotted.limits) > 0)
		return false;
	PyObject *bound = PyObject_CallObject(dotted.within, NULL);
	Py_XDECREF(bound);
	return bound == Py_None;
}

static bool loop_runs(void)
{
	PyObject *events = PyDict_GetItemWithError(PyImport_GetModuleDict(), dotted.events), *loop;

	if (!events)
		return false;
	loop = PyObject_CallMethodObjArgs(events, dotted.running, NULL);
	Py_XDECREF(loop);
	return loop != Py_None;
}

/* Names that the class has: those with an underscore, and `map` at the root. */
static bool is_of_class(const struct dotted *self, PyObject *key)
{
	return PyUnicode_GetLength(key) == 0 || PyUnicode_ReadChar(key, 0) == '_' ||
	       (PyUnicode_GetLength(self->name) == 0 && PyUnicode_CompareWithASCIIString(key, "map") == 0);
}

static PyObject *dotted_getattro(PyObject *object, PyObject *key)
{
	const struct dotted *self = (struct dotted *)object;
	PyObject *name, *found;

	if (is_of_class(self, key)) {
		found = PyObject_GenericGetAttr(object, key);
		if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
			return found;
		PyErr_Clear();
		return PyObject_CallMethodObjArgs(object, dotted.missing, key, NULL);
	}
	if (!is_free(self))
		return PyErr_Occurred() ? NULL : PyObject_CallMethodObjArgs(object, dotted.deeper, key, NULL);
	if (PyUnicode_GetLength(self->name) == 0)
		return dotted_make(dotted.kind, key, Py_None, self->handle);
	name = PyUnicode_FromFormat("%U.%U", self->name, key);
	found = name ? dotted_make(dotted.kind, name, Py_None, self->handle) : NULL;
	Py_XDECREF(name);
	return found;
}

static PyObject *dotted_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
	const struct dotted *self = (struct dotted *)object;
	PyObject *invoke, *value;

	if (PyUnicode_GetLength(self->name) && is_free(self) && PyList_Size(dotted.unused) == 0 && !loop_runs()) {
		PyObject *none = kwargs ? NULL : PyDict_New();
		struct furca_frame_call call = {.number = FURCA_LANE_CAPABILITY,
						.name = self->name,
						.args = args,
						.kwargs = kwargs ? kwargs : none};

		value = call.kwargs ? furca_lanes_ask(&call) : NULL;
		Py_XDECREF(none);
		return value;
	}
	invoke = PyErr_Occurred() ? NULL : PyObject_GetAttr(object, dotted.invoke);
	value = invoke ? PyObject_Call(invoke, args, kwargs) : NULL;
	Py_XDECREF(invoke);
	return value;
}

static PyMemberDef members[] = {
	{"_name", T_OBJECT, offsetof(struct dotted, name), READONLY, NULL},
	{"_own", T_OBJECT, offsetof(struct dotted, own), READONLY, NULL},
	{"_handle", T_OBJECT, offsetof(struct dotted, handle), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, dotted_new},
	{Py_tp_traverse, dotted_traverse},
	{Py_tp_dealloc, dotted_dealloc},
	{Py_tp_getattro, dotted_getattro},
	{Py_tp_call, dotted_call},
	{Py_tp_members, members},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "capabilities.Dotted",
	.basicsize = sizeof(struct dotted),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

int furca_dotted_add(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&spec);
	int r = type ? PyObject_SetAttrString(module, "Dotted", type) : -1;

	Py_XDECREF(type);
	return r;
}

PyObject *furca_dotted_init(PyObject *self, PyObject *args)
{
	PyObject *kind;

	(void)self;
	if (!PyArg_ParseTuple(args, "OO!OO!", &kind, &PyDict_Type, &dotted.limits, &dotted.within, &PyList_Type,
			      &dotted.unused))
		return NULL;
	Py_INCREF(kind);
	Py_INCREF(dotted.limits);
	Py_INCREF(dotted.within);
	Py_INCREF(dotted.unused);
	dotted.deeper = PyUnicode_InternFromString("_deeper");
	dotted.invoke = PyUnicode_InternFromString("_invoke");
	dotted.missing = PyUnicode_InternFromString("_missing");
	dotted.events = PyUnicode_InternFromString("asyncio.events");
	dotted.running = PyUnicode_InternFromString("_get_running_loop");
	dotted.kind = (PyTypeObject *)kind;
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}
