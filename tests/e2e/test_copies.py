"""Read-only copies through the whole engine: what code finds in them works, what it does is thrown away, what held is said.

As root the module's engine is root's; engines wrapped in `setpriv` and `unshare -r` follow, and one that may make no namespaces.
"""
import errno
import os
import shutil
import subprocess
import tempfile
import time

import pytest

from furcalib import eventually

BARRIERS = {"memory", "threads", "disk", "descriptors", "processes", "ipc", "network", "privileges"}


def read(client, code, session="s", **args):
    answer = client.execute(code, state_mode="read_only", session_name=session, **args)
    assert answer["ok"], answer["error"]
    return answer


def do(client, code, session="s", **args):
    answer = client.execute(code, state_mode="stateful", session_name=session, **args)
    assert answer["ok"], answer["error"]
    return answer


def test_isolation_names_what_held(client):
    do(client, "x = 1")
    answer = read(client, "x = 2; print(x)")
    assert answer["stdout"] == "2\n"
    assert set(answer["isolation"]) == BARRIERS
    assert "none" not in answer["isolation"].values()
    assert answer["isolation"]["disk"] == "overlayfs"
    assert answer["isolation"]["processes"] == "pid namespace"
    assert do(client, "print(x)")["stdout"] == "1\n"


LOOK = """
_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
_n = sum(1 for one in data if one is not None)
(_n, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - _before)
"""


def parked_read(client, session):
    """A look from a copy that was parked ahead, and had the time to take its page faults: [result, faults]."""
    answer = client.python(LOOK, session_name=session, state_mode="read_only")
    return answer["result"] if answer["ok"] and answer["timing"]["fork_us"] == 0 else None


def test_copies_take_faults_in_advance(client):
    """A look at many objects writes to all of them, for it counts references: the next copy has those pages before it is asked."""
    do(client, "import resource; data = [object() for i in range(200_000)]", "many")
    first = read(client, LOOK, "many")["result"]
    assert first[0] == 200_000 and first[1] > 512, first
    later = eventually(lambda: (r := parked_read(client, "many")) is not None and r[1] < first[1] / 8 and r, 20, 0.2)
    assert later[0] == 200_000, later
    # The list outlives commits, and does not stand in the way of what is new.
    do(client, "data.append(1)", "many")
    again = eventually(lambda: (r := parked_read(client, "many")) is not None and r[1] < first[1] / 8 and r, 20, 0.2)
    assert again[0] == 200_001, again


def test_changes_list_files(client):
    do(client, "import os; open('kept','w').write('a'); open('gone','w').write('b'); os.makedirs('d', exist_ok=True); open('d/in','w').write('c')")
    answer = read(client, """
import os, shutil
open('kept', 'w').write('changed'); os.unlink('gone'); open('new', 'w').write('n'); os.makedirs('e/f'); open('e/f/g', 'w').close()
open('d/in').read()
""")
    files = answer["changes"]["files"]
    ends = {kind: {path.rsplit("/work/", 1)[-1] for path in files[kind]} for kind in ("added", "modified", "deleted")}
    assert {"new", "e", "e/f", "e/f/g"} <= ends["added"]
    assert ends["modified"] == {"kept"} and ends["deleted"] == {"gone"}
    assert do(client, "print(open('kept').read(), os.path.exists('gone'), os.path.exists('new'))")["stdout"] == "a True False\n"


ALONE = {  # kind: what a call does, and nothing else; what is listed
    "nothing": ("open('c').read(), os.listdir('.'), os.stat('c')", {}),
    "opened for writing": ("open('c', 'r+').close()", {}),
    "touched in the call alone": ("open('t', 'w').close(); os.unlink('t')", {}),
    "added": ("open('t', 'w').close()", {"added": {"t"}}),
    "changed": ("open('c', 'a').write('x')", {"modified": {"c"}}),
    "truncated": ("os.truncate('c', 1)", {"modified": {"c"}}),
    "mode": ("os.chmod('c', 0o600)", {"modified": {"c"}}),
    "time": ("os.utime('c', (1, 1))", {"modified": {"c"}}),
    "deleted": ("os.unlink('c')", {"deleted": {"c"}}),
    "renamed": ("os.rename('c', 't')", {"added": {"t"}, "deleted": {"c"}}),
    "symbolic link": ("os.symlink('c', 't')", {"added": {"t"}}),
    "directory made": ("os.mkdir('t')", {"added": {"t"}}),
    "directory removed": ("os.rmdir('empty')", {"deleted": {"empty"}}),
}


