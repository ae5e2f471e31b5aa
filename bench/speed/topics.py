"""The speed benchmark's topics that compare furca with what one would use in its place. Those of one room alone are programs in C beside this."""
import os
import subprocess
import time

import furca

from peers import Peer
from words import QUICK, Bench, Series

ROUNDS = 7 if QUICK else 15
PAUSE = 0.03  # an agent thinks between its calls; what furca does meanwhile has been done then
FILL = "import numpy; x = numpy.random.default_rng(1).random(%d * 125_000); d = {i: [i] for i in range(%d * 100)}"  # half the megabytes each, nearly


def engine(**options):
    return furca.Engine(start=True, **options)


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


def read(python):
    """A look at a session, against its size."""
    bench = Bench("read-growth", "bench read-growth: a look at a session, against the size of its state")
    names = ["furca", "fork", "deepcopy", "pickle", "jupyter"]
    for size in (8, 64, 256) if QUICK else (8, 64, 256, 1024):
        peers, series = [], {}
        try:
            for name in names:
                if name in ("deepcopy", "pickle", "jupyter") and size > 256:
                    continue  # these are slow beyond use there, and hold the state two or three times
                try:
                    peer = Peer(name, python)
                    peer.ask("setup", FILL % (size // 2, size // 2))
                except (RuntimeError, OSError) as e:
                    bench.skip(name, str(e))
                    continue
                peers.append(peer)
                role = "furca" if name == "furca" else "limit" if name == "fork" else "peer"
                series[name] = Series("%s, %d MB" % (peer.title, size), role=role, curve=peer.title, x=size, x_unit="MB of state")
            few = max(3, ROUNDS // (1 if size < 100 else 3))
            bench.rounds([(series[p.name], lambda p=p: p.look("len(x) + len(d)")) for p in peers], few, 1, PAUSE)
        finally:
            for peer in peers:
                peer.close()
        for name, goal in (("deepcopy", None), ("pickle", None), ("jupyter", None), ("fork", None)):
            if name in series and "furca" in series:
                bench.say("%s / furca, %d MB" % (series[name].curve, size), "len() of an array and a dict, read-only, %d MB of state" % size,
                          series[name], series["furca"], goal, False)
    return bench.end()


def mvcc(python):
    """A look while the session is busy, and how long a Jupyter kernel makes one wait."""
    bench = Bench("mvcc", "bench mvcc: a look while the session is busy")
    with engine() as e:
        session = e.session("busy")
        session.run("x = list(range(100000))")
        idle, busy = Series("look at an idle session"), Series("look at a busy session")

        def look():
            session.read("len(x)")

        def look_busy():
            call = session.submit("import time; time.sleep(0.15)")
            time.sleep(0.02)
            start = time.perf_counter()
            look()
            took = (time.perf_counter() - start) * 1e6
            call.result()
            time.sleep(PAUSE)
            return took

        bench.rounds([(idle, look), (busy, look_busy)], ROUNDS, 2, PAUSE)
        bench.say("busy / idle", "len() of a list, while the session sleeps 0.15 s in a call", busy, idle, 1.5)
    return bench.end()


def burst(python):
    """Looks that come at once."""
    bench = Bench("burst", "bench burst: looks at one session that come at once", pin=False)
    peer = Peer("fork", python)
    peer.ask("setup", "x = list(range(100000))")
    with engine() as e:
        session = e.session("burst")
        session.run("x = list(range(100000))")
        for n in (1, 4, 16, 64):
            mine = Series("%d looks at once" % n, "us a look", curve="furca, at once", x=n, x_unit="looks")
            theirs = Series("%d plain forks one by one" % n, "us a look", "limit", "plain fork(), one by one", n, "looks")

            def at_once(n=n):
                start = time.perf_counter()
                calls = [session.submit("len(x)", "read_only") for _ in range(n)]
                for call in calls:
                    call.result()
                return (time.perf_counter() - start) * 1e6 / n

            def one_by_one(n=n):
                return sum(peer.look("len(x)") for _ in range(n)) / n

            bench.rounds([(mine, at_once), (theirs, one_by_one)], max(3, ROUNDS // 2), 1, PAUSE)
            bench.say("at once / plain fork, %d" % n, "%d read-only len(), submitted together" % n, mine, theirs, limit=theirs)
    peer.close()
    return bench.end()


def rollback(python):
    """From the session's death to its next answer, with its state; a Jupyter kernel must be started and filled again."""
    bench = Bench("rollback-growth", "bench rollback-growth: from the death of a session to its next answer, state and all")
    for size in (8, 64) if QUICK else (8, 64, 256, 1024):
        mine = Series("furca, %d MB" % size, curve="furca", x=size, x_unit="MB of state")
        theirs = Series("new process, loaded anew, %d MB" % size, role="peer", curve="new process, loaded anew", x=size, x_unit="MB of state")
        with engine(raise_errors=False) as e:
            session = e.session("dies")
            session.run(FILL % (size // 2, size // 2))

            def die():
                session.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
                answer = session.run("len(x)")
                if answer.value != size // 2 * 125000:
                    raise RuntimeError("the state is gone: %r" % answer)

            def again():
                subprocess.run([python, "-c", FILL % (size // 2, size // 2)], check=True)

            bench.rounds([(mine, die), (theirs, again)], max(3, ROUNDS // 3), 1, 0.1)
            bench.say("loaded anew / rolled back, %d MB" % size, "SIGKILL in a call, then len() of the state", theirs, mine, None, False)
    bench.skip("CRIU", criu())
    return bench.end()


def criu():
    """Why checkpoints by CRIU are not measured here."""
    try:
        done = subprocess.run(["criu", "check"], capture_output=True, text=True)
        return "`criu check`: " + (done.stderr or done.stdout).strip().split("\n")[-1] if done.returncode else "it would work here, but has no driver yet"
    except OSError:
        return "criu is not installed"


def bulk(python):
    """Much output, and many small calls in flight."""
    bench = Bench("bulk", "bench bulk: much output, and many small calls")
    megabytes = 30
    mine, limit = Series("furca, output", "MB/s"), Series("a pipe, output", "MB/s", "limit")
    with engine() as e:
        session = e.session("bulk")
        session.run("import os; block = b'x' * (1 << 20)")

        def output():
            start = time.perf_counter()
            session.run("for _ in range(%d): os.write(1, block)" % megabytes)
            return megabytes * 1.048576 / (time.perf_counter() - start)

        def pipe():
            start = time.perf_counter()
            code = "import os; b = b'x' * (1 << 20)\nfor _ in range(%d): os.write(1, b)" % megabytes
            with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, bufsize=0) as child:
                while child.stdout.read(1 << 20):
                    pass
            return megabytes * 1.048576 / (time.perf_counter() - start)

        bench.rounds([(mine, output), (limit, pipe)], ROUNDS, 1)
        bench.say("output / a bare pipe's", "%d MB written to stdout" % megabytes, mine, limit, limit=limit)
        one, many = Series("calls one by one", "us a call"), Series("100 calls in flight", "us a call")

        def one_by_one():
            start = time.perf_counter()
            for _ in range(100):
                session.run("None")
            return (time.perf_counter() - start) * 1e4

        def in_flight():
            start = time.perf_counter()
            for call in [session.submit("None") for _ in range(100)]:
                call.result()
            return (time.perf_counter() - start) * 1e4

        bench.rounds([(one, one_by_one), (many, in_flight)], ROUNDS, 1)
        bench.say("in flight / one by one", "100 stateful calls of None", many, one)
    return bench.end()


def density(python):
    """Memory of many sessions with snapshots, against kernels."""
    bench = Bench("density-growth", "bench density-growth: memory of many small sessions, with a snapshot and a parked copy each", pin=False)
    counts = (1, 5, 20) if QUICK else (1, 5, 20, 50, 100)
    config = "/tmp/furca-bench-density-%d.json" % os.getpid()
    with open(config, "w") as file:
        file.write('{"max_sessions": 200}')
    try:
        with engine(options=["--config", config]) as e:
            pid = e._private.process.pid
            base, there = pss(pid), 0
            for n in counts:
                for i in range(there, n):
                    e.session("s%d" % i).run("x = %d" % i)
                there = n
                time.sleep(0.5)
                series = Series("%d sessions" % n, "MB a session", curve="furca", x=n, x_unit="sessions")
                for _ in range(3):
                    series.values.append((pss(pid) - base) / n / 1e6)
                bench.print(series)
        bench.say("a session's share, %d sessions" % counts[-1], "Pss of the engine and all below it, without the empty engine's", series)
    finally:
        os.unlink(config)
    kernel = Series("a Jupyter kernel", "MB a session", "peer", "Jupyter kernel", 1, "sessions")
    try:
        peer = Peer("jupyter", python)
        peer.ask("setup", "x = 1")
        kernel.values = [(pss(peer.process.pid) - pss(peer.process.pid, False)) / 1e6]
        peer.close()
        bench.print(kernel)
        bench.say("Jupyter kernel / furca session", "memory of a session with one small object", kernel, series, None, False)
    except (RuntimeError, OSError, StopIteration) as e:
        bench.skip("Jupyter kernel", str(e))
    return bench.end()


STEPS = [("stateful", "import numpy, pandas; df = pandas.DataFrame({'k': numpy.arange(400_000) % 97, 'v': numpy.arange(400_000.0)})")] + [
    ("look", "df.groupby('k').v.sum().round().head(3).to_dict()"), ("look", "df.sort_values('v', ascending=False, inplace=True); float(df.v.iloc[0])"),
    ("stateful", "df['w'] = df.v * 2; len(df)"), ("look", "del df['w']; list(df)"), ("look", "df.v.describe().round(1).to_dict()"),
    ("look", "df.pivot_table(index='k', values='v').shape")] * 3


def trace(python):
    """An agent's afternoon: a frame is loaded, looked at on trial, changed, looked at."""
    bench = Bench("trace", "bench trace: an agent loads a frame, tries things on it without keeping them, changes it: %d calls" % len(STEPS))
    names = ["furca", "deepcopy", "pickle", "jupyter"]
    series = {n: None for n in names}

    def run(name):
        peer = Peer(name, python)
        try:
            peer.ask("setup", "pass")
            total = 0.0
            for kind, code in STEPS:
                total += peer.ask("observe" if kind == "stateful" else "read_only", code)["ms"]
                time.sleep(0.01)
            return total
        finally:
            peer.close()

    fresh = Series("a fresh process each time", "ms", "peer")

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
    tasks = [(series[n], lambda n=n: run(n)) for n in names] + ([] if QUICK else [(fresh, from_scratch)])
    bench.rounds(tasks, 3, 0)
    for name in names[1:]:
        bench.say("%s / furca" % series[name].name, "%d calls on a frame of 400,000 rows, all of them" % len(STEPS), series[name], series["furca"], None, False)
    if fresh.values:
        bench.say("a fresh process each time / furca", "the same", fresh, series["furca"], None, False)
    return bench.end()


def start(python):
    """A stateless call against new interpreters."""
    bench = Bench("start-peers", "bench start-peers: a fresh start, against what else starts")
    mine, shell = Series("furca, stateless None"), Series("furca, stateless bash")
    bare, bash = Series("python -c pass", role="peer"), Series("bash -c :", role="peer")
    fork = Series("fork and wait", role="limit")

    def forks():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    with engine() as e:
        bench.rounds([(mine, lambda: e.python("None", state_mode="stateless")), (shell, lambda: e.bash(":", state_mode="stateless")),
                      (bare, lambda: subprocess.run([python, "-c", "pass"])), (bash, lambda: subprocess.run(["bash", "-c", ":"])),
                      (fork, forks)], ROUNDS, 3, PAUSE)
    bench.say("python -c pass / stateless", "a fresh interpreter, nothing done", bare, mine, None, False, fork)
    bench.say("bash -c : / stateless bash", "a fresh shell, nothing done", bash, shell, None, False, fork)
    try:
        kernel = Series("a Jupyter kernel, ready", role="peer")
        for _ in range(3):
            begun = time.perf_counter()
            peer = Peer("jupyter", python)
            peer.ask("setup", "1")
            kernel.values.append((time.perf_counter() - begun) * 1e6)
            peer.close()
        bench.print(kernel)
        bench.say("a Jupyter kernel / stateless", "until the first answer", kernel, mine, None, False)
    except (RuntimeError, OSError) as error:
        bench.skip("a Jupyter kernel", str(error))
    return bench.end()


def shell(python):
    """A stateful bash call against a shell that pexpect drives, and a new one."""
    bench = Bench("shell", "bench shell: a bash call against a shell on a terminal, driven by pexpect, and a new bash")
    mine, new = Series("furca, stateful `:`"), Series("bash -c :", role="peer")
    with engine() as e:
        session = e.session("shell", "bash")
        tasks = [(mine, lambda: session.run(":")), (new, lambda: subprocess.run(["bash", "-c", ":"]))]
        driven = None
        try:
            from pexpect import replwrap
            repl, driven = replwrap.bash(), Series("pexpect on a terminal", role="peer")
            tasks.append((driven, lambda: repl.run_command(":")))
        except Exception as error:  # pexpect says what fails in many ways
            bench.skip("pexpect", "%s: %s" % (type(error).__name__, error))
        bench.rounds(tasks, 4 * ROUNDS, 5)
    bench.say("bash -c : / furca", "a command that does nothing", new, mine, None, False)
    if driven:
        bench.say("pexpect / furca", "a command that does nothing", driven, mine, None, False)
    return bench.end()


def threads(python):
    """A look at a session with many threads, against a plain fork, which loses them."""
    bench = Bench("threads-growth", "bench threads-growth: a look at a session, against the number of its threads")
    for n in (1, 8, 64):
        setup = "import threading; e = threading.Event(); x = bytearray(50_000_000); x[:] = b'x' * len(x)\n"
        setup += "ts = [threading.Thread(target=e.wait, daemon=True) for _ in range(%d)]; [t.start() for t in ts]" % (n - 1)
        series, peers = [], [Peer("furca", python), Peer("fork", python)]
        try:
            for peer, role, curve in zip(peers, ("furca", "limit"), ("furca", "plain fork(), threads lost")):
                peer.ask("setup", setup)
                series.append(Series("%s, %d threads" % (peer.title, n), role=role, curve=curve, x=n, x_unit="threads"))
            bench.rounds([(s, lambda p=p: p.look("len(x)")) for s, p in zip(series, peers)], ROUNDS, 2, PAUSE)
            bench.say("furca / plain fork, %d threads" % n, "len() of 50 MB, read-only", series[0], series[1], limit=series[1])
        finally:
            for peer in peers:
                peer.close()
    return bench.end()


def commit(python):
    """What keeping snapshots costs a stateful call, against the size of the session."""
    bench = Bench("commit-growth", "bench commit-growth: a stateful call with a snapshot after it, against the size of the session")
    for size in (8, 64) if QUICK else (8, 64, 256, 1024):
        engines, tasks = [], []
        config = "/tmp/furca-bench-commit-%d.json" % os.getpid()
        try:
            for word in ("auto", "off"):
                with open(config, "w") as file:
                    file.write('{"snapshots": "%s"}' % word)
                e = engine(options=["--config", config])
                engines.append(e)
                session = e.session("s")
                session.run(FILL % (size // 2, size // 2))
                name = "with snapshots" if word == "auto" else "without"
                tasks.append((Series("%s, %d MB" % (name, size), curve=name, x=size, x_unit="MB of state"), lambda s=session: s.run("x[0] += 1; y = 1")))
            bench.rounds(tasks, 3 * ROUNDS, 3, PAUSE)
            bench.say("with snapshots / without, %d MB" % size, "x[0] += 1, a pause between calls", tasks[0][0], tasks[1][0])
        finally:
            for e in engines:
                e.close()
            os.unlink(config)
    return bench.end()


TOPICS = {f.__name__: f for f in (read, burst, mvcc, commit, bulk, rollback, shell, start, threads, density, trace)}
