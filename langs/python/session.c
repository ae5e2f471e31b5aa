#include "langs/python/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bridge/wire/host.h"
#include "bridge/wire/limits.h"
#include "langs/host.h"
#include "langs/python/codec.h"
#include "langs/python/lanes.h"
#include "langs/python/modules.h"
#include "langs/python/parked.h"
#include "langs/python/runtime.h"

#include "base/banned.h"

static struct {
	struct furca_host host;
	PyObject *calls; /* the module of calls.py: what a call needs before, between and after the
			    user's code */
	PyObject *flush; /* streams.flush */
	PyThreadState *idle;  /* saved while waiting */
	unsigned parked;      /* threads parked in this copy, and not yet watched */
	bool beginning, late; /* the code is being prepared; an interrupt came meanwhile */
	bool armed;	      /* the user's code runs: an interrupt is for it */
	/* Of the call under way, and the last that was interrupted: furca_host_interrupt_value. */
	volatile sig_atomic_t call, interrupted;
	void (*trip)(int sig); /* Python's own handler */
} session;

/* An exception in our own Python code: a bug, told on stderr and gone. */
static void told(const char *where)
{
	PyObject *name;

	if (!PyErr_Occurred())
		return;
	name = PyUnicode_FromString(where);
	PyErr_WriteUnraisable(name);
	Py_XDECREF(name);
}

/* Takes the exception that is set, whole; new reference. */
static PyObject *take_exception(void)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	if (value && traceback)
		(void)PyException_SetTraceback(value, traceback);
	Py_XDECREF(type);
	Py_XDECREF(traceback);
	return value;
}

static PyObject *text_of(struct furca_view view)
{
	if (!view.at)
		Py_RETURN_NONE;
	return PyUnicode_DecodeUTF8((const char *)view.at, (Py_ssize_t)furca_view_size(view),
				    "surrogateescape");
}

static PyObject *value_of(struct furca_view view)
{
	if (!view.at)
		Py_RETURN_NONE;
	return furca_codec_unpack(view, NULL, NULL);
}

/* What a RUN has instead of code; arrays and handles may be among its arguments. */
static PyObject *function_of(const struct furca_host_run *run)
{
	struct furca_fd memory = {run->memory};

	if (!run->function.at)
		Py_RETURN_NONE;
	return furca_lanes_unpack(run->function, &memory, run->memory >= 0);
}

/* calls.begin(…): a list of code objects and callables to be evaluated, or NULL with the exception
 * that is the call's answer. */
static PyObject *begin(const struct furca_host_run *run)
{
	PyObject *code = text_of(run->code), *label = text_of(run->label), *cwd = text_of(run->cwd);
	PyObject *env = value_of(run->env), *function = function_of(run), *steps = NULL;

	if (code && label && cwd && env && function)
		steps = PyObject_CallMethod(session.calls, "begin", "OOOOOO", code, label, cwd, env,
					    run->read_only ? Py_True : Py_False, function);
	Py_XDECREF(code);
	Py_XDECREF(label);
	Py_XDECREF(cwd);
	Py_XDECREF(env);
	Py_XDECREF(function);
	return steps;
}

/* Evaluates one step at the top level: no frame of ours is below a code object's. */
static PyObject *step(PyObject *code, PyObject *namespace)
{
	return PyCallable_Check(code) ? PyObject_CallObject(code, NULL)
				      : PyEval_EvalCode(code, namespace, namespace);
}

/* Runs all steps. The value of the last one, or NULL with an exception. */
static PyObject *evaluate(PyObject *steps)
{
	PyObject *namespace = PyObject_CallMethod(session.calls, "namespace", NULL), *value = NULL;
	Py_ssize_t n = PyList_Size(steps);

	for (Py_ssize_t i = 0; namespace && i < n; i++) {
		Py_XDECREF(value);
		value = step(PyList_GetItem(steps, i), namespace);
		if (!value)
			break;
	}
	Py_XDECREF(namespace);
	if (!value && !PyErr_Occurred())
		Py_RETURN_NONE;
	return value;
}

static void put_bytes(PyObject *value, struct furca_buf *ret)
{
	char *data;
	Py_ssize_t n;

	if (PyBytes_Check(value) && PyBytes_AsStringAndSize(value, &data, &n) == 0)
		(void)furca_buf_append(ret, data, (size_t)n);
}

