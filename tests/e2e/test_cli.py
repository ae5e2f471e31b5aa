"""The command line, as a person and as a script meet it."""
import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import time

import pytest

from furcalib import eventually, furca_program


@pytest.fixture
def run(engine):
    def run(*args, **options):
        env = dict(os.environ, FURCA_SOCKET=engine.socket)
        return subprocess.run([furca_program(), *args], capture_output=True, timeout=60, env=env, **{"text": True, **options})

    return run


def test_stop_takes_no_session(run, engine):
    """It ended the engine with all its sessions."""
    p = run("stop", "audit")
    assert p.returncode == 2 and "furca close" in p.stderr and engine.process.poll() is None, p


def test_exec_shows_output_and_value(run):
    p = run("exec", "-s", "cli", "-e", "print('hello'); 41 + 1")
    assert (p.returncode, p.stdout, p.stderr) == (0, "hello\n42\n", "")


def test_exec_keeps_sessions_between_commands(run):
    assert run("exec", "-s", "keep", "-e", "x = 7").returncode == 0
    assert run("exec", "-s", "keep", "-m", "read_only", "-e", "x + 1").stdout == "8\n"


@pytest.mark.parametrize("language, code, status", [
    ("bash", "exit 6", 6), ("bash", "false", 1), ("bash", "true", 0), ("python", "import sys; sys.exit(5)", 5), ("python", "1/0", 1),
])
def test_exec_has_the_status_of_the_code(run, language, code, status):
    assert run("exec", "-l", language, "-m", "stateless", "-e", code).returncode == status


def test_exec_reads_files_and_standard_input(run, tmp_path):
    script = tmp_path / "a.sh"
    script.write_text("echo from bash $((1+1))\n")
    assert run("exec", str(script)).stdout == "from bash 2\n"
    assert run("exec", "-m", "stateless", "-", input="print('in')").stdout == "in\n"
    p = run("exec", "/proc/self/exe")
    assert p.returncode == 2 and "'/proc/self/exe' is no text" in p.stderr, p.stderr
    assert run("exec", "-m", "stateless", "-", input="").returncode == 0


def test_exec_says_what_is_wrong(run):
    p = run("exec", "-m", "read_only", "-e", "1")
    assert p.returncode == 2 and "without specifying a session" in p.stderr
    assert "use -m 'stateless'" in p.stderr, p.stderr
    assert p.stderr.endswith("Give a session with -s (must refer to an existing session), or use -m 'stateless'.\n"), p.stderr
    p = run("exec", "-s", "some", "-m", "stateless", "-e", "1")
    assert "Remove -s, or use" in p.stderr, p.stderr
    assert "Remove -s, or make it" in run("exec", "-s", "", "-e", "1").stderr
    p = run("exec", "-s", "nosuch", "-m", "read_only", "-e", "1")
    assert "Use -m 'stateful'" in p.stderr and "`furca sessions`" in p.stderr and "list_sessions" not in p.stderr, p.stderr
    p = run("undo", "nosuch")
    assert "session_name" not in p.stderr and "`furca sessions`" in p.stderr, p.stderr
    p = run("exec", "--no-such-option")
    assert p.returncode == 2 and "--help" in p.stderr
    p = run("exec", "-m", "stateless", "-e", "1/0")
    assert "ZeroDivisionError" in p.stderr and p.stdout == ""
    p = run("exec", "-e", "1", "-e", "2")
    assert p.returncode == 2 and "one piece of code" in p.stderr
    p = run("exec", "--max-output", "0", "-e", "1")
    assert "to 67108864," in p.stderr, p.stderr
    p = run("exec", "-e", "import nosuch_module")
    assert "with `furca envs create` whose dependencies bring nosuch_module, and pass its number with --env" in p.stderr, p.stderr


@pytest.mark.parametrize("words, said", [
    ("a.py one", "'one' is not expected: the code of 'a.py' gets no arguments; set them in code: -e \"import sys; sys.argv = "),
    ("a.sh one", "set them in code: -l bash -e 'set -- ARG; . ./FILE'"), ("-l bash a one two", "set them in code: -l bash"),
    ("a.py -m read_only", "'-m' stands behind 'a.py', where no options are: put it before"),
    ("-e 1 a.py", "'a.py' is not expected: the code stands behind -e already"),
])
def test_exec_says_where_its_words_go(run, words, said):
    p = run("exec", *words.split())
    assert (p.returncode, p.stdout) == (2, "") and said in p.stderr, p.stderr


