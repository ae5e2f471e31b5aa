"""Objects that stay where they are: clients' in code's hands, and code's in clients'."""
import asyncio
import gc
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge", "python"))

from furcalib import Handle, eventually  # noqa: E402

import furca  # noqa: E402

# In sessions: how many of its objects clients hold.
HELD = ("import gc\n"
        "sum(len(o) for o in gc.get_objects() if type(o) is dict and o and all(type(k) is str and k[:1] == 'o' and len(k) == 17 for k in o))")
THING = ("class Thing:\n"
         "    name = 'thing'\n"
         "    def __init__(self, n=1): self.n = n\n"
         "    def twice(self): return 2 * self.n\n"
         "    def make(self, n): return Thing(n)\n"
         "    def fail(self): raise KeyError('no such')\n"
         "t = Thing()\n")


class Shelf:
    """A client's object."""
    title = "shelf"

    def __init__(self):
        self.books = ["a"]

    def add(self, book):
        self.books.append(book)
        return len(self.books)


@pytest.fixture
def connected(engine):
    with furca.Engine(engine.socket) as connected:
        connected.shelf = Shelf()
        connected.capability("shelf", effect="read")(lambda: connected.keep(connected.shelf))
        connected.capability("size", effect="read")(lambda shelf: len(shelf.books))
        yield connected


def test_attributes_of_a_clients_object_are_read(connected):
    session = connected.session("attributes")
    assert session.run("s = capabilities.shelf()\n(s.title, s.books, s.add('b'), s.add('c'), s.books, hasattr(s, 'nothing'))").value == \
        ["shelf", ["a"], 2, 3, ["a", "b", "c"], False]
    assert session.read("(s.title, capabilities.size(s))").value == ["shelf", 3]
    with pytest.raises(furca.CodeError, match="_secret"):
        session.run("s._secret")


def test_attributes_and_methods_from_bash(connected):
    code = ("capability -v S shelf; [[ $S == @* ]] && echo handle\n"
            "capability $S.add b\n"
            "capability -a $S.title\n"
            "capability -a -v B $S.books; echo \"$B\"\n"
            "capability size shelf:=\"{\\\"handle\\\": \\\"$S\\\"}\"\n"
            "capability -r $S; capability $S.add c; echo status $?")
    answer = connected.bash(code, state_mode="stateless")
    assert answer.stdout == 'handle\n2\nshelf\n["a", "b"]\n2\nstatus 1\n' and "ReferenceError" in answer.stderr, answer
    assert not connected._kept._objects


def test_attributes_are_refused_where_methods_would_be(connected):
    connected.capability("pen", effect="write")(lambda: connected.keep(Shelf()))
    session = connected.session("effects")
    session.run("p = capabilities.pen()\np.title")
    code = "try:\n    p.title\nexcept PermissionError:\n    print('refused')"
    assert session.read(code).stdout == "refused\n"


def test_clients_that_do_not_tell_attributes_are_not_asked(engine):
    client = engine.client()
    client.register({"open": lambda: Handle(b"book")})
    answer = client.python("b = capabilities.open()\nprint(type(b.index).__name__)", state_mode="stateless")
    assert answer["stdout"] == "Capability\n" and [p["name"] for p in client.capability_requests] == ["open"]


def test_an_object_of_code_is_used_by_a_capability(connected):
    def use(thing):
        made = thing.make(21)
        assert isinstance(thing, furca.Object) and isinstance(made, furca.Object)
        with pytest.raises(furca.CodeError, match="no such") as raised:
            thing.fail()
        assert raised.value.result["type"] == "KeyError" and "in fail" in raised.value.result["traceback"]
        assert not hasattr(thing, "nothing")
        return [thing.name, thing.twice(), made.twice(), made.n]

    connected.capability("use", effect="read")(use)
    connected.capability("apply", effect="read")(lambda function, *args: function(*args))
    connected.capability("back", effect="read")(lambda *things: list(things))
    session = connected.session("objects")
    session.run(THING)
    assert session.run("capabilities.use(t)").value == ["thing", 2, 42, 21]
    assert session.read("capabilities.use(t)").value == ["thing", 2, 42, 21]
    assert session.run("capabilities.apply(lambda a, b: a + b, 1, 2)").value == 3
    assert session.run("a, b = capabilities.back(t, [Thing])\n(a is t, b[0] is Thing)").value == [True, True]
    assert session.run("capabilities.map('apply', [[len, 'abc'], [len, 'x'], [t.twice]])").value == [3, 1, 2]
    assert connected.python(THING + "capabilities.use(t)", state_mode="stateless").value == ["thing", 2, 42, 21]


