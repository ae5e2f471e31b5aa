/*
 * A Python session: the table of functions that the host loop calls (langs/host.h), and the module
 * `_furca_host` through which the part written in Python (the .py files here, compiled into the
 * program) reaches the C part. Limited API: the same code is linked into furca-python and, as an
 * extension module, loaded by the interpreter of an environment.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The module's constructor; for PyImport_AppendInittab, or found by the interpreter in the shared
 * object. */
PyMODINIT_FUNC PyInit__furca_host(void);

/*
 * Serves on the channels at descriptors 3 and 4 until CLOSE. Call with the interpreter running, on
 * the main thread, GIL held. 0 after CLOSE: the caller ends the interpreter. -1 with a Python
 * exception where the session cannot be set up. Does not return where the channel breaks.
 */
int furca_session_serve(void);
