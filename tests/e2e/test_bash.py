"""Bash sessions through the engine: how ends of a call are told, what survives them, reads, rollback, background output."""
import re
import time

import pytest

from furcalib import eventually

pytestmark = pytest.mark.usefixtures("engine")


class Bash:
    """Calls in one named session, which is closed at the end."""

    def __init__(self, client, name):
        self.client, self.name = client, name

    def __call__(self, code, **args):
        return self.client.execute(code, "bash", state_mode="stateful", session_name=self.name, **args)

    def read(self, code, **args):
        return self.client.execute(code, "bash", state_mode="read_only", session_name=self.name, **args)

    def call(self, method, **args):
        return self.client.call(method, session_name=self.name, language="bash", **args)


@pytest.fixture
def bash(client, request):
    session = Bash(client, re.sub(r"\W", "-", request.node.name)[:60])
    yield session
    session.call("close_session")


ENDS = [
    ("true", True, None, 0), ("false", True, None, 1), ("(exit 42)", True, None, 42), ("exit 0", True, None, 0),
    ("exit 3", False, "exit", 3), ("set -e; false; echo no", False, "exit", 1), ("exec true", True, None, 0),
    ("set -u; echo $nope; echo no", False, "exception", 1), ("echo ${x?no x}; echo no", False, "exception", None),
    ("if then", False, "exception", 2), ("echo 'abc", False, "exception", 2), ("nosuch_command", True, None, 127),
    ("return 3", True, None, None), ("kill $$; echo no", False, None, 143), ("exec sh -c 'exit 9'", None, None, 9),
]


@pytest.mark.parametrize("code, ok, error_type, status", ENDS, ids=[e[0] for e in ENDS])
def test_ends(bash, code, ok, error_type, status):
    bash("keep=1; cd /usr")
    result = bash(code)
    assert "no\n" not in result["stdout"]
    assert ok is None or result["ok"] is ok, result
    assert error_type is None or result["error_type"] == error_type, result
    assert status is None or (result["exit_code"] == result["result"] == status), result
    assert result["state"] == "committed"
    assert result["ok"] or result["error"]
    bash("set +eu")
    assert bash("echo $keep; pwd")["stdout"] == "1\n/usr\n"


@pytest.mark.parametrize("code, error_type", [("kill -9 $$", "killed"), ("kill -SEGV $$", "crashed")])
def test_death_costs_the_call(bash, code, error_type):
    bash("x=1; f() { echo f$x; }; trap 'echo u' USR1; set -f; cd /usr")
    result = bash("x=2; " + code)
    assert (result["ok"], result["error_type"], result["state"]) == (False, error_type, "rolled_back")
    assert bash("f; pwd; echo *; kill -USR1 $$; :")["stdout"] == "f1\n/usr\n*\nu\n"


@pytest.mark.parametrize("code", [
    "sleep 30", "while :; do :; done", "y=$(sleep 9 | cat; (sleep 9))", "trap '' INT; sleep 30", "trap 'echo t' INT; wait; sleep 30",
    "set -m; sleep 30", "mkfifo ff.$$; read y <ff.$$", "capability nosuch; sleep 30 | (trap '' INT; sleep 30) | sleep 30",
    "exec sleep 30",
])
def test_timeout(bash, code):
    bash("keep=1; sleep 60 & p=$!")
    start = time.monotonic()
    result = bash("echo before; %s; echo no" % code, timeout_s=0.5)
    assert time.monotonic() - start < 4
    assert result["error_type"] == "timeout" and result["stdout"].startswith("before\n") and "no\n" not in result["stdout"], result
    assert result["state"] == "committed"
    bash("trap - INT; set +m")
    assert bash("echo $keep; kill -0 $p && echo job; sleep 0.1; echo fine")["stdout"] == "1\njob\nfine\n"
    bash("kill $p")


def test_background_output(bash):
    assert bash("(sleep 0.3; echo late) & echo now")["stdout"] == "now\n"
    time.sleep(0.6)
    result = bash("echo mine")
    assert (result["stdout"], result["background_output"]) == ("mine\n", "late\n")


def test_output_that_leads_elsewhere_is_told(bash, tmp_path):
    assert bash("exec 3>&1 2>&1; { echo in; } >/dev/null; (exec >/dev/null)")["suggestion"] is None
    assert "stdout of this session leads elsewhere" in bash("exec >%s/out; echo 1" % tmp_path)["suggestion"]
    result = bash("echo 2; echo e >&2")
    assert (result["stdout"], result["ok"]) == ("e\n", True) and "furca-reset" in result["suggestion"], result
    assert "stdout of" in bash.read("echo 3")["suggestion"]
    assert "stdout and stderr" in bash("exec 1>&- 2>&-; echo 4")["suggestion"]
    assert bash("furca-reset; echo back")["suggestion"] is None
    assert bash("echo $(<%s/out)" % tmp_path)["stdout"] == "1 2\n"


