"""What crosses the socket: msgpack-rpc messages, and the forms of values that msgpack has not."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, Optional

import msgpack

from . import _frames

BIG_INTEGER, HANDLE, DESCRIPTOR = 1, 2, 4

# What the engine takes of one message (protocol: limits), with room for what it puts around a value that it passes on. A connection on which more comes is closed.
MAX_BYTES, MAX_ITEMS, MAX_DEPTH = (64 << 20) - 1024, (4 << 20) - 64, 128 - 8
_NO_CONTAINER = bytes(b for b in range(256) if not (0x80 <= b <= 0x9f or 0xdc <= b <= 0xdf))


class Handle:
    """An object that stays where it is; passed back there, it is the object again."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return "<furca handle %s>" % self.data.hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)


class Memory:
    """What came beside one message: its arrays' bytes, read when the first of them is."""

    def __init__(self, fd: int) -> None:
        self._fd, self._view = fd, None  # type: ignore[var-annotated]

    def view(self) -> Any:
        if self._view is None and self._fd >= 0:
            try:
                self._view = _frames.read(self._fd)
            finally:
                self.close()
        return self._view

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


class Frame:
    """An array or frame as it came."""

    __slots__ = ("data", "memory")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.memory: Optional[Memory] = None

    def load(self) -> Any:
        return _frames.load(self.data, self.memory.view() if self.memory is not None else None)


class Descriptor:
    """Stands in a request for the descriptor beside it."""


def _other(value: Any) -> Any:
    if isinstance(value, Descriptor):
        return msgpack.ExtType(DESCRIPTOR, b"")
    if isinstance(value, int):
        return msgpack.ExtType(BIG_INTEGER, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
    if isinstance(value, Handle):
        return msgpack.ExtType(HANDLE, value.data)
    handle = getattr(type(value), "_handle", None) and value._handle  # an object of code (_object.py)
    if isinstance(handle, Handle):
        return msgpack.ExtType(HANDLE, handle.data)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(
        "%s has no form on the wire; pass None, bool, int, float, str, bytes, lists and dicts of them" % type(value).__name__)


def _ext(code: int, data: bytes) -> Any:
    if code == BIG_INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if code == HANDLE:
        return Handle(data)
    return msgpack.ExtType(code, data)


def _check(message: List[Any], data: bytes) -> None:
    """ValueError for what the engine would not take. Looks into the message only where its bytes could be those of one nested that deep, or of that many values."""
    if len(data) > MAX_BYTES:
        raise ValueError("a message of %d bytes is too large for the wire, which takes %d; pass large data by a file, or as arrays" % (len(data), MAX_BYTES))
    if len(data) <= MAX_ITEMS and len(data.translate(None, _NO_CONTAINER)) <= MAX_DEPTH:
        return
    items, level, depth = 1, [message], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("values nested over %d deep have no form on the wire" % MAX_DEPTH)
        below: List[Any] = []
        for value in level:
            items += len(value)
            if isinstance(value, Mapping):
                items += len(value)
                below += [v for pair in value.items() for v in pair if isinstance(v, (list, tuple, Mapping))]
            else:
                below += [v for v in value if isinstance(v, (list, tuple, Mapping))]
        level = below
    if items > MAX_ITEMS:
        raise ValueError("a message of %d values is too large for the wire, which takes %d; pass them as arrays or as bytes" % (items, MAX_ITEMS))


def pack(message: List[Any], buffers: Optional[List[Any]] = None) -> bytes:
    """Bytes of one message. TypeError for a value that has no form, ValueError for what is too large or nested too deep. Arrays and frames have one where `buffers` takes what goes beside it."""
    def other(value: Any) -> Any:
        if buffers is not None and _frames.is_frame(value):
            return msgpack.ExtType(_frames.EXT, _frames.dump(value, buffers))
        return _other(value)

    try:
        data = bytes(msgpack.packb(message, default=other, use_bin_type=True, datetime=True))
    except UnicodeEncodeError as e:
        raise TypeError("text with lone surrogates has no form on the wire: %s" % e) from None
    _check(message, data)
    return data


def _key(value: Any) -> Any:
    """A list cannot be a map's key: it was a tuple."""
    return tuple(_key(v) for v in value) if isinstance(value, list) else value


def _map(pairs: List[Any]) -> Dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError:
        return {_key(k): v for k, v in pairs}


def unpacker(on_frame: Optional[Callable[[Frame], None]] = None) -> Any:
    """Takes bytes by feed() and yields messages. Its bound is the engine's for one answer. `on_frame` is told of each array or frame."""
    def ext(code: int, data: bytes) -> Any:
        if code == _frames.EXT and on_frame is not None:
            frame = Frame(data)
            on_frame(frame)
            return frame
        return _ext(code, data)

    return msgpack.Unpacker(raw=False, strict_map_key=False, ext_hook=ext, object_pairs_hook=_map, timestamp=3, unicode_errors="replace",
                            max_buffer_size=320 << 20)


def without_none(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
