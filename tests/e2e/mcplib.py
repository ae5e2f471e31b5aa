"""A client of `furca mcp`, line for line, and other things that the tests around MCP share."""
import json
import subprocess
import threading

from furcalib import furca_program

REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]  # those with a handshake
MODERN = "2026-07-28"
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


class Server:
    """A `furca mcp` of our own; answers by id, notifications in order."""

    def __init__(self, *options):
        self.process = subprocess.Popen([furca_program(), "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers, self.notifications, self.last = {}, [], 0
        self.arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            with self.arrived:
                if "id" in message:
                    assert message["id"] not in self.answers, "answered twice"
                    self.answers[message["id"]] = message
                else:
                    self.notifications.append(message)
                self.arrived.notify_all()

    def line(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def start(self, method, params=None):
        self.last += 1
        message = {"jsonrpc": "2.0", "id": self.last, "method": method}
        if params is not None:
            message["params"] = params
        self.line(json.dumps(message))
        return self.last

    def wait(self, id, timeout=30):
        with self.arrived:
            assert self.arrived.wait_for(lambda: id in self.answers, timeout), "no answer to %r" % id
            return self.answers.pop(id)

    def request(self, method, params=None):
        return self.wait(self.start(method, params))

    def tool(self, tool, meta=None, **arguments):
        params = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        answer = self.request("tools/call", params)
        assert "result" in answer, answer
        return answer["result"]

    def python(self, code, **arguments):
        return self.tool("execute_code", language="python", code=code, **arguments)

    def initialize(self, revision=REVISIONS[0]):
        answer = self.request("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}})
        self.line('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer["result"]

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(20)
        self.process.stdout.close()
        return status


def text(result):
    return result["content"][0]["text"]
