"""What a call that dies, hangs or is taken back costs: the call, not the session."""
import os
import signal
import time

import pytest

from furcalib import Engine, eventually, processes


def stateful(client, code, **args):
    return client.python(code, state_mode="stateful", **args)


DEATHS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "abort": ("import os; os.abort()", "crashed"),
    "exit": ("import os; os._exit(3)", "crashed"),
    "kill": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
    "terminate": ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "killed"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_death_costs_the_call_only(client, name):
    code, kind = DEATHS[name]
    stateful(client, "x = [1]", session_name="s")
    stateful(client, "x.append(2)", session_name="s")
    dead = stateful(client, "print('before', flush=True)\nx.append(3)\n" + code, session_name="s")
    assert (dead["ok"], dead["error_type"], dead["state"]) == (False, kind, "rolled_back")
    assert dead["stdout"] == "before\n"
    assert "rolled back" in dead["error"]
    assert stateful(client, "x", session_name="s")["result"] == [1, 2]


COUNTED = """
_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
_n = sum(1 for one in data if one is not None)
(_n, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - _before)
"""


def counted(client, **args):
    """A call that writes to some 100 pages, for it counts references, and the page faults it had. After a pause, for the last commit to stand."""
    time.sleep(0.05)
    n, faults = stateful(client, COUNTED, session_name="s", **args)["result"]
    assert n == 24_000
    return faults


def test_a_session_takes_the_faults_of_its_next_call_while_idle(client):
    stateful(client, "import resource; data = [object() for i in range(24_000)]", session_name="s")
    assert counted(client) > 80
    assert eventually(lambda: counted(client) < 20, 20)
    # A death leaves the snapshot, which has to learn it anew.
    assert stateful(client, "import os; os._exit(1)", session_name="s")["state"] == "rolled_back"
    assert eventually(lambda: counted(client) < 20, 20)


def huge_kb(client):
    text = stateful(client, "open('/proc/self/smaps_rollup').read()", session_name="s")["result"]
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("AnonHugePages:")))


def test_a_session_joins_its_huge_pages_again_while_idle(client):
    """A call that writes all reference counts leaves small pages, since the snapshot has the huge ones."""
    stateful(client, "data = {i: [i, str(i)] for i in range(600_000)}", session_name="s")
    before = huge_kb(client)
    if before < 50_000:
        pytest.skip("no huge pages on this machine")
    time.sleep(0.1)
    total = stateful(client, "total = sum(len(both) for both in data.values())\ntotal", session_name="s")["result"]
    assert total == 1_200_000
    split = huge_kb(client)
    assert split < before / 2

    def joined():
        stateful(client, "last = %d" % time.monotonic_ns(), session_name="s")
        time.sleep(0.2)
        return huge_kb(client) > (before + split) / 2

    assert eventually(joined, 60)
    assert stateful(client, "sum(len(both) for both in data.values())", session_name="s")["result"] == total


def test_many_deaths_in_a_row(client):
    stateful(client, "n = 0", session_name="s")
    for i in range(40):
        assert stateful(client, "n += 1; n", session_name="s")["result"] == i + 1
        assert stateful(client, "n = -1; import os; os._exit(1)", session_name="s")["state"] == "rolled_back"


def test_the_first_call_dies(client):
    dead = stateful(client, "import os; os._exit(1)", session_name="s")
    assert dead["state"] == "rolled_back"
    assert stateful(client, "x = 1; x", session_name="s")["result"] == 1


def test_idle_death_is_repaired(client, engine):
    pid = stateful(client, "x = 5; import os; os.getpid()", session_name="s")["result"]
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    answer = stateful(client, "x", session_name="s")
    assert (answer["result"], answer["retried"]) == (5, True)


def test_a_timeout_that_has_to_kill(client):
    stateful(client, "x = 5", session_name="s")
    code = "x = 6\nimport time\nwhile True:\n    try:\n        while True: time.sleep(0.1)\n    except BaseException: pass"
    answer = stateful(client, code, session_name="s", timeout_s=0.5)
    assert (answer["error_type"], answer["state"]) == ("timeout", "rolled_back")
    assert stateful(client, "x", session_name="s")["result"] == 5


