#!/usr/bin/python3
"""Random kills, timeouts, cancels and reads over some sessions, against a model of what each session must hold; in the end the
engine must hold what it held in the beginning.

usage: kill_random.py [--seed N] [--calls N | --seconds S] [--sessions N] [--grace SECONDS] [--total FILE]

Every answer is checked: whose it is (a token goes in and comes back), what the state is said to be, and what it then is. Half of the
sessions are Python, half bash. The seed is printed. Exit status 0 where nothing was wrong, 1 otherwise.
"""
import argparse
import gc
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from furcalib import Engine, eventually  # noqa: E402

MEMORY_KB = 6 << 10  # the allocator's slack: what an engine and its zygotes may have grown by

PYTHON = {
    "token": "print('%s', flush=True)\n",
    "set": "x = %d",
    "get": "print(globals().get('x', ''))",
    "look": "y = x\nx = 5\nprint(y)",
    "deaths": ["import os; os._exit(1)", "import os, signal; os.kill(os.getpid(), 9)", "import ctypes; ctypes.string_at(0)", "import os; os.abort()"],
    "deaf": "import time\nx = -2\nwhile True:\n    try:\n        while True: time.sleep(0.05)\n    except BaseException: pass",
    "sleep": "import time\nx = %d\ntime.sleep(20)",
    "kill_later": "import os, subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.0%d; : >%s; kill -9 %%d; : >%s' %% os.getpid()]) and None",
    "fail": ("1/0", "exception"),
    "fail_changed": ("x = -3\n1/0", "exception"),
}
BASH = {
    "token": "echo %s\n",
    "set": "x=%d",
    "get": 'echo "${x-}"',
    "look": 'y=$x; x=5; echo "$y"',
    "deaths": ["kill -9 $$", "kill -SEGV $$", "kill -ABRT $$", "x=-1; kill -9 $$; sleep 5"],
    "deaf": "x=-2; /bin/kill -STOP $$; sleep 5",
    "sleep": "x=%d; sleep 20",
    "kill_later": "{ sleep 0.0%d; : >%s; kill -9 $$; : >%s; } >/dev/null 2>&1 & disown",
    "fail": ("exit 3", "exit"),
    "fail_changed": ("x=-3; exit 3", "exit"),
}
KINDS = {"set": 30, "read": 20, "look": 20, "stateless": 4, "die": 5, "timeout": 2, "cancel": 3, "kill_idle": 3, "fail": 5, "rollback": 3,
         "undo": 3}


