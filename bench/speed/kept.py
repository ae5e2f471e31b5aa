"""A session that keeps what it was before its last call, as one would without furca. It speaks the executors' protocol (doc/bench-safety.md).

KEEP=fork     after each answer a child is forked, which waits; where the session dies it takes over, and the call that died has failed
KEEP=pickle   after each answer the namespace is pickled to a file beside this process

What it keeps is made after the answer, as furca does: a call that comes at once waits for it.
"""
import json
import os
import pickle
import signal
import sys
import tempfile
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "safety", "executors"))
from adapter import failed, new_session, run  # noqa: E402  (it lies in the other folder)

requests, answers, unread = os.dup(0), os.dup(1), b""


def request():
    """The next line; None at the end. Unbuffered beyond the line, for the one that takes over reads from the same pipe."""
    global unread
    while b"\n" not in unread:
        part = os.read(requests, 1 << 16)
        if not part:
            return None
        unread += part
    line, unread = unread.split(b"\n", 1)
    return json.loads(line)


def say(answer):
    os.write(answers, json.dumps(answer).encode() + b"\n")


class Forks:
    """The pipe to the child that waits: a byte lets it go; its end without one says that this process has died."""

    def __init__(self):
        self.child = None

    def keep(self, names):
        wait, tell = os.pipe()
        if os.fork() == 0:
            os.close(tell)
            if self.child is not None:
                os.close(self.child)
            if os.read(wait, 1):
                os._exit(0)
            os.close(wait)
            self.child = None
            say(failed("the process died"))
            return self.keep(names)
        os.close(wait)
        self.let_go()
        self.child = tell

    def let_go(self):
        if self.child is not None:
            os.write(self.child, b"e")
            os.close(self.child)
            self.child = None


class Pickles:
    def __init__(self):
        self.file = tempfile.TemporaryFile()

    def keep(self, names):
        self.file.seek(0)
        pickle.dump({k: v for k, v in names.items() if not k.startswith("__") and not isinstance(v, types.ModuleType)}, self.file, -1)
        self.file.truncate()

    def let_go(self):
        self.file.close()


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    names, kept = new_session(), {"fork": Forks, "pickle": Pickles}[os.environ["KEEP"]]()
    while (asked := request()) is not None and asked["op"] != "close":
        started = time.perf_counter()
        answer = run(asked["code"], names)
        say({**answer, "ms": (time.perf_counter() - started) * 1e3})
        kept.keep(names)
    kept.let_go()
    if asked:
        say({"ok": True})


main()
