# engine/: may include base, bridge/wire, snapshot/probe.h and init.h, langs/lang.h
noinst_LTLIBRARIES += libfurca-engine.la
libfurca_engine_la_CPPFLAGS = $(AM_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
libfurca_engine_la_LIBADD = libfurca-env.la $(URING_LIBS) $(JANSSON_LIBS)
libfurca_engine_la_SOURCES = \
	engine/attach.c \
	engine/call.c engine/call.h \
	engine/call_judge.c \
	engine/call_run.c \
	engine/capability.c engine/capability.h engine/lane_private.h engine/lane_ring.c engine/object.c \
	engine/cells.c engine/cells.h \
	engine/cgroup.c engine/cgroup.h \
	engine/commit.c \
	engine/coordinate.c engine/coordinate.h \
	engine/coordinate_select.c \
	engine/done.c engine/done.h \
	engine/drain.c engine/drain.h \
	engine/exceeded.c engine/exceeded.h \
	engine/engine.c engine/engine.h engine/engine_private.h \
	engine/host_proc.c engine/host_proc.h engine/host_private.h \
	engine/host_request.c \
	engine/init_link.c engine/init_link.h \
	engine/kept.c \
	engine/launch.c engine/launch.h \
	engine/limits.c engine/limits.h \
	engine/lineage.c engine/lineage.h \
	engine/loop.c engine/loop.h engine/loop_futex.c engine/loop_private.h engine/loop_recv.c engine/loop_timers.c \
	engine/lost.c engine/lost.h \
	engine/methods.c \
	engine/modules.c engine/modules.h \
	engine/nested.c engine/nested.h \
	engine/op.c engine/op.h \
	engine/operation.c engine/operation.h \
	engine/output.c engine/output.h \
	engine/pipes.c engine/pipes.h \
	engine/prefetch.c engine/prefetch.h \
	engine/read.c \
	engine/registry.c engine/registry.h \
	engine/result.c \
	engine/retire.c engine/retire.h \
	engine/session.c engine/session.h \
	engine/session_end.c \
	engine/session_restore.c \
	engine/session_state.c engine/session_state.h \
	engine/stateless.c engine/stateless.h \
	engine/stats.c engine/stats.h \
	engine/watch.c engine/watch.h \
	engine/stream.c engine/stream.h

if HAVE_CHECK
engine_tests = tests/unit/test_op tests/unit/test_loop tests/unit/test_stream tests/unit/test_capture tests/unit/test_registry tests/unit/test_session_state tests/unit/test_coordinate tests/unit/test_done
check_PROGRAMS += $(engine_tests)
TESTS += $(engine_tests)
engine_test_libs = libfurca-engine.la libfurca-lang.la libfurca-snapshot.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)

tests_unit_test_op_SOURCES = tests/unit/test_op.c
tests_unit_test_op_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_op_LDADD = $(engine_test_libs)
tests_unit_test_loop_SOURCES = tests/unit/test_loop.c
tests_unit_test_loop_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_loop_LDADD = $(engine_test_libs)
tests_unit_test_stream_SOURCES = tests/unit/test_stream.c
tests_unit_test_stream_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_stream_LDADD = $(engine_test_libs)
tests_unit_test_capture_SOURCES = tests/unit/test_capture.c
tests_unit_test_capture_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_capture_LDADD = $(engine_test_libs)
tests_unit_test_done_SOURCES = tests/unit/test_done.c
tests_unit_test_done_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_done_LDADD = $(engine_test_libs)
tests_unit_test_registry_SOURCES = tests/unit/test_registry.c
tests_unit_test_registry_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_registry_LDADD = $(engine_test_libs)
tests_unit_test_session_state_SOURCES = tests/unit/test_session_state.c
tests_unit_test_session_state_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_session_state_LDADD = $(engine_test_libs)
tests_unit_test_coordinate_SOURCES = tests/unit/test_coordinate.c
tests_unit_test_coordinate_CPPFLAGS = $(CHECK_CPPFLAGS) $(URING_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_coordinate_LDADD = $(engine_test_libs)
endif
