"""Capabilities: functions of this process that code in sessions may call."""
from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
import threading
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._object import is_object
from ._wire import Frame, Handle

EFFECTS = ("read", "write")

# The connection and call_id of the capability call that is being served here: executes made meanwhile say so, and the engine knows whether one would
# wait for itself. Tasks inherit it, and threads started by asyncio.to_thread.
serving: "contextvars.ContextVar[Optional[Tuple[object, int]]]" = contextvars.ContextVar("furca_serving", default=None)


def within(connection: object) -> Optional[int]:
    """What an execute says: a call_id, 0 for none; None where another connection is being served, whose calls this one cannot name."""
    served = serving.get()
    return 0 if served is None else served[1] if served[0] is connection else None


class Capability:
    def __init__(self, function: Callable[..., Any], name: Optional[str], effect: str, doc: Optional[str]) -> None:
        if effect not in EFFECTS:
            raise ValueError("effect is 'read' or 'write', not %r" % (effect,))
        self.function = function
        self.name = name or function.__name__
        self.effect = effect
        self.doc = doc if doc is not None else inspect.getdoc(function)

    def declaration(self) -> Dict[str, Any]:
        entry: Dict[str, Any] = {"name": self.name, "effect": self.effect, "objects": True}
        if self.doc:
            entry["doc"] = self.doc
        try:
            entry["params"] = [str(p) for p in inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):
            pass
        return entry


def declarations(capabilities: Dict[str, Capability]) -> List[Dict[str, Any]]:
    return [capability.declaration() for capability in capabilities.values()]


def failure(error: BaseException) -> Dict[str, Any]:
    """The error map of a capability that raised; the session raises an exception of that type name."""
    try:
        text = str(error)
    except Exception as e:
        text = "<no text: %s>" % type(e).__name__
    return {"type": type(error).__name__, "message": text,
            "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))}


class Kept:
    """Objects of this process that code in sessions holds by handles. One that code has let go as often as it was given is dropped."""

    def __init__(self, of_code: Callable[[Handle], Any]) -> None:
        self._of_code = of_code  # makes an object of a handle that code gave
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._objects: Dict[str, Tuple[Any, int]] = {}
        self._tokens: Dict[int, str] = {}

    def give(self, value: Any) -> Handle:
        with self._lock:
            token = self._tokens.get(id(value))
            if token is None:
                token = "o%d" % next(self._ids)
                self._tokens[id(value)] = token
            _, given = self._objects.get(token, (value, 0))
            self._objects[token] = (value, given + 1)
        return Handle(token.encode())

    def release(self, token: str) -> None:
        with self._lock:
            value, given = self._objects.get(token, (None, 0))
            if given > 1:
                self._objects[token] = (value, given - 1)
            elif given:
                del self._objects[token], self._tokens[id(value)]

    def back(self, value: Any) -> Any:
        """What code sent, with objects in the place of their handles, and arrays in that of their bytes."""
        if isinstance(value, Frame):
            return value.load()
        if isinstance(value, Handle):
            if is_object(value.data):
                return self._of_code(value)
            entry = self._objects.get(value.data.decode(errors="replace"))
            return entry[0] if entry else value
        if isinstance(value, list):
            return [self.back(v) for v in value]
        if isinstance(value, dict):
            return {k: self.back(v) for k, v in value.items()}
        return value

    def read(self, token: str, name: str) -> Dict[str, Any]:
        """An attribute's value, or that it is a method."""
        value = self.method(token, name)
        return {"method": True} if callable(value) else {"value": value}

    def method(self, token: str, name: str) -> Callable[..., Any]:
        entry = self._objects.get(token)
        if entry is None:
            raise ReferenceError("the object is no longer kept")
        if name.startswith("_"):
            raise AttributeError("%r is not for code in sessions" % name)
        return getattr(entry[0], name)  # type: ignore[no-any-return]


def function_of(capabilities: Dict[str, Capability], kept: Kept, method: str, params: Dict[str, Any]) -> Callable[..., Any]:
    """What a request of the engine calls."""
    if method != "capability":
        raise LookupError("no method named %r" % method)
    if params.get("handle") is not None:
        if params.get("read"):
            return functools.partial(kept.read, params["handle"], params["name"])
        return kept.method(params["handle"], params["name"])
    if params["name"] not in capabilities:
        raise LookupError("no capability named %r" % params["name"])
    return capabilities[params["name"]].function
