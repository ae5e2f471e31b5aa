"""furca bench speed: how fast, against what one would use otherwise and what the machine allows.

    furca bench speed [TOPIC…] [--quick] [--json FILE]
        --out FOLDER   speed.json and speed.html are written there (default: the current directory)
        --from FILE,…  no run: the summary and the page of earlier runs, together
        --list         the topics

Runs each benchmark of its own (`furca bench` lists them: call, read, bash, …), then the topics that compare with peers: growth curves over the
size of the state, the number of sessions, of calls at once. One CPU is pinned where one is measured, rounds are interleaved, nothing is concluded on
a noisy machine. Quick: under 5 minutes; whole: under 30.

Exit status: 0 all goals are met; 1 one is missed; 77 nothing can be said.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "safety"))
import machine  # noqa: E402  (it lies in the other folder)

PREFIX = "furca-bench-"
NOT_SPEED = {"safety", "speed", "guard"}
LIMIT_S = 600


def programs(folder):
    """The benchmarks of the rooms, which lie beside this program."""
    names = sorted(p.name[len(PREFIX):] for p in pathlib.Path(folder).glob(PREFIX + "*") if os.access(p, os.X_OK) and "." not in p.name)
    return [n for n in names if n not in NOT_SPEED]


def records(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()] if os.path.exists(path) else []


def run_child(name, argv, path):
    """Output goes through a pipe, as a session's does: a file that stands there would be copied up for each copy that a benchmark makes of itself."""
    print("\n== " + name, flush=True)
    begun = time.time()
    with subprocess.Popen(argv, env={**os.environ, "FURCA_BENCH_JSON": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        limit = threading.Timer(LIMIT_S, child.kill)
        limit.start()
        try:
            for line in child.stdout:
                print(line.decode(errors="replace"), end="", flush=True)
        finally:
            limit.cancel()
            if sys.exc_info()[0]:
                child.kill()
    return {"name": name, "status": child.returncode, "seconds": round(time.time() - begun, 1)}


def run_program(name, folder, path):
    return run_child(name, [os.path.join(folder, PREFIX + name)], path)


def run_topic(name, python, path):
    """In a process of its own, by the Python that has the peers."""
    code = "import sys; sys.path[:0] = %r; import topics; sys.exit(topics.TOPICS[%r](sys.executable))" % ([str(HERE), str(HERE.parent / "safety")], name)
    return run_child(name, [python, "-c", code], path)


def topic_names():
    source = (HERE / "topics.py").read_text()
    return source.rsplit("for f in (", 1)[1].split(")")[0].split(", ")


def prepare():
    """The Python with the peers, as for the safety benchmark; the client package from the source tree where it is not installed."""
    import run as safety  # the other folder's
    client = HERE.parents[1] / "bridge" / "python"
    if client.is_dir():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(client), os.environ.get("PYTHONPATH")]))
    return safety.prepare_python([{"needs": ["dill", "ipykernel", "jupyter_client", "msgpack"]}])


def summary(data):
    lines = [r for r in data["records"] if r["record"] == "line"]
    out = ["", "%-12s %-46s %10s  %-17s %s" % ("benchmark", "line", "ratio", "goal", "verdict")]
    for r in lines:
        value = r.get("ratio", r.get("figure"))
        goal = "%s %g" % (r["sense"], r["goal"]) if "goal" in r else ""
        out.append("%-12s %-46s %10.3g  %-17s %s" % (r["bench"], r["name"][:46], value, goal, r["verdict"]))
    for r in data["records"]:
        if r["record"] == "skipped":
            out.append("%-12s %-46s skipped: %s" % (r["bench"], r["name"][:46], r["reason"]))
    for run in data["runs"]:
        if run["status"] not in (0, 1, 77):
            out.append("%-12s did not end well (status %s)" % (run["name"], run["status"]))
    verdicts = [r["verdict"] for r in lines]
    out.append("%d PASS, %d MISS, %d NOISY, %d without a goal; %d s" % (*(verdicts.count(v) for v in ("PASS", "MISS", "NOISY", "-")), data["seconds"]))
    print("\n".join(out))
    failed = any(r["status"] not in (0, 1, 77) for r in data["runs"])
    return 1 if "MISS" in verdicts or failed else 0 if "PASS" in verdicts else 77


def write(data, folder):
    import curves
    out = pathlib.Path(folder or ".")
    out.mkdir(parents=True, exist_ok=True)
    (out / "speed.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in [{k: data[k] for k in ("machine", "seconds", "quick", "runs")}, *data["records"]]) + "\n]\n")
    (out / "speed.html").write_text(curves.make(data))
    status = summary(data)
    print(f"written: {out / 'speed.json'}, {out / 'speed.html'}")
    return status


def load(path):
    head, *rest = json.loads(pathlib.Path(path).read_text())
    return {**head, "records": rest}


def together(parts):
    """Several runs as one: what a later one measured again replaces the earlier."""
    whole = {**parts[-1], "runs": [], "records": [], "seconds": sum(p["seconds"] for p in parts)}
    for part in parts:
        again = {r["bench"] for r in part["records"]}
        whole["records"] = [r for r in whole["records"] if r["bench"] not in again] + part["records"]
        whole["runs"] = [r for r in whole["runs"] if r["name"] not in {x["name"] for x in part["runs"]}] + part["runs"]
    return whole


def main():
    parser = argparse.ArgumentParser(prog="furca bench speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--out", default="")
    parser.add_argument("--from", default="", dest="earlier")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    folder = os.environ.get("FURCA_LIBEXEC") or str(HERE.parents[1])
    mine, others = topic_names(), programs(folder)
    if args.list:
        print("\n".join(others + [t + (" (peers)" if t in others else "") for t in mine]))
        return 0
    if args.earlier:
        return write(together([load(f) for f in args.earlier.split(",")]), args.out)
    unknown = set(args.topics) - set(mine) - set(others)
    if unknown:
        print("no topic " + ", ".join(sorted(unknown)))
        return 2
    os.environ.setdefault("FURCA_PROGRAM", shutil.which("furca") or "")
    python, begun, runs = prepare(), time.time(), []
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "records")
        signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
        try:
            for names, run in ((others, lambda name: run_program(name, folder, path)), (mine, lambda name: run_topic(name, python, path))):
                for name in names:
                    if not args.topics or name in args.topics:
                        runs.append(run(name))
        except SystemExit:
            print("\nended before its time: what was measured until now")
        found = records(path)
    if os.environ.get("FURCA_BENCH_JSON"):
        with open(os.environ["FURCA_BENCH_JSON"], "a") as file:
            file.writelines(json.dumps(r) + "\n" for r in found)
    return write({"machine": machine.describe(os.environ["FURCA_PROGRAM"]), "seconds": round(time.time() - begun),
                  "quick": bool(os.environ.get("FURCA_BENCH_QUICK")), "runs": runs, "records": found}, args.out)


if __name__ == "__main__":
    sys.exit(main())