def test_read_only_sees_and_leaves(bash, tmp_path):
    (tmp_path / "f").write_text("old\n")
    bash("cd '%s'; x=1; a=(p q); sleep 30 & trap 'echo t' USR1; exec 5<f; set -- one two" % tmp_path)
    result = bash.read("echo $x ${a[1]} $2 $BASH_SUBSHELL; jobs | grep -c Running; cat <&5; echo new >f; cat f; x=2; kill %1; kill -9 $!; rm f; exit 0")
    assert result["stdout"] == "1 q two 0\n1\nold\nnew\n" and result["state"] == "unchanged"
    result = bash("echo $x; jobs | grep -c Running; cat <&5; cat f; kill %1")
    assert result["stdout"] == "1\n1\nold\nold\n"


def test_read_only_while_busy(bash):
    bash("x=1")
    busy = bash.client.start("execute", code="x=2; sleep 1", language="bash", state_mode="stateful", session_name=bash.name)
    time.sleep(0.2)
    start = time.monotonic()
    assert bash.read("echo $x")["stdout"] == "1\n"
    assert time.monotonic() - start < 0.7
    assert busy.wait()["ok"]


def test_random_of_a_trial_is_that_of_the_run(bash):
    bash("RANDOM=7")
    trial = bash.read("echo $RANDOM $RANDOM")["stdout"]
    assert bash("echo $RANDOM $RANDOM")["stdout"] == trial


def test_undo_and_branch(bash):
    bash("x=1; sleep 30 &")
    bash("x=2; declare -A m=([k]=v)")
    assert bash.call("undo")["ok"]
    assert bash("echo $x ${m[k]-none}")["stdout"] == "1 none\n"
    assert bash.call("branch_session", new_name=bash.name + "-b")["ok"]
    branch = Bash(bash.client, bash.name + "-b")
    branch("x=3")
    assert bash("echo $x")["stdout"] == "1\n" and branch("echo $x; [ $$ = $BASHPID ] && echo own; jobs")["stdout"] == "3\nown\n"
    branch.call("close_session")


def test_inspect(bash):
    bash("cd /tmp; v=1; f() { :; }; alias ll='ls -l'; sleep 30 &")
    state = bash.call("inspect_session", detail="names")["state"]
    assert state["cwd"] == "/tmp" and state["variables"]["v"] == {"value": "1", "attributes": ""}
    assert "f" in state["functions"] and state["aliases"] == {"ll": "ls -l"}
    assert [j["state"] for j in state["jobs"]] == ["running"] and state["jobs"][0]["command"] == "sleep 30"


def test_exit_trap_runs_when_the_session_ends(bash, tmp_path):
    bash("trap 'echo bye >%s/bye' EXIT" % tmp_path)
    bash("exit 0")
    bash.read("exit 0")
    assert not (tmp_path / "bye").exists()
    bash.call("close_session")
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_stateless(client):
    result = client.execute("trap 'echo bye' EXIT; echo $0 $#; [ $$ = $BASHPID ] && echo own; jobs; echo ${x-none}", "bash")
    assert result["stdout"] == "bash 0\nown\nnone\nbye\n" and result["session"] is None


def test_stateless_by_a_spare(client, tmp_path):
    """The clone that was made ahead is as new as one made for the call, and serves one call."""
    def spare_serves():
        time.sleep(0.05)
        return client.execute(":", "bash")["timing"]["fork_us"] == 0

    eventually(spare_serves)
    seen = set()
    for _ in range(4):
        time.sleep(1.1)
        result = client.execute("echo $SECONDS ${x-none} $PWD; x=1; echo $$ >&2; trap 'echo bye' EXIT; set -e; false", "bash", cwd=str(tmp_path))
        assert result["stdout"] == "0 none %s\nbye\n" % tmp_path and result["error_type"] == "exit", result
        seen.add(result["stderr"])
    assert len(seen) == 4
    assert client.execute("kill -9 $$", "bash")["error_type"] in ("killed", "oom")
    assert client.execute("echo fine", "bash")["stdout"] == "fine\n"


def test_cwd_and_env_vars(bash, tmp_path):
    assert bash("pwd; sh -c 'echo $E'", cwd=str(tmp_path), env_vars={"E": "1"})["stdout"] == "%s\n1\n" % tmp_path
    assert bash("pwd; echo $E")["stdout"] == "%s\n1\n" % tmp_path
    result = bash("echo no", cwd="/nonexistent")
    assert not result["ok"] and result["stdout"] == ""


def test_functions(client, bash):
    assert client.call("add_function", name="greet", language="bash", source='echo "hi $1 $who"; return 4')["ok"]
    result = client.call("call_function", name="greet", args=["it's"], kwargs={"who": "you"}, state_mode="stateless")
    assert (result["stdout"], result["result"]) == ("hi it's you\n", 4), result
    assert client.call("remove_function", name="greet")["ok"]
