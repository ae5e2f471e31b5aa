"""Executors of the safety benchmark, spoken to over their protocol (doc/bench-safety.md), as peers of the speed benchmark."""
import json
import os
import pathlib
import subprocess
import tomllib

EXECUTORS = pathlib.Path(__file__).resolve().parents[1] / "safety" / "executors"


class Peer:
    """One session with one executor. Kept until close()."""

    def __init__(self, name, python):
        entry = next(e for e in tomllib.loads((EXECUTORS / "executors.toml").read_text())["executor"] if e["name"] == name)
        self.name, self.title = name, entry["title"]
        self.process = subprocess.Popen([python, str(EXECUTORS / entry["command"][0])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1, env={**os.environ, **entry.get("environment", {})})

    def ask(self, op, code="", language="python"):
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
