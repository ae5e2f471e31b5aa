"""Objects of code in sessions, held here by handles: their attributes are read and their methods run in the session, while a capability is being
served to its code."""
from __future__ import annotations

import collections
import functools
import weakref
from typing import Any, Callable, Deque, Dict, Tuple

from ._result import CodeError
from ._wire import Handle


def is_object(data: bytes) -> bool:
    """Whether a handle stands for an object of code, and not for one of ours."""
    return data.startswith(b"#")


class Members:
    """What both kinds of objects share: the handle, and that it is given back when nothing holds the object any more."""

    __slots__ = ("_call", "_handle", "__weakref__")

    def __init__(self, call: Callable[..., Any], handle: Handle, unused: Deque[str]) -> None:
        self._call, self._handle = call, handle
        # A finalizer may run anywhere, under any lock: what it says is sent later.
        weakref.finalize(self, unused.append, handle.data.decode()).atexit = False

    def __repr__(self) -> str:
        return "<furca object %s>" % self._handle.data.decode()


class Object(Members):
    """obj.name reads an attribute, obj.name(...) calls a method, obj(...) the object itself."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            told = self._call(self._handle, name, (), {}, True)
        except CodeError as e:
            if e.result.get("type") == "AttributeError":
                raise AttributeError(e.result.get("message")) from e
            raise
        return told["value"] if "value" in told else functools.partial(self._method, name)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._handle, name, args, kwargs, False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._handle, "", args, kwargs, False)


class AsyncMember:
    """await obj.name reads the attribute, await obj.name(...) calls the method."""

    __slots__ = ("_object", "_name")

    def __init__(self, owner: "AsyncObject", name: str) -> None:
        self._object, self._name = owner, name

    async def _read(self) -> Any:
        told = await self._object._call(self._object._handle, self._name, (), {}, True)
        return told["value"] if "value" in told else self

    def __await__(self) -> Any:
        return self._read().__await__()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self._object._call(self._object._handle, self._name, args, kwargs, False)


class AsyncObject(Members):
    __slots__ = ()

    def __getattr__(self, name: str) -> AsyncMember:
        if name.startswith("_"):
            raise AttributeError(name)
        return AsyncMember(self, name)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self._call(self._handle, "", args, kwargs, False)


def request(handle: Handle, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], read: bool) -> Dict[str, Any]:
    """The arguments of call_object."""
    return {"handle": handle.data.decode(), "name": name, "args": list(args), "kwargs": kwargs, "read": read}


def new_unused() -> Deque[str]:
    return collections.deque()
