"""Client of furca, a fork-snapshot execution engine for agents' code.

    import furca

    with furca.Engine() as engine:
        audit = engine.session("audit")
        audit.run("rows = list(range(10))")
        audit.read("rows.clear(); len(rows)").value   # 0
        audit.read("len(rows)").value                 # 10: the read-only call changed nothing

Engine blocks, AsyncEngine is for asyncio. furca.adapters has what agent frameworks want.
"""
from . import suggestions
from ._attach import Attached, attach
from ._aio import AsyncEngine, AsyncSession
from ._client import Call, Engine, Session
from ._object import AsyncObject, Object
from ._result import (CodeError, EngineGone, EnvironmentFailed, ExecutionError, FurcaError, Interrupted, IsolationError,
                      LimitReached, ProcessLost, ProtocolError, Refused, Result, TimedOut)
from ._wire import Handle

__version__ = "0.1.0"
__all__ = ["AsyncEngine", "AsyncObject", "AsyncSession", "Attached", "Call", "CodeError", "Engine", "EngineGone", "EnvironmentFailed", "ExecutionError", "FurcaError",
           "Handle", "Interrupted", "IsolationError", "LimitReached", "Object", "ProcessLost", "ProtocolError", "Refused", "Result",
           "Session", "TimedOut", "attach", "suggestions"]
