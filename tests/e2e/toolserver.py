"""A real MCP server, made with the official SDK, for `furca mcp --tools`."""
import asyncio
import os
import time

from mcp.server.fastmcp import FastMCP, Image
from mcp.types import ToolAnnotations

time.sleep(float(os.environ.get("SLOW_START", "0")))
box = FastMCP("box", log_level="ERROR")
READ = ToolAnnotations(readOnlyHint=True)
stored = {}


@box.tool(annotations=READ)
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@box.tool()
def put(key: str, value: str) -> str:
    """Stores a value."""
    stored[key] = value
    return "stored " + key


@box.tool(annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=False))
def put_gently(key: str, value: str) -> None:
    stored[key] = value


@box.tool(annotations=READ)
def get(key: str) -> str:
    return stored[key]


@box.tool(annotations=READ)
def big(n: int) -> str:
    return "x" * n


@box.tool(annotations=READ)
async def slow(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        with open(os.environ["MARK"], "a") as f:
            f.write("cancelled\n")
        raise
    return "done"


@box.tool()
def die() -> str:
    os._exit(3)


@box.tool(annotations=READ)
def pid() -> int:
    return os.getpid()


@box.tool(name="list-files", annotations=READ)
def list_files(path: str = ".", deep: bool = False, only: list[str] = []) -> dict[str, object]:
    return {"path": path, "deep": deep, "only": only}


@box.tool(annotations=READ)
def picture() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


box.run()
