#include "langs/python/source.h"

#include <string.h>

#include "base/auto.h"

#include "base/banned.h"

#define MAX_BYTES ((Py_ssize_t)64 << 20)
#define MAX_FILES 20000
#define KEPT_EIGHTHS                                                                                                   \
	7 /* of both bounds, once one is reached: to look for the oldest at each call costs more the more have gone */
#define ONE_LINE 4096 /* longer texts are hardly one expression */
#define COROUTINE 0x80

/* The kinds of statements that bind names, and how. */
enum kind { EXPR, ASSIGN, AUG_ASSIGN, ANN_ASSIGN, FUNCTION, ASYNC_FUNCTION, CLASS, IMPORT, IMPORT_FROM, KINDS };

static const char *const kind_names[KINDS] = {
	[EXPR] = "Expr",
	[ASSIGN] = "Assign",
	[AUG_ASSIGN] = "AugAssign",
	[ANN_ASSIGN] = "AnnAssign",
	[FUNCTION] = "FunctionDef",
	[ASYNC_FUNCTION] = "AsyncFunctionDef",
	[CLASS] = "ClassDef",
	[IMPORT] = "Import",
	[IMPORT_FROM] = "ImportFrom",
};

static struct {
	PyObject *calls; /* namespace of calls.py */
	PyObject *space; /* of the user */
	PyObject *compile, *linecache, *name, *expression, *kinds[KINDS];
	PyObject *eval, *exec, *newline; /* words that each call needs */
	PyObject *cache, *co_flags, *co_consts, *co_names;
	PyObject *functions; /* names of pure built-in functions */
	PyObject *sources;   /* file name -> entry of linecache */
	PyObject *newest;    /* the file name that was remembered last */
	Py_ssize_t size;     /* characters in all of them */
	long flags, feature_mask, tree_flag;
	long features; /* from __future__ imports of earlier calls */
} source;

static PyObject *of_calls(const char *name)
{
	PyObject *value = PyDict_GetItemString(source.calls, name);

	Py_XINCREF(value);
	if (!value)
		(void)PyErr_Format(PyExc_NameError, "calls.py lacks %s", name);
	return value;
}

static long number_of_calls(const char *name)
{
	PyObject *value = of_calls(name);
	long number = value ? PyLong_AsLong(value) : -1;

	Py_XDECREF(value);
	return number;
}

int furca_source_init(PyObject *calls)
{
	PyObject *ast = PyImport_ImportModule("_ast"), *builtins = PyImport_ImportModule("builtins");

	source.calls = calls;
	Py_INCREF(calls);
	source.space = PyModule_GetDict(PyImport_AddModule("__main__"));
	source.linecache = PyImport_ImportModule("linecache");
	source.sources = PyDict_New();
	source.functions = of_calls("PURE_FUNCTIONS");
	source.flags = number_of_calls("FLAGS");
	source.feature_mask = number_of_calls("FUTURES");
	source.eval = PyUnicode_InternFromString("eval");
	source.exec = PyUnicode_InternFromString("exec");
	source.newline = PyUnicode_InternFromString("\n");
	source.cache = PyUnicode_InternFromString("cache");
	source.co_flags = PyUnicode_InternFromString("co_flags");
	source.co_consts = PyUnicode_InternFromString("co_consts");
	source.co_names = PyUnicode_InternFromString("co_names");
	if (ast && builtins) {
		source.compile = PyObject_GetAttrString(builtins, "compile");
		source.name = PyObject_GetAttrString(ast, "Name");
		source.expression = PyObject_GetAttrString(ast, "Expression");
		for (int i = 0; i < KINDS; i++)
			source.kinds[i] = PyObject_GetAttrString(ast, kind_names[i]);
		PyObject *flag = PyObject_GetAttrString(ast, "PyCF_ONLY_AST");
		source.tree_flag = flag ? PyLong_AsLong(flag) : -1;
		Py_XDECREF(flag);
	}
	Py_XDECREF(ast);
	Py_XDECREF(builtins);
	return PyErr_Occurred() ? -1 : 0;
}

