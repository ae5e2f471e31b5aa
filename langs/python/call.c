#include "langs/python/call.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "bridge/wire/host.h"
#include "bridge/wire/limits.h"
#include "langs/python/codec.h"
#include "langs/python/lanes.h"
#include "langs/python/names.h"
#include "langs/python/parked.h"
#include "langs/python/quick.h"
#include "langs/python/source.h"

#include "base/banned.h"

#define TEXT_ROOM (1U << 20) /* asked for less, a value's text may have to be cut */

static struct {
	struct furca_host *host;
	PyObject *calls;      /* the module of calls.py */
	PyObject *space;      /* the user's namespace */
	unsigned parked;      /* threads parked in this copy, and not yet watched */
	bool beginning, late; /* the code is being prepared; an interrupt came meanwhile */
	bool armed;	      /* the user's code runs: an interrupt is for it */
	bool interrupted;     /* one has come */
	bool touched;	      /* our own code has changed something on behalf of the user's */
	bool special;	      /* the long way was taken at the beginning */
	bool unread;	      /* the arrays among a function's arguments could not be read */
	/* Of the call under way, and the last that was interrupted: furca_host_interrupt_value. */
	volatile sig_atomic_t number, last;
	void (*trip)(int sig); /* Python's own handler */
} call;

void furca_call_told(const char *where)
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
	PyObject *function;

	if (!run->function.at)
		Py_RETURN_NONE;
	function = furca_lanes_unpack(run->function, &memory, run->memory >= 0);
	call.unread = !function && run->memory >= 0;
	return function;
}

/* calls.begin(…): the steps of a stored function or None. NULL with an exception. */
static PyObject *begin_special(const struct furca_host_run *run)
{
	PyObject *cwd = furca_codec_text(run->cwd), *env = value_of(run->env), *function = function_of(run);
	PyObject *list = NULL;

	if (cwd && env && function)
		list = PyObject_CallMethod(call.calls, "begin", "OOO", cwd, env, function);
	Py_XDECREF(cwd);
	Py_XDECREF(env);
	Py_XDECREF(function);
	return list;
}

static int compile_code(const struct furca_host_run *run, struct furca_steps *ret)
{
	bool labelled = run->label.at && furca_view_size(run->label);
	PyObject *label = labelled ? furca_codec_text(run->label) : PyUnicode_FromString("?");
	PyObject *filename = label ? PyUnicode_FromFormat("<call %U>", label) : NULL;
	int r = filename ? furca_source_steps(run->code, filename, furca_quick_intact(), ret) : -1;

	Py_XDECREF(label);
	Py_XDECREF(filename);
	return r;
}

/* Everything before the user's code. 0, or -1 with the exception that is the call's answer. */
static int begin(const struct furca_host_run *run, struct furca_steps *ret)
{
	bool asked = run->cwd.at || run->env.at || run->function.at;

	*ret = (struct furca_steps){0};
	call.touched = false;
	call.unread = false;
	call.special = asked || !furca_quick_ready();
	if (furca_source_restore() < 0)
		PyErr_Clear();
	if (call.special) {
		PyObject *list = begin_special(run);

		if (!list)
			return -1;
		if (list != Py_None) {
			*ret = (struct furca_steps){.list = list, .changes = true};
			return furca_names_note();
		}
		Py_DECREF(list);
	}
	int r = compile_code(run, ret);

	ret->changes |= asked;
	return r < 0 ? r : furca_names_note();
}

/* Evaluates one step at the top level: no frame of ours is below a code object's. */
static PyObject *step(PyObject *code)
{
	return PyCallable_Check(code) ? PyObject_CallObject(code, NULL) : PyEval_EvalCode(code, call.space, call.space);
}

