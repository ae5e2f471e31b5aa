"""Finds the interpreters of this machine that an environment may use, and chooses one.

Looked at: the interpreter that runs this, PATH, pyenv's versions, uv's own. What an interpreter says of itself is kept in a
file, by path, size and time of change, so that each is started once only.
"""
import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import sys

OLDEST, NEWEST = (3, 9), (3, 14)
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

_PROBE = """
import json, sys, sysconfig
print(json.dumps({
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "prefix": sys.base_prefix,
    "version": ".".join(map(str, sys.version_info[:3])),
    "release": sys.version_info[3],
    "implementation": sys.implementation.name,
    "soabi": sysconfig.get_config_var("SOABI") or "",
    "bits": 64 if sys.maxsize > 2**32 else 32,
}))
"""


def die_with_parent():
    """In a child before its program: it dies with this process, whatever ends that."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _candidates():
    """Paths that may be interpreters, the own one first, each real file once."""
    paths = [getattr(sys, "_base_executable", None) or sys.executable]
    names = ["python3"] + ["python3.%d" % minor for minor in range(OLDEST[1], NEWEST[1] + 1)]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        # Shims start whatever pyenv has chosen; its versions are looked at one by one below.
        if folder and os.path.realpath(folder) != os.path.realpath(os.path.join(pyenv, "shims")):
            paths += [os.path.join(folder, name) for name in names]
    paths += sorted(glob.glob(os.path.join(glob.escape(pyenv), "versions", "*", "bin", "python3")))
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python")
    paths += sorted(glob.glob(os.path.join(glob.escape(uv), "*", "bin", "python3")))
    seen = set()
    for path in paths:
        real = os.path.realpath(path)
        if real not in seen and os.path.isfile(real) and os.access(real, os.X_OK):
            seen.add(real)
            # The path given is what is asked: a venv's interpreter finds itself by it, and names its base.
            yield path, real


def _ask(paths):
    """Starts each interpreter, all at once; what each says of itself, or None, by path."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    started = []
    for path in paths:
        try:
            started.append((path, subprocess.Popen([path, "-I", "-S", "-c", _PROBE], stdin=subprocess.DEVNULL, env=environ,
                                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)))
        except OSError:
            continue
    said = dict.fromkeys(paths)
    for path, process in started:
        try:
            said[path] = json.loads(process.communicate(timeout=20)[0])
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            process.wait()
    return said


def _read_cache(path):
    try:
        with open(path, encoding="utf-8") as file:
            cache = json.load(file)
        return cache if isinstance(cache, dict) else {}
    except (OSError, ValueError):
        return {}


def _write_cache(path, cache):
    scratch = "%s.%d" % (path, os.getpid())
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump(cache, file)
        os.replace(scratch, path)
    except OSError:
        pass  # Asking them again next time is all that is lost.


def find(cache_path=None):
    """The usable interpreters: CPython of 64 bits, OLDEST to NEWEST, with the GIL. The own one first, then the newest first."""
    old = _read_cache(cache_path) if cache_path else {}
    cache, unknown = {}, {}
    for path, real in _candidates():
        stat = os.stat(real)
        key = "%s|%d|%d" % (path, stat.st_size, stat.st_mtime_ns)
        if key in old:
            cache[key] = old[key]
        else:
            unknown[path] = key
            cache[key] = None  # Keeps the order of discovery.
    for path, said in _ask(list(unknown)).items():
        cache[unknown[path]] = said
    if cache_path and cache != old:
        _write_cache(cache_path, cache)
    found, seen = [], set()
    for said in cache.values():
        if said and usable(said) and os.path.realpath(said["executable"]) not in seen:
            seen.add(os.path.realpath(said["executable"]))
            found.append(said)
    return found[:1] + sorted(found[1:], key=lambda one: version_of(one), reverse=True)


def version_of(said):
    return tuple(int(part) for part in said["version"].split("."))


def usable(said):
    return (said["implementation"] == "cpython" and said["bits"] == 64 and OLDEST <= version_of(said)[:2] <= NEWEST
            and not re.match(r"cpython-\d+t", said["soabi"]))


def choose(found, specifier):
    """The own interpreter where it meets `specifier` (a packaging SpecifierSet), else the newest that does, else None."""
    for said in found:
        if specifier.contains(said["version"], prereleases=True):
            return said
    return None


def describe(found):
    return ", ".join("%s (%s)" % (one["version"], one["executable"]) for one in found) or "none"
