"""The exceptions of calls that left the session and failed."""

import builtins


class CapabilityError(Exception):
    """A capability or a stored function failed. Subclasses made on demand carry the remote type's name and, where it names a
    built-in exception, are caught by `except` of that one too."""

    type = "CapabilityError"
    traceback = None
    suggestion = None
    reader = None  # the arguments could not be read, and nothing ran: the versions that are there

    def __init__(self, message="", type=None, traceback=None, suggestion=None):
        Exception.__init__(self, message)
        self.message = message
        if type is not None:
            self.type = type
        self.traceback = traceback
        self.suggestion = suggestion

    def __str__(self):
        text = self.message
        if self.suggestion:
            text += "\n" + self.suggestion
        return text

    def __reduce__(self):
        return (_rebuild, (self.type, self.message, self.traceback, self.suggestion))


CapabilityError.__module__ = "capabilities"
_kinds = {}
_NOT_BASES = ("StopIteration", "StopAsyncIteration", "Exception", "BaseException")  # the first two end a loop of generators in silence


def _made(name, bases):
    """A class whose instances can be made without arguments, or None."""
    space = {"type": name, "__module__": "capabilities", "__doc__": CapabilityError.__doc__, "__init__": CapabilityError.__init__,
             "__str__": CapabilityError.__str__, "__reduce__": CapabilityError.__reduce__}
    try:
        kind = type(CapabilityError)(name, bases, space)
        kind.__new__(kind)
        return kind
    except TypeError:
        return None


def _kind(name):
    kind = _kinds.get(name)
    if kind is None:
        base = getattr(builtins, name, None)
        if isinstance(base, type) and issubclass(base, Exception) and name not in _NOT_BASES:
            kind = _made(name, (CapabilityError, base)) or _made(name, (base, CapabilityError))  # MemoryError's own making must come first
        kind = kind or _made(name, (CapabilityError,))
        if len(_kinds) < 1000:
            _kinds[name] = kind
    return kind


def failed(name, message, traceback=None, suggestion=None, reader=None):
    """The exception of a call that failed; called from C."""
    name = name or "CapabilityError"
    word = name.rpartition(".")[2]
    kind = CapabilityError if name == "CapabilityError" else _kind(word if word.isidentifier() else "CapabilityError")
    error = kind.__new__(kind)
    CapabilityError.__init__(error, message or name, name, traceback, suggestion)
    if isinstance(error, SyntaxError):  # what shows those looks here
        error.msg = message or name
    if reader is not None:
        error.reader = reader
    return error


_rebuild = failed
