/*
 * The short way through a call: what calls.py does before and after the user's code, where nothing is out of order and nothing
 * special is asked for. Each function looks whether that is so, and says no where it is not; then the long way is taken.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "base/buf.h"

/* `modules` maps names to our modules in Python (session.c). 0, or -1 with an exception. */
int furca_quick_init(PyObject *modules);

/* Before the code: whether all stands as calls.py's _prepare would leave it. Begins the call's count of output and displays. */
bool furca_quick_ready(void);

/* Whether the interpreter's limits and hooks are as they came, as far as compiling is concerned. */
bool furca_quick_intact(void);

/* The value's text, where it is a plain one that shows as nothing but text. False: the long way. */
bool furca_quick_describe(PyObject *value, struct furca_buf *ret);

/* After code that ended well: flushes. False: the long way. */
bool furca_quick_end(void);
