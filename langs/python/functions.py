"""The name `functions`: stored functions, called by name from any session. The calls themselves are capability.py's."""

import sys


def _coordinate(state_mode, session, session_id, session_name):
    """Where a function is to run, as fields of its call. `session` is a number or a name."""
    if session is not None:
        if isinstance(session, bool) or not isinstance(session, (int, str)):
            raise TypeError("session is a session's number or its name, not %s" % type(session).__name__)
        if isinstance(session, int):
            session_id = session
        else:
            session_name = session
    where = {"state_mode": state_mode, "session_id": session_id, "session_name": session_name}
    return {key: value for key, value in where.items() if value is not None}


class Function:
    """A stored function. Called plainly, it runs in this namespace where it is for the own interpreter, else as a stateless call;
    .stateful(...), .stateless(...) and .read_only(...) say so, with session= (a number or a name) where it is to run."""

    __slots__ = ("_name", "_where", "_own", "__weakref__")

    def __init__(self, name, where=None, own=None):
        self._name = name
        self._where = where
        self._own = own

    def _call(self, args, kwargs, where, frame):
        return capability.invoke(capability.FUNCTION, self._name, args, kwargs, where, frame, self._own)

    def on(self, state_mode=None, session_id=None, session_name=None, session=None):
        """The same function at another coordinate; its arguments may have any name then."""
        return Function(self._name, _coordinate(state_mode, session, session_id, session_name), self._own)

    def __call__(self, *args, **kwargs):
        return self._call(args, kwargs, self._where, sys._getframe(1))

    def stateful(self, *args, session=None, session_id=None, session_name=None, **kwargs):
        """Runs it in a session, which keeps what it does. None named: in this namespace if it is for it, else in session 0 of its kind."""
        return self._call(args, kwargs, _coordinate("stateful", session, session_id, session_name), sys._getframe(1))

    def stateless(self, *args, **kwargs):
        """Runs it in a fresh process."""
        return self._call(args, kwargs, {"state_mode": "stateless"}, sys._getframe(1))

    def read_only(self, *args, session=None, session_id=None, session_name=None, **kwargs):
        """Runs it in a copy of a session, as it was committed last; of this one if none is named."""
        return self._call(args, kwargs, _coordinate("read_only", session, session_id, session_name), sys._getframe(1))

    @property
    def __doc__(self):
        entry = capability.entries("functions").get(self._name) or {}
        return entry.get("doc") or "The stored function %s." % self._name

    def __repr__(self):
        return "<stored function %s>" % self._name

    def __reduce__(self):
        return (_restore, (self._name, self._own))


class Functions:
    """The stored functions: functions.NAME(...)."""

    __slots__ = ()

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Function(name, None, capability.bound_here(sys._getframe(1)))

    def __getitem__(self, name):
        return Function(name, None, capability.bound_here(sys._getframe(1)))

    def __dir__(self):
        return sorted(capability.entries("functions"))

    def __repr__(self):
        return "<functions: %s>" % ", ".join(dir(self))

    def __reduce__(self):
        return (_restore, ("",))


functions = Functions()
for _each in (Function, Functions):
    _each.__module__ = "capabilities"


def _restore(name, own=None):
    return Function(name, None, own) if name else functions