@pytest.mark.parametrize("kind", ALONE)
def test_each_change_of_files_alone_is_listed(client, kind):
    code, want = ALONE[kind]
    do(client, "import os; open('c', 'w').write('content'); os.makedirs('empty', exist_ok=True)")
    files = read(client, f"import os; {code}; None")["changes"]["files"]
    got = {what: {os.path.basename(path) for path in files[what]} for what in ("added", "modified", "deleted") if files[what]}
    assert got == want and files["count"] == sum(map(len, want.values())), files


BACK = "s = os.stat('c'); %s; os.utime('%s', ns=(s.st_atime_ns, s.st_mtime_ns))"
UNSEEN = {  # what sizes, times and the number of files do not tell of; `{top}`: a directory that is a mount's
    "content": (BACK % ("open('c', 'r+').write('CONTENT')", "c"), {"modified": {"c"}}),
    "replaced": (BACK % ("open('t', 'w').write('CONTENT')", "t") + "; os.rename('t', 'c')", {"modified": {"c"}}),
    "replaced by the same": (BACK % ("open('t', 'w').write('content')", "t") + "; os.rename('t', 'c')", {}),
    "attribute": ("os.setxattr('c', 'user.a', b'1')", {"modified": {"c"}}),
    "attribute of a directory": ("os.setxattr('empty', 'user.a', b'1')", {"modified": {"empty"}}),
    "directory for a file": ("os.unlink('c'); os.makedirs('c/d'); open('c/d/f', 'w').close()", {"deleted": {"c"}, "added": {"c", "d", "f"}}),
    "file for a directory": ("os.rmdir('empty'); open('empty', 'w').close()", {"deleted": {"empty"}, "added": {"empty"}}),
    "hard link": ("os.link('c', 't')", {"added": {"t"}}),
    "target of a link": ("s = os.lstat('l'); os.unlink('l'); os.symlink('e', 'l'); os.utime('l', ns=(s.st_atime_ns, s.st_mtime_ns), follow_symlinks=False)",
                         {"modified": {"l"}}),
    "attribute of the root": ("try: os.setxattr('/', 'user.a', b'1')\nexcept OSError: os.chmod('/', 0o711)\n", {"modified": {""}}),
    "mode of the root": ("os.chmod('/', 0o711)", {"modified": {""}}),
    "mode of a mount": ("os.chmod('/dev/shm', 0o711)", {"modified": {"shm"}}),
    "file in the root": ("open('/furca-test-t', 'w').close()", {"added": {"furca-test-t"}}),
    "directory in the root": ("os.makedirs('/furca-test-t/d')", {"added": {"furca-test-t", "d"}}),
    "renamed in the root": ("os.rename('/bin', '/furca-test-t')", {"added": {"furca-test-t"}, "deleted": {"bin"}}),
}


@pytest.mark.parametrize("wrap", [[], ["unshare", "-r"]], ids=["root", "unshare -r"])
def test_changes_that_leave_sizes_and_times_are_listed(new_engine, wrap):
    if subprocess.run([*wrap, "true"]).returncode != 0:
        pytest.skip("no user namespaces here")
    if os.stat("/").st_uid != os.geteuid() or not os.path.islink("/bin") or not os.path.ismount("/dev/shm"):
        pytest.skip("needs to be root, /bin to be a link and /dev/shm to be a mount")
    client = new_engine(wrap=wrap).client()
    do(client, "import os; open('c', 'w').write('content'); os.mkdir('empty'); os.symlink('c', 'l')")
    try:
        os.setxattr(tempfile.gettempdir(), "user.furca-test", b"")
        os.removexattr(tempfile.gettempdir(), "user.furca-test")
        attributes = True
    except OSError:
        attributes = False
    for kind, (code, want) in UNSEEN.items():
        if "attribute" in kind and not attributes:
            continue
        files = read(client, f"import os\n{code}\nNone")["changes"]["files"]
        got = {what: {os.path.basename(path) for path in files[what]} for what in ("added", "modified", "deleted") if files[what]}
        assert got == want, (kind, files)