/* A value of ours, packed; what does not fit is left out. */
static void put_value(PyObject *value, size_t max, struct furca_buf *ret)
{
	if (value == Py_None)
		return;
	ret->max = max;
	if (furca_codec_pack(value, NULL, NULL, ret) < 0)
		PyErr_Clear();
}

/* The call's value, where it has a form; arrays and frames where they were asked for. */
static void put_result(const struct furca_host_run *run, PyObject *value, struct furca_host_done *ret)
{
	PyObject *frames = run->frames ? PyList_New(0) : NULL;
	int r = run->frames ? furca_lanes_pack(value, frames, &ret->result)
			    : furca_codec_pack(value, NULL, NULL, &ret->result);

	if (r == 0 && furca_lanes_store(frames, &ret->memory) < 0)
		furca_buf_clear(&ret->result);
	PyErr_Clear();
	Py_XDECREF(frames);
}

static const char *how_word(PyObject *how)
{
	static const char *const words[] = {"ok", "exception", "exit", "interrupted", NULL};

	for (int i = 0; words[i]; i++)
		if (PyUnicode_CompareWithASCIIString(how, words[i]) == 0)
			return words[i];
	return "exception";
}

/* calls.finish's tuple into *ret. */
static void report(PyObject *outcome, struct furca_host_done *ret)
{
	PyObject *how, *error, *suggestion, *raised, *text, *display, *changes;
	int exit_code, changed;
	Py_ssize_t cut;

	if (!outcome || !PyArg_ParseTuple(outcome, "OiOOOOnOOp", &how, &exit_code, &error,
					  &suggestion, &raised, &text, &cut, &display, &changes, &changed)) {
		told("furca: the end of a call");
		ret->how = "exception";
		ret->exit_code = 1;
		(void)furca_buf_append_text(
			&ret->error,
			"the session could not describe how the call ended; its stderr says why");
		return;
	}
	ret->how = how_word(how);
	ret->exit_code = exit_code;
	ret->changed = changed;
	put_bytes(error, &ret->error);
	put_bytes(suggestion, &ret->suggestion);
	put_value(raised, 128UL << 10, &ret->raised);
	put_bytes(text, &ret->result_text);
	ret->result_text_cut = (uint64_t)cut;
	put_value(display, FURCA_MAX_DISPLAY + (64UL << 10), &ret->display);
	put_value(changes, 1UL << 20, &ret->changes);
}

/* The user's code forked and this is the child: it ends as a script would, with its own streams
 * flushed. */
static void end_child(PyObject *error, struct furca_host_done *ret)
{
	PyObject *status =
		PyObject_CallMethod(session.calls, "end_child", "O", error ? error : Py_None);

	ret->exit_code = status ? (int)PyLong_AsLong(status) : 1;
	PyErr_Clear();
	Py_XDECREF(status);
}

/* The C side of an interrupt: one for a call that has ended, which some thread was late to take, goes no further. */
static void on_interrupt(int sig, siginfo_t *info, void *context)
{
	if (info->si_code == SI_QUEUE) {
		session.interrupted = info->si_value.sival_int;
		if (session.interrupted != session.call)
			return;
	}
	session.trip(sig);
}

/* Called after Python has put its handler in place: ours goes before it. */
static PyObject *method_listen(PyObject *self, PyObject *args)
{
	struct sigaction act;

	if (sigaction(FURCA_HOST_INTERRUPT, NULL, &act) == 0 && act.sa_handler != SIG_DFL && act.sa_handler != SIG_IGN &&
	    act.sa_sigaction != on_interrupt) {
		session.trip = act.sa_handler;
		act.sa_sigaction = on_interrupt;
		act.sa_flags |= SA_SIGINFO;
		(void)sigaction(FURCA_HOST_INTERRUPT, &act, NULL);
	}
	Py_RETURN_NONE;
}

/*
 * Runs the code with interrupts let in, from its compilation to the text of its value. Gives the
 * exception that ended it, or NULL; *ret_value and *ret_shown (text, cut, display) where it went
 * well.
 */
