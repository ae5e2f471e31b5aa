"""Capabilities: functions of this process that code in sessions may call."""
from __future__ import annotations

import inspect
import traceback
from typing import Any, Callable, Dict, List, Optional

EFFECTS = ("read", "write")


class Capability:
    def __init__(self, function: Callable[..., Any], name: Optional[str], effect: str, doc: Optional[str]) -> None:
        if effect not in EFFECTS:
            raise ValueError("effect is 'read' or 'write', not %r" % (effect,))
        self.function = function
        self.name = name or function.__name__
        self.effect = effect
        self.doc = doc if doc is not None else inspect.getdoc(function)

    def declaration(self) -> Dict[str, Any]:
        entry: Dict[str, Any] = {"name": self.name, "effect": self.effect}
        if self.doc:
            entry["doc"] = self.doc
        try:
            entry["params"] = [str(p) for p in inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):
            pass
        return entry


def declarations(capabilities: Dict[str, Capability]) -> List[Dict[str, Any]]:
    return [capability.declaration() for capability in capabilities.values()]


def failure(error: BaseException) -> Dict[str, Any]:
    """The error map of a capability that raised; the session raises an exception of that type name."""
    return {"type": type(error).__name__, "message": str(error),
            "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))}


def unknown(name: str) -> Dict[str, Any]:
    return {"type": "LookupError", "message": "no capability named %r" % name}