def test_in_coroutines_and_threads(connected):
    connected.capability("twice", effect="read")(lambda thing: thing.twice())
    connected.capability("call", effect="read")(lambda function, n: function(n))
    session = connected.session("many")
    session.run(THING)
    assert session.run("import asyncio\nawait asyncio.gather(*[capabilities.twice(Thing(i)) for i in range(20)])").value == [2 * i for i in range(20)]
    assert session.run("async def later(n):\n    await asyncio.sleep(0.01)\n    return n + 1\nawait capabilities.call(later, 4)").value == 5
    code = ("import threading\nout = []\nts = [threading.Thread(target=lambda i=i: out.append(capabilities.twice(Thing(i)))) for i in range(8)]\n"
            "[t.start() for t in ts]\n[t.join() for t in ts]\nsorted(out)")
    assert session.run(code).value == [2 * i for i in range(8)]


def test_an_object_may_call_capabilities_itself(connected):
    connected.capability("call", effect="read")(lambda function: function())
    connected.capability("one", effect="read")(lambda: 1)
    code = "def deep(n):\n    return capabilities.one() if n == 0 else capabilities.call(lambda: deep(n - 1)) + 1\ndeep(5)"
    assert connected.python(code, state_mode="stateless").value == 6


def test_with_the_asynchronous_client(engine):
    async def run():
        async with furca.AsyncEngine(engine.socket) as client:
            async def use(thing):
                with pytest.raises(furca.CodeError, match="no such"):
                    await thing.fail()
                return [await thing.name, await thing.twice(), await (await thing.make(4)).twice()]

            await client.register(use, effect="read")
            return (await client.python(THING + "capabilities.use(t)", state_mode="stateless")).value

    assert asyncio.run(run()) == ["thing", 2, 8]


def test_objects_end_with_what_holds_them(connected):
    held = []
    connected.capability("hold", effect="read")(held.append)
    connected.capability("look", effect="read")(lambda thing: thing.n)
    session = connected.session("ends")
    session.run(THING)
    session.run("for i in range(50): capabilities.look(Thing(i))")
    assert eventually(lambda: session.run(HELD).value == 0, 5)
    session.run("for i in range(3): capabilities.hold(Thing(i))")
    assert session.run(HELD).value == 3
    held.clear()
    gc.collect()
    assert eventually(lambda: session.run(HELD).value == 0, 5)
    session.run("capabilities.hold(t)")
    session.close()
    with pytest.raises(furca.Refused, match="does not live"):
        held[0].twice()


def test_an_object_answers_only_while_its_code_waits(connected):
    held = []
    connected.capability("hold", effect="read")(held.append)
    session = connected.session("idle")
    session.run(THING + "capabilities.hold(t)")
    with pytest.raises(furca.Refused, match="waits for a capability"):
        held[0].twice()
    connected.capability("use", effect="read")(lambda: held[0].twice())
    assert session.run("capabilities.use()").value == 2


def test_what_a_rollback_takes_back_was_never_given(connected):
    held = []
    connected.capability("hold", effect="read")(held.append)
    session = connected.session("rolled")
    session.run(THING)
    session.run("capabilities.hold(Thing(7))\nimport os; os.abort()", raise_errors=False)
    connected.capability("use", effect="read")(lambda: held[0].twice())
    with pytest.raises(furca.CodeError, match="not kept any more"):
        session.run("capabilities.use()")
    assert session.run("t.n").value == 1


def test_a_client_that_goes_lets_go(engine, connected):
    session = connected.session("gone")
    session.run(THING)
    with furca.Engine(engine.socket) as other:
        held = []
        other.capability("keepit", effect="read")(held.append)
        session.run("capabilities.keepit(t)")
        assert session.run(HELD).value == 1
    assert eventually(lambda: session.run(HELD).value == 0, 5)


def test_clients_that_do_not_take_objects_get_none(engine, connected):
    client = engine.client()
    client.register({"plain": lambda x: x})
    session = connected.session("plain")
    code = "try:\n    capabilities.plain(t)\nexcept TypeError as e:\n    print('no objects' in str(e))"
    assert session.run(THING + code).stdout == "True\n"
    assert client.capability_requests == [] and session.run(HELD).value == 0


def test_handles_of_other_clients_are_nothing(engine, connected):
    held = []
    connected.capability("hold", effect="read")(held.append)
    connected.session("mine").run(THING + "capabilities.hold(t)")
    name = held[0]._handle.data.decode()
    for handle in (name, "#0123456789abcdefa", "o1", "", "@x"):
        answer = engine.client().call("call_object", handle=handle, name="twice")
        assert answer["ok"] is False and answer["error_type"] == "validation", answer
        assert engine.client().call("release_object", handle=handle)["ok"] is False
    engine.close_clients()


@pytest.mark.parametrize("how", ["crash", "undo"])
def test_what_is_let_go_after_a_roll_back_is_told_to_its_client(connected, how):
    """It belonged to the process that had ended, and was kept until the session was closed."""
    session = connected.session("let go " + how)
    session.run("s = capabilities.shelf(); s.title")
    session.run("x = 1")
    if how == "crash":
        session.run("import os; os.abort()", raise_errors=False)
    else:
        session.undo()
    assert connected._kept._objects and session.read("del s; 1").value == 1
    session.run("y = 1")
    assert connected._kept._objects, "a copy has let it go"
    session.run("del s")
    assert eventually(lambda: not connected._kept._objects)
    session.close()
