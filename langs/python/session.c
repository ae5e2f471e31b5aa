#include "langs/python/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/wire/host.h"
#include "bridge/wire/limits.h"
#include "langs/host.h"
#include "langs/python/call.h"
#include "langs/python/codec.h"
#include "langs/python/dotted.h"
#include "langs/python/lanes.h"
#include "langs/python/modules.h"
#include "langs/python/parked.h"
#include "langs/python/runtime.h"

#include "base/banned.h"

static struct {
	struct furca_host host;
	PyObject *calls;     /* the module of calls.py: what a call needs before, between and after the
			    user's code */
	PyObject *flush;     /* streams.flush */
	PyThreadState *idle; /* saved while waiting */
	bool noted_children; /* children.py knows of some that have ended */
	bool attached;	     /* it began as a process of its own, whose copies this may be */
} session;

static void session_inspect(void *data, struct furca_view detail, struct furca_view name, struct furca_buf *out)
{
	PyObject *state = NULL, *detail_text = furca_codec_text(detail), *name_text = furca_codec_text(name);

	if (detail_text && name_text)
		state = PyObject_CallMethod(session.calls, "inspect", "OO", detail_text, name_text);
	if (!state || furca_codec_pack(state, NULL, NULL, out) < 0)
		furca_call_told("furca: inspection");
	Py_XDECREF(state);
	Py_XDECREF(detail_text);
	Py_XDECREF(name_text);
}

/* A copy that was made ahead stays as the session was: its other threads get no turn before the
 * look begins. */
static void session_idle_begin(void *data)
{
	if (session.host.role != FURCA_CLONE_COPY)
		session.idle = PyEval_SaveThread();
}

static void session_idle_end(void *data)
{
	if (session.idle)
		PyEval_RestoreThread(session.idle);
	session.idle = NULL;
}

static void session_idle_signal(void *data)
{
	session_idle_end(data);
	if (PyErr_CheckSignals() < 0)
		furca_call_told("a signal handler between calls");
	session_idle_begin(data);
}

static void flush_streams(void)
{
	PyObject *result = session.flush ? PyObject_CallObject(session.flush, NULL) : NULL;

	if (!result)
		PyErr_Clear();
	Py_XDECREF(result);
}

/* Calls a function of calls.py that has nothing to give; what it raises is written, under that heading. */
static void call_of_calls(const char *name, const char *heading)
{
	PyObject *result = PyObject_CallMethod(session.calls, name, NULL);

	if (!result)
		furca_call_told(heading);
	Py_XDECREF(result);
}