def test_a_change_too_deep_for_a_path_is_listed(client):
    """As one of the last directory whose path can be told."""
    way = """
import os
at = os.open('.', os.O_RDONLY)
for _ in range(40):
    %s
    at = os.open('n' * 250, os.O_RDONLY, dir_fd=at)
f = os.open('deep', os.O_RDWR | os.O_CREAT | os.O_APPEND, dir_fd=at)
_ = os.write(f, b'x')
"""
    do(client, way % "os.mkdir('n' * 250, dir_fd=at)")
    files = read(client, way % "pass")["changes"]["files"]
    assert files["count"] == 1 and files["modified"][0].endswith("/" + "n" * 250), (files["count"], len(files["modified"]))


def test_directories_made_for_a_user_beforehand_are_listed(new_engine):
    """Somebody else's on the way to a home: a copy can change them, and takes no inode for it."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to become an ordinary user")
    with tempfile.TemporaryDirectory() as base:
        os.makedirs(base + "/way/home")
        os.chmod(base, 0o755)
        become = 'chown -R 65533:65533 .. && exec setpriv --reuid=65533 --regid=65533 --clear-groups "$@"'
        client = new_engine(wrap=("sh", "-c", become, "sh"), env={"HOME": base + "/way/home"}).client()
        do(client, "import os")
        for code, kind, path in (("os.rmdir(w + '/home'); os.rmdir(w)", "deleted", ""), ("os.chmod(w + '/home', 0o700)", "modified", "/home"),
                                 ("os.chmod(w, 0o700)", "modified", ""), ("os.listdir(w)", "modified", None)):
            files = read(client, f"w = {base + '/way'!r}; {code}; None")["changes"]["files"]
            assert files[kind] == ([base + "/way" + path] if path is not None else []), (code, files)
            assert files["count"] == len(files[kind]), (code, files)


def test_files_keep_offsets_and_modes(client):
    do(client, "f = open('log', 'a'); f.write('one\\n'); f.flush(); g = open('data', 'w+'); g.write('0123456789'); g.seek(4)")
    answer = read(client, "f.write('two\\n'); f.flush(); print(open('log').read().split(), g.read(3), g.tell()); g.write('X'); g.flush()")
    assert answer["stdout"] == "['one', 'two'] 456 7\n"
    assert do(client, "print(g.tell(), open('log').read().split(), open('data').read())")["stdout"] == "4 ['one'] 0123456789\n"


def test_many_descriptors_keep_what_they_share(client):
    """Numbers of one description are found by the kernel's order of them where there are many."""
    do(client, """
import os
_ = open('data', 'w').write('x' * 1000)
many = [os.open('data', os.O_RDONLY) for _ in range(600)]
twins = {i: os.dup(many[i]) for i in range(0, 600, 7)}
for i, fd in enumerate(many):
    _ = os.read(fd, i)
""")
    answer = read(client, """
assert all(os.lseek(fd, 0, 1) == i for i, fd in enumerate(many))
_ = [os.read(fd, 1) for fd in many[::2]]
assert all(os.lseek(fd, 0, 1) == i + (i % 2 == 0) for i, fd in enumerate(many))
[i for i, fd in twins.items() if os.lseek(fd, 0, 1) != i + (i % 2 == 0)]
""")
    assert answer["result"] == [], answer


def test_numbers_beyond_the_limit(client):
    """That were open before it was lowered; the host's own are such."""
    client.register({"echo": lambda x: x})
    do(client, """
import os, resource
_ = open('data', 'w').write('0123456789'), capabilities.echo(1)
high = os.dup2(os.open('data', os.O_RDONLY), 5000)
ends = [os.dup2(fd, 5001 + i) for i, fd in enumerate(os.pipe())]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
""")
    answer = read(client, "os.write(ends[1], b'x'); os.read(ends[0], 1) + os.read(high, 5), resource.getrlimit(resource.RLIMIT_NOFILE)[0]")
    assert answer["result"] == [b"x01234", 100]
    assert read(client, "capabilities.echo(2)")["result"] == 2
    assert do(client, "os.read(high, 3)")["result"] == b"012"


OPEN_ALL = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (%s))
opened = []
try:
    while True:
        opened.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error:
    print(error.strerror)