static PyObject *run_armed(const struct furca_host_run *run, PyObject **ret_value,
			   PyObject **ret_shown)
{
	PyObject *steps, *value = NULL, *shown = NULL, *error = NULL;

	session.late = false;
	(void)PyErr_CheckSignals(); /* interrupts of the last call, if any came late, find nobody
				       armed */
	PyErr_Clear();
	session.beginning = true;
	session.call = furca_host_interrupt_value(run->call);
	if (session.call && session.interrupted == session.call && session.trip)
		session.trip(FURCA_HOST_INTERRUPT); /* it came before its call */
	steps = begin(run);
	session.beginning = false;
	if (session.parked)
		furca_parked_watch();
	session.parked = 0;
	session.armed = true;
	if (session.late && steps)
		PyErr_SetNone(PyExc_KeyboardInterrupt);
	else if (steps)
		value = evaluate(steps);
	if (value && furca_host_is_self(&session.host))
		shown = PyObject_CallMethod(session.calls, "describe", "On", value,
					    (Py_ssize_t)run->max_text);
	if (PyErr_Occurred() == NULL && PyErr_CheckSignals() == 0 && value) {
		*ret_value = value;
		*ret_shown = shown;
		value = shown = NULL;
	} else {
		error = take_exception();
	}
	session.armed = false;
	Py_XDECREF(steps);
	Py_XDECREF(value);
	Py_XDECREF(shown);
	return error;
}

/* Descriptor 0 is never left free for the next file that is opened. */
static void keep_stdin(void)
{
	int fd;

	if (fcntl(STDIN_FILENO, F_GETFD) >= 0)
		return;
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd > STDIN_FILENO) {
		(void)dup3(fd, STDIN_FILENO, 0);
		(void)close(fd);
	} else if (fd == STDIN_FILENO) {
		(void)furca_fd_cloexec(fd, 0);
	}
}

static void session_run(void *data, const struct furca_host_run *run, struct furca_host_done *ret)
{
	PyObject *value = NULL, *shown = NULL, *error, *outcome;

	keep_stdin();
	error = run_armed(run, &value, &shown);
	if (!furca_host_is_self(&session.host)) {
		end_child(error, ret);
		return;
	}
	(void)fflush(stdout);
	(void)fflush(stderr);
	outcome = PyObject_CallMethod(session.calls, "finish", "OO", error ? error : Py_None,
				      shown ? shown : Py_None);
	report(outcome, ret);
	if (value) {
		ret->result.max = run->max_result;
		put_result(run, value, ret);
		if (value == Py_None)
			furca_buf_clear(&ret->result);
	}
	Py_XDECREF(outcome);
	Py_XDECREF(error);
	Py_XDECREF(shown);
	Py_XDECREF(value); /* may run finalizers of the user's: the last thing that the call does */
	PyErr_Clear();
}

static void session_inspect(void *data, struct furca_view detail, struct furca_view name,
			    struct furca_buf *out)
{
	PyObject *state = NULL, *detail_text = text_of(detail), *name_text = text_of(name);

