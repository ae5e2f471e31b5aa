"""Attacks on a running engine that once succeeded: what broke it must not break it again."""
import os
import signal
import socket
import threading
import time

import pytest

from furcalib import eventually


def sleeping_reads(client, n, **session):
    """So many reads under way, each in a copy of its own."""
    running = []
    started = threading.Semaphore(0)
    client.register({"test.started": lambda: started.release()})
    for _ in range(n):
        running.append(client.start("execute", code="import time; capabilities.test.started(); time.sleep(60)", language="python",
                                    state_mode="read_only", **session))
    for _ in range(n):
        assert started.acquire(timeout=20)
    return running


@pytest.mark.parametrize("ended_by", ["stop", "close"])
def test_reads_of_a_promoted_session_end_while_their_changes_are_listed(new_engine, ended_by):
    """The cell's list came for a call that had been freed: the engine died by SIGSEGV or SIGABRT instead of ending."""
    for _ in range(3):
        engine = new_engine()
        client = engine.client()
        client.python("x = 1", session_name="s", state_mode="stateful")
        assert client.python("import os; os.abort()", session_name="s", state_mode="stateful")["state"] == "rolled_back"
        reads = sleeping_reads(client, 6, session_name="s")
        if ended_by == "close":
            for read in reads:
                read.client.start("cancel", msgid=read.msgid)
            client.call("close_session", session_name="s")
            for read in reads:
                assert read.wait(20)["error_type"] == "interrupted"
            assert client.python("1 + 1", state_mode="stateless")["result"] == 2
        assert engine.stop() == 0


def test_names_of_changed_files_that_are_no_utf8(client):
    """They came as they were, in a str: a strict client lost its connection, and all that was under way on it."""
    client.python("1", session_name="s", state_mode="stateful")
    answer = client.python(r"open(b'\xff\xfe', 'w'); open('\u00e9', 'w')", session_name="s", state_mode="read_only")
    assert answer["ok"]
    assert sorted(path.rpartition("/")[2] for path in answer["changes"]["files"]["added"]) == ["\u00e9", "\ufffd\ufffd"]


@pytest.mark.parametrize("code", [
    r"globals()['\udcff'] = 1",
    r"class M(type):" "\n" r" def __getattribute__(self, name): raise KeyboardInterrupt" "\n" r"class K(metaclass=M): pass",
    r"import os; os.mkdir(b'\xfe'); os.chdir(b'\xfe')",
    r"import sys; sys.argv.append('\udcff')",
])
@pytest.mark.parametrize("detail", ["summary", "names", "full"])
def test_inspection_of_what_cannot_be_written(new_engine, code, detail):
    """The answer was ok, and its state nil."""
    client = new_engine().client()
    assert client.python(code + "\nplain = 1", session_name="s", state_mode="stateful")["ok"]
    answer = client.call("inspect_session", session_name="s", detail=detail)
    assert answer["ok"] and answer["state"]["count"] >= 1
    if detail != "summary":
        assert "plain" in [entry["name"] for entry in answer["state"]["names"]]


def left_of(engine, word):
    return {pid: command for pid, command in engine.processes().items() if word in command}


def test_a_timeout_ends_what_is_being_started(engine, client):
    """Children that were made while the engine looked for children got no interrupt and stayed."""
    client.python("import subprocess", session_name="s", state_mode="stateful")
    for i in range(24):
        answer = client.python('subprocess.run("sleep 77.155 | cat", shell=True)', session_name="s", state_mode="stateful",
                               timeout_s=0.001 + i % 12 * 0.001)
        assert answer["error_type"] == "timeout"
        assert eventually(lambda: not left_of(engine, "sleep 77.155")), left_of(engine, "sleep 77.155")


