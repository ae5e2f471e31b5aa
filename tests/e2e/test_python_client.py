"""The Python client package and its adapters, each adapter against the real package from the index."""
import asyncio
import datetime
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge", "python")
sys.path.insert(0, PACKAGE)

from furcalib import eventually, furca_program  # noqa: E402
from packages import environment  # noqa: E402

import furca  # noqa: E402
from furca.adapters import tools  # noqa: E402
from furca.adapters.executor import KEYS, SessionExecutor  # noqa: E402


@pytest.fixture
def connected(engine):
    with furca.Engine(engine.socket) as connected:
        yield connected


def test_a_stateful_call_within_a_capability_of_its_own_session_is_refused_at_once(connected):
    session, other = connected.session("outer"), connected.session("between")

    def inner(how):
        began = time.monotonic()
        try:
            if how == "through":
                return other.run("capabilities.inner('stateful')").value
            value = getattr(session, {"stateful": "run", "read_only": "read"}[how])("x").value
        except furca.Refused as e:
            return ["refused", time.monotonic() - began < 0.8, "wait for itself" in str(e)]
        return value

    connected.capability("inner", effect="write")(inner)
    session.run("x = 1")
    assert session.run("capabilities.inner('stateful')").value == ["refused", True, True]
    assert session.run("capabilities.inner('through')").value == ["refused", True, True]
    connected.capability("look", effect="read")(lambda: inner("read_only"))
    assert session.run("x = 2; capabilities.look()").value == 1


def test_handles_come_back_when_whoever_holds_them_ends(connected):
    class Thing:
        def name(self):
            return "thing"

    connected.capability("thing", effect="read")(lambda: connected.keep(Thing()))
    kept = connected._kept._objects
    session = connected.session("holder")
    session.run("a = capabilities.thing()\nb = [capabilities.thing() for _ in range(50)]")
    assert len(kept) == 51 and session.run("a.name()").value == "thing"
    assert session.read("c = capabilities.thing()\n(a.name(), c.name())").value == ["thing", "thing"]
    assert eventually(lambda: len(kept) == 51, 5)  # the copy's own went with it
    connected.python("import os\nx = capabilities.thing()\nos._exit(0)", state_mode="stateless", raise_errors=False)
    assert eventually(lambda: len(kept) == 51, 5)
    session.run("del b; import gc; gc.collect()")
    assert eventually(lambda: len(kept) == 1, 5)
    session.close()
    assert eventually(lambda: len(kept) == 0, 5)


def test_a_call_that_only_waits_its_turn_is_not_taken_for_one_that_waits_for_itself(connected):
    go = threading.Event()
    connected.capability("held", effect="read")(lambda: go.wait(20))
    session = connected.session("queue")
    first = session.submit("capabilities.held()")
    time.sleep(0.3)
    second = session.submit("'ran'")
    time.sleep(1.5)  # longer than the moment after which a client that says nothing is suspected
    assert not second.done()
    go.set()
    assert first.result(20).value is True and second.result(20).value == "ran"


def test_sessions_keep_and_read_only_leaves_no_trace(connected):
    audit = connected.session("audit")
    audit.run("rows = list(range(10))")
    assert audit.read("rows.clear(); len(rows)").value == 0
    assert audit.read("len(rows)").value == 10
    assert [s["session_name"] for s in connected.sessions()] == ["audit"]
    assert "rows" in [n["name"] for n in audit.inspect()["names"]]
    assert audit.close()


def test_a_session_is_closed_by_its_context(connected):
    with connected.session("short") as short:
        short.run("x = 1")
    assert connected.sessions() == []


def test_answers_are_readable_by_key_and_attribute(connected):
    result = connected.python("print('hello'); 6 * 7")
    assert (result.value, result["result"], result.text, result.stdout, result.state) == (42, 42, "42", "hello\n", "committed")
    assert result and "hello" in str(result)
    assert result._repr_mimebundle_()["text/plain"] == "hello\n42"
    with pytest.raises(AttributeError):
        result.nothing


