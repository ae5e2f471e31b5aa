/*
 * From a call's text to what is evaluated: statements, then the last expression apart, since its value is the call's. No text of
 * the user's is rewritten. Keeps the text of earlier calls for tracebacks and the inspect module (linecache), bounded.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "bridge/wire/value.h"

/* What a call's text has become. */
struct furca_steps {
	PyObject *list;	  /* code objects and callables, in order */
	PyObject *stored; /* a set of names that the statements bind for sure; NULL: none */
	bool changes;	  /* it may change something: false only where it provably does not */
};

/* `calls` is the namespace of calls.py. 0, or -1 with an exception. */
int furca_source_init(PyObject *calls);

/* Gives the content up; accepts an empty one. */
void furca_steps_done(struct furca_steps *steps);

/*
 * The steps of `source` (UTF-8) under that file name. 0, or -1 with the exception that is the call's answer. `intact`: nothing is
 * known to be wrong with the interpreter's own names and limits; else, and where it fails without, it is done in their shelter.
 */
int furca_source_steps(struct furca_view source, PyObject *filename, bool intact, struct furca_steps *ret);

/* Remembers the text of that file for tracebacks. 0, or -1 with an exception. */
int furca_source_remember(PyObject *filename, PyObject *source);

/* Puts remembered texts back where the user has cleared the cache. 0, or -1 with an exception. */
int furca_source_restore(void);
