# Cloning with all threads; the arch_NAME.S of other processors is empty.
libfurca_snapshot_la_SOURCES += \
	snapshot/arch.h snapshot/arch_x86_64.h snapshot/arch_aarch64.h snapshot/arch_x86_64.S snapshot/arch_aarch64.S \
	snapshot/born.c snapshot/born.h \
	snapshot/clone.c \
	snapshot/detect.c snapshot/detect.h \
	snapshot/freeze.c snapshot/freeze.h \
	snapshot/hop.c snapshot/hop.h \
	snapshot/inside.c snapshot/inside.h \
	snapshot/interrupted.c snapshot/interrupted.h \
	snapshot/offsets.c snapshot/offsets.h \
	snapshot/raw.h \
	snapshot/task.c snapshot/task.h \
	snapshot/thread.c snapshot/thread.h \
	snapshot/timers.c snapshot/timers.h

if HAVE_CHECK
clone_harness = tests/unit/clone_harness.c tests/unit/clone_harness.h
clone_tests = tests/unit/test_clone tests/unit/test_clone_locks tests/unit/test_clone_state tests/unit/test_clone_park tests/unit/test_clone_refuse tests/unit/test_clone_ways tests/unit/test_clone_full tests/unit/test_clone_fault
check_PROGRAMS += $(clone_tests)
TESTS += $(clone_tests)
tests_unit_test_clone_SOURCES = tests/unit/test_clone.c $(clone_harness)
tests_unit_test_clone_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_locks_SOURCES = tests/unit/test_clone_locks.c $(clone_harness)
tests_unit_test_clone_locks_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_locks_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_state_SOURCES = tests/unit/test_clone_state.c $(clone_harness)
tests_unit_test_clone_state_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_state_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_park_SOURCES = tests/unit/test_clone_park.c $(clone_harness)
tests_unit_test_clone_park_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_park_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_refuse_SOURCES = tests/unit/test_clone_refuse.c $(clone_harness)
tests_unit_test_clone_refuse_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_refuse_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_ways_SOURCES = tests/unit/test_clone_ways.c $(clone_harness)
tests_unit_test_clone_ways_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_ways_LDADD = $(snapshot_test_libs) -lpthread
tests_unit_test_clone_full_SOURCES = tests/unit/test_clone_full.c tests/unit/init_client.h $(clone_harness)
tests_unit_test_clone_full_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_full_LDADD = $(snapshot_test_libs) -lpthread

tests_unit_test_clone_fault_SOURCES = tests/unit/test_clone_fault.c $(clone_harness)
tests_unit_test_clone_fault_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_fault_LDADD = $(snapshot_test_libs) -lpthread

check_PROGRAMS += tests/stress/clone_stress
TESTS += tests/stress/clone_stress
tests_stress_clone_stress_SOURCES = tests/stress/clone_stress.c tests/unit/init_client.h $(clone_harness)
tests_stress_clone_stress_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_stress_clone_stress_LDADD = $(snapshot_test_libs) -ldl -lpthread

if HAVE_OPENMP
check_PROGRAMS += tests/unit/test_clone_omp
TESTS += tests/unit/test_clone_omp
tests_unit_test_clone_omp_SOURCES = tests/unit/test_clone_omp.c $(clone_harness)
tests_unit_test_clone_omp_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_clone_omp_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
tests_unit_test_clone_omp_LDADD = $(snapshot_test_libs) -lpthread
endif
endif