@pytest.mark.parametrize("value", [None, True, -1, 2 ** 80, -2 ** 70, 1.5, "grüße", b"\0\xff", [1, [2, {"a": None}]], {"1": 2}])
def test_values_come_back_as_they_were(connected, value):
    assert connected.python(repr(value), state_mode="stateless").value == value


def test_errors_are_raised_by_kind(connected):
    with pytest.raises(furca.CodeError) as caught:
        connected.python("1 / 0")
    assert "ZeroDivisionError" in str(caught.value) and caught.value.result.exit_code == 1
    with pytest.raises(furca.Refused) as refused:
        connected.python("1", state_mode="read_only")
    assert "without specifying a session" in str(refused.value) and refused.value.suggestion
    with pytest.raises(furca.TimedOut):
        connected.python("while True: pass", timeout_s=0.3)
    with pytest.raises(furca.ProcessLost) as lost:
        connected.python("import os; os.abort()", state_mode="stateless")
    assert lost.value.error_type == "crashed"


def test_errors_can_be_data(connected):
    result = connected.python("1 / 0", raise_errors=False)
    assert not result and result.error_type == "exception"


def test_what_is_no_result_is_raised_in_any_case(engine):
    """It was a ValueError, for a refusal has no such value; and a branch that had been refused was returned as a session."""
    with furca.Engine(engine.socket, raise_errors=False) as quiet:
        nobody = quiet.session("nobody")
        assert not nobody.undo()
        for attempt in (nobody.inspect, lambda: nobody.branch("b")):
            with pytest.raises(furca.Refused, match="nobody"):
                attempt()

        async def main():
            async with furca.AsyncEngine(engine.socket, raise_errors=False) as other:
                with pytest.raises(furca.Refused, match="nobody"):
                    await other.session("nobody").inspect()
        asyncio.run(main())


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_tuples_are_keys_of_maps(engine, connected):
    """A list cannot be one: the client took the answer for no message, and gave its connection up."""
    value = {(1, ("a", 2)): {(3,): 4}, "x": 5}
    assert connected.python("{(1, ('a', 2)): {(3,): 4}, 'x': 5}").value == value
    seen = []
    connected.capability("take", effect="read")(lambda v: seen.append(v) or v)
    assert connected.python("capabilities.take({(1, ('a', 2)): {(3,): 4}, 'x': 5}) == {(1, ('a', 2)): {(3,): 4}, 'x': 5}").value is True
    assert seen == [value]

    async def main():
        async with furca.AsyncEngine(engine.socket) as other:
            assert (await other.python("{(1, 2): 3}")).value == {(1, 2): 3}
    asyncio.run(main())


BIG = {"bytes": lambda: b"a" * (70 << 20), "values": lambda: [0] * 5_000_000, "deep": lambda: nested(300), "a little too deep": lambda: nested(126),
       "maps": lambda: [{"a": 1}] * 1_500_000}


@pytest.mark.parametrize("make", BIG.values(), ids=BIG)
def test_what_is_too_large_for_the_wire_is_an_error_of_that_call(engine, connected, make):
    """The engine closes a connection on which it comes."""
    connected.capability("big", effect="read")(make)
    told = connected.python("try: capabilities.big()\nexcept ValueError as e: r = str(e)\nr")
    assert "wire" in told.value, told.value
    with pytest.raises(ValueError, match="wire"):
        connected.call_function("f", make())

    async def main():
        async with furca.AsyncEngine(engine.socket) as other:
            async def big():
                return make()
            await other.register(big, "big_async", effect="read")
            told = await other.python("try: capabilities.big_async()\nexcept ValueError as e: r = str(e)\nr")
            assert "wire" in told.value, told.value
            with pytest.raises(ValueError, match="wire"):
                await other.call("call_function", name="f", args=[make()])
            assert (await other.python("1")).value == 1
    asyncio.run(main())
    assert connected.python("1").value == 1


def test_how_deep_values_cross(connected):
    """None of them may end the connection."""
    connected.capability("deep", effect="read")(nested)
    connected.capability("take", effect="read")(lambda v: 1)
    for depth in range(116, 132):
        for code in ("capabilities.deep(%d)" % depth, "v = 0\nfor _ in range(%d): v = [v]\ncapabilities.take(v)" % depth):
            result = connected.python(code, raise_errors=False)
            assert result or "nested" in result.error, (depth, result.error)
    assert connected.python("1").value == 1