def test_a_timeout_leaves_what_was_made_to_stay(engine, client):
    """A daemon has a session of its own and no parent; what earlier calls started is not of this call."""
    client.python("import subprocess, time\n"
                  "p = subprocess.Popen(['sleep', '78.155'])", session_name="s", state_mode="stateful")
    client.python("time.sleep(0.05)", session_name="s", state_mode="stateful")
    answer = client.python("subprocess.run('setsid sleep 79.155 & exit', shell=True)\ntime.sleep(60)", session_name="s",
                           state_mode="stateful", timeout_s=1.5)
    assert answer["error_type"] == "timeout"
    assert left_of(engine, "sleep 78.155") and left_of(engine, "sleep 79.155")


@pytest.mark.parametrize("ended_by", ["timeout", "cancel"])
def test_an_interrupt_leaves_no_timer_in_bash(client, ended_by):
    """It did: no snapshot was made any more, and no read allowed."""
    client.bash("X=1", session_name="b", state_mode="stateful")
    if ended_by == "timeout":
        assert client.bash("sleep 60", session_name="b", state_mode="stateful", timeout_s=0.3)["error_type"] == "timeout"
    else:
        call = client.start("execute", code="sleep 60", language="bash", session_name="b", state_mode="stateful")
        assert eventually(lambda: call.cancel() and call.done())
        assert call.wait()["error_type"] == "interrupted"
    assert client.bash("X=2", session_name="b", state_mode="stateful")["ok"]
    assert client.bash("echo $X; X=3", session_name="b", state_mode="read_only")["stdout"] == "2\n"
    assert client.bash("kill -9 $$", session_name="b", state_mode="stateful")["state"] == "rolled_back"
    assert client.bash("echo $X", session_name="b", state_mode="read_only")["stdout"] == "2\n"


def test_a_copy_calls_nobody_once_it_is_answered(client):
    """It lived on to list its pages, and its children's capability calls came for a call that was over."""
    come = []
    take = client._take
    client._take = lambda message: (come.append(message[0]), take(message))
    client.register({"test.ping": lambda: 1})
    client.python("import os, time; many = [object() for _ in range(200_000)]", session_name="s", state_mode="stateful")
    for _ in range(20):
        answer = client.python("for _ in range(3):\n"
                               " if os.fork() == 0:\n"
                               "  while True: capabilities.test.ping()\n"
                               "time.sleep(0.03)\n"
                               "sum(1 for one in many if one is not None)", session_name="s", state_mode="read_only")
        assert answer["result"] == 200_000, answer
        time.sleep(0.06)
        assert 0 in come and come[-1] == 1, come[-20:]  # requests, and the answer last
        come.clear()


def test_a_copy_on_the_network_sends_nothing_once_it_is_answered(client):
    """It was left alone for a millisecond, as if it stood behind all walls."""
    client.python("import socket, threading, time", session_name="s", state_mode="stateful")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        port.setblocking(False)

        def arrived():
            n = 0
            try:
                while port.recv(16):
                    n += 1
            except BlockingIOError:
                return n

        for _ in range(20):
            answer = client.python("def send():\n"
                                   " s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                                   " while True: s.sendto(b'x', ('127.0.0.1', %d))\n"
                                   "threading.Thread(target=send, daemon=True).start()\n"
                                   "time.sleep(0.02)" % port.getsockname()[1],
                                   session_name="s", state_mode="read_only", isolation={"network": "allow"})
            assert answer["ok"] and answer["isolation"]["network"] == "none", answer
            assert arrived() > 0
            time.sleep(0.02)
            assert arrived() == 0


@pytest.mark.parametrize("wrap", [(), ("unshare", "-r")], ids=["root", "unshare -r"])
def test_a_copy_cannot_keep_its_init_from_listing_files(new_engine, wrap):
    """It may set the limits of a process of the same user: the list came back empty."""
    client = new_engine(wrap=wrap).client()
    client.python("import resource", session_name="s", state_mode="stateful")
    for limit in ("NOFILE", "AS", "DATA", "FSIZE", "STACK"):
        answer = client.python("open('f', 'w').write('x')\n"
                               "try: resource.prlimit(1, resource.RLIMIT_%s, (1, 1)); print('set')\n"
                               "except PermissionError: resource.prlimit(1, resource.RLIMIT_%s); resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))" % (limit, limit),
                               session_name="s", state_mode="read_only")
        assert answer["ok"] and answer["stdout"] == "", (limit, answer)
        assert [path.rpartition("/")[2] for path in answer["changes"]["files"]["added"]] == ["f"], (limit, answer)