"""


def test_code_that_opens_all_it_may_keeps_its_session(client):
    """The process ended: it could not receive the channels of its snapshot, nor the pipes of the next call."""
    assert do(client, OPEN_ALL % "300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]")["stdout"] == "Too many open files\n"
    for n in range(3):
        assert read(client, "len(opened) > 200 and resource.getrlimit(resource.RLIMIT_NOFILE)[0]")["result"] == 300
        assert do(client, f"n = {n}; os.system('true'); resource.getrlimit(resource.RLIMIT_NOFILE)[0]")["result"] == 300
    assert client.call("undo", language="python", session_name="s")["ok"]
    assert do(client, "n")["result"] == 1
    answer = client.execute("import signal; os.kill(os.getpid(), signal.SIGKILL)", state_mode="stateful", session_name="s")
    assert answer["state"] == "rolled_back" and do(client, "n")["result"] == 1
    do(client, "for fd in opened: os.close(fd)")
    assert read(client, "open('/dev/null').read()")["result"] == ""


def test_where_no_descriptor_can_be_had_it_says_so(client):
    do(client, "x = 1")
    assert do(client, OPEN_ALL % "40, 40")["stdout"] == "Too many open files\n"
    for _ in range(2):
        answer = client.execute("x", state_mode="read_only", session_name="s")
        assert answer["error_type"] == "isolation" and "as many descriptors open as it may" in answer["error"], answer
        assert "RLIMIT_NOFILE" in answer["suggestion"]
    answer = client.execute("[os.close(fd) for fd in opened]; x += 1", state_mode="stateful", session_name="s")
    assert answer["ok"] or "as many descriptors open as it may" in answer["error"], answer
    assert client.call("undo", language="python", session_name="s")["ok"]  # to the last state that was kept
    assert read(client, "x")["result"] == 1


def test_a_call_for_which_no_descriptor_is_left_does_not_begin(client):
    """It was answered as one that had run: "exception", "committed"."""
    do(client, "import os, resource; x = os.system('true'); resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))")
    for _ in range(2):
        answer = client.execute("x += 1", state_mode="stateful", session_name="s")
        assert (answer["ok"], answer["error_type"], answer["state"]) == (False, "limit", "unchanged"), answer
        assert "RLIMIT_NOFILE" in answer["suggestion"]
    assert client.call("undo", language="python", session_name="s")["ok"]


MOUNT = "import ctypes, os; libc = ctypes.CDLL(None); os.makedirs('mounted', exist_ok=True)"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_copy_shows_what_is_mounted_now(client, engine):
    """Cells are made ahead, and copies parked in them: for a few looks they showed what had been mounted before."""
    do(client, MOUNT)
    assert read(client, "os.listdir('mounted')")["result"] == []
    for n in range(3):
        if do(client, "libc.mount(b'none', b'mounted', b'tmpfs', 0, None)")["result"] != 0:
            pytest.skip("nothing can be mounted here")
        do(client, "open('mounted/inside', 'w').close()")
        for wait in (0, 0, 0, 0.05, 0.1):
            assert read(client, "os.listdir('mounted')")["result"] == ["inside"]
            time.sleep(wait)
        assert do(client, "libc.umount2(b'mounted', 0)")["result"] == 0
        for wait in (0, 0, 0, 0.05, 0.1):
            assert read(client, "os.listdir('mounted')")["result"] == []
            time.sleep(wait)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_copy_shows_what_others_mount(client, engine):
    do(client, MOUNT)
    assert read(client, "os.listdir('mounted')")["result"] == []
    time.sleep(0.1)  # a copy is parked
    at = os.path.join(engine.workdir, "mounted")
    subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)
    try:
        open(os.path.join(at, "theirs"), "w").close()
        for wait in (0, 0.05, 0.1, 0):
            assert read(client, "os.listdir('mounted')")["result"] == ["theirs"]
            time.sleep(wait)
    finally:
        subprocess.run(["umount", at], check=True)
    assert read(client, "os.listdir('mounted')")["result"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_directory_that_has_no_path_any_more_is_no_other(client):
    """It was the copy's root."""
    made = do(client, MOUNT + """
unmounted = libc.mount(b'none', b'mounted', b'tmpfs', 0, None)
d, p = os.open('mounted', os.O_RDONLY), os.open('mounted', os.O_PATH)
unmounted = unmounted or libc.umount2(b'mounted', 2)
others = [os.open(at, os.O_RDONLY) for at in ('.', '/', '/tmp', '/proc', '/dev')] + [os.open('.', os.O_PATH)]
unmounted""")
    if made["result"] != 0:
        pytest.skip("nothing can be mounted here")
    assert do(client, "os.listdir(d)")["result"] == []
    tell = """
def tell(fd):
    try:
        return len(os.listdir(fd))
    except OSError as error:
        return error.errno
[tell(fd) for fd in (d, p)], [tell(fd) > 0 for fd in others]"""
    assert read(client, tell)["result"] == [[errno.ENOTDIR] * 2, [True] * 6]


