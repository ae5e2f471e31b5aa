# bench/: programs that `furca bench NAME` runs; they lie beside the hosts. Each uses bench/bench.h.
noinst_LTLIBRARIES += libfurca-bench.la
libfurca_bench_la_SOURCES = bench/bench.c bench/bench.h bench/execute.c bench/execute.h bench/limit.c bench/limit.h
EXTRA_DIST += bench/README.md

pkglibexec_PROGRAMS += furca-bench-call furca-bench-commit furca-bench-read
furca_bench_call_SOURCES = bench/call.c
furca_bench_call_LDADD = libfurca-bench.la libfurca-client.la
furca_bench_commit_SOURCES = bench/commit.c
furca_bench_commit_LDADD = libfurca-bench.la libfurca-client.la
furca_bench_read_SOURCES = bench/read.c
furca_bench_read_LDADD = libfurca-bench.la libfurca-client.la
pkglibexec_PROGRAMS += furca-bench-bash
furca_bench_bash_SOURCES = bench/bash.c bench/host.c bench/host.h
furca_bench_bash_LDADD = libfurca-bench.la libfurca-client.la libfurca-lang.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)

# What CI holds calls to: counts, not times.
pkglibexec_PROGRAMS += furca-bench-guard
furca_bench_guard_SOURCES = bench/guard.c
furca_bench_guard_LDADD = libfurca-bench.la libfurca-client.la libfurca-base.la
EXTRA_DIST += bench/guard.py bench/guard.json
EXTRA_DIST += bench/results/headline.txt bench/results/safety.json bench/results/safety.html bench/results/speed.json bench/results/speed.html
check-guard: all
	FURCA_LIBEXEC='$(abs_top_builddir)' FURCA_PROGRAM='$(abs_top_builddir)/furca' $(PYTHON) $(srcdir)/bench/guard.py
.PHONY: check-guard

# The safety benchmark: its files lie in bench/safety beside the programs; the core of its cases are the matrix's.
pkglibexec_SCRIPTS = furca-bench-safety
furca-bench-safety furca-bench-speed: bench/files.sh
	$(AM_V_GEN)cp $(srcdir)/bench/files.sh $@ && chmod +x $@
CLEANFILES += furca-bench-safety
EXTRA_DIST += bench/files.sh
benchsafetydir = $(pkglibexecdir)/bench/safety
dist_benchsafety_DATA = bench/safety/cases.toml bench/safety/labs.py bench/safety/machine.py bench/safety/page.py bench/safety/report.py \
	bench/safety/requirements.txt bench/safety/run.py tests/matrix/attempts.toml tests/matrix/bash.toml tests/matrix/prelude.py
benchexecutorsdir = $(pkglibexecdir)/bench/safety/executors
dist_benchexecutors_DATA = bench/safety/executors/adapter.py bench/safety/executors/bash_sessions.py bench/safety/executors/deep_copy.py \
	bench/safety/executors/executors.toml bench/safety/executors/furca_engine.py bench/safety/executors/jupyter.py \
	bench/safety/executors/one_shot.py bench/safety/executors/plain_fork.py bench/safety/executors/shallow_copy.py

# The speed benchmark: topics with peers; it runs the programs above, too.
pkglibexec_SCRIPTS += furca-bench-speed
CLEANFILES += furca-bench-speed
benchspeeddir = $(pkglibexecdir)/bench/speed
dist_benchspeed_DATA = bench/speed/criu.py bench/speed/curves.py bench/speed/growth.py bench/speed/kept.py bench/speed/limits.py bench/speed/peers.py \
	bench/speed/run.py bench/speed/topics.py bench/speed/words.py
pkglibexec_PROGRAMS += furca-bench-start
furca_bench_start_SOURCES = bench/start.c
furca_bench_start_CPPFLAGS = $(AM_CPPFLAGS) -DFURCA_PYTHON=\"$(PYTHON)\"
furca_bench_start_LDADD = libfurca-bench.la libfurca-client.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)
pkglibexec_PROGRAMS += furca-bench-capability
furca_bench_capability_SOURCES = bench/capability.c
furca_bench_capability_CPPFLAGS = $(AM_CPPFLAGS) -DFURCA_PYTHON=\"$(PYTHON)\"
furca_bench_capability_LDADD = libfurca-bench.la libfurca-client.la libfurca-engine.la libfurca-wire.la libfurca-base.la $(URING_LIBS) $(MSGPACK_LIBS)
pkglibexec_PROGRAMS += furca-bench-copy
furca_bench_copy_SOURCES = bench/copy.c bench/copy.h bench/copy_clone.c bench/copy_warm.c bench/host.c bench/host.h
furca_bench_copy_LDADD = libfurca-bench.la libfurca-client.la libfurca-lang.la libfurca-snapshot.la -lpthread
