"""Real packages from the index, for tests against them: of the versions in requirements.txt, in a folder of their own beside the build."""
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.path.dirname(os.environ.get("FURCA", os.path.join(HERE, "x"))), "e2e-packages")
REQUIREMENTS = os.path.join(HERE, "requirements.txt")


def pinned(name):
    with open(REQUIREMENTS, encoding="utf-8") as f:
        return re.search(r"^%s==\S+$" % re.escape(name), f.read(), re.M)[0]


def packages(*names):
    """The folder to put on PYTHONPATH. Skips where the index cannot be reached."""
    wanted = [pinned(name) for name in ("msgpack", *names)]
    missing = [one for one in wanted if not os.path.exists(os.path.join(CACHE, "ready-" + one))]
    if missing:
        pip = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", CACHE, "--upgrade", "-c", REQUIREMENTS, *missing],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # The index answered, and a pin is not in it: that is a mistake of ours, and must not pass for a machine without an index.
        if pip.returncode != 0 and "No matching distribution" in pip.stdout and "from versions: none" not in pip.stdout:
            pytest.fail("requirements.txt pins what the index has not: %s" % pip.stdout)
        if pip.returncode != 0:
            pytest.skip("pip cannot install %s: %s" % (" ".join(missing), pip.stdout.strip().splitlines()[-1:]))
    for one in missing:
        open(os.path.join(CACHE, "ready-" + one), "w").close()
    return CACHE


def environment(*names, **more):
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge", "python"), packages(*names)])),
                **more)