def test_child_processes_of_the_session_are_what_they_are(client):
    """subprocess takes "no child" for an end with status 0: failed and running programs had succeeded."""
    do(client, """
import os, subprocess, time
failed, killed, running = (subprocess.Popen(['sh', '-c', code]) for code in ('exit 3', 'kill -9 $$', 'sleep 30'))
while not os.waitid(os.P_PID, failed.pid, os.WEXITED | os.WNOWAIT) or not os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT): pass
""")
    for _ in range(3):
        assert read(client, "failed.poll(), killed.poll(), running.poll()")["result"] == [3, -9, None]
        assert read(client, "failed.wait(), subprocess.run(['sh', '-c', 'exit 4']).returncode")["result"] == [3, 4]
    answer = client.execute("running.wait(0.1)", state_mode="read_only", session_name="s")
    assert "TimeoutExpired" in answer["error"], answer
    answer = client.execute("running.wait()", state_mode="read_only", session_name="s")
    assert "child of the session" in answer["error"], answer
    assert do(client, "failed.poll(), killed.poll(), running.poll()")["result"] == [3, -9, None]
    assert client.execute("os.abort()", state_mode="stateful", session_name="s")["state"] == "rolled_back"
    assert do(client, "running.poll(), subprocess.run(['sh', '-c', 'exit 4']).returncode")["result"] == [None, 4]


def test_sqlite_connections_work(client):
    do(client, """
import sqlite3
c = sqlite3.connect('d.db'); c.execute('create table if not exists t(x)'); c.execute('delete from t'); c.execute('insert into t values(1)'); c.commit()
w = sqlite3.connect('w.db'); w.execute('pragma journal_mode=wal'); w.execute('create table if not exists t(x)'); w.execute('delete from t'); w.execute('insert into t values(1)'); w.commit()
""")
    answer = read(client, """
for k, name in ((c, 'd.db'), (w, 'w.db')):
    k.execute('insert into t values(2)'); k.commit()
    other = sqlite3.connect(name)
    print([r[0] for r in k.execute('select x from t')], [r[0] for r in other.execute('select x from t')])
    other.execute('delete from t'); other.commit()
    print(k.execute('select count(*) from t').fetchone())
""")
    assert answer["stdout"] == "[1, 2] [1, 2]\n(0,)\n" * 2
    assert do(client, "print(c.execute('select count(*) from t').fetchone(), w.execute('select count(*) from t').fetchone())")["stdout"] == "(1,) (1,)\n"


def test_shared_memory_and_mapped_arrays(client):
    pytest.importorskip("numpy")
    do(client, """
import numpy, multiprocessing.shared_memory as sm
m = numpy.memmap('a.bin', 'i8', 'w+', shape=(1000,)); m[:] = 7; m.flush()
s = sm.SharedMemory(create=True, size=8000); a = numpy.ndarray((1000,), 'i8', s.buf); a[:] = 5
""")
    answer = read(client, """
m[0] = 1; m.flush(); a[0] = 2
print(m.sum(), numpy.fromfile('a.bin', 'i8')[0], a.sum())
t = sm.SharedMemory(s.name); print(numpy.ndarray((1000,), 'i8', t.buf)[0])
""")
    assert answer["stdout"] == "6994 1 4997\n2\n"
    answer = do(client, "print(m[0], a[0], numpy.fromfile('a.bin', 'i8')[0]); del a; s.close(); s.unlink()")
    assert answer["stdout"] == "7 5 7\n"


