#include "langs/python/quick.h"

#include <signal.h>

#include "base/auto.h"

#include "base/banned.h"

#define TEXT_MAX 16384 /* characters of a value that is described here */
#define RECURSION 1000 /* what the compiler needs at least */

enum stream { STDIN, STDOUT, STDERR, STREAMS };

static const char *const stream_names[STREAMS] = {"stdin", "stdout", "stderr"};

static struct {
	PyObject *space, *main;			 /* the user's namespace and its module */
	PyObject *given, *dunder;		 /* names it must have */
	PyObject *sys;				 /* sys.__dict__ */
	PyObject *loaded;			 /* sys.modules */
	PyObject *own_streams;			 /* streams._own */
	PyObject *shown, *unused, *begun, *kept; /* display._shown, capability._unused, .calls_begun and ._kept */
	PyObject *get_signal, *on_interrupt, *number, *get_trace, *get_profile;
	PyObject *stream_name[STREAMS], *closed, *flush, *main_name, *name, *plot_name;
	PyObject *raw_of, *raw, *zero, *count, *count_name; /* of the stream raw_of: the counter of output */
} quick;

static PyObject *of_module(PyObject *modules, const char *module, const char *name)
{
	PyObject *m = PyDict_GetItemString(modules, module);
	PyObject *value = m ? PyObject_GetAttrString(m, name) : NULL;

	if (!value && !PyErr_Occurred())
		(void)PyErr_Format(PyExc_NameError, "%s.py lacks %s", module, name);
	return value;
}

static PyObject *of_library(const char *module, const char *name)
{
	PyObject *m = PyImport_ImportModule(module), *value = m ? PyObject_GetAttrString(m, name) : NULL;

	Py_XDECREF(m);
	return value;
}

int furca_quick_init(PyObject *modules)
{
	quick.main = of_module(modules, "calls", "main");
	quick.space = quick.main ? PyModule_GetDict(quick.main) : NULL;
	quick.given = of_module(modules, "calls", "_given");
	quick.dunder = of_module(modules, "calls", "_dunder");
	quick.on_interrupt = of_module(modules, "calls", "_on_interrupt");
	quick.number = of_module(modules, "calls", "INTERRUPT");
	quick.own_streams = of_module(modules, "streams", "_own");
	quick.shown = of_module(modules, "display", "_shown");
	quick.unused = of_module(modules, "capability", "_unused");
	quick.kept = of_module(modules, "capability", "_kept");
	quick.begun = of_module(modules, "capability", "calls_begun");
	quick.get_signal = of_library("_signal", "getsignal");
	quick.get_trace = of_library("sys", "gettrace");
	quick.get_profile = of_library("sys", "getprofile");
	quick.sys = of_library("sys", "__dict__");
	quick.loaded = PyImport_GetModuleDict();
	for (int i = 0; i < STREAMS; i++)
		quick.stream_name[i] = PyUnicode_InternFromString(stream_names[i]);
	quick.closed = PyUnicode_InternFromString("closed");
	quick.flush = PyUnicode_InternFromString("flush");
	quick.count_name = PyUnicode_InternFromString("count");
	quick.name = PyUnicode_InternFromString("__name__");
	quick.main_name = PyUnicode_InternFromString("__main__");
	quick.plot_name = PyUnicode_InternFromString("matplotlib.pyplot");
	quick.zero = PyLong_FromLong(0);
	return PyErr_Occurred() ? -1 : 0;
}

/* Our own stream of that name, where it is the one in place and open; borrowed. */
static PyObject *stream(enum stream which)
{
	PyObject *own = PyDict_GetItemWithError(quick.own_streams, quick.stream_name[which]);

	return own && PyDict_GetItemWithError(quick.sys, quick.stream_name[which]) == own ? own : NULL;
}

static bool is_open(PyObject *own)
{
	PyObject *closed = own ? PyObject_GetAttr(own, quick.closed) : NULL;
	bool open = closed == Py_False;

	Py_XDECREF(closed);
	return open;
}

