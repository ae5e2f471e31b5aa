#!/usr/bin/python3
"""Random kills, timeouts, cancels and reads over some sessions, against a model of what each session must hold.

usage: kill_random.py [--seed N] [--calls N] [--sessions N] [--grace SECONDS]

Every answer is checked: whose it is (a token goes in and comes back), what the state is said to be, and what it then is. The
seed is printed. Exit status 0 where nothing was wrong, 1 otherwise.
"""
import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from furcalib import Engine, eventually  # noqa: E402

DEATHS = ["import os; os._exit(1)", "import os, signal; os.kill(os.getpid(), 9)", "import ctypes; ctypes.string_at(0)", "import os; os.abort()"]


class Session(threading.Thread):
    """One session, driven by one thread with a connection of its own."""

    def __init__(self, engine, name, seed, calls):
        super().__init__(daemon=True)
        self.engine, self.name, self.rng, self.calls = engine, name, random.Random(seed), calls
        self.client = engine.client()
        self.wrong, self.counts = [], {}
        self.value = None

    def check(self, what, ok, *details):
        if not ok:
            self.wrong.append("%s: %s %r" % (self.name, what, details))

    def execute(self, code, mode="stateful", **args):
        token = "%032x" % self.rng.getrandbits(128)
        answer = self.client.python("print('%s', flush=True)\n%s" % (token, code), state_mode=mode, session_name=self.name, **args)
        ran = answer["stdout"] != ""
        self.check("whose answer", not ran or answer["stdout"].startswith(token + "\n"), token, answer["stdout"][:200])
        return answer

    def step(self):
        kind = self.rng.choices(["set", "read", "look", "die", "timeout", "cancel", "kill_idle", "fail", "rollback", "undo"],
                                [30, 20, 20, 5, 2, 3, 3, 5, 3, 3])[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, "do_" + kind)()

    def do_set(self):
        new = self.rng.getrandbits(60)
        answer = self.execute("x = %d" % new)
        self.check("set", answer["ok"] and answer["state"] == "committed", answer)
        self.value = new

    def do_read(self):
        answer = self.execute("globals().get('x')")
        self.check("read", answer["ok"] and answer["result"] == self.value, self.value, answer)

    def do_look(self):
        if self.value is None:
            return
        answer = self.execute("y = x\nx = 5\ny", mode="read_only")
        self.check("look", answer["ok"] and answer["result"] == self.value and answer["state"] == "unchanged", self.value, answer)

    def do_die(self):
        answer = self.execute("x = -1\n" + self.rng.choice(DEATHS))
        self.check("die", answer["error_type"] in ("crashed", "killed") and answer["state"] == "rolled_back", answer)

    def do_timeout(self):
        answer = self.execute("import time\nx = -2\nwhile True:\n    try:\n        while True: time.sleep(0.05)\n    except BaseException: pass", timeout_s=0.2)
        self.check("timeout", answer["error_type"] == "timeout" and answer["state"] in ("rolled_back", "unchanged"), answer)

    def do_cancel(self):
        new = self.rng.getrandbits(60)
        pending = self.client.start("execute", language="python", state_mode="stateful", session_name=self.name,
                                    code="import time\nx = %d\ntime.sleep(20)" % new)
        time.sleep(self.rng.uniform(0, 0.1))
        pending.cancel()
        answer = pending.wait(20)
        self.check("cancel", answer["error_type"] == "interrupted", answer)
        if answer["state"] == "committed":
            found = self.execute("globals().get('x')")["result"]
            self.check("cancel", found in (self.value, new), found, self.value, new)
            self.value = found
        elif answer["state"] == "lost":
            self.check("cancel lost", False, answer)

    def do_kill_idle(self):
        """A child kills its parent a moment later: only in there is the number known."""
        answer = self.execute("import os, subprocess\n"
                              "subprocess.Popen(['sh', '-c', 'sleep 0.0%d; kill -9 %%d' %% os.getpid()]) and None" % self.rng.randrange(1, 9))
        self.check("kill_idle", answer["ok"], answer)
        time.sleep(self.rng.uniform(0.1, 0.2))

    def do_fail(self):
        answer = self.execute("1/0")
        self.check("fail", answer["error_type"] == "exception" and answer["state"] == "committed", answer)

    def do_rollback(self):
        answer = self.execute("x = -3\n1/0", on_error="rollback")
        self.check("rollback", answer["error_type"] == "exception" and answer["state"] == "rolled_back", answer)

    def do_undo(self):
        old = self.value
        self.do_set()
        answer = self.client.call("undo", session_name=self.name)
        if answer["ok"]:
            self.value = old
        else:
            self.check("undo", "can be taken back by 0 steps" in answer["error"], answer)

    def run(self):
        try:
            for _ in range(self.calls):
                self.step()
                if len(self.wrong) > 5:
                    break
        except Exception as e:
            self.wrong.append("%s: %r" % (self.name, e))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    p.add_argument("--calls", type=int, default=300, help="of each session")
    p.add_argument("--sessions", type=int, default=4)
    p.add_argument("--grace", type=float, default=0.2)
    opts = p.parse_args()
    print("seed %d" % opts.seed, flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"grace_s": opts.grace}, config)
        config.flush()
        engine = Engine("--config", config.name)
    sessions = [Session(engine, "s%d" % i, opts.seed + i, opts.calls) for i in range(opts.sessions)]
    started = time.monotonic()
    for s in sessions:
        s.start()
    for s in sessions:
        s.join()
    wrong = [w for s in sessions for w in s.wrong]
    if engine.process.poll() is not None:
        print("WRONG the engine has ended with status %s\n%s" % (engine.process.returncode, engine.log()[-3000:]))
        return 1
    client = engine.client()
    client.call("close_all_sessions")
    stats = client.call("stats")
    idle = set(stats["idle_pids"])
    if not eventually(lambda: not set(engine.processes()) - idle - set(client.call("stats")["idle_pids"]), 5):
        wrong.append("processes left: %r" % engine.processes())
    if engine.stop() != 0:
        wrong.append("the engine's end: %s" % engine.log()[-2000:])
    alerts = [line for line in engine.log().splitlines() if " alert " in line]
    wrong += alerts
    engine.clean()
    counts = {}
    for s in sessions:
        for kind, n in s.counts.items():
            counts[kind] = counts.get(kind, 0) + n
    print("%d steps in %.1f s: %s" % (sum(counts.values()), time.monotonic() - started, ", ".join("%s %d" % c for c in sorted(counts.items()))))
    print("deaths %d, repairs %d, rollbacks %d, lost %d, parked reads %d of %d" % (
        stats["deaths"], stats["repairs"], stats["rollbacks"], stats["lost"], stats["parked_used"], stats["read_only"]))
    for w in wrong[:20]:
        print("WRONG", w[:700])
    print("%d wrong" % len(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