def test_processes_pools_and_loops_inside(client):
    do(client, "import asyncio, subprocess, multiprocessing, threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
               "pool = ThreadPoolExecutor(2); list(pool.map(abs, range(4)))\nloop = asyncio.new_event_loop()\n"
               "async def later(x):\n    await asyncio.sleep(0.01)\n    return x\nprint(loop.run_until_complete(later(3)))\n"
               "def square(x): return x * x")
    answer = read(client, """
print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout, end='')
with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(square, [1, 2, 3]))
print(loop.run_until_complete(later(4)))
async def sub():
    q = await asyncio.create_subprocess_exec('echo', 'sub', stdout=-1)
    return (await q.communicate())[0]
import socket; srv = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(srv.getsockname()); print('loopback')
""")
    assert answer["stdout"] == "hi\n[1, 4, 9]\n4\nloopback\n"
    assert do(client, "print(loop.run_until_complete(later(5)))")["stdout"] == "5\n"


@pytest.mark.parametrize("wrap", [[], ["unshare", "-r"]], ids=["root", "unshare -r"])
def test_new_terminals_can_be_had(new_engine, wrap):
    """The cell's own: its devpts was mounted so that no device could be opened on it, ptmx neither."""
    client = new_engine(wrap=wrap).client()
    do(client, "import os, pty; before = os.openpty()")
    answer = read(client, "first, second = os.openpty(); print(os.ttyname(second)); os.write(second, b'through'); print(os.read(first, 100)); "
                          "pty.spawn(['sh', '-c', 'tty'])")
    name, through, tty = answer["stdout"].split()
    assert name.startswith("/dev/pts/") and through == "b'through'" and tty.startswith("/dev/pts/") and tty != name, answer
    assert do(client, "os.ttyname(before[1]).startswith('/dev/pts/')")["result"] is True


def test_subprocess_pipes_of_the_session_end_when_it_closes_them(client):
    do(client, "import subprocess; p = subprocess.Popen(['sort'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True); p.stdin.write('b\\na\\n'); p.stdin.flush()")
    answer = read(client, "try:\n    p.stdin.write('c\\n'); p.stdin.flush(); print('wrote')\nexcept OSError as e: print(e.strerror)")
    assert answer["stdout"] == "Bad file descriptor\n"
    assert do(client, "p.stdin.close(); print(p.stdout.read().split(), p.wait())", timeout_s=10)["stdout"] == "['a', 'b'] 0\n"


def test_a_port_is_free_again_and_listens_again_after_a_death(client):
    do(client, "import socket, os; srv = socket.create_server(('127.0.0.1', 0)); port = srv.getsockname()[1]")
    client.execute("os.kill(os.getpid(), 9)", state_mode="stateful", session_name="s")
    assert do(client, "c = socket.create_connection(('127.0.0.1', port)); print(srv.accept()[1] == c.getsockname()); c.close()")["stdout"] == "True\n"
    assert do(client, "srv.close(); s2 = socket.socket(); s2.setsockopt(1, 2, 1); s2.bind(('127.0.0.1', port)); print('free')")["stdout"] == "free\n"


def test_nothing_is_left_behind(client, engine):
    do(client, "import os, subprocess, time")
    mark = "sleep 987.%d" % os.getpid()
    read(client, "subprocess.Popen(%r.split(), start_new_session=True)" % mark)
    assert eventually(lambda: mark not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout, 3)


def test_network_can_be_allowed(client):
    do(client, "import socket")
    code = "print(len(open('/proc/net/dev').read().splitlines()) > 3)"
    ours = len(open("/proc/net/dev").read().splitlines()) > 3
    assert read(client, code)["stdout"] == "False\n"
    answer = read(client, code, isolation={"network": "allow"})
    assert answer["stdout"] == "%s\n" % ours and answer["isolation"]["network"] == "none"



@pytest.mark.parametrize("wrap", [["unshare", "-r"]], ids=["unshare -r"])
def test_copies_in_a_user_namespace(new_engine, wrap):
    if subprocess.run([*wrap, "true"]).returncode != 0:
        pytest.skip("no user namespaces here")
    client = new_engine(wrap=wrap).client()
    do(client, "x = 1; f = open('f', 'w'); f.write('one'); f.flush()")
    answer = read(client, "f.write('two'); f.flush(); open('g', 'w').write('x'); print(open('f').read())")
    assert answer["stdout"] == "onetwo\n"
    assert all(answer["isolation"][k] != "none" for k in ("memory", "disk", "descriptors", "processes"))
    assert any(path.endswith("/g") for path in answer["changes"]["files"]["added"])
    assert do(client, "import os; print(open('f').read(), os.path.exists('g'))")["stdout"] == "one False\n"


