"""furca-python, and the module in other interpreters, driven over their channels without an engine."""
import glob
import os
import re
import subprocess
import sys
import time

import pytest

from hostlib import COPY, INTERRUPT, SESSION, Host
from pythonhost import CAPABILITIES, MODULE, PROGRAM, ROOT, error, needs_python, ran, session, value, zygote  # noqa: F401 (fixtures)

pytestmark = needs_python


# -- code and its value

def test_names_persist_and_the_last_expression_is_the_value(session):
    assert value(session, "x = 41\nx + 1") == 42
    assert value(session, "for i in range(3): last = i\nwith open('/dev/null') as f: pass\n(w := 7)\n[last, w, x]") == [2, 7, 41]
    assert session.run("x = 1").body["result_text"] is None
    assert session.run("None").body["result_text"] is None
    assert session.run("'x';").body["result_text"] == "'x'"
    assert session.run("if True:\n    99").body["result_text"] is None
    assert value(session, "del x\n'x' in globals()") is False
    assert value(session, "__name__") == "__main__"


def test_future_imports_stay(session):
    ran(session, "from __future__ import annotations\ndef f(a: nowhere): pass")
    assert value(session, "def g(a: nowhere): pass\ng.__annotations__['a']") == "nowhere"


@pytest.mark.parametrize("code", ["", "  \n", "# only a comment", "\n\n#\n\t\n"])
def test_blank_code_changes_nothing(session, code):
    result = session.run(code)
    assert result.how == "ok" and result.body["changed"] is False and result.body["result_text"] is None


def test_whether_anything_changed(session):
    ran(session, "n = 3\nl = [1, 'a']\nclass C:\n    def __repr__(self): globals()['n'] = 4; return 'C'\nc = C()")
    for code in ("n", "n + 1", "l[0]", "print(l)", "len(l) == 2", "f'{n}'", "[n, l]"):
        assert session.run(code).body["changed"] is False, code
    for code in ("n = 3", "c", "l.append(1)", "(m := 1)", "__import__('os')", "[x for x in l]", "open", "print(c)"):
        assert session.run(code).body["changed"] is True, code
    ran(session, "len = print")
    assert session.run("len(l)").body["changed"] is True


def test_changes_and_which_call_made_a_name(session):
    first = session.run("a = 1\nb = [2]\nimport os")
    assert first.body["changes"] == {"added": ["a", "b", "os"], "rebound": [], "deleted": [], "count": 3}
    second = session.run("a = 1\nb.append(3)\ndel os\nc = 0")
    assert second.body["changes"] == {"added": ["c"], "rebound": ["a"], "deleted": ["os"], "count": 3}
    names = {entry["name"]: entry for entry in session.clone(COPY).inspect()["names"]}
    assert (names["a"]["set_by_call"], names["a"]["changed_by_call"]) == (1, 2)
    assert (names["b"]["set_by_call"], names["b"]["changed_by_call"]) == (1, 1)
    assert set(names) == {"a", "b", "c"}


def test_result_is_plain_and_bounded(session):
    assert value(session, "{'a': (1, 2.5, None, True, b'x', [{}]), 3: 'y'}") == {"a": [1, 2.5, None, True, b"x", [{}]], 3: "y"}
    assert value(session, "object()") is None
    assert value(session, "{1, 2}") is None
    assert value(session, "'a\\ud800'") is None
    big = session.run("list(range(10**6))", max_text=1000)
    assert big.body["result"] is None and len(big.body["result_text"]) <= 1000 and big.body["result_text_cut"] > 10**6
    long = session.run("'x' * 5000", max_text=1000)
    assert long.body["result"] == "x" * 5000 and long.body["result_text_cut"] > 3000


# -- errors

@pytest.mark.skipif(sys.version_info < (3, 11), reason="marks came with Python 3.11")
def test_marks_stand_below_their_place(session):
    """On the last line too, which rarely ends in a newline."""
    for end in ("", "\n"):
        error = session.run("a = 1\na/0" + end).body["error"]
        assert "    a/0\n    ~^~\n" in error, error


