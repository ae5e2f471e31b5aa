/*
 * Errors are values. A function that can fail returns an int, 0 or more or -errno, never -1. One whose failure a
 * caller's user will read takes a `struct furca_err *err` last. Nothing here allocates, so it works when memory is out.
 *
 * Codes stand once, in err.def. The first failure wins: filling an error that is already set changes nothing, so an
 * outer layer may add its words without hiding the cause.
 */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

enum furca_err_code {
	FURCA_OK = 0,
#define ERR(name, number, errnum, type, suggestion) FURCA_E_##name = number,
#include "base/err.def"
#undef ERR
};

#define FURCA_ERR_TEXT_MAX 512

struct furca_err {
	enum furca_err_code code;
	int sys;			     /* errno of the failed system call, 0 if none */
	char text[FURCA_ERR_TEXT_MAX];	     /* one sentence, no full stop, UTF-8, cut if too long */
	char suggestion[FURCA_ERR_TEXT_MAX]; /* empty: the code's own */
};

#define FURCA_ERR_INIT ((struct furca_err){.code = FURCA_OK})

/*
 * Fills *err (which may be NULL) unless it is set already and returns -errno of the code, or -sys where sys is not 0,
 * so that `return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot ...")` is one statement. Never blocks or allocates.
 */
int furca_fail(struct furca_err *err, enum furca_err_code code, int sys, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* As furca_fail, with a suggestion that names what to change. */
int furca_fail_suggest(struct furca_err *err, enum furca_err_code code, int sys, const char *suggestion,
		       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Static strings, never NULL: "FURCA_E_SYSTEM", the error_type word, the suggestion in force. */
const char *furca_err_name(enum furca_err_code code);
const char *furca_err_type(enum furca_err_code code);
const char *furca_err_suggestion(const struct furca_err *err);

/* Writes the message with the system error's text behind it, for a log or a terminal. Returns `buf`. */
const char *furca_err_describe(const struct furca_err *err, char *buf, size_t size);
