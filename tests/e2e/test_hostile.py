"""Code that speaks to the engine on lanes of its own making: it harms itself, nobody else, and the engine's memory stays bounded.

The attacker takes the capability socket of the process that runs it: out of its own descriptors in Python, out of bash's by pidfd_getfd from a child.
"""
import threading
import time

import pytest

from furcalib import eventually

# What every attack begins with. In bash `SHELL` is the shell's pid.
OPEN = r'''
import array, ctypes, os, socket, struct, sys, msgpack
def candidates():
    if not SHELL:
        return [int(n) for n in os.listdir("/proc/self/fd")]
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(SHELL)
    taken = [libc.syscall(438, pidfd, int(n), 0) for n in os.listdir("/proc/%d/fd" % SHELL)]
    return [fd for fd in taken if fd >= 0]
def capability_socket():
    for fd in candidates():
        try:
            s = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if s.family == socket.AF_UNIX and s.type == socket.SOCK_SEQPACKET:
            return s
    raise SystemExit("no capability socket")
top = capability_socket()
def lane():
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    top.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
    theirs.close()
    mine.settimeout(10)
    return mine
def frame(number, call, fields, size=None):
    body = msgpack.packb([number, call, fields], use_bin_type=True)
    return struct.pack("<IBBH", len(body) if size is None else size, 0, 1, 0) + body
def call(n, name="echo", *args):
    return frame(64, n, {"name": name, "args": list(args), "kwargs": {}})
def ended(s):
    """Whether the engine closed the lane; bytes before that are read."""
    try:
        while s.recv(1 << 20): pass
        return True
    except ConnectionError:
        return True
    except socket.timeout:
        return False
def say(what): print(what, flush=True)
'''

# Each prints what it saw, which must be what stands beside it.
ATTACKS = {
    "forged ids": (r'''
for number in (68, 69):
    s = lane(); s.sendall(frame(number, 1 << 33 | 1, {"value": 1, "type": "E", "message": "m"})); say(ended(s))
for number in (96, 97, 98, 99, 1, 33, 128, 255):
    s = lane(); s.sendall(frame(number, 1, {"value": 1})); say(ended(s))
s = lane()
for i in range(2000): s.sendall(frame(67, 0, {"handle": "@%016x" % i}))
s.sendall(call(7, "@0000000000000001.steal")); say(b"ReferenceError" in s.recv(65536))
''', "True\n" * 11),
    "floods": (r'''
lanes = [lane() for i in range(1000)]
good = 0
for s in lanes:
    s.settimeout(2)
    try:
        s.sendall(call(1, "echo", 5)); good += bool(s.recv(4096))
    except OSError: pass
say(good <= 256)
for s in lanes: s.close()
s = lane(); s.setblocking(False)
sent, data = 0, call(1, "echo", "x" * 1000) * 100
try:
    for i in range(3000): sent += s.send(data)
except OSError: pass
say(sent > 0)
for i in range(2000):
    try: top.send(os.urandom(64), socket.MSG_DONTWAIT)
    except OSError: break
say("sent")
''', "True\nTrue\nsent\n"),
    "half frames": (r'''
lanes = []
for i in range(200):
    s = lane(); s.sendall(struct.pack("<IBBH", 60 << 20, 0, 1, 0) + b"\x93@\x01" + b"x" * 1000); lanes.append(s)
say("held")
import time; time.sleep(1)
''', "held\n"),
    "unfinished large frames": (r'''
lanes, all_sent = [], 0
for i in range(24):
    s = lane(); lanes.append(s)
    try:
        s.sendall(struct.pack("<IBBH", 60 << 20, 0, 1, 0) + b"\x93@\x01\x81\xa1x\xc6" + struct.pack(">I", 60 << 20) + bytes(40 << 20)); all_sent += 1
    except OSError: pass
say(all_sent)
''', "6\n"),  # of 40 MiB each: one session's lanes hold 256 together
    "unread answers": (r'''
lanes = []
for i in range(40):
    s = lane(); lanes.append(s)
    for n in range(5): s.sendall(call(n, "large"))
import select, time
def gone(s):
    p = select.poll(); p.register(s, select.POLLRDHUP)
    return bool(p.poll(0))
end = time.monotonic() + 30
while not any(map(gone, lanes)) and time.monotonic() < end: time.sleep(0.05)
say(any(map(gone, lanes)))
''', "True\n"),
    "huge headers": (r'''
for header in (b"\xff" * 8, struct.pack("<IBBH", (64 << 20) + 1, 0, 1, 0), struct.pack("<IBBH", 10, 200, 1, 0), struct.pack("<IBBH", 10, 0, 9, 0), bytes(8)):
    s = lane(); s.sendall(header + bytes(64)); say(ended(s))
''', "True\n" * 5),
    "deep nesting": (r'''
for deep in (b"\x91" * 100000 + b"\xc0", b"\x81\xa1a" * 100000 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff" * 10):
    body = b"\x93\x40\x01\x83\xa4name\xa4echo\xa4args" + deep
    s = lane(); s.sendall(struct.pack("<IBBH", len(body), 0, 1, 0) + body); say(ended(s))
''', "True\n" * 4),
    "descriptors": (r'''
fds = array.array("i", [0] * 8)
for i in range(50):
    s = lane()
    try: s.sendmsg([frame(64, 1, {"name": "echo"})], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError: pass
    s.close()
say("passed")
''', "passed\n"),
}


