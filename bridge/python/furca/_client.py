"""The blocking client. Threads may share an Engine; a reader thread matches answers to calls."""
from __future__ import annotations

import concurrent.futures
import itertools
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _frames
from ._capability import Capability, Kept, declarations, failure, function_of, serving, within
from ._result import EngineGone, ProtocolError, Result, checked
from ._start import PrivateEngine, default_socket
from ._object import Object, new_unused, request
from ._wire import Frame, Handle, Memory, pack, unpacker, without_none

if TYPE_CHECKING:
    from ._attach import Attached

OnOutput = Callable[[str, str], Any]
SessionKey = Union[int, str, None]


def session_arguments(session: SessionKey) -> Dict[str, Any]:
    """An id or a name as the contract wants it."""
    if session is None:
        return {}
    if isinstance(session, bool) or not isinstance(session, (int, str)):
        raise TypeError("a session is an int id or a str name, not %s" % type(session).__name__)
    return {"session_id": session} if isinstance(session, int) else {"session_name": session}


class Call:
    """An execution under way: wait for it with result(), end it with cancel()."""

    def __init__(self, engine: "Engine", msgid: int, on_output: Optional[OnOutput], raise_errors: bool) -> None:
        self.msgid = msgid
        self._engine, self._on_output, self._raise = engine, on_output, raise_errors
        self._output_error: Optional[BaseException] = None
        self._future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()

    def _output(self, stream: str, data: Any) -> None:
        """An error of on_output is the caller's: result() raises it, and no more is told."""
        if self._on_output is None:
            return
        try:
            self._on_output(stream, data.decode(errors="replace") if isinstance(data, bytes) else data)
        except BaseException as e:
            self._on_output, self._output_error = None, e

    def _end(self, error: Any, fields: Any) -> None:
        if error is not None:
            self._future.set_exception(ProtocolError(error))
        elif self._output_error is not None:
            self._future.set_exception(self._output_error)
        else:
            self._future.set_result(fields)

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: Optional[float] = None) -> Result:
        """The answer. concurrent.futures.TimeoutError where `timeout` seconds pass first: the call goes on."""
        return checked(self._engine._await(self._future, timeout), self._raise)

    def cancel(self) -> bool:
        """Interrupts the code; its answer comes as `interrupted`. False where it had ended."""
        return bool(self._engine.call("cancel", msgid=self.msgid)["cancelled"])


