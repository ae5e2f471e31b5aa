"""furca bench safety: how safe is a look? Tries to change things outside a read-only call, and does in it what a reader needs.

Each case (attempts.toml and bash.toml of tests/matrix, cases.toml here) runs with each executor (executors/) in namespaces of
its own, so that what an attempt destroys is thrown away. Needs root. doc/bench-safety.md says how to read the result and add an executor.

    furca bench safety [--quick] [--json FILE]
        --only TEXT          cases whose class or name contains TEXT
        --executors A,B      only these (and `--list` lists them)
        --executor-file FILE more executors, in the form of executors/executors.toml
        --ablation           also furca without each of its barriers
        --out FOLDER         safety.json and safety.html are written there (default: the current directory)
        --no-cost            leave out what a look costs (`--only cost`: nothing else)
        --from FILE,FILE     no run: the tables and the page of earlier runs, together
        --jobs N             labs at once (default: the number of CPUs)
        --verbose            a line for each case

Exit status: 0 furca leaks nothing and refuses nothing that readers need; 1 it does; 77 labs cannot be made.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib

import report
from labs import build_lab, libc, loop_device, probes, start_lab, wait_end, wants

HERE = pathlib.Path(__file__).resolve().parent
EXECUTORS = HERE / "executors"
SETUP_S, ANSWER_S, LAB_S = 25, 18, 90
# A session may lack the terminal that others inherit from the lab: it takes it then.
TERMINAL = """
try: os.close(os.open("/dev/tty", os.O_RDWR))
except OSError: fcntl.ioctl(os.open(os.environ["LAB_TTY"], os.O_RDWR), 0x540E, 1)
"""
BASH_SETUP = 'cd "$LAB_W"; echo original >f; PORT=$LAB_PORT SOCK=$LAB_SOCK; affinity=$(taskset -pc $$ 2>/dev/null)\n'
NETWORK = re.compile("TCP|UDP|IPv6|take a port|raw packets|take an interface|give an interface|vsock|network device|sysctl of the network")
MEMORY = {"change a list in place": "in place", "sort a numpy array in place": "native buffer", "poke memory through ctypes": "native buffer",
          "advance the random state": "time and RNG"}
CLASSES = {"shared memory": "shared mapping", "descriptors": "descriptor", "processes": "process"}
# What each executor costs: a session, and a look at it. The look that waits lets the memory in use be counted.
COSTS = [
    ("nothing", "x = 1", "x"),
    ("a dict of 1,000,000", "x = {i: [i] for i in range(1_000_000)}", "len(x)"),
    ("a frame of 200 MB", "import numpy, pandas; x = pandas.DataFrame({'a': numpy.arange(12_500_000), 'b': numpy.ones(12_500_000)})", "len(x)"),
]


# ---- cases --------------------------------------------------------------------------------------------------------------


def class_of(attempt):
    group, name = attempt["group"], attempt["name"]
    if group == "IPC and network":
        return "network" if NETWORK.search(name) else "ipc"
    if group == "memory":
        return MEMORY.get(name, "memory")
    return "time and RNG" if name.endswith("the clock (to what it is)") or name.startswith("adjust the clock") else CLASSES.get(group, group)


def find(name):
    """A data file of the matrix: beside this one where installed, in the tree else."""
    for place in (HERE, HERE.parents[1] / "tests" / "matrix"):
        if (place / name).exists():
            return place / name
    raise FileNotFoundError(name)


def load_cases():
    cases = [{**a, "class": class_of(a), "language": "python", "matrix": True} for a in tomllib.loads(find("attempts.toml").read_text())["attempt"]]
    cases += [{**a, "name": "bash: " + a["name"], "language": "bash", "needs": " ".join("cmd:" + n for n in a.get("needs", "").split())}
              for a in tomllib.loads(find("bash.toml").read_text())["attempt"]]
    cases += [{"language": "python", **c} for c in tomllib.loads((HERE / "cases.toml").read_text())["case"]]
    cases = [c for c in cases if "elsewhere" not in c]
    for name, setup, read in COSTS:
        cases.append({"name": name, "class": "cost", "language": "python", "setup": setup, "cost": read})
    cases.append({"name": "nothing", "class": "cost", "language": "bash", "setup": "x=1", "cost": "echo $x"})
    cases.append({"name": "10,000 variables", "class": "cost", "language": "bash",
                  "setup": 'for ((i = 0; i < 10000; i++)); do declare "v$i=value $i"; done', "cost": "echo ${#v9}"})
    return cases


def suits(case, executor, there):
    if case["language"] not in executor.get("languages", ["python"]) or (case.get("capabilities") and not executor.get("capabilities")):
        return False
    if executor.get("ablation") and case["class"] == "cost":
        return False
    needs = [n for n in case.get("needs", "").split()]
    if not all(shutil.which(n[4:]) for n in needs if n.startswith("cmd:")):
        return False
    return wants({"needs": " ".join(n for n in needs if ":" not in n)}, "root", there)


def sample(cases):
    """For --quick: every eighth of each class and kind, and all that costs."""
    seen, kept = {}, []
    for case in cases:
        key = (case["class"], case["language"], "read" in case)
        seen[key] = seen.get(key, -1) + 1
        if seen[key] % 8 == 0 or case["class"] == "cost":
            kept.append(case)
    return kept


# ---- inside a lab -------------------------------------------------------------------------------------------------------


class Gone(Exception):
    """The executor has ended, or answers no more."""


class Speaker:
    """The runner's end of an executor's protocol."""

    def __init__(self, to, back):
        self.to, self.back, self.data = to, back, b""

    def ask(self, seconds=ANSWER_S, **request):
        try:
            os.write(self.to, json.dumps(request).encode() + b"\n")
        except OSError:
            raise Gone("the session ended") from None
        end = time.monotonic() + seconds
        while True:
            while b"\n" not in self.data:
                if not select.select([self.back], [], [], max(0, end - time.monotonic()))[0]:
                    raise Gone("no answer in time")
                part = os.read(self.back, 1 << 16)
                if not part:
                    raise Gone("the session ended")
                self.data += part
            line, self.data = self.data.split(b"\n", 1)
            try:
                answer = json.loads(line)
            except ValueError:
                continue  # the code has written to the executor's stdout
            if isinstance(answer, dict):
                return answer


def start(executor, env, tty, other_ends):
    """The executor below a parent of its own, which it may kill; the parent's end shows in the pipes'."""
    to, back = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (to[1], back[0], *other_ends):
            os.close(fd)
        child = os.fork()
        if child == 0:
            os.setsid()
            terminal = os.open(tty, os.O_RDWR)
            libc.ioctl(terminal, 0x540E, 0)  # TIOCSCTTY
            os.close(terminal)
            os.dup2(to[0], 0)
            os.dup2(back[1], 1)
            log = os.open("/tmp/executor.log", os.O_WRONLY | os.O_CREAT, 0o644)
            os.dup2(log, 2)
            os.closerange(3, 1024)
            os.execve(executor["argv"][0], executor["argv"], {**env, **executor.get("environment", {})})
        os.close(to[0])
        os.close(back[1])
        os.waitpid(child, 0)
        os._exit(0)
    os.close(to[0])
    os.close(back[1])
    return Speaker(to[1], back[0])


def memory_used():
    """Bytes that the lab's processes have: each page once, by proportional shares."""
    total = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit() and entry != "1":
            try:
                with open(f"/proc/{entry}/smaps_rollup") as file:
                    total += next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
            except (OSError, StopIteration):
                pass
    return total


