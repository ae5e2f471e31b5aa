"""execute_code as a LangChain tool, for LangChain agents and LangGraph's ToolNode. Needs langchain-core."""
from __future__ import annotations

from typing import Any, Dict, Tuple

try:
    from langchain_core.tools import StructuredTool
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("%s; this adapter needs it: pip install langchain-core" % error, name=error.name) from None

from .._client import Engine
from .tools import DESCRIPTION, NAME, PARAMETERS, ExecuteCode, text_for_model


def execute_code_tool(engine: Engine, **defaults: Any) -> StructuredTool:
    """The tool; its content is text for the model, its artifact the whole answer as a dict. `defaults` go into every call."""
    tool = ExecuteCode(engine, **defaults)

    def run(**arguments: Any) -> Tuple[str, Dict[str, Any]]:
        result = tool.run(arguments)
        return text_for_model(result), dict(result)

    return StructuredTool.from_function(func=run, name=NAME, description=DESCRIPTION, args_schema=PARAMETERS,
                                        response_format="content_and_artifact")
