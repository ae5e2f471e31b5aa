/*
 * The type of `capabilities` and what its attributes lead to (capability.py): a dotted name, an attribute of which is a longer one, and a call of
 * which leaves the session. Here is what both mostly come to. Where code is bounded in what it may call, where an event loop runs, where handles
 * are to be given back, and for names that are the class's, the Python part has the word: `_deeper`, `_invoke`, `_missing`.
 */
#pragma once

#include <Python.h>

/* Adds the type to the module, as Dotted(name, own=None, handle=None). 0, or -1 with an exception. */
int furca_dotted_add(PyObject *module);

/*
 * Method of the module: dotted(kind, limits, within, unused) once the Python part stands. `kind`: the class of what attributes give; `limits`: bounds of
 * code by its file; `within`: a function that gives the bound of the context or None; `unused`: handles to be given back.
 */
PyObject *furca_dotted_init(PyObject *self, PyObject *args);
