/*
 * furca-python: an interpreter that serves a session on descriptors 3 and 4 (bridge/wire/host.h).
 * Started by the engine's init process, never by hand.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "langs/python/runtime.h"
#include "langs/python/session.h"

#include "base/banned.h"

static int failed(PyStatus status)
{
	(void)fprintf(stderr, "furca-python: %s\n", status.err_msg ? status.err_msg : "the interpreter cannot start");
	return 1;
}

/* As the interpreter that furca was built for would start, but for the arguments: sys.executable
 * and all paths are its own. */
static PyStatus start(void)
{
	PyConfig config;
	PyStatus status;
	char *argv[] = {(char[]){""}};

	PyConfig_InitPythonConfig(&config);
	config.parse_argv = 0;
	status = PyConfig_SetBytesString(&config, &config.program_name, FURCA_PYTHON);
	if (!PyStatus_Exception(status))
		status = PyConfig_SetBytesArgv(&config, 1, argv);
	if (!PyStatus_Exception(status))
		status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	return status;
}

int main(int argc, char **argv)
{
	PyPreConfig early;
	PyStatus status;

	if (argc > 1 || isatty(3)) {
		(void)fprintf(stderr, "usage: furca-python, started by `furca serve` with its "
				      "channels at descriptors 3 and 4\n");
		return 2;
	}
	furca_fault_init();
	furca_runtime_arenas();
	PyPreConfig_InitPythonConfig(&early);
	early.parse_argv = 0;
	status = Py_PreInitialize(&early);
	if (!PyStatus_Exception(status))
		status = start();
	if (PyStatus_Exception(status))
		return failed(status);
	if (furca_session_serve() < 0) {
		PyErr_Print();
		return 1;
	}
	return Py_FinalizeEx() < 0 ? 120 : 0;
}
