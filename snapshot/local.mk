# snapshot/: may include base and bridge/wire
noinst_LTLIBRARIES += libfurca-snapshot.la
libfurca_snapshot_la_SOURCES = \
	snapshot/barrier.c snapshot/barrier.def snapshot/barriers.h \
	snapshot/cell.c snapshot/cell.h \
	snapshot/changes.c snapshot/changes.h \
	snapshot/clone.h snapshot/probe.h \
	snapshot/init.c snapshot/init.h snapshot/init_loop.h \
	snapshot/mounts.c snapshot/mounts.h \
	snapshot/overlay.c snapshot/overlay.h \
	snapshot/privileges.c snapshot/privileges.h \
	snapshot/spawn.c snapshot/spawn.h
libfurca_snapshot_la_CPPFLAGS = $(AM_CPPFLAGS) $(CAP_CFLAGS) $(SECCOMP_CFLAGS)
libfurca_snapshot_la_LIBADD = libfurca-wire.la libfurca-base.la $(CAP_LIBS) $(SECCOMP_LIBS) $(MSGPACK_LIBS)

if HAVE_CHECK
snapshot_tests = tests/unit/test_init tests/unit/test_cell
check_PROGRAMS += $(snapshot_tests)
TESTS += $(snapshot_tests)
snapshot_test_libs = libfurca-snapshot.la $(CHECK_LIBS)
tests_unit_test_init_SOURCES = tests/unit/test_init.c tests/unit/init_client.h
tests_unit_test_init_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_init_LDADD = $(snapshot_test_libs)
tests_unit_test_cell_SOURCES = tests/unit/test_cell.c tests/unit/init_client.h
tests_unit_test_cell_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_cell_LDADD = $(snapshot_test_libs)
endif
