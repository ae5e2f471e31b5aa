#include "langs/python/names.h"

#include <msgpack.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/wire/pack.h"
#include "langs/python/codec.h"

#include "base/banned.h"

#define KEEP 65536 /* entries: a larger table is given back after the call */

struct entry {
	PyObject *key, *value; /* the key is held; the value's identity alone counts before the call */
};

struct table {
	struct entry *at;
	size_t n, room;
};

static struct {
	PyObject *space, *given, *origins;
	struct table before;
} names;

void furca_names_init(PyObject *space, PyObject *given, PyObject *origins)
{
	Py_INCREF(space);
	Py_INCREF(given);
	Py_INCREF(origins);
	names.space = space;
	names.given = given;
	names.origins = origins;
}

static void table_clear(struct table *table, bool values)
{
	size_t n = table->n;

	table->n = 0; /* what goes may run code that comes back here */
	for (size_t i = 0; i < n; i++) {
		Py_DECREF(table->at[i].key);
		if (values)
			Py_DECREF(table->at[i].value);
	}
	if (table->room > KEEP) {
		free(table->at);
		*table = (struct table){0};
	}
}

/* Runs no code of anybody's. */
static int table_fill(struct table *table, PyObject *dict, bool values)
{
	size_t size = (size_t)PyDict_Size(dict);
	PyObject *key, *value;
	Py_ssize_t at = 0;

	if (size > table->room) {
		size_t room = size + size / 2 + 64;
		struct entry *more = realloc(table->at, room * sizeof(*more));

		if (!more) {
			(void)PyErr_NoMemory();
			return -1;
		}
		table->at = more;
		table->room = room;
	}
	while (table->n < table->room && PyDict_Next(dict, &at, &key, &value)) {
		Py_INCREF(key);
		if (values)
			Py_INCREF(value);
		table->at[table->n++] = (struct entry){key, value};
	}
	return 0;
}

int furca_names_note(void)
{
	table_clear(&names.before, false);
	return table_fill(&names.before, names.space, false);
}

static bool untouched(void)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;
	size_t i = 0;

	while (PyDict_Next(names.space, &at, &key, &value)) {
		if (i == names.before.n || names.before.at[i].key != key || names.before.at[i].value != value)
			return false;
		i++;
	}
	return i == names.before.n;
}

PyObject *furca_names_label(struct furca_view label)
{
	unsigned long long number = 0;
	const uint8_t *at = label.at;

	if (!at || at == label.end)
		Py_RETURN_NONE;
	for (; at < label.end && at - label.at < 18 && *at >= '0' && *at <= '9'; at++)
		number = number * 10 + (unsigned)(*at - '0');
	if (at == label.end)
		return PyLong_FromUnsignedLongLong(number);
	return furca_codec_text(label);
}

/* What a call did, on the way to its report. */
struct report {
	PyObject *added, *rebound, *deleted; /* lists */
	PyObject *label, *stored;
};

/* Names such as __name__, which are the language's. */
static bool dunder(PyObject *name)
{
	Py_ssize_t n = PyUnicode_GetLength(name);

	return n >= 2 && PyUnicode_ReadChar(name, 0) == '_' && PyUnicode_ReadChar(name, 1) == '_' &&
	       PyUnicode_ReadChar(name, n - 1) == '_' && PyUnicode_ReadChar(name, n - 2) == '_';
}

static int set_origin(PyObject *name, PyObject *first, PyObject *last)
{
	PyObject *pair = PyTuple_Pack(2, first, last);
	int r = pair ? PyDict_SetItem(names.origins, name, pair) : -1;

	Py_XDECREF(pair);
	return r;
}

static int add_bound(struct report *r, PyObject *name, PyObject *value, bool new)
{
	PyObject *origin;

	if (!PyUnicode_Check(name) || dunder(name) || PyDict_GetItemWithError(names.given, name) == value)
		return PyErr_Occurred() ? -1 : 0;
	if (PyList_Append(new ? r->added : r->rebound, name) < 0)
		return -1;
	origin = new ? NULL : PyDict_GetItemWithError(names.origins, name);
	return set_origin(name, origin ? PyTuple_GetItem(origin, 0) : new ? r->label : Py_None, r->label);
}

static int add_deleted(struct report *r, PyObject *name)
{
	if (!PyUnicode_Check(name) || dunder(name) || PyDict_GetItemWithError(names.given, name))
		return PyErr_Occurred() ? -1 : 0;
	if (PyDict_GetItemWithError(names.origins, name) && PyDict_DelItem(names.origins, name) < 0)
		return -1;
	return PyList_Append(r->deleted, name);
}

static int is_stored(const struct report *r, PyObject *name)
{
	return r->stored && PyUnicode_Check(name) ? PySet_Contains(r->stored, name) : 0;
}

