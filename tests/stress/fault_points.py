#!/usr/bin/python3
"""Every failure point, at its first passages, in every mode: the session is in the state before or after the call, the answer
says which, nothing is left behind.

usage: fault_points.py [--point NAME] [--passages N] [--language python|bash] [--mode stateful|read_only|stateless]

A run has one point armed, and its calls are of one mode, before and after a death of the session. In the end a table says in how many runs of
each mode the point was reached: something was told, retried, or had died that did not without it. Exit status 0 where nothing was wrong,
1 otherwise. The points stand in base/fault.def; those of environments and probes are tested elsewhere.
"""
import argparse
import itertools
import os
import re
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from furcalib import Closed, Engine, eventually  # noqa: E402

LANGUAGES = ["python", "bash"]
MODES = ["stateful", "read_only", "stateless"]
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def points():
    with open(os.path.join(TOP, "base", "fault.def")) as f:
        names = re.findall(r"^FAULT\((\w+),", f.read(), re.M)
    return [name.lower() for name in names if not name.startswith(("ENV_", "PROBE_"))]


class Model:
    """What the session may hold, by what the answers said."""

    def __init__(self, client, language):
        self.client, self.language = client, language
        self.may = [None]
        self.ever = [None]
        self.disks = set()  # how reads were kept from the disk
        self.noticed = 0  # answers that a healthy engine does not give

    def told(self, answer):
        """An answer that says that something was lost meanwhile: then an older state is right too."""
        self.noticed += not answer["ok"] or answer["retried"]
        if answer["state"] == "lost":
            self.may = [None]
        elif "is lost" in (answer["error"] or "") or "are lost" in (answer["error"] or "") or "lost" in (answer["suggestion"] or ""):
            self.may = self.may + self.ever

    def set(self, value):
        code = "x = %d" % value if self.language == "python" else "x=%d" % value
        answer = self.client.execute(code, self.language, state_mode="stateful", session_name="s", timeout_s=20)
        self.told(answer)
        if answer["state"] == "committed":  # with an error, as after an exception: what ran is kept
            self.may = [value] + ([] if answer["ok"] else self.may)
            self.ever.append(value)
        else:
            assert answer["state"] in ("lost", "unchanged", "rolled_back") and not answer["ok"], answer
        return answer

    def die(self):
        """The session's process ends in a call: nothing of that call is left."""
        code = "x = -1; import os; os._exit(1)" if self.language == "python" else "x=-1; kill -9 $$"
        answer = self.client.execute(code, self.language, state_mode="stateful", session_name="s", timeout_s=20)
        self.told(answer)
        if "failure point" in (answer["error"] or ""):
            return  # this very call met it, and none of its code ran
        assert not answer["ok"] and answer["state"] in ("lost", "unchanged", "rolled_back"), answer
        self.noticed -= answer["state"] == "rolled_back"

    def stateless(self):
        """A fresh process: it ran and said so, or an error says that it did not."""
        code = "6 * 7" if self.language == "python" else "printf %s $((6 * 7))"
        answer = self.client.execute(code, self.language, state_mode="stateless", timeout_s=20)
        assert answer["state"] == "unchanged", answer
        assert not answer["ok"] or 42 in (answer["result"], int(answer["stdout"] or 0)), answer
        self.noticed += not answer["ok"] or answer["retried"]

    def step(self, mode, value):
        if mode == "stateful":
            self.set(value)
            self.get("stateful")
        elif mode == "read_only":
            self.get("read_only")
        else:
            self.stateless()

    def code(self):
        return "globals().get('x')" if self.language == "python" else 'printf %s "${x-}"'

    def value(self, answer):
        if self.language == "python":
            return answer["result"]
        return int(answer["stdout"]) if answer["stdout"] else None

    def get(self, mode):
        answer = self.client.execute(self.code(), self.language, state_mode=mode, session_name="s", timeout_s=20)
        self.told(answer)
        self.disks.add((answer["isolation"] or {}).get("disk"))
        if answer["ok"]:
            assert self.value(answer) in self.may, (self.may, answer)
            self.may = [self.value(answer)]
        return answer


def reached(stats):
    return [stats[key] for key in ("deaths", "clone_failures", "snapshots_dropped", "lost")]


def drive(client, language, mode):
    """The calls of a run; what it noticed, in answers and counters."""
    model = Model(client, language)
    model.set(100)
    for i in range(4):
        model.step(mode, i)
    time.sleep(0.1)
    model.die()
    for i in range(4, 6):
        model.step(mode, i)
    time.sleep(0.1)
    model.get("stateful")
    return model.noticed, model.disks, reached(client.call("stats"))


def run(point, passage, action, language, mode):
    """One engine with that point armed; in each of its processes the n-th passage counts. What drive() noticed."""
    engine = Engine(env={"FURCA_FAULT": "%s:%d:%s" % (point, passage, action)} if point else None)
    noticed = None
    try:
        client = engine.client()
        try:
            noticed = drive(client, language, mode)
            client.call("close_all_sessions")
            idle = lambda: set(client.call("stats")["idle_pids"])  # noqa: E731
            assert eventually(lambda: not set(engine.processes()) - idle(), 5), engine.processes()
        except Closed:
            assert point == "commit_cloned" and action == "kill", "the engine has ended\n" + engine.log()[-2000:]
            noticed = "ended"
            engine.process.wait(5)
        alive = engine.process.poll() is None
        status = engine.stop()
        assert status == 0 or not alive, status
        assert eventually(lambda: not engine.processes(), 5), engine.processes()
        noticed = noticed, sum(" warn " in line for line in engine.log().splitlines())
        alerts = [line for line in engine.log().splitlines() if " alert " in line or "Assertion" in line]
        assert not alerts, alerts
    finally:
        if engine.process.poll() is None:
            engine.process.kill()
            engine.process.wait()
        engine.clean()
    return noticed


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--point", action="append", choices=points())
    p.add_argument("--passages", type=int, default=3)
    p.add_argument("--language", action="append", choices=LANGUAGES)
    p.add_argument("--mode", action="append", choices=MODES)
    p.add_argument("--action", action="append", choices=["kill", "fail"])
    opts = p.parse_args()
    wrong = count = 0
    hits = {}
    for language in opts.language or LANGUAGES:
        for mode in opts.mode or MODES:
            healthy = run(None, 0, None, language, mode)
            for point in opts.point or points():
                for action, passage in itertools.product(opts.action or ("kill", "fail"), range(1, opts.passages + 1)):
                    count += 1
                    try:
                        noticed = run(point, passage, action, language, mode)
                        hits[point, language, mode] = hits.get((point, language, mode), 0) + (noticed != healthy)
                    except Exception:
                        wrong += 1
                        print("WRONG %s %s %s:%d:%s\n%s" % (language, mode, point, passage, action, traceback.format_exc()[-1500:]), flush=True)
    columns = [(language, mode) for language in opts.language or LANGUAGES for mode in opts.mode or MODES]
    print("%-16s" % "reached in" + "".join("%18s" % " ".join(c) for c in columns))
    for point in opts.point or points():
        print("%-16s" % point + "".join("%18d" % hits.get((point, *c), 0) for c in columns))
    print("%d runs, %d wrong" % (count, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