def test_what_exec_says_of_arguments_works(run, tmp_path):
    (tmp_path / "FILE").write_text("import sys; print(sys.argv)")
    said = run("exec", "a.py", "one").stderr.splitlines()[0].split(" in code: ")[1]
    assert run("exec", "--cwd", str(tmp_path), *shlex.split(said)).stdout == "['FILE', 'ARG']\n"
    (tmp_path / "FILE").write_text("echo $1")
    said = run("exec", "a.sh", "one").stderr.splitlines()[0].split(" in code: ")[1]
    assert run("exec", "--cwd", str(tmp_path), *shlex.split(said)).stdout == "ARG\n"


@pytest.mark.parametrize("words, said", [
    ("exec --sesion a", "there is no option '--sesion'; the nearest is '--session'"), ("inspect --detial=full a", "nearest is '--detail'"),
    ("envs --bulid", "nearest is '--build'"), ("mcp --tool-s x", "nearest is '--tools'"), ("serve --wrkdir x", "nearest is '--workdir'"),
    ("close --al", "no engine"), ("exec -q", "there is no option '-q'"), ("mcp -s x", "there is no option '-s'"),
    ("exec --s a", "'--s' is the beginning of several options"), ("exec -m", "'-m' wants a value"), ("inspect -d", "'-d' wants a value"),
    ("schema --format", "'--format' wants a value"), ("close --all=yes", "'--all' has no value"),
    ("output --offset x 1", "a number of bytes, not 'x'"),
])
def test_a_wrong_option_is_named_in_one_line(tmp_path, words, said):
    p = subprocess.run([furca_program(), *words.split()], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                       env=dict(os.environ, FURCA_SOCKET=str(tmp_path / "none")))
    assert p.returncode == (1 if said == "no engine" else 2) and p.stdout == ""
    first, second = p.stderr.splitlines()
    assert first.startswith("furca %s: " % words.split()[0]) and said in first and (p.returncode == 1 or "--help` says" in second), p.stderr


@pytest.mark.parametrize("words", ["exec -e 1", "sessions", "top", "inspect a", "close a", "undo a", "branch a b", "checkpoint a b", "restore a b",
                                   "envs", "envs create FILE", "envs create --build FILE", "envs build 1", "functions", "output 1", "mcp", "stop"])
def test_a_socket_that_is_named_starts_no_engine(tmp_path, words):
    (tmp_path / "FILE").write_text("[project]\n")
    before = sorted(os.listdir(tmp_path))
    socket = str(tmp_path / "new" / "dir" / "socket")
    env = {key: value for key, value in os.environ.items() if key != "FURCA_SOCKET"}
    command, *rest = words.split()
    p = subprocess.run([furca_program(), command, "--socket", socket, *rest], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, cwd=tmp_path,
                       env=dict(env, XDG_STATE_HOME=str(tmp_path / "state")))
    assert p.returncode == 1 and "no engine answers at '%s'" % socket in p.stderr, p.stderr
    assert words == "stop" or "`furca serve --socket '%s'`" % socket in p.stderr, p.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_exec_json_is_one_line(run):
    p = run("exec", "--json", "-m", "stateless", "-e", "2**70")
    assert p.stdout.count("\n") == 1
    answer = json.loads(p.stdout)
    assert answer["ok"] and answer["result_text"] == str(2**70)


