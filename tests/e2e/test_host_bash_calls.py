"""The bash host, driven directly: capabilities, clones, what a call brings with it, inspect."""
import os

import pytest

import hostlib
from bashhost import ARGV, needs_bash, session, zygote  # noqa: F401 (fixtures)
from hostlib import COPY, SESSION, STATELESS, Host

pytestmark = needs_bash


# -- capabilities


CAPABILITY = [
    ("words, key=text, key:=json", "capability contacts.lookup Ada limit:=3 note=text",
     b'{"args": ["Ada"], "kwargs": {"limit": 3, "note": "text"}}\n'),
    ("text as it is", "capability echo 'a\n\"b\"'", b'a\n"b"\n'),
    ("null", "capability echo", b"null\n"),
    ("a positional value", "capability echo ':=[1, {\"a\": null}, 2.5, true]'", b'[1, {"a": null}, 2.5, true]\n'),
    ("words behind --", "capability contacts.lookup -- a=1 b:=2", b'{"args": ["a=1", "b:=2"], "kwargs": {}}\n'),
    ("a word that is no key=text", "capability contacts.lookup http://h/?q=1", b'{"args": ["http://h/?q=1"], "kwargs": {}}\n'),
    ("64 bits", "capability echo :=18446744073709551615; capability echo :=-9223372036854775808",
     b"18446744073709551615\n-9223372036854775808\n"),
    ("escapes", "capability echo ':=[\"\\u00e9\\ud83d\\ude00\\n\"]'", '["\u00e9\U0001f600\\n"]\n'.encode()),
    ("-v", "capability -v v contacts.lookup 1; echo \"got $v\"", b'got {"args": ["1"], "kwargs": {}}\n'),
    ("in a subshell, a pipeline, a substitution", "(capability echo a); capability echo b | cat; echo $(capability echo c)",
     b"a\nb\nc\n"),
    ("a comma as decimal point", "{ LC_ALL=de_DE.UTF-8; } 2>/dev/null; capability echo :=1.5; LC_ALL=C", b"1.5\n"),
    ("a stored function", "furca-fn twice ab", b"abab\n"),
    ("deep", "v=$(printf '%0100d' 0); capability echo \":=${v//0/[}${v//0/]}\"", b"[" * 100 + b"]" * 100 + b"\n"),
]


@pytest.mark.parametrize("code, expected", [c[1:] for c in CAPABILITY], ids=[c[0] for c in CAPABILITY])
@pytest.mark.parametrize("role", [SESSION, STATELESS, COPY])
def test_capability(session, zygote, role, code, expected):
    host = zygote.clone(role) if role != COPY else session.copy()
    result = host.run(code)
    host.kill()
    assert (result.out, result.err, result.how) == (expected, b"", "ok")


def test_capability_fails(session):
    result = session.run("capability fail 'no such thing'; echo rc=$?")
    assert result.out == b"rc=1\n" and b"fail: KeyError: 'no such thing'" in result.err
    result = session.run("capability nosuch; echo rc=$?; capability; echo rc=$?; capability echo ':={'; echo rc=$?")
    assert result.out == b"rc=1\nrc=2\nrc=1\n"


def test_capability_many_at_once(session):
    code = "for i in 1 2 3 4 5 6 7 8; do capability slow $i >r$i & done; wait; cat r?; rm r?"
    result = session.run(code)
    assert result.out == b"".join(b"%d\n" % i for i in range(1, 9)) and result.seconds < 2


def test_capability_interrupted(session):
    session.capabilities["never"] = lambda: __import__("time").sleep(3)
    result = session.run("capability never; echo no", timeout=0.3)
    assert result.how == "interrupted" and result.out == b"" and result.seconds < 1
    assert session.run("capability echo next").out == b"next\n"


def test_capability_large(session):
    result = session.run("v=$(printf '%1000000s' x); capability -v w echo \"$v\"; [ \"$v\" = \"$w\" ]; echo $?")
    assert result.out == b"0\n"


# -- clones


def test_stateless_runs_its_exit_trap(zygote):
    host = zygote.clone(STATELESS)
    result = host.run("trap 'echo bye' EXIT; echo hi; exit 3")
    host.kill()
    assert result.out == b"hi\nbye\n" and result.how == "exit" and result.status == 3


def test_exit_trap_runs_at_close(session, tmp_path):
    session.run("trap 'echo bye >%s/bye' EXIT" % tmp_path)
    assert session.run("exit 0").out == b""
    assert not (tmp_path / "bye").exists()
    session.end()
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_snapshot_takes_over(session, tmp_path):
    session.run("x=1; f() { echo f$x; }; trap 'echo bye >%s/bye' EXIT; cd /usr" % tmp_path)
    snapshot = session.clone(hostlib.SNAPSHOT)
    session.run("x=2")
    assert session.run("kill -9 $$").how == "lost"
    session.kill()
    snapshot.promote()
    assert snapshot.run("f; pwd; [ $$ = $BASHPID ]; echo $?; trap -p EXIT | head -c 7").out == b"f1\n/usr\n0\ntrap --"
    assert snapshot.run("kill $$").how == "signal"
    snapshot.end()
    snapshot.kill()
    assert (tmp_path / "bye").exists()


def test_branch(session):
    session.run("x=1; declare -A m=([k]=v)")
    branch = session.clone(hostlib.BRANCH)
    branch.run("x=2")
    assert session.run("echo $x").out == b"1\n"
    assert branch.run("echo $x ${m[k]}; [ $$ = $BASHPID ]; echo $?").out == b"2 v\n0\n"
    branch.kill()


