"""The benchmarks run, and their records are what bench/README.md says."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

from furcalib import eventually, furca_program

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "bench" / "speed"), str(TOP / "bench" / "safety")]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="labs are made as root")


def bench(*args, timeout=120):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FURCA_BENCH")}
    return subprocess.run([furca_program(), "bench", *args], capture_output=True, text=True, timeout=timeout, env=env)


def outcomes(folder):
    """Of the one case that ran, by executor."""
    (_, _, _, _, fine, others), = json.loads((folder / "safety.json").read_text())["results"]
    return {**{name: "fine" for name in fine}, **{name: o["outcome"] for name, o in others.items()}}


def test_records(tmp_path):
    done = bench("call", "--quick", "--json", str(tmp_path / "records"))
    assert done.returncode in (0, 1, 77), done.stderr
    records = [json.loads(line) for line in (tmp_path / "records").read_text().splitlines()]
    assert records[0]["record"] == "begin" and records[0]["cpu"] and records[0]["noise"] >= 1
    lines = [r for r in records if r["record"] == "line"]
    assert lines and all(r["bench"] == "call" and r["name"] in done.stdout for r in records if "name" in r)
    for r in lines:
        assert r["verdict"] in ("PASS", "MISS", "NOISY", "-") and r["spread"][0] <= r["spread"][1]


@as_root
def test_safety_counts_leaks_and_refusals(tmp_path):
    done = bench("safety", "--only", "an open file, read by number", "--executors", "furca,fork,pickle", "--out", str(tmp_path))
    assert "furca: 0 leaks, 0 refusals" in done.stdout, done.stdout + done.stderr
    assert outcomes(tmp_path) == {"furca": "fine", "fork": "leak", "pickle": "refused"}
    assert "<svg" in (tmp_path / "safety.html").read_text()


@as_root
def test_a_barrier_taken_away_leaks(tmp_path):
    bench("safety", "--ablation", "--only", "file in /var/tmp", "--executors", "without-disk,without-ipc", "--out", str(tmp_path))
    assert outcomes(tmp_path) == {"without-disk": "leak", "without-ipc": "fine"}


@as_root
def test_the_documented_executor(tmp_path):
    text = (TOP / "doc" / "bench-safety.md").read_text()
    with tempfile.TemporaryDirectory(dir=pathlib.Path.home()) as folder:  # a lab has a /tmp of its own
        here = pathlib.Path(folder)
        (here / "read_only_mounts.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
        (here / "mine.toml").write_text(next(b for b in re.findall(r"```toml\n(.*?)```", text, re.S) if "executor" in b))
        done = bench("safety", "--executor-file", folder + "/mine.toml", "--executors", "read-only-mounts", "--only", "make a hard link",
                     "--out", str(tmp_path))
    assert outcomes(tmp_path) == {"read-only-mounts": "fine"}, done.stdout + done.stderr


def test_peers_are_listed():
    assert {"furca", "fork", "jupyter", "bubblewrap", "bash-text"} <= {line.split()[0] for line in bench("safety", "--list").stdout.splitlines()}
    assert {"read", "trace", "density"} <= {line.split()[0] for line in bench("speed", "--list").stdout.splitlines()}


# A criu that dumps a process as its command line, and restores it by running that again: what the real one does to the process is its own
# affair, what is told it and how its answer is read is ours.
FAKE_CRIU = """#!/usr/bin/python3
import os, subprocess, sys
verb, args = sys.argv[1], sys.argv[2:]
value = lambda name: args[args.index(name) + 1]
if verb == os.environ.get("CRIU_FAILS"):
    text = "(00.1) all is well so far\\n(00.2) Error (criu/files.c:1): a file is in the way\\n(00.3) Error (criu/util.c:642): exited, status=1\\n"
    open(os.path.join(value("-D"), verb + ".log"), "w").write(text) if "-D" in args else sys.stderr.write(text)
    sys.exit(1)
if verb == "dump":
    assert "--leave-running" in args
    with open("/proc/%s/cmdline" % value("-t"), "rb") as file:
        open(value("-D") + "/cmdline", "wb").write(file.read())
elif verb == "restore":
    assert "-d" in args
    argv = open(value("-D") + "/cmdline", "rb").read().rstrip(b"\\0").split(b"\\0")
    os.path.exists(argv[3]) and os.unlink(argv[3])
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    open(value("--pidfile"), "w").write(str(child.pid))
"""


def with_criu(tmp_path, fails, code):
    """What a Python prints that has criu.py and, unless `fails` is None, such a criu as the only one in its path."""
    if fails is not None:
        (tmp_path / "criu").write_text(FAKE_CRIU)
        (tmp_path / "criu").chmod(0o755)
    env = {**os.environ, "PATH": str(tmp_path), "CRIU_FAILS": fails or "", "PYTHONPATH": str(TOP / "bench" / "speed"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(["/usr/bin/python3", "-c", "import criu, os, sys\n" + code], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CHECKPOINTED = """
