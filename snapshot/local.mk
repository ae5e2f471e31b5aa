# snapshot/: may include base and bridge/wire
noinst_LTLIBRARIES += libfurca-snapshot.la
libfurca_snapshot_la_SOURCES = \
	snapshot/barrier.c snapshot/barrier.def \
	snapshot/barriers.c snapshot/barriers.h \
	snapshot/cell.c snapshot/cell.h \
	snapshot/changes.c snapshot/changes.h \
	snapshot/clone.h \
	snapshot/fds.c snapshot/fds.h snapshot/fds_remake.c snapshot/fds_remake.h snapshot/fds_sockets.c \
	snapshot/huge.c snapshot/huge.h \
	snapshot/init.c snapshot/init.h snapshot/init_loop.h \
	snapshot/landlock.c snapshot/landlock.h \
	snapshot/maps.h \
	snapshot/memory.c snapshot/memory.h \
	snapshot/mounts.c snapshot/mounts.h \
	snapshot/namespaces.c snapshot/namespaces.h \
	snapshot/overlay.c snapshot/overlay.h \
	snapshot/pagemap.c snapshot/pagemap.h \
	snapshot/pages.c snapshot/pages.h \
	snapshot/places.c snapshot/places.h \
	snapshot/privileges.c snapshot/privileges.h \
	snapshot/probe.c snapshot/probe.h \
	snapshot/spawn.c snapshot/spawn.h \
	snapshot/upper.c snapshot/upper.h
libfurca_snapshot_la_CPPFLAGS = $(AM_CPPFLAGS) $(CAP_CFLAGS) $(SECCOMP_CFLAGS)
libfurca_snapshot_la_LIBADD = libfurca-wire.la libfurca-base.la $(CAP_LIBS) $(SECCOMP_LIBS) $(MSGPACK_LIBS)

if HAVE_CHECK
snapshot_tests = tests/unit/test_init tests/unit/test_cell tests/unit/test_fds \
	tests/unit/test_memory tests/unit/test_pages tests/unit/test_privileges tests/unit/test_probe
check_PROGRAMS += $(snapshot_tests)
TESTS += $(snapshot_tests)
snapshot_test_libs = libfurca-snapshot.la $(CHECK_LIBS)
tests_unit_test_init_SOURCES = tests/unit/test_init.c tests/unit/init_client.h
tests_unit_test_init_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_init_LDADD = $(snapshot_test_libs)
tests_unit_test_cell_SOURCES = tests/unit/test_cell.c tests/unit/init_client.h
tests_unit_test_cell_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_cell_LDADD = $(snapshot_test_libs)
snapshot_lab = tests/unit/copy_lab.h tests/unit/init_client.h tests/unit/clone_harness.c tests/unit/clone_harness.h
tests_unit_test_fds_SOURCES = tests/unit/test_fds.c $(snapshot_lab)
tests_unit_test_fds_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_fds_LDADD = $(snapshot_test_libs)
tests_unit_test_pages_SOURCES = tests/unit/test_pages.c
tests_unit_test_pages_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_pages_LDADD = $(snapshot_test_libs)
tests_unit_test_memory_SOURCES = tests/unit/test_memory.c $(snapshot_lab)
tests_unit_test_memory_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_memory_LDADD = $(snapshot_test_libs)
tests_unit_test_privileges_SOURCES = tests/unit/test_privileges.c $(snapshot_lab)
tests_unit_test_privileges_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_privileges_LDADD = $(snapshot_test_libs)

# The mutation matrix: about 350 attempts to change something outside a copy, see tests/matrix/run.py.
EXTRA_DIST += tests/matrix/attempts.toml tests/matrix/bash.toml tests/matrix/prelude.py tests/matrix/document.py doc/read-only.md
dist_check_SCRIPTS += tests/matrix/run.py
TESTS += tests/matrix/run.py
check_LTLIBRARIES = lab.la
lab_la_SOURCES = tests/matrix/lab.c
lab_la_CPPFLAGS = $(AM_CPPFLAGS) $(PYTHON_EXT_CFLAGS)
lab_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
lab_la_LIBADD = libfurca-snapshot.la
tests_unit_test_probe_SOURCES = tests/unit/test_probe.c
tests_unit_test_probe_CPPFLAGS = $(CHECK_CPPFLAGS) $(SECCOMP_CFLAGS)
tests_unit_test_probe_LDADD = $(snapshot_test_libs) $(SECCOMP_LIBS)
endif
