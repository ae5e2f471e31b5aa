"""Stored functions through the engine: kept, called from clients, Python and bash, in every mode and across environments."""
import json
import os

import pytest

from furcalib import Engine, eventually
from test_envs import PIP, built, spec  # noqa: F401

SET = "def set_var(value):\n    global my_var\n    my_var = value\n    return value"
GET = "def get_var():\n    return globals().get('my_var', 'NOT_DEFINED')"


@pytest.fixture(scope="module", autouse=True)
def tool():
    os.environ["FURCA_ENV_TOOL"] = "pip"


@pytest.fixture
def add(client):
    names = []

    def run(name, source, language="python", **more):
        answer = client.call("add_function", name=name, language=language, source=source, **more)
        assert answer["ok"], answer
        names.append(name)
    yield run
    for name in set(names):
        client.call("remove_function", name=name)


@pytest.fixture
def environment(client):
    made = []

    def run(*requirements, **more):
        made.append(built(client, spec(*requirements, **more)))
        return made[-1]
    yield run
    client.call("close_all_sessions")
    for function in client.call("list_functions")["functions"]:
        if function["venv_id"] in made:
            client.call("remove_function", name=function["name"])
    for venv in made:
        eventually(lambda: client.call("remove_env", venv_id=venv)["ok"], 10)


def call(client, name, *args, kwargs=None, **where):
    return client.call("call_function", 120, name=name, args=list(args), kwargs=kwargs or {}, **where)


def result(answer):
    assert answer["ok"], answer["error"]
    return answer["result"]


def py(client, code, **where):
    return result(client.python(code, timeout=120, **where))


# -------------------------------------------------------------------------------------------------------------------- keeping
def test_they_are_kept_over_a_restart(new_engine):
    engine = new_engine()
    client = engine.client()
    assert client.call("add_function", name="f", language="python", source="def f(x):\n    'Doubles.'\n    return 2 * x", capabilities=["a.b"])["ok"]
    assert client.call("add_function", name="f", language="python", source="def f(x):\n    'Trebles.'\n    return 3 * x")["replaced"] is True
    engine.stop()
    second = Engine("--state-dir", engine.state_dir)
    try:
        again = second.client()
        entry, = again.call("list_functions")["functions"]
        assert (entry["name"], entry["language"], entry["doc"], entry["venv_id"], entry["capabilities"]) == ("f", "python", "Trebles.", None, None)
        assert result(call(again, "f", 2)) == 6
    finally:
        second.stop()
        second.clean()


@pytest.mark.parametrize("arguments, part", [
    (dict(name="f", language="python", source="def f(:"), "line 1"),
    (dict(name="f", language="python", source="def g(): pass"), "does not define 'f'"),
    (dict(name="f", language="bash", source="if"), "bash"),
    (dict(name="no good", language="python", source=""), "name"),
    (dict(name="f", language="perl", source="1"), "perl"),
    (dict(name="f", language="python", source="def f(): pass", venv_id=99), "99"),
    (dict(name="f", language="python", source="def f(): pass", doc=3), "doc"),
    (dict(name="f", language="python", source="def f(): pass", capabilities="a"), "capabilities"),
    (dict(name="f", language="python"), "source"),
    (dict(name="f", language="python", sauce="1"), "source"),
])
def test_a_bad_one_is_refused(client, arguments, part):
    answer = client.call("add_function", **arguments)
    assert not answer["ok"] and answer["error_type"] == "validation" and answer["state"] == "unchanged" and answer["suggestion"]
    assert part in answer["error"] + answer["suggestion"], answer
    assert answer["received"] == arguments
    assert client.call("list_functions")["functions"] == []


def test_the_interpreter_it_is_for_checks_it(client, environment):
    import sys
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "langs", "python"))
    import envpython
    if not any(found["version"].startswith("3.9.") for found in envpython.find()):
        pytest.skip("Python 3.9 is not installed")
    venv = environment(python="==3.9.*")
    source = "def f(x):\n    match x:\n        case 1: return 2\n"
    answer = client.call("add_function", name="f", language="python", source=source, venv_id=venv)
    assert answer["error_type"] == "validation" and "Python 3.9" in answer["error"] and "line 2" in answer["error"], answer


