# base/: may include nothing of ours
noinst_LTLIBRARIES += libfurca-base.la
libfurca_base_la_SOURCES = \
	base/auto.h base/banned.h base/clock.h base/madvise.h \
	base/buf.c base/buf.h \
	base/err.c base/err.def base/err.h \
	base/fault.c base/fault.def base/fault.h \
	base/fd.c base/fd.h \
	base/log.c base/log.h \
	base/proc.c base/proc.h

if HAVE_CHECK
base_unit_tests = \
	tests/unit/test_err \
	tests/unit/test_buf \
	tests/unit/test_fd \
	tests/unit/test_proc \
	tests/unit/test_fault
check_PROGRAMS += $(base_unit_tests)
TESTS += $(base_unit_tests)
tests_unit_test_err_SOURCES = tests/unit/test_err.c tests/unit/harness.h
tests_unit_test_err_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_err_LDADD = libfurca-base.la $(CHECK_LIBS)
tests_unit_test_buf_SOURCES = tests/unit/test_buf.c tests/unit/harness.h
tests_unit_test_buf_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_buf_LDADD = libfurca-base.la $(CHECK_LIBS)
tests_unit_test_fd_SOURCES = tests/unit/test_fd.c tests/unit/harness.h
tests_unit_test_fd_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_fd_LDADD = libfurca-base.la $(CHECK_LIBS)
tests_unit_test_proc_SOURCES = tests/unit/test_proc.c tests/unit/harness.h
tests_unit_test_proc_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_proc_LDADD = libfurca-base.la $(CHECK_LIBS)
tests_unit_test_fault_SOURCES = tests/unit/test_fault.c tests/unit/harness.h
tests_unit_test_fault_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_fault_LDADD = libfurca-base.la $(CHECK_LIBS)
endif