def run(client, language, code, session):
    """Runs an attack in a session of its own."""
    if language == "python":
        return client.start("execute", code="SHELL = 0\n" + OPEN + code, language="python", session_name=session, state_mode="stateful", timeout_s=60)
    script = "/usr/bin/python3 - <<'ATTACK'\nimport os\nSHELL = os.getppid()\n%s%s\nATTACK\n" % (OPEN, code)
    return client.start("execute", code=script, language="bash", session_name=session, state_mode="stateful", timeout_s=60)


@pytest.fixture
def watched(engine):
    """A bystander whose calls go on all the time, and the engine's memory meanwhile."""
    client, attacker = engine.client(), engine.client()
    for each in (client, attacker):
        each.call("close_all_sessions")
    client.register({"echo": lambda *a: list(a), "large": lambda: "x" * (2 << 20)})
    over = threading.Event()
    seen = {"calls": 0, "wrong": [], "slowest": 0.0, "peak_kb": 0}

    def go_on():
        while not over.is_set():
            began = time.monotonic()
            value = client.python("capabilities.echo(%d)" % seen["calls"], session_name="bystander", state_mode="stateful")["result"]
            seen["slowest"] = max(seen["slowest"], time.monotonic() - began)
            if value != [seen["calls"]]:
                seen["wrong"].append(value)
            seen["calls"] += 1
            seen["peak_kb"] = max(seen["peak_kb"], engine.rss_kb())

    thread = threading.Thread(target=go_on)
    thread.start()
    yield attacker, seen
    over.set()
    thread.join(60)


@pytest.mark.parametrize("language", ["python", "bash"])
@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_an_attack_harms_nobody_else(engine, watched, attack, language):
    attacker, seen = watched
    code, expected = ATTACKS[attack]
    assert eventually(lambda: seen["calls"] > 2, 20)
    before = engine.rss_kb()
    answer = run(attacker, language, code, "attacker").wait(90)
    calls = seen["calls"]
    assert eventually(lambda: seen["calls"] > calls + 2, 20), "the bystander stands still"
    assert answer["stdout"] == expected, answer
    assert not seen["wrong"] and seen["slowest"] < 20, seen
    # 256 MiB are held for one session's lanes at most, and as much on the way to a client; what was held is given back at its end.
    assert seen["peak_kb"] - before < 700 << 10, (before, seen)
    attacker.call("close_session", session_name="attacker", language=language)
    assert eventually(lambda: engine.rss_kb() - before < 64 << 10, 10), (before, engine.rss_kb())


REPLACED = {
    "exec": "import os; os.execv('/bin/sleep', ['sleep', '30'])",
    "junk on the channel": "import os\nfor n in map(int, os.listdir('/proc/self/fd')):\n try:\n"
                           "  if n > 2 and os.readlink('/proc/self/fd/%d' % n).startswith('socket'): os.write(n, b'junk' * 99)\n except OSError: pass\n"
                           "import time; time.sleep(30)",
}


@pytest.mark.parametrize("mode", ["stateful", "read_only"])
@pytest.mark.parametrize("code", REPLACED.values(), ids=REPLACED)
def test_a_process_that_its_code_has_spoiled_is_not_said_to_be_killed_from_elsewhere(client, code, mode):
    client.python("x = 1", session_name="s", state_mode="stateful")
    answer = client.python(code, session_name="s", state_mode=mode, timeout_s=10)
    assert answer["error_type"] == "crashed" and "in its process's place" in answer["error"], answer
    assert client.python("x", session_name="s", state_mode="read_only")["result"] == 1


def test_a_program_in_the_processs_place_that_is_interrupted_is_late(client):
    client.python("x = 1", session_name="s", state_mode="stateful")
    answer = client.python("import os\nfor n in range(3, 2000):\n try: os.set_inheritable(n, True)\n except OSError: pass\n"
                           "os.execv('/bin/sleep', ['sleep', '30'])", session_name="s", state_mode="stateful", timeout_s=0.5)
    assert answer["error_type"] == "timeout" and answer["state"] == "rolled_back" and "exec" in answer["suggestion"], answer


@pytest.mark.parametrize("most", [0, 1, 2, 5, 15, 16, 17])
@pytest.mark.parametrize("written", [0, 1, 3, 16, 17, 300])
def test_output_is_cut_to_what_was_asked_for(client, most, written):
    """No fewer than 16 bytes were given."""
    text = "".join(chr(97 + i % 26) for i in range(written))
    answer = client.python("print(%r, end='')" % text, max_output_bytes=most)
    tail = most // 2
    kept = text if written <= most else text[:most - tail] + text[written - tail:]
    assert answer["stdout"] == kept and (answer["truncated"] or {"stdout": 0})["stdout"] == written - len(kept), answer


def test_output_of_few_bytes_is_cut_between_characters(client):
    answer = client.python("print('\u00e4\u00f6\u00fc' * 9, end='')", max_output_bytes=5)
    assert answer["stdout"] == "\u00e4\u00fc" and answer["truncated"]["stdout"] == 50, answer


@pytest.mark.parametrize("name, size, good", [("A", (128 << 10) - 3, True), ("A", (128 << 10) - 2, False), ("A" * 200_000, 1, False)])
def test_a_variable_that_no_program_could_be_given_is_refused(client, name, size, good):
    """Every program of the session failed with "Argument list too long"."""
    answer = client.bash("/bin/echo on", env_vars={name: "x" * size})
    assert (answer["stdout"] == "on\n") if good else (answer["error_type"] == "validation" and "128 KiB" in answer["error"]), answer