def test_an_unknown_one(client, add):
    add("lookup", "def lookup(): pass")
    for method in ("call_function", "remove_function"):
        answer = client.call(method, name="lokup")
        assert answer["error_type"] == "validation" and "'lookup'" in answer["suggestion"], answer
    failed = client.python("functions.lokup()")
    assert "LookupError" in failed["error"] and "'lookup'" in failed["error"], failed


# -------------------------------------------------------------------------------------------------------- calls by the client
@pytest.mark.parametrize("where", ["own", "environment"])
def test_three_modes(client, add, environment, where):
    venv = environment() if where == "environment" else None
    add("set_var", SET, venv_id=venv)
    add("get_var", GET, venv_id=venv)
    at = dict(state_mode="stateful", session_name="s")
    answer = call(client, "set_var", 42, **at)
    assert result(answer) == 42 and answer["state"] == "committed" and answer["session"]["session_name"] == "s"
    assert answer["session"]["venv_id"] == venv
    read = call(client, "set_var", 9, **dict(at, state_mode="read_only"))
    assert result(read) == 9 and read["state"] == "unchanged"
    assert result(call(client, "get_var", **at)) == 42
    assert result(call(client, "get_var", state_mode="stateless")) == "NOT_DEFINED"
    assert "set_var" not in py(client, "sorted(globals())", venv_id=venv, **at)
    assert py(client, "my_var", venv_id=venv, **at) == 42


def test_the_default_mode_is_that_of_execute(client, add, environment):
    add("f", "def f(): return 1")
    add("g", "def g(): return 1", venv_id=environment())
    add("h", "true", language="bash")
    assert call(client, "f")["session"]["session_id"] == 0
    assert call(client, "g")["session"] is None and call(client, "h")["session"] is None


def test_arguments_and_results(client, add):
    add("f", "def f(*args, **kwargs):\n    return [list(args), kwargs]")
    values = [1, -2.5, "é", None, True, b"\0\xff", [1, [2]], {"k": {"n": 1}}, 2 ** 70]
    assert result(call(client, "f", *values, kwargs={"x": 1})) == [values, {"x": 1}]
    assert call(client, "f", session="s")["error_type"] == "validation"
    bad = client.call("call_function", name="f", args={"a": 1})
    assert bad["error_type"] == "validation" and "args" in bad["error"]


def test_a_failing_one_names_its_line(client, add):
    add("f", "def f():\n    x = 1\n    raise ValueError('no')")
    answer = call(client, "f")
    assert answer["error_type"] == "exception" and '<function f>", line 3' in answer["error"] and "ValueError: no" in answer["error"]


def test_bash(client, add):
    add("greet", 'echo "hello $1 and $2"; echo err >&2; return 3', language="bash")
    answer = call(client, "greet", "a b", "c")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("hello a b and c\n", "err\n", 3)
    add("go", "cd /; X=5", language="bash")
    call(client, "go", state_mode="stateful", session_name="b")
    assert client.bash("echo $PWD $X", state_mode="stateful", session_name="b")["stdout"] == "/ 5\n"


# ---------------------------------------------------------------------------------------------------------- calls by functions
def test_from_python_in_the_sessions_own_namespace(client, add):
    add("set_var", SET)
    at = dict(state_mode="stateful", session_name="s")
    assert py(client, "functions.set_var(5)", **at) == 5
    assert py(client, "my_var", **at) == 5
    assert py(client, "functions.set_var(6); my_var", state_mode="read_only", session_name="s") == 6
    assert py(client, "my_var", **at) == 5
    assert py(client, "functions.set_var.stateful(7, session='s'); my_var", **at) == 7
    assert py(client, "await functions.set_var(8); my_var", **at) == 8


def test_from_python_elsewhere(client, add):
    add("set_var", SET)
    add("get_var", GET)
    py(client, "my_var = 'other'", state_mode="stateful", session_name="o")
    at = dict(state_mode="stateful", session_name="s")
    assert py(client, "my_var = 'own'\n[functions.get_var(), functions.get_var.stateful(session='o'), functions.get_var.stateless(), "
                      "functions.get_var.read_only(session='o'), functions.set_var.read_only(1, session_name='o')]", **at) == \
        ["own", "other", "NOT_DEFINED", "other", 1]
    assert py(client, "functions.set_var.stateful('new', session='o')", **at) == "new"
    assert py(client, "my_var", state_mode="stateful", session_name="o") == "new"
    assert py(client, "my_var", **at) == "own"


