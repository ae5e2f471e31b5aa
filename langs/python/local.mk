# langs/python/
# The environment tool, run by the own interpreter as they are; beside the host programs.
env_scripts = envtool.py envspec.py envbuild.py envcheck.py envpython.py
host_DATA += $(env_scripts)
CLEANFILES += $(env_scripts)
EXTRA_DIST += $(env_scripts:%=langs/python/%)
$(env_scripts): %.py: langs/python/%.py
	$(AM_V_GEN)cp $< $@