void furca_steps_done(struct furca_steps *steps)
{
	Py_XDECREF(steps->list);
	Py_XDECREF(steps->stored);
	*steps = (struct furca_steps){0};
}

/* ------------------------------------------------------------------------------------- texts */

static Py_ssize_t entry_size(PyObject *entry)
{
	return entry ? PyLong_AsSsize_t(PyTuple_GetItem(entry, 0)) : 0;
}

static int forget(PyObject *cache, PyObject *name)
{
	source.size -= entry_size(PyDict_GetItemWithError(source.sources, name));
	int r = PyDict_DelItem(source.sources, name);

	return r == 0 && PyDict_Contains(cache, name) == 1 ? PyDict_DelItem(cache, name) : r;
}

/* The newest of all stays. */
static int forget_oldest(PyObject *cache)
{
	Py_ssize_t n = PyDict_Size(source.sources);
	int r = 0;

	if (source.size <= MAX_BYTES && n <= MAX_FILES)
		return 0;
	PyObject *names = PyDict_Keys(source.sources);
	if (!names)
		return -1;
	for (Py_ssize_t i = 0; r == 0 && i + 1 < n &&
			       (source.size > MAX_BYTES / 8 * KEPT_EIGHTHS || n - i > MAX_FILES / 8 * KEPT_EIGHTHS);
	     i++)
		r = forget(cache, PyList_GetItem(names, i));
	Py_DECREF(names);
	return r;
}

/* linecache.cache as it is now; NULL without an exception where the user has made it something else. */
static PyObject *line_cache(void)
{
	PyObject *cache = PyObject_GetAttr(source.linecache, source.cache);

	if (!cache)
		PyErr_Clear();
	if (cache && !PyDict_Check(cache)) {
		Py_DECREF(cache);
		cache = NULL;
	}
	return cache;
}

/* As linecache has them: each line ends in a newline, the last too, or marks below it would stand beside the place. */
static PyObject *lines_of(PyObject *text)
{
	Py_ssize_t n = PyUnicode_GetLength(text);
	bool ends = n <= 0 || PyUnicode_ReadChar(text, n - 1) == '\n';
	PyObject *whole = ends ? text : PyUnicode_Concat(text, source.newline), *lines;

	if (!whole)
		return NULL;
	lines = PyUnicode_Splitlines(whole, 1);
	if (!ends)
		Py_DECREF(whole);
	return lines;
}

int furca_source_remember(PyObject *filename, PyObject *text)
{
	PyObject *lines = lines_of(text), *cache = line_cache(), *size = PyLong_FromSsize_t(PyUnicode_GetLength(text));
	PyObject *entry = lines && size ? PyTuple_Pack(4, size, Py_None, lines, filename) : NULL;
	int r = -1;

	if (entry) {
		source.size +=
			PyUnicode_GetLength(text) - entry_size(PyDict_GetItemWithError(source.sources, filename));
		r = PyDict_SetItem(source.sources, filename, entry);
	}
	if (r == 0 && cache)
		r = PyDict_SetItem(cache, filename, entry);
	if (r == 0 && cache)
		r = forget_oldest(cache);
	if (r == 0) {
		Py_XDECREF(source.newest);
		Py_INCREF(filename);
		source.newest = filename;
	}
	Py_XDECREF(lines);
	Py_XDECREF(cache);
	Py_XDECREF(size);
	Py_XDECREF(entry);
	return r;
}

int furca_source_restore(void)
{
	PyObject *cache = source.newest ? line_cache() : NULL;
	int r = cache ? PyDict_Contains(cache, source.newest) : 1;

	if (r == 0)
		r = PyDict_Update(cache, source.sources);
	Py_XDECREF(cache);
	return r < 0 ? r : 0;
}

/* -------------------------------------------------------------------------------------- code */

static PyObject *compile(PyObject *what, PyObject *filename, PyObject *mode, long flags)
{
	PyObject *number = PyLong_FromLong(flags), *code = NULL;

	if (number)
		code = PyObject_CallFunctionObjArgs(source.compile, what, filename, mode, number, Py_True, NULL);
	Py_XDECREF(number);
	return code;
}

