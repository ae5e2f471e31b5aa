# tests/: scripts over the whole tree and end-to-end tests; unit tests stand in tests/unit and are declared by their
# room's local.mk.
dist_check_SCRIPTS += \
	tests/check-headers.sh \
	tests/check-layers.sh \
	tests/check-rows.py \
	tests/check-tables.sh \
	tests/tally.sh
TESTS += \
	tests/check-headers.sh \
	tests/check-layers.sh \
	tests/check-rows.py \
	tests/check-tables.sh

# The whole folder: a new test file there is run and shipped without being named.
EXTRA_DIST += tests/e2e tests/cases-expected-fail.txt tests/cases_mcp.py
TESTS += tests/e2e/run.sh

# Each within its time.
LOG_COMPILER = $(SHELL) $(srcdir)/tests/bounded.sh
dist_check_SCRIPTS += tests/bounded.sh

# What a test may use: where the program is, how headers are compiled.
AM_TESTS_ENVIRONMENT = \
	FURCA='$(abs_top_builddir)/furca'; export FURCA; \
	FURCA_LIBEXEC='$(abs_top_builddir)'; export FURCA_LIBEXEC; \
	CC='$(CC)'; export CC; \
	PYTHON='$(PYTHON)'; export PYTHON; \
	HEADER_CFLAGS='$(MSGPACK_CFLAGS) $(URING_CFLAGS) $(SECCOMP_CFLAGS) $(CAP_CFLAGS)'; export HEADER_CFLAGS; \
	PYTHON_CFLAGS='$(PYTHON_EMBED_CFLAGS)'; export PYTHON_CFLAGS;

check_PROGRAMS += tests/no_syscall
tests_no_syscall_SOURCES = tests/no_syscall.c
tests_no_syscall_CFLAGS = $(AM_CFLAGS) $(SECCOMP_CFLAGS)
tests_no_syscall_LDADD = $(SECCOMP_LIBS)

# Lets tests in Python speak to an init process.
check_PROGRAMS += tests/surface_init
tests_surface_init_SOURCES = tests/surface_init.c
tests_surface_init_LDADD = libfurca-snapshot.la

# The tests of one kind alone.
check-unit: all $(check_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(filter-out $(without),$(filter tests/unit/%,$(TESTS)))'
check-e2e: all
	$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/tests/e2e/run.sh $(PYTEST_ARGS)

# Long: every failure point in every mode and language, then two minutes of random deaths, timeouts and cancels over parallel sessions.
check-stress: all
	$(AM_TESTS_ENVIRONMENT) /usr/bin/python3 $(srcdir)/tests/stress/fault_points.py
	$(AM_TESTS_ENVIRONMENT) /usr/bin/python3 $(srcdir)/tests/stress/kill_random.py --seconds 120 --sessions 8
	$(AM_TESTS_ENVIRONMENT) /usr/bin/python3 $(srcdir)/tests/stress/density.py
EXTRA_DIST += tests/stress/density.py tests/stress/fault_points.py tests/stress/kill_random.py

# Tests that clone, or that look at descriptors and signals which a sanitizer's runtime changes.
# test_pages and test_hot count page faults, of which a sanitizer takes its own.
no_asan_tests = $(clone_tests) tests/unit/test_fds tests/unit/test_hot tests/unit/test_memory tests/unit/test_pages \
	tests/unit/test_privileges
# AddressSanitizer and UndefinedBehaviorSanitizer, in a build folder of their own; unit tests, which clone no threads.
check-asan:
	$(MKDIR_P) asan
	cd asan && { test -f Makefile || $(abs_top_srcdir)/configure -q --enable-sanitizers --enable-werror; }
	cd asan && $(MAKE) $(AM_MAKEFLAGS) && ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) $(AM_MAKEFLAGS) check-unit without='$(no_asan_tests)'

