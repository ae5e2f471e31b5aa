"""A process that runs already makes itself a session: furca.attach() and the method attach_session."""
import os
import signal
import socket
import textwrap

import pytest

from attachlib import Waiting, agent
from furcalib import eventually

import furca


def test_reads_run_in_a_clone_and_stateful_calls_in_place(engine):
    assert agent(engine, """
        agent = furca.attach()
        read = agent.read("rows.clear(); rows.append(os.getpid()); print('in the copy'); len(rows)")
        print(read.value, read["stdout"], read["state"], len(rows), read["isolation"]["memory"] != "none")
        run = agent.run("rows.append(os.getpid()); print('in place'); more = 1; rows[-1]")
        print(run.value == os.getpid() == rows[-1], run["stdout"], run["state"], more, run["changes"]["added"])
        print(agent.read("len(rows)").value, agent.key, agent.engine.sessions()[0]["attached"])
    """) == ["1 in the copy", " unchanged 10 True", "True in place", " committed 1 ['more']", "11 0 True"]


def test_code_that_reads_its_own_session_is_refused_too(engine):
    """A copy is made between two of its calls, so what waits for one within a call waited until the time limit."""
    engine.client().call("add_function", name="one", language="python", source="def one(n): return n")
    assert agent(engine, """
        agent = furca.attach()
        def told(result):
            return result.error_type, "wait" in (result.error or ""), result["duration_ms"] < 4000
        code = "functions.one.read_only(1, session=%d)" % agent.key
        print(told(agent.run(code, timeout_s=8, raise_errors=False)))
        agent.engine.capability("back", effect="read")(lambda: told(agent.engine.submit("1", state_mode="read_only", session=agent.key, raise_errors=False).result()))
        print(agent.run("capabilities.back()", timeout_s=8, raise_errors=False).value)
        print(agent.run("functions.one.stateless(3)").value, agent.read("2").value)
    """) == ["('exception', True, True)", "['validation', True, True]", "3 2"]
    engine.client().call("remove_function", name="one")


def test_it_starts_an_engine_of_its_own_where_none_runs():
    assert agent(None, """
        with furca.attach() as agent:
            print(agent.read("rows.pop(); len(rows)").value, len(rows))
        print(agent.attached(), threading.active_count())
    """) == ["9 10", "False 1"]


def test_all_threads_are_in_the_copy_numpy_s_too(engine):
    pytest.importorskip("numpy")
    assert agent(engine, """
        import numpy as np
        a = np.random.rand(400, 400)
        whole = float((a @ a).sum())  # BLAS has its threads now
        stop, ticks = threading.Event(), [0]
        def tick():
            while not stop.is_set():
                ticks[0] += 1
                stop.wait(0.001)
        thread = threading.Thread(target=tick)
        thread.start()
        agent = furca.attach()
        same = [abs(agent.read("float((a @ a).sum())").value - whole) < 1e-6 * whole for _ in range(3)]
        inside = agent.read("len(os.listdir('/proc/self/task'))").value
        print(same, inside >= len(os.listdir("/proc/self/task")) - 1, inside > 2)
        print(agent.read("a[:] = 0; float(a.sum())").value, float((a @ a).sum()) == whole)
        before = ticks[0]
        time.sleep(0.1)
        print(ticks[0] > before)
        stop.set()
        thread.join()
    """) == ["[True, True, True] True True", "0.0 True", "True"]


def test_nothing_else_of_the_process_is_disturbed(engine):
    assert agent(engine, """
        seen = []
        signal.signal(signal.SIGCHLD, lambda *_: seen.append("child"))
        signal.signal(signal.SIGINT, lambda *_: seen.append("interrupt"))
        handlers = {n: signal.getsignal(n) for n in range(1, 32)}
        streams = sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.argv, list(sys.path), dict(os.environ)
        low = {fd: os.readlink("/proc/self/fd/%s" % fd) for fd in os.listdir("/proc/self/fd") if int(fd) < 3}
        modules = set(sys.modules)
        agent = furca.attach()
        for _ in range(3):
            agent.read("os.system('exit 1'); signal.signal(signal.SIGINT, signal.SIG_DFL)")
        agent.run("print('for the call'); import sys; sys.stderr.write('also')")
        print(streams == (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.argv, list(sys.path), dict(os.environ)))
        print(low == {fd: os.readlink("/proc/self/fd/%s" % fd) for fd in low}, seen)
        print(handlers == {n: signal.getsignal(n) for n in range(1, 32)}, "_furca_host" in sys.modules)
        try:
            print(os.wait())
        except ChildProcessError:
            print("no child")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and open("/proc/self/task/%d/children" % os.getpid()).read():
            time.sleep(0.05)
        print([open("/proc/%s/stat" % pid).read() for pid in open("/proc/self/task/%d/children" % os.getpid()).read().split()])
        agent.detach()
        os.kill(os.getpid(), 58)  # a late interrupt
        os.kill(os.getpid(), signal.SIGINT)
        print(seen)
    """) == ["True", "True []", "True False", "no child", "[]", "['interrupt']"]