def test_an_error_that_has_no_text_is_answered(connected):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError()

    @connected.capability("odd", effect="read")
    def odd():
        raise Odd()
    told = connected.python("try: capabilities.odd()\nexcept Exception as e: r = type(e).__name__\nr", timeout_s=20)
    assert told.value == "Odd"


def test_an_error_of_on_output_is_the_callers(engine, connected):
    def fail(stream, text):
        raise BrokenPipeError("gone")
    with pytest.raises(BrokenPipeError, match="gone"):
        connected.python("print(1)\n5", on_output=fail)

    async def main():
        async with furca.AsyncEngine(engine.socket) as other:
            with pytest.raises(BrokenPipeError, match="gone"):
                await other.python("print(1)\n5", on_output=fail)
            assert (await other.python("1")).value == 1
    asyncio.run(main())
    assert connected.python("1").value == 1


def test_times_cross(connected):
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
    seen = []
    connected.capability("when", effect="read")(lambda t: seen.append(t) or t)
    code = "import datetime\nt = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)\n"
    assert connected.python(code + "capabilities.when(t) == t").value is True
    assert seen == [at]


def test_a_forked_child_is_told_whose_the_connection_is(engine):
    """It waited for ever, and what it sent ended its parent's connection."""
    with furca.Engine(engine.socket) as connected:
        assert connected.python("1").value == 1
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            told = b"answered"
            try:
                connected.python("2")
            except furca.EngineGone as gone:
                told = str(gone).encode()
            connected.close()
            os.write(into, told)
            os._exit(0)
        os.close(into)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert b"forked" in os.read(out, 999)
        os.close(out)
        assert connected.python("3").value == 3


def test_unknown_methods_are_the_protocols_error(connected):
    with pytest.raises(furca.ProtocolError):
        connected.call("exceute")


def test_what_has_no_form_is_a_type_error_and_harms_nothing(connected):
    with pytest.raises(TypeError, match="set"):
        connected.execute("1", env_vars={1, 2})
    assert connected.python("1").value == 1


def test_output_streams(connected):
    seen = []
    connected.python("import sys\nfor i in range(3): print(i, flush=True)\nprint('e', file=sys.stderr)",
                     on_output=lambda stream, text: seen.append((stream, text)))
    assert "".join(t for s, t in seen if s == "stdout") == "0\n1\n2\n"
    assert "".join(t for s, t in seen if s == "stderr") == "e\n"


def test_cancel_ends_a_call(connected):
    call = connected.submit("import time\nwhile True: time.sleep(0.05)", raise_errors=False)
    time.sleep(0.3)
    assert call.cancel()
    assert call.result(20).error_type == "interrupted"
    assert call.cancel() is False


def test_threads_share_a_connection(connected):
    results = {}

    def work(i):
        results[i] = connected.python("%d * 2" % i, session="s%d" % (i % 4)).value

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: 2 * i for i in range(16)}


def test_capabilities_are_called_from_sessions(connected):
    @connected.capability("contacts.lookup", effect="read")
    def lookup(name, limit=1):
        if name == "nobody":
            raise KeyError(name)
        return {"name": name, "limit": limit, "nested": connected.python("1 + 1", session="other").value}

    s = connected.session("caps")
    assert s.run("capabilities.contacts.lookup('Ada', limit=3)").value == {"name": "Ada", "limit": 3, "nested": 2}
    assert s.read("capabilities.contacts.lookup('Ada')['limit']").value == 1
    with pytest.raises(furca.CodeError, match="KeyError"):
        s.run("capabilities.contacts.lookup('nobody')")


