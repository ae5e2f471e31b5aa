/*
 * The Python module of the mutation matrix: copies of the interpreter that imports it, as furca makes them. The interpreter's
 * parent must reap (clones are its children).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "snapshot/clone.h"
#include "snapshot/init.h"

#include "base/banned.h"

#define CELL (FURCA_BARRIER_DISK | FURCA_BARRIER_PROCESSES | FURCA_BARRIER_IPC | FURCA_BARRIER_NETWORK)

static struct furca_proc init_proc;
static struct furca_fd init_control = {-1};
static struct furca_fd cell_fds[2] = {{-1}, {-1}};

static PyObject *fail(const struct furca_err *err)
{
	char text[1024];

	PyErr_SetString(PyExc_OSError, furca_err_describe(err, text, sizeof(text)));
	return NULL;
}

static int ask_for_cell(struct furca_err *err)
{
	FURCA_AUTO_BUF struct furca_buf buf = FURCA_BUF_INIT;
	struct furca_frame_view frame;
	struct furca_fd fds[FURCA_FDS_MAX];
	struct furca_view error;
	size_t n_fds = 0;
	msgpack_packer packer;
	size_t offset = furca_frame_begin(&buf, &packer, FURCA_INIT_CELL, 1, 2);

	furca_pack_text(&packer, "namespaces");
	(void)msgpack_pack_uint32(&packer, CELL);
	furca_pack_text(&packer, "upper_bytes");
	(void)msgpack_pack_uint32(&packer, 256U << 20);
	int r = furca_frame_end(&buf, offset, 0);
	if (r == 0)
		r = furca_frame_send(init_control.n, buf.data, buf.len, NULL, 0);
	/* Ends of others may be told first. */
	while (r >= 0 &&
	       (r = furca_frame_recv(init_control.n, &buf, FURCA_MAX_MESSAGE, &frame, fds, &n_fds, err)) == 1 &&
	       frame.number != FURCA_INIT_CELL_READY)
		furca_fds_done(fds, n_fds);
	if (r <= 0)
		return furca_fail(err, FURCA_E_SYSTEM, r < 0 ? -r : EPIPE, "the init does not answer");
	if (furca_map_text(frame.body, "error", &error) || n_fds != 2) {
		r = furca_fail(err, FURCA_E_ISOLATION, 0, "no cell: %.*s", (int)furca_view_size(error),
			       (const char *)error.at);
		furca_fds_done(fds, n_fds);
		return r;
	}
	cell_fds[0] = fds[0];
	cell_fds[1] = fds[1];
	return 0;
}

static PyObject *lab_start(PyObject *self, PyObject *unused)
{
	struct furca_err err = FURCA_ERR_INIT;

	if (furca_clone_init(&err) < 0 || furca_init_start(&init_proc, &init_control, &err) < 0 ||
	    furca_fd_nonblock(init_control.n, 0) < 0)
		return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *outcome(const struct furca_clone_report *report, int fd, int pidfd)
{
	PyObject *held = PyDict_New();

	for (int bit = 0; held && bit < FURCA_BARRIERS; bit++) {
		PyObject *word = PyUnicode_FromString((report->held & (1U << bit)) ? report->mechanism[bit] : "none");

		if (!word || PyDict_SetItemString(held, furca_barrier_word(bit), word) < 0)
			Py_CLEAR(held);
		Py_XDECREF(word);
	}
	return held ? Py_BuildValue("(iiiN)", (int)report->pid, fd, pidfd, held) : NULL;
}

/* copy(cell) -> (pid, descriptor, pidfd, barriers). In the copy pid is 0 and the descriptor writes to the original's. */
static PyObject *lab_copy(PyObject *self, PyObject *args)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_clone_report report;
	struct furca_fd pidfd = FURCA_FD_NONE;
	int cell, out[2], drop[3];

	if (!PyArg_ParseTuple(args, "p", &cell))
		return NULL;
	if (cell && ask_for_cell(&err) < 0)
		return fail(&err);
	if (pipe2(out, O_CLOEXEC) < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	drop[0] = init_control.n;
	drop[1] = cell_fds[1].n;
	drop[2] = cell_fds[0].n;
	struct furca_clone_args how = {.role = FURCA_CLONE_COPY,
				       .barriers = FURCA_BARRIERS_ALL,
				       .cell = cell_fds[0].n,
				       .required = FURCA_BARRIERS_ALL & ~(unsigned)FURCA_BARRIER_THREADS,
				       .keep = &out[1],
				       .n_keep = 1,
				       .drop = drop,
				       .n_drop = cell ? 3 : 1};
	int r = furca_clone(&how, &report, &pidfd, &err);
	if (r < 0)
		return fail(&err);
	if (r == 0) {
		report.pid = 0;
		return outcome(&report, out[1], -1);
	}
	(void)close(out[1]);
	return outcome(&report, out[0], pidfd.n);
}

/* end(): kills the last copy's cell. */
static PyObject *lab_end(PyObject *self, PyObject *unused)
{
	struct furca_proc proc = {1, cell_fds[0]};

	if (cell_fds[0].n >= 0)
		(void)furca_proc_signal(&proc, SIGKILL);
	furca_fds_done(cell_fds, 2);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"start", lab_start, METH_NOARGS, "Starts an init process and prepares for clones."},
	{"copy", lab_copy, METH_VARARGS, "Makes a read-only copy of this process; returns in both."},
	{"end", lab_end, METH_NOARGS, "Kills the last copy's cell."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "lab", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_lab(void);
PyMODINIT_FUNC PyInit_lab(void)
{
	return PyModule_Create(&module);
}
