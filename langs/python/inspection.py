"""What is inside a session: names, kinds, sizes, short texts. Runs in a throw-away copy, bounded in time by a timer."""

import re
import signal
import sys
import time
import types

TEXT = {"names": 200, "full": 2000}
TEXT_ONE = 64 * 1024
BUDGET_S = 2.0
ONE_S = 0.2
MAX_NAMES = 10000
SECRET = re.compile(r"(?i)passw|secret|token|api_?key|private_?key|credential|auth_?key|^pw$|_pw$")
ARRAYS = ("numpy", "pandas", "torch", "polars", "xarray", "jax", "jaxlib", "cupy", "scipy", "tensorflow", "pyarrow")


class _TooLong(BaseException):
    pass


def _on_alarm(number, frame):
    raise _TooLong


class _Clock:
    """At most so long for one thing and for all; off where the timer cannot be had."""

    def __init__(self):
        self.end = time.monotonic() + BUDGET_S
        try:
            signal.signal(signal.SIGALRM, _on_alarm)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        except (ValueError, OSError):
            pass

    def run(self, function, *args):
        left = min(self.end - time.monotonic(), ONE_S)
        if left <= 0:
            return None
        try:
            signal.setitimer(signal.ITIMER_REAL, left)
            try:
                return function(*args)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _TooLong:
            return None
        except (KeyboardInterrupt, SystemExit, Exception):
            return None


def _kind(value):
    """By the real type alone: isinstance() would ask the value for its __class__, and run its code."""
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        return "module"
    if issubclass(kind, type):
        return "class"
    if issubclass(kind, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return "function"
    return "variable"


def _utf8(word):
    """With lone surrogates (names made by code, paths whose bytes are no UTF-8) written out: they have no form on the wire."""
    return str.encode(word, "utf-8", "backslashreplace").decode()


def _type(value):
    kind = type(value)
    module = type.__getattribute__(kind, "__module__")
    name = type.__getattribute__(kind, "__qualname__")
    return name if module in ("builtins", "__main__") else "%s.%s" % (module, name)


def _package(value):
    module = type(value).__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def _shape(value):
    if type(value) in (list, tuple, dict, set, frozenset, str, bytes, bytearray):
        return [len(value)]
    if _package(value) in ARRAYS:
        shape = getattr(value, "shape", None)
        if shape is not None:
            return [int(n) for n in tuple(shape)[:16]]
    return None


def _bytes(value):
    if _package(value) in ARRAYS:
        usage = getattr(value, "memory_usage", None)
        if callable(usage):
            used = usage()
            return int(used.sum() if hasattr(used, "sum") else used)
        if hasattr(value, "nbytes"):
            return int(value.nbytes)
        if hasattr(value, "element_size"):
            return int(value.element_size() * value.nelement())
    return sys.getsizeof(value)


def _text(name, value, limit):
    if SECRET.search(name):
        return "<redacted>"
    if _kind(value) == "module":
        return getattr(value, "__file__", None) or "built-in"
    if isinstance(value, dict) or type(value).__name__ == "_Environ":
        value = {key: "<redacted>" if isinstance(key, str) and SECRET.search(key) else item for key, item in value.items()}
    return text.of(value, limit)[0].decode("utf-8", "replace")


def _entry(clock, name, value, origin, limit):
    kind = clock.run(_type, value)
    entry = {"name": _utf8(name), "kind": _kind(value), "type": _utf8(kind) if isinstance(kind, str) and kind else "?"}
    for key, function in (("shape", _shape), ("bytes", _bytes)):
        found = clock.run(function, value) if entry["kind"] == "variable" else None
        if found is not None:
            entry[key] = found
    if limit:
        shown = clock.run(_text, name, value, limit)
        entry["text"] = _utf8(shown) if isinstance(shown, str) else "<no text in time>"
    entry["set_by_call"], entry["changed_by_call"] = origin
    return entry


def _counts(entries):
    counts = {}
    for entry in entries:
        counts[entry["kind"]] = counts.get(entry["kind"], 0) + 1
    plural = {"class": "classes"}
    return ", ".join("%d %s" % (n, kind if n == 1 else plural.get(kind, kind + "s")) for kind, n in sorted(counts.items()))


def state(namespace, hidden, origins, detail, name):
    clock = _Clock()
    entries = []
    names = [key for key in namespace if isinstance(key, str) and (key == name if name else not hidden(key, namespace[key]))]
    limit = TEXT_ONE if name else TEXT["full" if detail == "full" else "names"]
    for key in names[:MAX_NAMES]:
        if detail == "summary":
            entries.append({"name": _utf8(key), "kind": _kind(namespace[key])})
        else:
            entries.append(_entry(clock, key, namespace[key], origins.get(key, (None, None)), limit))
            table = clock.run(tables.of, namespace[key]) if name and not SECRET.search(name) else None
            if table is not None:
                entries[-1]["table"] = table
    answer = {"names": [] if detail == "summary" else entries, "count": len(names), "summary": _counts(entries) or "empty"}
    if detail == "full":
        import os
        answer["cwd"] = _utf8(os.getcwd())
        answer["argv"] = [_utf8(str(word)) for word in sys.argv]
        answer["path"] = [_utf8(str(entry)) for entry in sys.path]
    return answer