try:
    it = criu.Session("x = [1] * 1000")
    try:
        for _ in range(2):
            pid = it.pid
            assert it.die("len(x)", "1000") > 0 and it.pid != pid
    finally:
        it.close()
    print("came back", os.path.exists(it.folder), os.path.exists("/proc/%d" % it.pid))
except criu.Unusable as e:
    print(e)
"""


@pytest.mark.parametrize("fails", ["", None, "check", "dump", "restore"])
def test_criu_is_measured_where_it_works(tmp_path, fails):
    says = {"": "came back False False", None: "criu is not installed"}.get(fails, "`criu %s`: (00.2) Error (criu/files.c:1): a file is in the way" % fails)
    assert with_criu(tmp_path, fails, CHECKPOINTED) == says


@pytest.mark.parametrize("way, child", [("fork", 1), ("pickle", 0)])
def test_a_plain_session_that_keeps_what_it_was(tmp_path, way, child):
    """The speed benchmark's peer: what `fork` keeps comes back, with the call that died undone; at the end nothing is left of it."""
    code = f"""
import peers
it = peers.Kept({way!r}, sys.executable, "x = [1]")
assert it.call("x.append(2)") == "None" and it.call("len(x)") == "2"
pids = [int(it.call("import os; os.getpid()"))]
if {child}:
    for _ in range(2):
        assert it.call("x.append(3); os.kill(os.getpid(), 9)", dies=True) is None
        assert it.call("x") == "[1, 2]"
        pids.append(int(it.call("os.getpid()")))
assert len(set(pids)) == len(pids)
it.close()
print(*pids)
"""
    for pid in map(int, with_criu(tmp_path, None, code).split()):
        assert eventually(lambda: has_ended(pid), timeout=20)


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"  # whoever inherited it has not looked yet
    except (FileNotFoundError, ProcessLookupError):
        return True


def boxes(svg):
    """(left, top, right, bottom, text) of each text of a plot, at 7.6 pixels a character, and the plot's own size."""
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    found = []
    for attributes, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", svg):
        x, y = (float(re.search(rf'\b{key}="([-\d.]+)"', attributes)[1]) for key in "xy")
        long = 7.6 * len(text)
        x -= long / 2 if 'anchor="middle"' in attributes else long if 'anchor="end"' in attributes else 0
        found.append((x, y - 11, x + long, y + 3, text))
    return found, width, height


def test_nothing_overlaps_in_a_plot():
    """Curves that end early or together, few points, many sizes: each name has its place, and none is cut off."""
    import curves
    names = ("furca", "plain fork()", "memcpy of the page tables", "deep copy of the globals", "pickle to a one-shot process", "Jupyter kernel, deep-copying cell")
    many = {name: [(x, 900, 1000 + i, 1100) for x in (8, 64, 256, 1024, 4096)[:5 - i % 4]] for i, name in enumerate(names)}
    for points, unit, x_unit in ((many, "us", "MB of state"), ({"furca": [(n, 1, 2, 3) for n in (1, 10, 25, 50, 100)]}, "MB a session", "sessions"),
                                 ({"a": [(1, 5, 5, 5)], "b": [(1, 5, 5, 5), (2, 1e6, 2e6, 3e6)]}, "us", "threads")):
        texts, width, height = boxes(curves.plot(points, unit, x_unit))
        assert {t[4] for t in texts} >= set(points)
        for i, a in enumerate(texts):
            assert 0 <= a[0] and a[2] <= width and 0 <= a[1] and a[3] <= height, a
            for b in texts[i + 1:]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def test_where_a_curve_ends():
    sys.path.insert(0, str(TOP / "bridge" / "python"))
    import growth
    curve = growth.Curve("slow", "peer", None, None, holds=2)
    assert growth.ends(curve, 8, growth.MEMORY, 20 << 20) is None
    assert "would need 0.1 GB" in growth.ends(curve, 64, growth.MEMORY, 20 << 20)
    curve.last = (8, 0.9 * growth.ROUND_S / 8)
    assert growth.ends(curve, 64, growth.MEMORY, 1 << 40) is None
    assert growth.ends(curve, 256, growth.MEMORY, 1 << 40).startswith("ends at 8 MB of state: a round took")


def test_a_curve_ends_with_its_reason():
    import curves
    begin = {"record": "begin", "bench": "read-growth", "title": "bench read-growth: a look", "noise": 1.1}
    point = {"record": "series", "bench": "read-growth", "unit": "us", "min": 1, "median": 2, "max": 3, "curve": "furca", "x_unit": "MB of state"}
    series = [{**point, "x": x} for x in (8, 64)]
    gone = {**begin, "record": "skipped", "reason": "ends at 8 MB of state: slow", "curve": "pickle", "x": 64, "x_unit": "MB of state"}
    machine = dict.fromkeys(("date", "cpu", "cpus", "memory_gb", "kernel", "system", "furca"), "-")
    text = curves.make({"machine": machine, "quick": True, "seconds": 1, "runs": [], "records": [begin, *series, gone]})
    assert text.index("</svg>") < text.index("pickle: ends at 8 MB of state: slow") < text.index("Lines")
    assert "prefers-color-scheme:dark" in text and "http" not in text