def test_tracebacks_show_user_frames_with_their_lines(session):
    ran(session, "def f(d):\n    return d['missing_key']")
    text = error(session, "y = 1\nf({})")
    assert re.search(r'(?s)<call 2>", line 2.*f\(\{\}\).*<call 1>", line 2.*missing_key.*KeyError', text)
    assert "<furca>" not in text and "asyncio" not in text
    text = error(session, "import asyncio\nawait asyncio.sleep(0)\n1/0")
    assert text.count("File ") == 1 and "<call 3>" in text
    text = error(session, "capabilities.fail('why')")
    assert text.count("File ") == 1 and "KeyError: 'why'" in text


def test_chained_errors_and_source(session):
    text = error(session, "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('second') from e")
    assert "direct cause" in text and text.endswith("ValueError: second")
    assert value(session, "import inspect\ndef g():\n    return 5\ninspect.getsource(g)") == "def g():\n    return 5\n"
    ran(session, "import linecache; linecache.clearcache()")
    assert value(session, "inspect.getsource(g)").startswith("def g")


def test_an_error_keeps_nothing_alive(session):
    ran(session, "import weakref, gc\nclass Big: pass\ndef f():\n    global ref\n    big = Big(); ref = weakref.ref(big)\n    1/0")
    error(session, "f()")
    assert value(session, "gc.collect(); ref() is None") is True


@pytest.mark.parametrize("code, status", [("import sys; sys.exit()", 0), ("exit()", 0), ("quit(3)", 3), ("import sys; sys.exit('said')", 1),
                                          ("raise SystemExit(7)", 7)])
def test_exit_ends_the_call_only(session, code, status):
    ran(session, "x = 7")
    result = session.run(code)
    assert (result.how, result.status) == ("exit", status)
    assert result.err == (b"said\n" if "said" in code else b"")
    assert value(session, "x") == 7
    assert error(session, "input()").endswith("EOFError: EOF when reading a line")


def test_suggestions(session):
    assert "bash" in session.run("!ls").body["suggestion"]
    assert "create_env" in session.run("import no_such_module.sub").body["suggestion"]
    assert "input is empty" in session.run("input()").body["suggestion"]
    assert session.run("1/0").body["suggestion"] is None