class Session(threading.Thread):
    """One session, driven by one thread with a connection of its own."""

    def __init__(self, engine, number, seed, calls, until):
        super().__init__(daemon=True)
        self.engine = engine
        self.language, self.code = (("bash", BASH), ("python", PYTHON))[number % 2 == 0]
        self.name, self.rng, self.limit, self.until = "s%d" % number, random.Random(seed), calls, until
        self.client = engine.client()
        self.wrong, self.counts, self.calls = [], {}, 0
        self.killed_idle = False
        self.value = None

    def check(self, what, ok, *details):
        if not ok:
            self.wrong.append("%s (%s): %s %r" % (self.name, self.language, what, details))

    def execute(self, code, mode="stateful", **args):
        """Runs the code behind its token; the answer, with the output behind the token as `said`."""
        token = "%032x" % self.rng.getrandbits(128)
        if mode != "stateless":
            args["session_name"] = self.name
        self.calls += 1
        answer = self.client.execute(self.code["token"] % token + code, self.language, state_mode=mode, **args)
        ran = answer["stdout"] != ""
        self.check("whose answer", not ran or answer["stdout"].startswith(token + "\n"), token, answer["stdout"][:200])
        # Where nothing was there to lose, "lost" is what "rolled_back" is elsewhere.
        self.check("lost", answer["state"] != "lost" or (self.killed_idle and self.value is None), self.value, answer)
        self.check("behind", "later changes are lost" not in (answer["error"] or ""), self.value, answer)
        if "The call did not run." in (answer["error"] or ""):
            # Killed when idle, before the state after the last call was kept: only do_kill_idle does that, which changes nothing.
            self.check("told", not ran and self.killed_idle and answer["state"] in ("rolled_back", "lost"), answer)
            self.counts["told"] = self.counts.get("told", 0) + 1
            self.killed_idle = False
            return self.execute(code, mode, **args)
        if ran and mode == "stateful":
            self.killed_idle = False
        text = answer["stdout"].partition("\n")[2].strip()
        answer["said"] = int(text) if text.lstrip("-").isdigit() else text or None
        return answer

    def step(self):
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, "do_" + kind)()

    def do_set(self):
        new = self.rng.getrandbits(60)
        answer = self.execute(self.code["set"] % new)
        self.check("set", answer["ok"] and answer["state"] == "committed", answer)
        self.value = new

    def do_read(self):
        answer = self.execute(self.code["get"])
        self.check("read", answer["ok"] and answer["said"] == self.value, self.value, answer)

    def do_look(self):
        if self.value is None:
            return
        answer = self.execute(self.code["look"], mode="read_only")
        self.check("look", answer["ok"] and answer["said"] == self.value and answer["state"] == "unchanged", self.value, answer)

    def do_stateless(self):
        answer = self.execute(self.code["get"], mode="stateless")
        self.check("stateless", answer["ok"] and answer["said"] is None, answer)

    def do_die(self):
        answer = self.execute(self.rng.choice(self.code["deaths"]))
        self.check("die", answer["error_type"] in ("crashed", "killed") and answer["state"] == "rolled_back", answer)

    def do_timeout(self):
        answer = self.execute(self.code["deaf"], timeout_s=0.2)
        self.check("timeout", answer["error_type"] == "timeout", answer)
        if answer["state"] == "committed":  # on a busy machine the time is over before the code is deaf
            self.check_either("timeout", -2)

    def check_either(self, what, new):
        """The code was interrupted before or after it had set the new value."""
        found = self.execute(self.code["get"])["said"]
        self.check(what, found in (self.value, new), found, self.value, new)
        self.value = found

    def do_cancel(self):
        new = self.rng.getrandbits(60)
        self.calls += 1
        pending = self.client.start("execute", language=self.language, state_mode="stateful", session_name=self.name,
                                    code=self.code["sleep"] % new)
        time.sleep(self.rng.uniform(0, 0.1))
        pending.cancel()
        answer = pending.wait(30)
        if self.killed_idle and "The call did not run." in (answer["error"] or ""):
            self.killed_idle = False
            return
        self.check("cancel", answer["error_type"] == "interrupted", answer)
        self.check("lost", answer["state"] != "lost" and "later changes are lost" not in (answer["error"] or ""), answer)
        if answer["state"] == "committed":
            self.check_either("cancel", new)

    def do_kill_idle(self):
        """A child kills its parent a moment later, mostly when it is idle: only in there is the number known."""
        sign = os.path.join(self.engine.dir, "sign-" + self.name)
        done = sign + "-done"
        if os.path.exists(done):
            os.unlink(done)
        answer = self.execute(self.code["kill_later"] % (self.rng.randrange(1, 9), sign, done))
        self.check("kill_idle", answer["ok"] or (answer["error_type"], answer["state"]) == ("killed", "rolled_back"), answer)
        self.killed_idle = True
        self.check("kill_idle", eventually(lambda: os.path.exists(sign), 20))
        os.unlink(sign)
        # The kill itself may be late on a busy machine; who sent it may be ended before it says so.
        if eventually(lambda: os.path.exists(done), 1):
            os.unlink(done)
        time.sleep(self.rng.uniform(0.05, 0.15))

    def do_fail(self):
        code, kind = self.code["fail"]
        answer = self.execute(code)
        self.check("fail", answer["error_type"] == kind and answer["state"] == "committed", answer)

    def do_rollback(self):
        code, kind = self.code["fail_changed"]
        answer = self.execute(code, on_error="rollback")
        self.check("rollback", answer["error_type"] == kind and answer["state"] == "rolled_back", answer)

    def do_undo(self):
        old = self.value
        self.do_set()
        self.calls += 1
        answer = self.client.call("undo", session_name=self.name)
        if answer["ok"]:
            self.value = old
        else:
            self.check("undo", "can be taken back by 0 steps" in answer["error"], answer)

    def run(self):
        try:
            while self.calls < self.limit and time.monotonic() < self.until and len(self.wrong) <= 5:
                self.step()
        except Exception as e:
            self.wrong.append("%s: %r" % (self.name, e))


def status_kb(pid, key):
    try:
        with open("/proc/%d/status" % pid) as f:
            return next((int(line.split()[1]) for line in f if line.startswith(key + ":")), 0)
    except OSError:
        return 0


