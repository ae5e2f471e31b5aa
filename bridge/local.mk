# bridge/: may include base, bridge/wire, engine/engine.h and engine/loop.h
noinst_LTLIBRARIES += libfurca-bridge.la
libfurca_bridge_la_SOURCES = \
	bridge/caps.c bridge/caps.h bridge/caps_private.h \
	bridge/conn.c bridge/conn.h \
	bridge/fair.c bridge/fair.h \
	bridge/handles.c bridge/handles.h \
	bridge/listener.c \
	bridge/objects.c \
	bridge/offers.c bridge/offers.h \
	bridge/server.c bridge/server.h bridge/server_private.h \
	bridge/server_bytes.c
libfurca_bridge_la_LIBADD = libfurca-client.la

# The client library: what include/furca.h declares is all that the shared one shows.
noinst_LTLIBRARIES += libfurca-client.la
libfurca_client_la_CPPFLAGS = $(AM_CPPFLAGS) -DFURCA_BINDIR=\"$(bindir)\"
libfurca_client_la_CFLAGS = $(AM_CFLAGS) -pthread
libfurca_client_la_SOURCES = \
	include/furca.h bridge/client.h \
	bridge/args.c bridge/args.h \
	bridge/client.c bridge/client_call.c bridge/client_caps.c bridge/client_open.c bridge/client_result.c \
	bridge/idmap.c bridge/idmap.h bridge/json.c bridge/json.h
libfurca_client_la_LIBADD = libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)

lib_LTLIBRARIES += libfurca.la
include_HEADERS += include/furca.h
EXTRA_DIST += bridge/furca.sym
libfurca_la_SOURCES =
libfurca_la_LIBADD = libfurca-client.la $(MSGPACK_LIBS)
libfurca_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols $(top_srcdir)/bridge/furca.sym -no-undefined -pthread

# The subcommands of the program.
noinst_LTLIBRARIES += libfurca-cli.la
libfurca_cli_la_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
libfurca_cli_la_CFLAGS = $(AM_CFLAGS) -pthread
libfurca_cli_la_SOURCES = \
	bridge/cli.c bridge/cli.h bridge/cli_bench.c bridge/cli_engine.c bridge/cli_envs.c bridge/cli_exec.c bridge/cli_frame.c bridge/cli_inspect.c bridge/cli_options.c bridge/cli_output.c bridge/cli_sessions.c bridge/cli_show.c bridge/cli_show.h bridge/cli_top.c bridge/cli_words.c \
	bridge/commands.c \
	bridge/doctor.c \
	bridge/json_read.c bridge/json_read.h \
	bridge/mcp.c bridge/mcp.h bridge/mcp_text.c bridge/mcp_tools.c \
	bridge/mcp_config.c bridge/mcp_config.h bridge/mcp_modern.c bridge/mcp_modern.h bridge/mcp_peer.c bridge/mcp_peer.h bridge/mcp_servers.c bridge/mcp_servers.h \
	bridge/mcp_value.c bridge/mcp_value.h \
	bridge/schema.c bridge/schema.h \
	bridge/serve.c
libfurca_cli_la_LIBADD = $(JANSSON_LIBS)

if HAVE_CHECK
bridge_tests = tests/unit/test_conn tests/unit/test_caps tests/unit/test_caps_objects tests/unit/test_client tests/unit/test_server
check_PROGRAMS += $(bridge_tests)
TESTS += $(bridge_tests)
bridge_test_libs = libfurca-bridge.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)

tests_unit_test_conn_SOURCES = tests/unit/test_conn.c
tests_unit_test_conn_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_conn_LDADD = $(bridge_test_libs)
tests_unit_test_caps_SOURCES = tests/unit/test_caps.c tests/unit/caps_lab.h
tests_unit_test_caps_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_caps_LDADD = $(bridge_test_libs)
tests_unit_test_caps_objects_SOURCES = tests/unit/test_caps_objects.c tests/unit/caps_lab.h
tests_unit_test_caps_objects_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_caps_objects_LDADD = $(bridge_test_libs)
tests_unit_test_client_SOURCES = tests/unit/test_client.c
tests_unit_test_client_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_client_CFLAGS = $(AM_CFLAGS) -pthread
tests_unit_test_client_LDADD = $(bridge_test_libs)
# The real loop under the server, a stand-in for the engine.
tests_unit_test_server_SOURCES = tests/unit/test_server.c
tests_unit_test_server_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_server_LDADD = libfurca-bridge.la libfurca-engine.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)
endif

# A fuzz target, which without a fuzzer replays its corpus.
check_PROGRAMS += tests/fuzz/fuzz_conn
TESTS += tests/fuzz/fuzz_conn
tests_fuzz_fuzz_conn_SOURCES = tests/fuzz/fuzz_conn.c tests/fuzz/replay.c
tests_fuzz_fuzz_conn_LDADD = libfurca-bridge.la libfurca-client.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS)
EXTRA_DIST += tests/fuzz/corpus/conn

# The library's example and end-to-end test, linked as a user would link it.
check_PROGRAMS += tests/driver
tests_driver_SOURCES = tests/driver.c
tests_driver_LDADD = libfurca.la

# The program: the engine, its command line and the tools' front.
bin_PROGRAMS += furca
furca_SOURCES = bridge/furca.c
furca_LDADD = libfurca-cli.la libfurca-bridge.la libfurca-client.la libfurca-engine.la libfurca-lang.la \
	libfurca-snapshot.la libfurca-wire.la libfurca-base.la $(URING_LIBS) $(MSGPACK_LIBS) $(JANSSON_LIBS) $(SQLITE_LIBS) \
	$(CAP_LIBS) $(SECCOMP_LIBS)
furca_LDFLAGS = $(AM_LDFLAGS) $(FURCA_PROGRAM_LDFLAGS) -pthread

dist_man_MANS += man/furca.1
# bash-completion finds NAME.bash as well as NAME.
bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = completion/furca.bash
