"""Failure points in stateful sessions; `make check-stress` runs all of them in all modes, and random deaths besides."""
import os
import subprocess
import sys

import pytest

from furcalib import furca_program

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "stress", "fault_points.py")


def test_every_point_ends_in_a_known_state():
    if not furca_program():
        pytest.skip("furca is not built")
    done = subprocess.run([sys.executable, PROGRAM, "--passages", "1", "--mode", "stateful", "--action", "kill"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for line in done.stdout.splitlines():
        if line.startswith(("clone_", "run_", "promote")):
            assert [int(n) for n in line.split()[1:]] >= [1, 1], line