def test_other_threads_keep_their_streams_and_input_is_empty(engine):
    assert agent(engine, """
        agent = furca.attach()
        go, told = threading.Event(), threading.Event()
        def other():
            go.wait()
            print("of the program", flush=True)
            told.set()
        threading.Thread(target=other).start()
        run = agent.run("go.set(); told.wait(); print('of the call')\\ntry: input()\\nexcept EOFError: print('empty')\\nkept = sys.stdout")
        print(repr(run["stdout"]))
        print("through what was kept", file=kept)
    """) == ["of the program", "'of the call\\nempty\\n'", "through what was kept"]


def test_errors_and_values_of_calls_in_place(engine):
    assert agent(engine, """
        agent = furca.attach()
        bad = agent.run("x = 1\\n1/0", raise_errors=False)
        print(bad["error_type"], bad["state"], x, "ZeroDivisionError" in bad["error"], "_attach" in bad["error"])
        print(agent.run("import asyncio; await asyncio.sleep(0, 5)").value, agent.run("display({'a': 1}); {'k': (1, 2)}").value)
        ended = agent.run("sys.exit(3)", raise_errors=False)
        print(ended["error_type"], ended["exit_code"], agent.attached())
        print(agent.inspect(name="rows")["names"][0]["type"], len(rows))
    """) == ["exception committed 1 True False", "5 {'k': [1, 2]}", "exit 3 True", "list 10"]


def test_a_call_in_place_is_interrupted_and_the_process_goes_on(engine):
    assert agent(engine, """
        agent = furca.attach()
        began = time.monotonic()
        late = agent.run("y = 1\\ntime.sleep(60)", timeout_s=0.5, raise_errors=False)
        print(late["error_type"], late["state"], y, time.monotonic() - began < 20)
        late = agent.read("time.sleep(60)", timeout_s=0.5, raise_errors=False)
        print(late["error_type"], late["state"], agent.read("len(rows)").value)
    """) == ["timeout committed 1 True", "timeout unchanged 10"]


def test_one_that_takes_no_interrupt_is_let_go_and_lives_on(new_engine, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"grace_s": 0.3}')
    engine = new_engine("--config", str(config))
    lines = agent(engine, """
        agent = furca.attach()
        def stubborn():
            try:
                sum(range(3 * 10 ** 8))  # in C, which sees no interrupt before its end
            except KeyboardInterrupt:
                pass
        late = agent.run("stubborn(); rows.append('to its end')", timeout_s=0.3, raise_errors=False)
        print(late["error_type"], late["state"], "let go" in late["error"], agent.attached(), rows[-1])
        try:
            agent.read("1")
        except furca.FurcaError as e:
            print("refused")
    """)
    assert lines == ["timeout lost True False to its end", "refused"]


def test_a_crash_in_a_read_costs_the_copy_only(engine):
    assert agent(engine, """
        agent = furca.attach()
        dead = agent.read("os.abort()", raise_errors=False)
        print(dead["error_type"], dead["state"], agent.read("len(rows)").value)
    """)[0] == "crashed unchanged 10"


def test_capabilities_are_called_from_copies_and_in_place(engine):
    assert agent(engine, """
        agent = furca.attach()
        @agent.engine.capability("twice", effect="read")
        def twice(x):
            return 2 * x
        @agent.engine.capability("note", effect="write")
        def note(x):
            rows.append(x)
        print(agent.read("capabilities.twice(21)").value, agent.run("capabilities.note(7)")["state"], rows[-1])
        print(agent.read("capabilities.note(8)", raise_errors=False)["ok"], rows[-1])
    """) == ["42 committed 7", "False 7"]


