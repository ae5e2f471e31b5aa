"""Exceptions as text for a model: the user's frames only, bounded."""

import traceback
import types

MAX_TEXT = 64 * 1024
OURS = "<furca>"
USER = ("<call ", "<function ")


def cut(text, limit, more=0):
    """UTF-8 bytes of the text, head and tail kept, and how many bytes were left out. `more`: bytes that are missing in its middle already."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit and not more:
        return data, 0
    note = b"\n... %d bytes left out ...\n"
    room = max(limit - len(note) - 20, 0)
    head = data[:room - room // 3]
    tail = data[len(data) - room // 3:] if room // 3 else b""
    head = head.decode("utf-8", "ignore").encode()
    tail = tail.decode("utf-8", "ignore").encode()
    left = len(data) - len(head) - len(tail) + more
    return head + note % left + tail, left


def _frames(tb):
    frames = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    return frames


def _strip(tb):
    """The traceback without our frames, and without what led to the user's first one (the event loop)."""
    frames = _frames(tb)
    for index, entry in enumerate(frames):
        if entry.tb_frame.f_code.co_filename.startswith(USER):
            frames = frames[index:]
            break
    stripped = None
    for entry in reversed(frames):
        if entry.tb_frame.f_code.co_filename != OURS:
            stripped = types.TracebackType(stripped, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return stripped


def strip(error, seen=None):
    """Strips the exception and all that it is chained to, in place."""
    seen = set() if seen is None else seen
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        try:
            error.__traceback__ = _strip(error.__traceback__)
        except Exception:
            pass
        for inner in getattr(error, "exceptions", None) or ():
            if isinstance(inner, BaseException):
                strip(inner, seen)
        if isinstance(error.__cause__, BaseException):
            strip(error.__cause__, seen)
        error = error.__context__


def _name(error):
    kind = type(error)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "." + kind.__qualname__


def text(error):
    """Traceback and message of an exception as UTF-8 bytes; never raises, whatever its __str__ does."""
    strip(error)
    try:
        whole = "".join(traceback.TracebackException(type(error), error, error.__traceback__).format())
    except BaseException as second:
        try:
            whole = "%s: <its text cannot be made: %s>" % (_name(error), _name(second))
        except BaseException:
            whole = "an exception whose text cannot be made"
    return cut(whole.rstrip("\n"), MAX_TEXT)[0]


def raised(error):
    """An exception for the process that called the function: {type, message, suggestion?}. Never raises."""
    try:
        told = {"type": _name(error), "message": str(error)}
        if type(error).__module__ == "capabilities":  # it has crossed before
            told = {"type": error.type, "message": error.message, "suggestion": error.suggestion}
        return {key: cut(value or "", MAX_TEXT // 2)[0].decode("utf-8", "replace") for key, value in told.items()}
    except BaseException:
        return {"type": "RuntimeError", "message": "an exception whose text cannot be made"}
