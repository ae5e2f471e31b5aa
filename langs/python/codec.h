/*
 * Python values to msgpack and back, in the limited API. The mapping:
 *
 *   None bool int float str       nil, boolean, integer (beyond 64 bits: ext 1, two's complement, big endian), float64, str
 *   bytes bytearray memoryview    bin; comes back as bytes
 *   list tuple                    array; comes back as a list
 *   dict                          map; any plain key, an array as key comes back as a tuple
 *   what `hook` takes             ext: a handle (2), an array or frame (3), an aware datetime (-1)
 *
 * What has no form is a TypeError that says so: sets, text with lone surrogates, arbitrary objects.
 * Nesting is bounded.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "base/buf.h"
#include "bridge/wire/value.h"

#define FURCA_PYTHON_DEPTH 100 /* levels of lists and maps in a value; leaves room for the message around it */

/*
 * Appends `value`. `hook` (borrowed, may be NULL) is called as hook(value, frames) with what is not plain and gives (ext type, bytes).
 * `frames`: a list to which the hook adds the buffers of arrays, which then go beside the message; NULL, for the hook None: no arrays. 0, or
 * -1 with a Python exception set; `out` is as long as before then. GIL held.
 */
int furca_codec_pack(PyObject *value, PyObject *hook, PyObject *frames, struct furca_buf *out);

/* The value of checked bytes; ext types but FURCA_EXT_INTEGER go to `hook`(type, bytes, memory). `memory`: what came beside the message, or NULL,
 * for the hook None. New reference, or NULL with an exception. */
PyObject *furca_codec_unpack(struct furca_view view, PyObject *hook, PyObject *memory);

/* Text as a str, with bytes that are no UTF-8 kept as surrogates; None where there is none (at is NULL). New reference, or NULL with an exception. */
PyObject *furca_codec_text(struct furca_view view);