def test_a_list_of_files_takes_bounded_time(engine, client):
    """The bytes of a file that was only opened were compared, all of a hole's, and neither time-out nor cancel ended that."""
    size = 1 << 43
    client.python("for name in ('same', 'other'):\n"
                  " with open(name, 'wb') as f: f.write(b'x'); f.truncate(%d)" % size, session_name="s", state_mode="stateful")
    try:
        answer = client.python("import os\n"
                               "open('same', 'r+b').close()\n"
                               "at = os.stat('other').st_mtime_ns\n"
                               "f = open('other', 'r+b'); f.seek(%d); f.write(b'y'); f.close()\n"
                               "os.utime('other', ns=(at, at))" % (size - 1), session_name="s", state_mode="read_only", timeout=30)
    finally:
        for name in ("same", "other"):
            os.unlink(os.path.join(engine.workdir, name))
    assert answer["ok"], answer
    assert [path.rpartition("/")[2] for path in answer["changes"]["files"]["modified"]] == ["other"], answer["changes"]


def test_an_inspection_of_what_stops_itself_can_be_cancelled(client):
    """The cancel was confirmed, and the answer never came."""
    client.python("import os, signal\n"
                  "class Stop:\n"
                  " def __repr__(self): os.kill(os.getpid(), signal.SIGSTOP); return 'on'\n"
                  "stop = Stop()", session_name="s", state_mode="stateful")
    pending = client.start("inspect_session", language="python", session_name="s", name="stop")
    time.sleep(0.5)
    assert pending.cancel()["cancelled"]
    assert pending.wait(10)["error_type"] == "interrupted"
    assert client.python("1 + 1", session_name="s", state_mode="read_only")["result"] == 2


def stopped_session(client):
    """A session whose process stands still between two calls."""
    os.kill(client.python("import os; os.getpid()", session_name="s", state_mode="stateful")["result"], signal.SIGSTOP)


@pytest.mark.parametrize("operation", [{"method": "branch_session", "new_name": "t"}, {"method": "checkpoint", "label": "l"}])
def test_a_session_is_closed_while_an_operation_waits_for_its_process(new_engine, operation):
    """The branch came for a call that had been freed: the engine died by SIGSEGV. The checkpoint was answered with ok."""
    engine = new_engine()
    client = engine.client()
    stopped_session(client)
    waiting = client.start(language="python", session_name="s", **operation)
    time.sleep(0.2)
    assert engine.client().call("close_session", language="python", session_name="s")["ok"]
    answer = waiting.wait(10)
    assert not answer["ok"] and answer["error"] == "The session was closed.", answer
    assert client.python("1 + 1", state_mode="stateless")["result"] == 2
    assert engine.stop() == 0


def test_an_operation_does_not_wait_for_ever(new_engine, tmp_path):
    """Nor what waits behind it."""
    config = tmp_path / "config"
    config.write_text('{"timeout_s": 1}')
    client = new_engine("--config", str(config)).client()
    stopped_session(client)
    for operation in ({"method": "branch_session", "new_name": "t"}, {"method": "checkpoint", "label": "l"}):
        assert client.call(language="python", session_name="s", timeout=20, **operation)["error_type"] == "timeout", operation
    assert client.python("1", session_name="s", state_mode="stateful", timeout_s=1)["state"] in ("rolled_back", "lost")
    assert client.python("2", session_name="s", state_mode="stateful")["result"] == 2


