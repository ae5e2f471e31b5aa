"""The environment tool alone, as the engine's child would find itself: normalising, building, being killed, being many."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "langs", "python", "envtool.py")
sys.path.insert(0, os.path.dirname(TOOL))

class Tool:
    """One running tool."""

    def __init__(self, request, **environ):
        ours, theirs = socket.socketpair()
        script = "import os, sys; os.dup2(%d, 3); os.set_inheritable(3, True); os.execv(sys.executable, [sys.executable, '-I', %r])"
        self.process = subprocess.Popen([sys.executable, "-c", script % (theirs.fileno(), TOOL)], pass_fds=[theirs.fileno()],
                                        env=dict(os.environ, **environ))
        theirs.close()
        self.channel = ours
        self.lines = []
        ours.sendall(json.dumps(request).encode() + b"\n")

    def answer(self):
        """The last line, None if there was none; every line before it is in `lines`."""
        with self.channel.makefile() as stream:
            try:
                self.lines += [json.loads(line) for line in stream]
            except ConnectionResetError:
                pass
        self.process.wait(60)
        self.channel.close()
        return next((line for line in self.lines if "progress" not in line), None)

    def progress(self):
        return [line["progress"] for line in self.lines if "progress" in line]

    def wait_for(self, text, timeout=60):
        """Reads until a line of progress has the text."""
        end, data = time.monotonic() + timeout, b""
        self.channel.settimeout(1)
        while text.encode() not in data:
            assert time.monotonic() < end and b'"result"' not in data, data
            try:
                data += self.channel.recv(65536)
            except socket.timeout:
                continue
        self.channel.settimeout(None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache") / "interpreters.json")


@pytest.fixture
def normalise(cache):
    def run(spec):
        return Tool({"op": "normalise", "spec": spec, "cache": cache}).answer()
    return run


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "envs")


def request(normalise, root, requirements, more="", tool="pip"):
    answer = normalise("[project]\ndependencies = %s\n%s" % (json.dumps(requirements), more))
    assert "result" in answer, answer
    return dict(op="build", root=root, digest=answer["result"]["digest"], canonical=answer["result"]["canonical"], tool=tool)


def verify(folder, digest):
    return Tool({"op": "verify", "dir": folder, "digest": digest}).answer()["result"]


def left(root):
    """What lies in the root that is no environment and no cache."""
    return [name for name in os.listdir(root) if name not in (".tools", ".wheels") and (name.startswith(".") or len(name) != 20)]


def uv_program():
    return os.environ.get("FURCA_TEST_UV") or shutil.which("uv")


@pytest.fixture(params=["pip", "uv"])
def tool(request):
    if request.param == "uv" and not uv_program():
        pytest.skip("uv is not installed (set FURCA_TEST_UV to the program)")
    return uv_program() if request.param == "uv" else "pip"


# ------------------------------------------------------------------------------------------------------------- specifications
SAME = ['[project]\ndependencies = ["six", "Attrs >= 20", "a[y,x]"]',
        '# c\n[project]\nname = "n"\nversion = "1"\nrequires-python=">=3.9"\ndependencies = [\n "a[X, y]",\n "attrs>=20",\n "six", "six"]',
        '[project]\n[dependency-groups]\ng = ["six", {include-group = "h"}]\nh = ["attrs>=20", "a[x,y]"]\n[tool.furca]\ngroups = ["g"]',
        '[project]\nname = "me"\n[project.optional-dependencies]\ne = ["six", "me[f]"]\nf = ["attrs>=20", "a[x,y]"]\n[tool.furca]\nextras = ["e"]']


def test_order_spelling_and_origin_do_not_matter(normalise):
    assert len({normalise(spec)["result"]["digest"] for spec in SAME}) == 1


@pytest.mark.parametrize("other", ['[project]\ndependencies = ["six"]', '[project]\ndependencies = ["six==1"]',
                                   '[project]\ndependencies = ["six"]\n[tool.uv]\nno-index = true',
                                   '[project]\ndependencies = ["six"]\n[[tool.uv.index]]\nurl = "https://example.org/simple"',
                                   '[project]\ndependencies = ["six"]\n[tool.furca]\npreload = ["six"]'])
def test_what_changes_the_result_changes_the_digest(normalise, other):
    plain = '[project]\ndependencies = ["six", "attrs"]'
    assert normalise(plain)["result"]["digest"] != normalise(other)["result"]["digest"]


REFUSED = [("[project\n", "TOML"), ("[tool.x]\n", "no [project]"), ('[project]\ndependancies = []', "dependencies"),
           ('[project]\ndependencies = "six"', "list"), ('[project]\ndependencies = ["numpy=1.2"]', "numpy==1.2"),
           ('[project]\ndependencies = ["./here"]', "absolute"), ('[project]\ndependencies = ["-e /x"]', "Editable"),
           ('[project]\nrequires-python = "three"', "PEP 440"), ('[project]\nrequires-python = ">=3.99"', "Found:"),
           ('[project]\ndynamic = ["dependencies"]', "dynamic"), ('[project]\n[tool.furca]\nextras = ["x"]', "extra"),
           ('[project]\n[dependency-groups]\na = [{include-group = "b"}]\nb = [{include-group = "a"}]\n[tool.furca]\ngroups = ["a"]', "one another"),
           ('[project]\ndependencies = ["a==1 --hash=md5:0"]', "hash"), ('[project]\ndependencies = ["a==1 --hash=sha256:00", "b"]', "hash"),
           ('[project]\n[tool.uv]\nindx = []', "index"), ('[project]\n[tool.uv.sources]\na = {workspace = true}', "source"),
           ('[project]\n[tool.uv]\nfind-links = ["here"]', "absolute"), ('[project]\n[tool.furca]\npreload = ["os; x"]', "module"),
           ('[project]\na = ' + "9" * 100_000, "TOML"), ('[project]\ndependencies = ["six%sx"]' % (" " * 200_000), "too long"),
           ('[project]\nrequires-python = "%s"' % (">=3," * 50_000), "too long"),
           ('[project]\ndependencies = ["six; %s"]' % ("(" * 3000), "PEP 508"),
           ('[project]\ndependencies = [1]', "list of strings"), ("project = 1", "table"), ("x" * (1 << 20) + "y", "larger"), ('[project]\na = ' + "[" * 400 + "]" * 400, "TOML"),
           ('[project]\nname = "a\\u0000b"', "NUL"), ('[project]\ndependencies = ["six\\u0000"]', "NUL")]


@pytest.mark.parametrize("spec, part", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_a_bad_specification_says_what_to_change(normalise, spec, part):
    answer = normalise(spec)
    assert answer.get("type") == "validation", answer
    assert answer["suggestion"] and part in answer["error"] + answer["suggestion"], answer
    assert re.search(r"[.?…] This is taken, for example spec='", answer["suggestion"]), answer
    assert "for example: " not in answer["suggestion"], answer  # two would run into each other


def test_requires_python_chooses(normalise):
    import envpython
    for found in envpython.find():
        version = ".".join(found["version"].split(".")[:2])
        answer = normalise('[project]\nrequires-python = "==%s.*"' % version)
        assert answer["result"]["python"] == version
    own = ".".join(map(str, sys.version_info[:2]))
    assert normalise("[project]\n")["result"]["python"] == own


# --------------------------------------------------------------------------------------------------------------------- builds
def test_a_build_is_whole_and_moved(normalise, package, root, tool):
    wanted = request(normalise, root, [package()], tool=tool)
    build = Tool(wanted)
    answer = build.answer()["result"]
    assert answer["dir"] == os.path.join(root, wanted["digest"][:20])
    assert answer["tool"] == ("pip" if tool == "pip" else "uv")
    assert verify(answer["dir"], wanted["digest"]) == {"sound": True, "damage": None}
    assert subprocess.run([answer["dir"] + "/bin/localpkg"], capture_output=True, text=True).stdout == "ran 1.0\n"
    where = subprocess.run([answer["dir"] + "/bin/python", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
    assert where.stdout.strip() == answer["dir"]
    assert left(root) == []
    again = Tool(wanted)
    assert again.answer()["result"]["dir"] == answer["dir"] and again.progress() == []


def test_two_versions_lie_side_by_side(normalise, package, root):
    for version in ("1.0", "2.0"):
        answer = Tool(request(normalise, root, [package(version)])).answer()["result"]
        said = subprocess.run([answer["dir"] + "/bin/python", "-c", "import localpkg; print(localpkg.V)"], capture_output=True, text=True)
        assert said.stdout == version + "\n"


def test_damage_is_found_and_built_again(normalise, package, root):
    wanted = request(normalise, root, [package()])
    folder = Tool(wanted).answer()["result"]["dir"]
    module = next(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if at.endswith("/localpkg") and name == "__init__.py")
    for spoil in (lambda: os.unlink(module), lambda: open(module, "a").write("# more\n"), lambda: os.unlink(folder + "/bin/python"),
                  lambda: os.unlink(folder + "/furca-env.files"), lambda: os.unlink(folder + "/furca-env.json")):
        spoil()
        assert not verify(folder, wanted["digest"])["sound"]
        assert Tool(wanted).answer()["result"]["dir"] == folder
        assert verify(folder, wanted["digest"])["sound"]
    with open(folder + "/added", "w"):
        pass
    assert verify(folder, wanted["digest"])["sound"]
    assert Tool({"op": "discard", "root": root}).answer()["result"]["removed"] == 5
    assert left(root) == []


@pytest.mark.parametrize("how", ["kill", "fail"])
@pytest.mark.parametrize("point", ["env_scratch", "env_installed", "env_rename"])
def test_a_build_that_ends_at_a_failure_point_leaves_nothing_ready(normalise, package, root, point, how):
    wanted = request(normalise, root, [package()])
    answer = Tool(wanted, FURCA_FAULT="%s:%s" % (point, how)).answer()
    assert answer is None if how == "kill" else answer["type"] == "environment"
    assert not os.path.exists(os.path.join(root, wanted["digest"][:20]))
    assert Tool(wanted).answer()["result"]["dir"]
    assert left(root) == []


def wait_ended(pids, timeout=10):
    end = time.monotonic() + timeout
    while any(os.path.exists("/proc/%d" % pid) for pid in pids):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.05)


def below(pid):
    """The pids of all that it has started."""
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        children = [int(one) for one in file.read().split()]
    return children + [pid for child in children for pid in below(child)]


def test_a_cancelled_build_ends_all_it_started(normalise, package, root):
    wanted = request(normalise, root, [package(delay=60)])
    build = Tool(wanted)
    build.wait_for("Preparing metadata")
    started = below(build.process.pid)
    assert started
    build.channel.shutdown(socket.SHUT_WR)
    before = time.monotonic()
    assert build.answer() is None
    assert time.monotonic() - before < 5
    wait_ended(started)
    assert left(root) == []


def test_a_killed_build_is_no_environment(normalise, package, root):
    source = package(delay=3)
    wanted = request(normalise, root, [source])
    build = Tool(wanted)
    build.wait_for("Preparing metadata")
    started = below(build.process.pid)
    os.kill(build.process.pid, signal.SIGKILL)
    assert build.answer() is None
    wait_ended(started)
    assert left(root) != []
    assert Tool(wanted).answer()["result"]["dir"]
    assert left(root) == []


def test_twenty_at_once_are_one_build(normalise, package, root):
    wanted = request(normalise, root, [package(delay=0.5)])
    tools, threads = [Tool(wanted) for _ in range(20)], []
    for one in tools:
        threads.append(threading.Thread(target=one.answer))
        threads[-1].start()
    for thread in threads:
        thread.join()
    answers = [next(line for line in one.lines if "progress" not in line) for one in tools]
    assert all(answer["result"]["dir"] == answers[0]["result"]["dir"] for answer in answers)
    assert sum(any(text.startswith("making") for text in one.progress()) for one in tools) == 1
    assert left(root) == []


def test_a_failure_has_the_last_lines_and_a_suggestion(normalise, root, tool, tmp_path):
    (tmp_path / "empty").mkdir()
    for requirement, more in (("nothing @ file:///nonexistent/package", ""),
                              ("nothing-of-the-kind==1", "[tool.uv]\nno-index = true\nfind-links = [%s]" % json.dumps(str(tmp_path / "empty")))):
        answer = Tool(request(normalise, root, [requirement], more, tool)).answer()
        assert answer["type"] == "environment", answer
        assert answer["lines"] and ("nonexistent" if "file:" in requirement else "nothing-of") in answer["error"] + answer["lines"], answer
        assert ("path" if "file:" in requirement else "name or version") in answer["suggestion"], answer
    assert left(root) == []


def test_an_index_that_cannot_be_reached_is_no_missing_package(normalise, root, tool):
    more = '[tool.uv]\nindex-url = "http://127.0.0.1:9/simple"'
    answer = Tool(request(normalise, root, ["six"], more, tool), PIP_RETRIES="1", PIP_FIND_LINKS="", UV_HTTP_RETRIES="0").answer()
    assert answer["type"] == "environment" and "index cannot be reached" in answer["suggestion"], answer
    assert left(root) == []


def test_a_pinned_local_wheel(normalise, package, root, tool, tmp_path):
    import hashlib
    source = package()[len("localpkg @ file://"):]
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, '.'); import backend; backend.build_wheel(%r)" % str(wheels)],
                   cwd=source, check=True)
    wheel = next(wheels.iterdir())
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    more = "[tool.uv]\nno-index = true\nfind-links = [%s]" % json.dumps(str(wheels))
    good = request(normalise, root, ["localpkg==1.0 --hash=sha256:" + digest], more, tool)
    assert "result" in Tool(good).answer()
    bad = request(normalise, root, ["localpkg==1.0 --hash=sha256:" + "0" * 64], more, tool)
    answer = Tool(bad).answer()
    assert answer["type"] == "environment" and "hash" in answer["suggestion"].lower(), answer


def test_nobody_home_is_no_traceback(capfd):
    build = Tool({"op": "verify", "dir": "/nonexistent", "digest": "x"})
    assert build.answer()["result"]["sound"] is False
    assert capfd.readouterr().err == ""
