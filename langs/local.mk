# langs/: may include base, bridge/wire and snapshot
noinst_LTLIBRARIES += libfurca-host.la
libfurca_host_la_SOURCES = \
	langs/host.c langs/host.h langs/host_private.h \
	langs/host_attach.c langs/host_run.c \
	langs/hot.c langs/hot.h \
	langs/output.c langs/output.h \
	langs/room.c langs/room.h langs/upkeep.c langs/upkeep.h
libfurca_host_la_LIBADD = libfurca-snapshot.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)

# The table of languages, for the engine.
noinst_LTLIBRARIES += libfurca-lang.la
libfurca_lang_la_SOURCES = langs/lang.c langs/lang.h
libfurca_lang_la_LIBADD = libfurca-base.la

if HAVE_CHECK
langs_tests = tests/unit/test_host tests/unit/test_hot tests/unit/test_output tests/unit/test_lang tests/unit/test_upkeep
check_PROGRAMS += $(langs_tests)
TESTS += $(langs_tests)
tests_unit_test_output_SOURCES = tests/unit/test_output.c
tests_unit_test_output_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_output_LDADD = libfurca-host.la $(CHECK_LIBS)
tests_unit_test_host_SOURCES = tests/unit/test_host.c
tests_unit_test_host_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_host_LDADD = libfurca-host.la $(CHECK_LIBS)
tests_unit_test_upkeep_SOURCES = tests/unit/test_upkeep.c
tests_unit_test_upkeep_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_upkeep_LDADD = libfurca-host.la $(CHECK_LIBS)
tests_unit_test_hot_SOURCES = tests/unit/test_hot.c
tests_unit_test_hot_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_hot_LDADD = libfurca-host.la $(CHECK_LIBS)
tests_unit_test_lang_SOURCES = tests/unit/test_lang.c
tests_unit_test_lang_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_lang_LDADD = libfurca-lang.la $(CHECK_LIBS)
endif
