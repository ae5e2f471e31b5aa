"""execute_code as a tool of the OpenAI and Anthropic interfaces: the schema to send, and a dispatcher for the calls that come back."""
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Union

from .._client import Engine
from .._result import Result

NAME = "execute_code"

DESCRIPTION = """Run Python or bash code. The arguments say where it runs; choose them from the work:
- state_mode "stateful": work of several steps. Variables are kept in the session for later calls.
- state_mode "read_only": a look or a try. It sees everything in an existing session, and nothing that it does lasts: not variables, not objects changed in place, not files.
- state_mode "stateless": a one-off check in a fresh process.
Give sessions names ("audit"). A wrong combination is answered with an error and a suggestion. "state" in the answer says what became of the session."""

PARAMETERS: Dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "The code."},
        "language": {"type": "string", "enum": ["python", "bash"], "description": "What the code is written in."},
        "state_mode": {"type": "string", "enum": ["stateful", "read_only", "stateless"],
                       "description": "Must results persist? Default: stateful for python without venv_id, else stateless."},
        "session_name": {"type": "string", "description": "The session, by name. A new name makes a session, except in read_only."},
        "session_id": {"type": "integer", "minimum": 0, "description": "The session, by id, instead of its name. Default of a stateful call: 0."},
        "venv_id": {"type": "integer", "minimum": 0, "description": "A dedicated environment with its own packages."},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "description": "Most seconds it may take."},
    },
    "required": ["code", "language"],
    "additionalProperties": False,
}


def schema(style: str = "openai") -> Dict[str, Any]:
    """The tool as an entry of `tools`: style "openai" (chat completions), "openai_responses", "anthropic" or "mcp"."""
    parameters = json.loads(json.dumps(PARAMETERS))
    if style == "openai":
        return {"type": "function", "function": {"name": NAME, "description": DESCRIPTION, "parameters": parameters}}
    if style == "openai_responses":
        return {"type": "function", "name": NAME, "description": DESCRIPTION, "parameters": parameters, "strict": False}
    if style == "anthropic":
        return {"name": NAME, "description": DESCRIPTION, "input_schema": parameters}
    if style == "mcp":
        return {"name": NAME, "description": DESCRIPTION, "inputSchema": parameters}
    raise ValueError("style is 'openai', 'openai_responses', 'anthropic' or 'mcp', not %r" % (style,))


def text_for_model(result: Result) -> str:
    """The answer as a model should read it: what became of the session first, where cutting cannot hide it."""
    lines: List[str] = []
    if result.state in ("rolled_back", "lost"):
        lines.append("[session %s]" % result.state.replace("_", " "))
    if not result.ok:
        lines.append("error (%s): %s" % (result.get("error_type"), result.get("error")))
        if result.get("suggestion"):
            lines.append("suggestion: %s" % result["suggestion"])
    if result.get("background_output"):
        lines.append("background output:\n" + result["background_output"].rstrip("\n"))
    for name in ("stdout", "stderr"):
        if result.get(name):
            left_out = (result.get("truncated") or {}).get(name)
            lines.append("%s%s:\n%s" % (name, " (%d bytes left out)" % left_out if left_out else "", result[name].rstrip("\n")))
    if result.text is not None:
        lines.append("result: " + result.text)
    elif result.get("exit_code"):
        lines.append("exit code: %d" % result["exit_code"])
    return "\n".join(lines) or "ok, no output"


class ExecuteCode:
    """The tool bound to an engine. Errors are answers for the model, never exceptions."""

    def __init__(self, engine: Engine, **defaults: Any) -> None:
        self.engine, self.defaults = engine, defaults

    def run(self, arguments: Union[str, Mapping[str, Any]]) -> Result:
        """A call's arguments, a mapping or its JSON text, to the whole answer."""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as e:
                arguments = {"code": None, "language": None, "not_json": str(e)}
        given = {**self.defaults, **dict(arguments if isinstance(arguments, Mapping) else {"arguments": arguments})}
        # Straight to the engine: it checks every argument and its refusals are made for models.
        return Result(self.engine.call("execute", **given))

    def __call__(self, arguments: Union[str, Mapping[str, Any]]) -> str:
        return text_for_model(self.run(arguments))

    def openai_message(self, tool_call: Any) -> Dict[str, Any]:
        """A tool call of a chat completion (object or dict) to the message that answers it."""
        call = tool_call if isinstance(tool_call, Mapping) else tool_call.model_dump()
        return {"role": "tool", "tool_call_id": call["id"], "content": self(call["function"]["arguments"])}

    def anthropic_block(self, tool_use: Any) -> Dict[str, Any]:
        """A tool_use block (object or dict) to the tool_result block that answers it."""
        block = tool_use if isinstance(tool_use, Mapping) else tool_use.model_dump()
        result = self.run(block["input"])
        return {"type": "tool_result", "tool_use_id": block["id"], "content": text_for_model(result), "is_error": not result.ok}


def dispatch(engine: Engine, name: str, arguments: Union[str, Mapping[str, Any]]) -> Optional[str]:
    """Answers a call of execute_code; None for another tool's name."""
    return ExecuteCode(engine)(arguments) if name == NAME else None
