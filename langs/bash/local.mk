# langs/bash/: may include base, bridge/wire, snapshot and langs. A loadable builtin of bash; needs no bash and no bash headers to build.
noinst_LTLIBRARIES += libfurca-bash.la
libfurca_bash_la_SOURCES = \
	langs/bash/bash_abi.h langs/bash/shell.h \
	langs/bash/builtin.c \
	langs/bash/call.c \
	langs/bash/capability.c \
	langs/bash/hooks.c \
	langs/bash/given.c \
	langs/bash/inspect.c \
	langs/bash/jobs.c \
	langs/bash/json.c langs/bash/json.h \
	langs/bash/setup.c \
	langs/bash/signals.c \
	langs/bash/warm.c
libfurca_bash_la_CFLAGS = $(AM_CFLAGS) -fvisibility=hidden
if SANITIZERS
# The builtin furca-fn has a hyphen in its structure's name, which AddressSanitizer's names for globals cannot have.
libfurca_bash_la_CFLAGS += --param=asan-globals=0
endif
libfurca_bash_la_LIBADD = libfurca-host.la

# One shared object, everything of ours in it and only the builtins' structures visible. Bound at load, so that a bash that
# lacks something refuses it; never unmapped, since `enable -d` would take the running loop away.
host_DATA += furca-bash.so
CLEANFILES += furca-bash.so
furca-bash.so: libfurca-bash.la $(srcdir)/langs/bash/exports.map
	$(AM_V_CCLD)$(CC) $(CFLAGS) $(FURCA_LDFLAGS) -shared -o $@.tmp \
		-Wl,-z,now,-z,nodelete,--as-needed,--version-script=$(srcdir)/langs/bash/exports.map \
		-Wl,-u,furca_host_struct,-u,capability_struct,-u,furca-fn_struct,-u,furca-reset_struct .libs/libfurca-bash.a $(CAP_LIBS) $(SECCOMP_LIBS)
	$(AM_V_at)mv -f $@.tmp $@

EXTRA_DIST += langs/bash/COPYING langs/bash/exports.map doc/bash.md

# The hand-written interface against the headers of an installed bash-builtins.
dist_check_SCRIPTS += tests/check-bash-abi.sh
TESTS += tests/check-bash-abi.sh
EXTRA_DIST += tests/bash_abi_check.c
