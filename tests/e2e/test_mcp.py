"""`furca mcp`, by hand, line for line; and by the official SDK where it is to be had."""
import base64
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from furcalib import Client, eventually, furca_program
from mcplib import ENVELOPE, MODERN, REVISIONS, Server, text
from packages import CACHE, environment

PNG = b"\x89PNG\r\n\x1a\n1234"


@pytest.fixture
def server(tmp_path):
    server = Server("--state-dir", str(tmp_path / "state"), "--workdir", str(tmp_path))
    server.initialize()
    yield server
    assert server.close() == 0


@pytest.mark.parametrize("asked, given", [(r, r) for r in REVISIONS] + [("1999-01-01", REVISIONS[0])])
def test_revisions(tmp_path, asked, given):
    server = Server("--state-dir", str(tmp_path))
    result = server.initialize(asked)
    assert result["protocolVersion"] == given and result["serverInfo"]["name"] == "furca" and "tools" in result["capabilities"]
    assert server.close() == 0


def test_tools_have_schemas_and_annotations(server):
    tools = {t["name"]: t for t in server.request("tools/list")["result"]["tools"]}
    assert {"execute_code", "list_sessions", "inspect_session", "close_session", "undo", "branch_session", "create_env", "add_function"} <= set(tools)
    for tool in tools.values():
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and set(schema["required"]) <= set(schema["properties"])
        assert tool["description"] and set(tool["annotations"]) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    execute = tools["execute_code"]["inputSchema"]["properties"]
    assert execute["state_mode"]["enum"] == ["stateless", "stateful", "read_only", None] and execute["language"]["enum"] == ["python", "bash"]
    for mode in ("stateful", "stateless", "read_only"):
        assert "- %s: for " % mode in tools["execute_code"]["description"]
    assert tools["inspect_session"]["annotations"]["readOnlyHint"] is True


def test_a_session_in_three_modes(server):
    result = server.python("ledger = [3, 1, 2]; print('loaded'); ledger", session_name="audit")
    assert result["isError"] is False and text(result) == "loaded\n[3, 1, 2]"
    assert result["structuredContent"]["state"] == "committed"
    assert server.python("ledger.sort(); ledger", session_name="audit", state_mode="read_only")["structuredContent"]["result"] == [1, 2, 3]
    assert text(server.python("ledger", session_name="audit")) == "[3, 1, 2]"
    assert text(server.tool("execute_code", language="bash", code="echo $((1+1))")) == "2\n"
    assert [s["session_name"] for s in server.tool("list_sessions")["structuredContent"]["sessions"]] == ["audit"]
    names = server.tool("inspect_session", session_name="audit")["structuredContent"]["state"]["names"]
    assert [n["name"] for n in names] == ["ledger"]
    server.python("ledger.clear()", session_name="audit")
    assert server.tool("undo", session_name="audit")["isError"] is False
    assert server.tool("branch_session", session_name="audit", new_name="aside")["isError"] is False
    assert text(server.python("ledger", session_name="aside")) == "[3, 1, 2]"
    assert server.tool("close_session", session_name="aside")["structuredContent"]["closed"] is True


def test_a_refusal_carries_its_suggestion_in_text_and_structure(server):
    result = server.python("1", state_mode="read_only")
    assert result["isError"] is True
    assert result["structuredContent"]["error_type"] == "validation" and result["structuredContent"]["suggestion"] in text(result)
    result = server.tool("execute_code", language="python", code="1", state_mod="stateful")
    assert result["isError"] is True and "state_mode" in text(result)


def test_what_became_of_the_session_stands_first(server):
    server.python("x = 1", session_name="s")
    result = server.python("x = 2; print('y' * 1000); 1/0", session_name="s", on_error="rollback")
    assert result["isError"] is True and text(result).startswith("[state: rolled_back")
    result = server.python("import os; os.kill(os.getpid(), 9)", session_name="s")
    assert text(result).startswith("[state: rolled_back")
    assert text(server.python("x", session_name="s")) == "1"