static long flags_of(PyObject *code)
{
	PyObject *value = PyObject_GetAttr(code, source.co_flags);
	long flags = value ? PyLong_AsLong(value) : 0;

	Py_XDECREF(value);
	PyErr_Clear();
	return flags;
}

static bool begins_statement(const char *at, size_t room)
{
	static const char *const words[] = {"import", "from",  "del",	"pass",	  "raise", "assert",
					    "global", "for",   "while", "if",	  "with",  "try",
					    "def",    "class", "async", "return", "break", "continue"};
	size_t n = 0;

	while (n < room && at[n] >= 'a' && at[n] <= 'z')
		n++;
	for (size_t i = 0; i < FURCA_COUNT(words); i++)
		if (strlen(words[i]) == n && strncmp(words[i], at, n) == 0)
			return true;
	return false;
}

/*
 * Whether the text may be one expression: a look that is quick and may err, since the compiler has the word. Escapes are
 * left to the other way: what the compiler warns of must not be said twice.
 */
static bool one_expression(struct furca_view code)
{
	size_t n = furca_view_size(code);
	const char *at = (const char *)code.at;

	if (n == 0 || n > ONE_LINE || strchr(" \t#@", *at) || begins_statement(at, n))
		return false;
	while (n > 0 && at[n - 1] == '\n')
		n--;
	for (size_t i = 0; i < n; i++) {
		if (strchr("\n\r\f\\;", at[i]))
			return false;
		if (at[i] != '=')
			continue;
		if (i + 1 < n && at[i + 1] == '=')
			i++; /* a comparison */
		else if (i == 0 || !strchr("!<>:", at[i - 1]))
			return memchr(at, '(', i) != NULL; /* maybe an argument's */
	}
	return true;
}

static bool is_code(PyObject *value, PyObject *code)
{
	return Py_TYPE(value) == Py_TYPE(code);
}

/* The tuple `name` of a code object has no item for which `test` holds. */
static bool none_of(PyObject *code, PyObject *name, bool (*test)(PyObject *item, PyObject *code))
{
	PyObject *tuple = PyObject_GetAttr(code, name);
	Py_ssize_t n = tuple && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1, i = 0;

	while (i < n && !test(PyTuple_GetItem(tuple, i), code))
		i++;
	Py_XDECREF(tuple);
	PyErr_Clear();
	return i == n;
}

/* Neither a built-in function that is known nor a plain value: then the name, or the attribute, may run anything. */
static bool is_foreign(PyObject *name, PyObject *code)
{
	PyObject *value;

	(void)code;
	if (PySequence_Contains(source.functions, name) == 1)
		return false;
	value = PyDict_GetItemWithError(source.space, name);
	return !value ||
	       !(PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
		 PyBytes_CheckExact(value) || value == Py_None || PyBool_Check(value) || PyList_CheckExact(value) ||
		 PyTuple_CheckExact(value) || PyDict_CheckExact(value) || PyAnySet_CheckExact(value) ||
		 Py_TYPE(value) == &PyRange_Type || PyComplex_CheckExact(value));
}

static bool is_any(PyObject *item, PyObject *code)
{
	(void)item;
	(void)code;
	return true;
}

/* Whether pure.is_pure says so of the text's one expression. */
static bool is_pure(PyObject *text, PyObject *filename)
{
	PyObject *tree = compile(text, filename, source.eval, source.flags | source.features | source.tree_flag);
	PyObject *pure = NULL;
	bool yes;

	if (tree)
		pure = PyObject_CallFunctionObjArgs(PyDict_GetItemString(source.calls, "is_pure"), tree, NULL);
	yes = pure == Py_True;
	Py_XDECREF(tree);
	Py_XDECREF(pure);
	PyErr_Clear();
	return yes;
}

/*
 * What is known of an expression by its names: those that are no known built-in function's and no plain value's settle it.
 */