def test_an_inspection_does_not_wait_as_long_as_a_call(new_engine, tmp_path):
    """It has no timeout_s of its own: once its clone is asked for it has 30 s, whatever code may take."""
    config = tmp_path / "config"
    config.write_text('{"timeout_s": 120, "snapshots": "off"}')
    client = new_engine("--config", str(config)).client()
    stopped_session(client)
    began = time.monotonic()
    answer = client.call("inspect_session", language="python", session_name="s", timeout=60)
    assert answer["error_type"] == "timeout" and 25 < time.monotonic() - began < 50, answer


def test_a_refused_call_takes_no_name_that_others_go_by(client):
    """The host refuses it, and the name that it gave the session went, under which another call had been answered meanwhile."""
    client.bash("x=1", session_id=0, state_mode="stateful")
    waiting = [client.start("execute", language="bash", state_mode="stateful", **args) for args in (
        {"code": "sleep 0.3", "session_id": 0},
        {"code": "true", "session_id": 0, "session_name": "s", "cwd": "/nonexistent"},
        {"code": "x=2", "session_name": "s"})]
    assert [pending.wait(20)["state"] for pending in waiting] == ["committed", "unchanged", "committed"]
    answer = client.bash("echo $x", session_name="s", state_mode="read_only")
    assert answer["stdout"] == "2\n" and answer["session"]["session_id"] == 0, answer
    client.bash("true", session_name="t", session_id=0, state_mode="stateful", cwd="/nonexistent")
    assert client.bash("true", session_name="t", state_mode="read_only")["error_type"] == "validation"


def test_a_refused_call_ends_no_look_of_another(client):
    """That was in a copy of the new session already: it was answered as one whose session had been closed."""
    for i in range(10):
        refused = client.start("execute", language="bash", code="true", session_name="s%d" % i, state_mode="stateful", cwd="/nonexistent")
        look = client.start("execute", language="bash", code="sleep 0.05", session_name="s%d" % i, state_mode="read_only")
        assert refused.wait(20)["error_type"] == "validation"
        answer = look.wait(20)
        assert answer["ok"] or answer["error_type"] == "validation", answer


def test_a_write_lease_is_not_broken_by_a_commit(client):
    """The snapshot opened the file again, the kernel asked the session for its lease by SIGIO, which ended it, and the state was lost."""
    took = client.python("import fcntl, os\n"
                         "f = os.open('leased', os.O_RDWR | os.O_CREAT, 0o600)\n"
                         "fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)", session_name="s", state_mode="stateful")
    if not took["ok"]:
        pytest.skip("no leases on this file system: " + took["error"].splitlines()[-1])
    look = client.python("1", session_name="s", state_mode="read_only")
    assert look["error_type"] == "isolation" and "F_SETLEASE" in look["suggestion"], look
    assert client.python("fcntl.fcntl(f, fcntl.F_GETLEASE) == fcntl.F_WRLCK", session_name="s", state_mode="stateful")["result"] is True
    client.python("fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)", session_name="s", state_mode="stateful")
    assert client.python("2", session_name="s", state_mode="read_only")["result"] == 2


@pytest.mark.parametrize("session", [{}, {"session_id": 0}], ids=["a new session", "a new name"])
def test_calls_that_are_refused_together_leave_nothing(client, session):
    """The last one had not made what the first one left to it."""
    if session:
        client.bash("x=1", state_mode="stateful", **session)
    before = client.call("list_sessions")
    refused = [client.start("execute", language="bash", code="true", session_name="s", state_mode="stateful", cwd="/nonexistent", **session)
               for _ in range(3)]
    assert {pending.wait(20)["state"] for pending in refused} == {"unchanged"}
    assert client.bash("true", session_name="s", state_mode="read_only")["error_type"] == "validation"
    assert len(client.call("list_sessions")["sessions"]) == len(before["sessions"])