def test_a_stopped_process_times_out(client):
    stateful(client, "x = 5", session_name="s")
    answer = stateful(client, "import os, signal; x = 6; os.kill(os.getpid(), signal.SIGSTOP)", session_name="s", timeout_s=0.5)
    assert (answer["error_type"], answer["state"]) == ("timeout", "rolled_back")
    assert stateful(client, "x", session_name="s")["result"] == 5


def test_an_interrupt_keeps_what_ran(client):
    answer = stateful(client, "x = 6\nimport time\ntime.sleep(30)", session_name="s", timeout_s=0.5)
    assert (answer["error_type"], answer["state"]) == ("timeout", "committed")
    assert stateful(client, "x", session_name="s")["result"] == 6


def test_cancel(client):
    pending = client.start("execute", language="python", state_mode="stateful", session_name="s", code="import time\ny = 1\ntime.sleep(30)")
    time.sleep(1)
    assert pending.cancel()["cancelled"] is True
    answer = pending.wait(10)
    assert answer["error_type"] == "interrupted"
    assert stateful(client, "y", session_name="s")["result"] == 1
    assert client.call("cancel", msgid=pending.msgid)["cancelled"] is False


def test_cancel_of_a_call_that_waits(client):
    first = client.start("execute", language="python", state_mode="stateful", session_name="s", code="import time; time.sleep(1.5)")
    second = client.start("execute", language="python", state_mode="stateful", session_name="s", code="z = 1")
    assert second.cancel()["cancelled"] is True
    answer = second.wait(1)
    assert (answer["error_type"], answer["state"]) == ("interrupted", "unchanged")
    assert first.wait()["ok"]
    assert not stateful(client, "z", session_name="s")["ok"]


def test_rollback_on_error(client):
    stateful(client, "x = [1]", session_name="s")
    answer = stateful(client, "x.append(2)\n1/0", session_name="s", on_error="rollback")
    assert (answer["error_type"], answer["state"]) == ("exception", "rolled_back")
    assert stateful(client, "x", session_name="s")["result"] == [1]


HINDERED = "import ctypes; ctypes.CDLL(None).timer_create(1, None, ctypes.byref(ctypes.c_void_p()))"  # no clone inherits such a timer


def test_rollback_goes_back_no_further_than_before_the_call(client):
    """It went back to the last state that could be kept, and said that this was what it had been before the call."""
    stateful(client, "x = 1", session_name="s")
    stateful(client, HINDERED + "; x = 2", session_name="s")
    answer = stateful(client, "x = 3; 1/0", session_name="s", on_error="rollback")
    assert (answer["error_type"], answer["state"]) == ("isolation", "unchanged"), answer
    assert "timer_create" in answer["error"] and "on_error" in answer["suggestion"], answer
    assert stateful(client, "x", session_name="s")["result"] == 2


def test_undo_says_when_it_went_further(client):
    stateful(client, "x = 1", session_name="s")
    for i in (2, 3):
        stateful(client, HINDERED + "; x = %d" % i, session_name="s")
    answer = client.call("undo", session_name="s")
    assert answer["ok"] and "after call 1" in answer["note"], answer
    assert stateful(client, "x", session_name="s")["result"] == 1
    stateful(client, "x = 4", session_name="s")
    assert "note" not in client.call("undo", session_name="s")