# Modules without I/O and clones: valgrind 3.19 knows neither pidfd_open nor clone3.
VALGRIND_TESTS = tests/unit/test_err tests/unit/test_buf tests/unit/test_frame tests/unit/test_value tests/unit/test_messages
check-valgrind: $(check_PROGRAMS)
	@command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
	for t in $(VALGRIND_TESTS); do \
		CK_FORK=no CK_TIMEOUT_MULTIPLIER=20 $(LIBTOOL) --mode=execute valgrind -q --error-exitcode=9 --leak-check=full $$t || exit 1; \
	done

c_folders = base bridge snapshot langs engine bench tests
# Everything through clang-format; of version 14, as others break lines elsewhere.
format:
	cd $(top_srcdir) && find $(c_folders) include -name '*.[ch]' | xargs clang-format -i
check-format:
	@if clang-format --version 2>/dev/null | grep -q 'version 14'; then cd $(top_srcdir) && \
		find $(c_folders) include -name '*.[ch]' | xargs clang-format --dry-run -Werror; \
	else echo "skipped: clang-format 14 is not installed"; fi
check-tidy: $(BUILT_SOURCES)
	@command -v clang-tidy >/dev/null || { echo "skipped: clang-tidy is not installed"; exit 77; }
	cd $(top_srcdir) && find base bridge snapshot langs engine -name '*.c' | xargs -P 2 -I FILE \
		clang-tidy --quiet FILE -- -std=gnu17 -D_GNU_SOURCE -I. -Iinclude -I$(abs_top_builddir) \
		-DFURCA_LIBEXEC='""' -DFURCA_BINDIR='""' -DFURCA_PYTHON='""' \
		$(MSGPACK_CFLAGS) $(URING_CFLAGS) $(CAP_CFLAGS) $(SECCOMP_CFLAGS) $(JANSSON_CFLAGS) $(SQLITE_CFLAGS) $(PYTHON_EMBED_CFLAGS)
# cppcheck knows no cleanup attribute, so leaks are left to AddressSanitizer.
check-cppcheck:
	@command -v cppcheck >/dev/null || { echo "skipped: cppcheck is not installed"; exit 77; }
	cd $(top_srcdir) && cppcheck -q --std=c11 --inline-suppr --error-exitcode=1 --enable=warning,performance,portability \
		--suppress=missingInclude --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=preprocessorErrorDirective \
		--suppress=autoVariables --suppress=nullPointerArithmeticRedundantCheck --suppress=nullPointerRedundantCheck --suppress=internalAstError \
		--suppress='missingReturn:langs/python/*' --suppress=memleak --suppress=resourceLeak --suppress=arrayIndexOutOfBoundsCond \
		-D_GNU_SOURCE -I. base bridge snapshot langs engine

# Folders are packed whole, from the build folder too: without what Python, and a `make check` before, left in them. A packed log
# would be newer than its test, so that the test would not run in the packed tree.
dist-hook:
	find $(distdir) -name __pycache__ -o -name .pytest_cache -o -name '*.egg-info' | xargs rm -rf
	find $(distdir)/tests -name '*.log' -o -name '*.trs' | xargs rm -f

.PHONY: check-stress check-unit check-e2e check-asan check-valgrind check-tidy check-cppcheck check-format format

# A thousand clones of each thread test and 30 seconds of everything at once (half an hour); the seeds are printed.
check-clones: all $(check_PROGRAMS)
	FURCA_TEST_MINUTES=0 FURCA_TEST_N=1000 FURCA_STRESS_S=30 $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(clone_tests) tests/stress/clone_stress'
# Libraries with pools of threads, from the index: 200 read-only calls of each (half an hour, 1 GB).
check-libraries: all
	$(AM_TESTS_ENVIRONMENT) FURCA_SLOW=1 FURCA_LIBRARY_CALLS=200 FURCA_TEST_SECONDS=3000 FURCA_E2E_MINUTES=0 $(SHELL) $(srcdir)/tests/e2e/run.sh $(srcdir)/tests/e2e/test_libraries.py
.PHONY: check-clones check-libraries
