"""The same as over sockets, by shared memory: every test of capabilities, objects, values and hostile code with an engine that is configured so; and
what is this lane's own."""
import json
import os
import tempfile

import pytest

from conftest import Watched
from furcalib import eventually

# Their fixtures and tests run here again, with this module's engine.
import test_hostile
from test_capabilities import *  # noqa: F401,F403
from test_codec import test_thousands_of_values_cross_and_come_back  # noqa: F401
from test_hostile import watched  # noqa: F401
from test_objects import *  # noqa: F401,F403
from test_protocol import test_thousands_of_calls_from_many_sessions  # noqa: F401


@pytest.fixture(scope="module")
def _watched():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config")
        with open(path, "w") as f:
            json.dump({"lanes": "shared"}, f)
        watched = Watched("--config", path)
        yield watched
        found = watched.end()
    assert not found, "\n".join(found)


# A lane with a ring of the attacker's making, and the other side of it as nobody should be: unsealed or short memory, impossible indexes, bytes that are no frames, frames that never end, bells
# that ring all the time.
SHARED = r"""
import fcntl, mmap, random
SIZE, SEALS = 4096 + 2 * (256 << 10), 1 | 2 | 4
def shared(size=SIZE, seals=SEALS):
    memory = os.memfd_create("furca-lane", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, 1033, seals)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    mapped = mmap.mmap(memory, size)
    top.sendmsg([b"S"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno(), memory]))])
    theirs.close(); os.close(memory)
    mine.settimeout(10)
    return mine, mapped
"""
BROKEN = r"""
def put(mapped, at, value): mapped[at:at + 4] = struct.pack("<I", value & 0xffffffff)
for size, seals in ((SIZE, 0), (SIZE, 6), (SIZE - 4096, SEALS), (4096, SEALS), (SIZE * 4, SEALS)):
    say(ended(shared(size, seals)[0]))
libc = ctypes.CDLL(None)
def wake(mapped):
    at = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + 4
    libc.syscall(202, ctypes.c_void_p(at), 1, 100, None, None, 0)
def ring(s, mapped, bell):
    put(mapped, 4, bell); wake(mapped)
    try: s.sendall(frame(70, 0, {}))
    except OSError: pass
s, m = shared(); put(m, 0, 300 << 10); ring(s, m, 1); say(ended(s))
s, m = shared(); m[4096:5096] = os.urandom(1000); put(m, 0, 1000); ring(s, m, 1); say(ended(s))
one = frame(70, 0, {}); s, m = shared(); m[4096:4096 + len(one)] = one; put(m, 0, len(one)); ring(s, m, 1); say(ended(s))
part = call(1, "echo", 1)[:-1]; s, m = shared(); m[4096:4096 + len(part)] = part; put(m, 0, len(part)); ring(s, m, 1); say(ended(s))
whole = call(1, "echo", 1); s, m = shared(); m[4096:4096 + len(whole)] = whole; put(m, 192 + 64, 7); put(m, 0, len(whole)); ring(s, m, 1)
random.seed(6)
for i in range(300):
    s, m = shared()
    for n in range(5):
        for at in range(0, 384, 4):
            if random.random() < 0.3: put(m, at, random.choice([random.getrandbits(32), random.getrandbits(19), 0]))
        ring(s, m, random.getrandbits(32))
    s.close()
say("scribbled")
s, m = shared()
import time
end = time.monotonic() + 2
n = 0
while time.monotonic() < end: n += 1; put(m, 4, n); wake(m)
say("rang")
"""


# Rings count against what one session's lanes may hold together: 125 MiB of 256 here, so that the fourth half frame of 40 is too much.
MANY = r"""
rings = [shared() for i in range(250)]
lanes, all_sent = [], 0
for i in range(4):
    s = lane(); lanes.append(s)
    try:
        s.sendall(struct.pack("<IBBH", 60 << 20, 0, 1, 0) + b"\x93@\x01\x81\xa1x\xc6" + struct.pack(">I", 60 << 20) + bytes(40 << 20)); all_sent += 1
    except OSError: pass
say(all_sent)
"""


@pytest.mark.parametrize("attack", [*sorted(test_hostile.ATTACKS), "broken rings", "many rings"])
def test_an_attack_harms_nobody_else(engine, watched, monkeypatch, attack):  # noqa: F811
    monkeypatch.setitem(test_hostile.ATTACKS, "broken rings", (SHARED + BROKEN, "True\n" * 9 + "scribbled\nrang\n"))
    monkeypatch.setitem(test_hostile.ATTACKS, "many rings", (SHARED + MANY, "3\n"))
    test_hostile.test_an_attack_harms_nobody_else(engine, watched, attack, "python")
    assert eventually(lambda: maps(engine) <= 1, 5)