def control_groups(engine):
    """Groups of the engine's that lie anywhere in the hierarchies."""
    found = 0
    for folder, inner, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(folder).startswith("furca-%d-" % engine.pid):
            found += len(inner)
            inner.clear()
    return found


def held(engine):
    """What the engine holds: with no session there, once all has settled."""
    with engine.client() as client:
        client.call("close_all_sessions")
        eventually(lambda: not set(engine.processes()) - set(client.call("stats")["idle_pids"]), 8)
        time.sleep(0.5)
        processes = engine.processes()
        with open("/proc/%d/mountinfo" % engine.pid) as f:
            mounts = len(f.readlines())
        if os.environ.get("FURCA_STRESS_DETAIL"):
            print([(pid, c, status_kb(pid, "RssAnon")) for pid, c in [(engine.pid, "engine"), *processes.items()]])
        return {"descriptors": len(engine.descriptors()), "processes": len(processes), "mounts": mounts,
                "control groups": control_groups(engine), "files": sum(len(files) for _, _, files in os.walk(engine.dir)),
                "memory kB": sum(status_kb(pid, "RssAnon") for pid in [engine.pid, *processes])}


def compare(before, after):
    for key in before:
        most = before[key] + (MEMORY_KB if key == "memory kB" else 0)
        print("%-15s %8d before, %8d after" % (key, before[key], after[key]))
        if after[key] > most:
            yield "%s: %d before, %d after" % (key, before[key], after[key])


def start_engine(grace):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"grace_s": grace}, config)
        config.flush()
        return Engine("--config", config.name)


def drive(engine, opts, number, seconds):
    """Runs the sessions; those that ended."""
    until = time.monotonic() + seconds
    sessions = [Session(engine, i, number + i, opts.calls if seconds == opts.seconds else 1 << 60, until) for i in range(opts.sessions)]
    for s in sessions:
        s.start()
    for s in sessions:
        s.join()
    return sessions


def report(sessions, stats, seconds):
    counts = {}
    for s in sessions:
        for kind, n in s.counts.items():
            counts[kind] = counts.get(kind, 0) + n
    calls = sum(s.calls for s in sessions)
    print("%d calls in %.1f s: %s" % (calls, seconds, ", ".join("%s %d" % c for c in sorted(counts.items()))))
    print("deaths %d, repairs %d, rollbacks %d, lost %d, parked reads %d of %d" % (
        stats["deaths"], stats["repairs"], stats["rollbacks"], stats["lost"], stats["parked_used"], stats["read_only"]))
    return calls


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seed", type=int, default=int(os.environ.get("FURCA_TEST_SEED") or int.from_bytes(os.urandom(4), "little")))
    p.add_argument("--calls", type=int, default=1 << 60, help="of each session, at least")
    p.add_argument("--seconds", type=float, default=120)
    p.add_argument("--sessions", type=int, default=6)
    p.add_argument("--grace", type=float, default=0.2)
    p.add_argument("--total", help="a file to which calls and wrong answers are added as a line")
    opts = p.parse_args()
    print("seed %d" % opts.seed, flush=True)
    engine = start_engine(opts.grace)
    wrong = [w for s in drive(engine, opts, opts.seed + 1000000, 3) for w in s.wrong]  # what is made once and kept is there now
    before = held(engine)
    started = time.monotonic()
    sessions = drive(engine, opts, opts.seed, opts.seconds)
    seconds = time.monotonic() - started
    wrong += [w for s in sessions for w in s.wrong]
    for s in sessions:
        s.client.close()
    if engine.process.poll() is not None:
        print("WRONG the engine has ended with status %s\n%s" % (engine.process.returncode, engine.log()[-3000:]))
        return 1
    stats = engine.client().call("stats")
    engine.close_clients()
    gc.collect()
    calls = report(sessions, stats, seconds)
    wrong += compare(before, held(engine))
    if engine.stop() != 0:
        wrong.append("the engine's end: %s" % engine.log()[-2000:])
    log = engine.log()
    wrong += [line for line in log.splitlines() if " alert " in line]
    if wrong:
        print("\n".join(line for line in log.splitlines() if " info " not in line)[-8000:])
    engine.clean()
    for w in wrong[:20]:
        print("WRONG", w[:1600])
    print("%d wrong" % len(wrong))
    if opts.total:
        with open(opts.total, "a") as f:
            f.write("%d %d seed %d\n" % (calls, len(wrong), opts.seed))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