def test_images_are_images(server):
    result = server.python("class I:\n    def _repr_png_(self):\n        return %r\nI()" % PNG)
    images = [c for c in result["content"] if c["type"] == "image"]
    assert [(i["mimeType"], base64.b64decode(i["data"])) for i in images] == [("image/png", PNG)]


def test_long_output_is_cut_and_can_be_paged(server):
    result = server.python("print('a' * 50000 + 'MIDDLE' + 'b' * 50000)")
    assert len(text(result)) < 80000 and "read_output(msgid=" in text(result)
    page = server.tool("read_output", msgid=result["structuredContent"]["msgid"], stream="stdout", offset=50000, length=6)
    assert page["isError"] is False, page
    assert "MIDDLE" in json.dumps(page["structuredContent"]) or base64.b64encode(b"MIDDLE").decode() in json.dumps(page["structuredContent"])


def test_progress_while_it_runs(server):
    result = server.tool("execute_code", meta={"progressToken": "p1"}, language="python",
                         code="import time\nfor i in range(3):\n    print('step', i, flush=True)\n    time.sleep(0.4)")
    assert text(result) == "step 0\nstep 1\nstep 2\n"
    told = [n["params"] for n in server.notifications if n["method"] == "notifications/progress"]
    assert told and all(p["progressToken"] == "p1" for p in told) and any(p["message"].startswith("step") for p in told)
    assert [p["progress"] for p in told] == sorted({p["progress"] for p in told})


def test_cancellation(server):
    id = server.start("tools/call", {"name": "execute_code", "arguments": {"language": "python", "code": "import time; time.sleep(60)",
                                                                           "session_name": "long"}})
    time.sleep(1)
    server.line(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}))
    began = time.monotonic()
    assert text(server.python("5", session_name="long")) == "5"
    assert time.monotonic() - began < 10
    assert id not in server.answers


def test_calls_run_at_once(server):
    slow = server.start("tools/call", {"name": "execute_code", "arguments": {"language": "python", "code": "import time; time.sleep(2)",
                                                                             "session_name": "slow"}})
    assert text(server.python("1", session_name="fast")) == "1"
    assert slow not in server.answers
    server.wait(slow)


def test_functions_and_environments(server):
    assert server.tool("add_function", name="double", language="python", source="def double(x):\n    return 2 * x")["isError"] is False
    assert text(server.python("functions.double(21)")) == "42"
    result = server.tool("create_env", spec="this is no toml")
    assert result["isError"] is True and "Suggestion" in text(result)


@pytest.mark.parametrize("line, code", [
    ("no json", -32700), ("5", -32700), ("[]", -32600), ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600), ('{"id":1.5,"method":"ping"}', -32600),
])
def test_broken_messages_are_answered(server, line, code):
    server.line(line)
    assert server.wait(None)["error"]["code"] == code
    assert server.request("ping")["result"] == {}


@pytest.mark.parametrize("argument", ['"code": "\\ud83d"', '"session_id": 99999999999999999999', '"timeout_s": 1e999', '"code": "x", "code": "y"', '"code": "a\tb"'])
@pytest.mark.parametrize("id", [77, '"a \\" b"'])
def test_a_call_that_is_no_json_in_one_place_is_answered_by_its_id(server, argument, id):
    """Its sender waited for ever: the error came without one."""
    server.line('{"jsonrpc": "2.0", "method": "tools/call", "params": {"id": 5, "name": "execute_code", "arguments": {%s}}, "id": %s}' % (argument, id))
    answer = server.wait(json.loads(str(id)), 10)
    assert answer["error"]["code"] == -32700 and answer["error"]["message"], answer


@pytest.mark.parametrize("arguments", ['{"a": ' * 200 + "1" + "}" * 200, "[" * 130 + "]" * 130, "[%s]" % ",".join("0" * 4_300_000)], ids=["maps", "lists", "many"])
def test_arguments_beyond_the_bounds_of_the_engine_are_refused(server, arguments):
    """The engine ended the connection, and with it itself and all sessions."""
    server.python("x = 5", session_name="bounds", state_mode="stateful")
    server.last += 1
    server.line('{"jsonrpc": "2.0", "method": "tools/call", "id": %d, "params": {"name": "execute_code", "arguments": {"language": "python", "code": "1", '
                '"env_vars": %s}}}' % (server.last, arguments))
    answer = server.wait(server.last, 60)
    assert answer["error"]["code"] == -32602 and "nested too deep" in answer["error"]["message"], answer
    assert server.python("x", session_name="bounds", state_mode="stateful")["structuredContent"]["result"] == 5


