#!/usr/bin/python3
"""What a snapshot and a parked copy cost in memory before anybody writes: 20 sessions, with them and without.

usage: density.py [--sessions N] [--megabytes N]

Pages are counted as the kernel shares them out (Pss), with page tables. Exit status 0 where a session's share is within 3 MB and 0.25 % of its
state for each of the two, 1 where not, 77 where it cannot be read.
"""
import argparse
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from furcalib import Engine  # noqa: E402


def number(path, key):
    try:
        with open(path) as f:
            return next((int(line.split()[1]) for line in f if line.startswith(key + ":")), 0)
    except OSError:
        return 0


def memory_kb(engine):
    """Of all processes of the engine but itself, and how many these are."""
    pids = list(engine.processes())
    return sum(number("/proc/%d/smaps_rollup" % pid, "Pss") + number("/proc/%d/status" % pid, "VmPTE") for pid in pids), len(pids)


def measure(policy, sessions, megabytes):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"snapshots": policy, "undo_depth": 0}, config)
        config.flush()
        engine = Engine("--config", config.name)
    try:
        client = engine.client()
        for i in range(sessions):
            answer = client.python("data = b'x' * (%d << 20)" % megabytes, state_mode="stateful", session_name="s%d" % i)
            assert answer["ok"], answer
        time.sleep(5)
        return (*memory_kb(engine), client.call("stats")["snapshots"])
    finally:
        engine.stop()
        engine.clean()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sessions", type=int, default=20)
    p.add_argument("--megabytes", type=int, default=50)
    opts = p.parse_args()
    without, processes, _ = measure("off", opts.sessions, opts.megabytes)
    if not without:
        print("skipped: /proc/PID/smaps_rollup cannot be read")
        return 77
    kept, all_processes, snapshots = measure("always", opts.sessions, opts.megabytes)
    each = (kept - without) / 1024 / opts.sessions
    goal = 2 * (3 + 0.0025 * opts.megabytes)
    print("%d sessions of %d MB: %.0f MB without (%d processes), %.0f MB with %d snapshots and parked copies (%d processes)" % (
        opts.sessions, opts.megabytes, without / 1024, processes, kept / 1024, snapshots, all_processes))
    print("snapshot and parked copy of a session: %.2f MB, goal at most %.2f (3 MB + 0.25 %% of the state for each): %s" % (
        each, goal, "PASS" if each <= goal else "MISS"))
    return 0 if each <= goal else 1


if __name__ == "__main__":
    sys.exit(main())
