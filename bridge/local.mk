# bridge/: may include base, bridge/wire, engine/engine.h and engine/loop.h
noinst_LTLIBRARIES += libfurca-bridge.la
libfurca_bridge_la_SOURCES = \
	bridge/caps.c bridge/caps.h \
	bridge/conn.c bridge/conn.h \
	bridge/idmap.c bridge/idmap.h \
	bridge/listener.c \
	bridge/server.c bridge/server.h

if HAVE_CHECK
bridge_tests = tests/unit/test_conn tests/unit/test_caps tests/unit/test_server
check_PROGRAMS += $(bridge_tests)
TESTS += $(bridge_tests)
bridge_test_libs = libfurca-bridge.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)

tests_unit_test_conn_SOURCES = tests/unit/test_conn.c
tests_unit_test_conn_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_conn_LDADD = $(bridge_test_libs)
tests_unit_test_caps_SOURCES = tests/unit/test_caps.c
tests_unit_test_caps_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_caps_LDADD = $(bridge_test_libs)
# The real loop under the server, a stand-in for the engine.
tests_unit_test_server_SOURCES = tests/unit/test_server.c
tests_unit_test_server_CPPFLAGS = $(CHECK_CPPFLAGS)
tests_unit_test_server_LDADD = libfurca-bridge.la libfurca-engine.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)
endif