/* Whether a child has ended that nobody has waited for. */
static bool has_ended_child(void)
{
	siginfo_t info = {0};

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* A parked snapshot runs no Python (parked.h); nothing has happened there since its own clone was prepared. */
static void session_clone_begin(void *data, enum furca_clone_role role)
{
	if (session.host.parked)
		return;
	flush_streams();
	if (session.host.attached)
		(void)fflush(stdout); /* or each copy would write it once more */
	furca_runtime_prepare_openssl();
	bool ended = has_ended_child();
	if (ended || session.noted_children)
		call_of_calls("clone_begins", "furca: before a clone");
	session.noted_children = ended;
	if (role == FURCA_CLONE_COPY || role == FURCA_CLONE_SNAPSHOT)
		furca_parked_note();
}

/* In a copy of an attached process: what a session has from its start. */
static void settle(void)
{
	call_of_calls("settle", "furca: a copy of the attached process");
	furca_runtime_watch_forks(flush_streams);
}

/*
 * What follows a fork gives the import lock back, which what precedes one takes: Python 3.13 ends the process where it is not held. Hooks
 * that a program wants before a fork are for a process with its threads, and were not due: only here is it known that it was libc's.
 */
static void after_fork(void)
{
	PyObject *imp = PyImport_AddModule("_imp"); /* borrowed */
	PyObject *held = imp ? PyObject_CallMethod(imp, "lock_held", NULL) : NULL, *taken = NULL;

	/* Where a thread that is gone held it, it passes to this one. */
	if (held == Py_False)
		taken = PyObject_CallMethod(imp, "acquire_lock", NULL);
	Py_XDECREF(taken);
	Py_XDECREF(held);
	PyErr_Clear();
	PyOS_AfterFork_Child();
}

static void session_cloned(void *data, enum furca_clone_role role, const struct furca_clone_report *report)
{
	bool forked = report->way == FURCA_WAY_FORK;
	PyObject *state, *result;

	/* A snapshot runs nothing before it is promoted (parked.h), and each of its clones comes here by itself. */
	if (role == FURCA_CLONE_SNAPSHOT)
		return;
	furca_call_parked(report->parked);
	state = PyObject_CallMethod(session.calls, "before_forked", "O", forked ? Py_True : Py_False);
	if (forked)
		after_fork();
	furca_runtime_reseed_openssl();
	if (session.attached)
		settle();
	result = state ? PyObject_CallMethod(session.calls, "cloned", "iOO", (int)role, forked ? Py_True : Py_False,
					     state)
		       : NULL;
	if (!result)
		furca_call_told("furca: after a clone");
	Py_XDECREF(result);
	Py_XDECREF(state);
}

/* The session went on drawing random bytes from the same state. */
static void session_promoted(void *data)
{
	furca_runtime_reseed_openssl();
	call_of_calls("promoted", "furca: a snapshot takes its session's place");
}

/* In an attached process: its streams are the call's for as long as the call lasts. */
static void session_run(void *data, const struct furca_host_run *run, struct furca_host_done *ret)
{
	PyObject *lent = session.host.attached
				 ? PyObject_CallMethod(session.calls, "lend", "ii", run->output[0], run->output[1])
				 : NULL;

	furca_call_told("furca: the streams of a call");
	furca_call_run(data, run, ret);
	if (!lent)
		return;
	call_of_calls("take_back", "furca: the streams of a call");
	Py_DECREF(lent);
}

static const struct furca_host_lang session_lang = {
	.language = "python",
	.run = session_run,
	.inspect = session_inspect,
	.warm = furca_call_warm,
	.idle_begin = session_idle_begin,
	.idle_end = session_idle_end,
	.idle_signal = session_idle_signal,
	.clone_begin = session_clone_begin,
	.cloned = session_cloned,
	.promoted = session_promoted,
	.park = furca_parked_is,
};

static PyObject *method_image(PyObject *self, PyObject *args)
{
	return Py_BuildValue("(Il)", session.host.generation, (long)getpid());
}

static PyObject *method_is_self(PyObject *self, PyObject *args)
{
	return PyBool_FromLong(furca_host_is_self(&session.host));
}

static PyObject *method_pack(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	PyObject *value, *hook = NULL;

	if (!PyArg_ParseTuple(args, "O|O", &value, &hook) ||
	    furca_codec_pack(value, hook == Py_None ? NULL : hook, NULL, &out) < 0)
		return NULL;
	return PyBytes_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.len);
}

static PyObject *method_unpack(PyObject *self, PyObject *args)
{
	struct furca_view view;
	PyObject *hook = NULL;
	const char *data;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "y#|O", &data, &n, &hook))
		return NULL;
	view = (struct furca_view){(const uint8_t *)data, (const uint8_t *)data + n};
	if (furca_value_check(view, FURCA_MAX_DEPTH, FURCA_MAX_ITEMS) < 0) {
		PyErr_SetString(PyExc_ValueError, "this is not one packed value within bounds");
		return NULL;
	}
	return furca_codec_unpack(view, hook == Py_None ? NULL : hook, NULL);
}

static PyObject *method_serve(PyObject *self, PyObject *args)
{
	if (furca_session_serve() < 0)
		return NULL;
	Py_RETURN_NONE;
}

static int attach(PyObject *host_module, struct furca_fd control);

