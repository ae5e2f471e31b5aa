#!/usr/bin/python3
"""Every failure point, at its first passages, in every mode: the session is in the state before or after the call, the answer
says which, nothing is left behind.

usage: fault_points.py [--point NAME] [--passages N] [--language python|bash]

Exit status 0 where nothing was wrong, 1 otherwise. The points stand in base/fault.def; those of environments are tested elsewhere.
"""
import argparse
import os
import re
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from furcalib import Closed, Engine, eventually  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def points():
    with open(os.path.join(TOP, "base", "fault.def")) as f:
        names = re.findall(r"^FAULT\((\w+),", f.read(), re.M)
    return [name.lower() for name in names if not name.startswith("ENV_")]


class Model:
    """What the session may hold, by what the answers said."""

    def __init__(self, client, language):
        self.client, self.language = client, language
        self.may = [None]
        self.ever = [None]

    def told(self, answer):
        """An answer that says that something was lost meanwhile: then an older state is right too."""
        if answer["ok"] and "lost" in (answer["suggestion"] or ""):
            self.may = self.may + self.ever

    def set(self, value):
        code = "x = %d" % value if self.language == "python" else "x=%d" % value
        answer = self.client.execute(code, self.language, state_mode="stateful", session_name="s", timeout_s=20)
        if answer["state"] == "committed":
            assert answer["ok"], answer
            self.may = [value]
            self.ever.append(value)
        elif answer["state"] == "lost":
            self.may = [None]
        elif answer["state"] == "unchanged":
            assert not answer["ok"], answer
        else:
            assert answer["state"] == "rolled_back" and not answer["ok"], answer
            if "later changes are lost" in answer["error"]:
                self.may = self.may + self.ever
        return answer

    def code(self):
        return "globals().get('x')" if self.language == "python" else 'printf %s "${x-}"'

    def value(self, answer):
        if self.language == "python":
            return answer["result"]
        return int(answer["stdout"]) if answer["stdout"] else None

    def get(self, mode):
        answer = self.client.execute(self.code(), self.language, state_mode=mode, session_name="s", timeout_s=20)
        self.told(answer)
        if answer["ok"]:
            assert self.value(answer) in self.may, (self.may, answer)
            self.may = [self.value(answer)]
        elif answer["state"] == "lost":
            self.may = [None]
        return answer


def run(point, passage, action, language):
    """One engine with that point armed; in each of its processes the n-th passage counts."""
    engine = Engine(env={"FURCA_FAULT": "%s:%d:%s" % (point, passage, action)})
    try:
        client = engine.client()
        model = Model(client, language)
        try:
            for i in range(4):
                model.set(i)
                model.get("read_only")
                client.execute("1" if language == "python" else "true", language, state_mode="stateless", timeout_s=20)
            time.sleep(0.1)
            model.get("stateful")
            client.call("close_all_sessions")
            idle = lambda: set(client.call("stats")["idle_pids"])  # noqa: E731
            assert eventually(lambda: not set(engine.processes()) - idle(), 5), engine.processes()
        except Closed:
            assert point == "commit_cloned" and action == "kill", "the engine has ended\n" + engine.log()[-2000:]
            engine.process.wait(5)
        alive = engine.process.poll() is None
        status = engine.stop()
        assert status == 0 or not alive, status
        assert eventually(lambda: not engine.processes(), 5), engine.processes()
        alerts = [line for line in engine.log().splitlines() if " alert " in line or "Assertion" in line]
        assert not alerts, alerts
    finally:
        if engine.process.poll() is None:
            engine.process.kill()
            engine.process.wait()
        engine.clean()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--point", action="append", choices=points())
    p.add_argument("--passages", type=int, default=3)
    p.add_argument("--language", action="append", choices=["python", "bash"])
    opts = p.parse_args()
    wrong = count = 0
    for language in opts.language or ["python", "bash"]:
        for point in opts.point or points():
            for action in ("kill", "fail"):
                for passage in range(1, opts.passages + 1):
                    count += 1
                    try:
                        run(point, passage, action, language)
                    except Exception:
                        wrong += 1
                        print("WRONG %s %s:%d:%s\n%s" % (language, point, passage, action, traceback.format_exc()[-1500:]), flush=True)
    print("%d runs, %d wrong" % (count, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
