"""Growth curves: the size of the state, the number of threads, of sessions, of looks against what furca, its peers and the machine take.

A curve is measured point by point, together with the others of its topic, round by round. Each has bounds, so that a whole run stays short: where a
round would take too long, or the memory would not suffice, the curve ends, and a record of the kind `skipped` says where and why.
"""
import os
import signal
import subprocess
import tempfile
import time

import furca

import criu
import limits
from peers import Kept, Peer, entry_of
from words import QUICK, Bench, Series

ROUNDS = 7 if QUICK else 15
PAUSE = 0.03  # an agent thinks between its calls; what furca does meanwhile has been done then
SIZES = (8, 64, 256) if QUICK else (8, 64, 256, 1024, 4096)  # MB
ROUND_S = 2 if QUICK else 8  # what one round of a curve may take; looks end after 10 s
RESERVE = 1 << 30  # bytes that stay available
MEMORY = "MB of state"


def fill(megabytes):
    """Code that makes a state of that size: half an array of numpy, half small objects (154 bytes for each entry of the dict)."""
    return ("import gc, numpy; x = numpy.random.default_rng(1).random(%d * 62_500)\n"
            "gc.disable(); d = {i: [i] for i in range(%d * 3_250)}; gc.enable()" % (megabytes, megabytes))  # else half of the time is the collector's


def engine(**options):
    return furca.Engine(start=True, **options)


class EngineSession:
    """A session in an engine of its own, with this configuration."""

    def __init__(self, code, config="{}"):
        self.folder = tempfile.TemporaryDirectory(prefix="furca-bench-")
        path = os.path.join(self.folder.name, "config.json")
        with open(path, "w") as file:
            file.write(config)
        self.engine = engine(options=["--config", path], raise_errors=False)
        self.session = self.engine.session("s")
        try:
            self.call(code)
        except RuntimeError:
            self.close()
            raise

    def call(self, code, dies=False):
        """The value's repr, as Kept.call()."""
        answer = self.session.run(code)
        if not answer.ok and not dies:
            raise RuntimeError("furca: %s" % answer.get("error"))
        return answer.text

    def close(self):
        self.engine.close()
        self.folder.cleanup()


class New:
    """Nothing that lives on: a new interpreter runs the code each time."""

    def __init__(self, python, code):
        self.argv = [python, "-c", code]

    def run(self):
        subprocess.run(self.argv, check=True)

    def close(self):
        pass


class Curve:
    """One curve: `open(x, there)` gives what is to be measured at x, something with close(); `there` has what the earlier curves opened, by title.
    `run(it, x)` measures it once, as Bench.rounds() takes it. `holds`: times the state that its memory comes to."""

    def __init__(self, title, role, open, run, holds=0.0):
        self.title, self.role, self.open, self.run, self.holds = title, role, open, run, holds
        self.last = None  # the point before, and the seconds that a round of it took


def ends(curve, x, x_unit, left):
    """Why the curve has no point at x, or None. left: bytes that may still be used."""
    if x_unit == MEMORY and curve.holds * (x << 20) > left:
        return "%d %s would need %.1f GB for it, and %.1f GB are left" % (x, x_unit, curve.holds * (x << 20) / 1e9, max(0, left) / 1e9)
    if curve.last:
        before, seconds = curve.last
        if seconds * x / before > ROUND_S:
            return "ends at %d %s: a round took %.1f s, and would take over %d s at %d" % (before, x_unit, seconds, ROUND_S, x)
    return None


def opened(bench, curves, x, x_unit):
    """[(curve, what it measures)] of the curves that go on to x; the others are told and taken from `curves`."""
    left, there = limits.available() - RESERVE, {}
    for curve in list(curves):
        reason = ends(curve, x, x_unit, left)
        if not reason:
            try:
                there[curve.title] = curve.open(x, there)
                left -= curve.holds * (x << 20)
                continue
            except (RuntimeError, OSError, KeyError, criu.Unusable) as e:
                if curve.role == "furca":
                    raise
                reason = "what it would be measured beside is not there" if isinstance(e, KeyError) else str(e)
        bench.skip(curve.title, reason, curve=curve.title, x=x, x_unit=x_unit)
        curves.remove(curve)
    return [(c, there[c.title]) for c in curves]


def grow(bench, curves, xs, x_unit, rounds, unit="us", pause=PAUSE):
    """Measures the curves at each x and yields (x, series by title). `rounds(x)`: how many, of which the first is a warm-up beside them."""
    curves = list(curves)
    for x in xs:
        there = opened(bench, curves, x, x_unit)
        series = {c.title: Series("%s, %d %s" % (c.title, x, x_unit.split(" ")[0]), unit, c.role, c.title, x, x_unit) for c, _ in there}
        try:
            bench.rounds([(series[c.title], lambda c=c, it=it: c.run(it, x)) for c, it in there], rounds(x), 1, pause)
        finally:
            for _, it in reversed(there):
                it.close()
        for curve, _ in there:
            curve.last = (x, series[curve.title].seconds)
            if series[curve.title].failed:
                curves.remove(curve)
        yield x, series