def test_undo(client):
    for i in range(4):
        stateful(client, "x = %d" % i, session_name="s")
    assert client.call("undo", session_name="s")["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 2
    assert client.call("undo", session_name="s", steps=2)["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 0
    refused = client.call("undo", session_name="s", steps=5)
    assert (refused["ok"], refused["error_type"]) == (False, "validation")
    stateful(client, "x = 9", session_name="s")
    assert client.call("undo", session_name="s")["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 0


def test_undo_to_the_beginning(client):
    stateful(client, "x = 1", session_name="s")
    assert client.call("undo", session_name="s")["ok"]
    assert stateful(client, "x", session_name="s")["error_type"] == "exception"


def test_undo_is_bounded(client):
    for i in range(12):
        stateful(client, "x = %d" % i, session_name="s")
    sessions = client.call("list_sessions")["sessions"]
    assert sessions[0]["undo_depth"] == 8
    assert client.call("undo", session_name="s", steps=8)["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 3


def test_checkpoints(client):
    stateful(client, "x = 1", session_name="s")
    assert client.call("checkpoint", session_name="s", label="one")["ok"]
    stateful(client, "x = 2", session_name="s")
    for _ in range(2):
        assert client.call("restore", session_name="s", label="one")["ok"]
        assert stateful(client, "x", session_name="s")["result"] == 1
        stateful(client, "x = 3", session_name="s")
    assert client.call("undo", session_name="s")["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 1
    refused = client.call("restore", session_name="s", label="two")
    assert (refused["ok"], refused["error_type"]) == (False, "validation")


def test_branches(client):
    stateful(client, "x = [1]", session_name="s")
    answer = client.call("branch_session", session_name="s", new_name="b")
    assert answer["ok"] and answer["session"]["session_name"] == "b"
    stateful(client, "x.append(2)", session_name="b")
    assert stateful(client, "x", session_name="s")["result"] == [1]
    assert stateful(client, "x", session_name="b")["result"] == [1, 2]
    assert stateful(client, "x = 0; import os; os._exit(1)", session_name="b")["state"] == "rolled_back"
    assert stateful(client, "x", session_name="b")["result"] == [1, 2]
    refused = client.call("branch_session", session_name="s", new_name="b")
    assert (refused["ok"], refused["error_type"]) == (False, "validation")


def test_threads_survive_a_rollback(client):
    code = ("import threading, time\nticks = [0]\n"
            "def tick():\n    while True:\n        ticks[0] += 1\n        time.sleep(0.01)\n"
            "threading.Thread(target=tick, daemon=True).start()")
    stateful(client, code, session_name="s")
    time.sleep(0.2)
    answer = stateful(client, "import os; os._exit(1)", session_name="s")
    assert answer["state"] == "rolled_back"
    answer = stateful(client, "a = ticks[0]; time.sleep(0.3); (threading.active_count(), ticks[0] > a)", session_name="s")
    assert answer["result"] == [2, True], answer


def test_a_daemon_ends_with_its_session(client, engine):
    code = ("import subprocess\np = subprocess.Popen(['setsid', 'sh', '-c', 'sleep 1000 & sleep 1000'], start_new_session=True)\np.pid")
    pid = stateful(client, code, session_name="s")["result"]
    assert os.path.exists("/proc/%d" % pid)
    assert client.call("close_session", session_name="s")["closed"]


def test_a_stateless_call_leaves_no_process(client):
    client.python("import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'])", state_mode="stateless")


def test_reads_in_parallel_while_busy(client):
    stateful(client, "x = 1", session_name="s")
    busy = client.start("execute", language="python", state_mode="stateful", session_name="s", code="import time; x = 2; time.sleep(2)")
    time.sleep(0.3)
    started = time.monotonic()
    reads = [client.start("execute", language="python", state_mode="read_only", session_name="s", code="x + %d" % i) for i in range(6)]
    assert [r.wait()["result"] for r in reads] == [1 + i for i in range(6)]
    assert time.monotonic() - started < 1.5
    assert busy.wait()["ok"]
    assert client.python("x", state_mode="read_only", session_name="s")["result"] == 2


def test_a_read_that_dies_leaves_the_session(client):
    stateful(client, "x = 1", session_name="s")
    answer = client.python("x = 2\nimport os; os._exit(1)", state_mode="read_only", session_name="s")
    assert (answer["error_type"], answer["state"]) == ("crashed", "unchanged")
    assert stateful(client, "x", session_name="s")["result"] == 1


def test_close_while_busy(client):
    busy = client.start("execute", language="python", state_mode="stateful", session_name="s", code="import time; time.sleep(60)")
    queued = client.start("execute", language="python", state_mode="stateful", session_name="s", code="1")
    time.sleep(0.7)
    assert client.call("close_session", session_name="s")["closed"]
    assert busy.wait(5)["error_type"] == "interrupted"
    assert queued.wait(5)["error_type"] == "interrupted"


def test_engine_death_ends_everything(new_engine):
    engine = new_engine()
    client = engine.client()
    stateful(client, "import subprocess; subprocess.Popen(['sleep', '1000'])", session_name="s")
    client.bash("sleep 1000 & true", state_mode="stateful", session_name="b")
    os.kill(engine.pid, signal.SIGKILL)
    engine.process.wait()


def test_numbers_are_kept_across_rollbacks(client):
    """pid, tids and /proc/self agree before and after a death, and in copies of either."""
    look = "import os, threading\n[os.getpid(), threading.get_native_id(), int(os.readlink('/proc/self'))]"
    before = stateful(client, look, session_name="s")["result"]
    time.sleep(0.3)
    assert client.python(look, state_mode="read_only", session_name="s")["result"] == before
    for _ in range(3):
        assert stateful(client, "os.kill(os.getpid(), 9)", session_name="s")["state"] == "rolled_back"
        assert stateful(client, look, session_name="s")["result"] == before
        assert client.python(look, state_mode="read_only", session_name="s")["result"] == before


def test_a_snapshot_keeps_nothing_open(client):
    """What the session closes is closed for its peers, though a snapshot of before stands by."""
    stateful(client, "import os, socket, subprocess, threading\n"
                     "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
                     "r, w = os.pipe()\nsv = socket.create_server(('127.0.0.1', 0)); port = sv.getsockname()[1]", session_name="s")
    time.sleep(0.3)
    done = stateful(client, "p.communicate(b'hi', timeout=5)[0]", session_name="s")
    assert done["result"] == b"hi", done
    assert stateful(client, "os.close(w); os.read(r, 1)", session_name="s", timeout_s=5)["result"] == b""
    assert stateful(client, "sv.close(); s2 = socket.socket(); s2.bind(('127.0.0.1', port)); s2.close(); 1", session_name="s")["result"] == 1


def test_output_finds_its_way_after_a_rollback(client):
    stateful(client, "import os\ncopy = os.dup(1)", session_name="s")
    stateful(client, "os._exit(1)", session_name="s")
    r = stateful(client, "print('a', flush=True); os.write(copy, b'b'); os.system('echo c'); None", session_name="s")
    assert r["stdout"] == "a\nbc\n", r


def test_the_next_engine_says_what_was_lost(new_engine):
    first = new_engine()
    stateful(first.client(), "x = 1", session_name="s")
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    second = new_engine("--state-dir", first.state_dir)
    client = second.client()
    answer = stateful(client, "globals().get('x')", session_name="s")
    assert answer["ok"] and answer["result"] is None and answer["session_created"]
    assert "was lost when the engine ended" in answer["suggestion"] and "1 calls" in answer["suggestion"]
    assert stateful(client, "1", session_name="s")["suggestion"] is None
    assert stateful(client, "1", session_name="t")["suggestion"] is None


def test_the_end_of_its_init_ends_everything(new_engine):
    """Code that runs as the engine's user can kill the process that all others are children of."""
    engine = new_engine()
    client = engine.client()
    stateful(client, "import subprocess; p = subprocess.Popen(['sleep', '1000'])", session_name="s")
    client.bash("sleep 1000 & true", state_mode="stateful", session_name="b")
    for entry in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % entry) as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if entry.isdigit() and parent == engine.pid:
            os.kill(int(entry), signal.SIGKILL)
    engine.process.wait(10)


def test_a_value_that_contains_itself(client):
    stateful(client, "l = [1]; l.append(l); d = {}; d['d'] = d", session_name="s")
    assert stateful(client, "l", session_name="s")["result_text"] == "[1, [...]]"
    assert client.python("d['d'] is d", state_mode="read_only", session_name="s")["result"] is True


def inits(engine):
    """The init of each cell and the one at the surface, with the pid namespace it is in; None: just gone."""
    found = {}
    for pid, command in processes(engine.pid, "").items():
        if command.startswith("furca-init"):
            try:
                found[pid] = os.readlink("/proc/%d/ns/pid" % pid)
            except OSError:
                pass
    return found


def test_a_snapshot_gets_an_earlier_ones_cell(client, engine):
    """One that nobody's code ran in serves again; of those after the first twelve calls none is made for a snapshot."""
    for i in range(12):
        stateful(client, "x = %d" % i, session_name="s")
    time.sleep(0.3)
    before = inits(engine)
    for i in range(24):
        stateful(client, "x = %d" % i, session_name="s")
    assert len(set(inits(engine)) - set(before)) <= 8  # the pool's, and parked copies'; there would be nine more for snapshots
    assert client.call("undo", session_name="s", steps=3)["ok"]
    assert stateful(client, "x", session_name="s")["result"] == 20


def test_a_cell_that_was_lived_in_serves_nobody_else(client, engine):
    stateful(client, "x = 1; import os", session_name="s")
    assert stateful(client, "os._exit(1)", session_name="s")["state"] == "rolled_back"
    home = stateful(client, "os.readlink('/proc/self/ns/pid')", session_name="s")["result"]
    assert home in inits(engine).values()
    assert stateful(client, "x = 2; os._exit(1)", session_name="s")["state"] == "rolled_back"
    assert stateful(client, "x", session_name="s")["result"] == 1
    client.call("close_all_sessions")
    assert eventually(lambda: home not in inits(engine).values())


def stat_of(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()


def numbers(pid):
    """Its pids, from outermost to innermost namespace."""
    with open("/proc/%d/status" % pid) as f:
        return next([int(n) for n in line.split()[1:]] for line in f if line.startswith("NSpid"))


def test_a_snapshot_that_is_gone_before_it_was_known():
    """It was freed by its channel's end, and once more by the end of the process that was to report it. The engine heard of that one later,
    since a child of the session held its channel, and the init was slow to say that it had ended."""
    engine = Engine(env={"FURCA_FAULT": "clone_parent:2:stop"})  # the session's second commit; the zygote's second clone too
    try:
        client = engine.client()
        code = "import os, time\nif os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)\nos.getpid()"
        session = client.python(code, session_name="s", state_mode="stateful")["result"]
        client.python("x = 1", session_name="s", state_mode="stateful")
        eventually(lambda: stat_of(session)[0] == "T")
        init = next(pid for pid in engine.processes() if int(stat_of(pid)[1]) == engine.pid)
        os.kill(init, signal.SIGSTOP)
        for pid in [pid for pid in engine.processes() if numbers(pid)[1:] == [session]]:
            os.kill(pid, signal.SIGKILL)
        os.kill(session, signal.SIGKILL)
        time.sleep(1)  # the engine waits 0.3 s for the init
        os.kill(init, signal.SIGCONT)
        call = client.start("execute", code="1", language="python", session_name="s", state_mode="stateful")
        while not call.done():  # the zygote's clones are stopped once
            for pid in engine.processes():
                try:
                    if stat_of(pid)[0] == "T":
                        os.kill(pid, signal.SIGCONT)
                except OSError:
                    pass  # it has ended
            time.sleep(0.05)
        answer = call.wait()
        assert answer["state"] == "lost" and "lost" in answer["error"], answer
        assert client.python("x = 1; x", session_name="s", state_mode="stateful")["result"] == 1
    finally:
        engine.stop()
        engine.clean()


def test_a_state_that_could_not_be_kept_is_told_of(client):
    """A thread that cannot be stopped is seen only by trying: the answers said nothing, and a death took it all."""
    session = {"session_name": "s", "state_mode": "stateful"}
    client.python("""
import ctypes, os, threading
libc, over = ctypes.CDLL(None), threading.Event()
def deaf():
    libc.syscall({"x86_64": 14, "aarch64": 135}[os.uname().machine], 0, (ctypes.c_ulong * 1)(2**64 - 1), None, 8)
    over.wait()
thread = threading.Thread(target=deaf, daemon=True)
thread.start()""", **session)
    told = client.python("x = 1", **session)
    assert told["ok"] and "snapshot of this session failed" in told["suggestion"] and "pthread_sigmask" in told["suggestion"], told
    client.python("over.set(); thread.join(); x = 2", **session)
    assert eventually(lambda: client.python("x = 3", **session)["suggestion"] is None)
    assert client.python("os.abort()", **session)["state"] == "rolled_back" and client.python("x", **session)["result"] == 3


@pytest.mark.parametrize("method, more", [("undo", {}), ("checkpoint", {"label": "l"}), ("restore", {"label": "l"}), ("branch_session", {"new_name": "c"}),
                                          ("inspect_session", {})])
def test_an_operation_that_waits_can_be_cancelled(client, method, more):
    """It was answered as one whose time was over."""
    session = {"session_name": "s", "language": "python"}
    client.python("x = 1", session_name="s", state_mode="stateful")
    running = client.start("execute", code="import time; time.sleep(1)", state_mode="stateful", **session)
    time.sleep(0.2)
    waiting = client.start(method, **session, **more)
    time.sleep(0.1)
    cancelled = client.call("cancel", msgid=waiting.msgid)["cancelled"]
    answer = waiting.wait(10)
    assert (answer["error_type"] == "interrupted" and not answer["ok"]) if cancelled else answer["ok"], answer
    assert cancelled or method == "inspect_session"  # which need not wait
    assert running.wait(10)["ok"] and client.python("x", session_name="s", state_mode="stateful")["result"] == 1


@pytest.mark.parametrize("name", ["   ", "a\u2028b", "a\x85b", "x" * 65, ""])
def test_a_branch_gets_a_name_that_a_session_can_have(client, name):
    client.python("x = 1", session_name="s", state_mode="stateful")
    refused = client.call("branch_session", session_name="s", new_name=name)
    assert refused["error_type"] == "validation" and "new_name" in refused["error"], refused


def test_a_snapshot_that_failed_is_tried_again(new_engine):
    """Once, before the next call runs, whose death would take the changes with it."""
    engine = new_engine(env={"FURCA_FAULT": "commit_cloned:2:fail"})
    client = engine.client()
    stateful(client, "x = [1]", session_name="s")
    stateful(client, "x.append(2)", session_name="s")
    dead = stateful(client, "import os; os._exit(1)", session_name="s")
    assert dead["state"] == "rolled_back" and "later changes are lost" not in dead["error"], dead
    assert stateful(client, "x", session_name="s")["result"] == [1, 2]


def test_an_idle_session_writes_to_no_file(engine, client):
    """Its pages are taken in advance, also where a file is mapped now: the holes were filled, and its time was another."""
    def call(code):
        answer = client.python(code, session_name="s", state_mode="stateful")
        assert answer["ok"], answer
        time.sleep(0.03)  # idle
        return answer["result"]

    call("import ctypes, os\n"
         "libc, size = ctypes.CDLL(None), 1 << 20\n"
         "libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n"
         "at = libc.mmap(None, size, 3, 0x22, -1, 0)")
    for _ in range(6):
        call("ctypes.memset(at, 1, size)")
    assert call("f = os.open('sparse', os.O_RDWR | os.O_CREAT); os.ftruncate(f, size); os.utime(f, (5, 5))\n"
                "libc.mmap(at, size, 3, 0x11, f, 0) == at")
    call("x = 1")
    call("x = 2")
    found = os.stat(os.path.join(engine.workdir, "sparse"))
    assert (found.st_mtime, found.st_blocks) == (5, 0)
