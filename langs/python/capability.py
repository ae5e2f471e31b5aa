"""The name `capabilities`, and calls that leave the session on lanes (bridge/wire/lane.h); stored functions go the same way (functions.py).

A call blocks and gives its value, from any thread and from forked children. In a coroutine, a call that is awaited there, at
once or by way of gather and the like (awaits.py tells), gives an awaitable instead, so that the event loop goes on.
"""

import _contextvars
import os
import sys
import weakref

CAPABILITY, FUNCTION, DESCRIBE, RELEASE, ANSWER, RAISED = 64, 65, 66, 67, 68, 69
EXT_HANDLE, EXT_FRAME, EXT_TIME = 2, _frames.EXT, -1


CapabilityError = failures.CapabilityError


class Handle:
    """A value that stays with the client; goes back to it as an argument. Its methods are called as the client's capabilities named
    by the handle and the method. It is given back when this object goes."""

    def __init__(self, token):
        object.__setattr__(self, "_token", token)
        object.__setattr__(self, "_methods", set())
        weakref.finalize(self, _release, token, host.image()).atexit = False

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        method = Capability("%s.%s" % (self._token.decode("utf-8", "backslashreplace"), name), None, self)
        # Where the client tells attributes, which the engine's name for the object says, it is asked what this one is: once for a method.
        if self._token.endswith(b"a") and len(self._token) == 18 and name not in self._methods:
            told = host.call(CAPABILITY, method._name, (), {}, _with_bound({"read": True}, sys._getframe(1)))
            if "value" in told:
                return told["value"]
            self._methods.add(name)
        return method

    def __eq__(self, other):
        return isinstance(other, Handle) and other._token == self._token

    def __hash__(self):
        return hash(self._token)

    def __repr__(self):
        return "<handle %s>" % self._token.decode("utf-8", "backslashreplace")


Handle.__module__ = "capabilities"


_unused = []  # handles to be given back; a finalizer may run in the midst of a call, so it does not call itself


def _release(token, image):
    _unused.append((token, image))


_all_ours = False  # what was had from images before this one too


def cloned():
    """What was had before belongs to another process, which goes on."""
    global _all_ours
    _all_ours = False


def promoted():
    """In the place of the process that had it."""
    global _all_ours
    _all_ours = True


def give_back():
    """Gives unused handles back; before calls that leave the session, and at a call's end."""
    while _unused:
        token, image = _unused.pop()
        if _all_ours or image == host.image():
            try:
                host.post(RELEASE, {"handle": token.decode("utf-8", "backslashreplace")})
            except Exception:
                pass


def pack_hook(value, frames):
    """(ext type, bytes) of what is not plain, or None. Arrays put their buffers into the list `frames`, unless it is None."""
    if isinstance(value, Handle):
        return EXT_HANDLE, value._token
    if frames is not None and _frames.is_frame(value):
        return EXT_FRAME, _frames.dump(value, frames)
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, datetime.datetime):
        if value.utcoffset() is None:
            raise TypeError("a datetime without a time zone has no form on the wire; give it one, for example "
                            "value.astimezone()")
        delta = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        seconds = delta.days * 86400 + delta.seconds
        nanoseconds = delta.microseconds * 1000
        return EXT_TIME, nanoseconds.to_bytes(4, "big") + seconds.to_bytes(8, "big", signed=True)
    return None


def pack_out_hook(value, frames):
    """As pack_hook, for what goes to clients: an object without a form becomes a handle. Sets have none on purpose: a list says what is meant."""
    packed = pack_hook(value, frames)
    if packed is not None or isinstance(value, (str, set, frozenset)):
        return packed
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return None
    return EXT_HANDLE, _keep(value)


# Objects of this process that clients hold, by the text that stands for each in messages. They are part of the session's memory: a copy has its
# own, and what a rollback takes back was never given.
_kept = {}
MOST_KEPT = 65536


def _keep(value):
    if len(_kept) >= MOST_KEPT:
        raise ValueError("clients hold %d objects of this session, which is the limit" % MOST_KEPT)
    token = "o" + os.urandom(8).hex()
    _kept[token] = value
    return token.encode()


def _own(token):
    try:
        return _kept[token]
    except KeyError:
        raise ReferenceError("that object of the session is not kept any more") from None


def look():
    """Before a call: takes what clients gave back meanwhile."""
    if _kept:
        host.look()


def let_go(body):
    _kept.pop(host.unpack(body)["object"], None)