def test_objects_stay_here_and_are_called_by_handle(connected):
    book = ["a"]
    connected.capability("shelf.open", effect="read")(lambda: connected.keep(book))
    connected.capability("shelf.size", effect="read")(len)
    s = connected.session("handles")
    assert s.run("book = capabilities.shelf.open()\nbook.append('b')\n[book.index('b'), capabilities.shelf.size(book)]").value == [1, 2]
    assert book == ["a", "b"]
    with pytest.raises(furca.CodeError, match="_secret"):
        s.run("getattr(book, '_secret')()")
    s.run("import gc; del book; gc.collect()")
    assert eventually(lambda: not connected._kept._objects, 5)


def test_a_function_may_use_what_an_allowed_capability_gave(connected):
    connected.capability("shelf.open", effect="read")(lambda: connected.keep(["a"]))
    connected.add_function("shelf", "def shelf():\n    return capabilities.shelf.open().index('a')", capabilities=["shelf.open"])
    for mode in ("stateful", "stateless"):
        assert connected.call_function("shelf", state_mode=mode).value == 0


def test_writing_capabilities_are_refused_to_read_only_calls(connected):
    sent = []
    connected.capability("mail.send", effect="write")(sent.append)
    s = connected.session("mail")
    s.run("capabilities.mail.send('a')")
    with pytest.raises(furca.ExecutionError):
        s.read("capabilities.mail.send('b')")
    assert sent == ["a"]


@pytest.fixture
def private_options(tmp_path, monkeypatch):
    monkeypatch.setenv("FURCA_PROGRAM", furca_program())
    return ["--state-dir", str(tmp_path / "state"), "--workdir", str(tmp_path)]


