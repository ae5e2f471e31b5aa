"""Many calls in one bash session, all kinds of ends, seeded: no session lost, no answer crossed, memory and descriptors flat.

FURCA_STRESS=N sets the number of pieces (300), FURCA_MIXED that of mixed calls in hosts (10,000) and FURCA_ENGINE_MIXED through the
engine (2,000), FURCA_SEED the seed. The pieces are cut at random bytes from GNU bash's own test scripts where they can be had, else
from the code of test_host_bash.
"""
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile

import pytest

import bashsource
import hostlib
from furcalib import Client, furca_program
from hostlib import SESSION
from bashhost import ARGV, BASH, session, zygote  # noqa: F401 (fixtures)
from test_host_bash import BEHAVIOURS

CALLS = int(os.environ.get("FURCA_STRESS", 300))
MIXED = int(os.environ.get("FURCA_MIXED", 10000))
ENGINE_MIXED = int(os.environ.get("FURCA_ENGINE_MIXED", 2000))
SEED = int(os.environ.get("FURCA_SEED", 7))

ENDS = [
    ":", "exit 3", "if then", 'echo "abc', "set -e; false", "set +e; set -u; echo $nosuch", "set +u; echo ${x?m}",
    "f() { local a=1; { exit 4; } >/dev/null; }; { f; } 2>/dev/null",
    "for i in 1 2; do { while :; do exit 5; done; } </dev/null; done",
    "set -e; g() { { false; } >/dev/null 3</dev/null; }; { g; } >/dev/null 4>/dev/null", "set +e; kill -TERM $$",
    "eval \"eval 'exit 3'\"", 'v=$(exit 3); cat <<<"x" >/dev/null; exit 1', "echo $((1/0))", "readonly r=1; r=2", "nosuch_command",
    "case x in x) exit 2;; esac", "a=(1 2 3); unset a; exit", "(exit 3) | (exit 4)", "exec /nonexistent", "exec true",
    "exec 9>/dev/null; exit", "cat <<E\nx\n", "f() { return 3; }; f; exit", "source /dev/null; . /nonexistent",
    "capability nosuch", "exec 3>&1; exec 3>&-", "ulimit -n 200",
]


@pytest.mark.parametrize("code", ENDS)
def test_an_end_leaks_nothing(session, code):  # noqa: F811
    many = 40 if any(c in code for c in ("$(", "|", "exec /", "exec t", "<<")) else 300
    for _ in range(20):
        session.run(code)
    memory, descriptors = session.resident_kb(), session.descriptors()
    for _ in range(many):
        session.run(code)
    assert session.descriptors() == descriptors
    assert session.resident_kb() - memory < 200
    session.run("set +eu")
    assert session.run("echo ok").out == b"ok\n"


def pieces():
    try:
        directory = os.path.join(bashsource.source(BASH), "tests")
        names = [n for n in sorted(os.listdir(directory)) if n.endswith((".tests", ".sub")) and n not in ("jobs.tests", "rsh.tests")]
        texts = []
        for name in names:
            with open(os.path.join(directory, name), "rb") as f:
                texts.append(f.read())
    except bashsource.Missing:
        texts = ["\n".join(step[0] for step in steps).encode() for _, steps in BEHAVIOURS]
        # A fast machine makes such a variable within a piece's time; `set`, which bash does not interrupt, then takes a minute to print it.
        texts = [t.replace(b"400000000", b"4000000") for t in texts]
    return [t.replace(b"\0", b"") for t in texts]


@pytest.fixture
def cage():
    """A zygote in a cage: pieces of scripts delete, kill and write whatever the cut makes of them."""
    if not hostlib.caged():
        pytest.skip("needs namespaces of its own (unshare --mount --pid --net as root)")
    surface = hostlib.Surface(wrap=hostlib.cage())
    host = surface.spawn(ARGV, cwd="/tmp")
    yield host
    host.kill()
    surface.end()