def test_a_read_only_call_changes_no_other_session(client, add):
    add("set_var", SET)
    py(client, "my_var = 1", state_mode="stateful", session_name="o")
    py(client, "0", state_mode="stateful", session_name="s")
    answer = client.python("functions.set_var.stateful(2, session='o')", state_mode="read_only", session_name="s")
    assert "PermissionError" in answer["error"] and "read-only" in answer["error"], answer
    assert py(client, "my_var", state_mode="stateful", session_name="o") == 1


def test_a_stateless_call_from_a_read_leaves_no_trace(client, add, tmp_path):
    target = tmp_path / "trace"
    add("touch", "def touch(path):\n    open(path, 'w').write('x')\n    import os\n    return os.path.exists(path)", venv_id=None)
    py(client, "0", state_mode="stateful", session_name="s")
    code = "functions.touch.stateless(%r)" % str(target)
    answer = client.python(code, state_mode="read_only", session_name="s")
    assert result(answer) is True and not target.exists()
    assert py(client, code, state_mode="stateful", session_name="s") is True and target.exists()


def test_across_environments(client, add, environment, package):
    one, two = environment(package("1.0")), environment(package("2.0"))
    add("old", "def old():\n    import localpkg\n    return localpkg.V", venv_id=one)
    add("new", "def new():\n    import localpkg\n    return [localpkg.V, functions.old()]", venv_id=two)
    add("both", "def both():\n    return [functions.old(), functions.new()]")
    assert py(client, "functions.both()") == ["1.0", ["2.0", "1.0"]]
    assert result(call(client, "both", state_mode="stateless")) == ["1.0", ["2.0", "1.0"]]
    assert result(call(client, "new")) == ["2.0", "1.0"]


def test_cycles_work_where_they_can(client, add, environment):
    venv = environment()
    add("even", "def even(n):\n    return n == 0 or functions.odd(n - 1)", venv_id=venv)
    add("odd", "def odd(n):\n    return n != 0 and functions.even(n - 1)")
    assert py(client, "functions.even(6)") is True
    assert result(call(client, "odd", 5, state_mode="stateless")) is True


def test_a_cycle_that_would_wait_for_itself_is_named(client, add, environment):
    venv = environment()
    add("there", "def there():\n    return functions.back.stateful(session=0)", venv_id=venv)
    add("back", "def back(): return 1")
    answer = client.python("functions.there()", timeout_s=20, state_mode="stateful", session_id=0)
    assert answer["error_type"] == "exception" and answer["duration_ms"] < 15000, answer
    assert "waits for this one" in answer["error"], answer
    assert py(client, "1 + 1") == 2


def test_endless_recursion_ends(client, add, environment):
    add("f", "def f(n):\n    return functions.f.stateless(n + 1)")
    answer = client.python("functions.f(0)", timeout_s=60, timeout=90)
    assert "more than 32 deep" in answer["error"], answer
    assert py(client, "1 + 1") == 2


def test_errors_cross_with_their_type(client, add, environment):
    add("f", "def f():\n    {}['missing']", venv_id=environment())
    assert py(client, "try:\n    functions.f()\nexcept KeyError as e:\n    text = [str(e), e.traceback]\n[\"'missing'\" in text[0], '<function f>' in text[1]]") == [True, True]
    add("g", "def g():\n    return object()", venv_id=None)
    answer = client.python("functions.g.stateless()")
    assert "TypeError" in answer["error"] and "cannot cross" in answer["error"]


def test_what_a_function_prints_is_the_callers_output(client, add, environment):
    add("f", "def f():\n    import sys\n    print('inside')\n    print('err', file=sys.stderr)\n    return 1", venv_id=environment())
    answer = client.python("print('before')\nfunctions.f()\nprint('after')")
    assert answer["stdout"] == "before\ninside\nafter\n" and answer["stderr"] == "err\n", answer