def maps(engine):
    """Whether the engine has a lane's memory mapped."""
    with open("/proc/%d/maps" % engine.pid) as f:
        return f.read().count("memfd:furca-lane")


def test_calls_go_by_shared_memory(engine):
    client = engine.client()
    client.register({"echo": lambda x: x})
    code = "[capabilities.echo(i) for i in range(50)][-1]"
    assert client.python(code, session_name="by", state_mode="stateful")["result"] == 49
    assert maps(engine) == 1
    client.call("close_session", session_name="by")
    assert eventually(lambda: maps(engine) == 0, 5)


def test_what_is_too_large_goes_by_the_socket(engine):
    client = engine.client()
    client.register({"echo": lambda x: x})
    code = "r = []\nfor n in (10, 100_000, 262_000, 262_144, 300_000, 5_000_000, 7):\n    r.append(capabilities.echo('x' * n) == 'x' * n)\nr"
    assert client.python(code, state_mode="stateless")["result"] == [True] * 7
    code = "r = capabilities.map('echo', [[str(i) * 1000] for i in range(2000)])\n[i for i in range(2000) if r[i] != str(i) * 1000]"
    assert client.python(code, state_mode="stateless")["result"] == []


def test_an_answer_by_the_ring_to_what_went_by_the_socket_is_not_waited_for(engine):
    """Twenty calls took four seconds while only the socket was watched for their answers."""
    client = engine.client()
    client.register({"size": len})
    code = ("import time\nbegan = time.monotonic()\nr = [capabilities.size('x' * 300_000) for _ in range(20)]\n"
            "[sum(r), time.monotonic() - began < 2]")
    assert client.python(code, state_mode="stateless")["result"] == [6_000_000, True]


def test_a_child_that_returns_into_a_call_is_cut_off(engine):
    client = engine.client()
    client.register({"slow": lambda: __import__("time").sleep(0.5) or 5})
    code = ("import os, signal\npid = None\n"
            "def fork(*_):\n    global pid\n    pid = os.fork()\n"
            "signal.signal(signal.SIGALRM, fork)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\n"
            "try:\n    r = capabilities.slow()\nexcept ConnectionError:\n    r = 'cut'\n"
            "if pid == 0:\n    os._exit(7 if r == 'cut' else 8)\n"
            "[r, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]")
    assert client.python(code, state_mode="stateless")["result"] == [5, 7]


def test_copies_and_children_have_lanes_of_their_own(engine):
    client = engine.client()
    client.register({"echo": lambda x: x})
    client.python("capabilities.echo(1)", session_name="own", state_mode="stateful")
    assert client.python("capabilities.echo(2)", session_name="own", state_mode="read_only")["result"] == 2
    code = ("import os\npid = os.fork()\nif pid == 0:\n    os._exit(capabilities.echo(3))\n"
            "(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), capabilities.echo(4))")
    assert client.python(code, session_name="own", state_mode="stateful")["result"] == [3, 4]
    crash = client.python("import os; os.abort()", session_name="own", state_mode="stateful")
    assert crash["state"] == "rolled_back"
    assert client.python("capabilities.echo(5)", session_name="own", state_mode="stateful")["result"] == 5


def test_a_thread_that_waits_is_cloned_and_harms_nothing(engine):
    """Its lane's memory is not there in the clone."""
    client = engine.client()
    client.register({"slow": lambda: __import__("time").sleep(0.4), "echo": lambda x: x})
    code = ("import threading, time\n"
            "def work():\n    while not over: capabilities.slow(); capabilities.echo(1)\n"
            "over = False\nts = [threading.Thread(target=work, daemon=True) for _ in range(4)]\n[t.start() for t in ts]\ntime.sleep(0.1)")
    assert client.python(code, session_name="threads", state_mode="stateful")["ok"]
    for i in range(8):
        answer = client.python("import time; time.sleep(0.3); capabilities.echo(%d)" % i, session_name="threads", state_mode="read_only")
        assert answer["ok"] and answer["result"] == i, answer
    assert client.python("over = True\n[t.join() for t in ts]\ncapabilities.echo(9)", session_name="threads", state_mode="stateful")["result"] == 9


def test_an_interrupt_ends_a_wait(engine):
    client = engine.client()
    client.register({"slow": lambda: __import__("time").sleep(5)})
    answer = client.python("capabilities.slow()", session_name="wait", state_mode="stateful", timeout_s=0.5)
    assert answer["error_type"] == "timeout" and answer["state"] != "rolled_back", answer
