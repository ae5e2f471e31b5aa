# packaging/: the user's systemd unit, the Debian packages, the container
EXTRA_DIST += packaging/furca.service.in packaging/build-deb.sh packaging/try-deb.sh packaging/debian Dockerfile

systemduserunitdir = $(prefix)/lib/systemd/user
nodist_systemduserunit_DATA = packaging/furca.service
CLEANFILES += packaging/furca.service
packaging/furca.service: packaging/furca.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) packaging && sed 's|@[b]indir@|$(bindir)|' $(srcdir)/packaging/furca.service.in >$@

# The Debian packages, built from this tree and tried in an overlay of this machine.
check-deb:
	$(srcdir)/packaging/build-deb.sh $(abs_builddir)/deb
	$(srcdir)/packaging/try-deb.sh $(abs_builddir)/deb

# The container's steps, in a root of its own and without Docker.
check-dockerfile:
	$(srcdir)/tests/dockerfile.sh
dist_check_SCRIPTS += tests/fresh-root.sh tests/dockerfile.sh

.PHONY: check-deb check-dockerfile
