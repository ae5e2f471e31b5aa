/*
 * One line, one write, to stderr: time, level, room, then key=value. Never the user's code or values. Library code does
 * not log: whoever ends an error's journey (sends it, drops it) logs it, once.
 */
#pragma once

#include "base/err.h"

enum furca_log_level { FURCA_LOG_DEBUG, FURCA_LOG_INFO, FURCA_LOG_WARN, FURCA_LOG_ALERT };

/* Lines below `level` are dropped; INFO at start. */
void furca_log_set_level(enum furca_log_level level);

/* `room` is "engine", "bridge", ...; the text after it is key=value pairs. Lines over 1 KiB are cut. */
void furca_log(enum furca_log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* "failed what=<what> code=<name> error=<text>" at WARN. */
void furca_log_err(const char *room, const char *what, const struct furca_err *err);