def test_few_descriptors(zygote):
    session = zygote.clone(SESSION)
    ran(session, "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    copy = session.clone(COPY)
    assert value(copy, "capabilities.echo(1)") == 1
    assert value(session, "capabilities.echo(2)") == 2
    for host in (copy, session):
        host.kill()


def test_hostile_objects(session):
    ran(session, "class A:\n    def __repr__(self): raise RuntimeError('no repr')\nclass E(Exception):\n    def __str__(self): raise ValueError")
    assert "no repr" in error(session, "A()")
    assert "E" in error(session, "raise E()")
    assert "RecursionError" in error(session, "def f(): f()\nf()")
    assert error(session, "x = " + "(" * 3000 + "1" + ")" * 3000)
    assert error(session, "x = " + "-" * 200000 + "1")
    assert error(session, "print(1)\x00")
    assert value(session, "1 + 1") == 2


def test_the_user_may_break_names_and_builtins(session):
    ran(session, "print = None; str = None; type = None; repr = None; Exception = None")
    ran(session, "import builtins\nfor n in ('len', 'print', 'isinstance', 'list', 'id', 'getattr', 'repr'): setattr(builtins, n, None)")
    assert value(session, "1 + 1") == 2
    ran(session, "globals().clear()")
    assert value(session, "__name__") == "__main__"
    ran(session, "capabilities = functions = display = 3")
    assert value(session, "capabilities.echo(5)") == 5
    ran(session, "import sys\nsys.modules['__main__'] = None\nsys.stdout = None; sys.stderr = None")
    ran(session, "import os\nos.close(0)\nos.close(1)")
    assert ran(session, "import sys\nsys.stdout.write('back\\n')").endswith("back\n")


def test_pickle_and_dataclasses(session):
    assert value(session, "import pickle, dataclasses, typing\n@dataclasses.dataclass\nclass P:\n    x: 'int' = 1\n"
                          "[pickle.loads(pickle.dumps(P(3))).x, typing.get_type_hints(P)['x'].__name__]") == [3, "int"]


# -- output

def test_output_keeps_its_order(session):
    out = session.run("import os, subprocess, ctypes, sys\nprint('p1')\nprint('half', end='')\nsubprocess.run(['echo', 'sub'])\n"
                      "os.system('echo sys; echo err >&2')\nos.write(1, b'raw\\n')\nctypes.CDLL(None).puts(b'c')\n"
                      "ctypes.CDLL(None).fflush(None)\nprint('p2')\nsys.stdout.write('end')")
    assert out.out == b"p1\nhalfsub\nsys\nraw\nc\np2\nend" and out.err == b"err\n"
    assert ran(session, "ctypes.CDLL(None).puts(b'late')\nNone") == "late\n"


def test_surrogates_and_bytes(session):
    assert ran(session, "print('x\\udcffy')") == "x\\udcffy\n"
    assert session.run("import sys\nsys.stdout.buffer.write(b'\\xff\\n')\nNone").out == b"\xff\n"
    assert "a\\ud83db" in session.run("'a\\ud83db'").body["result_text"]


def test_redirection_is_kept_and_told(session, tmp_path):
    result = session.run("import os\nkeep = os.dup(1)\nf = os.open(%r, os.O_WRONLY | os.O_CREAT)\nos.dup2(f, 1)\nprint('into')" % str(tmp_path / "o"))
    assert result.body["redirected"] is True
    assert ran(session, "print('too')") == ""
    assert (tmp_path / "o").read_text() == "into\ntoo\n"
    assert session.run("os.dup2(keep, 1)\nprint('out')").out == b"out\n"


def test_children_see_nothing_of_ours(session):
    assert ran(session, "import subprocess\nprint(subprocess.run('ls /proc/self/fd', shell=True, capture_output=True, text=True, "
                        "close_fds=False).stdout.split())") == "['0', '1', '2', '3']\n"
    assert ran(session, "import os\nprint([k for k in os.environ if 'TUNABLES' in k or 'FURCA' in k])\n"
                        "_ = os.system('env | grep -c -e TUNABLES -e FURCA')") == "[]\n0\n"


def test_faulthandler_speaks_at_a_crash(session):
    result = session.run("def f():\n    import ctypes; ctypes.string_at(0)\nf()")
    assert result.how == "lost"
    assert b"Segmentation fault" in result.err and b'"<call 1>", line 2 in f' in result.err


# -- display

def test_display(session):
    code = ("class Img:\n    def _repr_png_(self): return b'\\x89PNG'\n    def __repr__(self): return 'img'\n"
            "print('a'); display(Img()); print('b'); display('text', {1: 2})")
    result = session.run(code)
    assert result.out == b"a\nb\n"
    assert result.body["display"] == [{"image/png": b"\x89PNG", "text/plain": "img", "at": 2}, {"text/plain": "text", "at": 4},
                                      {"text/plain": "{1: 2}", "at": 4}]
    assert session.run("Img()").body["display"] == [{"image/png": b"\x89PNG", "at": 0}]
    assert session.run("Img").body["display"] is None
    assert session.run("class Any:\n    def __getattr__(self, n): return lambda *a: 'x'\nAny()").body["display"] is None


def test_frames_and_figures(session):
    pytest.importorskip("pandas")
    result = session.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert re.search(r"a\n0\s+1\n1\s+2", result.body["result_text"]) and "<table" in result.body["display"][0]["text/html"]
    pytest.importorskip("matplotlib")
    result = session.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('x')\nplt.show()")
    assert [d["image/png"][:4] for d in result.body["display"]] == [b"\x89PNG"] and result.body["display"][0]["at"] == 2
    assert result.err == b""
    assert session.run("plt.get_fignums()").body["result"] == []


# -- asyncio, threads, processes

def test_one_event_loop_for_the_session(session):
    assert value(session, "import asyncio\nt = asyncio.create_task(asyncio.sleep(0.05, 'late'))\nawait asyncio.sleep(0)\nl = asyncio.get_running_loop()\n1") == 1
    assert value(session, "[await t, l is asyncio.get_running_loop()]") == ["late", True]
    assert value(session, "async def m():\n    await asyncio.sleep(0.01); return 5\nasyncio.run(m())") == 5
    assert value(session, "await m()") == 5


def test_a_forked_child_never_serves(session):
    out = ran(session, "import os\nfoo = 'bar'\npid = os.fork()\nif pid == 0:\n    foo = 'child'; print('in child', end='')\nelse:\n"
                       "    print(os.waitpid(pid, 0)[1])")
    assert sorted(out) == sorted("in child0\n")
    assert value(session, "foo") == "bar"
    assert ran(session, "import sys\npid = os.fork()\nif not pid: sys.exit(3)\nprint(os.waitpid(pid, 0)[1] >> 8)") == "3\n"
    assert "ZeroDivisionError" in session.run("pid = os.fork()\nif not pid: 1/0\nprint(os.waitpid(pid, 0)[1] >> 8)").err.decode()


def test_multiprocessing(session):
    assert value(session, "from concurrent.futures import ProcessPoolExecutor\ndef sq(x): return x * x\n"
                          "with ProcessPoolExecutor(2) as ex: r = list(ex.map(sq, range(4)))\nr") == [0, 1, 4, 9]
    assert value(session, "import multiprocessing as mp\nwith mp.get_context('spawn').Pool(1) as p: r = p.map(abs, [-1, 2])\nr") == [1, 2]


def test_threads(session):
    assert sorted(ran(session, "import threading\nts = [threading.Thread(target=print, args=(i,)) for i in range(4)]\n"
                               "[t.start() for t in ts]; [t.join() for t in ts]\nNone").split()) == list("0123")
    ran(session, "import sys\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()\nNone")
    assert value(session, "1") == 1


# -- interrupts

@pytest.mark.parametrize("code", [
    "import time\nprint('step')\ntime.sleep(60)",
    "while True: pass",
    "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('step')\ntime.sleep(60)",
    "import threading\nthreading.Event().wait()",
    "import asyncio\nawait asyncio.sleep(60)",
    "import subprocess\nsubprocess.run(['sleep', '60'])",
    "capabilities.forever()",
    "import asyncio\nawait capabilities.forever()",
    "class R:\n    def __repr__(self):\n        while True: pass\nR()",
])
def test_interrupt(session, code):
    ran(session, "x = 1")
    result = session.run(code, timeout=0.5, grace=8)
    assert result.how == "interrupted" and "KeyboardInterrupt" in result.body["error"]
    assert value(session, "x") == 1


def test_interrupt_reaches_no_later_call(session):
    for _ in range(20):
        session.signal(INTERRUPT)
        assert value(session, "sum(range(1000))") == 499500


def test_interrupt_while_the_code_is_compiled(session):
    ran(session, "x = 1")
    code = "y = [" + "[1, 2, {3: 4}], " * 30000 + "]\nz = 1\nimport time\ntime.sleep(60)"
    result = session.run(code, timeout=0.3, grace=30)
    assert result.how == "interrupted"
    assert value(session, "x") == 1


def test_own_handler_of_the_user_is_called(session):
    code = "import signal, time\ngot = []\nsignal.signal(signal.SIGINT, lambda *a: got.append(a[0]))\n" \
           "end = time.monotonic() + 7\nwhile not got and time.monotonic() < end: time.sleep(0.1)\ngot"
    assert session.run(code, timeout=0.5, grace=8).body["result"] == [2]


def test_cancelled_coroutines_clean_up(session):
    code = "import asyncio\nlog = []\nasync def f():\n    try: await asyncio.sleep(60)\n    finally: log.append('cleaned')\nawait f()"
    assert session.run(code, timeout=0.5, grace=8).how == "interrupted"
    assert value(session, "log") == ["cleaned"]


# -- life

def test_close_runs_atexit():
    host = Host.start([PROGRAM], env=dict(os.environ))
    path = "/tmp/furca-atexit-%d" % os.getpid()
    ran(host, "import atexit\natexit.register(lambda: open(%r, 'w').close())" % path)
    assert host.end() == 0
    assert os.path.exists(path)
    os.unlink(path)


def test_ends_with_its_channel():
    host = Host.start([PROGRAM])
    host.control.sock.close()
    assert host.process.wait(5) == 0


def test_started_by_hand_it_says_so():
    done = subprocess.run([PROGRAM, "--help"], capture_output=True)
    assert done.returncode == 2 and b"usage" in done.stderr
    done = subprocess.run([PROGRAM], capture_output=True)
    assert done.returncode == 1 and b"descriptors 3 and 4" in done.stderr


def test_working_directory_and_variables(session, tmp_path):
    result = session.run("import os\n[os.getcwd(), os.environ['A_B']]", cwd=str(tmp_path), env={"A_B": "1"})
    assert result.body["result"] == [str(tmp_path), "1"]
    assert value(session, "'A_B' in os.environ", env={"A_B": None}) is False
    result = session.run("1", cwd="/nonexistent", env={"A_B": "2"})
    assert result.how == "refused" and result.body["error"] == "cannot change to the directory '/nonexistent': No such file or directory"
    assert not result.body["changed"] and value(session, "'A_B' in os.environ") is False


def test_files_named_like_the_library(tmp_path):
    for name in ("random", "tokenize", "email", "code", "signal", "json", "select", "socket", "struct", "threading", "asyncio", "inspect"):
        (tmp_path / (name + ".py")).write_text("raise SystemExit(1)\n")
    (tmp_path / "mine.py").write_text("v = 5\n")
    host = Host.start([PROGRAM], cwd=str(tmp_path))
    assert value(host, "import mine\nmine.v") == 5
    assert "ZeroDivisionError" in error(host, "1/0")
    assert value(host, "async def f():\n    return 1\nawait f()") == 1
    assert value(host, "import asyncio, socket, select\nasyncio.__file__.startswith('/usr')") is True
    assert host.inspect()["names"]
    host.kill()


def test_functions_leave_no_name(session):
    source = "helper = 1\ndef set_var(value):\n    global my_var\n    my_var = value\n    return value + helper"
    run = session.run("", function={"name": "set_var", "source": source, "args": [4], "kwargs": {}})
    assert run.body["result"] == 5
    assert value(session, "my_var") == 4
    assert value(session, "[n for n in globals() if n in ('set_var', 'helper')]") == []
    text = error(session, "", function={"name": "f", "source": "async def f():\n    1/0", "args": [], "kwargs": {}})
    assert '"<function f>", line 2' in text


def test_inspect(session):
    ran(session, "x = [1, 2]\napi_key = 'hush'\nconf = {'password': 'hush', 'a': 1}\nimport os\ndef f(): pass\nclass C: pass\n"
                 "class Slow:\n    def __repr__(self):\n        while True: pass\nslow = Slow()")
    copy = session.clone(COPY)
    begin = time.monotonic()
    state = copy.inspect()
    assert time.monotonic() - begin < 6
    names = {entry["name"]: entry for entry in state["names"]}
    assert "hush" not in str(state)
    assert {n: names[n]["kind"] for n in ("x", "os", "f", "C")} == {"x": "variable", "os": "module", "f": "function", "C": "class"}
    assert names["x"]["shape"] == [2] and names["x"]["text"] == "[1, 2]" and names["x"]["bytes"] > 0
    assert names["slow"]["text"].startswith("<no text")
    copy.kill()
    assert "variables" in session.clone(COPY).inspect(detail="summary")["summary"]
    assert [e["name"] for e in session.clone(COPY).inspect(name="f")["names"]] == ["f"]


def test_a_long_text_is_cut_at_one_place(session):
    ran(session, "s = 'a' * 5000 + 'z'; e = chr(233) * 5000; b = bytes(5000); wide = list(range(200000)); long = ['x' * 1000] * 200000; few = 'a' * 300")
    names = {entry["name"]: entry["text"] for entry in session.clone(COPY).inspect()["names"]}
    for name, text in names.items():
        assert text.count("left out") == 1 and len(text.encode()) <= 210, (name, text)
        assert text[0] in "'b[" and text[-1] in "']", (name, text)
    left = int(re.search(r"\.\.\. (\d+) bytes left out \.\.\.", names["s"])[1])
    assert left + len(names["s"]) - len("\n... %d bytes left out ...\n" % left) == 5003 and names["s"].endswith("z'"), names["s"]
    assert "items left out" in names["wide"] and names["wide"].endswith("199999]"), names["wide"]


def test_arenas_lie_on_huge_pages(session):
    ran(session, "d = {i: [i] for i in range(500000)}")
    with open("/proc/%d/smaps" % session.pid) as f:
        huge = sum(int(line.split()[1]) for line in f if line.startswith("AnonHugePages"))
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
        if "[never]" in f.read():
            pytest.skip("transparent huge pages are off on this machine")
    assert huge > 40000


# -- the module in other interpreters

def interpreters():
    found = ["/usr/bin/python3"] + [p for p in glob.glob("/usr/bin/python3.*") if re.fullmatch(r".*python3\.[0-9]+", p)] + glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))
    best = {}
    for path in found:
        try:
            version = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True).stdout.strip()
        except OSError:
            continue
        if version and tuple(map(int, version.split("."))) >= (3, 9):
            best.setdefault(version, path)
    return sorted(best.items())


