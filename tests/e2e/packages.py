"""Real packages from the index, for tests against them: of the versions in requirements.txt, or another such file, in a folder for each beside the build."""
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.path.dirname(os.environ.get("FURCA", os.path.join(HERE, "x"))), "e2e-packages")


def pinned(requirements, name):
    with open(requirements, encoding="utf-8") as f:
        return re.search(r"^%s==\S+$" % re.escape(name), f.read(), re.M)[0]


def packages(*names, of="requirements.txt"):
    """The folder to put on PYTHONPATH. Skips where the index cannot be reached."""
    requirements, folder = os.path.join(HERE, of), CACHE + of[len("requirements"):-len(".txt")]
    wanted = [pinned(requirements, name) for name in ("msgpack", *names)]
    missing = [one for one in wanted if not os.path.exists(os.path.join(folder, "ready-" + one))]
    if missing:
        pip = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, "--upgrade", "-c", requirements, *missing],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # The index answered, and a pin is not in it: that is a mistake of ours, and must not pass for a machine without an index.
        if pip.returncode != 0 and "No matching distribution" in pip.stdout and "from versions: none" not in pip.stdout:
            pytest.fail(of + " pins what the index has not: " + pip.stdout)
        if pip.returncode != 0:
            pytest.skip("pip cannot install %s: %s" % (" ".join(missing), pip.stdout.strip().splitlines()[-1:]))
    for one in missing:
        open(os.path.join(folder, "ready-" + one), "w").close()
    return folder


def environment(*names, of="requirements.txt", **more):
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge", "python"), packages(*names, of=of)])),
                **more)
