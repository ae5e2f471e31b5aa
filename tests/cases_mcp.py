#!/usr/bin/env python3
"""Runs the black-box cases through `furca mcp`, where MCP can express them: tests/cases_mcp.py --cases DIR [options of run.py].

The runner's connection stays for what MCP has no tool for (environments' removal, stored functions' calls, capabilities); every execute, and every
method that is a tool, goes through an MCP server that talks to the same engine. Cases that need what MCP has not are left out, and counted by why.
"""
import collections
import importlib.util
import json
import os
import subprocess
import sys
import threading

TOOLS = {"execute": "execute_code", **{name: name for name in ("list_sessions", "inspect_session", "close_session", "undo", "branch_session", "add_function")}}
# Steps that MCP has no form for, or that are about the wire itself.
NOT_MCP = {"cancel": "an MCP client gets no answer to a call that it cancels", "raw": "bytes on the wire", "kill_engine": "the engine's end",
           "start_engine": "the engine's end", "stop_engine": "the engine's end", "read_output": "bytes"}
# Values that JSON has not.
NOT_JSON = ("display", "streamed", "protocol_error")


def load_runner(directory):
    spec = importlib.util.spec_from_file_location("cases_run", os.path.join(directory, "run.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["cases_run"] = module
    spec.loader.exec_module(module)
    return module


def plain(value):
    """Whether JSON says it as it is."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and value == value and abs(value) != float("inf")


def why_not(case):
    """Why MCP cannot express a case, or None."""
    for step in case["steps"]:
        if step["op"] in NOT_MCP:
            return NOT_MCP[step["op"]]
        if (step.get("args") or {}).get("stream"):
            return "streams"
        if not plain(step.get("args")):
            return "values that JSON has not"
        for field, *_ in step.get("check", []):
            if str(field).startswith(NOT_JSON):
                return "values that JSON has not"
    return None


class Mcp:
    """One `furca mcp` on an engine's socket."""

    def __init__(self, program, socket):
        self.process = subprocess.Popen([program, "mcp", "--socket", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lock, self.waiting, self.last = threading.Lock(), {}, 0
        threading.Thread(target=self._read, daemon=True).start()
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "cases", "version": "0"}}, lambda answer: None)

    def ask(self, method, params, then):
        with self.lock:
            self.last += 1
            self.waiting[self.last] = then
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}).encode() + b"\n")
            self.process.stdin.flush()

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                then = self.waiting.pop(answer.get("id"), None)
            if then:
                then(answer)
        with self.lock:
            left, self.waiting = list(self.waiting.values()), {}
        for then in left:
            then(None)

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def connection_through_mcp(runner, program):
    class Connection(runner.Connection):
        def __init__(self, path, capabilities=None, timeout=10.0):
            super().__init__(path, capabilities, timeout)
            self.mcp = Mcp(program, path)
            self.issued[None] = "execute"  # a capability call of code that another client, the MCP server, runs

        def call(self, method, args):
            if method not in TOOLS or not plain(args):
                return super().call(method, args)
            with self.lock:
                self.msgid += 1
                future = runner.Future(self.msgid, method)
                self.issued[self.msgid] = method
            arguments = dict(args)
            if method == "execute":
                arguments.setdefault("max_output_bytes", 1 << 20)  # the server's own default is less: a model reads it

            def then(answer):
                if answer is None:
                    future.resolve(closed=True)
                elif "error" in answer:
                    future.resolve(None, answer["error"])
                else:
                    value = answer["result"]["structuredContent"]
                    value.pop("msgid", None)
                    if method == "execute":
                        value.setdefault("display", [])
                        if isinstance(value.get("received"), dict) and "max_output_bytes" not in args:
                            value["received"].pop("max_output_bytes", None)
                    future.resolve(value, None, streamed={})

            self.mcp.ask("tools/call", {"name": TOOLS[method], "arguments": arguments}, then)
            return future

        def close(self):
            super().close()
            self.mcp.close()

    return Connection


def main(argv):
    if argv[:1] == ["--exec-in"] or "--cases" not in argv:
        sys.stderr.write(__doc__)
        return 2
    at = argv.index("--cases")
    runner = load_runner(argv[at + 1])
    argv = argv[:at] + argv[at + 2:]
    program = argv[argv.index("--furca") + 1] if "--furca" in argv else os.environ.get("FURCA", "./furca")
    select, left_out = runner.select, collections.Counter()

    def expressible(cases, opts):
        chosen = []
        for case in select(cases, opts):
            why = why_not(case)
            if why:
                left_out[why] += 1
            else:
                chosen.append(case)
        return chosen

    runner.select = expressible
    runner.Connection = connection_through_mcp(runner, os.path.abspath(program))
    status = runner.main(argv)
    for why, n in left_out.most_common():
        print("left out: %d (%s)" % (n, why))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