	if (detail_text && name_text)
		state = PyObject_CallMethod(session.calls, "inspect", "OO", detail_text, name_text);
	if (!state || furca_codec_pack(state, NULL, NULL, out) < 0)
		told("furca: inspection");
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

/* Walks the path of a call with code that does nothing: its pages are copied, and those of files mapped, before one comes. */
static void session_warm(void *data)
{
	static const char code[] = "None";
	struct furca_host_run run = {
		.memory = -1,
		.code = {(const uint8_t *)code, (const uint8_t *)code + sizeof(code) - 1},
	};
	FURCA_AUTO_BUF struct furca_buf packed = FURCA_BUF_INIT;
	PyObject *steps = begin(&run), *value = steps ? evaluate(steps) : NULL, *outcome = NULL;

	if (value)
		outcome = PyObject_CallMethod(session.calls, "finish", "OO", Py_None, Py_None);
	if (outcome)
		(void)furca_codec_pack(outcome, NULL, NULL, &packed);
	PyErr_Clear();
	Py_XDECREF(outcome);
	Py_XDECREF(value);
	Py_XDECREF(steps);
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
		told("a signal handler between calls");
	session_idle_begin(data);
}

static void flush_streams(void)
{
	PyObject *result = session.flush ? PyObject_CallObject(session.flush, NULL) : NULL;

	if (!result)
		PyErr_Clear();
	Py_XDECREF(result);
}

static void session_clone_begin(void *data, enum furca_clone_role role)
{
	flush_streams();
	furca_runtime_prepare_openssl();
	if (role == FURCA_CLONE_COPY)
		furca_parked_note();
}

static void session_cloned(void *data, enum furca_clone_role role,
			   const struct furca_clone_report *report)
{
	bool forked = report->way == FURCA_WAY_FORK;
	PyObject *state = PyObject_CallMethod(session.calls, "before_forked", "O",
					      forked ? Py_True : Py_False),
		 *result;

	if (forked)
		PyOS_AfterFork_Child();
	furca_runtime_reseed_openssl();
	result = state ? PyObject_CallMethod(session.calls, "cloned", "iOO", (int)role,
					     forked ? Py_True : Py_False, state)
		       : NULL;
	if (!result)
		told("furca: after a clone");
	Py_XDECREF(result);
	Py_XDECREF(state);
	session.parked = report->parked;
}

static const struct furca_host_lang session_lang = {
	.language = "python",
	.run = session_run,
	.inspect = session_inspect,
	.warm = session_warm,
	.idle_begin = session_idle_begin,
	.idle_end = session_idle_end,
	.idle_signal = session_idle_signal,
	.clone_begin = session_clone_begin,
	.cloned = session_cloned,
	.park = furca_parked_is,
};

/* Asked by the interrupt's handler: one that comes while the code is being prepared is raised when
 * it begins. */
static PyObject *method_armed(PyObject *self, PyObject *args)
{
	bool own = furca_host_is_self(&session.host);

	session.late = session.late || (session.beginning && own);
	return PyLong_FromLong(!own ? 0 : session.beginning ? 2 : session.armed);
}

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

static PyMethodDef methods[] = {
	{"serve", method_serve, METH_NOARGS,
	 "Serves the session on descriptors 3 and 4 until it is closed."},
	{"armed", method_armed, METH_NOARGS,
	 "Whether the user's code runs (1) or is being prepared (2), so that an interrupt is for "
	 "it."},
	{"listen", method_listen, METH_NOARGS,
	 "Listens to interrupts before the handler that was set in Python."},
	{"image", method_image, METH_NOARGS,
	 "What tells this process image from its clones and forks."},
	{"is_self", method_is_self, METH_NOARGS,
	 "Whether this is the session's process, not one that it forked."},
	{"call", furca_lanes_call, METH_VARARGS, "Calls out and waits."},
	{"call_many", furca_lanes_call_many, METH_VARARGS,
	 "Calls out many times at once and waits."},
	{"post", furca_lanes_post, METH_VARARGS, "Sends a message that has no answer."},
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
	return PyModule_Create(&definition);
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
		if (code && PyDict_Update(dict, modules) == 0 &&
		    PyDict_SetItemString(dict, "__builtins__", copy) == 0)
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
	PyObject *modules = load_modules(host_module), *streams, *wire, *frames;
	struct furca_lanes_hooks hooks;

	if (!modules)
		return -1;
	session.calls = PyDict_GetItemString(modules, "calls");
	streams = PyDict_GetItemString(modules, "streams");
	wire = PyDict_GetItemString(modules, "capability");
	frames = PyDict_GetItemString(modules, "_frames");
	Py_INCREF(session.calls);
	session.flush = PyObject_GetAttrString(streams, "flush");
	hooks = (struct furca_lanes_hooks){
		.pack = PyObject_GetAttrString(wire, "pack_hook"),
		.unpack = PyObject_GetAttrString(wire, "unpack_hook"),
		.failed = PyObject_GetAttrString(wire, "failed"),
		.store = PyObject_GetAttrString(frames, "store"),
		.read = PyObject_GetAttrString(frames, "read"),
	};
	furca_lanes_init(&session.host, &hooks);
	Py_DECREF(modules);
	furca_runtime_watch_forks(flush_streams);
	return PyErr_Occurred() ? -1 : 0;
}

int furca_session_serve(void)
{
	static struct furca_host_lang lang;
	static char version[32];
	struct furca_err err = FURCA_ERR_INIT;
	PyObject *host_module;
	int r;

	lang = session_lang;
	(void)snprintf(version, sizeof(version), "%.*s", (int)strcspn(Py_GetVersion(), " "),
		       Py_GetVersion());
	lang.version = version;
	if (furca_host_init(&session.host, &lang, NULL, &err) < 0) {
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