def _run_object(fields):
    found, name = _own(fields["object"]), fields["name"]
    if name.startswith("_"):
        raise AttributeError("%r is not for clients" % name)
    if name:
        found = getattr(found, name)
    if fields["read"]:
        return {"method": True} if callable(found) else {"value": found}
    return found(*fields["args"], **fields["kwargs"])


def _answered(call, make):
    """The frame for a client that called an object: what `make` gives or raises. An interrupt is not the object's: it goes on."""
    try:
        return host.encode(ANSWER, call, None, None, None, {"value": make()})[0]
    except Exception as error:
        said = {"type": type(error).__name__, "message": _text(error), "traceback": _traceback(error)}
        return host.encode(RAISED, call, None, None, None, said)[0]


def _text(error):
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return "(an error without a text)"


def _traceback(error):
    import traceback
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return "".join(lines)[-65536:].encode("utf-8", "backslashreplace").decode()
    except Exception:
        return ""


def _fields(body):
    return host.unpack(body, lambda kind, data, memory: unpack_hook(kind, data, memory))


def serve(call, body):
    """Runs a CALL of one of our objects; the frame that answers it."""
    return _answered(call, lambda: _run_object(_fields(body)))


def unpack_hook(kind, data, memory):
    if kind == EXT_HANDLE:
        return _own(data.decode()) if data.startswith(b"o") else Handle(data)
    if kind == EXT_FRAME:
        return _frames.load(data, memory)
    if kind == EXT_TIME and len(data) in (4, 8, 12):
        import datetime
        nanoseconds = 0
        if len(data) == 4:
            seconds = int.from_bytes(data, "big")
        elif len(data) == 8:
            both = int.from_bytes(data, "big")
            seconds, nanoseconds = both & 0x3ffffffff, both >> 34
        else:
            seconds, nanoseconds = int.from_bytes(data[4:], "big", signed=True), int.from_bytes(data[:4], "big")
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    raise ValueError("a value of the unknown extension type %d" % kind)


class _LoopLane:
    """A lane that an event loop serves: many calls at once, answers as they come."""

    def __init__(self, loop):
        self.loop = loop
        self.fd = host.open_lane()
        self.image = host.image()
        self.calls = {}
        self.last = 0
        self.out = []    # [bytes not sent yet, memory that goes with the first or -1]
        self.into = bytearray()
        self.memories = []
        os.set_blocking(self.fd, False)
        loop.add_reader(self.fd, self.read)

    def usable(self):
        return self.fd >= 0 and self.image == host.image()

    def start(self, kind, name, args, kwargs, extra, reader=None):
        self.last += 1
        data, memory = host.encode(kind, self.last, name, args, kwargs, extra, reader)
        future = self.loop.create_future()
        self.calls[self.last] = future
        self.send(data, memory)
        return future

    def send(self, data, memory=-1):
        waiting = bool(self.out)
        if waiting and memory < 0 and self.out[-1][1] < 0:
            self.out[-1][0] += data
        else:
            self.out.append([bytearray(data), memory])
        if not waiting:
            self.write()

    def serve(self, call, body):
        """Runs one of our objects for a client; a coroutine of its goes on in the loop."""
        try:
            value = _run_object(_fields(body))
        except Exception as error:
            self.send(_answered(call, lambda error=error: _raise(error)))
            return
        if hasattr(value, "__await__"):
            self.loop.create_task(self.serve_later(call, value))
        else:
            self.send(_answered(call, lambda: value))

    async def serve_later(self, call, value):
        try:
            value = await value
            self.send(_answered(call, lambda: value))
        except Exception as error:
            self.send(_answered(call, lambda error=error: _raise(error)))

    def write(self):
        try:
            while self.out:
                data, memory = self.out[0]
                n = host.send(self.fd, bytes(data[:1 << 20]), memory)
                if memory >= 0:
                    os.close(memory)
                    self.out[0][1] = -1
                del data[:n]
                if not data:
                    del self.out[0]
        except (BlockingIOError, InterruptedError):
            self.loop.add_writer(self.fd, self.write)
            return
        except OSError:
            self.close()
            return
        self.loop.remove_writer(self.fd)

    def read(self):
        try:
            data, memories = host.receive(self.fd)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, memories = b"", []
        if not data:
            self.close()
            return
        self.into += data
        self.memories += memories
        while self.calls:
            memory = self.memories[0] if self.memories else -1
            answer = host.decode(bytes(self.into) if len(self.into) < 65536 or self.whole() else b"", memory)
            if answer is None:
                break
            size, call, good, value, used = answer
            del self.into[:size]
            if good is None:
                if value is not None:
                    self.serve(call, value)
                continue
            if used:
                os.close(self.memories.pop(0))
            future = self.calls.pop(call, None)
            if future is not None and not future.done():
                if good:
                    future.set_result(value)
                else:
                    future.set_exception(value)

    def whole(self):
        """Whether a whole frame is there; keeps large answers from being copied at each piece that arrives."""
        return len(self.into) >= 8 + int.from_bytes(self.into[:4], "little")

    def close(self):
        if self.fd >= 0:
            self.loop.remove_reader(self.fd)
            self.loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1
        for memory in self.memories + [memory for _, memory in self.out if memory >= 0]:
            os.close(memory)
        self.memories, self.out = [], []
        calls, self.calls = self.calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(ConnectionError("the engine closed the lane of this call"))


