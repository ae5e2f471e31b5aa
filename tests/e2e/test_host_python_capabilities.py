"""The Python host, driven directly: calls to capabilities, and the values that cross."""
import time

import pytest

from hostlib import COPY
from pythonhost import MODULE, error, needs_python, ran, session, value, zygote  # noqa: F401 (fixtures)

pytestmark = needs_python


def test_capability_calls(session):
    assert value(session, "capabilities.contacts.ask('q')") == "A:q"
    assert value(session, "capabilities.contacts.ask(question='k')") == "A:k"
    assert value(session, "capabilities.map('echo', [1, [2], {'value': 3}])") == [1, 2, 3]
    assert value(session, "functions.twice('ab')") == "abab"
    assert "contacts" in value(session, "dir(capabilities)")
    assert value(session, "try:\n    capabilities.fail('x')\nexcept KeyError as e:\n    r = [type(e).__name__, e.type, str(e)]\nr") == ["KeyError", "KeyError", "'x'"]
    assert value(session, "try:\n    capabilities.no.such()\nexcept Exception as e:\n    r = 'no.such' in str(e)\nr") is True


def test_names_of_capabilities(session):
    assert value(session, "f = capabilities.contacts.ask\n[repr(f), f.__name__, f.__qualname__, repr(capabilities['a']._b.map)]") == [
        "<capability contacts.ask>", "ask", "contacts.ask", "<capability a._b.map>"]
    assert value(session, "import copy, weakref\n[repr(g) for g in (copy.deepcopy(f), weakref.ref(f)())]") == [
        "<capability contacts.ask>"] * 2
    assert value(session, "[hasattr(f, '__len__'), callable(f), hasattr(capabilities.map, '__self__'), capabilities.map.__name__]") == [False, True, True, "map"]
    assert "no attribute" in error(session, "capabilities.contacts = 1")
    assert "name a capability" in error(session, "capabilities('q')")
    assert value(session, "import gc, sys\nn = sys.getrefcount(type(f))\nfor _ in range(100): capabilities.a.b.c\n[gc.collect() >= 0, sys.getrefcount(type(f)) - n]") == [True, 0]


def test_capability_calls_from_everywhere(session):
    begin = time.monotonic()
    assert value(session, "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as ex: r = list(ex.map(capabilities.slow, range(4)))\nr") == [0, 1, 2, 3]
    assert time.monotonic() - begin < 1.6
    assert ran(session, "import os\npid = os.fork()\nif pid == 0:\n    print(capabilities.echo('c'), flush=True); os._exit(0)\nos.waitpid(pid, 0)\n"
                        "print(capabilities.echo('p'))") == "c\np\n"
    copy = session.clone(COPY)
    assert value(copy, "capabilities.echo(1)") == 1
    assert value(session, "capabilities.echo(2)") == 2
    copy.kill()


def test_capabilities_in_coroutines(session):
    assert value(session, "import asyncio\nx = capabilities.echo(1)\ny = await capabilities.echo(2)\n[x, y]") == [1, 2]
    assert value(session, "list(await asyncio.gather(*[capabilities.slow(i) for i in range(3)], capabilities.slow(9)))") == [0, 1, 2, 9]
    assert value(session, "async def f(i): return await capabilities.slow(i) + 1\nawait asyncio.gather(f(1), f(2), capabilities.slow(3))") == [2, 3, 3]
    assert value(session, "t = [capabilities.slow(i) for i in range(3)]\nawait asyncio.gather(*t)") == [0, 1, 2]
    assert value(session, "p = capabilities.slow(7)\nq = capabilities.slow(8)\n[await p, await q]") == [7, 8]
    assert value(session, "n = 0\nasync def tick():\n    global n\n    while True:\n        n += 1; await asyncio.sleep(0.01)\n"
                          "t = asyncio.create_task(tick())\nawait capabilities.slow(1)\nt.cancel()\nn > 5") is True
    assert value(session, "async def g():\n    v = capabilities.echo('plain')\n    await asyncio.sleep(0)\n    return v + '!'\nawait g()") == "plain!"
    assert "KeyError" in error(session, "await capabilities.fail('async')")


