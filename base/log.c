#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"

static enum furca_log_level lowest = FURCA_LOG_INFO;
static const char *const level_name[] = {
	[FURCA_LOG_DEBUG] = "debug", [FURCA_LOG_INFO] = "info", [FURCA_LOG_WARN] = "warn", [FURCA_LOG_ALERT] = "alert"};

void furca_log_set_level(enum furca_log_level level)
{
	lowest = level;
}

void furca_log(enum furca_log_level level, const char *room, const char *format, ...)
{
	char line[1024], when[32];
	struct timespec now;
	struct tm tm;
	va_list args;

	if (level < lowest)
		return;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &tm);
	(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	int n = snprintf(line, sizeof(line) - 1, "%s.%03ldZ %s %s ", when, now.tv_nsec / 1000000, level_name[level],
			 room);
	va_start(args, format);
	int m = vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, format, args);
	va_end(args);
	n = m < 0 || n + m > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n + m;
	line[n] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)n + 1);
}

void furca_log_err(const char *room, const char *what, const struct furca_err *err)
{
	char text[FURCA_ERR_TEXT_MAX + 128];

	furca_log(FURCA_LOG_WARN, room, "failed what=\"%s\" code=%s error=\"%s\"", what, furca_err_name(err->code),
		  furca_err_describe(err, text, sizeof(text)));
}
