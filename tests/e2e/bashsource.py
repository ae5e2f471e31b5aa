"""The source package of GNU bash: its own test scripts, and the small programs they call. Not part of this project: taken from
$FURCA_BASH_SOURCE, else fetched with `apt-get source bash` where deb-src is configured. Kept in $XDG_CACHE_HOME/furca-tests.
"""
import os
import re
import shutil
import subprocess


class Missing(Exception):
    """Cannot be had here; says why."""


def source(bash="/bin/bash"):
    """The unpacked source tree of the release that `bash` is."""
    given = os.environ.get("FURCA_BASH_SOURCE")
    if given:
        return given
    version = subprocess.run([bash, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"version (\d+\.\d+)", version)[1]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "furca-tests", "bash-" + release)
    if not os.path.isdir(os.path.join(cache, "tests")):
        scratch = cache + ".new"
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch)
        got = subprocess.run(["apt-get", "source", "-qq", "bash"], cwd=scratch, capture_output=True, text=True)
        trees = [d for d in os.listdir(scratch) if os.path.isdir(os.path.join(scratch, d, "tests"))]
        if not trees or not trees[0].startswith("bash-" + release):
            raise Missing("needs the source of bash %s (apt-get source bash, or FURCA_BASH_SOURCE): %s"
                          % (release, (got.stderr.strip().splitlines() or ["no such tree"])[-1]))
        shutil.rmtree(cache, ignore_errors=True)
        os.rename(os.path.join(scratch, trees[0]), cache)
        shutil.rmtree(scratch, ignore_errors=True)
    return cache


def helpers(tree, into):
    """Builds recho, zecho, printenv and xcase, without configuring bash; the directory they are in."""
    for header in ("config.h", "bashansi.h"):
        with open(os.path.join(into, header), "w"):
            pass
    for name in ("recho", "zecho", "printenv", "xcase"):
        subprocess.run(["cc", "-w", "-I", into, "-include", "stdlib.h", "-include", "string.h", "-include", "unistd.h", "-o",
                        os.path.join(into, name), os.path.join(tree, "support", name + ".c")], check=True, capture_output=True)
    return into


def environment(bash, helper_directory):
    env = dict(os.environ, THIS_SH=bash, BUILD_DIR="..", TMPDIR="/tmp", PATH=".:%s:%s" % (helper_directory, os.environ["PATH"]))
    for name in ("BASH_ENV", "SHELLOPTS", "OLDPWD"):
        env.pop(name, None)
    return env
