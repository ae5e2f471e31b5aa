#!/usr/bin/python3
"""Holds what calls cost, as `furca bench guard` counts it, to the bounds in guard.json.

    bench/guard.py            measures and compares; 0 within the bounds, 1 above one, 77 cannot count here
    bench/guard.py --write    measures four times and writes the bounds: the worst, and a margin of three times the spread, at least four fifths

Counts (system calls, page faults) vary little with the machine's load, but by kernel and libc: bounds have generous margins, and are
there to catch a call that suddenly costs twice as much. A statement was once counted a third higher, on a loaded machine. Counts that
are not in guard.json are shown and not judged.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BOUNDS = HERE / "guard.json"
MARGIN = {"system calls": 0.8, "page faults": 0.8}  # context switches hang on the load too much
STALE = 0.6  # a count below this share of its bound asks for a new one


def program():
    folder = os.environ.get("FURCA_LIBEXEC") or str(HERE.parent / "build")
    return os.path.join(folder, "furca-bench-guard")


def run():
    """Lines by name."""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "records")
        status = subprocess.run([program()], env={**os.environ, "FURCA_BENCH_JSON": path}).returncode
        if status not in (0, 77):
            sys.exit(1)
        found = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
    return {r["name"]: r for r in found if r["record"] == "line"}


def write():
    runs = [run() for _ in range(4)]
    bounds = {}
    for name, first in runs[0].items():
        margin = MARGIN.get(name.split(": ")[1])
        if margin is None:
            continue
        values = [v for r in runs for v in (r[name]["figure"], *r[name]["spread"])]
        middle = max(r[name]["figure"] for r in runs)
        bounds[name] = {"seen": middle, "at_most": round(middle + max(margin * middle, 3 * (max(values) - min(values)), 4), 1)}
    BOUNDS.write_text(json.dumps(bounds, indent=1) + "\n")
    print("wrote", BOUNDS)


def main():
    if "--write" in sys.argv:
        return write()
    bounds, lines, bad = json.loads(BOUNDS.read_text()), run(), 0
    if not any(name in lines for name in bounds):
        print("skipped: nothing can be counted here (perf events need root, tracefs and a kernel with tracepoints)")
        return 77
    for name, bound in bounds.items():
        if name not in lines:
            continue
        figure = lines[name]["figure"]
        verdict = "PASS" if figure <= bound["at_most"] else "MISS"
        if verdict == "PASS" and figure < STALE * bound["seen"]:
            verdict = "STALE: better than the bound says; bench/guard.py --write"
        bad += verdict == "MISS"
        print("  %-44s %8.1f, at most %8.1f: %s" % (name, figure, bound["at_most"], verdict))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
