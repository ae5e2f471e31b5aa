"""The speed benchmark's topics that compare furca with what one would use in its place. Those of one room alone are programs in C beside this;
those that grow are in growth.py.
"""
import subprocess
import time

import limits
from growth import PAUSE, ROUNDS, Curve, commit, density, engine, grow, read, rollback, say, threads
from peers import Peer
from words import QUICK, Bench, Series


class Kernel:
    """A Jupyter kernel, spoken to directly: cells can be sent while others run."""

    def __init__(self, setup):
        from jupyter_client.manager import start_new_kernel
        self.manager, self.client = start_new_kernel(startup_timeout=60, kernel_name="python3", extra_arguments=["--IPKernelApp.log_level=CRITICAL"])
        self.wait(self.send(setup))

    def send(self, code):
        return self.client.execute(code, store_history=False)

    def wait(self, sent):
        """Until that cell has been run. RuntimeError where it failed."""
        while True:
            message = self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == sent:
                if message["content"]["status"] != "ok":
                    raise RuntimeError(message["content"].get("evalue", "the cell failed"))
                return

    def output(self, sent):
        """The bytes that a cell writes to its standard output, which come beside its answer."""
        size = 0
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != sent:
                continue
            if message["msg_type"] == "stream":
                size += len(message["content"]["text"])
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                self.wait(sent)
                return size

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def kernel(bench, setup):
    """A Kernel, or None where it is told why there is none."""
    try:
        return Kernel(setup)
    except (ImportError, RuntimeError, OSError) as error:
        return bench.skip("Jupyter kernel", str(error))


LIST, LOOK = "x = list(range(100000))", "len(x)"
DEEP_LOOK = "import copy; len(copy.deepcopy(x))"  # what a notebook's user would do to keep a look from changing anything


def mvcc(python):
    """A look while the session is busy, and how long a Jupyter kernel makes one wait."""
    bench = Bench("mvcc", "bench mvcc: a look while the session is busy")
    sleep = "import time; time.sleep(0.15)"
    idle, busy, theirs = Series("look at an idle session"), Series("look at a busy session"), Series("Jupyter, look at a busy kernel", role="peer")
    forked = Series("plain fork() of an idle process", role="limit")
    peer, jupyter = Peer("fork", python, LIST), kernel(bench, LIST)
    with engine() as e:
        session = e.session("busy")
        session.run(LIST)

        def while_busy(begin, look, end):
            """Microseconds that a look takes which comes 20 ms after a call of 150 ms."""
            call = begin()
            time.sleep(0.02)
            start = time.perf_counter()
            look()
            took = (time.perf_counter() - start) * 1e6
            end(call)
            time.sleep(PAUSE)
            return took

        tasks = [(idle, lambda: session.read(LOOK)),
                 (busy, lambda: while_busy(lambda: session.submit(sleep), lambda: session.read(LOOK), lambda call: call.result())),
                 (forked, lambda: peer.look(LOOK))]
        if jupyter:
            tasks.append((theirs, lambda: while_busy(lambda: jupyter.send(sleep), lambda: jupyter.wait(jupyter.send(DEEP_LOOK)), lambda call: None)))
        bench.rounds(tasks, ROUNDS, 2, PAUSE)
    peer.close()
    bench.say("busy / idle", "len() of a list, while the session sleeps 0.15 s in a call", busy, idle, 1.5, limit=forked)
    if jupyter:
        jupyter.close()
        bench.say("Jupyter kernel / furca, busy", "the same; a kernel runs one cell after the other", theirs, busy, None, False, forked)
    return bench.end()


