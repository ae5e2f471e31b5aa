"""The Python host, driven directly: clones, and the threads in them."""
import time

from hostlib import COPY, SESSION, SNAPSHOT, STATELESS
from pythonhost import cell_zygote, celled, error, needs_python, ran, session, surface, value, zygote  # noqa: F401 (fixtures)

pytestmark = needs_python


def test_clones_are_apart(zygote):
    session = zygote.clone(SESSION)
    ran(session, "x = [1]\nimport random\nrandom.seed(5)")
    copy = session.clone(COPY)
    assert value(copy, "x.append(2)\n[x, random.random()]", read_only=True)[0] == [1, 2]
    first = session.clone(COPY).run("random.random()").body["result"]
    assert value(session, "[x, random.random()]") == [[1], first], "a look predicts what the session will draw"
    other = zygote.clone(STATELESS)
    assert "NameError" in error(other, "x")
    draws = {zygote.clone(STATELESS).run("import random; random.random()").body["result"] for _ in range(3)}
    assert len(draws) == 3, "sessions must not draw the same numbers"
    for host in (session, copy, other):
        host.kill()


def test_hooks_of_the_user_run_in_a_copy(session):
    ran(session, "import os, random, gc\nran = []\nos.register_at_fork(after_in_child=lambda: ran.append('child'))\nrandom.seed(1)\nfrozen = gc.get_freeze_count()")
    copy = session.clone(COPY)
    draw = copy.run("[ran, random.random()]").body["result"]
    copy.kill()
    assert draw[0] == ["child"]
    assert value(session, "[ran, random.random(), gc.get_freeze_count() == frozen]") == [[], draw[1], True]
    assert ran(session, "pid = os.fork()\nif not pid:\n    print(ran, flush=True); os._exit(0)\n_ = os.waitpid(pid, 0)") == "['child']\n"


def test_half_written_lines_are_not_repeated(session):
    assert ran(session, "import sys\nsys.stdout.write('AB')\nNone") == "AB"
    copy = session.clone(COPY)
    assert ran(copy, "print('C')") == "C\n"
    assert ran(session, "print('D')") == "D\n"
    copy.kill()


def test_snapshot_is_promoted(session):
    ran(session, "x = 'committed'\nimport atexit\natexit.register(print, 'bye')")
    snapshot = session.clone(SNAPSHOT)
    ran(session, "x = 'lost'")
    copy = snapshot.clone(COPY)
    assert value(copy, "x") == "committed"
    copy.kill()
    session.kill()
    snapshot.promote()
    assert value(snapshot, "x") == "committed"
    assert value(snapshot, "capabilities.echo(1)") == 1
    snapshot.kill()


def test_sleeping_threads_park_in_a_copy(celled):
    ran(celled, "import threading, time\nn = 0\ndef tick():\n    global n\n    while True:\n        n += 1; time.sleep(0.03)\n"
                 "for _ in range(3): threading.Thread(target=tick, daemon=True).start()\ntime.sleep(0.05)")
    still = 0
    for _ in range(5):
        copy = celled.copy()
        assert copy.cloned["threads"] == 4
        moved, threads = value(copy, "a = n\nt = time.monotonic()\nwhile time.monotonic() < t + 0.1: print(end='.')\n[n - a, threading.active_count()]")
        assert threads == 4
        still += moved == 0
        copy.kill()
    assert still >= 2, "a thread that was awake when the copy was made runs on; most were asleep"
    assert value(celled, "a = n\ntime.sleep(0.1)\nn > a") is True


def test_computing_threads_do_not_stall_a_copy(celled):
    ran(celled, "import threading, time\nn = 0\ndef count():\n    global n\n    while True: n += 1\n"
                 "for _ in range(3): threading.Thread(target=count, daemon=True).start()")
    for _ in range(10):
        copy = celled.copy()
        time.sleep(0.02)
        begin = time.monotonic()
        assert value(copy, "for i in range(20): print(i)\n5") == 5
        assert time.monotonic() - begin < 5
        copy.kill()
    assert value(celled, "a = n\ntime.sleep(0.1)\nn > a") is True


def test_workers_serve_a_look(celled):
    ran(celled, "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(abs, -1).result()")
    copy = celled.copy()
    begin = time.monotonic()
    assert value(copy, "pool.submit(abs, -2).result()") == 2
    assert time.monotonic() - begin < 5
    copy.kill()


def test_parked_threads_run_where_the_look_waits_for_them(celled):
    ran(celled, "import threading, time\ndone = threading.Event()\ndef work():\n    time.sleep(0.3); done.set()\n"
                 "t = threading.Thread(target=work); t.start()")
    copy = celled.copy()
    assert value(copy, "done.wait(5)") is True
    copy.kill()


def test_told_to_leave_threads_out_a_copy_is_a_fork(session):
    """A copy behind other barriers than the one of threads; the interpreter is told, the generator stays the session's."""
    ran(session, "import threading, time, random\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nrandom.seed(3)")
    copy = session.clone(COPY, barriers=1)
    assert copy.cloned["threads"] == 1
    threads, draw = value(copy, "[threading.active_count(), random.random()]")
    assert threads == 1
    assert value(copy, "t = threading.Thread(target=print, args=('new',)); t.start(); t.join()\n1") == 1
    copy.kill()
    assert value(session, "[threading.active_count(), random.random()]") == [2, draw]


def test_openssl_does_not_repeat(session):
    ran(session, "import ssl\nssl.RAND_bytes(8)")
    copies = [session.clone(COPY) for _ in range(2)]
    draws = {copy.run("ssl.RAND_bytes(16)").body["result"] for copy in copies} | {session.run("ssl.RAND_bytes(16)").body["result"]}
    assert len(draws) == 3
    for copy in copies:
        copy.kill()