def test_sessions_are_apart(zygote):
    a, b = zygote.clone(SESSION), zygote.clone(SESSION)
    a.run("x=a; cd /; umask 0")
    assert b.run("echo ${x-none}; umask").out == b"none\n0022\n"
    assert a.run("echo $RANDOM").out != b.run("echo $RANDOM").out
    a.kill()
    b.kill()


# -- what a call brings


def test_cwd_and_env(session, tmp_path):
    assert session.run("pwd; echo $E", cwd=str(tmp_path), env={"E": "it's"}).out == ("%s\nit's\n" % tmp_path).encode()
    assert session.run("pwd; sh -c 'echo $E'").out == ("%s\nit's\n" % tmp_path).encode()
    assert session.run("echo ${E-unset}; echo $OLDPWD", env={"E": None}).out.startswith(b"unset\n")
    result = session.run("echo no", cwd="/nonexistent")
    assert result.how == "refused" and result.out == b"" and not result.body["changed"]
    assert result.body["error"] == "cannot change to the directory '/nonexistent': No such file or directory"
    assert "Not a directory" in session.run("echo no", cwd="/etc/passwd").body["error"]
    assert session.run("echo no", env={"a b": "1"}).how == "refused"
    session.run("readonly RO=1")
    assert session.run("echo no", cwd="/usr", env={"SET": "1", "RO": "2"}).how == "refused"
    assert session.run("pwd; echo ${SET-unset}").out == ("%s\nunset\n" % tmp_path).encode()
    assert session.run("cd() { :; }; :", cwd="/usr").how == "ok"
    assert session.run("pwd", cwd="/etc").out == b"/etc\n"


def test_function(session):
    function = {"name": "greet", "source": 'local n=$#\necho "$1 $2 $n $lang"\nreturn 3', "args": ["it's", [1, "a"]], "kwargs": {"lang": "en"}}
    result = session.run("", function=function)
    assert result.out == b"it's [1, \"a\"] 2 en\n" and result.status == 3 and result.how == "ok"
    assert session.run("echo ${lang-unset}").out == b"unset\n"
    assert session.run("", function=dict(function, name="a;b")).how == "refused"


def test_nul_in_code(session):
    assert session.run("echo a\0b").how == "refused"
    assert session.run("echo ok").out == b"ok\n"


def test_foreign_environment_stays_out(tmp_path):
    (tmp_path / "env").write_text("echo FOREIGN\n")
    foreign = {"BASH_ENV": str(tmp_path / "env"), "ENV": str(tmp_path / "env"), "SHELLOPTS": "xtrace:errexit",
               "BASH_FUNC_ls%%": "() { echo FOREIGN; }"}
    host = Host.start(ARGV, env=dict(os.environ, **foreign))
    result = host.run("ls /dev/null; echo $-; bash -c 'echo $BASH_ENV; type -t ls'; env | grep -c BASH_FUNC")
    host.kill()
    assert result.out == b"/dev/null\nhB\n\nfile\n0\n" and result.err == b""


@pytest.mark.parametrize("code", ["exec >/dev/null 2>&1 </dev/zero", "exec 1>&- 2>&- 0<&-", "exec 2>&1", ":"])
@pytest.mark.parametrize("calls", [0, 1])
def test_reset(session, code, calls):
    if calls:
        session.run(code)
        code = ":"
    result = session.run(code + "; furca-reset; echo out; echo err >&2; read x; echo $?")
    assert (result.out, result.err) == (b"out\n1\n", b"err\n")
    assert session.run("echo out; exec 5>&1; furca-reset; echo more >&5").out == b"out\nmore\n"


# -- inspect


def test_inspect(session):
    session.run("cd /usr; pushd /tmp >/dev/null; a=(1 'b c'); declare -A m=([k]=v); declare -ri n=5; export e=$'\\xff'; declare -n r=n; declare u")
    session.run("f() { echo hi; }; alias ll='ls -l'; trap 'echo u' USR1; trap '' HUP; trap 'echo bye' EXIT; set -f; shopt -s nullglob; sleep 30 | cat &")
    copy = session.copy()
    state = copy.inspect("names")
    assert state["cwd"] == "/tmp"
    v = state["variables"]
    assert v["a"] == {"value": '([0]="1" [1]="b c")', "attributes": "a"}
    assert v["m"]["attributes"] == "A" and v["n"] == {"value": "5", "attributes": "ir"}
    assert v["e"] == {"value": "\ufffd", "attributes": "x"} and v["u"]["value"] is None and v["r"]["attributes"] == "n"
    assert "echo hi" in state["functions"]["f"] and state["aliases"] == {"ll": "ls -l"}
    assert "noglob" in state["options"]["set"] and "nullglob" in state["options"]["shopt"]
    assert state["traps"] == {"SIGUSR1": "echo u", "SIGHUP": "", "EXIT": "echo bye"}
    assert state["directories"] == ["/tmp", "/usr"]
    (job,) = state["jobs"]
    assert job["id"] == 1 and job["state"] == "running" and job["command"] == "sleep 30 | cat" and job["pid"] > 0
    assert set(state["options"]["changed"]) == {"noglob", "nullglob"}
    own = [name for name in v if name not in state["given"]]
    assert list(v)[:len(own)] == own == ["a", "e", "m", "n", "r", "u"] and {"HOME", "RANDOM", "PWD", "PATH"} <= set(state["given"])
    assert list(copy.inspect("full", "a")["variables"]) == ["a"] and copy.inspect("full", "a")["given"] == []
    assert copy.inspect("full", "PATH")["given"] == ["PATH"]
    assert copy.inspect("summary")["jobs"] == 1
    copy.kill()
    session.run("kill %1")