TRACER = r"""
import ctypes, os, select
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.prctl(0x59616d61, ctypes.c_ulong(-1 & 2**64 - 1), 0, 0, 0)  # PR_SET_PTRACER: anybody
SEIZE, CONT, FORKS, STOP, WALL = 0x4206, 7, 2 | 4 | 8, 128, 0x40000000
def trace(pid, report):
    os.write(report, b"go\n" if libc.ptrace(SEIZE, pid, None, FORKS) == 0 else b"no\n")
    while True:
        who, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            continue
        os.write(report, b"%d\n" % who)
        libc.ptrace(CONT, who, None, None if status >> 16 else os.WSTOPSIG(status))
read_end, write_end = os.pipe()
session = os.getpid()
tracer = os.fork()
if tracer == 0:
    try:
        trace(session, write_end)
    finally:
        os._exit(1)
may = os.read(read_end, 3)
def followed():
    seen = b""
    while select.select([read_end], [], [], 0.3)[0]:
        seen += os.read(read_end, 4096)
    return {int(n) for n in seen.split()} - {session}
"""


def test_a_tracer_of_a_session_does_not_follow_its_copies(client):
    """`strace -f -p $$ &` wrote down what read-only calls did, and could have changed it."""
    session = {"session_name": "s", "state_mode": "stateful"}
    if client.python(TRACER + "may", **session)["result"] != b"go\n":
        pytest.skip("no process may be traced here")
    client.python("followed()", **session)
    assert client.python("os.waitpid(os.fork() or os._exit(0), 0); len(followed())", **session)["result"] == 1, "the tracer does not work"
    look = client.python("import subprocess; subprocess.run(['true']).returncode", session_name="s", state_mode="read_only")
    assert look["result"] == 0, look
    assert client.python("len(followed())", **session)["result"] == 0
    client.python("os.kill(tracer, 9)", **session)


def test_a_copy_has_what_the_page_cache_has_not(client):
    """The pages of a deleted file that were mapped and not in memory were zeros in copies."""
    client.python("""
import mmap, os
f = os.open("evicted", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"content!" * 8192)
os.fsync(f)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
memory = mmap.mmap(f, 65536)
os.unlink("evicted")
for n in os.listdir("/proc/self/fd"):
    try:
        if "/evicted" in os.readlink("/proc/self/fd/" + n): os.close(int(n))
    except OSError: pass
""", session_name="s", state_mode="stateful")
    look = client.python("bytes(memory) == b'content!' * 8192, memory.write(b'changed!')", session_name="s", state_mode="read_only")
    assert look["result"] == [True, 8], look
    assert client.python("memory[:8]", session_name="s", state_mode="stateful")["result"] == b"content!"


def test_memory_that_cannot_be_copied_is_not_read_as_zeros(client):
    made = client.python("""
import ctypes, mmap, os
secret = ctypes.CDLL(None).syscall(447, 0)
if secret >= 0:
    os.ftruncate(secret, 4096)
    memory = mmap.mmap(secret, 4096)
    memory[:6] = b"secret"
secret""", session_name="s", state_mode="stateful")
    if made["result"] < 0:
        pytest.skip("memfd_secret is not to be had here")
    look = client.python("memory[:6]", session_name="s", state_mode="read_only")
    assert (look["error_type"], look["state"]) == ("isolation", "unchanged") and "memfd_secret" in look["error"], look
    assert client.python("memory[:6]", session_name="s", state_mode="stateful")["result"] == b"secret"