def test_a_line_that_is_too_long_is_refused_alone(server):
    server.python("x = 5", session_name="bounds", state_mode="stateful")
    server.last += 1
    server.line('{"jsonrpc": "2.0", "method": "tools/call", "id": %d, "params": {"name": "execute_code", "arguments": {"code": "%s"}}}'
                % (server.last, "x" * (70 << 20)))
    answer = server.wait(server.last, 60)
    assert "too large" in answer["error"]["message"], answer
    assert server.python("x", session_name="bounds", state_mode="stateful")["structuredContent"]["result"] == 5


def test_unknown_methods_and_tools(server):
    assert server.request("resources/list")["error"]["code"] == -32601
    assert server.request("tools/call", {"name": "nope"})["error"]["code"] == -32602
    assert server.request("tools/call", {"name": "execute_code", "arguments": [1]})["error"]["code"] == -32602
    server.line('[{"jsonrpc":"2.0","id":"x","method":"ping"},{"jsonrpc":"2.0","id":"y","method":"ping"}]')
    assert server.wait("x")["result"] == {} and server.wait("y")["result"] == {}


def test_it_serves_a_running_engine_too(engine):
    server = Server("--socket", engine.socket)
    server.initialize()
    server.python("shared = 1", session_name="from-mcp")
    assert engine.client().python("shared", session_name="from-mcp")["result"] == 1
    assert server.close() == 0


def test_nothing_is_left_when_the_input_ends_during_a_call(tmp_path):
    server = Server("--state-dir", str(tmp_path))
    server.initialize()
    pid = int(text(server.python("import os; os.getpid()")))
    server.start("tools/call", {"name": "execute_code", "arguments": {"language": "python", "code": "import time; time.sleep(60)"}})
    time.sleep(0.5)
    server.process.stdin.close()
    server.process.wait(20)
    assert eventually(lambda: not os.path.exists("/proc/%d" % pid), 5)


def test_nothing_is_left_when_the_server_is_killed(tmp_path):
    server = Server("--state-dir", str(tmp_path))
    server.initialize()
    pid = int(text(server.python("import os; os.getpid()")))
    server.process.kill()
    server.process.wait(20)
    assert eventually(lambda: not os.path.exists("/proc/%d" % pid), 5)


# What drives each tool: arguments that are accepted, in an order that makes them so.
DRIVE = [
    ("execute_code", {"language": "python", "code": "x = 5; x", "session_name": "sdk"}),
    ("execute_code", {"language": "python", "code": "x = 6; print('y' * 100000)", "session_name": "sdk"}),
    ("execute_code", {"language": "python", "code": "x", "session_name": "sdk", "state_mode": "read_only"}),
    ("list_sessions", {}),
    ("inspect_session", {"session_name": "sdk", "detail": "full"}),
    ("undo", {"session_name": "sdk", "steps": 1}),
    ("branch_session", {"session_name": "sdk", "new_name": "b"}),
    ("add_function", {"name": "f", "language": "python", "source": "def f(): return 1"}),
    ("create_env", {"spec": "[project]\nname = 'e'\nversion = '0'", "build": False}),
    ("read_output", {"msgid": "@LAST@", "stream": "stdout", "offset": 10, "length": 5}),
    ("close_session", {"session_name": "b"}),
]
SDK = """
import asyncio, json, sys
import jsonschema
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    async with stdio_client(StdioServerParameters(command=sys.argv[1], args=["mcp", "--state-dir", sys.argv[2]], env=None)) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            tools = {t.name: t for t in (await session.list_tools()).tools}
            for tool in tools.values():
                jsonschema.Draft202012Validator.check_schema(tool.inputSchema)
            left, last = set(tools), None
            for name, arguments in json.loads(sys.argv[3]):
                arguments = {k: last if v == "@LAST@" else v for k, v in arguments.items()}
                jsonschema.validate(arguments, tools[name].inputSchema)
                r = (await session.call_tool(name, arguments)).model_dump(by_alias=True)
                assert r["isError"] is False and r["content"], (name, r)
                if name == "execute_code" and "print" in arguments["code"]:
                    last = r["structuredContent"]["msgid"]
                left.discard(name)
            assert not left, left
            r = (await session.call_tool("execute_code", {"language": "python", "code": "x", "state_mode": "read_only"})).model_dump(by_alias=True)
            assert r["isError"] is True and r["structuredContent"]["suggestion"], r
    print("sdk content")
asyncio.run(main())
"""


