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
