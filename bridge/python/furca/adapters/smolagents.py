"""A smolagents PythonExecutor: CodeAgent(tools, model, executor=FurcaExecutor(engine)). Needs smolagents.

Code runs in a furca session with all of Python; tools stay in the agent's process and are called as capabilities. A step that crashes or times
out costs the step, not the state.
"""
from __future__ import annotations

from typing import Any, Dict, Optional

try:
    from smolagents.local_python_executor import CodeOutput, PythonExecutor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("%s; this adapter needs it: pip install smolagents" % error, name=error.name) from None

from .._client import Engine, Session

_SET_UP = """
class FinalAnswerException(BaseException):
    pass

def final_answer(*args, **kwargs):
    global _furca_answer
    _furca_answer = capabilities.%(prefix)s.final_answer(*args, **kwargs)
    raise FinalAnswerException()
"""
_TOOL = """
def %(name)s(*args, **kwargs):
    return capabilities.%(prefix)s.%(name)s(*args, **kwargs)
"""


class FurcaExecutor(PythonExecutor):
    """One session for one agent. `session` names it; `timeout_s` bounds each step."""

    def __init__(self, engine: Engine, session: str = "smolagents", timeout_s: Optional[float] = None) -> None:
        self.engine = engine
        self.session = Session(engine, session)
        self.timeout_s = timeout_s
        self.prefix = "smolagents_%x" % id(self)

    def send_tools(self, tools: Dict[str, Any]) -> None:
        for name, tool in tools.items():
            self.engine.capability("%s.%s" % (self.prefix, name), effect="write")(tool)
        code = "".join(_TOOL % {"name": name, "prefix": self.prefix} for name in tools if name != "final_answer")
        if "final_answer" in tools:
            code += _SET_UP % {"prefix": self.prefix}
        if code:
            self.session.run(code)

    def send_variables(self, variables: Dict[str, Any]) -> None:
        """Plain values only; TypeError names what is not."""
        if not variables:
            return
        name = "%s.variables" % self.prefix
        self.engine.capability(name, effect="read")(lambda: dict(variables))
        self.session.run("globals().update(capabilities.%s())" % name)

    def __call__(self, code_action: str) -> CodeOutput:
        result = self.session.run(code_action, timeout_s=self.timeout_s, raise_errors=False)
        logs = result.stdout + result.stderr
        if result.ok:
            return CodeOutput(output=result.value if result.value is not None else result.text, logs=logs, is_final_answer=False)
        if result.get("error_type") == "exception" and "FinalAnswerException" in (result.get("error") or ""):
            answer = self.session.read("_furca_answer")
            return CodeOutput(output=answer.value if answer.value is not None else answer.text, logs=logs, is_final_answer=True)
        text = result.get("error") or "the code failed"
        if result.state in ("rolled_back", "lost"):
            text += "\n(the session is %s)" % ("as it was before this step" if result.state == "rolled_back" else "empty")
        raise RuntimeError(logs + "\n" + text if logs else text)

    def cleanup(self) -> None:
        self.session.close()