def test_from_bash(client, add, environment):
    add("total", "def total(a, b=1):\n    return {'sum': a + b}", venv_id=environment())
    add("join", 'echo "$1-$2"', language="bash")
    answer = client.bash("furca-fn total :=2 b:=3; furca-fn join x y; furca-fn nope; echo $?")
    assert answer["stdout"].replace(" ", "") == '{"sum":5}\nx-y\n1\n', answer
    assert "nope" in answer["stderr"]
    assert py(client, "functions.join('x', 'y')") == "x-y"
    add("fails", "echo no >&2; return 4", language="bash")
    failed = client.python("functions.fails()")
    assert "status 4" in failed["error"] and "no" in failed["error"], failed


# -------------------------------------------------------------------------------------------------------------- capabilities
def test_capabilities_reach_the_client(engine, add, environment):
    offered = engine.client(capabilities={"echo": lambda x: x, "other": lambda: 1})
    add("f", "def f(x):\n    return capabilities.echo(x)", venv_id=environment())
    assert py(offered, "functions.f([1, 'a'])") == [1, "a"]
    assert result(call(offered, "f", 3, state_mode="stateless")) == 3


def test_only_those_it_declares(engine, add):
    offered = engine.client(capabilities={"echo": lambda x: x, "other": lambda: 1})
    add("f", "def f(name):\n    return capabilities[name](*(['x'] if name == 'echo' else []))", capabilities=["echo"])
    assert result(call(offered, "f", "echo", state_mode="stateless")) == "x"
    answer = call(offered, "f", "other", state_mode="stateless")
    assert "PermissionError" in answer["error"] and "'other'" in answer["error"], answer


USES = """
import asyncio, concurrent.futures, threading
def use(name):
    return capabilities[name]()
def uses(how):
    try:
        if how == "plain": return use("other")
        if how == "map": return capabilities.map("other", [[]])
        if how == "thread":
            got = []
            thread = threading.Thread(target=lambda: got.append(attempt()))
            thread.start(); thread.join()
            return got[0]
        if how == "pool": return pool.submit(capabilities.other).result()
        if how == "handed": return pool.submit(use, "other").result()
        if how == "exec": return eval("capabilities.other()")
        if how == "function": return functions.free("other")
        if how == "own process": return functions.free.stateless("other")
        return [use("echo"), capabilities.map("echo", [[]])]
    except PermissionError as error:
        return "refused" if "'other'" in str(error) else str(error)
def attempt():
    try:
        return use("other")
    except PermissionError:
        return "refused"
"""


@pytest.fixture
def limited(engine, add):
    """A client that offers two capabilities, and functions of which one may call but one."""
    offered = engine.client(capabilities={"echo": lambda: "echo", "other": lambda: "other"})
    add("uses", USES, capabilities=["echo"])
    add("later", "async def later():\n    import asyncio\n    await asyncio.sleep(0.01)\n    return await capabilities.other()", capabilities=["echo"])
    add("free", "def free(name):\n    return capabilities[name]()")
    add("gives", "def gives():\n    return lambda: capabilities.other()", capabilities=[])
    py(offered, "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(1)\npool.submit(int).result()\n0",
       state_mode="stateful", session_name="s")
    yield offered
    py(offered, "pool.shutdown()", state_mode="stateful", session_name="s")


@pytest.mark.parametrize("how", ["plain", "map", "thread", "pool", "handed", "exec", "function", "own process"])
def test_only_those_it_declares_in_the_callers_process(limited, how):
    at = dict(state_mode="stateful", session_name="s")
    assert py(limited, "functions.uses(%r)" % how, **at) == "refused"
    assert result(call(limited, "uses", how, **at)) == "refused"
    assert py(limited, "capabilities.other()", **at) == "other"
    assert py(limited, "[functions.uses('none'), capabilities.other()]", **at) == [["echo", ["echo"]], "other"]


