# bench/: programs that `furca bench NAME` runs; they lie beside the hosts. Each uses bench/bench.h.
noinst_LTLIBRARIES += libfurca-bench.la
libfurca_bench_la_SOURCES = bench/bench.c bench/bench.h
EXTRA_DIST += bench/README.md

pkglibexec_PROGRAMS += furca-bench-call furca-bench-read
furca_bench_call_SOURCES = bench/call.c
furca_bench_call_LDADD = libfurca-bench.la libfurca-client.la
furca_bench_read_SOURCES = bench/read.c
furca_bench_read_LDADD = libfurca-bench.la libfurca-client.la
pkglibexec_PROGRAMS += furca-bench-bash
furca_bench_bash_SOURCES = bench/bash.c
furca_bench_bash_LDADD = libfurca-bench.la libfurca-client.la libfurca-lang.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)
