"""Answers and errors, the same for the blocking and the asynchronous client."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Type


class Result(Mapping[str, Any]):
    """The answer to an execution: the engine's result map, readable by key and by attribute.

    Every key of doc/protocol.md is an attribute (`result.stdout`, `result.state`); `value` is short for `result`, the last expression's
    value where it is plain, and `text` for `result_text`, its repr.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields: Dict[str, Any] = dict(fields)

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError("the answer has no %r" % name) from None

    @property
    def ok(self) -> bool:
        return bool(self._fields["ok"])

    @property
    def value(self) -> Any:
        return self._fields.get("result")

    @property
    def text(self) -> Optional[str]:
        return self._fields.get("result_text")

    @property
    def stdout(self) -> str:
        return self._fields.get("stdout") or ""

    @property
    def stderr(self) -> str:
        return self._fields.get("stderr") or ""

    @property
    def state(self) -> str:
        return self._fields.get("state") or "unchanged"

    @property
    def display(self) -> List[Dict[str, Any]]:
        return self._fields.get("display") or []

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n"), self.text or "", self._fields.get("error") or ""]
        return "\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        if self.ok:
            return "<furca result %s, %s>" % (self.text if self.text is not None else repr(self.value), self.state)
        return "<furca result %s: %s, %s>" % (self._fields.get("error_type"), self._fields.get("error"), self.state)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        """In a notebook the last thing that the code displayed, else its text."""
        bundle: Dict[str, Any] = {"text/plain": str(self)}
        if self.display:
            bundle.update({mime: data for mime, data in self.display[-1].items() if mime != "at"})
        return bundle


class FurcaError(Exception):
    """Everything that this package raises by itself."""


class ProtocolError(FurcaError):
    """The engine refused the message itself: unknown method, limit."""

    def __init__(self, error: Any) -> None:
        self.code = error.get("code") if isinstance(error, dict) else None
        super().__init__(error.get("message") if isinstance(error, dict) else str(error))


class EngineGone(FurcaError):
    """The connection to the engine is closed."""


class ExecutionError(FurcaError):
    """An execution that is not ok; `result` is the whole answer."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.error_type: str = result.get("error_type") or "internal"
        self.suggestion: Optional[str] = result.get("suggestion")
        self.state = result.state
        text = result.get("error") or self.error_type
        if self.state in ("rolled_back", "lost"):
            text += "\n(session: %s)" % self.state
        if self.suggestion:
            text += "\n(%s)" % self.suggestion
        super().__init__(text)


class Refused(ExecutionError):
    """The arguments make no coordinate; nothing ran. `suggestion` names what to change."""


class CodeError(ExecutionError):
    """The code raised, did not compile, or exited with a status that is not 0."""


class TimedOut(ExecutionError):
    """`timeout_s` was over."""


class Interrupted(ExecutionError):
    """The execution was cancelled."""


class ProcessLost(ExecutionError):
    """The process ended under the code: a crash, a signal, memory. `state` says what became of the session."""


class IsolationError(ExecutionError):
    """A guarantee that was required cannot be had on this machine; nothing ran."""


class EnvironmentFailed(ExecutionError):
    """The environment could not be built."""


class LimitReached(ExecutionError):
    """A bound of the engine."""


_BY_TYPE: Dict[str, Type[ExecutionError]] = {
    "validation": Refused, "exception": CodeError, "exit": CodeError, "timeout": TimedOut, "interrupted": Interrupted,
    "crashed": ProcessLost, "killed": ProcessLost, "oom": ProcessLost, "isolation": IsolationError,
    "environment": EnvironmentFailed, "limit": LimitReached,
}


def error_of(result: Result) -> ExecutionError:
    return _BY_TYPE.get(result.get("error_type") or "", ExecutionError)(result)


def checked(fields: Mapping[str, Any], raise_errors: bool) -> Result:
    """The answer of any method as a Result; raised where it is a refusal or failure and errors are wanted as exceptions."""
    result = Result(fields)
    if raise_errors and result.get("ok") is False:
        raise error_of(result)
    return result
