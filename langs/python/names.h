/*
 * Names of the session's namespace: what stood there before a call, what the call did to them, and which calls they come from.
 * A call that touches no name costs one walk over the dict and no objects.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

#define FURCA_NAMES_MAX 1000 /* listed in each group of a report; its count says how many there are */

/*
 * The namespace (a dict), the names that are ours while they hold that value (a dict), and a dict where each name's origin is
 * kept: (label of the call that first bound it, label of the one that last did). Borrowed, and held for good.
 */
void furca_names_init(PyObject *space, PyObject *given, PyObject *origins);

/* Notes what is there now; GIL held. 0, or -1 with an exception. */
int furca_names_note(void);

/*
 * Appends what happened since furca_names_note as a packed map {added, rebound, deleted, count}, and keeps the origins. `stored`
 * is a set of names that the code binds for sure, even to the object that was there before; NULL: none. `label` is the call's,
 * text. 0, or -1 with an exception.
 */
int furca_names_report(PyObject *stored, struct furca_view label, struct furca_buf *ret);

/* A label as Python sees it: an integer where it is one, else text; None where there is none. New reference or NULL. */
PyObject *furca_names_label(struct furca_view label);
