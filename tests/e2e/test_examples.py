"""The examples do what they say, and README shows them as they are."""
import os
import re
import subprocess
import sys

import pytest

from furcalib import furca_program

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(TOP, "examples")


def text_of(name):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as f:
        return f.read()


@pytest.fixture
def environ(tmp_path):
    """An own socket and state, so that nobody's running engine is met."""
    program = furca_program()
    return dict(os.environ, FURCA_SOCKET=str(tmp_path / "s"), XDG_STATE_HOME=str(tmp_path / "state"), FURCA_PROGRAM=program,
                PATH=os.path.dirname(program) + os.pathsep + os.environ["PATH"], PYTHONPATH=os.path.join(TOP, "bridge", "python"))


def run(command, environ, tmp_path):
    done = subprocess.run(command, env=environ, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_command_line(environ, tmp_path):
    out = run(["sh", os.path.join(EXAMPLES, "session.sh")], environ, tmp_path)
    assert re.match(r"0\n10\nstamp\n1\nLANGUAGE.*\npython .*audit.*\nbash .*build.*\n.*\n.*rows .*list", out, re.S), out


def test_python(environ, tmp_path):
    out = run([sys.executable, os.path.join(EXAMPLES, "session.py")], environ, tmp_path)
    assert out == "0\n10\nada@example.org\nrolled_back\n10\n"


def test_attached(environ, tmp_path):
    assert run([sys.executable, os.path.join(EXAMPLES, "attached.py")], environ, tmp_path) == "0\n10\n11\n"


def test_c(environ, tmp_path):
    build = os.path.dirname(furca_program())
    library = os.path.join(build, ".libs")
    if not os.path.exists(os.path.join(library, "libfurca.so")):
        library = os.path.join(os.path.dirname(build), "lib")
    program = str(tmp_path / "session")
    run([os.environ.get("CC", "cc").split()[0], "-Wall", "-Werror", "-I", os.path.join(TOP, "include"), os.path.join(EXAMPLES, "session.c"), "-L", library, "-lfurca",
         "-Wl,-rpath," + library, "-o", program], environ, tmp_path)
    assert run([program], environ, tmp_path) == "ok (committed)\n0 (unchanged)\n10 (unchanged)\n"


@pytest.mark.parametrize("name", ["session.sh", "session.py", "session.c", "two_releases.py"])
def test_readme_shows_it(name):
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    body = text_of(name)
    # The first line, or docstring, says what the file is; README says that around it.
    body = body.split("\n", 2)[2] if name.endswith(".sh") else body.split("\n", 1)[1]
    assert body in readme, "README does not show examples/%s as it is" % name


@pytest.mark.skipif(os.environ.get("FURCA_INDEX") == "none", reason="FURCA_INDEX=none: no package index here")
def test_two_releases(environ, tmp_path):
    out = run([sys.executable, os.path.join(EXAMPLES, "two_releases.py")], environ, tmp_path)
    assert out == "[['1', {'amount': 3}], ['2', {'amount': 3}]]\n"
