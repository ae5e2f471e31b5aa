"""Arrays and frames on the wire: pickle protocol 5, their buffers out of band in a sealed memfd (doc/bridge.md). One form for the client
package and for code in sessions, where this very file is built in. Nothing is imported before it is needed.

A value is ext 3: >BHQI format, bytes of versions, where its buffers begin in the message's memfd, their number; >Q each one's size; versions as
text; data. Format 1: the data are pickled bytes. Format 2, for a reader with another release of pandas: JSON {kind, name}, the one buffer is a table
as Arrow streams it. Buffers lie one behind the other, each at a multiple of 64. A message with such values has one memfd, even if an empty one.

What is read may only be made of the classes named here: bytes from elsewhere cannot make this process call anything else.
"""
from __future__ import annotations

import os
import sys
from typing import Any, List, Optional, Tuple

EXT = 3
FORMAT, ARROW = 1, 2
ALIGN = 64
MAX_BYTES = 1 << 30
MAX_BUFFERS = 4096

_KINDS = {
    "numpy": {"ndarray"},
    "pandas": {"DataFrame", "Series", "Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex",
               "CategoricalIndex", "IntervalIndex", "Categorical"},
}

# Older ones run code that a stream names (CVE-2023-47248).
_ARROW_SAFE = (14, 0, 1)

# F_ADD_SEALS, F_GET_SEALS; seal, shrink, grow, write. In fcntl only since 3.9, and not in every build.
_ADD, _GET, _SEALS = 1033, 1034, 15

