"""Stored functions as a Python host sees them: where a call says it is to run, and those that are to run in its own namespace."""
import os

import pytest

from hostlib import Host, Inline
from pythonhost import PROGRAM, needs_python, session  # noqa: F401 (fixtures)

pytestmark = needs_python

SOURCES = {
    "set_var": "def set_var(value):\n    global my_var\n    my_var = value\n    return value",
    "countdown": "def countdown(n):\n    return [n] + (functions.countdown(n - 1) if n else [])",
    "later": "import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x + 1",
    "broken": "def broken():\n    raise LookupError('no')",
    "even": "def even(n):\n    return n == 0 or functions.odd(n - 1)",
    "odd": "def odd(n):\n    return n != 0 and functions.even(n - 1)",
}


@pytest.fixture(scope="module")
def zygote():
    capabilities = {"fn " + name: (lambda *args, source=source, **kwargs: Inline(source)) for name, source in SOURCES.items()}
    capabilities["fn far"] = lambda *args, **kwargs: [list(args), kwargs]
    host = Host.start([PROGRAM], capabilities=capabilities, env={n: v for n, v in os.environ.items() if not n.startswith("FURCA")})
    yield host
    host.kill()


def value(host, code):
    done = host.run(code).body
    assert done.get("error") is None, done["error"]
    return done.get("result")


def where(host):
    return {key: host.asked[-1][key] for key in ("state_mode", "session_id", "session_name") if key in host.asked[-1]}


@pytest.mark.parametrize("code, at", [
    ("functions.far(1, k=2)", {}),
    ("functions.far.stateless(1, k=2)", {"state_mode": "stateless"}),
    ("functions.far.stateful(1, k=2)", {"state_mode": "stateful"}),
    ("functions.far.stateful(1, k=2, session=3)", {"state_mode": "stateful", "session_id": 3}),
    ("functions.far.stateful(1, k=2, session='audit')", {"state_mode": "stateful", "session_name": "audit"}),
    ("functions.far.read_only(1, k=2, session_name='audit')", {"state_mode": "read_only", "session_name": "audit"}),
    ("functions.far.read_only(1, k=2, session_id=0)", {"state_mode": "read_only", "session_id": 0}),
    ("functions.far.on('stateful', session=4)(1, k=2)", {"state_mode": "stateful", "session_id": 4}),
    ("await functions.far.stateful(1, k=2, session=3)", {"state_mode": "stateful", "session_id": 3}),
])
def test_a_call_carries_its_place(session, code, at):
    assert value(session, code) == [[1], {"k": 2}]
    assert where(session) == at


def test_one_runs_in_the_callers_namespace(session):
    assert value(session, "functions.set_var(5)") == 5
    assert value(session, "my_var") == 5
    assert value(session, "'set_var' in globals()") is False
    assert value(session, "set_var = 1\nfunctions.set_var.stateful(value=6)\n[set_var, my_var]") == [1, 6]


def test_calls_nest_and_cycles_end(session):
    assert value(session, "functions.countdown(30)") == list(range(30, -1, -1))
    assert value(session, "functions.even(21)") is False


def test_coroutines(session):
    assert value(session, "functions.later(1)") == 2
    assert value(session, "await functions.later(2)") == 3
    assert value(session, "import asyncio\nawait asyncio.gather(*[functions.later(i) for i in range(3)])") == [1, 2, 3]
    assert value(session, "async def f():\n    return [await functions.later(1), await functions.far(2)]\nawait f()") == [2, [[2], {}]]


def test_errors_name_the_function(session):
    done = session.run("functions.broken()").body
    assert "<function broken>" in done["error"] and "LookupError: no" in done["error"]
    assert value(session, "try:\n    functions.broken()\nexcept LookupError:\n    r = 'caught'\nr") == "caught"
