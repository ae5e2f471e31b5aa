"""Standard streams over descriptors 0, 1 and 2, which belong to the user's code.

Lines are written at once, as to a terminal, so that output keeps its order with that of children and of C code and nothing is
lost with the process; the rest is flushed before a fork and at the end of a call. Text without a form in UTF-8 is escaped.
"""

import io
import sys
import threading


class _Raw(io.FileIO):
    """Counts what goes through, for the place of displayed things in the output."""

    count = 0

    def write(self, data):
        n = io.FileIO.write(self, data)
        if n:
            self.count += n
        return n


def _writer(fd, name):
    raw = _Raw(fd, "w", closefd=False)
    raw.name = name
    text = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    text.mode = "w"
    return text


def _reader():
    raw = io.FileIO(0, "r", closefd=False)
    raw.name = "<stdin>"
    text = io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8", errors="surrogateescape")
    text.mode = "r"
    return text


_own = {}


def _closed(stream):
    try:
        return stream.closed
    except Exception:
        return False


def _usable(stream):
    return stream is not None and not _closed(stream)


def prepare():
    """Makes sure that there are streams: a call that closed one or set it to None is not the last to print."""
    for name in ("stdin", "stdout", "stderr"):
        own = _own.get(name)
        if getattr(sys, name, None) is own and _usable(own):
            continue
        if not _usable(own):
            own = _own[name] = _reader() if name == "stdin" else _writer(1 if name == "stdout" else 2, "<%s>" % name)
        for place in (name, "__%s__" % name):
            if not _usable(getattr(sys, place, None)):
                setattr(sys, place, own)


def install():
    """Replaces the interpreter's own streams by ours."""
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, None)
        setattr(sys, "__%s__" % name, None)
    prepare()


def flush():
    """Writes what is buffered in our own streams; what fails is left for the user's next write to find."""
    for name in ("stdout", "stderr"):
        stream = _own.get(name)
        if stream is not None:
            try:
                stream.flush()
            except Exception:
                pass


def flush_all():
    """Also flushes what the user put in their place."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream not in _own.values():
            try:
                stream.flush()
            except Exception:
                pass
    flush()


def begin():
    stream = _own["stdout"]
    stream.buffer.raw.count = 0


def written():
    """Bytes that this call has written to stdout through Python; call after flush."""
    try:
        return _own["stdout"].buffer.raw.count
    except Exception:
        return 0


class _Lent:
    """A standard stream of a process that runs on its own, while a call runs in it: the call's for the thread that runs the call, and for all
    others what it was. Who keeps it longer than the call has what it was."""

    def __init__(self, mine, was):
        self._mine, self._was, self._thread = mine, was, threading.get_ident()

    def _stream(self):
        return self._mine if self._mine is not None and threading.get_ident() == self._thread else self._was

    def __getattr__(self, name):
        return getattr(self._stream(), name)

    def __iter__(self):
        return iter(self._stream())


_before = {}       # what stood in sys before a call


def lend(out, error):
    """Leads the standard streams of this thread to a call's pipes."""
    _own.clear()
    mine = {"stdin": io.TextIOWrapper(io.BytesIO()), "stdout": _writer(out, "<stdout>"), "stderr": _writer(error, "<stderr>")}
    for name, stream in mine.items():
        _before[name] = getattr(sys, name, None)
        _before["__%s__" % name] = getattr(sys, "__%s__" % name, None)
        _own[name] = _Lent(stream, _before[name])
        setattr(sys, name, _own[name])


def take_back():
    """Puts back what stood there, unless the call's code has put something else."""
    for name, own in _own.items():
        for place in (name, "__%s__" % name):
            if getattr(sys, place, None) is own:
                setattr(sys, place, _before[place])
        own._mine = None
    _own.clear()
    _before.clear()
