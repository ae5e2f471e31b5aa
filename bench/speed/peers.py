"""Peers of the speed benchmark that are programs of their own: executors of the safety benchmark, and kept.py. All speak one protocol
(doc/bench-safety.md).
"""
import json
import os
import pathlib
import subprocess
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
EXECUTORS = HERE.parent / "safety" / "executors"


def entry_of(name):
    return next(e for e in tomllib.loads((EXECUTORS / "executors.toml").read_text())["executor"] if e["name"] == name)


class Program:
    """One session with one program, whose state `fill` makes. Kept until close()."""

    def __init__(self, python, path, environment, fill="pass"):
        self.name = pathlib.Path(path).stem
        self.process = subprocess.Popen([python, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        bufsize=1, env={**os.environ, **environment})
        try:
            self.ask("setup", fill)
        except (RuntimeError, OSError):
            self.close()
            raise

    def ask(self, op, code="", language="python"):
        """The answer; RuntimeError where it is not ok or there is none."""
        self.process.stdin.write(json.dumps({"op": op, "code": code, "language": language}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if not answer["ok"]:
                    raise RuntimeError("%s: %s" % (self.name, answer.get("error")))
                return answer
        raise RuntimeError(self.name + " has ended")

    def look(self, code):
        """Microseconds of a look."""
        return self.ask("read_only", code)["ms"] * 1e3

    def close(self):
        try:
            self.ask("close")
        except (RuntimeError, OSError):
            pass
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


class Peer(Program):
    """An executor, by its name in executors.toml."""

    def __init__(self, name, python, fill="pass"):
        entry = entry_of(name)
        self.title = entry["title"]
        super().__init__(python, EXECUTORS / entry["command"][0], entry.get("environment", {}), fill)


class Kept(Program):
    """A plain process that keeps what it was before its last call: by "fork" or "pickle"."""

    def __init__(self, way, python, fill):
        super().__init__(python, HERE / "kept.py", {"KEEP": way}, fill)

    def call(self, code, dies=False):
        """The value's repr; of a call that ends the process nothing, when the one that takes over has said so."""
        try:
            return self.ask("observe", code)["value"]
        except RuntimeError:
            if not dies:
                raise
        return None
