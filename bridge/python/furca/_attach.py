"""Making the interpreter that runs this a session of an engine."""
from __future__ import annotations

import concurrent.futures
import importlib.machinery
import importlib.util
import os
import select
import socket
import sys
import sysconfig
import threading
import time
from typing import Any, Dict, Optional

from ._client import Engine, Session, session_arguments
from ._result import FurcaError, checked
from ._wire import Descriptor

_now: Optional["Attached"] = None
_loaded: Dict[str, Any] = {}


def attach(engine: Optional[Engine] = None, *, name: Optional[str] = None, **options: Any) -> "Attached":
    """Makes this process a session: its `__main__` is the session's namespace, with all that is in it. Session 0, or one with that name.

    Read-only calls run in a clone of this process with all its threads; stateful ones in this process, on its main thread. Both are served while
    the main thread waits for an answer of that engine, or in serve(). What it was doing otherwise goes on undisturbed: signals, descriptors and
    standard streams stay as they are.

    `engine` must have been made with frames=True; without one, Engine(frames=True, **options) is made, and closed by detach(). FurcaError says
    why a process cannot be attached.
    """
    global _now
    if _now is not None and _now.attached():
        raise FurcaError("this process is attached already, as %r; call detach() first" % (_now,))
    _check_interpreter()
    own = engine is None
    client = engine if engine is not None else Engine(frames=True, **options)
    try:
        if options and not own:
            raise TypeError("options are for an engine that attach() makes itself: %s" % ", ".join(options))
        if not client._frames:
            raise FurcaError("attach() passes a descriptor: make the engine with furca.Engine(frames=True)")
        _now = Attached(client, name, own)
    except BaseException:
        if own:
            client.close()
        raise
    return _now


def _check_interpreter() -> None:
    if sys.implementation.name != "cpython" or sys.version_info < (3, 9) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise FurcaError("only CPython from 3.9 on, with its GIL, can be attached; this is %s" % sys.version.split()[0])
    if threading.current_thread() is not threading.main_thread():
        raise FurcaError("attach() must be called on the main thread, which serves the calls")


def _module(path: str) -> Any:
    """The part that makes an interpreter a host, from the engine's own installation, so that both are of one version. It is there once in a process."""
    if _loaded and path not in _loaded:
        raise FurcaError("this process was attached to an engine of another installation before, %s; it cannot load %s too"
                         % (next(iter(_loaded)), path))
    if path not in _loaded:
        try:
            loader = importlib.machinery.ExtensionFileLoader("_furca_host", path)
            spec = importlib.util.spec_from_loader("_furca_host", loader, origin=path)
            assert spec is not None
            _loaded[path] = importlib.util.module_from_spec(spec)
            loader.exec_module(_loaded[path])
        except ImportError as e:
            raise FurcaError("this interpreter cannot load the engine's %s: %s" % (path, e)) from None
        sys.modules.pop("_furca_host", None)  # it is no module of the program's
    return _loaded[path]


class Attached(Session):
    """This process as a session. A context manager: detaches at the end."""

    def __init__(self, engine: Engine, name: Optional[str], own_engine: bool) -> None:
        super().__init__(engine, 0 if name is None else name)
        self._own_engine, self._pid, self._serving = own_engine, os.getpid(), False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours:
            answer = engine._start("attach_session", {**session_arguments(name), "channel": Descriptor()}, descriptor=theirs.detach())
            answer_map = checked(dict(answer._future.result()), True)
            self.key = answer_map["session"]["session_id"]
            self._where = {**session_arguments(self.key), "language": "python", "venv_id": None}
            self._host = _module(answer_map["module"])
            try:
                self._host.attach(ours.detach())
            except (OSError, RuntimeError) as e:
                raise FurcaError("this process cannot be attached: %s" % e) from None
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        engine._attached = self

    def __repr__(self) -> str:
        return "<this process as furca session %r%s>" % (self.key, "" if self.attached() else ", detached")

    def attached(self) -> bool:
        return self._pid == os.getpid() and self.engine._attached is self and bool(self._host.control() >= 0)

    def fileno(self) -> int:
        """For select() and event loops: readable where serve(0) has something to do. -1 once detached."""
        return int(self._host.control())

    def serve(self, timeout: Optional[float] = None) -> int:
        """Serves what others ask of this session, on the main thread: until `timeout` seconds have passed; without, until it is detached.
        How many messages were served."""
        self._check()
        deadline = None if timeout is None else time.monotonic() + timeout
        served = self._pump(deadline)
        while self.attached() and (deadline is None or time.monotonic() < deadline):
            served += self._pump(deadline)
        return served

    def detach(self) -> None:
        """This process is no session any more. It goes on as it is."""
        if self._pid != os.getpid() or self.engine._attached is not self:
            return
        self.engine._attached = None
        self._host.detach()
        os.close(self._wake)
        os.close(self._waker)
        if self._own_engine:
            self.engine.close()
        else:
            self._await_end()

    def _await_end(self) -> None:
        """The engine sees it a moment later; its id and name are free then."""
        try:
            for _ in range(100):
                answer = self.engine.call("list_sessions", detail="full")
                if not any(s["session_id"] == self.key and s["attached"] for s in answer["sessions"]):
                    return
                time.sleep(0.005)
        except (FurcaError, KeyError):
            pass

    close = detach  # type: ignore[assignment]

    def __exit__(self, *exc: object) -> None:
        self.detach()

    # Serving.

    def _check(self) -> None:
        if not self.attached():
            raise FurcaError("this process is not attached any more")
        if threading.current_thread() is not threading.main_thread():
            raise FurcaError("calls are served on the main thread only")
        if self._serving:
            raise FurcaError("this code runs in a call of the session that it wants to wait for")

    def _pump(self, deadline: Optional[float]) -> int:
        """Serves one message, if one comes before the deadline or before somebody stirs; how many it served."""
        wait = -1 if deadline is None else max(0, int(min(deadline - time.monotonic(), 1e6) * 1000))
        self._serving = True
        try:
            return max(0, self._host.pump(self._wake, wait))
        finally:
            self._serving = False

    def _serve_until(self, future: "concurrent.futures.Future[Any]", timeout: Optional[float]) -> None:
        """Serves until the future is done. Threads other than the main one just wait; it serves for them."""
        if threading.current_thread() is not threading.main_thread() or self._pid != os.getpid():
            return
        self._check()
        deadline = None if timeout is None else time.monotonic() + timeout
        future.add_done_callback(lambda _: self._stir())
        while not future.done() and self.attached() and (deadline is None or time.monotonic() < deadline):
            self._pump(deadline)
        if self.engine._attached is self:
            self._calm()

    def _stir(self) -> None:
        try:
            os.write(self._waker, b"x")
        except OSError:
            pass  # it is full of such bytes already, or nobody waits any more

    def _calm(self) -> None:
        while select.select([self._wake], [], [], 0)[0]:
            if not os.read(self._wake, 4096):
                break