static bool expression_changes(PyObject *code, PyObject *text, PyObject *filename)
{
	if (!none_of(code, source.co_consts, is_code))
		return true;
	if (none_of(code, source.co_names, is_any))
		return false;
	return !none_of(code, source.co_names, is_foreign) || !is_pure(text, filename);
}

/* ------------------------------------------------------------------------------------ names */

static int add_attribute(PyObject *set, PyObject *node, const char *name)
{
	PyObject *value = PyObject_GetAttrString(node, name);
	int r = value ? PySet_Add(set, value) : -1;

	Py_XDECREF(value);
	return r;
}

/* 1: needs the long way, by all nodes. */
static int add_target(PyObject *set, PyObject *target)
{
	return (PyObject *)Py_TYPE(target) == source.name ? add_attribute(set, target, "id") : 1;
}

static int add_targets(PyObject *set, PyObject *node)
{
	PyObject *targets = PyObject_GetAttrString(node, "targets");
	Py_ssize_t n = targets ? PyList_Size(targets) : 0;
	int r = targets ? 0 : -1;

	for (Py_ssize_t i = 0; i < n && r == 0; i++)
		r = add_target(set, PyList_GetItem(targets, i));
	Py_XDECREF(targets);
	return r;
}

static int add_single_target(PyObject *set, PyObject *node)
{
	PyObject *target = PyObject_GetAttrString(node, "target");
	int r = target ? add_target(set, target) : -1;

	Py_XDECREF(target);
	return r;
}

/* 0, 1 where the long way is needed, or -1. */
static int add_statement(PyObject *set, PyObject *node)
{
	PyObject *type = (PyObject *)Py_TYPE(node);

	if (type == source.kinds[ASSIGN])
		return add_targets(set, node);
	if (type == source.kinds[AUG_ASSIGN])
		return add_single_target(set, node);
	if (type == source.kinds[FUNCTION] || type == source.kinds[ASYNC_FUNCTION] || type == source.kinds[CLASS])
		return add_attribute(set, node, "name");
	return type == source.kinds[ANN_ASSIGN] || type == source.kinds[IMPORT] || type == source.kinds[IMPORT_FROM];
}

/* Names that the statements bind for sure. New reference or NULL. */
static PyObject *stored_names(PyObject *body)
{
	PyObject *set = PySet_New(NULL);
	Py_ssize_t n = PyList_Size(body);
	int r = set ? 0 : -1;

	for (Py_ssize_t i = 0; i < n && r == 0; i++)
		r = add_statement(set, PyList_GetItem(body, i));
	if (r == 0)
		return set;
	Py_XDECREF(set);
	PyErr_Clear();
	return PyObject_CallFunctionObjArgs(PyDict_GetItemString(source.calls, "stored"), body, NULL);
}

/* ------------------------------------------------------------------------------------ steps */

/*
 * The last statement, taken off the body, as a tree of its own; NULL where it is no expression, or with an exception.
 */
static PyObject *take_last(PyObject *body)
{
	Py_ssize_t n = PyList_Size(body);
	PyObject *last = n > 0 ? PyList_GetItem(body, n - 1) : NULL, *value, *tree;

	if (!last || (PyObject *)Py_TYPE(last) != source.kinds[EXPR])
		return NULL;
	value = PyObject_GetAttrString(last, "value");
	tree = value ? PyObject_CallFunctionObjArgs(source.expression, value, NULL) : NULL;
	Py_XDECREF(value);
	if (tree && PyList_SetSlice(body, n - 1, n, NULL) < 0) {
		Py_DECREF(tree);
		tree = NULL;
	}
	return tree;
}

static int append(PyObject *list, PyObject *step)
{
	int r = step ? PyList_Append(list, step) : -1;

	Py_XDECREF(step);
	return r;
}