def test_shared_memory_that_is_sealed_is_not_shared_unasked(client):
    made = client.python("""
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc.syscall(462, ctypes.c_void_p(at), ctypes.c_size_t(4096), 0)""", session_name="s", state_mode="stateful")
    if made["result"] != 0:
        pytest.skip("mseal is not to be had here")
    look = client.python("memory[0] = 7", session_name="s", state_mode="read_only")
    assert (look["error_type"], look["state"]) == ("isolation", "unchanged") and "mseal" in look["error"], look
    assert client.python("memory[0]", session_name="s", state_mode="stateful")["result"] == 0
    look = client.python("memory[0]", session_name="s", state_mode="read_only", isolation={"memory": "allow"})
    assert look["result"] == 0 and look["isolation"]["memory"] == "none", look


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_session_in_a_mount_namespace_of_its_own_stays_there(client):
    """Its copies, and the session after a rollback, saw the engine's files at its paths."""
    session = {"session_name": "s", "state_mode": "stateful"}
    made = client.python("""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("mounted")
CLONE_NEWNS, PRIVATE = 0x20000, 1 << 18 | 1 << 14
r = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, PRIVATE, None) or libc.mount(b"none", b"mounted", b"tmpfs", 0, None)
open("mounted/inside", "w").close()
r""", **session)
    if made["result"] != 0:
        pytest.skip("no mount namespaces here")
    for mode in ("read_only", "stateful"):
        assert client.python("os.listdir('mounted')", session_name="s", state_mode=mode)["result"] == ["inside"]
    look = client.python("open('mounted/new', 'w')", session_name="s", state_mode="read_only")
    assert not look["ok"] and look["isolation"]["disk"] == "landlock", look
    assert client.python("os.abort()", **session)["state"] == "rolled_back"
    assert client.python("os.listdir('mounted')", **session)["result"] == ["inside"]


# Ways to change something for good through a descriptor that is open for reading; each had to be one that the filter refuses.
CONTROLS = """
import fcntl, resource
fd = os.open("file", os.O_RDONLY)
def attempt(f, *args):
    try:
        f(*args)
        return "done"
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) or str(error)
# FS_IOC_SETFLAGS and SETVERSION, ext4's SETVERSION and MIGRATE, FSSETXATTR, SET_ENCRYPTION_POLICY, btrfs SNAP_CREATE and SUBVOL_SETFLAGS
done = [attempt(fcntl.ioctl, fd, n, bytes([1]) * 64) for n in (0x40086602, 0x40087602, 0x40086604, 0x6609, 0x401c5820, 0x800c6613, 0x50009401, 0x4008941a)]
# F_SET_RW_HINT, F_SET_FILE_RW_HINT
done += [attempt(fcntl.fcntl, fd, n, bytes([2]) + bytes(31)) for n in (1036, 1038)]
# what the engine finds by: RLIMIT_RTTIME and RLIMIT_LOCKS
done += [attempt(resource.prlimit, 0, n, (1, 1)) for n in (15, 10)]
done, [attempt(resource.setrlimit, n, (1, 1)) for n in (15, 10)], attempt(fcntl.ioctl, fd, 0x541b, bytes(8))"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_where_landlock_stands_in_nothing_is_taken_or_changed_by_name(client):
    made = client.python("""
import ctypes, os, pty
r = ctypes.CDLL(None, use_errno=True).unshare(0x20000)
master, slave = pty.openpty()
name = os.ttyname(slave)
os.write(master, b"typed\\n")
open("file", "w").close()
r""", session_name="s", state_mode="stateful")
    if made["result"] != 0:
        pytest.skip("no mount namespaces here")
    look = client.python("open(name).read()", session_name="s", state_mode="read_only")
    assert look["isolation"]["disk"] == "landlock" and "Permission denied" in look["error"], look
    look = client.python("open('/etc/passwd').read(4), open('file').read(), open('/dev/null').read(), len(open('/dev/urandom', 'rb').read(2))",
                         session_name="s", state_mode="read_only")
    assert look["ok"] and look["result"][1:] == ["", "", 2], look
    look = client.python(CONTROLS, session_name="s", state_mode="read_only")
    assert look["result"] == [[1] * 12, ["not allowed to raise maximum limit"] * 2, "done"], look
    assert client.python("os.read(slave, 99)", session_name="s", state_mode="stateful")["result"] == b"typed\n"


LOWER = """
import os, resource, time
if os.fork() == 0:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_RTTIME, (200000, 200000))
    os.execv('/bin/sleep', ['sleep', '%s'])"""


def test_a_process_that_bounds_its_real_time_is_found_again(client, engine):
    """As what asks for real-time scheduling does; the limit was the engine's only mark."""
    client.python("x = 1", session_name="s", state_mode="stateful")
    client.python(LOWER % "76.155", session_name="s", state_mode="stateful")
    assert eventually(lambda: left_of(engine, "sleep 76.155"))
    assert client.python("os.abort()", session_name="s", state_mode="stateful")["state"] == "rolled_back"
    client.call("close_session", session_name="s")
    assert eventually(lambda: not left_of(engine, "sleep 76.155")), left_of(engine, "sleep 76.155")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_pid_namespace_for_children_is_left_to_them(client):
    """The task that makes clones was its number 1, and ended with it: code could make no child any more."""
    session = {"session_name": "s", "state_mode": "stateful"}
    if client.python("import ctypes, os; ctypes.CDLL(None).unshare(0x20000000)", **session)["result"] != 0:
        pytest.skip("no pid namespaces here")
    look = client.python("1", session_name="s", state_mode="read_only")
    assert look["error_type"] == "isolation" and "pid namespace" in look["error"], look
    assert client.python("child = os.fork()\nif child == 0: os._exit(os.getpid())\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
                         **session)["result"] == 1