/* Output is counted from here, as streams.begin does. */
static bool count_from_zero(PyObject *own)
{
	if (own != quick.raw_of) {
		PyObject *buffer = PyObject_GetAttrString(own, "buffer");
		PyObject *raw = buffer ? PyObject_GetAttrString(buffer, "raw") : NULL;

		Py_XDECREF(buffer);
		if (!raw)
			return false;
		Py_XDECREF(quick.raw);
		Py_XDECREF(quick.raw_of);
		Py_INCREF(own);
		quick.raw = raw;
		quick.raw_of = own;
	}
	return PyObject_SetAttr(quick.raw, quick.count_name, quick.zero) == 0;
}

static bool streams_ready(void)
{
	for (int i = 0; i < STREAMS; i++)
		if (!is_open(stream((enum stream)i)))
			return false;
	return count_from_zero(stream(STDOUT));
}

/* The user may have taken the signal, or have it masked. */
static bool interrupts_ready(void)
{
	PyObject *handler = PyObject_CallFunctionObjArgs(quick.get_signal, quick.number, NULL);
	bool ours = handler == quick.on_interrupt;
	sigset_t set;

	Py_XDECREF(handler);
	if (!ours)
		return false;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, (int)PyLong_AsLong(quick.number));
	return pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0;
}

/* Whether all of `wanted` is in the namespace: under these names, and with `same` these very values. */
static bool has_names(PyObject *wanted, bool same)
{
	PyObject *name, *value, *there;
	Py_ssize_t at = 0;

	while (PyDict_Next(wanted, &at, &name, &value)) {
		there = PyDict_GetItemWithError(quick.space, name);
		if (!there || (same && there != value))
			return false;
	}
	return true;
}

static bool names_ready(void)
{
	return PyDict_GetItemWithError(quick.loaded, quick.main_name) == quick.main && has_names(quick.given, true) &&
	       has_names(quick.dunder, false) &&
	       PyUnicode_Compare(PyDict_GetItemWithError(quick.space, quick.name), quick.main_name) == 0;
}

static bool count_call(void)
{
	PyObject *next = PyNumber_Add(PyList_GetItem(quick.begun, 0), Py_True);

	return next && PyList_SetItem(quick.begun, 0, next) == 0;
}

bool furca_quick_intact(void)
{
	PyObject *trace = PyObject_CallObject(quick.get_trace, NULL);
	PyObject *profile = PyObject_CallObject(quick.get_profile, NULL);
	bool intact = trace == Py_None && profile == Py_None && Py_GetRecursionLimit() >= RECURSION;

	Py_XDECREF(trace);
	Py_XDECREF(profile);
	return intact;
}

bool furca_quick_ready(void)
{
	bool ready = PyList_Size(quick.shown) == 0 && PyDict_Size(quick.kept) == 0 && names_ready() &&
		     interrupts_ready() && streams_ready() && count_call();

	PyErr_Clear();
	return ready;
}

bool furca_quick_describe(PyObject *value, struct furca_buf *ret)
{
	PyObject *text, *bytes = NULL;
	char *data;
	Py_ssize_t n;

	if (PyDict_GetItemWithError(quick.loaded, quick.plot_name))
		return false; /* figures may be open */
	if (value == Py_None)
		return true;
	if (!PyLong_CheckExact(value) && !PyFloat_CheckExact(value) && !PyBool_Check(value) &&
	    !(PyUnicode_CheckExact(value) && PyUnicode_GetLength(value) <= TEXT_MAX / 8))
		return false;
	text = PyObject_Repr(value);
	if (text && PyUnicode_GetLength(text) <= TEXT_MAX)
		bytes = PyUnicode_AsUTF8String(text);
	if (bytes && PyBytes_AsStringAndSize(bytes, &data, &n) == 0)
		(void)furca_buf_append(ret, data, (size_t)n);
	Py_XDECREF(text);
	PyErr_Clear();
	if (!bytes)
		return false;
	Py_DECREF(bytes);
	return true;
}

static bool flush(PyObject *own)
{
	PyObject *done = own ? PyObject_CallMethodObjArgs(own, quick.flush, NULL) : NULL;

	Py_XDECREF(done);
	return done != NULL;
}

bool furca_quick_end(void)
{
	bool ended = PyList_Size(quick.unused) == 0 && PyList_Size(quick.shown) == 0 && flush(stream(STDOUT)) &&
		     flush(stream(STDERR));

	PyErr_Clear();
	return ended;
}
