# engine/: may include base, bridge/wire, snapshot/probe.h and init.h, langs/lang.h
noinst_LTLIBRARIES += libfurca-engine.la
libfurca_engine_la_CPPFLAGS = $(AM_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
libfurca_engine_la_LIBADD = libfurca-env.la $(URING_LIBS) $(JANSSON_LIBS)
libfurca_engine_la_SOURCES = \
	engine/call.c engine/call.h \
	engine/capability.c engine/capability.h \
	engine/cells.c engine/cells.h \
	engine/commit.c \
	engine/coordinate.c engine/coordinate.h \
	engine/coordinate_select.c \
	engine/drain.c engine/drain.h \
	engine/engine.c engine/engine.h engine/engine_private.h \
	engine/host_proc.c engine/host_proc.h \
	engine/init_link.c engine/init_link.h \
	engine/kept.c \
	engine/launch.c engine/launch.h \
	engine/limits.c engine/limits.h \
	engine/loop.c engine/loop.h engine/loop_private.h engine/loop_timers.c \
	engine/methods.c \
	engine/modules.c engine/modules.h \
	engine/op.c engine/op.h \
	engine/output.c engine/output.h \
	engine/pack.h \
	engine/pipes.c engine/pipes.h \
	engine/read.c \
	engine/registry.c engine/registry.h \
	engine/result.c \
	engine/session.c engine/session.h \
	engine/session_state.c engine/session_state.h \
	engine/stateless.c engine/stateless.h \
	engine/stats.c engine/stats.h \
	engine/stream.c engine/stream.h

if HAVE_CHECK
engine_tests = test-op test-loop
check_PROGRAMS += $(engine_tests)
TESTS += $(engine_tests)
engine_test_libs = libfurca-engine.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)

test_op_SOURCES = tests/unit/test_op.c
test_op_CPPFLAGS = $(CHECK_CPPFLAGS)
test_op_LDADD = $(engine_test_libs)
test_loop_SOURCES = tests/unit/test_loop.c
test_loop_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS)
test_loop_LDADD = $(engine_test_libs)
endif