static PyObject *method_attach(PyObject *self, PyObject *args)
{
	int control;

	if (!PyArg_ParseTuple(args, "i", &control) || attach(self, furca_fd_own(control)) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *method_pump(PyObject *self, PyObject *args)
{
	int wake, timeout_ms, r;

	if (!PyArg_ParseTuple(args, "ii", &wake, &timeout_ms))
		return NULL;
	r = furca_host_pump(&session.host, wake, timeout_ms);
	if (PyErr_CheckSignals() < 0)
		return NULL;
	return PyLong_FromLong(r == -EINTR ? 0 : r);
}

static PyObject *method_detach(PyObject *self, PyObject *args)
{
	if (session.host.attached && furca_host_is_self(&session.host))
		furca_host_detach(&session.host);
	Py_RETURN_NONE;
}

static PyObject *method_attached(PyObject *self, PyObject *args)
{
	return PyBool_FromLong(session.host.attached);
}

static PyObject *method_control(PyObject *self, PyObject *args)
{
	return PyLong_FromLong(session.host.control.n);
}

static PyMethodDef methods[] = {
	{"attach", method_attach, METH_VARARGS, "Makes this process a session, with that end of a channel."},
	{"pump", method_pump, METH_VARARGS,
	 "In an attached process: serves one message, waiting so many milliseconds for it or for the other descriptor."},
	{"detach", method_detach, METH_NOARGS, "Lets the engine go."},
	{"attached", method_attached, METH_NOARGS, "Whether this process attached itself, and is no copy of it."},
	{"control", method_control, METH_NOARGS, "The descriptor on which the engine's messages come."},
	{"serve", method_serve, METH_NOARGS, "Serves the session on descriptors 3 and 4 until it is closed."},
	{"interrupted", furca_call_interrupted, METH_NOARGS, "Whether an interrupt has come for this call."},
	{"touched", furca_call_touched, METH_NOARGS, "Says that the call changes something."},
	{"remember", furca_call_remember, METH_VARARGS, "Keeps a file's text for tracebacks."},
	{"armed", furca_call_armed, METH_NOARGS,
	 "Whether the user's code runs (1) or is being prepared (2), so that an interrupt is for "
	 "it."},
	{"listen", furca_call_listen, METH_NOARGS, "Listens to interrupts before the handler that was set in Python."},
	{"image", method_image, METH_NOARGS, "What tells this process image from its clones and forks."},
	{"is_self", method_is_self, METH_NOARGS, "Whether this is the session's process, not one that it forked."},
	{"dotted", furca_dotted_init, METH_VARARGS, "Tells the class of dotted names what bounds it."},
	{"call", furca_lanes_call, METH_VARARGS, "Calls out and waits."},
	{"call_many", furca_lanes_call_many, METH_VARARGS, "Calls out many times at once and waits."},
	{"post", furca_lanes_post, METH_VARARGS, "Sends a message that has no answer."},
	{"look", furca_lanes_look, METH_NOARGS, "Takes what came while nothing was called."},
	{"encode", furca_lanes_encode, METH_VARARGS, "A call as bytes."},
	{"decode", furca_lanes_decode, METH_VARARGS, "An answer from bytes."},
	{"open_lane", furca_lanes_open, METH_NOARGS, "A new lane's descriptor."},
	{"send", furca_lanes_send, METH_VARARGS, "Sends bytes, and memory beside them."},
	{"receive", furca_lanes_receive, METH_VARARGS, "Bytes, and memory that came beside them."},
	{"pack", method_pack, METH_VARARGS, "A value as msgpack."},
	{"unpack", method_unpack, METH_VARARGS, "A value from msgpack."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_furca_host", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__furca_host(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (module && furca_dotted_add(module) < 0)
		Py_CLEAR(module);
	return module;
}

/*
 * The Python part: each source becomes a module with builtins of its own, so that a user who
 * replaces print or len breaks only his own code. They are no entries of sys.modules; each sees
 * those before it by name.
 */
static PyObject *load_modules(PyObject *host_module)
{
	PyObject *modules = PyDict_New(), *builtins = PyImport_ImportModule("builtins");
	PyObject *copy = builtins ? PyDict_Copy(PyModule_GetDict(builtins)) : NULL;

	if (!modules || !copy || PyDict_SetItemString(modules, "host", host_module) < 0)
		goto fail;
	for (size_t i = 0; i < FURCA_COUNT(furca_python_modules); i++) {
		const struct furca_python_module *source = &furca_python_modules[i];
		PyObject *module = PyModule_New(source->name), *dict, *code, *result = NULL;

		if (!module)
			goto fail;
		dict = PyModule_GetDict(module);
		code = Py_CompileString(source->text, "<furca>", Py_file_input);
		if (code && PyDict_Update(dict, modules) == 0 && PyDict_SetItemString(dict, "__builtins__", copy) == 0)
			result = PyEval_EvalCode(code, dict, dict);
		Py_XDECREF(code);
		Py_XDECREF(result);
		if (!result || PyDict_SetItemString(modules, source->name, module) < 0) {
			Py_DECREF(module);
			goto fail;
		}
		Py_DECREF(module);
	}
	Py_DECREF(builtins);
	Py_DECREF(copy);
	return modules;
fail:
	Py_XDECREF(builtins);
	Py_XDECREF(copy);
	Py_XDECREF(modules);
	return NULL;
}

static int load(PyObject *host_module)
{
	PyObject *modules = load_modules(host_module), *streams, *wire, *frames, *failures;
	struct furca_lanes_hooks hooks;

	if (!modules)
		return -1;
	session.calls = PyDict_GetItemString(modules, "calls");
	streams = PyDict_GetItemString(modules, "streams");
	wire = PyDict_GetItemString(modules, "capability");
	frames = PyDict_GetItemString(modules, "_frames");
	failures = PyDict_GetItemString(modules, "failures");
	Py_INCREF(session.calls);
	session.flush = PyObject_GetAttrString(streams, "flush");
	hooks = (struct furca_lanes_hooks){
		.pack = PyObject_GetAttrString(wire, "pack_hook"),
		.unpack = PyObject_GetAttrString(wire, "unpack_hook"),
		.pack_out = PyObject_GetAttrString(wire, "pack_out_hook"),
		.serve = PyObject_GetAttrString(wire, "serve"),
		.let_go = PyObject_GetAttrString(wire, "let_go"),
		.failed = PyObject_GetAttrString(failures, "failed"),
		.buffers = PyObject_GetAttrString(frames, "Buffers"),
		.store = PyObject_GetAttrString(frames, "store"),
		.read = PyObject_GetAttrString(frames, "read"),
	};
	furca_lanes_init(&session.host, &hooks);
	int r = furca_call_init(&session.host, modules);
	Py_DECREF(modules);
	if (!session.attached)
		furca_runtime_watch_forks(flush_streams);
	return r < 0 || PyErr_Occurred() ? -1 : 0;
}

/* The functions, with the interpreter's version; static. */
static const struct furca_host_lang *language(void)
{
	static struct furca_host_lang lang;
	static char version[32];

	lang = session_lang;
	(void)snprintf(version, sizeof(version), "%.*s", (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
	lang.version = version;
	return &lang;
}

static int attach(PyObject *host_module, struct furca_fd control)
{
	struct furca_err err = FURCA_ERR_INIT;

	session.attached = session.host.attached = true;
	if (!session.calls && load(host_module) < 0) {
		furca_fd_done(&control);
		session.host.gone = true;
		return -1;
	}
	if (furca_host_attach(&session.host, language(), NULL, control, &err) == 0)
		return 0;
	PyErr_SetString(PyExc_OSError, err.text);
	return -1;
}

int furca_session_serve(void)
{
	struct furca_err err = FURCA_ERR_INIT;
	PyObject *host_module;
	int r;

	if (furca_host_init(&session.host, language(), NULL, &err) < 0) {
		PyErr_SetString(PyExc_OSError, err.text);
		return -1;
	}
	host_module = PyInit__furca_host();
	r = host_module ? load(host_module) : -1;
	Py_XDECREF(host_module);
	if (r < 0)
		return -1;
	return furca_host_serve(&session.host);
}