def _raise(error):
    raise error


_loop_lanes = weakref.WeakKeyDictionary()


def _loop_lane(loop):
    lane = _loop_lanes.get(loop)
    if lane is None or not lane.usable():
        lane = _loop_lanes[loop] = _LoopLane(loop)
    return lane


class Pending:
    """A call under way in an event loop; awaiting it gives the value. Many may wait for it."""

    def __init__(self, future):
        self._future = future

    def __await__(self):
        return self._future.__await__()

    def __repr__(self):
        return "<capability call, to be awaited>"


Pending.__module__ = "capabilities"


# The capabilities that stored functions may call which run in this process, beside code that may call others. What holds is what stands
# in all of: the list of the function under way in this context (tasks inherit it), the lists of those whose code is on the stack
# (threads, callbacks), and what held where the name was looked up (a capability handed to a thread or a pool).
limits = {}        # file name of a stored function's source -> what it may call; of those that declare it
_within = _contextvars.ContextVar("furca_within", default=None)


def _meet(one, other):
    return other if one is None else one if other is None else one & other


def _bound(frame, own):
    """What may be called from here: a frozenset of names, or None: everything."""
    bound = _meet(own, _within.get())
    while frame is not None:
        bound = _meet(bound, limits.get(frame.f_code.co_filename))
        frame = frame.f_back
    return bound


def bound_here(frame):
    """The same where a name is looked up, which goes with what is found."""
    return _bound(frame if limits else None, None)


def enter(filename, names):
    """A stored function begins. What to give to leave()."""
    if names is None:
        limits.pop(filename, None)
        return None
    limits[filename] = frozenset(names)
    before = _within.get()
    _within.set(_meet(before, limits[filename]))
    return (before,)


def leave(entered):
    if entered is not None:
        _within.set(entered[0])


def _with_bound(extra, frame, own=None):
    """The fields of a call and what bounds it."""
    bound = _bound(frame if limits else None, own)
    if bound is None:
        return extra
    return dict(extra or {}, allowed=sorted(bound))


def _running_loop():
    events = sys.modules.get("asyncio.events")
    return events._get_running_loop() if events else None


def invoke(kind, name, args, kwargs, extra, frame, own=None):
    if _unused:
        give_back()
    extra = _with_bound(extra, frame, own)
    if kind == FUNCTION:
        extra = dict(extra or {}, frames=_frames.versions())
    reader = _readers.get(name) if kind == FUNCTION else None
    loop = _running_loop()
    if loop is not None and awaits.is_awaited(frame):
        lane = _loop_lane(loop)
        if kind == FUNCTION:
            future = lane.start(kind, name, args, kwargs, extra, reader)
            return Pending(loop.create_task(_follow(lane, future, name, args, kwargs, extra, reader)))
        return Pending(lane.start(kind, name, args, kwargs, extra))
    if kind != FUNCTION:
        return host.call(kind, name, args, kwargs, extra)
    try:
        value = host.call(kind, name, args, kwargs, extra, reader)
    except CapabilityError as error:
        if not _other_form(name, error, reader):
            raise
        value = host.call(kind, name, args, kwargs, extra, _readers[name])
    return run_here(value, args, kwargs) if type(value) is tuple else value


_readers = {}  # stored function -> versions where it runs, once arrays could not be read there


def _other_form(name, error, reader):
    """Whether a function's arguments, sent for `reader`, may be read where it runs once they are sent in the form for what that has."""
    if error.reader is None or error.reader == reader:
        return False
    _readers[name] = error.reader
    return True


def run_here(stored, args, kwargs):
    """A stored function whose place is this very process; calls.py puts its own in this place."""
    raise NotImplementedError(stored[0])