def start_code():
    with open(os.path.join(ROOT, "langs/lang.c")) as f:
        block = re.search(r"python_start\[\] =\s*(.*?);\n\n", f.read(), re.S)[1]
    return "".join(text.encode().decode("unicode_escape") for text in re.findall(r'"((?:[^"\\]|\\.)*)"', block))


@pytest.mark.parametrize("version, python", interpreters())
def test_module(version, python, tmp_path):
    (tmp_path / "random.py").write_text("raise SystemExit(1)\n")
    host = Host.start([python, "-c", start_code(), MODULE], cwd=str(tmp_path), capabilities=CAPABILITIES)
    assert host.ready["version"].startswith(version + ".")
    session = host.clone(SESSION)
    assert ran(session, "import sys\nprint(sys.argv, sys.path[0] == '', [n for n in dir() if n[:2] != '__'])") == "[''] True ['capabilities', 'display', 'functions', 'sys']\n"
    assert value(session, "def f():\n    return 1/0\n1 + 1") == 2
    assert '"<call 2>", line 2, in f' in error(session, "f()")
    assert value(session, "import asyncio\nx = capabilities.echo(1)\n[x, await capabilities.echo(2), *await asyncio.gather(capabilities.echo(3), capabilities.echo(4))]") == [1, 2, 3, 4]
    copy = session.clone(COPY)
    assert value(copy, "f = 3\nf") == 3
    assert value(session, "callable(f)") is True
    assert session.run("while True: pass", timeout=0.5, grace=8).how == "interrupted"
    for each in (copy, session):
        each.kill()
    assert host.end() == 0
