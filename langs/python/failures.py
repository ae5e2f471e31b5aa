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
_NOT_BASES = ("StopIteration", "StopAsyncIteration", "Exception", "BaseException", "SyntaxError", "IndentationError", "TabError")


def _kind(name):
    kind = _kinds.get(name)
    if kind is None:
        base = getattr(builtins, name, None)
        bases = (CapabilityError,)
        if isinstance(base, type) and issubclass(base, Exception) and name not in _NOT_BASES:
            bases = (CapabilityError, base)
        space = {"type": name, "__module__": "capabilities", "__doc__": CapabilityError.__doc__, "__str__": CapabilityError.__str__}
        try:
            kind = type(CapabilityError)(name, bases, space)
        except TypeError:
            kind = type(CapabilityError)(name, (CapabilityError,), space)
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
    if reader is not None:
        error.reader = reader
    return error


_rebuild = failed