/* Runs all steps. The value of the last one, or NULL with an exception. */
static PyObject *evaluate(PyObject *steps)
{
	PyObject *value = NULL;
	Py_ssize_t n = PyList_Size(steps);

	for (Py_ssize_t i = 0; i < n; i++) {
		Py_XDECREF(value);
		value = step(PyList_GetItem(steps, i));
		if (!value)
			return NULL;
	}
	if (!value)
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

static const char *how_word(PyObject *how)
{
	static const char *const words[] = {"ok", "exception", "exit", "interrupted", FURCA_HOST_HOW_REFUSED, NULL};

	for (int i = 0; words[i]; i++)
		if (PyUnicode_CompareWithASCIIString(how, words[i]) == 0)
			return words[i];
	return "exception";
}

/* calls.finish's tuple into *ret. */
static void report(PyObject *outcome, struct furca_host_done *ret)
{
	PyObject *how, *error, *suggestion, *raised, *text, *display;
	int exit_code;
	Py_ssize_t cut;

	if (!outcome || !PyArg_ParseTuple(outcome, "OiOOOOnO", &how, &exit_code, &error, &suggestion, &raised, &text,
					  &cut, &display)) {
		furca_call_told("furca: the end of a call");
		ret->how = "exception";
		ret->exit_code = 1;
		(void)furca_buf_append_text(&ret->error,
					    "the session could not describe how the call ended; its stderr says why");
		return;
	}
	ret->how = how_word(how);
	ret->exit_code = exit_code;
	put_bytes(error, &ret->error);
	put_bytes(suggestion, &ret->suggestion);
	put_value(raised, 128UL << 10, &ret->raised);
	put_bytes(text, &ret->result_text);
	ret->result_text_cut = (uint64_t)cut;
	put_value(display, FURCA_MAX_DISPLAY + (64UL << 10), &ret->display);
}

/* How a call ended, as far as its code is concerned. */
struct outcome {
	PyObject *value; /* NULL: `error` is the exception */
	PyObject *shown; /* (text, cut) of the value where calls.py made it */
	PyObject *error;
};

/* The user's code forked and this is the child: it ends as a script would, with its own streams
 * flushed. */
static void end_child(PyObject *error, struct furca_host_done *ret)
{
	PyObject *status = PyObject_CallMethod(call.calls, "end_child", "O", error ? error : Py_None);

	ret->exit_code = status ? (int)PyLong_AsLong(status) : 1;
	PyErr_Clear();
	Py_XDECREF(status);
}

/* The C side of an interrupt: one for a call that has ended, which some thread was late to take, goes no further. */
static void on_interrupt(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code == SI_QUEUE) {
		call.last = info->si_value.sival_int;
		if (call.last != call.number)
			return;
	}
	call.trip(sig);
}

PyObject *furca_call_listen(PyObject *self, PyObject *args)
{
	struct sigaction act;

	(void)self;
	(void)args;
	if (sigaction(FURCA_HOST_INTERRUPT, NULL, &act) == 0 && act.sa_handler != SIG_DFL &&
	    act.sa_handler != SIG_IGN && act.sa_sigaction != on_interrupt) {
		call.trip = act.sa_handler;
		act.sa_sigaction = on_interrupt;
		act.sa_flags |= SA_SIGINFO;
		(void)sigaction(FURCA_HOST_INTERRUPT, &act, NULL);
	}
	Py_RETURN_NONE;
}

/* Text of the value and figures: still the user's time, since it may run the user's code. */
static PyObject *describe(PyObject *value, size_t max_text, struct furca_buf *ret_text)
{
	if (max_text >= TEXT_ROOM && furca_quick_describe(value, ret_text))
		return NULL;
	return PyObject_CallMethod(call.calls, "describe", "On", value, (Py_ssize_t)max_text);
}

/* Runs the code with interrupts let in, from its compilation to the text of its value. */
static void run_armed(const struct furca_host_run *run, struct furca_steps *steps, struct outcome *ret,
		      struct furca_buf *ret_text)
{
	PyObject *value = NULL, *shown = NULL;
	int r;