/* Statements and last expression of `tree` into *ret. */
static int split(PyObject *tree, PyObject *filename, struct furca_steps *ret)
{
	PyObject *body = PyObject_GetAttrString(tree, "body"), *last = body ? take_last(body) : NULL;
	long features = source.features;
	int r = body && !PyErr_Occurred() ? 0 : -1;

	if (r == 0 && PyList_Size(body) > 0) {
		PyObject *code = compile(tree, filename, source.exec, source.flags | features);

		if (code)
			features |= flags_of(code) & source.feature_mask;
		r = append(ret->list, code);
		if (r == 0)
			ret->stored = stored_names(body);
		if (!ret->stored)
			r = -1;
	}
	if (r == 0 && last) {
		PyObject *code = compile(last, filename, source.eval, source.flags | features);

		if (code && !ret->stored)
			ret->changes = expression_changes(code, last, filename);
		r = append(ret->list, code);
	}
	if (r == 0)
		source.features = features;
	Py_XDECREF(body);
	Py_XDECREF(last);
	return r;
}

/* All steps as one task on the event loop where one of them awaits. */
static int into_loop(struct furca_steps *steps)
{
	bool awaits = false;

	for (Py_ssize_t i = 0; i < PyList_Size(steps->list); i++)
		awaits |= (flags_of(PyList_GetItem(steps->list, i)) & COROUTINE) != 0;
	if (!awaits)
		return 0;
	PyObject *list = PyObject_CallFunctionObjArgs(PyDict_GetItemString(source.calls, "in_loop"), steps->list, NULL);
	if (!list)
		return -1;
	Py_DECREF(steps->list);
	steps->list = list;
	steps->changes = true;
	return 0;
}

static int make_steps(struct furca_view code_text, PyObject *text, PyObject *filename, struct furca_steps *ret)
{
	PyObject *code = NULL, *tree;
	int r;

	*ret = (struct furca_steps){.list = PyList_New(0)};
	if (!ret->list)
		return -1;
	if (one_expression(code_text)) {
		code = compile(text, filename, source.eval, source.flags | source.features);
		if (!code)
			PyErr_Clear();
	}
	if (code) {
		ret->changes = expression_changes(code, text, filename);
		r = append(ret->list, code);
		return r < 0 ? r : into_loop(ret);
	}
	tree = compile(text, filename, source.exec, source.flags | source.features | source.tree_flag);
	ret->changes = true;
	r = tree ? split(tree, filename, ret) : -1;
	Py_XDECREF(tree);
	if (r == 0 && PyList_Size(ret->list) == 0)
		ret->changes = false; /* comments alone */
	return r < 0 ? r : into_loop(ret);
}

/* Once more, with the interpreter as it came; a failure there is the call's answer. */
static int make_sheltered(struct furca_view code, PyObject *text, PyObject *filename, struct furca_steps *ret)
{
	PyObject *shelter = PyDict_GetItemString(source.calls, "_guard"), *result;
	int r;

	PyErr_Clear();
	furca_steps_done(ret);
	result = PyObject_CallMethod(shelter, "__enter__", NULL);
	if (!result)
		return -1;
	Py_DECREF(result);
	r = make_steps(code, text, filename, ret);
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	result = PyObject_CallMethod(shelter, "__exit__", NULL);
	Py_XDECREF(result);
	PyErr_Restore(type, value, traceback);
	return r;
}

/* The text without the mark that some editors put in front. */
static struct furca_view without_mark(struct furca_view code)
{
	static const uint8_t mark[] = {0xef, 0xbb, 0xbf};

	if (furca_view_size(code) >= sizeof(mark) && memcmp(code.at, mark, sizeof(mark)) == 0)
		code.at += sizeof(mark);
	return code;
}

int furca_source_steps(struct furca_view marked, PyObject *filename, bool intact, struct furca_steps *ret)
{
	struct furca_view code = without_mark(marked);
	PyObject *text =
		PyUnicode_DecodeUTF8((const char *)code.at, (Py_ssize_t)furca_view_size(code), "surrogateescape");
	int r = text ? furca_source_remember(filename, text) : -1;

	if (r == 0 && intact) {
		r = make_steps(code, text, filename, ret);
		intact = r == 0 || PyErr_ExceptionMatches(PyExc_SyntaxError);
	}
	if (text && !intact)
		r = make_sheltered(code, text, filename, ret);
	Py_XDECREF(text);
	return r;
}