@pytest.mark.parametrize("wrap, result", [([], "renamed"), (["unshare", "-r"], "EXDEV")], ids=["root", "unshare -r"])
def test_directories_are_renamed_or_moved(new_engine, wrap, result):
    """An overlay in a user namespace cannot rename a directory of the disk; one made in the call, and a file, it can. Moving works always."""
    if subprocess.run([*wrap, "true"]).returncode != 0:
        pytest.skip("no user namespaces here")
    client = new_engine(wrap=wrap).client()
    do(client, "import errno, os, shutil\nos.makedirs('d/e')\n_ = open('d/e/f', 'w').write('kept')")
    answer = read(client, """
os.rename('d/e/f', 'd/e/g'); os.rename('d/e/g', 'd/e/f'); os.mkdir('new'); os.rename('new', 'newer')
try:
    os.rename('d', 'r'); print('renamed')
except OSError as e:
    print(errno.errorcode[e.errno]); shutil.move('d', 'r')
print(open('r/e/f').read(), os.path.exists('d'), os.listdir('newer'))
""")
    assert answer["stdout"] == result + "\nkept False []\n", answer
    assert do(client, "print(sorted(os.listdir('.')), os.listdir('d/e'))")["stdout"] == "['d'] ['f']\n"


def no_namespaces():
    program = shutil.which("no_syscall", path=os.pathsep.join([os.path.join(os.environ.get("FURCA_LIBEXEC", "."), "tests"), "tests"]))
    return [os.path.abspath(program), "mount:EPERM"] if program else None


def test_without_namespaces_landlock_stands_in(new_engine):
    wrap = no_namespaces()
    if not wrap:
        pytest.skip("tests/no_syscall is not built")
    client = new_engine(wrap=wrap).client()
    do(client, "f = open('f', 'w'); f.write('one'); f.flush()")
    answer = client.execute("try:\n    open('g', 'w')\nexcept OSError as e: print(e.strerror)\nprint(open('f').read())", state_mode="read_only", session_name="s")
    if not answer["ok"]:
        assert answer["error_type"] == "isolation" and answer["suggestion"]
        return
    assert answer["stdout"] == "Permission denied\none\n" and answer["isolation"]["disk"] == "landlock"
    assert do(client, "import os; print(os.path.exists('g'))")["stdout"] == "False\n"