SDK2 = SDK[:SDK.index("from mcp import")] + '''from mcp import Client, StdioServerParameters

async def main():
    async with Client(StdioServerParameters(command=sys.argv[1], args=["mcp", "--state-dir", sys.argv[2]]), mode=sys.argv[4]) as client:
        modern = sys.argv[4] != "legacy"
        assert (client.session.discover_result is not None) == modern
        tools = {t.name: t for t in (await client.list_tools()).tools}
        for tool in tools.values():
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        left, last = set(tools), None
        for name, arguments in json.loads(sys.argv[3]):
            arguments = {k: last if v == "@LAST@" else v for k, v in arguments.items()}
            r = await client.call_tool(name, arguments)
            assert not r.is_error and r.content, (name, r)
            if name == "execute_code" and "print" in arguments["code"]:
                last = r.structured_content["msgid"]
            left.discard(name)
        assert not left, left
        r = await client.call_tool("execute_code", {"language": "python", "code": "x", "state_mode": "read_only"})
        assert r.is_error and r.structured_content["suggestion"], r
    print("sdk content")
asyncio.run(main())
'''


@pytest.mark.parametrize("mode", ["auto", "legacy", MODERN])
def test_the_official_sdk_of_the_newest_revision_drives_every_tool(tmp_path, mode):
    p = subprocess.run([sys.executable, "-c", SDK2, furca_program(), str(tmp_path / "state"), json.dumps(DRIVE), mode], capture_output=True, text=True,
                       timeout=120, env=environment("mcp", "jsonschema", of="requirements-mcp2.txt"))
    assert p.returncode == 0 and "sdk content" in p.stdout, p.stdout + p.stderr


@pytest.fixture
def bare(tmp_path):
    """A server that nobody has said `initialize` to."""
    server = Server("--state-dir", str(tmp_path / "state"), "--workdir", str(tmp_path))
    yield server
    assert server.close() == 0


