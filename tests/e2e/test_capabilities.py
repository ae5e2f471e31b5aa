"""doc/bridge.md, row by row, in Python and in bash; tests/check-rows.py finds rows without a test."""
import builtins
import datetime
import math
import threading
import time

import msgpack
import pytest

from furcalib import Client, eventually

def fail_with_key():
    raise KeyError("no such contact")


@pytest.fixture
def offering(engine):
    client = engine.client()
    client.seen = []

    def echo(x):
        client.seen.append(x)
        return x

    client.register({"echo": echo, "a.b.c.pair": lambda x, y=0: [x, y], "broken": fail_with_key, "mark": lambda: client.seen.append("marked"),
                     "slow": lambda s: time.sleep(s)}, effects={"mark": "write"})
    return client


def python(client, code, **args):
    args.setdefault("state_mode", "stateless")
    answer = client.python(code, **args)
    assert answer["ok"], answer
    return answer


def bash(client, code, **args):
    args.setdefault("state_mode", "stateless")
    return client.bash(code, **args)


def test_arguments(offering):
    assert python(offering, "capabilities.a.b.c.pair(1, y=2)")["result"] == [1, 2]
    assert bash(offering, "capability a.b.c.pair one y:=2")["stdout"] == '["one", 2]\n'
    assert python(offering, "capabilities.map('a.b.c.pair', [[1, 2], {'x': 3}])")["result"] == [[1, 2], [3, 0]]


@pytest.mark.parametrize("text", ["", "plain", "grüße 世界 \U0001f600", "a'b\"c\\d", "line\nline", "x" * 300000])
def test_text(offering, text):
    assert python(offering, "capabilities.echo(%r)" % text)["result"] == text
    if len(text) < 1000:
        quoted = "'" + text.replace("'", "'\\''") + "'"
        assert bash(offering, "capability echo " + quoted)["stdout"] == text + "\n"
    assert set(offering.seen) == {text}


@pytest.mark.parametrize("n", [0, -1, 2**63 - 1, -2**63, 2**64 - 1, 2**64, -2**63 - 1, 10**40, -10**40])
def test_integers(offering, n):
    assert python(offering, "capabilities.echo(%d) == %d" % (n, n))["result"] is True
    assert bash(offering, "capability echo x:=%d" % n)["stdout"] == "%d\n" % n
    assert offering.seen == [n, n]


def test_floats(offering):
    code = "import math\nr = [capabilities.echo(v) for v in (1.5, float('inf'), float('-inf'), -0.0, float('nan'))]\nr"
    r = python(offering, code)["result"]
    assert r[:3] == [1.5, math.inf, -math.inf] and math.copysign(1, r[3]) == -1 and math.isnan(r[4])
    assert bash(offering, "capability echo x:=1.5")["stdout"] == "1.5\n"


def test_bytes(offering):
    assert python(offering, "capabilities.echo(b'\\xff\\x00')")["result"] == b"\xff\x00"
    assert offering.seen == [b"\xff\x00"]
    answer = bash(offering, "B=$'\\xff\\xfe'; capability echo \"$B\" | od -An -tx1")
    assert answer["stdout"] == " ff fe 0a\n" and offering.seen[1] == b"\xff\xfe"


def test_keys(offering):
    assert python(offering, "capabilities.echo({1: 2, 'a': {3: 4}}) == {1: 2, 'a': {3: 4}}")["result"] is True
    offering.register({"keyed": lambda: {1: 2, "a": {3: 4}}})
    assert bash(offering, "capability keyed")["stdout"] == '{"1": 2, "a": {"3": 4}}\n'


def test_tuples(offering):
    assert python(offering, "capabilities.echo((1, (2, 3))) == [1, [2, 3]]")["result"] is True
    offering.register({"two": lambda: (1, (2, 3))})
    assert bash(offering, "capability two")["stdout"] == "[1, [2, 3]]\n"


def test_time(offering):
    code = "import datetime\nt = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc)\ncapabilities.echo(t) == t"
    assert python(offering, code)["result"] is True
    sent = offering.seen[0]
    assert isinstance(sent, (msgpack.Timestamp, msgpack.ExtType, datetime.datetime))
    answer = offering.python("import datetime; capabilities.echo(datetime.datetime.now())", state_mode="stateless")
    assert "TypeError" in answer["error"]
    offering.register({"then": lambda: msgpack.Timestamp(1)})
    assert bash(offering, "capability then")["stdout"] == '{"ext": -1, "bytes": "00000001"}\n'