def burst(python):
    """Looks that come at once."""
    bench = Bench("burst", "bench burst: looks at one session that come at once", pin=False)

    def furca_at_once(session, n):
        start = time.perf_counter()
        for call in [session.submit(LOOK, "read_only") for _ in range(n)]:
            call.result()
        return (time.perf_counter() - start) * 1e6 / n

    def kernel_at_once(it, n):
        start = time.perf_counter()
        for sent in [it.send(DEEP_LOOK) for _ in range(n)]:
            it.wait(sent)
        return (time.perf_counter() - start) * 1e6 / n

    class Lent:
        """One session for all points: its close() is for the end."""

        def __init__(self, it):
            self.it = it

        def close(self):
            pass

    peer, jupyter = Peer("fork", python, LIST), kernel(bench, LIST)
    with engine() as e:
        session = e.session("burst")
        session.run(LIST)
        mine, forks, cells = "furca, at once", "plain fork(), one by one", "Jupyter, deep copies"
        curves = [Curve(mine, "furca", lambda n, there: Lent(session), lambda lent, n: furca_at_once(lent.it, n)),
                  Curve(forks, "limit", lambda n, there: Lent(peer), lambda lent, n: sum(lent.it.look(LOOK) for _ in range(n)) / n)]
        if jupyter:
            curves.append(Curve(cells, "peer", lambda n, there: Lent(jupyter), lambda lent, n: kernel_at_once(lent.it, n)))
        for n, series in grow(bench, curves, (1, 4, 16, 64), "looks", lambda n: max(3, ROUNDS // 2), "us a look"):
            what = "%d read-only len(), submitted together" % n
            say(bench, "at once / plain fork, %d" % n, what, series, mine, forks, limit=forks)
            say(bench, "Jupyter / at once, %d" % n, what, series, cells, mine, None, False, forks)
    peer.close()
    if jupyter:
        jupyter.close()
    return bench.end()


MEGABYTES = 30
WRITER = "import os; block = b'x' * (1 << 20)"
WRITE = "for _ in range(%d): os.write(1, block)" % MEGABYTES
# The seed of many a tool: lines of JSON to a Python that runs each and answers.
JSON_LINES = """
import json, sys
names = {}
for line in sys.stdin:
    exec(json.loads(line)["code"], names)
    print(json.dumps({"ok": True}), flush=True)
"""


def rate(run):
    """MB/s of a function that moves the output."""
    start = time.perf_counter()
    run()
    return MEGABYTES * 1.048576 / (time.perf_counter() - start)


def bulk(python):
    """Much output, and many small calls in flight."""
    bench = Bench("bulk", "bench bulk: much output, and many small calls")
    with engine() as e:
        session = e.session("bulk")
        session.run(WRITER)
        bulk_output(bench, python, session)
        bulk_calls(bench, python, session)
    return bench.end()


def bulk_output(bench, python, session):
    mine, limit, theirs = Series("furca, output", "MB/s"), Series("a pipe, output", "MB/s", "limit"), Series("Jupyter, output", "MB/s", "peer")
    jupyter = kernel(bench, "block = 'x' * (1 << 20)")

    def pipe():
        with subprocess.Popen([python, "-c", WRITER + "\n" + WRITE], stdout=subprocess.PIPE, bufsize=0) as child:
            while child.stdout.read(1 << 20):
                pass

    def cell():
        size = jupyter.output(jupyter.send("for _ in range(%d): print(block, end='')" % MEGABYTES))
        if size != MEGABYTES << 20:
            raise RuntimeError("%d bytes of %d have come" % (size, MEGABYTES << 20))

    tasks = [(mine, lambda: rate(lambda: session.run(WRITE))), (limit, lambda: rate(pipe))]
    bench.rounds(tasks + ([(theirs, lambda: rate(cell))] if jupyter else []), ROUNDS, 1)
    bench.say("output / a bare pipe's", "%d MB written to stdout" % MEGABYTES, mine, limit, limit=limit)
    if jupyter:
        bench.say("output / a Jupyter kernel's", "%d MB written to stdout" % MEGABYTES, mine, theirs, None, False, limit)
        jupyter.close()


def bulk_calls(bench, python, session):
    one, many = Series("calls one by one", "us a call"), Series("100 calls in flight", "us a call")
    lines, echo = Series("JSON lines, one by one", "us a call", "peer"), Series("a byte over a pipe and back", "us a call", "limit")
    bare = limits.Echo()
    child = subprocess.Popen([python, "-c", JSON_LINES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def each(run):
        start = time.perf_counter()
        for _ in range(100):
            run()
        return (time.perf_counter() - start) * 1e4

    def line():
        child.stdin.write(b'{"code": "None"}\n')
        child.stdout.readline()

    def in_flight():
        start = time.perf_counter()
        for call in [session.submit("None") for _ in range(100)]:
            call.result()
        return (time.perf_counter() - start) * 1e4

    bench.rounds([(one, lambda: each(lambda: session.run("None"))), (many, in_flight), (lines, lambda: each(line)),
                  (echo, lambda: each(bare.run))], ROUNDS, 1)
    bench.say("in flight / one by one", "100 stateful calls of None", many, one, limit=echo)
    bench.say("one by one / JSON lines", "100 stateful calls of None; JSON lines keep no snapshot and separate no output", one, lines, limit=echo)
    bare.close()
    child.stdin.close()
    child.wait()


STEPS = [("stateful", "import numpy, pandas; df = pandas.DataFrame({'k': numpy.arange(400_000) % 97, 'v': numpy.arange(400_000.0)})")] + [
    ("look", "df.groupby('k').v.sum().round().head(3).to_dict()"), ("look", "df.sort_values('v', ascending=False, inplace=True); float(df.v.iloc[0])"),
    ("stateful", "df['w'] = df.v * 2; len(df)"), ("look", "del df['w']; list(df)"), ("look", "df.v.describe().round(1).to_dict()"),
    ("look", "df.pivot_table(index='k', values='v').shape")] * (1 if QUICK else 3)


def trace(python):
    """An agent's afternoon: a frame is loaded, looked at on trial, changed, looked at."""
    bench = Bench("trace", "bench trace: an agent loads a frame, tries things on it without keeping them, changes it: %d calls" % len(STEPS))
    names, series = ["furca", "deepcopy", "pickle", "jupyter"], {}

    def run(name, in_place=False):
        peer = Peer(name, python)
        try:
            total = 0.0
            for kind, code in STEPS:
                total += peer.ask("observe" if in_place or kind == "stateful" else "read_only", code)["ms"]
                time.sleep(0.01)
            return total
        finally:
            peer.close()

    fresh, in_place = Series("a fresh process each time", "ms", "peer"), Series("all in place, nothing kept apart", "ms", "limit")

    def from_scratch():
        done, start = [], time.perf_counter()
        for kind, code in STEPS:
            subprocess.run([python, "-c", "\n".join([*done, code])], check=True, stdout=subprocess.DEVNULL)
            if kind == "stateful":
                done.append(code)
        return (time.perf_counter() - start) * 1e3

    for name in names:
        series[name] = Series({"furca": "furca", "deepcopy": "deep copies", "pickle": "pickle to one-shot processes", "jupyter": "Jupyter, deep copies"}[name],
                              "ms", "furca" if name == "furca" else "peer")
    tasks = [(series[n], lambda n=n: run(n)) for n in names] + [(in_place, lambda: run("fork", True))]
    bench.rounds(tasks + ([] if QUICK else [(fresh, from_scratch)]), 3, 1)
    what = "%d calls on a frame of 400,000 rows, all of them" % len(STEPS)
    if QUICK:
        bench.skip(fresh.name, "only in a whole run")
    for other in [series[n] for n in names[1:]] + ([] if QUICK else [fresh]):
        bench.say("%s / furca" % other.name, what, other, series["furca"], None, False, in_place)
    bench.say("furca / all in place", "the same; in place the looks change the session", series["furca"], in_place, limit=in_place)
    return bench.end()


def start(python):
    """A stateless call against new interpreters."""
    bench = Bench("start-peers", "bench start-peers: a fresh start, against what else starts")
    mine, shell = Series("furca, stateless None"), Series("furca, stateless bash")
    bare, bash = Series("python -c pass", role="peer"), Series("bash -c :", role="peer")
    fork = Series("fork and wait", role="limit")
    with engine() as e:
        bench.rounds([(mine, lambda: e.python("None", state_mode="stateless")), (shell, lambda: e.bash(":", state_mode="stateless")),
                      (bare, lambda: subprocess.run([python, "-c", "pass"])), (bash, lambda: subprocess.run(["bash", "-c", ":"])),
                      (fork, limits.fork)], ROUNDS, 3, PAUSE)
    bench.say("python -c pass / stateless", "a fresh interpreter, nothing done", bare, mine, None, False, fork)
    bench.say("bash -c : / stateless bash", "a fresh shell, nothing done", bash, shell, None, False, fork)
    ready, again = Series("a Jupyter kernel, ready", role="peer"), Series("furca, stateless None, again")
    with engine() as e:
        bench.rounds([(ready, lambda: Peer("jupyter", python, "1").close()), (again, lambda: e.python("None", state_mode="stateless"))], 3, 1, PAUSE)
    bench.say("a Jupyter kernel / stateless", "until the first answer", ready, again, None, False, fork)
    return bench.end()


def shell(python):
    """A stateful bash call against a shell that pexpect drives, and a new one."""
    bench = Bench("shell", "bench shell: a bash call against a shell on a terminal, driven by pexpect, and a new bash")
    mine, new = Series("furca, stateful `:`"), Series("bash -c :", role="peer")
    piped = Series("`:` over bare pipes", role="limit")
    with engine() as e:
        session = e.session("shell", "bash")
        bare = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

        def marker():
            bare.stdin.write(b":\necho @end@0\n")
            bare.stdout.readline()

        tasks = [(mine, lambda: session.run(":")), (new, lambda: subprocess.run(["bash", "-c", ":"])), (piped, marker)]
        driven = None
        try:
            from pexpect import replwrap
            repl, driven = replwrap.bash(), Series("pexpect on a terminal", role="peer")
            tasks.append((driven, lambda: repl.run_command(":")))
        except Exception as error:  # pexpect says what fails in many ways
            bench.skip("pexpect", "%s: %s" % (type(error).__name__, error))
        bench.rounds(tasks, 4 * ROUNDS, 5)
        bare.stdin.close()
        bare.wait()
    bench.say("bash -c : / furca", "a command that does nothing", new, mine, None, False, piped)
    if driven:
        bench.say("pexpect / furca", "a command that does nothing", driven, mine, None, False, piped)
    return bench.end()


TOPICS = {f.__name__: f for f in (read, burst, mvcc, commit, bulk, rollback, shell, start, threads, density, trace)}
