"""The engine with kernel features taken away: what it needs less keeps working, what cannot be had is refused with a reason.

tests/no_syscall runs it with system calls failing, as an older kernel or a tight container would.
"""
import os
import subprocess

import pytest

from furcalib import Client, Engine, eventually, furca_program

FILTER = os.path.join(os.path.dirname(furca_program() or "/nowhere"), "tests", "no_syscall")

pytestmark = pytest.mark.skipif(not os.access(FILTER, os.X_OK), reason="tests/no_syscall is not built (make check builds it)")


@pytest.fixture
def filtered():
    engines = []

    def start(names):
        engines.append(Engine(wrap=[FILTER, names]))
        return engines[-1], Client(engines[-1].socket)

    yield start
    for engine in engines:
        assert engine.stop() == 0, engine.log()[-3000:]
        assert eventually(lambda e=engine: not e.processes(), 5), engine.processes()
        assert " alert " not in engine.log(), engine.log()[-3000:]
        engine.clean()


def read_only_holds(engine, client):
    """A read-only call in session "a" (x = [1, 2, 3]) is isolated or refused; never something between."""
    look = client.python("x.clear(); len(x)", session_name="a", state_mode="read_only")
    write = client.python("open('trace', 'w').close()", session_name="a", state_mode="read_only")
    if look["ok"]:
        assert look["result"] == 0 and look["state"] == "unchanged"
        held = look["isolation"]
        assert all(held[word] != "none" for word in ("memory", "disk", "descriptors", "processes")), held
        # The overlay takes the write and forgets it; Landlock, which stands in for it, refuses it.
        assert write["ok"] or "PermissionError" in write["error"], write
    else:
        for answer in (look, write):
            assert answer["error_type"] == "isolation" and answer["suggestion"] and answer["state"] == "unchanged", answer
    assert client.python("x", session_name="a")["result"] == [1, 2, 3]
    assert not os.path.exists(os.path.join(engine.workdir, "trace"))
    return look


# Calls that some kernel of those supported lacks, or that a container's filter refuses.
@pytest.mark.parametrize("names", ["close_range", "kcmp", "openat2", "epoll_pwait2", "process_madvise", "landlock_create_ruleset",
                                   "landlock_restrict_self:EPERM", "close_range,openat2,kcmp,landlock_create_ruleset"])
def test_less_will_do(filtered, names):
    engine, client = filtered(names)
    with client:
        assert client.python("x = [1, 2, 3]", session_name="a")["state"] == "committed"
        assert read_only_holds(engine, client)["ok"]
        assert client.bash("echo hello")["stdout"] == "hello\n"


@pytest.mark.parametrize("names", ["mount:EPERM", "unshare,setns,mount:EPERM", "clone3"])
def test_without_mounts_landlock_stands_in(filtered, names):
    engine, client = filtered(names)
    with client:
        assert client.python("x = [1, 2, 3]", session_name="a")["ok"]
        look = read_only_holds(engine, client)
        assert not look["ok"] or look["isolation"]["disk"] == "landlock", look


def test_without_mounts_a_fifo_that_is_open_keeps_its_content(filtered):
    """What a copy reads from it by its name is gone for the session, and Landlock tells no FIFO from a file."""
    _, client = filtered("mount:EPERM")
    session = {"session_name": "s", "language": "python"}
    with client:
        client.execute("import os; os.mkfifo('fifo'); f = os.open('fifo', os.O_RDWR); os.write(f, b'one')", state_mode="stateful", **session)
        look = client.execute("open('fifo').read(1)", state_mode="read_only", **session)
        assert look["error_type"] == "isolation" and "FIFO" in look["error"] and "isolation.disk" in look["suggestion"], look
        assert client.execute("x = os.read(f, 9); os.close(f); x", state_mode="stateful", **session)["result"] == b"one"
        assert client.execute("x", state_mode="read_only", **session)["result"] == b"one"


