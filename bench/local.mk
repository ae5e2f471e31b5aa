# bench/: programs that `furca bench NAME` runs; they lie beside the hosts
pkglibexec_PROGRAMS += furca-bench-call furca-bench-read
furca_bench_call_SOURCES = bench/bench.c bench/bench.h bench/call.c
furca_bench_call_LDADD = libfurca-client.la
furca_bench_read_SOURCES = bench/bench.c bench/bench.h bench/read.c
furca_bench_read_LDADD = libfurca-client.la
pkglibexec_PROGRAMS += furca-bench-bash
furca_bench_bash_SOURCES = bench/bench.c bench/bench.h bench/bash.c
furca_bench_bash_LDADD = libfurca-client.la libfurca-lang.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)
