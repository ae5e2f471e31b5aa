# base/: may include nothing of ours
noinst_LTLIBRARIES += libfurca-base.la
libfurca_base_la_SOURCES = \
	base/auto.h base/banned.h base/clock.h \
	base/buf.c base/buf.h \
	base/err.c base/err.def base/err.h \
	base/fault.c base/fault.def base/fault.h \
	base/fd.c base/fd.h \
	base/log.c base/log.h \
	base/proc.c base/proc.h