_ALLOWED = {
    "builtins": {"slice", "complex", "set", "frozenset", "bytearray", "range"},
    "_codecs": {"encode"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "uuid": {"UUID"},
    "zoneinfo": {"ZoneInfo", "ZoneInfo._unpickle"},
    "pytz": {"_UTC", "_p"},
    "dateutil.tz.tz": {"tzutc", "tzoffset", "tzlocal", "tzfile"},
    "dateutil.zoneinfo": set(),
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "pandas": {"DataFrame", "Series", "Timestamp", "Timedelta", "Period", "Interval", "Categorical", "NA", "NaT"},
    "pandas.core.frame": {"DataFrame"},
    "pandas.core.series": {"Series"},
    "pandas.core.internals.managers": {"BlockManager", "SingleBlockManager"},
    "pandas.core.internals.blocks": {"new_block"},
    "pandas._libs.internals": {"_unpickle_block", "BlockManager", "BlockPlacement"},
    "pandas._libs.arrays": {"__pyx_unpickle_NDArrayBacked", "NDArrayBacked"},
    "pandas._libs.missing": {"NA", "NAType"},
    "pandas._libs.sparse": {"IntIndex", "BlockIndex"},
    "pandas._libs.interval": {"Interval", "__pyx_unpickle_IntervalMixin"},
    "pandas._libs.tslibs.nattype": {"_nat_unpickle", "__nat_unpickle", "NaT"},
    "pandas._libs.tslibs.timestamps": {"_unpickle_timestamp", "Timestamp"},
    "pandas._libs.tslibs.timedeltas": {"_timedelta_unpickle", "Timedelta"},
    "pandas._libs.tslibs.period": {"Period", "_unpickle_period"},
    "pandas.core.indexes.base": {"_new_Index", "Index"},
    "pandas.core.indexes.datetimes": {"_new_DatetimeIndex", "DatetimeIndex"},
    "pandas.core.indexes.period": {"_new_PeriodIndex", "PeriodIndex"},
    "pandas.core.indexes.interval": {"_new_IntervalIndex", "IntervalIndex"},
    "pandas.core.indexes.frozen": {"FrozenList"},
    "pandas.core.flags": {"Flags"},
}
# Modules, the first without those below it, of which classes with such names are allowed: they only hold values.
_CLASSES = {
    "pandas": ("Index", "Dtype"),
    "pandas.core.indexes": ("Index",),
    "pandas.arrays": ("Array",),
    "pandas.core.arrays": ("Array", "Categorical", "Dtype"),
    "pandas.core.dtypes.dtypes": ("Dtype",),
    "pandas._libs.tslibs.offsets": ("",),
    "numpy.dtypes": ("DType",),
}


def is_frame(value: Any) -> bool:
    kind = type(value)
    module = kind.__module__
    return isinstance(module, str) and kind.__name__ in _KINDS.get(module.partition(".")[0], ())


class Buffers(List[Any]):
    """The buffers of one message; `reader` has the versions of who reads it, as versions() gives them, or None where that is not known."""

    def __init__(self, reader: Optional[str] = None) -> None:
        self.reader = reader


_NAMES = ("numpy", "pandas", "pyarrow")
_installed: Tuple[Any, dict[str, str]] = (None, {})


def _found() -> dict[str, str]:
    """Versions by name of what could be imported here, from the names of its metadata: importlib.metadata costs more than a call does."""
    global _installed
    state = []
    for place in sys.path:
        try:
            state.append((place, os.stat(place or ".").st_mtime_ns))
        except OSError:
            pass
    if _installed[0] != state:
        found: dict[str, str] = {}
        for place, _ in state:
            try:
                entries = os.listdir(place or ".")
            except OSError:
                continue
            for entry in entries:
                name, _, rest = entry.partition("-")
                version, kind = os.path.splitext(rest)
                if name in _NAMES and kind in (".dist-info", ".egg-info"):
                    found.setdefault(name, version)
        _installed = (state, found)
    return _installed[1]


def versions() -> str:
    """What reads and makes arrays and frames here, whether or not it has been imported: "python 3.11, numpy 1.26.4, pandas 2.2.3"."""
    found = ["python %d.%d" % sys.version_info[:2]]
    for name in _NAMES:
        version = getattr(sys.modules.get(name), "__version__", None) or _found().get(name)
        if version is not None:
            found.append("%s %s" % (name, version))
    return ", ".join(found)


def _release(text: str, name: str) -> Tuple[int, ...]:
    """The numbers of a version in what versions() gave; () where it has none."""
    for part in text.split(", "):
        word, _, version = part.partition(" ")
        if word == name:
            numbers = []
            for number in version.split("."):
                if not number.isdigit():
                    break
                numbers.append(int(number))
            return tuple(numbers) or (0,)
    return ()


def _form(reader: Optional[str], module: str, kind: str) -> int:
    """In which format who has those versions reads an object of that module. TypeError, which says what to do, where in none."""
    if reader is None:
        return FORMAT
    ours, here, there = versions(), _release(versions(), module), _release(reader, module)
    problem = "a %s made by %s cannot be read by %s" % (kind, ours, reader)
    if not there:
        raise TypeError("%s: add %s to the environment that reads it, or pass plain values" % (problem, module))
    if module != "pandas" or here[:2] == there[:2]:
        return FORMAT
    if _release(ours, "pyarrow") >= _ARROW_SAFE <= _release(reader, "pyarrow"):
        return ARROW
    if here[0] <= there[0]:
        return FORMAT  # newer ones mostly read it
    raise TypeError("%s: add pyarrow>=%s to the dependencies of both, or use the same release of pandas, or pass plain values, for example "
                    "frame.to_dict('list')" % (problem, ".".join(map(str, _ARROW_SAFE))))


def _end(buffers: List[Any]) -> int:
    at = 0
    for buffer in buffers:
        at = (at + buffer.nbytes + ALIGN - 1) & -ALIGN
    return at


def _dump_pickle(value: Any, raw: List[Any]) -> bytes:
    import pickle

    return pickle.dumps(value, protocol=5, buffer_callback=lambda buffer: raw.append(buffer.raw()))


def _dump_arrow(value: Any, raw: List[Any]) -> bytes:
    import json

    import pandas
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

    kind = next(kind for kind in ("DataFrame", "Series", "Categorical", "Index") if isinstance(value, getattr(pandas, kind)))
    name = value.name if kind == "Series" else None
    if not (name is None or isinstance(name, (str, int))):
        raise TypeError("the name of a series must be text or a number")
    if kind == "Index":
        frame = pandas.DataFrame(index=value)
    else:
        frame = value if kind == "DataFrame" else pandas.Series(value).to_frame("value")
    batch = pyarrow.RecordBatch.from_pandas(frame)  # a table without rows would go without its categories
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    raw.append(memoryview(sink.getvalue()))
    return json.dumps({"kind": kind, "name": name}).encode()


def dump(value: Any, buffers: List[Any]) -> bytes:
    """The ext's bytes of a value; its buffers are added to the message's. TypeError for what cannot be sent, ValueError over a bound."""
    import struct

    raw: List[Any] = []
    form = _form(getattr(buffers, "reader", None), type(value).__module__.partition(".")[0], type(value).__name__)
    try:
        data = (_dump_arrow if form == ARROW else _dump_pickle)(value, raw)
    except Exception as error:
        raise TypeError("this %s cannot be sent: %s" % (type(value).__name__, error)) from None
    base = _end(buffers)
    if base + _end(raw) > MAX_BYTES or len(raw) + len(buffers) > MAX_BUFFERS:
        raise ValueError("arrays of one message may have %d bytes in %d buffers; send parts of them" % (MAX_BYTES, MAX_BUFFERS))
    buffers.extend(raw if raw or buffers else [memoryview(b"")])  # a message with arrays always has its memory
    maker = versions().encode("ascii", "replace")
    head = struct.pack(">BHQI", form, len(maker), base, len(raw))
    return b"".join([head, struct.pack(">%dQ" % len(raw), *(b.nbytes for b in raw)), maker, data])


def store(buffers: List[Any]) -> int:
    """A sealed memfd with the message's buffers."""
    import fcntl

    fd = os.memfd_create("furca", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        at = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            done = 0
            while done < view.nbytes:
                done += os.pwrite(fd, view[done:done + (256 << 20)], at + done)
            at = (at + view.nbytes + ALIGN - 1) & -ALIGN
        os.ftruncate(fd, at)
        fcntl.fcntl(fd, _ADD, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read(fd: int) -> memoryview:
    """A message's memfd, copied into memory of this process's own; what another process seals can still be too much."""
    import fcntl
    import mmap

    size = os.fstat(fd).st_size
    if fcntl.fcntl(fd, _GET) & _SEALS != _SEALS or size > MAX_BYTES:
        raise ValueError("the message's arrays are no sealed memory of at most %d bytes" % MAX_BYTES)
    if size == 0:
        return memoryview(bytearray())
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= 2 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            region.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass
    view = memoryview(region)
    done = 0
    while done < size:
        n = os.preadv(fd, [view[done:done + (256 << 20)]], done)
        if n <= 0:
            raise ValueError("the message's arrays are cut short")
        done += n
    return view


def _attribute(owner: Any, name: str) -> Any:
    """How pickle names a class method: only those in the table."""
    return _find(getattr(owner, "__module__", ""), "%s.%s" % (getattr(owner, "__qualname__", ""), name))


def _find(module: str, name: str) -> Any:
    import importlib

    if (module, name) == ("builtins", "getattr"):
        return _attribute
    known = module.replace("numpy._core", "numpy.core", 1)
    allowed = name in _ALLOWED.get(known, ())
    for prefix, ends in _CLASSES.items():
        below = prefix != "pandas" and known.startswith(prefix + ".")
        allowed = allowed or (known == prefix or below) and name.isidentifier() and name.endswith(ends)
    if not allowed:
        raise TypeError("%s.%s is no part of an array or frame that may be read" % (module, name))
    places = [module]
    if known.startswith("numpy.core"):
        places += ["numpy._core" + known[len("numpy.core"):], known]
    for place in places:
        try:
            found: Any = importlib.import_module(place)
        except ImportError:
            continue
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None and (name in _ALLOWED.get(known, ()) or isinstance(found, type)):
            return found
        if found is not None:
            raise TypeError("%s.%s is no part of an array or frame that may be read" % (module, name))
    root = module.partition(".")[0]
    if root not in sys.modules:
        raise ImportError("it needs %s, which is not installed here" % root)
    raise ImportError("%s %s has no %s.%s" % (root, getattr(sys.modules[root], "__version__", "here"), module, name))


def _split(payload: Any, memory: Optional[memoryview]) -> Tuple[int, str, Any, List[Any]]:
    import struct

    try:
        form, n_versions, at, n = struct.unpack_from(">BHQI", payload)
        if form not in (FORMAT, ARROW) or n > MAX_BUFFERS:
            raise ValueError("of another format")
        sizes = struct.unpack_from(">%dQ" % n, payload, 15)
    except struct.error:
        raise ValueError("an array or frame is cut short") from None
    begin = 15 + 8 * n
    maker = bytes(payload[begin:begin + n_versions]).decode("ascii", "replace")
    buffers, end = [], 0 if memory is None else memory.nbytes
    for size in sizes:
        if size > end or at > end - size:
            raise ValueError("an array or frame lies outside the memory that came with it")
        if memory is not None:
            buffers.append(memory[at:at + size])
        at = (at + size + ALIGN - 1) & -ALIGN
    return form, maker, payload[begin + n_versions:], buffers


def _state(found: Any) -> Optional[Any]:
    """What pickle could set on a class or function as if it were the value's own: nothing may be left of that."""
    if isinstance(found, type):
        return dict(vars(found))
    return (dict(found.__dict__), found.__defaults__, found.__kwdefaults__) if hasattr(found, "__defaults__") else None


def _put_back(found: Any, state: Any) -> bool:
    """Whether it had been changed."""
    now = _state(found)
    if isinstance(found, type):
        changed = [name for name in {**now, **state} if now.get(name, state) is not state.get(name, state)]
        for name in changed:
            if name in state:
                setattr(found, name, state[name])
            else:
                delattr(found, name)
        return bool(changed)
    if now == state:
        return False
    found.__dict__.clear()
    found.__dict__.update(state[0])
    found.__defaults__, found.__kwdefaults__ = state[1:]
    return True


def _load_pickle(data: Any, buffers: List[Any], maker: str) -> Any:
    import io
    import pickle

    used: dict[int, Tuple[Any, Any]] = {}

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found = _find(module, name)
            if module.partition(".")[0] == "pandas" and _release(maker, "pandas")[:1] > _release(versions(), "pandas")[:1]:
                raise TypeError("pandas does not read what a later major release made")  # it may seem to, and be wrong
            if id(found) not in used:
                used[id(found)] = found, _state(found)
            return found

    try:
        value = Reader(io.BytesIO(data), buffers=buffers).load()
    finally:
        changed = [found for found, state in used.values() if state is not None and _put_back(found, state)]
    if changed:
        raise TypeError("it sets attributes of %s" % (changed[0],))
    return value


def _load_arrow(data: Any, buffers: List[Any], maker: str) -> Any:
    import json

    if len(buffers) != 1 or _release(versions(), "pyarrow") < _ARROW_SAFE:
        raise ImportError("it needs pyarrow>=%s" % ".".join(map(str, _ARROW_SAFE)))
    import pandas  # noqa: F401, whose types of columns pyarrow knows once it is there
    import pyarrow

    told = json.loads(bytes(data))
    table = pyarrow.ipc.open_stream(pyarrow.py_buffer(buffers[0])).read_all()
    table.validate(full=True)
    frame = table.to_pandas().copy()  # what Arrow lends may not be written to
    if told["kind"] == "DataFrame":
        return frame
    if told["kind"] == "Index":
        return frame.index
    return frame["value"].rename(told["name"]) if told["kind"] == "Series" else frame["value"].array


def load(payload: Any, memory: Optional[memoryview]) -> Any:
    """The value of an ext's bytes. ImportError, TypeError or ValueError, which say by what it was made and what reads it, where it cannot be."""
    form, maker, data, buffers = _split(memoryview(payload), memory)
    try:
        return (_load_arrow if form == ARROW else _load_pickle)(data, buffers, maker)
    except Exception as error:
        kind = ImportError if isinstance(error, ImportError) else TypeError
        raise kind("an array or frame made by %s cannot be read by %s: %s" % (maker, versions(), error)) from None
