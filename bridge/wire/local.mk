# bridge/wire/: may include base
noinst_LTLIBRARIES += libfurca-wire.la
libfurca_wire_la_SOURCES = \
	bridge/wire/frame.c bridge/wire/frame.h \
	bridge/wire/host.h bridge/wire/init.h bridge/wire/lane.h bridge/wire/limits.h \
	bridge/wire/messages.c bridge/wire/messages.def bridge/wire/messages.h \
	bridge/wire/nearest.c bridge/wire/nearest.h \
	bridge/wire/value.c bridge/wire/value.h