def test_a_session_in_a_user_namespace_of_its_own_is_read(client):
    """It was refused, for the cell seemed to have ended, and lost what it held when it died."""
    session = {"session_name": "s", "state_mode": "stateful"}
    if client.python("import ctypes, os; ctypes.CDLL(None).unshare(0x10000000)", **session)["result"] != 0:
        pytest.skip("no user namespaces here")
    client.python("x = 1", **session)
    assert client.python("x", session_name="s", state_mode="read_only")["result"] == 1
    assert client.python("os.abort()", **session)["state"] == "rolled_back"
    assert client.python("x", **session)["result"] == 1


IN_FLIGHT = r"""
import array, errno, os, resource, socket
if not %r:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
many = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 50)
pairs = []
def fill():
    while True:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pairs[-1][0].setblocking(False)
        try:
            while True: pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
        except OSError as e:
            if e.errno != errno.EAGAIN: return e.errno
fill()
"""


@pytest.mark.parametrize("soft", [True, False], ids=["to its limit", "to the user's"])
def test_descriptors_that_one_session_keeps_on_their_way(new_engine, soft):
    """They count for the user: zygotes and snapshots ended, messages to them and to inits were lost, and sessions never came back."""
    client = new_engine(wrap=("unshare", "-r", "prlimit", "--nofile=1024:4096")).client()
    client.python("x = 1", session_name="other", state_mode="stateful")
    full = client.python(IN_FLIGHT % soft, session_name="s", state_mode="stateful")
    assert full["result"] == 109, full  # ETOOMANYREFS
    calls = [dict(session_name="other", state_mode="stateful"), dict(session_name="other", state_mode="read_only"),
             dict(session_name="s", state_mode="read_only"), dict(session_name="new", state_mode="stateful"), dict(state_mode="stateless")]
    for call in calls:
        answer = client.python("x = 1; x", timeout_s=20 if soft else 1, **call)
        assert answer["result"] == 1 if soft else answer["error_type"] in (None, "timeout", "isolation", "oom"), (call, answer)
    assert client.call("close_session", session_name="s")["closed"] is True
    for call in (call for call in calls if call.get("session_name") != "s"):
        answer = client.python("x = 2; x", timeout_s=20, **call)
        assert answer["result"] == 2, (call, answer)
    assert client.python("x", session_name="other", state_mode="read_only")["result"] == 2


