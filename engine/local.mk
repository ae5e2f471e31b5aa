# engine/: may include base, bridge/wire, snapshot/probe.h and init.h, langs/lang.h
noinst_LTLIBRARIES += libfurca-engine.la
libfurca_engine_la_CPPFLAGS = $(AM_CPPFLAGS) $(URING_CFLAGS)
libfurca_engine_la_LIBADD = $(URING_LIBS)
libfurca_engine_la_SOURCES = \
	engine/engine.h \
	engine/loop.c engine/loop.h engine/loop_private.h engine/loop_timers.c \
	engine/op.c engine/op.h

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