def test_exec_is_interrupted_by_ctrl_c(engine):
    p = subprocess.Popen([furca_program(), "exec", "--socket", engine.socket, "-s", "long", "-e", "print('on', flush=True)\nimport time; time.sleep(60)"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline() == b"on\n"  # it streams
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=20)
    assert p.returncode == 130 and b"KeyboardInterrupt" in err


def test_sessions_inspect_close(run):
    run("exec", "-s", "shown", "-e", "ledger = [1, 2, 3]\ndef total(): return sum(ledger)")
    assert "shown" in run("sessions").stdout
    assert any(s["session_name"] == "shown" for s in json.loads(run("sessions", "--json").stdout)["sessions"])
    p = run("inspect", "shown")
    assert p.returncode == 0 and "ledger" in p.stdout and "total" in p.stdout and "function" in p.stdout
    p = run("inspect", "shown", "nosuch")
    assert p.returncode == 1 and "no name 'nosuch'" in p.stderr and "`furca inspect shown` shows" in p.stderr and p.stdout == ""
    run("exec", "-l", "bash", "-s", "shell", "-e", "greeting=hi; cd /")
    p = run("inspect", "shell")
    assert p.returncode == 0 and "cwd /" in p.stdout and "greeting" in p.stdout
    p = run("inspect", "shell", "nosuch")
    assert p.returncode == 1 and "no name 'nosuch'" in p.stderr and p.stdout == ""
    assert run("close", "shown").returncode == 0
    p = run("close", "shown")
    assert p.returncode == 1 and "furca close: There is no session" in p.stderr and "`furca sessions`" in p.stderr, p.stderr
    assert "not '0'" in run("undo", "shell", "0").stderr and "-e" in run("exec", "rows = 1").stderr
    assert run("close", "--all").returncode == 0
    assert "no sessions" in run("sessions").stdout


def test_inspect_of_a_shell_shows_what_its_calls_made(run):
    run("exec", "-l", "bash", "-s", "own", "-e", "API_KEY=hush; greeting=hi; PATH=/bin:$PATH; set -f; shopt -u sourcepath; f() { :; }; [ -d / ]; cd /usr")
    plain, whole = run("inspect", "own").stdout, run("inspect", "--all", "own").stdout
    table = plain.split("variables\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table] == ["NAME", "API_KEY", "PATH", "greeting"], plain
    assert "\noptions\nnoglob on\nsourcepath off\n" in plain and "hush" not in whole, plain
    count = int(re.search(r"\n(\d+) variables that the shell had .*`furca inspect --all own` shows them\n$", plain)[1])
    table = whole.split("variables\n")[1].split("\n\n")[0].splitlines()
    assert len(table) == count + 4 and [line.split()[0] for line in table[1:4]] == ["API_KEY", "PATH", "greeting"] and "BASH_VERSION" in whole
    one = run("inspect", "own", "HOME").stdout
    assert "HOME" in one and "options" not in one and "cwd" not in one, one
    assert '"variables": ' in run("inspect", "-d", "summary", "own").stdout
    wrong = run("inspect", "-d", "all", "own")
    assert wrong.returncode == 2 and "Use -d '" in wrong.stderr, wrong.stderr
    run("close", "own")


def test_undo_and_branch(run):
    run("exec", "-s", "back", "-e", "x = 1")
    run("exec", "-s", "back", "-e", "x = 2")
    assert run("branch", "back", "aside").returncode == 0
    assert run("undo", "back").returncode == 0
    assert run("exec", "-s", "back", "-e", "x").stdout == "1\n"
    assert run("exec", "-s", "aside", "-e", "x").stdout == "2\n"


def test_functions(run):
    assert run("functions", "add", "double", "-", input="def double(x):\n    return 2 * x\n").returncode == 0
    assert "double" in run("functions").stdout
    assert run("functions", "call", "double", "21").stdout == "42\n"
    assert run("functions", "remove", "double").returncode == 0


def test_what_goes_into_a_file_is_shown_as_its_lines(run, tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[project\n")
    p = run("envs", "create", str(wrong))
    assert p.returncode == 2 and p.stderr.endswith('for example a file of\n    [project]\n    name = "env"\n    version = "0"\n    dependencies = []\n'), p.stderr
    assert p.stderr.count("example") == 1 and "\\n" not in p.stderr
    p = run("envs", "build", "77")
    assert "`furca envs create` with a file of\n    [project]\n" in p.stderr and "\nfirst and use its environment number" in p.stderr, p.stderr
    p = run("exec", "--env", "77", "-e", "1")
    assert "Remove --env, or use" in p.stderr, p.stderr
    p = run("functions", "call", "nosuch")
    assert "-l 'python' and a file of\n    def f(): return 1\nfirst" in p.stderr, p.stderr


def test_every_command_has_help():
    names = [line.split()[0] for line in subprocess.run([furca_program(), "help"], capture_output=True, text=True).stdout.splitlines()
             if line.startswith("  ")]
    assert len(names) > 10
    for name in names:
        if name == "help":
            continue
        p = subprocess.run([furca_program(), name, "--help"], capture_output=True, text=True, timeout=20)
        assert p.returncode == 0 and p.stdout.startswith("usage: furca " + name), name
        assert subprocess.run([furca_program(), name, "--nonsense"], capture_output=True, timeout=20).returncode == 2, name


def test_a_mistyped_command_names_the_nearest():
    p = subprocess.run([furca_program(), "sesions"], capture_output=True, text=True)
    assert p.returncode == 2 and "'sessions'" in p.stderr
    p = subprocess.run([furca_program(), "--socket", "x", "exec"], capture_output=True, text=True)
    assert p.returncode == 2 and "'--socket' stands before a command" in p.stderr, p.stderr


@pytest.mark.parametrize("words, said", [("--log-level loud", "--log-level wants debug, info, warn or alert, not 'loud'"),
                                         ("--linger x", "--linger wants seconds from 0 to 1e9, not 'x'"),
                                         ("--inherit 2", "--inherit wants the number of a descriptor from 3 up, not '2'")])
def test_serve_says_what_its_options_want(words, said):
    p = subprocess.run([furca_program(), "serve", *words.split()], capture_output=True, text=True, timeout=20)
    assert p.returncode == 2 and said in p.stderr, p.stderr


def test_exec_starts_an_engine_that_lives_on_until_it_is_stopped(tmp_path):
    env = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state"))
    env.pop("FURCA_SOCKET", None)

    def furca(*args):
        return subprocess.run([furca_program(), *args], capture_output=True, text=True, timeout=60, env=env)

    try:
        p = furca("exec", "-e", "x = 3")
        assert p.returncode == 0, p.stderr
        assert furca("exec", "-e", "x").stdout == "3\n"
    finally:
        p = furca("stop")
    assert p.returncode == 0, p.stderr
    assert furca("sessions").returncode == 1
    assert not os.path.exists(tmp_path / "furca.sock")


@pytest.mark.parametrize("name, said", [("XDG_STATE_HOME", "cannot make the state directory '/proc/nosuch/furca': "),
                                        ("FURCA_SOCKET", "cannot make the directory '/proc/nosuch' for an engine's socket: ")])
def test_exec_says_where_it_cannot_start_an_engine(tmp_path, name, said):
    env = dict(os.environ, FURCA_SOCKET=str(tmp_path / "s"), XDG_STATE_HOME=str(tmp_path))
    env[name] = "/proc/nosuch" + ("/s" if name == "FURCA_SOCKET" else "")
    p = subprocess.run([furca_program(), "exec", "-e", "1"], capture_output=True, text=True, timeout=60, env=env)
    assert p.returncode == 1 and said in p.stderr and "\nSet $%s to " % name in p.stderr, p.stderr


def test_a_private_engine_ends_with_the_command(tmp_path):
    env = dict(os.environ, XDG_STATE_HOME=str(tmp_path))
    p = subprocess.run([furca_program(), "exec", "--private", "-e", "import os; os.getppid()"], capture_output=True, text=True, timeout=60, env=env)
    assert p.returncode == 0, p.stderr
    pid = int(p.stdout)
    assert eventually(lambda: not os.path.exists("/proc/%d" % pid), 5)


def test_schema_and_doctor():
    for form, key in (("mcp", "inputSchema"), ("anthropic", "input_schema"), ("openai", "function")):
        p = subprocess.run([furca_program(), "schema", "--format", form], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0 and key in json.loads(p.stdout)
    plain = subprocess.run([furca_program(), "schema"], capture_output=True, text=True, timeout=60)
    assert plain.returncode == 0 and "inputSchema" in json.loads(plain.stdout)
    wrong = subprocess.run([furca_program(), "schema", "--format", "x"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "mcp, openai or anthropic, not 'x'" in wrong.stderr
    p = subprocess.run([furca_program(), "doctor", "--json"], capture_output=True, text=True, timeout=60)
    report = json.loads(p.stdout)
    assert p.returncode == (0 if report["ok"] else 1) and report["guarantees"]["memory"]["required"]


def test_a_program_is_made_with_the_library_in_the_tree(tmp_path):
    """As README has it, before anything is installed; its output is what README says."""
    build = os.path.dirname(furca_program())
    if not os.path.exists(os.path.join(build, "furca-uninstalled.pc")) or not shutil.which("pkg-config") or not shutil.which("cc"):
        pytest.skip("needs the build folder, pkg-config and cc")
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "README.md"), encoding="utf-8") as f:
        (tmp_path / "session.c").write_text(re.search(r"```c\n(.*?)```", f.read(), re.S)[1])
    env = dict(os.environ, PKG_CONFIG_PATH=build, PATH=build + ":" + os.environ["PATH"], XDG_STATE_HOME=str(tmp_path))
    made = subprocess.run("cc -Wall -Werror session.c $(pkg-config --cflags --libs furca)", shell=True, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    p = subprocess.run(["./a.out"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert p.stdout == "ok (committed)\n0 (unchanged)\n10 (unchanged)\n", p.stdout + p.stderr


def test_the_library_runs_the_examples():
    driver = os.path.join(os.path.dirname(furca_program()), "tests", "driver")
    if not os.path.exists(driver):
        pytest.skip("tests/driver is not built (make check builds it)")
    p = subprocess.run([driver], capture_output=True, text=True, timeout=120, env=dict(os.environ, FURCA=furca_program()))
    assert p.returncode == 0, p.stdout + p.stderr


def test_top_follows_the_sessions_and_leaves_the_terminal_as_it_was(engine):
    """On a terminal of its own: it draws, follows the size, and q, Ctrl-C or a signal bring the screen and its settings back."""
    client = engine.client()
    client.python("x = 1", session_name="audit")
    once = subprocess.run([furca_program(), "top", "--socket", engine.socket], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert once.returncode == 0 and "1 session," in once.stdout and once.stdout.count("LANGUAGE") == 1 and "audit" in once.stdout and "\033" not in once.stdout
    client.call("checkpoint", session_name="audit", label="here")
    client.python("x = 2", session_name="audit")
    pending = client.start("execute", code="import time; time.sleep(3)", language="python", session_name="audit", state_mode="read_only")
    def lines():
        once = subprocess.run([furca_program(), "top", "--once", "--socket", engine.socket], capture_output=True, text=True, timeout=30)
        return [line.split() for line in once.stdout.splitlines()]
    def tree():
        told = [re.sub("^.*[├└] ", "", " ".join(words)) for words in lines()]
        return all(any(re.fullmatch(form, line) for line in told) for form in (
            r"live \d+ [\d.]+ .?i?B [\d.]+ .?i?B", r"snapshot \d+ .* after call 2, serves reads", r"snapshot \d+ .* after call 1", r"pristine - .*",
            r"checkpoint \d+ .* after call 1, 'here'", r"copy \d+ .* read_only call for [\d.]+ s"))
    assert eventually(tree, 10), lines()
    assert [p["serves"] for p in client.call("list_sessions", detail="full")["sessions"][0]["processes"] if p["role"] == "live"] == [False]
    pending.wait()
    for end in (b"q", b"\3", signal.SIGTERM):
        main, side = pty.openpty()
        before = termios.tcgetattr(side)
        process = subprocess.Popen([furca_program(), "top", "--socket", engine.socket], stdin=side, stdout=side, stderr=side, start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        out = b""

        def shown(text):
            nonlocal out
            while select.select([main], [], [], 0)[0]:
                out += os.read(main, 65536)
            return text in out

        assert eventually(lambda: shown(b"audit") and shown(b"q ends"), 10), out
        out = b""
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 50, 0, 0))
        assert eventually(lambda: shown("…".encode()), 10), out
        os.write(main, end) if isinstance(end, bytes) else process.send_signal(end)
        assert process.wait(10) == 0
        assert eventually(lambda: shown(b"\033[?1049l"), 5) and termios.tcgetattr(side) == before
        os.close(main)
        os.close(side)


def test_output_fetches_what_exec_left_out(run):
    done = run("exec", "-l", "bash", "--max-output", "100", "-e", "seq 100000; printf 'a\\377b' >&2")
    number = re.search(r"`furca output (\d+)` shows all", done.stderr)[1]
    whole = run("output", number)
    assert whole.stdout.split() == [str(n) for n in range(1, 100001)] and not whole.stderr
    assert run("output", number, "--offset", "0", "--length", "4").stdout == "1\n2\n"
    assert run("output", number, "--stderr", text=False).stdout == b"a\xffb"
    for n in range(70):  # of commands that have ended the last 64 are kept
        run("exec", "-l", "bash", "-e", "echo %d" % n)
    gone = run("output", number)
    assert gone.returncode == 2 and "No output is kept under the number" in gone.stderr and "Use " in gone.stderr
    assert run("output").returncode == 2 and run("output", "x").returncode == 2