class Fuzzed:
    """A session that is begun anew where it is lost."""

    def __init__(self, zygote):  # noqa: F811
        self.zygote, self.lost, self.session, self.ran = zygote, [], None, []

    def run(self, code):
        if self.session is None:
            self.session = self.zygote.clone(SESSION)
            self.session.run("cd /tmp; ulimit -f 20000")
            self.ran = []
        self.ran.append(code)
        result = self.session.run(code, timeout=1.5, merge=True)
        if result.how == "lost":
            self.lost.append((self.ran[-40:], result, self.session.exit_status()))
            self.session.kill()
            self.session = None
        return result

    def done(self):
        if self.session:
            self.session.kill()


def plain_status(pieces):
    """How a bash without us ends that is given these, one after the other."""
    code = "\n".join("eval -- " + shlex.quote(piece) for piece in pieces)
    try:
        return subprocess.run([*hostlib.cage(), BASH, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=10, start_new_session=True).returncode
    except subprocess.TimeoutExpired:
        return None


def kills_plain_bash(pieces, status):
    """The last piece by the same signal, in the state that those before it have made: 5.2 takes SIGSEGV at `foo=(0 0 0); [[ -z ${foo[@]#0} ]]` where IFS is
    a newline, for one."""
    if status is None or not os.WIFSIGNALED(status):
        return False
    number = os.WTERMSIG(status)
    return any(plain_status(pieces[-n:]) in (-number, 128 + number) for n in (1, 2, 5, 15, 40))


def test_pieces(cage):
    rng = random.Random(SEED)
    texts = pieces()
    fuzzed = Fuzzed(cage)
    ends = {}
    for i in range(CALLS):
        text = rng.choice(texts)
        a = rng.randrange(len(text))
        b = rng.randrange(a, min(len(text), a + 1500) + 1)
        result = fuzzed.run(text[a:b].decode("utf-8", "surrogateescape"))
        ends[result.how] = ends.get(result.how, 0) + 1
        if i % 50 == 0:  # whatever state it is in, it can be made usable again
            fuzzed.run("set +eunxvf; trap - DEBUG ERR RETURN EXIT INT")
            token = "%d-%d" % (i, rng.randrange(1 << 30))
            fuzzed.run("exec >&2")
            said = fuzzed.run("builtin echo %s" % token)
            assert token.encode() in said.out or said.how != "ok" or said.body["redirected"], said
    fuzzed.done()
    print("seed %d: %r, lost %d" % (SEED, ends, len(fuzzed.lost)))
    assert [lost for lost in fuzzed.lost if not kills_plain_bash(lost[0], lost[2])] == []


def test_sessions_at_once_cross_nothing(zygote):  # noqa: F811
    """Interleaved calls of many sessions, started before the others are answered."""
    sessions = [zygote.clone(SESSION) for _ in range(6)]
    rng = random.Random(SEED)
    for i in range(40):
        pipes = []
        for k, s in enumerate(sessions):
            r, w = os.pipe()
            s.send_run("n=%d; echo %d-$n; echo late >&2 & exit %d" % (i, k, (i + k) % 200), [w, w])
            os.close(w)
            pipes.append(r)
        order = list(range(len(sessions)))
        rng.shuffle(order)
        for k in order:
            name, call, body, _ = sessions[k].control.recv()
            assert (name, call, body["exit_code"]) == ("DONE", sessions[k].calls, (i + k) % 200)
            data = os.read(pipes[k], 100)
            assert b"%d-%d\n" % (k, i) in data
            os.close(pipes[k])
    for s in sessions:
        s.kill()


ORDINARY = [
    "x{i}={i}; echo $x{i}", "cd /usr; pwd >/dev/null; cd - >/dev/null", "f() {{ local a={i}; echo $a; }}; f", "a[{i}%10]={i}; echo ${{#a[@]}}",
    "for i in 1 2 3; do :; done", "v=$(echo {i}); echo $v", "echo {i} | cat", "cat <<E\n{i}\nE", "(exit 3)", "printf '%s\\n' {i}",
    "capability echo {i}", "[[ {i} == {i} ]] && echo yes", "case {i} in *) echo c;; esac", "trap 'echo u' USR1; kill -USR1 $$; :; trap - USR1",
    "sleep 0.01 & wait", "exec 7</dev/null; exec 7<&-", "declare -A m; m[k{i}%5]=1", "set -- {i} b; shift; echo $1", "echo {i} >&2",
]
HOSTILE = [
    "exit {i}", "set -e; false", "set -u; echo $nope{i}", "${{x?{i}}}", "if then", "echo 'open", "kill $$", "kill -INT $$", "return {i}", "set -n",
    "exec /nonexistent/{i}", "exec true", "exec 1>&-", "exec >/dev/null", "exec 2>&1", "exec 0<&-", "IFS=0; PATH=/nowhere", "PS4=$(echo); set -x",
    "eval() {{ :; }}; exit() {{ :; }}; builtin() {{ :; }}; echo() {{ :; }}", "enable -n echo eval", "trap 'false' DEBUG; set -e; :",
    "trap 'echo $nope' DEBUG; set -u; :", "trap 'exit 5' ERR; false", "ulimit -n 20", "f() {{ f; }}; f", "break; continue 3", "shopt -s extdebug",
    "for fd in /proc/self/fd/*; do eval \"exec ${{fd##*/}}>&-\"; done 2>/dev/null", "exec 900>&- 901>&- 902>&-; read -u 900 x; exec 901</dev/null",
    "alias echo=false done=fi; shopt -s expand_aliases", "readonly x{i}=1; x{i}=2", "unset PATH; hash -r", "coproc true; exit", "set -m; (exit 1) &",
    "printf 'a\\0b\\377'", "umask 777; umask 022", "suspend -f", "logout", "kill -STOP $$", "set -o posix; export; set +o posix", "exec -a x true",
]
REPAIR = ("\\unset -f eval exit builtin echo", "\\builtin trap - DEBUG ERR EXIT RETURN INT", "\\builtin set +euxvnm +o posix", "\\builtin unalias -a",
          "\\builtin enable echo eval; IFS=$' \\t\\n'; PATH=/usr/bin:/bin; \\builtin shopt -u extdebug", "\\builtin furca-reset")


SESSIONS = 6
NAMES = 500  # of variables and the like: what the calls leave is bounded, so that memory can be


class Crowd:
    """Sessions whose calls are all sent before any is awaited."""

    def __init__(self, zygote):  # noqa: F811
        self.sessions = [zygote.clone(SESSION) for _ in range(SESSIONS)]
        self.calls = 0
        for code in ("cd /tmp", "f() { f; }; f"):  # the second: the stack that deep recursion has touched stays
            self.run({k: code for k in range(SESSIONS)})

    def run(self, codes):
        """{session's number: code} to {number: (stdout, how, status)}."""
        ends = {}
        for k, code in codes.items():
            out, out_end = os.pipe()
            err, err_end = os.pipe()
            ends[k] = out, err, self.sessions[k].send_run(code, [out_end, err_end])
            os.close(out_end)
            os.close(err_end)
        self.calls += len(codes)
        return {k: self.result(k, codes[k], *ends[k]) for k in codes}

    def result(self, k, code, out, err, call):
        session = self.sessions[k]
        try:
            name, answered, body, _ = session.control.recv(20)
            assert (name, answered) == ("DONE", call), "another call's answer: %r" % ((name, answered, call, code),)
            os.set_blocking(out, False)
            try:
                return os.read(out, 1 << 16), body["how"], body["exit_code"]
            except BlockingIOError:
                return b"", body["how"], body["exit_code"]
        except (hostlib.Lost, TimeoutError) as e:
            raise AssertionError(type(e).__name__ + " by %r after %d calls of seed %d: %r" % (code, self.calls, SEED, session.exit_status()))
        finally:
            os.close(out)
            os.close(err)

    def weight(self):
        return [(s.resident_kb(), len(s.descriptors())) for s in self.sessions]

    def end(self):
        for s in self.sessions:
            s.kill()


def test_mixed_calls(cage):
    """No hostile call takes a session away or makes it say another call's answer; what it left is undone by code alone."""
    rng = random.Random(SEED)
    cage.capabilities["echo"] = lambda x=None: x
    crowd, weights, i = Crowd(cage), [], 0
    everyone = range(SESSIONS)
    while crowd.calls < MIXED:
        i += 1
        hostile = [k for k in everyone if rng.random() < 0.3]
        codes = {k: rng.choice(HOSTILE if k in hostile else ORDINARY).format(i=rng.randrange(NAMES)) for k in everyone}
        crowd.run(codes)
        for line in REPAIR:
            crowd.run({k: line for k in hostile})
        tokens = {k: "%d-%d-%d" % (i, k, rng.randrange(1 << 30)) for k in everyone}
        said = crowd.run({k: "echo %s; (exit %d)" % (tokens[k], (i + k) % 250) for k in everyone})
        for k in everyone:
            assert said[k] == (tokens[k].encode() + b"\n", "ok", (i + k) % 250), (codes[k], said[k], SEED)
        if crowd.calls > MIXED * len(weights) / 10:
            weights.append(crowd.weight())
    weights.append(crowd.weight())
    crowd.end()
    print("seed %d: %d calls, KiB and descriptors of each session at each tenth:" % (SEED, crowd.calls))
    for w in weights:
        print("   ", w)
    for early, late in zip(weights[len(weights) // 2], weights[-1]):
        assert late[1] <= early[1] + 1, "descriptors grow"
        assert late[0] <= early[0] + 512, "memory grows"


class Caged:
    """An engine in a cage, with its socket in a directory that is seen from outside."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="furca-test-")
        command = [*hostlib.cage(self.dir), furca_program(), "serve", "--socket", "/tmp/kept/s", "--state-dir", "/tmp/kept/state"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/")
        assert self.process.stdout.readline().startswith(b"ready")
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as f:
            self.pid = int(f.read().split()[0])

    def weight(self):
        with open("/proc/%d/statm" % self.pid) as f:
            return int(f.read().split()[1]) * 4, len(os.listdir("/proc/%d/fd" % self.pid))

    def end(self):
        os.kill(self.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            shutil.rmtree(self.dir)


@pytest.fixture
def caged_engine():
    if not furca_program():
        pytest.skip("needs the program furca")
    if not hostlib.caged():
        pytest.skip("needs namespaces of its own (unshare --mount --pid --net as root)")
    engine = Caged()
    yield engine
    engine.end()


def test_mixed_calls_through_the_engine(caged_engine):
    """The same with what the engine adds: pipes that serve several calls, commits, copies, stateless calls, many at once."""
    rng = random.Random(SEED)
    engine = caged_engine
    client = Client(os.path.join(engine.dir, "s"), capabilities={"echo": lambda x=None: x}, effects={"echo": "read"})
    calls, weights, ends = 0, [], {}

    def ask(k, code, mode="stateful"):
        nonlocal calls
        calls += 1
        where = {} if mode == "stateless" else {"session_name": "s%d" % k}
        return client.start("execute", code=code, language="bash", state_mode=mode, **where)

    everyone = range(SESSIONS)
    for k in everyone:
        ask(k, "cd /tmp").wait()
    while calls < ENGINE_MIXED:
        round_ = []
        for k in everyone:
            hostile = rng.random() < 0.3
            mode = rng.choice(["stateful"] * 6 + ["read_only", "stateless"])
            code = rng.choice(HOSTILE if hostile else ORDINARY).format(i=rng.randrange(NAMES))
            sent = [ask(k, code, mode)]
            sent += [ask(k, line) for line in REPAIR if hostile and mode == "stateful"]
            token, status = "%d-%d" % (k, rng.randrange(1 << 30)), rng.randrange(250)
            round_.append((code, sent, token, status, ask(k, "echo %s; (exit %d)" % (token, status))))
        for code, sent, token, status, last in round_:
            for pending in sent:
                answer = pending.wait(60)
                ends[answer["state"]] = ends.get(answer["state"], 0) + 1
                assert answer["state"] in ("committed", "unchanged"), (code, answer, SEED)
            answer = last.wait(60)
            assert (answer["stdout"], answer["exit_code"], answer["ok"]) == (token + "\n", status, True), (code, answer, SEED)
        if calls > ENGINE_MIXED * len(weights) / 10:
            weights.append(engine.weight())
    weights.append(engine.weight())
    client.close()
    print("seed %d: %d calls, %r; KiB and descriptors of the engine at each tenth: %r" % (SEED, calls, ends, weights))
    early, late = weights[len(weights) // 2], weights[-1]
    assert late[1] <= early[1] + 40, "descriptors grow"
    assert late[0] <= early[0] + 8192, "memory grows"
