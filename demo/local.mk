# demo/: the main job on real data, `furca demo`; it brings the client package, so that it runs from an installed tree
pkglibexec_SCRIPTS += furca-demo
furca-demo: demo/run.sh
	$(AM_V_GEN)cp $(srcdir)/demo/run.sh $@ && chmod +x $@
CLEANFILES += furca-demo
EXTRA_DIST += demo/run.sh
demodir = $(pkglibexecdir)/demo
dist_demo_DATA = demo/audit.py
install-data-hook:
	$(MKDIR_P) $(DESTDIR)$(demodir)/furca
	cp $(srcdir)/bridge/python/furca/*.py $(DESTDIR)$(demodir)/furca
	chmod 644 $(DESTDIR)$(demodir)/furca/*
uninstall-hook:
	rm -rf $(DESTDIR)$(demodir)/furca