def gone(pid):
    """Whether a process has ended; a zombie that nobody waits for has."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_private_engine_starts_and_ends(private_options):
    with furca.Engine(start=True, options=private_options) as private:
        assert private.python("21 * 2").value == 42
        pid = private._private.process.pid
    assert gone(pid)


def test_a_private_engine_ends_with_its_process(private_options):
    code = """
        import os, sys
        import furca
        engine = furca.Engine(start=True, options=%r)
        engine.python("1")
        print(engine._private.process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """ % (private_options,)
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=dict(os.environ, PYTHONPATH=PACKAGE), stdout=subprocess.PIPE, text=True)
    assert eventually(lambda: gone(int(out.stdout)), 20), "the engine outlived the process that started it"


def test_a_private_engine_of_the_asynchronous_client(private_options):
    async def main():
        async with furca.AsyncEngine(start=True, options=private_options) as private:
            assert (await private.python("21 * 2")).value == 42

    asyncio.run(main())


def test_no_engine_is_said_plainly(tmp_path):
    with pytest.raises(furca.EngineGone, match="furca serve"):
        furca.Engine(str(tmp_path / "none"))


def test_an_engine_that_ends_fails_what_waits(new_engine):
    engine = new_engine()
    connected = furca.Engine(engine.socket)
    call = connected.submit("import time; time.sleep(60)")
    time.sleep(0.3)
    engine.process.terminate()
    with pytest.raises((furca.EngineGone, furca.ExecutionError)):
        call.result(20)
    engine.process.wait(20)
    with pytest.raises(furca.EngineGone):
        connected.python("1")
    connected.close()


def test_asynchronous_client(engine):
    async def main():
        async with furca.AsyncEngine(engine.socket) as connected:
            values = await asyncio.gather(*(connected.python("%d + 1" % i, session="a%d" % (i % 3)) for i in range(9)))
            assert [r.value for r in values] == list(range(1, 10))

            async def slow(x):
                await asyncio.sleep(0.05)
                return x * 2

            await connected.register(slow, "slow", effect="read")
            assert (await connected.python("capabilities.slow(21)")).value == 42
            s = connected.session("async")
            await s.run("x = [1]")
            assert (await s.read("x.append(2); x")).value == [1, 2]
            assert (await s.read("x")).value == [1]
            with pytest.raises(furca.CodeError):
                await s.run("nope")
            assert "x" in [n["name"] for n in (await s.inspect())["names"]]

    asyncio.run(main())


def test_cancelling_a_task_interrupts_the_code(engine):
    async def main():
        async with furca.AsyncEngine(engine.socket) as connected:
            task = asyncio.ensure_future(connected.python("import time\nwhile True: time.sleep(0.05)", session="loop"))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The session is free again: the code was interrupted, not left running.
            assert (await asyncio.wait_for(connected.python("2 + 2", session="loop"), 20)).value == 4

    asyncio.run(main())


def test_session_executor(engine):
    async def main():
        async with furca.AsyncEngine(engine.socket) as connected:
            executor = SessionExecutor(connected)
            first = await executor.execute("ledger = [3, 1, 2]", "python", state_mode="stateful", session_name="audit")
            assert set(KEYS) <= set(first) and first["session_created"] is True and first["error"] is None
            look = await executor.execute("ledger.sort(); ledger", "python", "read_only", first["session_id"])
            assert (look["result"], look["state_mode"], look["session_name"]) == ([1, 2, 3], "read_only", "audit")
            assert (await executor.execute("ledger", session_name="audit"))["result"] == [3, 1, 2]
            refused = await executor.execute("1", state_mode="read_only")
            assert refused["error_type"] == "validation" and refused["suggestion"]
            shell = await executor.execute("echo $((6 * 7))", language="bash")
            assert (shell["stdout"], shell["state_mode"]) == ("42\n", "stateless")
            assert [s["session_name"] for s in await executor.list_sessions()] == ["audit"]

    asyncio.run(main())


def test_tool_dispatcher(connected):
    tool = tools.ExecuteCode(connected)
    answer = tool.openai_message({"id": "c1", "function": {"name": "execute_code", "arguments": '{"code": "print(6 * 7)", "language": "python"}'}})
    assert answer["tool_call_id"] == "c1" and "42" in answer["content"]
    block = tool.anthropic_block({"id": "t1", "input": {"code": "1 / 0", "language": "python"}})
    assert block["is_error"] and "ZeroDivisionError" in block["content"]
    assert "suggestion:" in tool({"code": "1", "language": "python", "state_mode": "read_only"})
    assert "error (validation)" in tool('{"code": "1", "lang": "python"}')
    assert "error" in tool("not json")
    assert tools.dispatch(connected, "other_tool", {}) is None
    assert tool({"code": "x = 1", "language": "python", "session_name": "t"}) == "ok, no output"
    assert "[session rolled back]" in tool({"code": "import os; os.abort()", "language": "python", "session_name": "t"})


def test_schemas_have_the_contracts_arguments():
    for style in ("openai", "openai_responses", "anthropic", "mcp"):
        assert '"execute_code"' in __import__("json").dumps(tools.schema(style))
    with pytest.raises(ValueError):
        tools.schema("other")


# The real packages, from the index: their versions stand in requirements.txt.


def with_package(engine, *requirements, code):
    """Runs code with the packages and the client on its path, and `path` as the engine's socket."""
    env = environment(*requirements)
    program = "path = %r\nimport furca\n%s" % (engine.socket, textwrap.dedent(code))
    # A file, because smolagents reads the source of its tools.
    script = os.path.join(os.path.dirname(engine.socket), "script.py")
    with open(script, "w") as f:
        f.write(program)
    done = subprocess.run([sys.executable, script], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_openai_package(engine):
    with_package(engine, "openai", code="""
        from openai.types.chat import ChatCompletionMessageToolCall, ChatCompletionToolParam
        from openai.types.chat.chat_completion_message_tool_call import Function
        from furca.adapters import tools
        assert set(tools.schema("openai")) <= set(ChatCompletionToolParam.__annotations__) | {"function"}
        call = ChatCompletionMessageToolCall(id="c1", type="function", function=Function(name="execute_code",
            arguments='{"code": "sum(range(10))", "language": "python"}'))
        with furca.Engine(path) as engine:
            answer = tools.ExecuteCode(engine).openai_message(call)
        assert answer == {"role": "tool", "tool_call_id": "c1", "content": "result: 45"}, answer
    """)


def test_anthropic_package(engine):
    with_package(engine, "anthropic", code="""
        from anthropic.types import ToolParam, ToolUseBlock
        from furca.adapters import tools
        assert set(tools.schema("anthropic")) <= set(ToolParam.__annotations__)
        block = ToolUseBlock(id="t1", type="tool_use", name="execute_code", input={"code": "sum(range(10))", "language": "python"})
        with furca.Engine(path) as engine:
            answer = tools.ExecuteCode(engine).anthropic_block(block)
        assert answer["content"] == "result: 45" and not answer["is_error"], answer
    """)


@pytest.mark.parametrize("adapter, module, package", [("langchain", "langchain_core", "langchain-core"), ("smolagents", "smolagents", "smolagents")])
def test_an_adapter_without_its_package_names_it(monkeypatch, adapter, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match="; this adapter needs it: pip install %s$" % package):
        __import__("furca.adapters." + adapter)


def test_langchain_package(engine):
    with_package(engine, "langchain-core", code="""
        from furca.adapters.langchain import execute_code_tool
        with furca.Engine(path) as engine:
            tool = execute_code_tool(engine, session_name="chain")
            tool.invoke({"code": "x = 20", "language": "python"})
            message = tool.invoke({"name": "execute_code", "args": {"code": "x + 1", "language": "python", "state_mode": "read_only"},
                                   "id": "1", "type": "tool_call"})
            assert message.content == "result: 21" and message.artifact["result"] == 21, message
            from langchain_core.utils.function_calling import convert_to_openai_tool
            assert convert_to_openai_tool(tool)["function"]["parameters"]["required"] == ["code", "language"]
    """)


def test_langgraph_package(engine):
    """An agent as LangGraph has them: a graph of a model and a ToolNode. The model is scripted; what it is refused, it corrects."""
    with_package(engine, "langchain-core", "langgraph", code="""
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.graph import END, START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode, tools_condition
        from furca.adapters.langchain import execute_code_tool
        steps = [dict(code="rows = list(range(10))", session_name="graph"),
                 dict(code="rows.clear(); len(rows)", state_mode="read_only"),
                 dict(code="rows.clear(); len(rows)", state_mode="read_only", session_name="graph"),
                 dict(code="len(rows)", state_mode="read_only", session_name="graph")]

        def model(state):
            done = sum(message.type == "tool" for message in state["messages"])
            if done == len(steps):
                return {"messages": [AIMessage("done")]}
            call = {"name": "execute_code", "args": {"language": "python", **steps[done]}, "id": str(done), "type": "tool_call"}
            return {"messages": [AIMessage("", tool_calls=[call])]}

        with furca.Engine(path) as engine:
            graph = StateGraph(MessagesState)
            graph.add_node("model", model)
            graph.add_node("tools", ToolNode([execute_code_tool(engine)]))
            graph.add_edge(START, "model")
            graph.add_conditional_edges("model", tools_condition)
            graph.add_edge("tools", "model")
            messages = graph.compile().invoke({"messages": [HumanMessage("look")]})["messages"]
        tools = [message for message in messages if message.type == "tool"]
        assert [message.artifact["ok"] for message in tools] == [True, False, True, True], tools
        assert "session_name" in tools[1].content and tools[2].content.startswith("result: 0") and tools[3].content.startswith("result: 10"), tools
        assert messages[-1].content == "done"
    """)


def test_smolagents_package(engine):
    with_package(engine, "smolagents", code='''
        from smolagents import CodeAgent, Model, ChatMessage, tool
        from furca.adapters.smolagents import FurcaExecutor

        @tool
        def lookup(name: str) -> str:
            """Looks a name up.

            Args:
                name: whom
            """
            return name.lower() + "@example.org"

        steps = ["x = lookup('Ada')\\nprint(x)", "import os\\nos.abort()", "final_answer(x)"]

        class Scripted(Model):
            def generate(self, messages, **kwargs):
                return ChatMessage(role="assistant", content="Thought: go\\n<code>\\n%s\\n</code>" % steps.pop(0))

        with furca.Engine(path) as engine:
            executor = FurcaExecutor(engine)
            agent = CodeAgent(tools=[lookup], model=Scripted(model_id="scripted"), executor=executor, verbosity_level=0)
            answer = agent.run("find Ada")
            # The step that crashed cost the step, not the state.
            assert answer == "ada@example.org", answer
            agent.cleanup()
    ''')
