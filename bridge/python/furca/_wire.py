"""What crosses the socket: msgpack-rpc messages, and the forms of values that msgpack has not."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping

import msgpack

BIG_INTEGER, HANDLE = 1, 2


class Handle:
    """An object that stays in its session; it can be passed back in, where it is the object again."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return "<furca handle %s>" % self.data.hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)


def _other(value: Any) -> Any:
    if isinstance(value, int):
        return msgpack.ExtType(BIG_INTEGER, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
    if isinstance(value, Handle):
        return msgpack.ExtType(HANDLE, value.data)
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


def pack(message: List[Any]) -> bytes:
    """Bytes of one message. TypeError for a value that has no form."""
    try:
        return bytes(msgpack.packb(message, default=_other, use_bin_type=True))
    except UnicodeEncodeError as e:
        raise TypeError("text with lone surrogates has no form on the wire: %s" % e) from None


def unpacker() -> Any:
    """Takes bytes by feed() and yields messages. Its bound is the engine's for one answer."""
    return msgpack.Unpacker(raw=False, strict_map_key=False, ext_hook=_ext, max_buffer_size=320 << 20)


def without_none(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
