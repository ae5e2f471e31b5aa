# langs/python/
furca_python_sources = \
	langs/python/streams.py langs/python/errors.py langs/python/text.py langs/python/tables.py langs/python/display.py \
	langs/python/awaits.py bridge/python/furca/_frames.py langs/python/failures.py langs/python/capability.py \
	langs/python/functions.py langs/python/inspection.py langs/python/pure.py langs/python/guard.py langs/python/children.py langs/python/calls.py
EXTRA_DIST += $(furca_python_sources) langs/python/embed.py

langs/python/modules.h: $(furca_python_sources) langs/python/embed.py
	$(AM_V_GEN)$(MKDIR_P) langs/python && cd $(srcdir) && \
	$(PYTHON) langs/python/embed.py $(abs_builddir)/$@ $(furca_python_sources)
BUILT_SOURCES += langs/python/modules.h
CLEANFILES += langs/python/modules.h

# The session, in the limited API, for both programs below.
noinst_LTLIBRARIES += libfurca-python.la
libfurca_python_la_SOURCES = \
	langs/python/call.c langs/python/call.h \
	langs/python/codec.c langs/python/codec.h \
	langs/python/dotted.c langs/python/dotted.h \
	langs/python/lanes.c langs/python/lanes.h \
	langs/python/lanes_frame.c langs/python/lanes_frame.h \
	langs/python/lanes_loop.c \
	langs/python/names.c langs/python/names.h \
	langs/python/parked.c langs/python/parked.h \
	langs/python/quick.c langs/python/quick.h \
	langs/python/runtime.c langs/python/runtime.h \
	langs/python/session.c langs/python/session.h \
	langs/python/source.c langs/python/source.h
nodist_libfurca_python_la_SOURCES = langs/python/modules.h
libfurca_python_la_CPPFLAGS = $(AM_CPPFLAGS) $(PYTHON_EXT_CFLAGS) -DPy_LIMITED_API=0x03090000
libfurca_python_la_LIBADD = libfurca-host.la

# The own interpreter.
pkglibexec_PROGRAMS += furca-python
furca_python_SOURCES = langs/python/main.c
furca_python_CPPFLAGS = $(AM_CPPFLAGS) $(PYTHON_EMBED_CFLAGS) -DFURCA_PYTHON=\"$(PYTHON)\"
furca_python_LDADD = libfurca-python.la libfurca-host.la $(PYTHON_EMBED_LIBS) $(MSGPACK_LIBS)
furca_python_LDFLAGS = $(AM_LDFLAGS) $(FURCA_PROGRAM_LDFLAGS) -Wl,--export-dynamic

# The module that an environment's interpreter loads, whatever its version from 3.9 on.
host_DATA += _furca_host.abi3.so
CLEANFILES += _furca_host.abi3.so
_furca_host.abi3.so: libfurca-python.la
	$(AM_V_CCLD)$(CC) -shared $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -o $@ -Wl,-Bsymbolic \
	-Wl,-u,PyInit__furca_host .libs/libfurca-python.a $(MSGPACK_LIBS) $(CAP_LIBS) $(SECCOMP_LIBS) -lpthread -ldl

# The environment tool and the checker of stored functions, run by the own interpreter as they are; beside the host programs.
env_scripts = envtool.py envspec.py envbuild.py envcheck.py envpython.py functool.py
host_DATA += $(env_scripts)
CLEANFILES += $(env_scripts)
EXTRA_DIST += $(env_scripts:%=langs/python/%)
$(env_scripts): %.py: langs/python/%.py
	$(AM_V_GEN)cp $< $@