def test_what_cannot_be_had_is_refused_with_a_reason(engine):
    lines = agent(engine, """
        agent = furca.attach()
        def told(fn):
            try:
                fn()
            except Exception as e:
                print(type(e).__name__, str(e).splitlines()[0])
        told(lambda: furca.attach())
        told(lambda: agent.undo())
        told(lambda: agent.branch("b"))
        told(lambda: agent.run("1", on_error="rollback"))
        told(lambda: furca.attach(furca.Engine()))
        thread = threading.Thread(target=lambda: told(lambda: agent.serve(0)))
        thread.start(); thread.join()
        print(agent.run("try: agent.read('1')\\nexcept furca.FurcaError as e: print(e)")["stdout"].strip())
        pid = os.fork()
        if pid == 0:
            told(lambda: agent.serve(0))
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert len(lines) == 8
    assert "attached already" in lines[0]
    assert all("cannot be kept" in line for line in lines[1:3]) and "cannot be rolled back" in lines[3]
    assert "attached already" in lines[4] and "main thread" in lines[5]
    assert "wants to wait for" in lines[6] and "not attached" in lines[7]


def test_what_cannot_be_cloned_is_said_and_the_next_read_works(engine):
    lines = agent(engine, """
        import ctypes
        agent = furca.attach()
        libc = ctypes.CDLL(None)
        timer = ctypes.c_void_p()
        assert libc.timer_create(0, None, ctypes.byref(timer)) == 0
        refused = agent.read("1", raise_errors=False)
        print(refused["error_type"], refused["ok"], bool(refused["suggestion"]))
        assert libc.timer_delete(timer) == 0
        print(agent.read("len(rows)").value)
    """)
    assert lines == ["isolation False True", "10"]


def test_another_client_reads_and_runs_while_the_process_serves(engine):
    with Waiting(engine) as process, furca.Engine(engine.socket) as other:
        session = other.session("agent")
        assert session.read("rows.clear(); os.getpid()").value == process.pid
        assert session.run("rows.append(10); len(rows)").value == 11
        assert session.read("len(rows)").value == 11
        assert session.close()
        assert process.wait(20) == 0
        assert other.sessions() == []


def test_an_event_loop_serves_it(engine):
    serve = textwrap.dedent("""
        import asyncio
        async def main():
            asyncio.get_running_loop().add_reader(agent.fileno(), agent.serve, 0)
            while agent.attached():
                await asyncio.sleep(0.02)
        asyncio.run(main())
    """)
    with Waiting(engine, serve=serve) as process, furca.Engine(engine.socket) as other:
        session = other.session("agent")
        assert session.read("import asyncio; await asyncio.sleep(0, len(rows))").value == 10
        assert session.run("rows.append(1); len(rows)").value == 11
        session.close()
        assert process.wait(20) == 0


def test_the_session_ends_with_the_process_and_the_process_not_with_the_engine(new_engine):
    engine = new_engine()
    with Waiting(engine) as process, furca.Engine(engine.socket) as other:
        assert other.session("agent").read("1").value == 1
        process.kill()
        process.wait()
        assert eventually(lambda: other.sessions() == [], 10)
    with Waiting(engine) as process:
        os.kill(engine.pid, signal.SIGKILL)
        assert process.wait(20) == 0, "it goes on after the engine's end"


def test_it_can_attach_again(engine):
    assert agent(engine, """
        for n in range(3):
            agent = furca.attach(name="a%d" % n)
            print(agent.read("len(rows)").value, agent.run("rows.append(1); capabilities is not None").value)
            agent.detach()
        print(len(rows))
    """) == ["10 True", "11 True", "12 True", "13"]


def test_a_second_process_gets_a_place_of_its_own(engine):
    with Waiting(engine), furca.Engine(engine.socket) as other:
        lines = agent(engine, """
            try:
                furca.attach(name="agent")
            except furca.Refused as e:
                print(e.result["suggestion"])
            agent = furca.attach()
            try:
                with furca.attach() as second: pass
            except furca.FurcaError as e:
                print("twice")
        """)
        assert lines == ["Use session_name='agent-2', or close that session first.", "twice"]
        assert eventually(lambda: [s["session_name"] for s in other.sessions()] == ["agent"], 10)


def test_a_request_without_a_channel_is_refused(engine, client):
    answer = client.call("attach_session", session_name="x")
    assert answer["ok"] is False and "channel" in answer["error"]
    assert client.call("attach_session", channel=1)["error_type"] == "validation"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, furca.Engine(engine.socket, frames=True, raise_errors=False) as other:
        other._start("attach_session", {"channel": furca._wire.Descriptor(), "session_name": "x"}, descriptor=theirs.detach())._future.result(10)
        ours.close()
        assert eventually(lambda: other.sessions() == [], 10), "a process that closes its channel is no session"