/* A name whose place in the dict has not changed. */
static int compare(struct report *r, const struct entry *before, const struct entry *now)
{
	int bound = before->value != now->value ? 1 : is_stored(r, now->key);

	return bound > 0 ? add_bound(r, now->key, now->value, false) : bound;
}

/* Entries from `at` on, where the order of the dict has changed: by name. */
static int compare_rest(struct report *r, const struct table *now, size_t at)
{
	PyObject *index = PyDict_New();
	int failed = index ? 0 : -1;

	for (size_t i = at; i < names.before.n && !failed; i++) {
		PyObject *number = PyLong_FromSize_t(i);

		failed = number ? PyDict_SetItem(index, names.before.at[i].key, number) : -1;
		Py_XDECREF(number);
	}
	for (size_t i = at; i < now->n && !failed; i++) {
		PyObject *number = PyDict_GetItemWithError(index, now->at[i].key);

		if (number)
			failed = compare(r, &names.before.at[PyLong_AsSize_t(number)], &now->at[i]);
		else
			failed = PyErr_Occurred() ? -1 : add_bound(r, now->at[i].key, now->at[i].value, true);
	}
	for (size_t i = at; i < names.before.n && !failed; i++) {
		PyObject *key = names.before.at[i].key;

		if (!PyDict_GetItemWithError(names.space, key))
			failed = PyErr_Occurred() ? -1 : add_deleted(r, key);
	}
	Py_XDECREF(index);
	return failed;
}

static int collect(struct report *r, const struct table *now)
{
	size_t i = 0;
	int failed = 0;

	for (; !failed && i < now->n && i < names.before.n && now->at[i].key == names.before.at[i].key; i++)
		failed = compare(r, &names.before.at[i], &now->at[i]);
	if (failed || i < names.before.n)
		return failed ? failed : compare_rest(r, now, i);
	for (; !failed && i < now->n; i++)
		failed = add_bound(r, now->at[i].key, now->at[i].value, true);
	return failed;
}

static int pack_group(msgpack_packer *pk, const char *key, PyObject *group)
{
	Py_ssize_t n = PyList_Size(group), shown = n < FURCA_NAMES_MAX ? n : FURCA_NAMES_MAX;

	furca_pack_text(pk, key);
	msgpack_pack_array(pk, (size_t)shown);
	for (Py_ssize_t i = 0; i < shown; i++) {
		PyObject *bytes = PyUnicode_AsEncodedString(PyList_GetItem(group, i), "utf-8", "backslashreplace");
		char *data;
		Py_ssize_t size;

		if (!bytes || PyBytes_AsStringAndSize(bytes, &data, &size) < 0) {
			Py_XDECREF(bytes);
			return -1;
		}
		msgpack_pack_str_with_body(pk, data, (size_t)size);
		Py_DECREF(bytes);
	}
	return 0;
}

static int pack(const struct report *r, struct furca_buf *ret)
{
	msgpack_packer pk;

	furca_packer(&pk, ret);
	msgpack_pack_map(&pk, 4);
	if (pack_group(&pk, "added", r->added) < 0 || pack_group(&pk, "rebound", r->rebound) < 0 ||
	    pack_group(&pk, "deleted", r->deleted) < 0)
		return -1;
	furca_pack_text(&pk, "count");
	msgpack_pack_int64(&pk, PyList_Size(r->added) + PyList_Size(r->rebound) + PyList_Size(r->deleted));
	return 0;
}

static int report_changes(PyObject *stored, struct furca_view label, struct furca_buf *ret)
{
	struct report r = {PyList_New(0), PyList_New(0), PyList_New(0), furca_names_label(label), stored};
	struct table now = {0};
	int failed = r.added && r.rebound && r.deleted && r.label ? table_fill(&now, names.space, true) : -1;

	if (!failed)
		failed = collect(&r, &now);
	if (!failed)
		failed = pack(&r, ret);
	table_clear(&now, true);
	free(now.at);
	Py_XDECREF(r.added);
	Py_XDECREF(r.rebound);
	Py_XDECREF(r.deleted);
	Py_XDECREF(r.label);
	return failed;
}

int furca_names_report(PyObject *stored, struct furca_view label, struct furca_buf *ret)
{
	static const char none[] = "\x84\xa5"
				   "added\x90\xa7rebound\x90\xa7"
				   "deleted\x90\xa5"
				   "count\0";
	int r = 0;

	if ((!stored || PySet_Size(stored) == 0) && untouched())
		(void)furca_buf_append(ret, none, sizeof(none) - 1);
	else
		r = report_changes(stored, label, ret);
	table_clear(&names.before, false);
	return r;
}