def measure(speaker, case, result):
    """Times of looks one by one, and what one that lasts adds to the memory in use."""
    bash = case["language"] == "bash"
    times, begun = [], time.monotonic()
    for i in range(12):
        if len(times) >= 3 and time.monotonic() - begun > 8:
            break  # a slow one need not be looked at often
        time.sleep(0.1)  # for what an executor does between calls
        answer = speaker.ask(60, op="read_only", code=case["cost"])
        if not answer["ok"]:
            result.update(outcome="refused", told=answer.get("error"))
            return
        if i >= 2 or answer["ms"] > 1000:
            times.append(answer["ms"])
    before = memory_used()
    os.write(speaker.to, json.dumps({"op": "read_only", "code": "%s\nsleep 2" % case["cost"] if bash else "%s\nimport time; time.sleep(2)" % case["cost"]}).encode() + b"\n")
    most, end = before, time.monotonic() + 1.9
    while time.monotonic() < end:
        most = max(most, memory_used())
        time.sleep(0.1)
    result.update(outcome="fine", ms=sorted(times)[len(times) // 2], spread=[min(times), max(times)], bytes=most - before)


def listener():
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind("/tmp/lab/sock")
    unix.listen()
    for s in (tcp, unix):
        s.setblocking(False)
    return tcp, unix


def was_hit(listening):
    for s in listening:
        try:
            s.accept()
            return True
        except BlockingIOError:
            pass
    return False


def look_after(speaker, case, listening, told_ok):
    """Whether the attempt changed anything, seen from the session or the machine."""
    if case.get("told"):
        return told_ok, None
    if case["changed"] == "HIT":
        time.sleep(0.2)
        return was_hit(listening), None
    if case["language"] == "bash":
        seen = speaker.ask(op="observe", code="if %s; then echo True; else echo False; fi" % case["changed"])
    else:
        seen = speaker.ask(op="observe", code="bool(%s\n)" % case["changed"].strip())
    if seen.get("lost"):
        return True, "the session died"
    if not seen["ok"]:
        return True, "the session is not what it was: " + seen.get("error", "")
    return seen["value"].strip() == "True", None


def judge_read(speaker, case, answer):
    """A need: refused, wrong or fine."""
    if not answer["ok"]:
        return "refused", answer.get("error")
    got = answer["value"].strip()
    if case.get("same"):
        wanted = speaker.ask(op="observe", code=case["read"]).get("value", "").strip()
    else:
        wanted = case["value"].strip()
    return ("fine", None) if got == wanted else ("wrong", "%s instead of %s" % (got[:80], wanted[:80]))


def run_case(speaker, case, prelude, listening):
    result = {"outcome": "broken"}
    bash = case["language"] == "bash"
    setup = (BASH_SETUP if bash else prelude) + "\n" + (TERMINAL if "/dev/tty" in case.get("setup", "") else "") + case.get("setup", "")
    answer = speaker.ask(SETUP_S, op="setup", language=case["language"], code=setup)
    if not answer["ok"] and not (bash and "status" in answer.get("error", "")):
        return {**result, "told": answer.get("error")}
    if "cost" in case:
        measure(speaker, case, result)
        return result
    try:
        answer = speaker.ask(SETUP_S if "read" in case else ANSWER_S, op="read_only", code=case["read"] if "read" in case else case["attack"])
    except Gone as gone:
        return {"outcome": "refused" if "read" in case else "leak", "told": str(gone)}
    result["told"] = answer.get("error") or answer.get("value", "")[:80]
    try:
        if "read" in case:
            result["outcome"], result["told"] = judge_read(speaker, case, answer)
        if "attack" in case or "changed" in case:
            changed, told = look_after(speaker, case, listening, answer["ok"])
            if changed:
                result.update(outcome="leak", told=told or "changed")
            elif "attack" in case:
                result["outcome"] = "fine"
        if case.get("after"):
            speaker.ask(op="observe", code=case["after"])
        speaker.ask(3, op="close")
    except Gone as gone:
        if result["outcome"] == "broken":
            result.update(outcome="leak", told=str(gone))
    return result


def lab_main(executor, case, out, settings):
    """pid 1 of the lab."""
    build_lab("root", settings["image"] if case.get("matrix") else None)
    master, slave = os.openpty()
    listening = listener()
    env = {**os.environ, **settings["env"], "LAB_W": "/tmp/lab/w", "LAB_OTHER": "/tmp/lab/other", "LAB_TTY": os.ttyname(slave),
           "LAB_IMAGE": "/tmp/lab/image", "LAB_OUTSIDE": settings["outside"], "LAB_PORT": str(listening[0].getsockname()[1]),
           "LAB_SOCK": "/tmp/lab/sock", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp/lab/other"}
    env.pop("XDG_RUNTIME_DIR", None)
    os.chdir("/tmp/lab/w")
    speaker = start(executor, env, os.ttyname(slave), [out, master, slave])
    try:
        result = run_case(speaker, case, settings["prelude"], listening)
    except Gone as gone:
        result = {"outcome": "broken", "told": str(gone)}
    if result["outcome"] == "broken":
        with open("/tmp/executor.log", errors="replace") as log:
            result["log"] = log.read()[-600:]
    os.write(out, json.dumps(result).encode())
    os._exit(0)


# ---- outside ------------------------------------------------------------------------------------------------------------


def one(executor, case, settings):
    outer, pidfd, r = start_lab(lambda w: lab_main(executor, case, w, settings), lambda e: {"outcome": "broken", "told": f"lab: {e}"})
    late = not wait_end(pidfd, LAB_S * (3 if "cost" in case else 1))
    if late:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    code = os.waitpid(outer, 0)[1]
    os.close(pidfd)
    data = b"" if late else b"".join(iter(lambda: os.read(r, 65536), b""))
    os.close(r)
    if os.WIFEXITED(code) and os.WEXITSTATUS(code) == 6:
        return {"outcome": "leak", "told": "the lab ended"}
    try:
        return json.loads(data)
    except ValueError:
        return {"outcome": "broken", "told": "time is up" if late else "no result"}


def work(job):
    e, c = job
    return e, c, one(EXECUTOR_LIST[e], CASES[c], SETTINGS)


def prepare_python(executors):
    """The Python that runs the executors: a virtual environment with the pinned peers, made once and kept; the plain one where none needs it."""
    wanted = {n for e in executors for n in e.get("needs", []) if not n.startswith("cmd:") and n != "furca"}
    plain = os.environ.get("PYTHON") or "/usr/bin/python3"
    if all(subprocess.run([plain, "-c", "import " + n], capture_output=True, cwd="/").returncode == 0 for n in wanted):
        return plain
    pins = (HERE / "requirements.txt").read_text()
    place = pathlib.Path(os.environ.get("FURCA_BENCH_VENV") or os.path.join(os.path.expanduser("~"), ".cache/furca")) / (
        "bench-" + hashlib.sha256((pins + plain).encode()).hexdigest()[:12])
    python = str(place / "bin" / "python")
    if not (place / "ready").exists():
        print(f"making an environment for the peers in {place}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        made = subprocess.run([plain, "-m", "venv", "--system-site-packages", str(place)], capture_output=True, text=True)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")], capture_output=True, text=True)
        if made.returncode != 0:
            print("the peers from PyPI cannot be had: " + (made.stderr or made.stdout).strip().split("\n")[-1])
            return plain
        (place / "ready").touch()
    return python


def lacking(executor, python):
    for need in executor.get("needs", []):
        if need.startswith("cmd:"):
            if not shutil.which(need[4:]):
                return need[4:] + " is not installed"
        elif subprocess.run([python, "-c", "import " + need], capture_output=True, cwd="/").returncode != 0:
            return need + " cannot be imported"
    return None


def load_executors(args):
    every = tomllib.loads((EXECUTORS / "executors.toml").read_text())["executor"]
    if args.executor_file:
        folder = pathlib.Path(args.executor_file).resolve().parent
        more = tomllib.loads(pathlib.Path(args.executor_file).read_text())["executor"]
        every += [{**e, "command": [str(folder / e["command"][0]), *e["command"][1:]]} for e in more]
    if args.executors:
        names = args.executors.split(",")
        unknown = set(names) - {e["name"] for e in every}
        if unknown:
            sys.exit("no executor " + ", ".join(sorted(unknown)))
        return [e for e in every if e["name"] in names]
    return [e for e in every if args.ablation or not e.get("ablation")]


def arguments():
    parser = argparse.ArgumentParser(prog="furca bench safety", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--only", "--executors", "--executor-file", "--out", "--from"):
        parser.add_argument(name, default="", dest=name.strip("-").replace("-", "_") if name != "--from" else "earlier")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    for flag in ("--ablation", "--no-cost", "--list", "--verbose"):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def run_all(args, there, results):
    jobs = [(e, c) for e, x in enumerate(EXECUTOR_LIST) for c, case in enumerate(CASES) if suits(case, x, there)]
    alone = [j for j in jobs if CASES[j[1]]["class"] == "cost" or "loop" in CASES[j[1]].get("needs", "").split()]
    shared = [j for j in jobs if j not in set(alone)]
    done = 0
    with multiprocessing.Pool(max(1, args.jobs)) as pool:
        signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # what was measured until then is told
        for part in (pool.imap_unordered(work, sorted(shared, key=lambda j: j[1])), map(work, alone)):
            for e, c, result in part:
                results[e, c] = result
                done += 1
                if args.verbose:
                    print(EXECUTOR_LIST[e]["name"], "|", CASES[c]["class"], "|", CASES[c]["name"], "|", result, flush=True)
                elif sys.stdout.isatty() and done % 10 == 0:
                    print(f"\r{done} of {len(jobs)}", end="", flush=True)


def main():
    args = arguments()
    if args.earlier:
        return report.write(report.together([report.load(f) for f in args.earlier.split(",")]), args.out)
    global CASES, EXECUTOR_LIST, SETTINGS
    EXECUTOR_LIST = load_executors(args)
    if args.list:
        print("\n".join(f"{e['name']:22} {e['title']}" for e in EXECUTOR_LIST))
        return 0
    if os.geteuid() != 0:
        print("skipped: labs are made as root")
        return 77
    program = os.environ.get("FURCA_PROGRAM") or shutil.which("furca") or ""
    client = HERE.parents[1] / "bridge" / "python"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(client) if client.is_dir() else "", os.environ.get("PYTHONPATH")]))
    os.environ["FURCA_PROGRAM"] = program
    os.environ["PYTHONNOUSERSITE"] = "1"  # a lab has another home
    python = prepare_python(EXECUTOR_LIST)
    skipped = {e["name"]: why for e in EXECUTOR_LIST for why in [lacking(e, python)] if why}
    EXECUTOR_LIST = [e for e in EXECUTOR_LIST if e["name"] not in skipped]
    for e in EXECUTOR_LIST:
        path = os.path.join(EXECUTORS, e["command"][0])
        e["argv"] = ([python] if path.endswith(".py") else []) + [path, *e["command"][1:]]
    CASES = [c for c in load_cases() if args.only in c["class"] or args.only in c["name"]]
    CASES = [c for c in CASES if not (args.no_cost and c["class"] == "cost")]
    if os.environ.get("FURCA_BENCH_QUICK"):
        CASES = sample(CASES)
    there, env = probes()
    folder = tempfile.mkdtemp(dir="/var/tmp", prefix="furca-bench-")
    image, loop = loop_device(folder)
    there["loop"] = bool(loop)
    SETTINGS = {"image": image, "outside": os.readlink("/proc/self/ns/pid"), "prelude": find("prelude.py").read_text(),
                "env": {**env, "LAB_LOOP": loop or "/dev/none"}}
    begun = time.time()
    results = {}
    try:
        run_all(args, there, results)
    except SystemExit:
        print("ended before its time: what was measured until now")
    finally:
        if loop:
            subprocess.run(["losetup", "-d", loop])
        shutil.rmtree(folder, ignore_errors=True)
    data = report.collect(EXECUTOR_LIST, CASES, results, skipped, begun, program)
    if os.environ.get("FURCA_BENCH_JSON"):
        with open(os.environ["FURCA_BENCH_JSON"], "a") as file:
            for line in report.lines(data):
                file.write(json.dumps(line) + "\n")
    return report.write(data, args.out)


if __name__ == "__main__":
    sys.exit(main())