def look_while_it_changes(client, size, change, **isolation):
    """A look that reads a byte of the session's shared memory after the session has changed it."""
    setup = "import mmap, time\nm = mmap.mmap(-1, %d)\nm[%d] = 65\nm[0] = 65" % (size, size - 5)
    assert client.python(setup, session_name="shared")["ok"]
    look = client.start("execute", language="python", code="time.sleep(0.7); (m[%d], m[%d])" % (size - 5, size // 2), session_name="shared",
                        state_mode="read_only", **isolation)
    time.sleep(0.3)
    assert client.python(change % {"at": size - 5, "half": size // 2}, session_name="shared")["ok"]
    return look.wait(30)


@pytest.mark.parametrize("size", [8 << 20, 1 << 30], ids=["8 MiB", "1 GiB, sparse"])
def test_shared_memory_is_a_copy(client, size):
    answer = look_while_it_changes(client, size, "m[%(at)d] = 66; m[%(half)d] = 66")
    assert answer["ok"] and answer["result"] == [65, 0], answer


def test_too_much_shared_memory_is_refused_unless_waived(client):
    assert client.python("import mmap\nm = mmap.mmap(-1, 270 << 20)\nm[:] = b'A' * len(m)", session_name="much")["ok"]
    refused = client.python("m[5]", session_name="much", state_mode="read_only")
    assert refused["error_type"] == "isolation" and "MiB" in refused["error"] and "isolation.memory" in refused["suggestion"], refused
    waived = client.python("m[5] = 66; m[5]", session_name="much", state_mode="read_only", isolation={"memory": "allow"})
    assert waived["ok"] and waived["result"] == 66 and waived["isolation"]["memory"] == "none", waived
    assert client.python("m[5]", session_name="much")["result"] == 65


def test_timers_go_on(client):
    assert client.python("import signal, time\nhits = []\nsignal.signal(signal.SIGALRM, lambda *_: hits.append(1))\n"
                         "_ = signal.setitimer(signal.ITIMER_REAL, 50, 7)", session_name="timed")["ok"]
    left = client.python("signal.getitimer(signal.ITIMER_REAL)", session_name="timed", state_mode="read_only")["result"]
    assert 30 < left[0] <= 50 and left[1] == 7, left
    again = client.python("import os; os.abort()", session_name="timed")
    assert again["state"] == "rolled_back", again
    assert 30 < client.python("signal.getitimer(signal.ITIMER_REAL)[0]", session_name="timed")["result"] <= 50
    assert client.python("_ = signal.setitimer(signal.ITIMER_REAL, 0.4)", session_name="timed")["ok"]
    look = client.python("time.sleep(0.6); hits", session_name="timed", state_mode="read_only")
    assert look["ok"] and look["result"] == [1], look


POSIX_TIMER = ("import ctypes\nlibc = ctypes.CDLL(None)\ntimer = ctypes.c_void_p()\n"
               "made = libc.timer_create(1, None, ctypes.byref(timer))")


def test_an_answer_says_that_no_snapshot_can_be_made(client):
    """`committed` without a snapshot holds only while the process lives: said at once, and true when it dies."""
    assert client.python("before = 1", session_name="hindered")["suggestion"] is None
    for code in (POSIX_TIMER, "after = 1"):
        answer = client.python(code, session_name="hindered")
        assert answer["ok"] and answer["state"] == "committed", answer
        assert answer["suggestion"].startswith("No snapshot can be made of this state") and "POSIX timer" in answer["suggestion"], answer
    died = client.python("import os; os.abort()", session_name="hindered")
    assert died["state"] == "rolled_back" and "after call 1; later changes are lost" in died["error"], died
    held = client.python("before, 'made' in globals(), 'after' in globals()", session_name="hindered")
    assert held["result"] == [1, False, False] and held["suggestion"] is None, held
    assert client.python(POSIX_TIMER, session_name="hindered")["suggestion"]
    assert client.python("_ = libc.timer_delete(timer)", session_name="hindered")["suggestion"] is None
    died = client.python("import os; os.abort()", session_name="hindered")
    assert died["state"] == "rolled_back" and "what it was before the call" in died["error"], died
    # Where the first call of all is such, nothing stands behind it.
    assert client.python(POSIX_TIMER, session_name="hindered first")["suggestion"]
    assert client.python("import os; os.abort()", session_name="hindered first")["state"] == "lost"


TIMER_BUILTIN = """
#include <time.h>

struct word;
static timer_t timer;
static int run(struct word *words) { return timer_create(CLOCK_MONOTONIC, (struct sigevent *)0, &timer) ? 1 : 0; }
static char *const doc[] = {(char *)0};
struct { const char *name; int (*run)(struct word *); int flags; char *const *doc; const char *usage; void *handle; }
    timer_struct = {"timer", run, 1, doc, "timer", 0};
"""


def test_an_answer_of_bash_says_so_too(client, tmp_path):
    """Bash itself makes nothing that hinders; a builtin that code loads may."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    (tmp_path / "timer.c").write_text("#include <signal.h>\n" + TIMER_BUILTIN)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "timer.so", tmp_path / "timer.c"], check=True, timeout=60)
    here = {"language": "bash", "session_name": "timed builtin", "state_mode": "stateful"}
    for code in ("a=1", f"enable -f {tmp_path}/timer.so timer"):
        answer = client.execute(code, **here)
        assert answer["exit_code"] == 0 and answer["suggestion"] is None, answer
    answer = client.execute("timer", **here)
    assert answer["exit_code"] == 0 and "POSIX timer" in (answer["suggestion"] or ""), answer


def test_posix_timers_are_refused(client):
    """Their numbers and what they would start belong to one process."""
    assert client.python(POSIX_TIMER, session_name="posix")["ok"]
    answer = client.python("made", session_name="posix", state_mode="read_only")
    assert not answer["ok"] and "timer" in answer["error"] and answer["suggestion"], answer
    client.python("libc.timer_delete(timer)", session_name="posix")
    assert client.python("made", session_name="posix", state_mode="read_only")["result"] == 0
