"""The asynchronous client, on asyncio. Cancelling the task that waits for an execution cancels the execution."""
from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Union

from ._capability import Capability, Kept, declarations, failure, function_of, serving, within
from ._client import OnOutput, SessionKey, session_arguments
from ._result import EngineGone, ProtocolError, Result, checked
from ._start import PrivateEngine, default_socket
from ._object import AsyncObject, new_unused, request
from ._wire import Handle, pack, unpacker, without_none


class AsyncEngine:
    """As Engine, with coroutines: `async with AsyncEngine() as engine`, or `await AsyncEngine().connect()`."""

    def __init__(self, path: Optional[str] = None, *, start: Union[bool, str] = "auto", program: Optional[str] = None,
                 options: Sequence[str] = (), raise_errors: bool = True) -> None:
        self.raise_errors = raise_errors
        self._path, self._start_how, self._program, self._options = path, start, program, options
        self._private: Optional[PrivateEngine] = None
        self._ids = itertools.count(1)
        self._calls: "Dict[int, asyncio.Future[Any]]" = {}
        self._outputs: Dict[int, OnOutput] = {}
        self._output_errors: Dict[int, BaseException] = {}
        self._capabilities: Dict[str, Capability] = {}
        self._unused = new_unused()  # handles of code's objects that nothing here holds any more
        self._kept = Kept(lambda handle: AsyncObject(self._call_object, handle, self._unused))
        self._tasks: "Set[asyncio.Task[None]]" = set()
        self._gone: Optional[EngineGone] = EngineGone("not connected: use `async with`, or await connect()")
        self._reader_task: "Optional[asyncio.Task[None]]" = None

    async def connect(self) -> "AsyncEngine":
        path = self._path or default_socket()
        streams = None
        if self._start_how is not True:
            try:
                streams = await asyncio.open_unix_connection(path)
            except OSError as e:
                if self._path is not None or self._start_how is False:
                    raise EngineGone("no engine answers at %s (%s); start one with `furca serve`" % (path, os.strerror(e.errno or 0))) from None
        if streams is None:
            self._private = PrivateEngine(self._program, self._options)
            streams = await asyncio.open_unix_connection(sock=self._private.sock)
        self._in, self._out = streams
        self._gone = None
        self._reader_task = asyncio.ensure_future(self._read())
        return self

    async def close(self) -> None:
        """Closes the connection, and ends the engine if it is private."""
        if self._reader_task is not None:
            self._out.close()
            await asyncio.wait([self._reader_task], timeout=10)
            self._reader_task.cancel()
            self._reader_task = None
        if self._private is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._private.wait)

    async def __aenter__(self) -> "AsyncEngine":
        return await self.connect()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _send(self, message: List[Any]) -> None:
        if self._gone:
            raise self._gone
        self._out.write(pack(message))
        try:
            await self._out.drain()
        except OSError as e:
            raise EngineGone("the connection to the engine failed: %s" % e) from None

    async def _read(self) -> None:
        unpack = unpacker()
        why = "the engine closed the connection"
        try:
            while True:
                data = await self._in.read(1 << 18)
                if not data:
                    break
                unpack.feed(data)
                for message in unpack:
                    self._take(message)
        except OSError as e:
            why = "the connection to the engine failed: %s" % e
        except Exception as e:
            why = "the engine sent what is no message: %r" % (e,)
        finally:
            self._gone = EngineGone(why)
            left, self._calls = list(self._calls.values()), {}
            for future in left:
                if not future.done():
                    future.set_exception(self._gone)

    def _take(self, message: List[Any]) -> None:
        if message[0] == 1:
            future = self._calls.pop(message[1], None)
            self._outputs.pop(message[1], None)
            output_error = self._output_errors.pop(message[1], None)
            if future is None or future.done():
                return
            if message[2] is not None:
                future.set_exception(ProtocolError(message[2]))
            elif output_error is not None:
                future.set_exception(output_error)
            else:
                future.set_result(message[3])
        elif message[0] == 2 and message[1] == "output":
            params = message[2][0]
            on_output = self._outputs.get(params["execute_msgid"])
            if on_output is not None:
                data = params["data"]
                try:
                    on_output(params["stream"], data.decode(errors="replace") if isinstance(data, bytes) else data)
                except Exception as e:  # the caller's: execute() raises it, and no more is told
                    self._output_errors[params["execute_msgid"]] = e
                    del self._outputs[params["execute_msgid"]]
        elif message[0] == 2 and message[1] == "release":
            self._kept.release(message[2][0]["handle"])
        elif message[0] == 0:
            task = asyncio.ensure_future(self._serve(message[1], message[2], message[3][0]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, msgid: int, method: str, params: Dict[str, Any]) -> None:
        error, value = None, None
        if "call_id" in params:
            serving.set((self, params["call_id"]))  # this task's own
        try:
            function = function_of(self._capabilities, self._kept, method, params)
            value = await self._run(function, self._kept.back(params["args"]), self._kept.back(params["kwargs"]))
        except Exception as e:
            error = failure(e)
        try:
            while self._unused:
                await self._start("release_object", {"handle": self._unused.popleft()})
            await self._send([1, msgid, error, value])
        except (TypeError, ValueError) as e:
            await self._send([1, msgid, failure(e), None])
        except EngineGone:
            pass

    @staticmethod
    async def _run(function: Callable[..., Any], args: List[Any], kwargs: Dict[str, Any]) -> Any:
        """Coroutine functions run in the loop, others on a thread, so that they do not block it."""
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        context = contextvars.copy_context()
        value = await asyncio.get_running_loop().run_in_executor(None, lambda: context.run(function, *args, **kwargs))
        return await value if inspect.isawaitable(value) else value

    async def _start(self, method: str, arguments: Dict[str, Any], on_output: Optional[OnOutput] = None) -> "tuple[int, asyncio.Future[Any]]":
        msgid = next(self._ids)
        future: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()
        self._calls[msgid] = future
        if on_output is not None:
            self._outputs[msgid] = on_output
        try:
            await self._send([0, msgid, method, [without_none(arguments)]])
        except BaseException:
            self._calls.pop(msgid, None)
            self._outputs.pop(msgid, None)
            raise
        return msgid, future

    async def _call_object(self, handle: Handle, name: str, args: "tuple[Any, ...]", kwargs: Dict[str, Any], read: bool) -> Any:
        answer = checked(await self.call("call_object", **request(handle, name, args, kwargs, read), within=within(self)), True)
        return self._kept.back(answer["value"])

    async def call(self, method: str, **arguments: Any) -> Dict[str, Any]:
        """Any method of the protocol; its answer as it came."""
        _, future = await self._start(method, arguments)
        return dict(await future)

    async def _checked(self, method: str, **arguments: Any) -> Result:
        return checked(await self.call(method, **arguments), self.raise_errors)

    async def _part(self, method: str, key: Optional[str], **arguments: Any) -> Any:
        """One value of an answer. It could not hold a refusal, which is raised therefore, whatever raise_errors says."""
        answer = checked(await self.call(method, **arguments), True)
        return answer[key] if key else None

    async def execute(self, code: str, language: str = "python", *, state_mode: Optional[str] = None, session: SessionKey = None,
                      venv_id: Optional[int] = None, timeout_s: Optional[float] = None, on_output: Optional[OnOutput] = None,
                      raise_errors: Optional[bool] = None, **arguments: Any) -> Result:
        """Runs code at a coordinate. Where the awaiting task is cancelled, the code is interrupted before CancelledError goes on."""
        arguments = {**session_arguments(session), **arguments, "code": code, "language": language, "state_mode": state_mode,
                     "venv_id": venv_id, "timeout_s": timeout_s, "stream": True if on_output else None, "within": within(self)}
        msgid, future = await self._start("execute", arguments, on_output)
        try:
            fields = await future
        except asyncio.CancelledError:
            if self._gone is None:
                await asyncio.shield(self.call("cancel", msgid=msgid))
            raise
        return checked(fields, self.raise_errors if raise_errors is None else raise_errors)

    async def python(self, code: str, **arguments: Any) -> Result:
        return await self.execute(code, "python", **arguments)

    async def bash(self, code: str, **arguments: Any) -> Result:
        return await self.execute(code, "bash", **arguments)

    def session(self, session: SessionKey = 0, language: str = "python", venv_id: Optional[int] = None) -> "AsyncSession":
        return AsyncSession(self, session, language, venv_id)

    async def sessions(self, detail: Optional[str] = None) -> List[Dict[str, Any]]:
        return list(await self._part("list_sessions", "sessions", detail=detail))

    async def close_all_sessions(self) -> int:
        return int(await self._part("close_all_sessions", "closed"))

    async def hello(self) -> Dict[str, Any]:
        return await self.call("hello", client="furca python")

    def keep(self, value: Any) -> Handle:
        """A handle of any object, for a capability to return: the object stays here, code in the session calls its methods."""
        return self._kept.give(value)

    async def register(self, function: Callable[..., Any], name: Optional[str] = None, *, effect: str = "write", doc: Optional[str] = None) -> None:
        """Offers a function, coroutine or not, to code in sessions as `capabilities.<name>(...)`."""
        entry = Capability(function, name, effect, doc)
        self._capabilities[entry.name] = entry
        await self._part("register_capabilities", None, capabilities=declarations({entry.name: entry}))


class AsyncSession:
    """A session by its coordinate. As an asynchronous context manager it is closed at the end."""

    def __init__(self, engine: AsyncEngine, session: SessionKey, language: str = "python", venv_id: Optional[int] = None) -> None:
        self.engine, self.language, self.venv_id, self.key = engine, language, venv_id, session
        self._where = {**session_arguments(session), "language": language, "venv_id": venv_id}

    async def run(self, code: str, **arguments: Any) -> Result:
        return await self.engine.execute(code, state_mode="stateful", **self._where, **arguments)

    async def read(self, code: str, **arguments: Any) -> Result:
        return await self.engine.execute(code, state_mode="read_only", **self._where, **arguments)

    async def inspect(self, detail: Optional[str] = None, name: Optional[str] = None) -> Dict[str, Any]:
        return dict(await self.engine._part("inspect_session", "state", detail=detail, name=name, **self._where))

    async def undo(self, steps: int = 1) -> Result:
        return await self.engine._checked("undo", steps=steps, **self._where)

    async def branch(self, new_name: str) -> "AsyncSession":
        await self.engine._part("branch_session", None, new_name=new_name, **self._where)
        return AsyncSession(self.engine, new_name, self.language, self.venv_id)

    async def close(self) -> bool:
        return bool(await self.engine._part("close_session", "closed", **self._where))

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.engine._gone is None:
            await self.close()
