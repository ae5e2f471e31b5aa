/*
 * One call: from its text to how it ended. In C where nothing is out of order (quick.h), else with calls.py; interrupts are let
 * in while the user's code runs and at no other time.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "langs/host.h"

/* `modules` maps names to our modules in Python. `host` is borrowed for good. 0, or -1 with an exception. */
int furca_call_init(struct furca_host *host, PyObject *modules);

/* Runs the code; as the host's table says. */
void furca_call_run(void *data, const struct furca_host_run *run, struct furca_host_done *ret);

/* Walks the path of a call with code that does nothing: its pages are copied, and those of files mapped, before one comes. */
void furca_call_warm(void *data);

/* In a copy: so many threads are parked, to be watched from the first call on. */
void furca_call_parked(unsigned threads);

/* What calls.py asks for, as methods of the module _furca_host. */
PyObject *furca_call_listen(PyObject *self, PyObject *args); /* listen(): before the handler that was set in Python */
PyObject *furca_call_armed(PyObject *self, PyObject *args);  /* armed() */
PyObject *furca_call_interrupted(PyObject *self, PyObject *args); /* interrupted() */
PyObject *furca_call_touched(PyObject *self, PyObject *args);	  /* touched() */
PyObject *furca_call_remember(PyObject *self, PyObject *args);	  /* remember(filename, source) */

/* An exception in our own Python code: a bug, told on stderr and gone. */
void furca_call_told(const char *where);
