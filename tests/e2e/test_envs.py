"""Environments through the engine: declared, built once, used in all modes, damaged, removed, collected; real packages from the index.

FURCA_ENV_TOOL=pip keeps the tests alike where uv is installed; what differs between the two is tested in test_envtool.py. Tests that build
large packages are marked slow and run with FURCA_SLOW=1. Without the package index those that need it fail, unless FURCA_INDEX=none says so.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from furcalib import Engine, eventually

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "langs", "python"))
import envpython  # noqa: E402

EMPTY = "[project]\ndependencies = []\n"
PIP = {"FURCA_ENV_TOOL": "pip"}
POINTS = ["env_scratch", "env_venv", "env_installed", "env_rename", "env_trashed", "env_ready"]

index = pytest.mark.skipif(os.environ.get("FURCA_INDEX") == "none", reason="FURCA_INDEX=none: no package index here")
slow = pytest.mark.skipif(not os.environ.get("FURCA_SLOW"), reason="slow: set FURCA_SLOW=1")


@pytest.fixture
def engine(new_engine):
    return new_engine(env=PIP)


@pytest.fixture
def client(engine):
    return engine.client()


def spec(*requirements, python="", more=""):
    return "[project]\ndependencies = %s\n%s\n%s" % (json.dumps(requirements), "requires-python = %s" % json.dumps(python) if python else "", more)


def create(client, text):
    answer = client.call("create_env", spec=text)
    assert answer["ok"], answer
    return answer["venv_id"]


def built(client, text, timeout=300):
    venv = create(client, text)
    answer = client.call("build_env", timeout, venv_id=venv)
    assert answer["ok"] and answer["state"] == "ready", answer
    return venv


def listed(client, venv):
    return next(env for env in client.call("list_envs")["envs"] if env["venv_id"] == venv)


def value(client, code, **where):
    answer = client.python(code, timeout=120, **where)
    assert answer["ok"], answer["error"]
    return answer["result"]


def uv_program():
    return os.environ.get("FURCA_TEST_UV") or shutil.which("uv")


def fits(version, python):
    """Whether a requires-python of bounds alone has room for a version."""
    bounds = [(bound.lstrip("<>="), bound[0]) for bound in python.split(",") if bound]
    key = [int(number) for number in version.split(".")]
    return all(key >= number if sign == ">" else key < number for number, sign in [([int(n) for n in text.split(".")], sign) for text, sign in bounds])


def interpreters():
    return [".".join(found["version"].split(".")[:2]) for found in envpython.find()]


# ----------------------------------------------------------------------------------------------------------------- declaring
def test_the_same_specification_has_the_same_id_also_after_a_restart(engine, client):
    venv = create(client, EMPTY)
    assert create(client, "# other words\n[project]\nname = 'x'\ndependencies = [ ]") == venv
    other = create(client, spec("x; sys_platform == 'never'"))
    assert other != venv
    client.call("build_env", venv_id=venv)
    engine.stop()
    second = Engine("--state-dir", engine.state_dir, env=PIP)
    try:
        again = second.client()
        assert create(again, EMPTY) == venv
        assert again.call("create_env", spec=EMPTY)["state"] == "ready"
        assert listed(again, other)["state"] == "declared"
        assert value(again, "1 + 1", venv_id=venv) == 2
        assert not [n for n in again.notifications if n[0] == "env_progress"]
    finally:
        second.stop()
        second.clean()


@pytest.mark.parametrize("arguments, part", [
    (dict(spec="[project]\ndependencies = ['numpy=1']"), "numpy==1"), (dict(spec="[project]\nrequires-python = '>=3.99'"), "Found"),
    (dict(spec=3), "text"), (dict(), "missing"), (dict(spec=EMPTY, nmae="x"), "name"),
])
def test_a_bad_request_is_refused(client, arguments, part):
    answer = client.call("create_env", **arguments)
    assert not answer["ok"] and answer["error_type"] == "validation" and answer["state"] == "unchanged"
    assert part in answer["error"] + answer["suggestion"], answer
    assert answer["received"] == arguments


@pytest.mark.parametrize("method", ["build_env", "remove_env"])
def test_an_unknown_environment(client, method):
    answer = client.call(method, venv_id=77)
    assert answer["error_type"] == "validation" and "77" in answer["error"]
    run = client.python("1", venv_id=77)
    assert run["error_type"] == "validation" and "77" in run["error"]


# ------------------------------------------------------------------------------------------------------------------ building
def test_twenty_first_uses_are_one_build(engine, client, package):
    venv = create(client, spec(package(delay=0.3)))
    clients = [engine.client() for _ in range(4)]
    calls = [clients[i % 4].start("execute", code="import localpkg; localpkg.V", language="python", venv_id=venv) for i in range(20)]
    assert [call.wait(120)["result"] for call in calls] == ["1.0"] * 20
    texts = [n[1]["text"] for n in clients[0].notifications if n[0] == "env_progress"]
    assert sum(text.startswith("making") for text in texts) == 1
    assert engine.log().count("built environment=%d" % venv) == 1


def test_a_failed_build_says_why_and_is_tried_again(client, tmp_path, package):
    missing = tmp_path / "missing"
    venv = create(client, spec("localpkg @ file://%s" % missing))
    answer = client.call("build_env", venv_id=venv)
    assert answer["error_type"] == "environment" and str(missing) in answer["error"] and answer["suggestion"]
    assert listed(client, venv)["state"] == "failed" and listed(client, venv)["failure"]
    run = client.python("1", timeout=120, venv_id=venv, session_name="s", state_mode="stateful")
    assert run["error_type"] == "environment" and run["state"] == "unchanged" and str(missing) in run["error"]
    assert not client.call("list_sessions")["sessions"]
    source = package()[len("localpkg @ file://"):]
    os.rename(source, missing)
    assert value(client, "import localpkg; localpkg.V", venv_id=venv) == "1.0"


def test_who_times_out_cancels_the_build(engine, client, package):
    venv = create(client, spec(package(delay=60)))
    for where in (dict(), dict(state_mode="stateful", session_name="s")):
        answer = client.python("1", timeout=60, venv_id=venv, timeout_s=2.5, **where)
        assert answer["error_type"] == "timeout" and "environment" in answer["error"], answer
        assert eventually(lambda: not [c for c in engine.processes().values() if "envtool" in c or "backend" in c or "pip" in c], 10), engine.processes()
    assert eventually(lambda: listed(client, venv)["state"] == "declared", 10)
    assert not client.call("list_sessions")["sessions"]


def test_cancelling_ends_the_build(engine, client, package):
    venv = create(client, spec(package(delay=60)))
    call = client.start("execute", code="1", language="python", venv_id=venv)
    assert eventually(lambda: any("Preparing" in n[1].get("text", "") for n in client.notifications), 60)
    assert client.call("cancel", msgid=call.msgid)["cancelled"]
    assert call.wait(20)["error_type"] == "interrupted"
    assert eventually(lambda: listed(client, venv)["state"] == "declared", 10)


def test_others_keep_the_build_going(client, package):
    venv = create(client, spec(package(delay=2)))
    short = client.start("execute", code="1", language="python", venv_id=venv, timeout_s=2)
    long = client.start("execute", code="2", language="python", venv_id=venv)
    assert short.wait(30)["error_type"] == "timeout"
    assert long.wait(120)["result"] == 2
    texts = [n[1]["text"] for n in client.notifications if n[0] == "env_progress"]
    assert sum(text.startswith("making") for text in texts) == 1


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_step_of_twenty_first_uses(new_engine, package, point):
    """Whoever met the killed build is told; the next uses build it, once for all, and it is whole."""
    engine = new_engine(env=dict(PIP, FURCA_FAULT=point))
    client = engine.client()
    venv = create(client, spec(package()))
    calls = [client.start("execute", code="import localpkg; localpkg.V", language="python", venv_id=venv) for _ in range(20)]
    answers = [call.wait(120) for call in calls]
    assert all(a["error_type"] == "environment" if not a["ok"] else a["result"] == "1.0" for a in answers), answers
    assert [a for a in answers if not a["ok"]]
    assert len([name for name in os.listdir(engine.state_dir + "/envs") if not name.startswith(".")]) == (point == "env_ready")
    engine.stop()
    second = Engine("--state-dir", engine.state_dir, env=PIP)
    try:
        again = second.client()
        calls = [again.start("execute", code="import localpkg; localpkg.V", language="python", venv_id=venv) for _ in range(20)]
        assert [call.wait(120)["result"] for call in calls] == ["1.0"] * 20
        texts = [n[1]["text"] for n in again.notifications if n[0] == "env_progress"]
        assert sum(text.startswith("making") for text in texts) == (point != "env_ready")
        assert eventually(lambda: [len(name) for name in os.listdir(engine.state_dir + "/envs") if not name.startswith(".") or len(name) > 19] == [20], 10)
    finally:
        second.stop()
        second.clean()


def test_an_interpreter_that_nobody_uses_is_dropped(new_engine, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"zygote_idle_s": 0.5}))
    engine = new_engine("--config", str(config), env=PIP)
    client = engine.client()
    venv = built(client, EMPTY)

    def interpreters_of_it():
        return [pid for pid, command in engine.processes().items() if engine.state_dir + "/envs" in command]

    assert value(client, "1", venv_id=venv) == 1
    assert interpreters_of_it()
    assert eventually(lambda: not interpreters_of_it(), 10), engine.processes()
    where = dict(venv_id=venv, state_mode="stateful", session_name="s")
    assert value(client, "x = 2; x", **where) == 2  # another is started, and stays while a session needs it
    time.sleep(1.5)
    assert len(interpreters_of_it()) > 1 and value(client, "x", **where) == 2


def test_the_engine_killed_in_a_build_leaves_nothing_ready(engine, client, package):
    source = package(delay=60)
    venv = create(client, spec(source))
    client.start("build_env", venv_id=venv)
    assert eventually(lambda: any("Preparing" in n[1].get("text", "") for n in client.notifications), 60)
    engine.process.kill()
    engine.process.wait()
    assert eventually(lambda: not engine.processes(), 10), engine.processes()
    with open(source[len("localpkg @ file://"):] + "/delay", "w") as f:
        f.write("0")
    second = Engine("--state-dir", engine.state_dir, env=PIP)
    try:
        again = second.client()
        assert listed(again, venv)["state"] == "declared"
        assert value(again, "import localpkg; localpkg.V", venv_id=venv) == "1.0"
    finally:
        second.stop()
        second.clean()


def bounded(new_engine, tmp_path, *options, **env):
    """An engine that gives each step of an environment one second."""
    config = tmp_path / "bounded.json"
    config.write_text(json.dumps({"env_timeout_s": 1}))
    return new_engine("--config", str(config), *options, env={**PIP, **env})


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds", "stopped"])
def test_a_build_has_a_time_of_its_own(new_engine, tmp_path, package, heeds):
    """Past it who waits is told why, the half-built environment is removed, and the next use builds again."""
    source = package(delay=60)
    declared = new_engine(env=PIP)
    venv = create(declared.client(), spec(source))
    declared.stop()
    engine = bounded(new_engine, tmp_path, "--state-dir", declared.state_dir, **({} if heeds else {"FURCA_FAULT": "env_scratch:stop"}))
    client = engine.client()
    begin = time.monotonic()
    waiting = client.start("execute", language="python", code="1", venv_id=venv, state_mode="stateful", session_name="waits")
    answer = client.call("build_env", 30, venv_id=venv)
    assert time.monotonic() - begin < 15
    for one in (answer, waiting.wait(10)):
        assert one["error_type"] == "environment" and "env_timeout_s=1 seconds" in one["error"] and "higher env_timeout_s" in one["suggestion"], one
    assert listed(client, venv)["state"] == "failed" and "env_timeout_s=1" in listed(client, venv)["failure"]
    assert client.call("list_sessions")["sessions"] == []
    envs = os.path.join(declared.state_dir, "envs")
    assert eventually(lambda: [name for name in os.listdir(envs) if name != ".tools"] == [], 10), os.listdir(envs)
    engine.stop()
    with open(source[len("localpkg @ file://"):] + "/delay", "w") as f:
        f.write("0")
    second = Engine("--state-dir", declared.state_dir, env=PIP)
    try:
        assert value(second.client(), "import localpkg; localpkg.V", venv_id=venv) == "1.0"
    finally:
        second.stop()
        second.clean()


def test_a_look_at_a_specification_has_a_time_of_its_own(new_engine, tmp_path):
    slow = tmp_path / "bin" / "python3.12"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    client = bounded(new_engine, tmp_path, PATH="%s:%s" % (slow.parent, os.environ["PATH"])).client()
    begin = time.monotonic()
    answer = client.call("create_env", 30, spec=EMPTY)
    assert time.monotonic() - begin < 15 and answer["error_type"] == "environment", answer
    assert "Looking at the specification was ended after env_timeout_s=1 seconds" in answer["error"], answer


# --------------------------------------------------------------------------------------------------------------------- using
@pytest.mark.parametrize("version", interpreters())
def test_all_modes_in_each_python(client, package, version):
    venv = create(client, spec(package(), python="==%s.*" % version))
    where = dict(venv_id=venv, state_mode="stateful", session_name="s")
    assert value(client, "import sys, localpkg\nd = {'a': [1]}\n'%d.%d' % sys.version_info[:2]", **where) == version
    assert value(client, "import os\n[sys.prefix != sys.base_prefix, os.environ['PATH'].split(':')[0] == sys.prefix + '/bin', os.environ['VIRTUAL_ENV'] == sys.prefix]",
                 **where) == [True, True, True]
    read = dict(where, state_mode="read_only")
    assert value(client, "d['a'].append(2); del localpkg; d", **read) == {"a": [1, 2]}
    assert value(client, "d, localpkg.V", **where) == [{"a": [1]}, "1.0"]
    assert value(client, "'d' in globals()", venv_id=venv) is False
    failed = client.python("d['a'].append(3); 1/0", on_error="rollback", **where)
    assert failed["error_type"] == "exception" and failed["state"] == "rolled_back", failed
    assert value(client, "d", **where) == {"a": [1]}
    crashed = client.python("import os; d['a'].append(4); os._exit(3)", **where)
    assert crashed["error_type"] == "crashed" and crashed["state"] == "rolled_back", crashed
    assert value(client, "d", **where) == {"a": [1]}
    assert value(client, "import subprocess\nsubprocess.run(['python', '-c', 'import localpkg; print(localpkg.V)'], capture_output=True, text=True).stdout", **where) == "1.0\n"


def test_the_own_interpreter_sees_nothing_of_it(client, package):
    venv = built(client, spec(package()))
    assert value(client, "import importlib.util\nimportlib.util.find_spec('localpkg') is None") is True
    assert value(client, "import localpkg; localpkg.V", venv_id=venv) == "1.0"
    assert value(client, "import sys; sys.prefix == sys.base_prefix") is True


def test_bash_is_activated(client, package):
    venv = built(client, spec(package()))
    answer = client.bash("localpkg; python -c 'import sys; print(sys.prefix == \"'$VIRTUAL_ENV'\")'", venv_id=venv)
    assert answer["stdout"] == "ran 1.0\nTrue\n", answer
    assert client.bash("command -v localpkg")["exit_code"] == 1


def test_damage_is_found_before_use(client, package):
    venv = built(client, spec(package()))
    prefix = value(client, "import sys; sys.prefix", venv_id=venv)
    site = value(client, "import localpkg, os; os.path.dirname(localpkg.__file__)", venv_id=venv)
    client.call("close_all_sessions")
    assert site.startswith(prefix + "/"), site  # what follows deletes it
    for spoil in (lambda: shutil.rmtree(site), lambda: os.unlink(prefix + "/bin/python"), lambda: shutil.rmtree(prefix)):
        spoil()
        client.notifications.clear()
        assert value(client, "import localpkg; localpkg.V", venv_id=venv) == "1.0"
        assert any(n[1]["text"].startswith("making") for n in client.notifications if n[0] == "env_progress")


def test_one_in_use_stays(client):
    venv = built(client, EMPTY)
    value(client, "x = 1", venv_id=venv, state_mode="stateful", session_name="s")
    answer = client.call("remove_env", venv_id=venv)
    assert answer["error_type"] == "limit" and "in use" in answer["error"], answer
    assert listed(client, venv)["sessions"] == 1
    assert client.call("close_session", session_name="s")["closed"]
    assert eventually(lambda: client.call("remove_env", venv_id=venv)["ok"], 5)
    assert venv not in [env["venv_id"] for env in client.call("list_envs")["envs"]]
    assert create(client, EMPTY) > venv


def test_the_engine_stops_while_a_session_lives_in_it(engine, client):
    venv = create(client, EMPTY)
    assert client.python("x = 1", venv_id=venv, state_mode="stateful", session_id=0)["ok"]
    assert engine.stop() == 0, engine.log()[-3000:]


def test_the_least_recently_used_one_is_collected(new_engine, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"env_max_bytes": 1}))
    client = new_engine("--config", str(config), env=PIP).client()
    first, second = built(client, EMPTY), built(client, spec("x; sys_platform == 'never'"))
    assert eventually(lambda: listed(client, first)["state"] == "declared", 5)
    assert listed(client, second)["state"] == "ready"
    assert value(client, "1", venv_id=first) == 1


def test_a_preload_is_there_before_the_code(client):
    venv = built(client, spec(more='[tool.furca]\npreload = ["decimal"]'))
    assert value(client, "import sys; 'decimal' in sys.modules", venv_id=venv) is True
    assert value(client, "'decimal' in globals()", venv_id=venv) is False
    broken = built(client, spec(more='[tool.furca]\npreload = ["no_such_module"]'))
    assert value(client, "1", venv_id=broken) == 1


# ----------------------------------------------------------------------------------------------------------- the package index
@pytest.fixture(params=["pip", "uv"])
def indexed(request, new_engine):
    """A client of an engine that builds with either tool."""
    if request.param == "uv" and not uv_program():
        pytest.skip("uv is not installed (set FURCA_TEST_UV to the program)")
    return new_engine(env={"FURCA_ENV_TOOL": uv_program() if request.param == "uv" else "pip"}).client()


@index
def test_two_releases_of_one_library(indexed):
    old, new = built(indexed, spec("attrs==22.1.0")), built(indexed, spec("attrs==24.2.0"))
    code = "import importlib.metadata, attr\nimportlib.metadata.version('attrs')"
    assert value(indexed, code, venv_id=old) == "22.1.0"
    assert value(indexed, code, venv_id=new) == "24.2.0"


@index
def test_an_sdist_that_must_compile(indexed):
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    venv = built(indexed, spec("MarkupSafe==1.1.1", python=">=3.10"))
    assert value(indexed, "import markupsafe; str(markupsafe.escape('<'))", venv_id=venv) == "&lt;"


@index
def test_no_such_release(indexed):
    answer = indexed.call("build_env", 120, venv_id=create(indexed, spec("six==0.0.99")))
    assert answer["error_type"] == "environment" and "six" in answer["error"] and "version" in answer["suggestion"], answer


@index
@slow
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_a_compiled_package_in_each_python(indexed, version):
    if version not in interpreters():
        pytest.skip("Python %s is not found here" % version)
    venv = built(indexed, spec("numpy", python="==%s.*" % version), 600)
    where = dict(venv_id=venv, state_mode="stateful", session_name="s")
    assert value(indexed, "import sys, numpy\nx = numpy.arange(6.0)\n'%d.%d' % sys.version_info[:2]", **where) == version
    assert value(indexed, "x[:] = 0\nfloat(x.sum())", **dict(where, state_mode="read_only")) == 0
    assert value(indexed, "float(x.sum())", **where) == 15


@index
@slow
@pytest.mark.parametrize("requirement, python", [("numpy==1.26.*", ">=3.9,<3.13"), ("numpy>=2", ">=3.10"), ("pandas==1.5.*", ">=3.9,<3.12"), ("pandas>=2", "")])
def test_a_frame_in_an_environment_is_seen_by_a_read(indexed, requirement, python):
    if not any(fits(version, python) for version in interpreters()):
        pytest.skip("no Python %s is found here" % python)
    others = ["numpy<2"] if requirement == "pandas==1.5.*" else []
    venv = built(indexed, spec(requirement, *others, python=python), 600)
    module = requirement.split("=")[0].rstrip(">")
    where = dict(venv_id=venv, state_mode="stateful", session_name="s")
    make = {"numpy": "x = numpy.arange(6.0)", "pandas": "x = pandas.DataFrame({'a': range(6)})"}[module]
    value(indexed, "import %s\n%s\n%s.__version__" % (module, make, module), **where)
    change = {"numpy": "x.sort(); x[:] = 0; float(x.sum())", "pandas": "x.loc[:, 'a'] = 0; int(x['a'].sum())"}[module]
    assert value(indexed, change, **dict(where, state_mode="read_only")) == 0
    assert value(indexed, "int(x.sum()) if '%s' == 'numpy' else int(x['a'].sum())" % module, **where) == 15


@pytest.mark.parametrize("where", [{}, {"session_name": "s", "state_mode": "stateful"}])
def test_an_environment_is_not_removed_under_a_call_that_was_taken(client, where):
    """Between its taking and its beginning it was: the call failed, for the environment had been removed."""
    env = built(client, EMPTY)
    for _ in range(5):
        call = client.start("execute", language="python", code="1 + 1", venv_id=env, **where)
        removed = client.call("remove_env", venv_id=env)
        assert not removed["ok"] and "in use" in removed["error"], removed
        assert call.wait(60)["result"] == 2


def test_two_engines_of_one_directory_know_an_environment_by_one_number(engine, client):
    """The second was told of a failure of the database."""
    second = Engine("--state-dir", engine.state_dir, env=PIP)
    try:
        with second.client() as other:
            mine = create(client, EMPTY)
            assert create(other, EMPTY) == mine == create(client, EMPTY)
            assert create(other, spec("x; sys_platform == 'never'")) == create(client, spec("x; sys_platform == 'never'")) != mine
    finally:
        assert second.stop() == 0, second.log()
        second.clean()