	call.late = false;
	(void)PyErr_CheckSignals(); /* interrupts of the last call, if any came late, find nobody
				       armed */
	PyErr_Clear();
	call.interrupted = false;
	call.beginning = true;
	call.number = furca_host_interrupt_value(run->call);
	if (call.number && call.last == call.number && call.trip)
		call.trip(FURCA_HOST_INTERRUPT); /* it came before its call */
	r = begin(run, steps);
	call.beginning = false;
	if (call.parked)
		furca_parked_watch();
	call.parked = 0;
	call.armed = true;
	if (call.late && r == 0)
		PyErr_SetNone(PyExc_KeyboardInterrupt);
	else if (r == 0)
		value = evaluate(steps->list);
	if (value && furca_host_is_self(call.host))
		shown = describe(value, run->max_text, ret_text);
	if (PyErr_Occurred() == NULL && PyErr_CheckSignals() == 0 && value) {
		ret->value = value;
		ret->shown = shown;
		value = shown = NULL;
	} else {
		ret->error = take_exception();
		furca_buf_clear(ret_text);
	}
	call.armed = false;
	Py_XDECREF(value);
	Py_XDECREF(shown);
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

/* The end of the call, but for the value itself. */
static void finish(const struct furca_host_run *run, const struct furca_steps *steps, const struct outcome *outcome,
		   struct furca_host_done *ret)
{
	(void)fflush(stdout);
	(void)fflush(stderr);
	if (outcome->error || outcome->shown || call.special || !furca_quick_end()) {
		PyObject *shown = outcome->shown ? outcome->shown : Py_None;
		PyObject *end = PyObject_CallMethod(call.calls, "finish", "OO",
						    outcome->error ? outcome->error : Py_None, shown);

		report(end, ret);
		Py_XDECREF(end);
	}
	ret->changed = steps->changes || call.touched;
	ret->changes.max = 1UL << 20;
	if (furca_names_report(steps->stored, run->label, &ret->changes) < 0)
		furca_call_told("furca: the names that a call changed");
}

/* A value for who asked for arrays and frames as well, in a form that it can read; or why it has none. */
static void put_frames(const struct furca_host_run *run, PyObject *value, struct furca_host_done *ret)
{
	PyObject *reader = furca_codec_text(run->frames), *frames = reader ? furca_lanes_buffers(reader) : NULL;
	PyObject *error, *why;

	if (frames && furca_lanes_pack(value, frames, &ret->result) == 0 &&
	    furca_lanes_store(frames, &ret->memory) == 0) {
		Py_DECREF(frames);
		Py_DECREF(reader);
		return;
	}
	furca_buf_clear(&ret->result);
	error = take_exception();
	why = error ? PyObject_CallMethod(call.calls, "why", "O", error) : NULL;
	if (why)
		put_bytes(why, &ret->unsent);
	Py_XDECREF(why);
	Py_XDECREF(error);
	Py_XDECREF(frames);
	Py_XDECREF(reader);
}

/* The call's value, where it has a form. */
static void put_result(const struct furca_host_run *run, PyObject *value, struct furca_host_done *ret)
{
	if (!value || value == Py_None)
		return;
	ret->result.max = run->max_result;
	if (run->frames.at)
		put_frames(run, value, ret);
	else
		(void)furca_codec_pack(value, NULL, NULL, &ret->result);
	PyErr_Clear();
}

/* A function whose arguments could not be read has not begun: its caller may send them in another form. */
static void put_unread(PyObject *error, struct furca_host_done *ret)
{
	PyObject *raised = PyObject_CallMethod(call.calls, "unread", "O", error);

	if (raised)
		put_value(raised, 128UL << 10, &ret->raised);
	PyErr_Clear();
	Py_XDECREF(raised);
}

void furca_call_run(void *data, const struct furca_host_run *run, struct furca_host_done *ret)
{
	struct furca_steps steps = {0};
	struct outcome outcome = {0};

	(void)data;
	if (!call.host->attached)
		keep_stdin();
	run_armed(run, &steps, &outcome, &ret->result_text);
	if (!furca_host_is_self(call.host)) {
		end_child(outcome.error, ret);
		return;
	}
	finish(run, &steps, &outcome, ret);
	put_result(run, outcome.value, ret);
	if (call.unread && outcome.error)
		put_unread(outcome.error, ret);
	furca_steps_done(&steps);
	Py_XDECREF(outcome.error);
	Py_XDECREF(outcome.shown);
	Py_XDECREF(outcome.value); /* may run finalizers of the user's: the last thing that the call does */
	PyErr_Clear();
}

void furca_call_warm(void *data)
{
	static const char code[] = "None";
	struct furca_host_run run = {
		.memory = -1,
		.code = {(const uint8_t *)code, (const uint8_t *)code + sizeof(code) - 1},
	};
	struct furca_host_done done = {.memory = FURCA_FD_NONE};
	struct furca_steps steps = {0};
	struct outcome outcome = {0};

	(void)data;
	for (int special = 1; special >= 0; special--) {
		PyObject *list = special ? begin_special(&run) : NULL;

		Py_XDECREF(list);
		if (begin(&run, &steps) == 0)
			outcome.value = evaluate(steps.list);
		call.special |= special != 0;
		finish(&run, &steps, &outcome, &done);
		PyErr_Clear();
		furca_steps_done(&steps);
		Py_XDECREF(outcome.value);
		outcome.value = NULL;
	}
	furca_buf_done(&done.error);
	furca_buf_done(&done.suggestion);
	furca_buf_done(&done.raised);
	furca_buf_done(&done.result_text);
	furca_buf_done(&done.display);
	furca_buf_done(&done.changes);
}

void furca_call_parked(unsigned threads)
{
	call.parked = threads;
}

PyObject *furca_call_armed(PyObject *self, PyObject *args)
{
	bool own = furca_host_is_self(call.host);

	(void)self;
	(void)args;
	call.late = call.late || (call.beginning && own);
	call.interrupted = call.interrupted || (own && (call.beginning || call.armed));
	return PyLong_FromLong(!own ? 0 : call.beginning ? 2 : call.armed);
}

PyObject *furca_call_interrupted(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(call.interrupted);
}

PyObject *furca_call_touched(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	call.touched = true;
	Py_RETURN_NONE;
}

PyObject *furca_call_remember(PyObject *self, PyObject *args)
{
	PyObject *filename, *text;

	(void)self;
	if (!PyArg_ParseTuple(args, "UU", &filename, &text) || furca_source_remember(filename, text) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static int init_names(PyObject *calls)
{
	PyObject *given = PyObject_GetAttrString(calls, "_given"), *origins = PyObject_GetAttrString(calls, "_origins");
	int r = given && origins ? 0 : -1;

	if (r == 0)
		furca_names_init(call.space, given, origins);
	Py_XDECREF(given);
	Py_XDECREF(origins);
	return r;
}

int furca_call_init(struct furca_host *host, PyObject *modules)
{
	call.host = host;
	call.calls = PyDict_GetItemString(modules, "calls");
	Py_INCREF(call.calls);
	call.space = PyModule_GetDict(PyImport_AddModule("__main__"));
	if (init_names(call.calls) < 0 || furca_source_init(PyModule_GetDict(call.calls)) < 0)
		return -1;
	return furca_quick_init(modules);
}
