# engine/, the part for environments, stored functions and their store
noinst_LTLIBRARIES += libfurca-env.la
libfurca_env_la_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS) $(JANSSON_CFLAGS) -DFURCA_PYTHON=\"$(PYTHON)\"
libfurca_env_la_LIBADD = $(SQLITE_LIBS) $(JANSSON_LIBS)
libfurca_env_la_SOURCES = \
	engine/env.c engine/env.h engine/env_private.h \
	engine/env_build.c engine/env_method.c engine/env_vars.c \
	engine/function.c engine/function.h engine/function_private.h \
	engine/function_call.c engine/function_method.c \
	engine/method.c engine/method.h \
	engine/store.c engine/store.h \
	engine/tool.c engine/tool.h

if HAVE_CHECK
env_tests = tests/unit/test_store tests/unit/test_tool tests/unit/test_env tests/unit/test_function
check_PROGRAMS += $(env_tests)
TESTS += $(env_tests)
env_test_libs = libfurca-env.la libfurca-engine.la libfurca-lang.la libfurca-wire.la libfurca-base.la $(MSGPACK_LIBS) $(CHECK_LIBS)

tests_unit_test_store_SOURCES = tests/unit/test_store.c
tests_unit_test_store_CPPFLAGS = $(CHECK_CPPFLAGS) $(SQLITE_CFLAGS)
tests_unit_test_store_LDADD = $(env_test_libs)
tests_unit_test_tool_SOURCES = tests/unit/test_tool.c tests/unit/spawner.h
tests_unit_test_tool_CPPFLAGS = $(CHECK_CPPFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_tool_LDADD = $(env_test_libs)
tests_unit_test_env_SOURCES = tests/unit/test_env.c tests/unit/spawner.h
tests_unit_test_env_CPPFLAGS = $(CHECK_CPPFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_env_LDADD = $(env_test_libs)
tests_unit_test_function_SOURCES = tests/unit/test_function.c tests/unit/spawner.h
tests_unit_test_function_CPPFLAGS = $(CHECK_CPPFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_function_LDADD = $(env_test_libs)
endif