def few(size):
    """How many rounds for a state of that size."""
    return ROUNDS if size < 100 else max(3, ROUNDS // 3)


def say(bench, name, workload, series, over, under, goal=None, at_most=True, limit=None):
    """The line of one point, where both curves have it."""
    if over in series and under in series:
        bench.say(name, workload, series[over], series[under], goal, at_most, series.get(limit))


# ---- the size of the state ---------------------------------------------------------------------------------------------

TABLES = "memcpy of the page tables"


def page_tables(of):
    """The curve of a copy of the page tables of the process that the curve `of` has opened."""
    return Curve(TABLES, "limit", lambda size, there: limits.Memcpy(limits.page_tables_of(there[of].process.pid)), lambda it, size: it.run())


def read(python):
    """A look at a session, against its size."""
    bench = Bench("read-growth", "bench read-growth: a look at a session, against the size of its state")

    def executor(name, role, holds):
        return Curve(entry_of(name)["title"], role, lambda size, there: Peer(name, python, fill(size)),
                     lambda it, size: it.look("len(x) + len(d)"), holds)

    fork = executor("fork", "limit", 1.2)
    peers = [executor("deepcopy", "peer", 2.5), executor("pickle", "peer", 6), executor("jupyter", "peer", 2.5)]
    for size, series in grow(bench, [executor("furca", "furca", 1.25), fork, page_tables(fork.title), *peers], SIZES, MEMORY, few):
        what = "len() of an array and a dict, read-only, %d MB of state" % size
        for curve in [*peers, fork]:
            say(bench, "%s / furca, %d MB" % (curve.title, size), what, series, curve.title, "furca", None, False, TABLES)
    return bench.end()


def commit(python):
    """What keeping snapshots costs a stateful call, against the size of the session."""
    bench = Bench("commit-growth", "bench commit-growth: a stateful call with a snapshot after it, against the size of the session")
    code = "x[0] += 1; y = 1"

    def curve(title, role, holds, make):
        return Curve(title, role, lambda size, there: make(fill(size)), lambda it, size: it.call(code), holds)

    curves = [curve("with snapshots", "furca", 1.25, lambda state: EngineSession(state, '{"snapshots": "auto"}')),
              curve("without", "furca", 1.15, lambda state: EngineSession(state, '{"snapshots": "off"}')),
              curve("plain fork() kept", "limit", 1.25, lambda state: Kept("fork", python, state)), page_tables("plain fork() kept"),
              curve("pickled to a file", "peer", 2.5, lambda state: Kept("pickle", python, state))]
    for size, series in grow(bench, curves, SIZES, MEMORY, lambda size: 3 * few(size)):
        what = "x[0] += 1, a pause between calls"
        say(bench, "with snapshots / without, %d MB" % size, what, series, "with snapshots", "without", limit=TABLES)
        say(bench, "with snapshots / plain fork() kept, %d MB" % size, what, series, "with snapshots", "plain fork() kept", limit=TABLES)
        say(bench, "pickled to a file / with snapshots, %d MB" % size, what, series, "pickled to a file", "with snapshots", None, False, TABLES)
    return bench.end()


KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def expected(size):
    return str(size * 62_500)


def die(it, size):
    it.call(KILL, dies=True)
    answer = it.call("len(x)")
    if answer != expected(size):
        raise RuntimeError("the state is gone: %s" % answer)


def checkpointed(python, size):
    """A process under CRIU that has died and come back once; criu.Unusable where that fails."""
    it = criu.Session(fill(size), python)
    try:
        it.die("len(x)", expected(size))
    except criu.Unusable:
        it.close()
        raise
    return it


def rollback(python):
    """From the session's death to its next answer, with its state."""
    bench = Bench("rollback-growth", "bench rollback-growth: from the death of a session to its next answer, state and all")
    forked, anew = "plain fork() kept", "new process, loaded anew"
    curves = [Curve("furca", "furca", lambda size, there: EngineSession(fill(size)), die, 1.25),
              Curve(forked, "limit", lambda size, there: Kept("fork", python, fill(size)), die, 1.25), page_tables(forked),
              Curve(anew, "peer", lambda size, there: New(python, fill(size)), lambda it, size: it.run(), 1.2),
              Curve("CRIU", "peer", lambda size, there: checkpointed(python, size), lambda it, size: it.die("len(x)", expected(size)), 3)]
    for size, series in grow(bench, curves, SIZES, MEMORY, lambda size: max(3, ROUNDS // 3), pause=0.1):
        what = "SIGKILL in a call, then len() of the state"
        say(bench, "loaded anew / rolled back, %d MB" % size, what, series, anew, "furca", None, False, TABLES)
        say(bench, "rolled back / plain fork() kept, %d MB" % size, what, series, "furca", forked, limit=TABLES)
        say(bench, "CRIU / rolled back, %d MB" % size, what, series, "CRIU", "furca", None, False, TABLES)
    return bench.end()


# ---- the number of threads, and of sessions ----------------------------------------------------------------------------


def threads(python):
    """A look at a session with many threads, against a plain fork, which loses them."""
    bench = Bench("threads-growth", "bench threads-growth: a look at a session, against the number of its threads")

    def peer(name, n):
        return Peer(name, python, "import threading; e = threading.Event(); x = bytearray(50_000_000); x[:] = b'x' * len(x)\n"
                    "ts = [threading.Thread(target=e.wait, daemon=True) for _ in range(%d)]; [t.start() for t in ts]" % (n - 1))

    fork = "plain fork(), threads lost"
    curves = [Curve("furca", "furca", lambda n, there: peer("furca", n), lambda it, n: it.look("len(x)")),
              Curve(fork, "limit", lambda n, there: peer("fork", n), lambda it, n: it.look("len(x)"))]
    for n, series in grow(bench, curves, (1, 8, 64) if QUICK else (1, 8, 16, 32, 64), "threads", lambda n: ROUNDS):
        say(bench, "furca / plain fork, %d threads" % n, "len() of 50 MB, read-only", series, "furca", fork, limit=fork)
    return bench.end()


def pss(pid, below=True):
    """Bytes of a process, and of all below it, shared pages by share."""
    total, waiting = 0, [pid]
    while waiting:
        pid = waiting.pop()
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                waiting += map(int, file.read().split()) if below else ()
        except (OSError, StopIteration):
            pass
    return total


# Forks one more child for each line on stdin; a child has an object of its own, as each session has.
FORKS = """
import os, signal, sys
for line in sys.stdin:
    if os.fork() == 0:
        os.close(0)
        x = int(line)
        os.write(1, b"r\\n")
        signal.pause()
"""


class Sessions:
    """Sessions of one engine, in a growing number."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="furca-bench-")
        path = os.path.join(self.folder.name, "config.json")
        with open(path, "w") as file:
            file.write('{"max_sessions": 200}')
        self.engine, self.there = engine(options=["--config", path]), 0
        self.pid = self.engine._private.process.pid
        self.base = pss(self.pid)

    def grow(self, n):
        for i in range(self.there, n):
            self.engine.session("s%d" % i).run("x = %d" % i)
        self.there = n

    def share(self):
        """MB for each: the engine and all below it, without what the empty engine had."""
        return (pss(self.pid) - self.base) / self.there / 1e6

    def close(self):
        self.engine.close()
        self.folder.cleanup()


class Forks:
    """Plain forks of one interpreter, in a growing number: less than a session can be."""

    def __init__(self, python):
        self.process = subprocess.Popen([python, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        self.there = 0

    def grow(self, n):
        for i in range(self.there, n):
            self.process.stdin.write(b"%d\n" % i)
            self.process.stdout.readline()
        self.there = n

    def share(self):
        return pss(self.process.pid) / (self.there + 1) / 1e6

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Kernels:
    """Jupyter kernels in a growing number."""

    def __init__(self, python):
        self.python, self.peers = python, []

    def grow(self, n):
        while len(self.peers) < n:
            self.peers.append(Peer("jupyter", self.python, "x = 1"))

    def share(self):
        """MB for each, without the programs that drive them."""
        return sum(pss(p.process.pid) - pss(p.process.pid, False) for p in self.peers) / len(self.peers) / 1e6

    def close(self):
        for peer in self.peers:
            peer.close()


def density(python):
    """Memory of many sessions with snapshots, against kernels and plain forks."""
    bench = Bench("density-growth", "bench density-growth: memory of many small sessions, with a snapshot and a parked copy each", pin=False, timed=False)
    counts, kernels_upto = ((1, 10, 25), 1) if QUICK else ((1, 10, 25, 50, 100), 10)
    shares = {"furca": Sessions(), "plain fork()": Forks(python), "Jupyter kernel": Kernels(python)}
    roles, series = {"furca": "furca", "plain fork()": "limit", "Jupyter kernel": "peer"}, {}
    try:
        for n in counts:
            tasks = []
            for name, it in list(shares.items()):
                if name == "Jupyter kernel" and n > kernels_upto:
                    bench.skip(name, "ends at %d: each takes a second to start, and more of them share no more" % kernels_upto,
                               curve=name, x=n, x_unit="sessions")
                    shares.pop(name).close()
                    continue
                it.grow(n)
                series[name] = Series("%s, %d sessions" % (name, n), "MB a session", roles[name], name, n, "sessions")
                tasks.append((series[name], it.share))
            time.sleep(0.5)
            bench.rounds(tasks, 3, 0)
    finally:
        for it in shares.values():
            it.close()
    bench.say("a session's share, %d sessions" % counts[-1], "Pss of the engine and all below it, without the empty engine's", series["furca"],
              limit=series["plain fork()"])
    bench.say("Jupyter kernel / furca session", "memory of a session with one small object", series["Jupyter kernel"], series["furca"], None, False,
              series["plain fork()"])
    return bench.end()
