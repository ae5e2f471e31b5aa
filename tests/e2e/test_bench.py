"""The benchmarks run, and their records are what bench/README.md says."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import pytest

from furcalib import furca_program

TOP = pathlib.Path(__file__).resolve().parents[2]
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