def test_a_request_names_its_revision_and_needs_no_handshake(bare):
    found = bare.request("server/discover", {"_meta": ENVELOPE})["result"]
    assert found["supportedVersions"] == [MODERN, *REVISIONS] and found["capabilities"]["tools"] == {"listChanged": False}
    assert found["resultType"] == "complete" and found["ttlMs"] > 0 and found["cacheScope"] == "private"
    listed = bare.request("tools/list", {"_meta": ENVELOPE})["result"]
    assert listed["resultType"] == "complete" and listed["ttlMs"] > 0 and "execute_code" in [t["name"] for t in listed["tools"]]
    ran = bare.tool("execute_code", meta={**ENVELOPE, "progressToken": "p"}, language="python", code="6 * 7")
    assert text(ran).startswith("42") and ran["resultType"] == "complete", ran
    assert ran["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "furca"
    # The same connection may speak the older ones too, as they are.
    bare.initialize()
    assert "resultType" not in bare.python("1") and bare.request("ping")["result"] == {}


@pytest.mark.parametrize("method, meta, code", [
    ("server/discover", None, -32602), ("server/discover", {}, -32602), ("tools/list", {"io.modelcontextprotocol/protocolVersion": MODERN}, -32602),
    ("tools/list", {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
    ("tools/list", {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 7}, -32602),
    ("tools/list", {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}, -32022), ("ping", ENVELOPE, -32601),
    ("initialize", ENVELOPE, -32601), ("subscriptions/listen", ENVELOPE, -32602)])
def test_an_envelope_that_is_wrong_is_said(bare, method, meta, code):
    error = bare.request(method, {"_meta": meta} if meta is not None else {})["error"]
    assert error["code"] == code and error["message"], error
    if code == -32022:
        assert error["data"] == {"supported": [MODERN, *REVISIONS], "requested": "2099-01-01"}


def test_calls_reach_the_engine_in_the_order_in_which_they_came(bare):
    """The first makes the session that the second one looks at, and was overtaken: there was no such session. What the look sees is what was there when it came."""
    for n in range(12):
        calls = [bare.start("tools/call", {"_meta": ENVELOPE, "name": "execute_code", "arguments": {
            "language": "python", "code": code, "session_name": "o%d" % n, "state_mode": mode}})
                 for mode, code in (("stateful", "x = %d" % n), ("read_only", "globals().get('x', 'before')"))]
        made, look = [bare.wait(call)["result"] for call in calls]
        assert made["isError"] is False and look["isError"] is False, (made, look)
        assert text(look).split("\n")[0] in ("'before'", str(n)), look


def test_a_call_without_handshake_is_cancelled(bare):
    call = bare.start("tools/call", {"_meta": ENVELOPE, "name": "execute_code", "arguments": {"language": "bash", "code": "sleep 60"}})
    assert eventually(lambda: bare.request("tools/call", {"_meta": ENVELOPE, "name": "list_sessions", "arguments": {}}), 10)
    bare.line(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}))
    assert text(bare.tool("execute_code", meta=ENVELOPE, language="python", code="1")).startswith("1")
    assert call not in bare.answers


def test_the_official_sdk_drives_every_tool(tmp_path):
    """Also: each schema is one, and the arguments fit it."""
    p = subprocess.run([sys.executable, "-c", SDK, furca_program(), str(tmp_path / "state"), json.dumps(DRIVE)], capture_output=True, text=True,
                       timeout=120, env=environment("mcp", "jsonschema"))
    assert p.returncode == 0 and "sdk content" in p.stdout, p.stdout + p.stderr


INSPECTOR = "@modelcontextprotocol/inspector@0.22.0"


def inspector():
    """The command of the MCP Inspector: from npm, kept beside the build."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    there = os.path.join(CACHE, "inspector")
    program = os.path.join(there, "node_modules", ".bin", "mcp-inspector")
    if not os.path.exists(program):
        os.makedirs(there, exist_ok=True)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", there, INSPECTOR], capture_output=True, text=True, timeout=280)
        if done.returncode != 0:
            pytest.skip("npm cannot install %s: %s" % (INSPECTOR, done.stderr.strip()[-200:]))
    return program


def test_the_inspectors_command_line_drives_the_tools(tmp_path, engine):
    """Every tool with FURCA_SLOW=1, some without."""
    program = inspector()

    def run(*more):
        p = subprocess.run([program, "--cli", furca_program(), "mcp", "--socket", engine.socket, *more], capture_output=True, text=True, timeout=60,
                           stdin=subprocess.DEVNULL)
        assert p.returncode == 0, (more, p.stdout + p.stderr)
        return json.loads(p.stdout)

    left = {tool["name"] for tool in run("--method", "tools/list")["tools"]}
    every = bool(os.environ.get("FURCA_SLOW"))
    for name, arguments in DRIVE if every else DRIVE[:1] + DRIVE[2:3]:  # each starts a node of its own
        if name == "read_output":
            continue  # output is kept for the connection that ran the code, and each command is one of its own
        options = [option for key, value in arguments.items() for option in ("--tool-arg", "%s=%s" % (key, value if isinstance(value, str) else json.dumps(value)))]
        result = run("--method", "tools/call", "--tool-name", name, *options)
        assert not result.get("isError"), (name, result)
        left.discard(name)
    result = run("--method", "tools/call", "--tool-name", "read_output", "--tool-arg", "msgid=1", "--tool-arg", "stream=stdout", "--tool-arg", "offset=0",
                 "--tool-arg", "length=5")
    assert result["isError"] and "Call execute" in result["structuredContent"]["suggestion"]
    if every:
        assert left <= {"read_output"}, left
        with Client(engine.socket) as client:
            client.call("remove_function", name="f")