class Engine:
    """A connection to an engine.

    Engine() connects to the one that runs ($FURCA_SOCKET, else $XDG_RUNTIME_DIR/furca.sock) or, where none runs, starts a private one that ends with this
    object. Engine(path) connects to that socket only. Engine(start=True) always starts a private one.

    With raise_errors (the default) what is not ok is raised as an ExecutionError; without, a Result is returned that says so. Methods that return
    something else than a Result (lists, sessions) raise in any case.
    With frames, numpy arrays and pandas frames and series pass to and from capabilities as they are, by shared memory: both sides need those
    packages in versions that read each other's. Of what comes from a session only such values are read, nothing else is run.
    """

    def __init__(self, path: Optional[str] = None, *, start: Union[bool, str] = "auto", program: Optional[str] = None,
                 options: Sequence[str] = (), raise_errors: bool = True, frames: bool = False) -> None:
        self.raise_errors = raise_errors
        self._frames = frames
        self._pid = os.getpid()
        self._private: Optional[PrivateEngine] = None
        self._socket = self._connect(path, start, program, options)
        self._ids = itertools.count(1)
        self._lock, self._send_lock = threading.Lock(), threading.Lock()
        self._calls: Dict[int, Call] = {}
        self._capabilities: Dict[str, Capability] = {}
        self._unused = new_unused()  # handles of code's objects that nothing here holds any more
        self._kept = Kept(lambda handle: Object(self._call_object, handle, self._unused))
        self._gone: Optional[EngineGone] = None
        self._attached: Optional["Attached"] = None
        self._workers = concurrent.futures.ThreadPoolExecutor(64, "furca-capability")
        self._reader = threading.Thread(target=self._read, name="furca-reader", daemon=True)
        self._reader.start()
        if frames:
            self._checked("hello", client="furca python", frames=True)

    def _connect(self, path: Optional[str], start: Union[bool, str], program: Optional[str], options: Sequence[str]) -> socket.socket:
        if start is not True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(path or default_socket())
                return sock
            except OSError as e:
                sock.close()
                if path is not None or start is False:
                    raise EngineGone("no engine answers at %s (%s); start one with `furca serve%s`"
                                     % (path or default_socket(), os.strerror(e.errno or 0), " --socket %s" % path if path else "")) from None
        self._private = PrivateEngine(program, options)
        return self._private.sock

    # The connection.

    def close(self) -> None:
        """Closes the connection, and ends the engine if it is private. In a child process that was forked it does neither: both are the parent's."""
        if self._pid != os.getpid():
            self._socket.close()
            return
        if self._attached is not None:
            self._attached.detach()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if threading.current_thread() is not self._reader:
            self._reader.join(10)
        self._socket.close()
        self._workers.shutdown(wait=False)
        if self._private is not None:
            self._private.wait()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _await(self, future: "concurrent.futures.Future[Any]", timeout: Optional[float] = None) -> Any:
        """The future's result. A process that attached itself serves its own session meanwhile."""
        if self._attached is not None and not future.done():
            self._attached._serve_until(future, timeout)
        return future.result(timeout)

    def _send(self, message: List[Any], descriptor: int = -1) -> None:
        """`descriptor` goes beside the message, and is closed."""
        buffers: Optional[List[Any]] = [] if self._frames and (message[0] == 1 or message[2] == "call_function") else None
        data = pack(message, buffers)
        memory = _frames.store(buffers) if buffers else descriptor
        try:
            with self._send_lock:
                sent = 0
                if memory >= 0:
                    sent = socket.send_fds(self._socket, [data], [memory])
                self._socket.sendall(memoryview(data)[sent:])
        except OSError as e:
            raise self._gone or EngineGone("the connection to the engine failed: %s" % e) from None
        finally:
            if memory >= 0:
                os.close(memory)

    def _start(self, method: str, arguments: Dict[str, Any], on_output: Optional[OnOutput] = None, raise_errors: bool = True,
               descriptor: int = -1) -> Call:
        if self._pid != os.getpid():  # its reader is not here, and two would write to one socket
            raise EngineGone("the connection is that of process %d, of which this one was forked; make an Engine here" % self._pid)
        while self._unused and method != "release_object":
            self._release()
        call = Call(self, next(self._ids), on_output, raise_errors)
        with self._lock:
            if self._gone:
                raise self._gone
            self._calls[call.msgid] = call
        try:
            self._send([0, call.msgid, method, [without_none(arguments)]], descriptor)
        except BaseException:
            with self._lock:
                self._calls.pop(call.msgid, None)
            raise
        return call

    def _read(self) -> None:
        frames: List[Frame] = []
        memories: List[int] = []
        unpack = unpacker(frames.append if self._frames else None)
        why = "the engine closed the connection"
        try:
            while True:
                data, came = self._receive()
                memories += came
                if not data:
                    break
                unpack.feed(data)
                for message in unpack:
                    if frames:  # a message with arrays has one memory beside it
                        memory = Memory(memories.pop(0))
                        for frame in frames:
                            frame.memory = memory
                        frames.clear()
                    self._take(message)
        except OSError as e:
            why = "the connection to the engine failed: %s" % e
        except Exception as e:
            why = "the engine sent what is no message: %r" % (e,)
        with self._lock:
            self._gone = EngineGone(why)
            left, self._calls = list(self._calls.values()), {}
        for call in left:
            call._future.set_exception(self._gone)

    def _receive(self) -> Tuple[bytes, List[int]]:
        if not self._frames:
            return self._socket.recv(1 << 18), []
        data, came, _, _ = socket.recv_fds(self._socket, 1 << 18, 8, socket.MSG_CMSG_CLOEXEC)
        return data, list(came)

    def _take(self, message: List[Any]) -> None:
        if message[0] == 1:
            with self._lock:
                call = self._calls.pop(message[1], None)
            if call is not None:
                call._end(message[2], message[3])
        elif message[0] == 2 and message[1] == "output":
            params = message[2][0]
            with self._lock:
                call = self._calls.get(params["execute_msgid"])
            if call is not None:
                call._output(params["stream"], params["data"])
        elif message[0] == 2 and message[1] == "release":
            self._kept.release(message[2][0]["handle"])
        elif message[0] == 0:
            self._workers.submit(self._serve, message[1], message[2], message[3][0])

    def _serve(self, msgid: int, method: str, params: Dict[str, Any]) -> None:
        error, value = None, None
        token = serving.set((self, params["call_id"])) if "call_id" in params else None
        try:
            function = function_of(self._capabilities, self._kept, method, params)
            value = function(*self._kept.back(params["args"]), **self._kept.back(params["kwargs"]))
        except BaseException as e:
            error = failure(e)
        if token is not None:
            serving.reset(token)  # the thread serves other calls after this one
        try:
            while self._unused:
                self._release()
            self._send([1, msgid, error, value])
        except (TypeError, ValueError) as e:
            self._send([1, msgid, failure(e), None])
        except EngineGone:
            pass

    def _release(self) -> None:
        try:
            handle = self._unused.popleft()
        except IndexError:
            return  # another thread took it
        self._start("release_object", {"handle": handle})

    def _call_object(self, handle: Handle, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], read: bool) -> Any:
        answer = checked(self.call("call_object", **request(handle, name, args, kwargs, read), within=within(self)), True)
        return self._kept.back(answer["value"])

    # Methods.

    def call(self, method: str, **arguments: Any) -> Dict[str, Any]:
        """Any method of the protocol; its answer as it came. ProtocolError where the engine refuses the message itself."""
        return dict(self._await(self._start(method, arguments)._future))

    def _checked(self, method: str, **arguments: Any) -> Result:
        return checked(self.call(method, **arguments), self.raise_errors)

    def _part(self, method: str, key: Optional[str], **arguments: Any) -> Any:
        """One value of an answer. It could not hold a refusal, which is raised therefore, whatever raise_errors says."""
        answer = checked(self.call(method, **arguments), True)
        return answer[key] if key else None

    def submit(self, code: str, language: str = "python", *, state_mode: Optional[str] = None, session: SessionKey = None,
               venv_id: Optional[int] = None, timeout_s: Optional[float] = None, on_output: Optional[OnOutput] = None,
               raise_errors: Optional[bool] = None, **arguments: Any) -> Call:
        """Starts an execution. `on_output(stream, text)` is called from the reader thread as output comes; further arguments are the contract's."""
        arguments = {**session_arguments(session), **arguments, "code": code, "language": language, "state_mode": state_mode,
                     "venv_id": venv_id, "timeout_s": timeout_s, "stream": True if on_output else None, "within": within(self)}
        return self._start("execute", arguments, on_output, self.raise_errors if raise_errors is None else raise_errors)

    def execute(self, code: str, language: str = "python", **arguments: Any) -> Result:
        """Runs code at a coordinate and waits; arguments as for submit(). KeyboardInterrupt while waiting cancels it."""
        call = self.submit(code, language, **arguments)
        try:
            return call.result()
        except KeyboardInterrupt:
            call.cancel()
            raise

    def python(self, code: str, **arguments: Any) -> Result:
        return self.execute(code, "python", **arguments)

    def bash(self, code: str, **arguments: Any) -> Result:
        return self.execute(code, "bash", **arguments)

    def session(self, session: SessionKey = 0, language: str = "python", venv_id: Optional[int] = None) -> "Session":
        """A session as an object. Nothing is created before its first run()."""
        return Session(self, session, language, venv_id)

    def sessions(self, detail: Optional[str] = None) -> List[Dict[str, Any]]:
        return list(self._part("list_sessions", "sessions", detail=detail))

    def close_all_sessions(self) -> int:
        return int(self._part("close_all_sessions", "closed"))

    def hello(self) -> Dict[str, Any]:
        return self.call("hello", client="furca python")

    def stats(self) -> Dict[str, Any]:
        return self.call("stats")

    def read_output(self, msgid: int, stream: str = "stdout", offset: int = 0, length: int = 1 << 20) -> Result:
        return self._checked("read_output", msgid=msgid, stream=stream, offset=offset, length=length)

    def create_env(self, spec: str, name: Optional[str] = None) -> Result:
        """Declares an environment by the text of a pyproject.toml; its `venv_id` goes into execute()."""
        return self._checked("create_env", spec=spec, name=name)

    def build_env(self, venv_id: int) -> Result:
        return self._checked("build_env", venv_id=venv_id)

    def environments(self) -> List[Dict[str, Any]]:
        return list(self._part("list_envs", "envs"))

    def remove_env(self, venv_id: int) -> Result:
        return self._checked("remove_env", venv_id=venv_id)

    def add_function(self, name: str, source: str, language: str = "python", **arguments: Any) -> Result:
        return self._checked("add_function", name=name, source=source, language=language, **arguments)

    def call_function(self, name: str, *args: Any, state_mode: Optional[str] = None, session: SessionKey = None,
                      timeout_s: Optional[float] = None, **kwargs: Any) -> Result:
        """Calls a stored function; keyword arguments other than these are the function's own. With Engine(frames=True) arrays and frames
        may be among them, and be its value."""
        answer = self.call("call_function", name=name, args=list(args), kwargs=kwargs, state_mode=state_mode, timeout_s=timeout_s,
                           frames=_frames.versions() if self._frames else None, within=within(self), **session_arguments(session))
        if self._frames and "result" in answer:
            answer["result"] = self._kept.back(answer["result"])
        return checked(answer, self.raise_errors)

    def functions(self) -> List[Dict[str, Any]]:
        return list(self._part("list_functions", "functions"))

    def remove_function(self, name: str) -> Result:
        return self._checked("remove_function", name=name)

    def keep(self, value: Any) -> Handle:
        """A handle of any object, for a capability to return: the object stays here, code in the session calls its methods."""
        return self._kept.give(value)

    def capability(self, name: Union[str, Callable[..., Any], None] = None, *, effect: str = "write", doc: Optional[str] = None) -> Any:
        """Offers a function of this process to code in sessions, as `capabilities.<name>(...)`.

        @engine.capability("contacts.lookup", effect="read"), or bare @engine.capability. Read-only calls may use those with effect "read".
        Calls are served on threads of their own, several at once.
        """
        def register(function: Callable[..., Any], name: Optional[str] = None) -> Callable[..., Any]:
            entry = Capability(function, name, effect, doc)
            self._capabilities[entry.name] = entry
            self._part("register_capabilities", None, capabilities=declarations({entry.name: entry}))
            return function

        if callable(name):
            return register(name)
        return lambda function: register(function, name)