# No more namespaces of any kind, inside a user namespace: as in a hardened container.
NO_NAMESPACES = ["unshare", "-Ur", "sh", "-c", 'for f in /proc/sys/user/max_*_namespaces; do echo 0 > "$f" || exit 77; done; exec "$@"', "sh"]
POOL = {
    "threads": "import threading\nover = threading.Event()\nticks = []\n"
               "def tick():\n    while not over.wait(0.003): ticks.append(1)\n"
               "threads = [threading.Thread(target=tick, daemon=True) for _ in range(3)]\nfor t in threads: t.start()\n",
    # Always some of them ask for the GIL, whose holder must not have to wait for one that is parked.
    "spinning": "import sys, threading\nsys.setswitchinterval(1e-5)\nover = threading.Event()\n"
                "def spin():\n    while not over.wait(0): pass\n"
                "threads = [threading.Thread(target=spin, daemon=True) for _ in range(3)]\nfor t in threads: t.start()\n",
    "openblas": "import numpy\na = numpy.ones((300, 300))\nb = a @ a\n",
}


@pytest.mark.parametrize("wrap", [NO_NAMESPACES, [FILTER, "setns:EPERM"], [FILTER, "clone3"], [FILTER, "seccomp:EPERM"], []],
                         ids=["no namespaces", "setns", "clone3", "seccomp", "nothing"])
@pytest.mark.parametrize("pool", sorted(POOL))
def test_threaded_sessions_are_answered(wrap, pool):
    """OpenBLAS's fork handler joins its threads, which in a snapshot are parked: that once hung for ever."""
    if pool == "openblas":
        pytest.importorskip("numpy")
    engine = Engine(wrap=wrap)
    try:
        with Client(engine.socket) as client:
            assert client.python(POOL[pool] + "x = [1, 2, 3]", session_name="a")["state"] == "committed"
            for _ in range(6):
                look = client.python("x.clear(); int((a @ a).sum()) - 300 ** 3" if pool == "openblas" else "x.clear(); len(x)",
                                     session_name="a", state_mode="read_only", timeout_s=20)
                assert look["ok"] and look["result"] == 0, look
                assert look["isolation"]["threads"] == "clone", look["isolation"]
            assert client.python("x", session_name="a")["result"] == [1, 2, 3]
    finally:
        assert engine.stop() == 0, engine.log()[-3000:]
        engine.clean()


def test_what_is_waived_is_not_missed(filtered):
    """A system call filter that cannot be loaded refuses only a call that asks for what it guards."""
    engine, client = filtered("seccomp:EPERM")
    with client:
        assert client.python("x = [1, 2, 3]", session_name="a")["ok"]
        look = client.python("x.clear(); len(x)", session_name="a", state_mode="read_only")
        assert look["ok"] and look["isolation"]["privileges"] == "none", look
        asked = client.python("len(x)", session_name="a", state_mode="read_only", isolation={"require": ["privileges"]})
        assert not asked["ok"] and asked["error_type"] == "isolation", asked


@pytest.mark.parametrize("names", ["setns:EPERM", "seccomp:EPERM", "mount,landlock_create_ruleset:EPERM"])
def test_what_cannot_be_had_is_refused(filtered, names):
    engine, client = filtered(names)
    with client:
        assert client.python("x = [1, 2, 3]", session_name="a")["ok"]
        read_only_holds(engine, client)
        assert client.bash("echo hello")["stdout"] == "hello\n"


@pytest.mark.parametrize("names", ["io_uring_setup", "io_uring_setup:EPERM"])
def test_without_a_ring_it_says_so(names, tmp_path):
    done = subprocess.run([FILTER, names, furca_program(), "serve", "--socket", str(tmp_path / "s"), "--state-dir", str(tmp_path / "state")],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 77, done
    assert "io_uring" in done.stderr, done.stderr
    assert done.stdout == ""
