"""`furca mcp --tools`: tools of other MCP servers as capabilities inside sessions. The other server is a real one, of the official SDK."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from furcalib import eventually, furca_program
from mcplib import ENVELOPE, Server, text
from packages import environment

HERE = os.path.dirname(os.path.abspath(__file__))


def config(path, **servers):
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


@pytest.fixture
def start(tmp_path):
    running = []

    def start(command=None, **env):
        entry = {"command": sys.executable, "args": [os.path.join(HERE, "toolserver.py")],
                 "env": {"PYTHONPATH": environment("mcp")["PYTHONPATH"], "MARK": str(tmp_path / "mark"),
                         "PYTHONDONTWRITEBYTECODE": "", **env}}  # it starts many times
        running.append(Server("--state-dir", str(tmp_path / "state"), "--workdir", str(tmp_path), "--tools", config(tmp_path / "tools", **{"box": entry, **(command or {})})))
        running[-1].initialize()
        return running[-1]

    yield start
    for server in running:
        assert server.close() == 0


def value(result):
    assert result["isError"] is False, text(result)
    return result["structuredContent"]["result"]


def test_tools_are_capabilities_in_python_and_bash(start):
    server = start()

    def description():
        return next(t for t in server.request("tools/list")["result"]["tools"] if t["name"] == "execute_code")["description"]

    assert eventually(lambda: "box.add(a, b): Adds two numbers." in description() and "box.put(key, value) [not in read_only]" in description(), 30)
    assert eventually(lambda: any(n["method"] == "notifications/tools/list_changed" for n in server.notifications))
    run = lambda code, **more: server.python(code, session_name="s", **more)  # noqa: E731
    assert value(run("capabilities.box.add(2, b=40)")) == 42
    assert value(run("capabilities.box.add(2, 3)")) == 5
    assert value(run("capabilities.box.put('k', 'v'), capabilities.box.get('k')")) == ["stored k", "v"]
    assert value(run("len(capabilities.box.big(3_000_000))")) == 3000000
    assert value(run("capabilities.box.list_files('/', only=['a'])")) == {"path": "/", "deep": False, "only": ["a"]}
    assert value(run("capabilities.box.picture()[0]['mimeType']")) == "image/png"
    assert "ToolError" in text(run("capabilities.box.get('nope')")) and "takes 2 arguments" in text(run("capabilities.box.add(1, 2, 3)"))
    assert value(run("import concurrent.futures as c\nlist(c.ThreadPoolExecutor(8).map(capabilities.box.add, range(20)))")) == list(range(1, 21))
    result = server.tool("execute_code", language="bash", code="capability box.add a=2 b=40; capability box.list_files path=/tmp deep=true only:='[\"x\"]'; "
                                                              "capability box.get key=nope 2>/dev/null || echo failed")
    assert text(result).splitlines()[0] == "42" and json.loads(text(result).splitlines()[1]) == {"path": "/tmp", "deep": True, "only": ["x"]}
    assert text(result).splitlines()[2] == "failed"


def test_read_only_hint_decides_the_effect(start):
    server = start()
    server.python("x = 1", session_name="s")
    look = lambda code: server.python(code, session_name="s", state_mode="read_only")  # noqa: E731
    assert value(look("capabilities.box.add(5)")) == 6
    for code in ("capabilities.box.put('k', 'v')", "capabilities.box.put_gently('k', 'v')"):
        assert "PermissionError" in text(look(code))
    assert "ToolError" in text(look("capabilities.box.get('k')"))


def test_a_server_that_dies_fails_its_calls_and_is_started_again(start):
    server = start()
    first = value(server.python("capabilities.box.pid()", session_name="s"))
    slow = server.start("tools/call", {"name": "execute_code", "arguments": {"language": "python", "code": "capabilities.box.slow(60)", "session_name": "slow"}})
    time.sleep(0.5)
    result = server.python("capabilities.box.die()", session_name="s")
    assert "ConnectionError" in text(result) and "status 3" in text(result)
    assert "ConnectionError" in text(server.wait(slow)["result"])
    time.sleep(1)
    second = value(server.python("capabilities.box.pid()", session_name="s"))
    assert second != first
    os.kill(second, signal.SIGKILL)
    time.sleep(1.2)
    assert eventually(lambda: not server.python("capabilities.box.pid()", session_name="s")["isError"], 10)
    assert value(server.python("capabilities.box.pid()", session_name="s")) not in (first, second)


def test_cancelled_and_timed_out_calls_are_given_up_there_too(start, tmp_path):
    server = start()
    began = time.monotonic()
    assert "interrupted" in text(server.python("capabilities.box.slow(60)", session_name="s", timeout_s=1))
    id = server.start("tools/call", {"name": "execute_code", "arguments": {"language": "python", "code": "capabilities.box.slow(60)", "session_name": "s"}})
    time.sleep(1)
    server.line(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}))
    assert value(server.python("capabilities.box.add(1)", session_name="s")) == 2
    assert time.monotonic() - began < 30
    assert eventually(lambda: (tmp_path / "mark").exists() and (tmp_path / "mark").read_text().count("cancelled") == 2, 5)


def test_a_slow_start_and_one_that_fails(start):
    server = start({"broken": {"command": "/nonexistent/program"}, "off": {"command": "/nonexistent", "disabled": True},
                    "mute": {"command": "true"}}, SLOW_START="2")
    assert value(server.python("capabilities.box.add(1)", session_name="s")) == 2
    assert "error" in text(server.python("capabilities.broken.x()", session_name="s")).lower()


def test_threads_call_between_executes(start):
    server = start()
    server.python("import threading, time\ngot = []\ndef work():\n    time.sleep(1)\n    got.append(capabilities.box.add(1))\n"
                  "threading.Thread(target=work).start()", session_name="s")
    assert eventually(lambda: value(server.python("got", session_name="s")) == [2], 10)


def test_nothing_of_the_servers_is_left(start, tmp_path):
    server = start()
    pid = value(server.python("capabilities.box.pid()"))
    assert os.path.exists("/proc/%d" % pid)
    server.process.kill()
    server.process.wait()
    assert eventually(lambda: not os.path.exists("/proc/%d" % pid), 10)
    server.close = lambda: 0


@pytest.mark.parametrize("content, words", [
    ("no json", "line 1"), ("{}", "mcpServers"), ('{"mcpServers": {"a": {}}}', "command"), ('{"mcpServers": {"a": {"url": "http://x"}}}', "URL"),
    ('{"mcpServers": {"a": {"command": "x", "args": [1]}}}', "args"), ('{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}', "env"),
])
def test_a_configuration_that_is_wrong_is_said(tmp_path, content, words):
    (tmp_path / "tools").write_text(content)
    done = subprocess.run([furca_program(), "mcp", "--state-dir", str(tmp_path), "--tools", str(tmp_path / "tools")], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and words in done.stderr, done
    gone = subprocess.run([furca_program(), "mcp", "--state-dir", str(tmp_path), "--tools", str(tmp_path / "none")], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=30)
    assert gone.returncode == 1 and "none': No such file" in gone.stderr, gone


HOSTILE = r"""
import json, os, sys
def out(id, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message["method"]
    if method == "initialize":
        out(id, protocolVersion="2025-06-18", capabilities={}, serverInfo={"name": "h", "version": "1"})
    elif method == "tools/list":
        out(id, tools=[{"name": name, "inputSchema": {}} for name in ("deep", "number", "half", "bytes", "good")], nextCursor="again")
    elif method == "tools/call":
        content = {"deep": b'{"structuredContent":{"a":' + b"[" * 1500 + b"]" * 1500 + b"}}", "number": b'{"structuredContent":{"a":1' + b"0" * 30 + b"}}",
                   "half": b'{"content":[{"type":"text","text":"\\ud800"}]}', "bytes": b'{"content":[{"type":"text","text":"\xff"}]}',
                   "good": b'{"content":[{"type":"text","text":"good"}]}'}[message["params"]["name"]]
        os.write(1, b'{"result":%s,"jsonrpc":"2.0","x":["id",{"id":1}],"id":%d}\n' % (content, id))
"""


MODERN_ONLY = r"""
import json, sys
def out(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
tools = [{"name": "twice", "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}, "annotations": {"readOnlyHint": True}}]
listening = None
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message["method"], message.get("params", {})
    if id is None:
        continue
    meta = params.get("_meta", {})
    if meta.get("io.modelcontextprotocol/protocolVersion") != "2026-07-28" or meta.get("io.modelcontextprotocol/clientCapabilities") != {}:
        out(id=id, error={"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"], "requested": ""}})
    elif method == "tools/list":
        out(id=id, result={"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})
    elif method == "subscriptions/listen":
        listening = id
        out(method="notifications/subscriptions/acknowledged", params={"_meta": {"io.modelcontextprotocol/subscriptionId": id}, "notifications": params["notifications"]})
    elif method == "tools/call":
        if params["name"] == "twice":
            tools.append({"name": "more", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}})
            out(method="notifications/tools/list_changed", params={"_meta": {"io.modelcontextprotocol/subscriptionId": listening}})
        out(id=id, result={"resultType": "complete", "content": [{"type": "text", "text": str(2 * params["arguments"].get("x", 0))}]})
"""


def test_a_server_without_handshake(start, tmp_path):
    """It refuses `initialize`; what it offers later is heard of, and told on to a client that listens."""
    (tmp_path / "modern.py").write_text(MODERN_ONLY)
    server = start({"m": {"command": sys.executable, "args": [str(tmp_path / "modern.py")]}})
    listen = server.start("subscriptions/listen", {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True, "promptsListChanged": True}})

    def told(method):
        return [n["params"] for n in server.notifications if n["method"] == method and "_meta" in n.get("params", {})]

    tag = {"io.modelcontextprotocol/subscriptionId": listen}
    assert eventually(lambda: told("notifications/subscriptions/acknowledged"), 10) == [{"_meta": tag, "notifications": {"toolsListChanged": True}}]
    before = len(told("notifications/tools/list_changed"))
    assert text(server.python("capabilities.m.twice(x=21)")).startswith("'42'")
    assert eventually(lambda: len(told("notifications/tools/list_changed")) > before, 10)
    assert all(n["_meta"] == tag for n in told("notifications/tools/list_changed"))
    assert eventually(lambda: text(server.python("capabilities.m.more()")).startswith("'0'"), 10)
    server.line(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": listen}}))
    other = server.start("subscriptions/listen", {"_meta": ENVELOPE, "notifications": {}})
    assert eventually(lambda: len(told("notifications/subscriptions/acknowledged")) == 2, 10)
    server.process.stdin.close()
    end = server.wait(other)  # the input has ended, and what is open with it
    assert end["result"] == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": other}}
    assert listen not in server.answers


def test_answers_that_cannot_be_read_fail_alone(start, tmp_path):
    """They ended the connection to the engine, or were waited for until the call's time was over; a list without an end took all memory."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    server = start({"h": {"command": sys.executable, "args": [str(tmp_path / "hostile.py")]}})
    for tool, error in (("deep", "ValueError"), ("number", "ToolError"), ("half", "ToolError"), ("bytes", "ToolError")):
        begin = time.monotonic()
        assert error in text(server.python("capabilities.h.%s()" % tool, timeout_s=20))
        assert time.monotonic() - begin < 15
    assert "good" in text(server.python("capabilities.h.good()"))