VALUES = ["2**64", "-2**63 - 1", "10**40", "-1", "2**63", "1.5", "float('inf')", "None", "True", "''", "'\\u4e16\\0'", "b'\\xff\\0'", "[]", "{}",
          "{'a': {1: [2]}}", "{True: 1, None: 2, b'k': 3, 1.5: 4}", "[[[[[[]]]]]]", "'x' * 100000"]


@pytest.mark.parametrize("text", VALUES)
def test_values_round_trip(session, text):
    assert ran(session, "v = %s\nr = capabilities.echo(v)\nprint(r == v, type(r) is type(v))" % text) == "True True\n"


def test_values_without_a_form(session):
    for text in ("{1}", "frozenset()", "'\\ud800'", "[{'a': {1}}]"):
        assert value(session, "try:\n    capabilities.echo(%s); r = 'accepted'\nexcept TypeError as e:\n    r = 'no form on the wire' in str(e)\nr" % text) is True, text
    assert value(session, "v = 1\nfor _ in range(100000): v = [v]\ntry:\n    capabilities.echo(v); r = 'accepted'\nexcept ValueError as e:\n    r = 'nested' in str(e)\n"
                          "while isinstance(v, list): v = v.pop()\nr") is True
    assert value(session, "try:\n    capabilities.echo((x for x in ()))\nexcept TypeError:\n    r = 1\ncapabilities.echo(r)") == 1
    assert value(session, "[capabilities.echo((1, 2)), capabilities.kind(bytearray(b'x'))]") == [[1, 2], "bytes"]
    assert ran(session, "import math\nprint(math.isnan(capabilities.echo(float('nan'))), math.copysign(1, capabilities.echo(-0.0)))") == "True -1.0\n"


def test_codec_alone():
    import _imp
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    module = _imp.create_dynamic(ModuleSpec("_furca_host", ExtensionFileLoader("_furca_host", MODULE), origin=MODULE))
    import random
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)

    def make(depth):
        kind = draw.randrange(8 if depth else 6)
        if kind == 0:
            return draw.choice([None, True, False])
        if kind == 1:
            return draw.randrange(-1 << draw.randrange(1, 200), 1 << draw.randrange(1, 200))
        if kind == 2:
            return draw.choice([draw.random(), float("inf"), -0.0, 1e300])
        if kind == 3:
            return "".join(chr(draw.choice([draw.randrange(0xd800), draw.randrange(0xe000, 0x110000)])) for _ in range(draw.randrange(40)))
        if kind in (4, 5):
            return draw.randbytes(draw.randrange(300))
        if kind == 6:
            return [make(depth - 1) for _ in range(draw.randrange(20))]
        return {draw.choice([str(i), i, (i, "t"), None, float(i), b"%d" % i]): make(depth - 1) for i in range(draw.randrange(20))}
    for _ in range(3000):
        value = make(4)
        back = module.unpack(module.pack(value))
        assert back == value and repr(back) == repr(value), "seed %d" % seed
    for bad in (b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 500 + b"\xc0", b"\xc0\xc0", b"\xa1\xff"):
        with pytest.raises(ValueError):
            module.unpack(bad)


def test_times_cross(session):
    assert value(session, "import datetime as d\nt = d.datetime(2026, 11, 29, 1, 2, 3, 456789, tzinfo=d.timezone.utc)\ncapabilities.echo(t) == t") is True
    assert value(session, "t = d.datetime(1960, 1, 1, tzinfo=d.timezone(d.timedelta(hours=2)))\ncapabilities.echo(t) == t") is True
    assert "time zone" in error(session, "capabilities.echo(d.datetime.now())")


def test_handles(session):
    assert value(session, "h = capabilities.handle()\n[repr(h), capabilities.is_handle(h), h.size(), h == capabilities.handle()]") == ["<handle h1>", True, 7, True]
    assert value(session, "del h\ncapabilities.echo(3)") == 3


def test_objects_without_a_form_go_as_handles_and_come_back_as_themselves(session):
    assert value(session, "class X: pass\nkept = [X(), object(), 1j, print]\n[capabilities.echo(o) is o for o in kept]") == [True] * 4


def test_a_signal_handler_may_call_out_during_a_call(session):
    code = ("import signal\ngot = []\nsignal.signal(signal.SIGALRM, lambda *a: got.append(capabilities.echo('in')))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.05)\n[capabilities.slow(5), got]")
    assert value(session, code) == [5, ["in"]]
