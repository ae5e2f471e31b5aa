"""SessionExecutor: one asynchronous execute() for tool layers that have arguments of these names and want a dict back."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from .._aio import AsyncEngine
from .._client import session_arguments

KEYS = ("stdout", "stderr", "result", "error", "language", "state_mode", "session_id", "session_name", "venv_id", "session_created", "duration_ms")


class SessionExecutor:
    """Stateless, stateful and read-only execution over one engine. Refusals are returned, never raised, with `error_type` and `suggestion`."""

    def __init__(self, engine: Optional[AsyncEngine] = None, *, timeout: Optional[float] = None) -> None:
        self.engine = engine or AsyncEngine()
        self.timeout = timeout
        self._own = engine is None

    async def __aenter__(self) -> "SessionExecutor":
        if self._own:
            await self.engine.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def execute(self, code: str, language: str = "python", state_mode: Optional[str] = None, session_id: Optional[int] = None,
                      venv_id: Optional[int] = None, session_name: Optional[str] = None, timeout: Optional[float] = None,
                      **arguments: Any) -> Dict[str, Any]:
        """Runs code; the answer has the keys of KEYS (the coordinate that was used, what came out) and the engine's own beside them."""
        answer = await self.engine.call("execute", code=code, language=language, state_mode=state_mode, session_id=session_id, session_name=session_name,
                                        venv_id=venv_id, timeout_s=timeout if timeout is not None else self.timeout, **arguments)
        session = answer.get("session") or {}
        used = (answer.get("received") or {}).get("state_mode") or state_mode
        if used is None:
            used = "stateful" if language == "python" and venv_id is None else "stateless"
        out: Dict[str, Any] = {**answer, "language": language, "state_mode": used, "venv_id": venv_id}
        out["session_id"] = session.get("session_id", session_id)
        out["session_name"] = session.get("session_name", session_name)
        for key in KEYS:
            out.setdefault(key, None)
        return out

    async def list_sessions(self) -> List[Dict[str, Any]]:
        return list((await self.engine.call("list_sessions"))["sessions"])

    async def inspect(self, session: "int | str", language: str = "python", venv_id: Optional[int] = None) -> Dict[str, Any]:
        return await self.engine.call("inspect_session", **session_arguments(session), language=language, venv_id=venv_id)

    async def close(self) -> None:
        if self._own:
            await self.engine.close()