@pytest.mark.parametrize("value", ["{1, 2}", "'\\ud800'", "object()", "deep"])
def test_no_form(offering, value):
    code = "deep = 1\nfor _ in range(100000): deep = [deep]\ntry:\n    capabilities.echo(%s)\nexcept (TypeError, ValueError) as e:\n    print(type(e).__name__, e)" % value
    answer = python(offering, code)
    assert answer["stdout"].startswith("ValueError" if value == "deep" else "TypeError") and offering.seen == [], answer
    assert python(offering, "capabilities.echo(1)")["result"] == 1


@pytest.mark.parametrize("value", ["{1}", "[1", "'x'", "1 2", "\\\"\\\\ud800\\\"", "$(printf '[%.0s' {1..300})"])
def test_no_form_in_bash(offering, value):
    answer = bash(offering, 'capability echo "x:=%s"; echo $?' % value)
    assert answer["stdout"] == "1\n" and "JSON" in answer["stderr"] and offering.seen == [], answer


def test_error(offering):
    code = "try:\n    capabilities.broken()\nexcept KeyError as e:\n    print(type(e).__name__, 'no such contact' in str(e))"
    assert python(offering, code)["stdout"] == "KeyError True\n"
    answer = bash(offering, "capability broken; echo status $?")
    assert answer["stdout"] == "status 1\n" and "KeyError" in answer["stderr"] and "no such contact" in answer["stderr"]


def test_errors_of_builtin_types(offering):
    """Some can be made in one way only, and came as a TypeError about that."""
    def broken(kind):
        raise type(kind, (Exception,), {})("what it says")
    offering.register({"failing": broken}, {"failing": "read"})
    kinds = sorted(name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception))
    code = ("def tell(kind):\n try: capabilities.failing(kind)\n"
            " except Exception as error: return type(error).__name__, str(error), isinstance(error, getattr(__builtins__, kind))\n"
            "import builtins\n__builtins__ = builtins\n[tell(kind) for kind in %r]" % kinds)
    none = ("Exception", "StopIteration", "StopAsyncIteration", "ExceptionGroup")  # a CapabilityError of that name
    for kind, told in zip(kinds, python(offering, code)["result"]):
        assert told[1:] == ["what it says", kind not in none or kind == "Exception"], (kind, told)
        assert told[0] == kind, told
    answer = offering.python("capabilities.failing('SyntaxError')")
    assert answer["error"].rstrip().endswith("SyntaxError: what it says"), answer["error"]


def test_unknown(offering):
    answer = offering.python("capabilities.ecko(1)", state_mode="stateless")
    assert "AttributeError" in answer["error"] and "'echo'" in answer["error"] + (answer["suggestion"] or ""), answer
    answer = bash(offering, "capability ecko 1; echo $?")
    assert answer["stdout"] == "1\n" and "'echo'" in answer["stderr"]


def test_read_only(offering):
    python(offering, "x = 1", state_mode="stateful", session_name="ro")
    bash(offering, "x=1", state_mode="stateful", session_name="rosh")
    code = "try:\n    capabilities.mark()\nexcept PermissionError as e:\n    print('refused')\nprint(capabilities.echo('read'))"
    assert python(offering, code, state_mode="read_only", session_name="ro")["stdout"] == "refused\nread\n"
    answer = bash(offering, "capability mark; echo $?; capability echo read", state_mode="read_only", session_name="rosh")
    assert answer["stdout"] == "1\nread\n" and "PermissionError" in answer["stderr"]
    assert offering.seen == ["read", "read"]
    assert python(offering, "capabilities.mark()")["ok"] and offering.seen[-1] == "marked"


def test_replaced(engine, offering):
    second = Client(engine.socket)
    second.register({"echo": lambda x: "second"})
    assert python(offering, "capabilities.echo(1)")["result"] == "second"
    assert bash(offering, "capability echo 1")["stdout"] == "second\n"
    second.close()
    assert eventually(lambda: "AttributeError" in (offering.python("capabilities.echo(1)", state_mode="stateless")["error"] or ""), 5)


def test_gone(engine, offering):
    owner = Client(engine.socket)
    over = threading.Event()
    owner.register({"held": lambda: over.wait(30)})
    in_bash = offering.start("execute", code="capability held; echo $?", language="bash", state_mode="stateless")
    code = "try:\n    capabilities.held()\nexcept ConnectionError as e:\n    print('gone')"
    in_python = offering.start("execute", code=code, language="python", state_mode="stateless")
    assert eventually(lambda: len(owner.capability_requests) == 2, 10)
    owner.close()
    answer = in_bash.wait(10)
    assert in_python.wait(10)["stdout"] == "gone\n"
    over.set()
    assert answer["stdout"] == "1\n" and "ConnectionError" in answer["stderr"], answer


