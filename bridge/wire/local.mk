# bridge/wire/: may include base
noinst_LTLIBRARIES += libfurca-wire.la
libfurca_wire_la_SOURCES = \
	bridge/wire/advice.c bridge/wire/advice.h \
	bridge/wire/frame.c bridge/wire/frame.h \
	bridge/wire/call.h bridge/wire/host.h bridge/wire/init.h bridge/wire/lane.h bridge/wire/limits.h \
	bridge/wire/memory.c bridge/wire/memory.h bridge/wire/pack.h \
	bridge/wire/messages.c bridge/wire/messages.def bridge/wire/messages.h \
	bridge/wire/nearest.c bridge/wire/nearest.h \
	bridge/wire/ring.c bridge/wire/ring.h \
	bridge/wire/value.c bridge/wire/value.h

if HAVE_CHECK
wire_unit_tests = \
	tests/unit/test_value \
	tests/unit/test_frame \
	tests/unit/test_messages \
	tests/unit/test_ring
check_PROGRAMS += $(wire_unit_tests)
TESTS += $(wire_unit_tests)
tests_unit_test_value_SOURCES = tests/unit/test_value.c tests/unit/harness.h tests/unit/random.h
tests_unit_test_value_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_value_LDADD = libfurca-wire.la libfurca-base.la $(CHECK_LIBS)
tests_unit_test_frame_SOURCES = tests/unit/test_frame.c tests/unit/harness.h tests/unit/random.h
tests_unit_test_frame_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_frame_LDADD = libfurca-wire.la libfurca-base.la $(CHECK_LIBS)
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c tests/unit/random.h
tests_unit_test_ring_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_ring_CFLAGS = $(AM_CFLAGS) -pthread
tests_unit_test_ring_LDADD = libfurca-wire.la libfurca-base.la $(CHECK_LIBS)
tests_unit_test_messages_SOURCES = tests/unit/test_messages.c tests/unit/harness.h
tests_unit_test_messages_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_messages_LDADD = libfurca-wire.la libfurca-base.la $(CHECK_LIBS)
endif

# A fuzz target, which without a fuzzer replays its corpus.
check_PROGRAMS += tests/fuzz/fuzz_value
TESTS += tests/fuzz/fuzz_value
tests_fuzz_fuzz_value_SOURCES = tests/fuzz/fuzz_value.c tests/fuzz/replay.c
tests_fuzz_fuzz_value_LDADD = libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)
EXTRA_DIST += tests/fuzz/corpus/value
