"""What the executors written in Python share: the protocol's loop, and running code in a namespace. doc/bench-safety.md explains it.

An executor is a program that reads one JSON object a line on stdin and answers each with one on stdout:

    {"op": "setup", "language": "python", "code": …}   builds the session's state     -> {"ok": true} or {"ok": false, "error": …}
    {"op": "read_only", "code": …}                     looks, and may try to change   -> {"ok": …, "value": text, "error": text, "ms": 1.5}
    {"op": "observe", "code": …}                       runs in the session itself     -> {"ok": …, "value": text, "error": text}
    {"op": "close"}                                                                   -> {"ok": true}, and ends

`value` is the repr of the last expression's value (Python), or what was written to stdout (bash).
"""
import ast
import json
import os
import select
import signal
import sys
import time
import types

READ_S = 10  # a read-only call that takes longer is over


def new_session():
    """The namespace of a session in this process: a fresh __main__."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    return main.__dict__


def run(code, names):
    """Runs code as a notebook would; the answer to a call."""
    try:
        tree = ast.parse(code, "<call>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<call>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<call>", "eval"), names) if last else None
        return {"ok": True, "value": repr(value)[:4000]}
    except BaseException as e:
        return failed("%s: %s" % (type(e).__name__, e))


def failed(text):
    return {"ok": False, "error": text.strip().split("\n")[-1][:300] if text.strip() else "failed"}


def answer_of(fd, pid=None):
    """The JSON line that a process writes to `fd`; afterwards the process is gone."""
    pidfd = os.pidfd_open(pid) if pid else -1
    data, end = b"", time.monotonic() + READ_S
    while not data.endswith(b"\n"):
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            break
        part = os.read(fd, 1 << 16)
        if not part:
            break
        data += part
    os.close(fd)
    if pid:
        if not select.select([pidfd], [], [], 0.5)[0]:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
    try:
        return json.loads(data)
    except ValueError:
        return failed("no answer")


def serve(executor):
    """Answers until `close`. The protocol moves away from descriptors 0 and 1, which belong to the session's code."""
    requests = os.fdopen(os.dup(0), "r")
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for line in requests:
        request = json.loads(line)
        op, code = request["op"], request.get("code", "")
        started = time.perf_counter()
        try:
            if op == "setup":
                answer = executor.setup(code, request.get("language", "python"))
            else:
                answer = {"read_only": executor.read_only, "observe": executor.observe}[op](code) if op != "close" else executor.close()
        except Exception as e:
            answer = failed("%s: %s" % (type(e).__name__, e))
        answer = answer or {"ok": True}
        answer["ms"] = (time.perf_counter() - started) * 1e3
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if op == "close":
            break


class InProcess:
    """A session in this very process; a class below says how it is read."""

    def setup(self, code, language):
        self.names = new_session()
        return run(code, self.names)

    def observe(self, code):
        return run(code, self.names)

    def close(self):
        pass