def test_deadline(offering):
    began = time.monotonic()
    answer = offering.python("capabilities.slow(8)", session_name="late", timeout_s=1)
    assert answer["error_type"] == "timeout" and time.monotonic() - began < 6
    assert python(offering, "capabilities.echo(2)", state_mode="stateful", session_name="late")["result"] == 2
    began = time.monotonic()
    answer = bash(offering, "capability slow s:=8", state_mode="stateful", session_name="latesh", timeout_s=1)
    assert answer["error_type"] == "timeout" and time.monotonic() - began < 6
    assert bash(offering, "capability echo 2", state_mode="stateful", session_name="latesh")["stdout"] == "2\n"


def test_at_once(offering):
    began = time.monotonic()
    code = "import asyncio\nasync def run():\n    return await asyncio.gather(*[capabilities.slow(0.5) for _ in range(8)])\nlen(await run())"
    assert python(offering, code)["result"] == 8
    code = "import threading\nts = [threading.Thread(target=capabilities.slow, args=(0.5,)) for _ in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\n8"
    assert python(offering, code)["result"] == 8
    assert bash(offering, "for i in 1 2 3 4; do capability slow s:=0.5 & done; wait; echo done")["stdout"].endswith("done\n")
    assert time.monotonic() - began < 6


def test_nested_in_bash(offering):
    """A capability that runs code: in the bash session that waits for it, read-only; a stateful call there is refused."""
    def inner(mode):
        answer = offering.call("execute", code="echo $x", language="bash", state_mode=mode, session_name="nested",
                               within=offering.capability_requests[-1]["call_id"])
        return answer["stdout"].strip() if answer["ok"] else "refused"

    offering.register({"inner": inner})
    bash(offering, "x=1", state_mode="stateful", session_name="nested")
    assert bash(offering, "x=2; capability inner read_only; capability inner stateful", state_mode="stateful",
                session_name="nested")["stdout"] == "1\nrefused\n"


@pytest.mark.parametrize("method, more", [("execute", {"code": "1", "state_mode": "stateful"}), ("undo", {}), ("checkpoint", {"label": "l"}),
                                          ("branch_session", {"new_name": "b"})])
def test_a_session_that_would_wait_for_itself(engine, offering, method, more):
    """Asked for by the client that is to answer, which need not be the one that runs the code, and does not say what it serves."""
    with Client(engine.socket) as other:
        def again():
            answer = other.call(method, language="python", session_name="itself", **more)
            return answer["ok"] or answer["error"]

        other.register({"again": again})
        began = time.monotonic()
        told = python(offering, "x = capabilities.again(); x", state_mode="stateful", session_name="itself", timeout_s=20)["result"]
        assert "would wait for itself" in told and time.monotonic() - began < 10, told


def test_another_clients_call_waits_for_a_capability(engine, offering):
    """It is not the one that is to answer."""
    with Client(engine.socket) as other:
        waiting = offering.start("execute", language="python", code="capabilities.slow(2.5)", state_mode="stateful", session_name="slow")
        time.sleep(0.3)
        assert other.python("5", state_mode="stateful", session_name="slow")["result"] == 5
        assert waiting.wait(20)["ok"]


BACKGROUND = """
import threading, time
heard = []
def ask():
    while True:
        try: heard.append(capabilities.echo(len(heard)))
        except Exception as error: heard.append(repr(error))
        time.sleep(0.02)
threading.Thread(target=ask, daemon=True).start()"""


@pytest.mark.parametrize("how", ["undo", "crash", "branch"])
def test_what_runs_in_the_background_goes_on_calling(offering, how):
    """In the process that took the place of the one that code had run in, it was told that no client had run any."""
    where = {"session_name": "background-" + how, "state_mode": "stateful"}
    python(offering, BACKGROUND, **where)
    python(offering, "heard.clear()", **where)
    if how == "undo":
        assert offering.call("undo", language="python", session_name=where["session_name"])["ok"]
    elif how == "crash":
        assert offering.python("import os; os._exit(1)", **where)["state"] == "rolled_back"
    else:
        assert offering.call("branch_session", language="python", session_name=where["session_name"], new_name="background-new")["ok"]
        where["session_name"] = "background-new"
    time.sleep(0.5)
    heard = python(offering, "heard", **where)["result"]
    failed = [said for said in heard if isinstance(said, str)]
    assert len(heard) > 5 and (not failed or (len(failed) == 1 and "closed the lane" in failed[0])), heard  # the call under way when the snapshot was made


def test_arrays_in_bash(offering):
    """Bash can neither send nor take an array; a client's answer with one is an error of that call."""
    offering.register({"array": lambda: msgpack.ExtType(3, b"x")})
    answer = bash(offering, "capability array; echo $?")
    assert answer["stdout"] == "1\n" and "TypeError" in answer["stderr"]