class Session:
    """A session by its coordinate. As a context manager it is closed at the end."""

    def __init__(self, engine: Engine, session: SessionKey, language: str = "python", venv_id: Optional[int] = None) -> None:
        self.engine, self.language, self.venv_id = engine, language, venv_id
        self._where = {**session_arguments(session), "language": language, "venv_id": venv_id}
        self.key = session

    def __repr__(self) -> str:
        return "<furca session %r, %s%s>" % (self.key, self.language, "" if self.venv_id is None else ", environment %d" % self.venv_id)

    def run(self, code: str, **arguments: Any) -> Result:
        """A stateful call: what it does is kept."""
        return self.engine.execute(code, state_mode="stateful", **self._where, **arguments)

    def read(self, code: str, **arguments: Any) -> Result:
        """A read-only call: it sees all of the session, and nothing that it does lasts."""
        return self.engine.execute(code, state_mode="read_only", **self._where, **arguments)

    def submit(self, code: str, state_mode: str = "stateful", **arguments: Any) -> Call:
        return self.engine.submit(code, state_mode=state_mode, **self._where, **arguments)

    def inspect(self, detail: Optional[str] = None, name: Optional[str] = None) -> Dict[str, Any]:
        return dict(self.engine._part("inspect_session", "state", detail=detail, name=name, **self._where))

    def undo(self, steps: int = 1) -> Result:
        return self.engine._checked("undo", steps=steps, **self._where)

    def branch(self, new_name: str) -> "Session":
        """A second session of this one's last commit."""
        self.engine._part("branch_session", None, new_name=new_name, **self._where)
        return Session(self.engine, new_name, self.language, self.venv_id)

    def checkpoint(self, label: str) -> Result:
        return self.engine._checked("checkpoint", label=label, **self._where)

    def restore(self, label: str) -> Result:
        return self.engine._checked("restore", label=label, **self._where)

    def close(self) -> bool:
        return bool(self.engine._part("close_session", "closed", **self._where))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.engine._gone is None:
            self.close()