async def _follow(lane, future, name, args, kwargs, extra, reader):
    try:
        value = await future
    except CapabilityError as error:
        if not _other_form(name, error, reader):
            raise
        value = await lane.start(FUNCTION, name, args, kwargs, extra, _readers[name])
    if type(value) is tuple:
        value = run_here(value, args, kwargs)
        if hasattr(value, "__await__"):
            value = await value
    return value


_described = (None, None)


def _describe():
    global _described
    call = calls_begun[0]
    if _described[0] != call or _described[1] is None:
        try:
            _described = (call, host.call(DESCRIBE, None, None, None, None))
        except Exception:
            _described = (call, {})
    return _described[1] or {}


calls_begun = [0]  # counts calls, so that descriptions are asked for once in each


def entries(group):
    entries = _describe().get(group) or ()
    return {entry["name"]: entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)}


def _signature(entry):
    import inspect
    params = entry.get("params")
    if isinstance(params, dict):
        names = params.get("properties", params)
        names = list(names) if isinstance(names, dict) else []
    elif isinstance(params, (list, tuple)):
        names = [p.get("name") if isinstance(p, dict) else p for p in params]
    else:
        return None
    try:
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    except (TypeError, ValueError):
        return None


class Capability(host.Dotted):
    """One capability, or a group of them: attributes lead deeper, a call leaves the session. Made of its name, what may be called by it (None:
    everything) and whose method it is, which lives as long."""

    __slots__ = ("__weakref__",)

    def _deeper(self, name, frame=None):
        frame = (frame or sys._getframe(1)) if limits else None
        return Capability(self._name + "." + name if self._name else name, _bound(frame, self._own), self._handle)

    def _missing(self, name):
        if name.startswith("__") and name.endswith("__"):
            if name == "__signature__":
                signature = _signature(entries("capabilities").get(self._name) or {})
                if signature is not None:
                    return signature
            elif name == "__name__":
                return self._name.rpartition(".")[2]
            elif name == "__qualname__":
                return self._name
            raise AttributeError(name)
        return self._deeper(name, sys._getframe(1))

    def __getitem__(self, name):
        return self._deeper(name, sys._getframe(1))

    def _invoke(self, /, *args, **kwargs):
        if not self._name:
            raise TypeError("name a capability: capabilities.NAME(...)")
        return invoke(CAPABILITY, self._name, args, kwargs, None, sys._getframe(1), self._own)

    def __dir__(self):
        prefix = self._name + "." if self._name else ""
        names = {name[len(prefix):].split(".")[0] for name in entries("capabilities") if name.startswith(prefix)}
        return sorted(names | ({"map"} if not self._name else set()))

    @property
    def __doc__(self):
        entry = entries("capabilities").get(self._name)
        if entry is None:
            names = dir(self)
            return "Capabilities of the agent: %s" % (", ".join(names) or "none are registered")
        return "%s\n\neffect: %s" % (entry.get("doc") or self._name, entry.get("effect", "write"))

    def __repr__(self):
        return "<capability %s>" % self._name if self._name else "<capabilities: %s>" % ", ".join(dir(self))

    def __reduce__(self):
        return (_restore, (self._name, self._own))


class Capabilities(Capability):
    """What the agent can do, by dotted names: capabilities.contacts.lookup("Ada", limit=3)."""

    __slots__ = ()

    def map(self, name, calls):
        """Calls one capability many times at once: `calls` is a list of argument lists, or of dicts of keywords, or of single
        arguments. The list of values in that order; the first failure is raised when all have ended."""
        packed = []
        for call in calls:
            if isinstance(call, dict):
                packed.append(((), call))
            elif isinstance(call, (list, tuple)):
                packed.append((tuple(call), {}))
            else:
                packed.append(((call,), {}))
        own = self._own
        if isinstance(name, Capability):
            name, own = name._name, _meet(own, name._own)
        extra = _with_bound(None, sys._getframe(1), own)
        if any(_frames.is_frame(value) for args, kwargs in packed for value in (*args, *kwargs.values())):
            return [host.call(CAPABILITY, name, args, kwargs, extra) for args, kwargs in packed]  # each with memory of its own
        values = []
        for at in range(0, len(packed), 1024):
            values += host.call_many(CAPABILITY, name, packed[at:at + 1024], extra)
        return values


host.dotted(Capability, limits, _within.get, _unused)
capabilities = Capabilities("")
for _each in (Capability, Capabilities):
    _each.__module__ = "capabilities"


def _restore(name, own=None):
    return Capability(name, own) if name else capabilities
