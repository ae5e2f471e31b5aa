#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/banned.h"

static const struct {
	const char *name, *type, *suggestion;
	int errnum;
} table[] = {
	[FURCA_OK] = {"FURCA_OK", "", "", 0},
#define ERR(name, number, errnum, type, suggestion) [number] = {"FURCA_E_" #name, type, suggestion, errnum},
#include "base/err.def"
#undef ERR
};

static int fill(struct furca_err *err, enum furca_err_code code, int sys, const char *suggestion, const char *format,
		va_list args)
{
	if (err && err->code == FURCA_OK) {
		err->code = code;
		err->sys = sys;
		(void)vsnprintf(err->text, sizeof(err->text), format, args);
		err->suggestion[0] = '\0';
		if (suggestion)
			(void)snprintf(err->suggestion, sizeof(err->suggestion), "%s", suggestion);
	}
	return sys ? -sys : -table[code].errnum;
}

int furca_fail(struct furca_err *err, enum furca_err_code code, int sys, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int r = fill(err, code, sys, NULL, format, args);
	va_end(args);
	return r;
}

int furca_fail_suggest(struct furca_err *err, enum furca_err_code code, int sys, const char *suggestion,
		       const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int r = fill(err, code, sys, suggestion, format, args);
	va_end(args);
	return r;
}

const char *furca_err_name(enum furca_err_code code)
{
	return table[code].name;
}

const char *furca_err_type(enum furca_err_code code)
{
	return table[code].type;
}

const char *furca_err_suggestion(const struct furca_err *err)
{
	return err->suggestion[0] ? err->suggestion : table[err->code].suggestion;
}

const char *furca_err_describe(const struct furca_err *err, char *buf, size_t size)
{
	if (err->sys)
		(void)snprintf(buf, size, "%s: %s", err->text, strerror(err->sys));
	else
		(void)snprintf(buf, size, "%s", err->text);
	return buf;
}