def test_only_those_it_declares_in_tasks_and_callbacks(limited):
    at = dict(state_mode="stateful", session_name="s")
    code = """
import asyncio
async def mine():
    await asyncio.sleep(0.005)
    return await capabilities.other()
pending = functions.later()
ahead = capabilities.other()
both = await asyncio.gather(pending, mine(), return_exceptions=True)
callback = functions.gives()
try: late = callback()
except PermissionError: late = "refused"
[ahead, type(both[0]).__name__, both[1], late, capabilities.other()]
"""
    assert py(limited, code, **at) == ["other", "PermissionError", "other", "refused", "other"]
    # What a stateful call of it leaves running is bound still.
    result(call(limited, "uses", "none", **at))
    assert py(limited, "callback = functions.gives(); pool.submit(lambda: callback()).exception().__class__.__name__", **at) == "PermissionError"


# ---------------------------------------------------------------------------------------------------------------------- limits
def test_a_nested_call_ends_with_its_caller(client, add, environment, engine):
    add("f", "def f():\n    import time\n    time.sleep(60)", venv_id=environment())
    answer = client.python("functions.f()", timeout_s=4, timeout=60)
    assert answer["error_type"] == "timeout" and answer["duration_ms"] < 12000, answer
    assert py(client, "1 + 1") == 2
    assert eventually(lambda: not client.call("stats").get("calls_under_way"), 5)


@pytest.mark.parametrize("how", ["cancel", "close", "disconnect", "crash"])
def test_a_nested_call_ends_when_its_caller_has_gone(client, add, environment, engine, how):
    venv = environment()
    add("f", "def f():\n    import time\n    time.sleep(300)", venv_id=venv)
    py(client, "1", venv_id=venv)

    def inside():
        """Processes of the environment at work: neither its zygote nor the spare that waits for the next call."""
        idle = set(client.call("stats")["idle_pids"])
        return sum(os.path.join(engine.state_dir, "envs") in command for pid, command in engine.processes().items() if pid not in idle)

    assert eventually(lambda: inside() == 0, 10)
    other = engine.client()
    code = "import threading, os\nthreading.Timer(1, os._exit, (3,)).start()\nfunctions.f()" if how == "crash" else "functions.f()"
    running = other.start("execute", code=code, language="python", state_mode="stateful", session_name="s")
    assert eventually(lambda: inside() > 0, 30)
    if how == "cancel":
        assert other.call("cancel", msgid=running.msgid)["cancelled"] and running.wait(20)["error_type"] == "interrupted"
    elif how == "close":
        client.call("close_session", session_name="s")
    elif how == "disconnect":
        other.close()
    else:
        assert running.wait(30)["error_type"] == "crashed"
    client.call("close_session", session_name="s")
    assert eventually(lambda: inside() == 0, 30), engine.processes()


@pytest.mark.parametrize("size, fits", [(1 << 20, True), ((64 << 20) - 4096, True), (64 << 20, False)])
def test_a_functions_value_may_be_as_large_as_a_capabilitys(engine, size, fits):
    """It was bounded as a call's `result` is, which is for people to look at."""
    client = engine.client()
    client.call("remove_function", name="large")
    added = client.call("add_function", name="large", language="python", source="def large(n): return b'a' * n")
    assert added["ok"], added
    told = client.python("try: told = len(functions.large.stateless(%d))\nexcept TypeError as error: told = str(error)\ntold" % size)["result"]
    assert told == size if fits else "too large for the wire, which takes" in told, told
    client.call("remove_function", name="large")


@pytest.mark.parametrize("code, type_", [("functions.many.stateless(5_000_000)", "TypeError"), ("len(capabilities.take([0] * 5_000_000))", "ValueError"),
                                         ("functions.many.stateless([0] * 5_000_000)", "ValueError")])
def test_more_values_than_a_message_holds_are_an_error(engine, code, type_):
    """The lane was closed, or the process ended, for what came was no message within bounds."""
    client = engine.client()
    client.register({"take": lambda v: v}, {"take": "read"})
    added = client.call("add_function", name="many", language="python", source="def many(n): return [0] * n")
    assert added["ok"], added
    told = client.python("try: told = %s\nexcept Exception as error: told = type(error).__name__ + ': ' + str(error)\ntold" % code)["result"]
    assert told.startswith(type_) and "values than" in told, told
    client.call("remove_function", name="many")