def test_memory_that_is_kept_from_clones(client):
    """Copies, and the session after a roll-back, were without it, and ended at the first access."""
    session = {"session_name": "s", "state_mode": "stateful"}
    client.python("""
import ctypes, mmap
MADV_DONTFORK, MADV_DOFORK = 10, 11
memory = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:4] = b"kept"
memory.madvise(MADV_DONTFORK)""", **session)
    look = client.python("memory[:4]", session_name="s", state_mode="read_only")
    assert (look["error_type"], look["state"]) == ("isolation", "unchanged") and "MADV_DONTFORK" in look["error"], look
    client.python("memory.madvise(MADV_DOFORK)", **session)
    assert client.python("memory[:4]", session_name="s", state_mode="read_only")["result"] == b"kept"
    assert client.python("import os; os.abort()", **session)["state"] == "rolled_back"
    assert client.python("memory[:4]", **session)["result"] == b"kept"


def test_seals_of_a_memfd_are_a_copys_too(client):
    """F_SEAL_SEAL was missing, and a memfd that was open for reading alone had none."""
    code = "import fcntl, os\nF_ADD_SEALS, F_GET_SEALS = 1033, 1034\n" \
           "files = [os.memfd_create('plain', 0)] + [os.memfd_create('sealed', os.MFD_ALLOW_SEALING) for _ in range(2)]\n" \
           "fcntl.fcntl(files[1], F_ADD_SEALS, 15)\nfcntl.fcntl(files[2], F_ADD_SEALS, 2)\n" \
           "files.append(os.open('/proc/self/fd/%d' % files[1], os.O_RDONLY))"
    client.python(code, session_name="s", state_mode="stateful")
    for mode in ("stateful", "read_only"):
        assert client.python("[fcntl.fcntl(f, F_GET_SEALS) for f in files]", session_name="s", state_mode=mode)["result"] == [1, 15, 2, 15], mode


def test_a_child_that_a_timeout_met_before_its_program_began(client, engine):
    """Python's own handler took the interrupt in the child, which then began the program, and was not asked again."""
    client.python("import os, signal, time", session_name="s", state_mode="stateful")
    answer = client.python("child = os.fork()\n"
                           "if child == 0:\n"
                           " signal.signal(signal.SIGINT, lambda *a: os.execv('/bin/sleep', ['sleep', '76.155']))\n"
                           " while True: time.sleep(1)\n"
                           "try:\n"
                           " time.sleep(60)\n"
                           "finally:\n"
                           " time.sleep(0.5)", session_name="s", state_mode="stateful", timeout_s=0.5)
    assert answer["error_type"] == "timeout", answer
    assert eventually(lambda: not left_of(engine, "sleep 76.155")), left_of(engine, "sleep 76.155")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_copy_that_cannot_be_in_its_cell_leaves_no_process(client, engine):
    """The engine took it for one in the cell, whose end would end them."""
    made = client.python("import ctypes, os; ctypes.CDLL(None).unshare(0x40000000)", session_name="s", state_mode="stateful")
    if made["result"] != 0:
        pytest.skip("no network namespaces here")
    look = client.python("os.spawnvp(os.P_NOWAIT, 'setsid', ['setsid', 'sleep', '75.155'])", session_name="s", state_mode="read_only")
    assert look["ok"] and look["isolation"]["processes"] != "pid namespace", look
    assert eventually(lambda: not left_of(engine, "sleep 75.155")), left_of(engine, "sleep 75.155")


def test_the_end_of_the_engine_ends_what_has_lost_its_mark(new_engine):
    """The init that would have ended it was killed first."""
    engine = new_engine()
    client = engine.client()
    client.python("import os, resource, time\n"
                  "if os.fork() == 0:\n"
                  " os.setsid()\n"
                  " for n in (resource.RLIMIT_RTTIME, 10):\n"
                  "  limit = resource.getrlimit(n)[1]\n"
                  "  resource.setrlimit(n, (limit - 10**9, limit - 10**9))\n"
                  " os.execv('/bin/sleep', ['sleep', '74.155'])\n", session_name="s", state_mode="stateful")
    assert eventually(lambda: left_of(engine, "sleep 74.155"))
    client.call("close_session", session_name="s")
    assert engine.stop() == 0
    assert eventually(lambda: not left_of(engine, "sleep 74.155"), 2), left_of(engine, "sleep 74.155")
