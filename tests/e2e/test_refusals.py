"""Every refusal there is, made to happen; its suggestion applied literally, by a program; the corrected call accepted.

Over the wire and through MCP. The last test reads the sources: each refusal that they can write must be one of these, or stand in
NOT_HERE with its reason.
"""
import collections
import glob
import json
import os
import re
import socket
import sys

import pytest

from attachlib import Waiting
from furcalib import Engine, furca_program
from mcplib import Server
from refusalsource import NOT_HERE, pattern_of, refusals_of_the_sources

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "bridge", "python"))
import furca  # noqa: E402
from furca import suggestions  # noqa: E402  the grammar is the package's, too

NO_SYSCALL = os.path.join(os.path.dirname(furca_program() or "/nowhere"), "tests", "no_syscall")
ROUNDS = 3  # corrections until the call must be accepted: an argument that was set right may show the next mistake
MCP = {"execute": "execute_code", **{name: name for name in ("list_sessions", "inspect_session", "close_session", "undo", "branch_session", "create_env",
                                                              "add_function", "read_output")}}
SPEC = '[project]\nname = "e"\nversion = "0"\n'
X = {"code": "1", "language": "python"}
S = {**X, "session_name": "s"}
made = ("execute", {**S, "code": "x = 1"})
bash_made = ("execute", {"language": "bash", "code": "true", "session_name": "b", "state_mode": "stateful"})


Case = collections.namedtuple("Case", "id method args before options mcp")
FULL = {"max_sessions": 2}


def case(id, method, args, *before, options=None, mcp=True):
    return Case(id, method, args, before, options, mcp)


def execute(id, *before, options=None, mcp=True, **args):
    return case(id, "execute", {**X, **args}, *before, options=options, mcp=mcp)


CASES = [
    # arguments of execute
    execute("unknown-argument", cod="1"),
    case("unknown-argument-instead", "execute", {"cod": "1", "language": "python"}),
    execute("unknown-argument-quotes", **{"it's \"odd\" \\ now": 1}),
    case("language-missing", "execute", {"code": "1"}),
    execute("language-unknown", language="pyton"),
    execute("language-number", language=5),
    execute("mode-unknown", state_mode="statefull"),
    execute("mode-read-only-misspelt", state_mode="readonly", session_name="s"),
    execute("mode-number", state_mode=3),
    case("code-missing", "execute", {"language": "bash"}),
    execute("code-number", code=5),
    execute("code-nul", code="1\0"),
    execute("code-too-large", code="1" * ((16 << 20) + 1), mcp=False),
    execute("session-id-text", session_id="0"),
    execute("session-id-negative", session_id=-1),
    execute("session-name-long", session_name="n" * 65),
    execute("session-name-newline", session_name="a\nb"),
    execute("venv-text", venv_id="x"),
    execute("venv-unknown", venv_id=99),
    execute("venv-zero", venv_id=0),
    execute("timeout-zero", timeout_s=0),
    execute("timeout-text", timeout_s="1"),
    execute("on-error-word", on_error="roll"),
    execute("retry-word", retry="sometimes"),
    execute("retry-number", retry=1),
    execute("limits-list", limits=[]),
    execute("limits-unknown", limits={"memory": 1 << 30}),
    execute("limits-negative", limits={"open_files": -1}),
    execute("limits-files", limits={"open_files": 15}),
    execute("limits-cpu", limits={"cpu_s": 0}),
    execute("limits-key", limits={1: 1}, mcp=False),
    execute("cwd-number", cwd=1),
    execute("cwd-empty", cwd=""),
    execute("cwd-long", cwd="/" * 5000),
    execute("env-list", env_vars=[]),
    execute("env-many", env_vars={"V%d" % i: "" for i in range(1025)}),
    execute("env-name", env_vars={"A=B": "1"}),
    execute("env-value", env_vars={"A": 1}),
    execute("env-nul", env_vars={"A": "\0"}),
    execute("output-negative", max_output_bytes=-1),
    execute("stream-text", stream="yes"),
    execute("isolation-text", made, isolation="none", state_mode="read_only", session_name="s"),
    execute("isolation-key", made, isolation={1: "allow"}, state_mode="read_only", session_name="s", mcp=False),
    execute("isolation-unknown", made, isolation={"disks": "allow"}, state_mode="read_only", session_name="s"),
    execute("isolation-word", made, isolation={"disk": "off"}, state_mode="read_only", session_name="s"),
    execute("isolation-require", made, isolation={"require": "disk"}, state_mode="read_only", session_name="s"),
    execute("isolation-require-number", made, isolation={"require": [1]}, state_mode="read_only", session_name="s"),
    execute("isolation-require-unknown", made, isolation={"require": ["thread"]}, state_mode="read_only", session_name="s"),
    execute("isolation-stateful", isolation={"disk": "allow"}),
    case("name-no-text", "execute", {**X, 5: 1}, mcp=False),
    # coordinates
    execute("stateless-with-session", state_mode="stateless", session_name="s"),
    execute("stateless-with-session-id", state_mode="stateless", session_id=3),
    execute("read-only-without-session", state_mode="read_only"),
    execute("read-only-without-session-isolation", state_mode="read_only", isolation={"network": "allow"}),
    execute("two-sessions", made, session_id=7, session_name="s"),
    execute("read-only-missing", state_mode="read_only", session_name="nope"),
    execute("read-only-missing-near", made, ("execute", {**X, "session_name": "it's \"my\" \\ audit"}), state_mode="read_only", session_name="it's my audit"),
    execute("read-only-missing-id", state_mode="read_only", session_id=8),
    execute("name-of-bash", bash_made, session_name="b"),
    execute("name-of-python", made, language="bash", state_mode="stateful", session_name="s"),
    execute("sessions-full", made, bash_made, session_name="third", options=FULL),
    execute("sessions-full-unnamed", made, bash_made, options=FULL),
    # methods that name a session
    case("inspect-unnamed", "inspect_session", {}, made),
    case("inspect-unnamed-none", "inspect_session", {}),
    case("inspect-missing", "inspect_session", {"session_name": "t"}, made),
    case("inspect-missing-id", "inspect_session", {"session_id": 12}, made),
    case("inspect-missing-none", "inspect_session", {"session_name": "t"}),
    case("inspect-missing-none-bash", "inspect_session", {"session_id": 4, "language": "bash"}),
    case("inspect-ambiguous", "inspect_session", {"session_id": 0}, ("execute", X), ("execute", {**bash_made[1], "session_id": 0})),
    case("inspect-unknown-argument", "inspect_session", {"session_nam": "s"}, made),
    case("inspect-language", "inspect_session", {"session_name": "s", "language": "perl"}, made),
    case("inspect-other-language", "inspect_session", {"session_name": "s", "language": "bash"}, made),
    case("inspect-other-env", "inspect_session", {"session_name": "s", "venv_id": 5}, made),
    case("inspect-language-number", "inspect_session", {"session_name": "s", "language": 1}, made),
    case("inspect-detail", "inspect_session", {"session_name": "s", "detail": "all"}, made),
    case("inspect-id-text", "inspect_session", {"session_id": "0"}, ("execute", X)),
    case("inspect-name-number", "inspect_session", {"session_name": 1}, made),
    case("inspect-name-control", "inspect_session", {"session_name": "a\tb"}, made),
    case("inspect-names-no-text", "inspect_session", {"session_name": "s", 1: 1}, made, mcp=False),
    case("list-detail", "list_sessions", {"detail": 5}),
    case("list-unknown", "list_sessions", {"filter": "x"}),
    case("close-all-unknown", "close_all_sessions", {"force": True}, mcp=False),
    case("close-unnamed", "close_session", {}, made),
    case("undo-steps", "undo", {"session_name": "s", "steps": 0}, made),
    case("undo-too-many", "undo", {"session_name": "s", "steps": 9}, made),
    case("undo-nothing", "undo", {"session_id": 0, "language": "bash"}, ("execute", {"language": "bash", "code": "true", "state_mode": "stateful"}),
         ("undo", {"session_id": 0, "language": "bash"})),
    case("branch-no-name", "branch_session", {"session_name": "s"}, made),
    case("branch-long-name", "branch_session", {"session_name": "s", "new_name": "n" * 80}, made),
    case("branch-taken", "branch_session", {"session_name": "s", "new_name": "b"}, made, bash_made),
    case("branch-full", "branch_session", {"session_name": "s", "new_name": "t"}, bash_made, made, options=FULL),
    case("checkpoint-no-label", "checkpoint", {"session_name": "s"}, made, mcp=False),
    case("checkpoint-full", "checkpoint", {"session_name": "s", "label": "last"}, made,
         *[("checkpoint", {"session_name": "s", "label": "l%d" % i}) for i in range(8)], mcp=False),
    case("restore-none", "restore", {"session_name": "s", "label": "here"}, made, mcp=False),
    case("restore-unknown", "restore", {"session_name": "s", "label": "hre"}, made, ("checkpoint", {"session_name": "s", "label": "here"}), mcp=False),
    case("output-none", "read_output", {"msgid": 99999, "stream": "stdout", "offset": 0, "length": 10}),
    case("output-other", "read_output", {"msgid": 99999, "stream": "stdout", "offset": 0, "length": 10}, ("execute", {**X, "code": "print(1)"})),
    case("output-no-msgid", "read_output", {"stream": "stdout", "offset": 0, "length": 10}),
    case("output-stream", "read_output", {"msgid": 99999, "stream": "out", "offset": 0, "length": 10}),
    case("output-id", "read_output", {"output_id": 99999}, mcp=False),
    case("output-id-other", "read_output", {"output_id": 99999}, ("execute", {**X, "code": "print(1)"}), mcp=False),
    case("output-offset", "read_output", {"msgid": 99999, "stream": "stderr", "offset": -1, "length": 10}),
    case("cancel-no-msgid", "cancel", {}, mcp=False),
    # environments
    case("env-no-spec", "create_env", {}, mcp=False),
    case("env-spec-number", "create_env", {"spec": 1}, mcp=False),
    case("env-unknown-argument", "create_env", {"spec": SPEC, "label": "x"}, mcp=False),
    case("build-none", "build_env", {"venv_id": 12345}, mcp=False),
    case("build-other", "remove_env", {"venv_id": 12345}, ("create_env", {"spec": SPEC}), mcp=False),
    case("build-text", "remove_env", {"venv_id": "one"}, ("create_env", {"spec": SPEC}), mcp=False),
    case("list-envs-unknown", "list_envs", {"all": True}, mcp=False),
    # stored functions
    case("function-no-language", "add_function", {"name": "f", "source": "def f(): pass"}),
    case("function-language", "add_function", {"name": "f", "source": "def f(): pass", "language": "pythn"}),
    case("function-no-name", "add_function", {"source": "def f(): pass", "language": "python"}),
    case("function-name", "add_function", {"name": "f-g", "source": "def f(): pass", "language": "python"}),
    case("function-reserved", "add_function", {"name": "class", "source": "def f(): pass", "language": "python"}),
    case("function-no-source", "add_function", {"name": "f", "language": "python"}),
    case("function-source-number", "add_function", {"name": "f", "language": "python", "source": 4}),
    case("function-doc-long", "add_function", {"name": "f", "language": "bash", "source": "true", "doc": "d" * 100000}),
    case("function-capabilities", "add_function", {"name": "f", "language": "bash", "source": "true", "capabilities": "all"}),
    case("function-capabilities-number", "add_function", {"name": "f", "language": "bash", "source": "true", "capabilities": [1]}),
    case("function-venv", "add_function", {"name": "f", "language": "bash", "source": "true", "venv_id": 77}),
    case("function-undefined", "add_function", {"name": "g", "language": "python", "source": "def f(): pass"}),
    case("function-undefined-none", "add_function", {"name": "g", "language": "python", "source": "1"}),
    case("function-syntax", "add_function", {"name": "g", "language": "python", "source": "def g(:"}),
    case("function-nul", "add_function", {"name": "g", "language": "python", "source": "def g(): pass\n" + "(" * 300}),
    case("function-bash-syntax", "add_function", {"name": "g", "language": "bash", "source": "if true"}),
    case("call-unknown", "call_function", {"name": "ff"}, ("add_function", {"name": "f", "language": "bash", "source": "true"}), mcp=False),
    case("call-none", "call_function", {"name": "f"}, mcp=False),
    case("call-args", "call_function", {"name": "f", "args": 1}, ("add_function", {"name": "f", "language": "bash", "source": "true"}), mcp=False),
    case("call-kwargs", "call_function", {"name": "f", "kwargs": []}, ("add_function", {"name": "f", "language": "bash", "source": "true"}), mcp=False),
    case("call-kwargs-names", "call_function", {"name": "f", "kwargs": {1: 1}}, ("add_function", {"name": "f", "language": "bash", "source": "true"}),
         mcp=False),
    case("call-unknown-argument", "call_function", {"name": "f", "arg": [1]}, ("add_function", {"name": "f", "language": "bash", "source": "true"}),
         mcp=False),
    case("remove-unknown", "remove_function", {"name": "ff"}, ("add_function", {"name": "f", "language": "bash", "source": "true"}), mcp=False),
    # capabilities
    case("offer-no-list", "register_capabilities", {}, mcp=False),
    case("offer-unknown", "register_capabilities", {"capabilities": [{"name": "a", "efect": "read"}]}, mcp=False),
    case("offer-name", "register_capabilities", {"capabilities": [{"name": "ok"}, {"name": "a..b"}]}, mcp=False),
    case("offer-effect", "register_capabilities", {"capabilities": [{"name": "a", "effect": "none"}]}, mcp=False),
    case("offer-objects", "register_capabilities", {"capabilities": [{"name": "a", "objects": "yes"}]}, mcp=False),
    case("offer-doc", "register_capabilities", {"capabilities": [{"name": "a", "doc": "d" * 70000}]}, mcp=False),
    case("offer-params", "register_capabilities", {"capabilities": [{"name": "a", "params": ["d" * 70000]}]}, mcp=False),
    case("offer-many", "register_capabilities", {"capabilities": [{"name": "a%d" % i} for i in range(5000)]}, mcp=False),
    case("offer-argument", "register_capabilities", {"capabilities": [], "effect": "read"}, mcp=False),
    case("hello-unknown", "hello", {"name": "me"}, mcp=False),
    case("hello-frames", "hello", {"frames": 1}, mcp=False),
    case("within-text", "execute", {**X, "within": "x"}, mcp=False),
]

SEEN, RAN = set(), set()  # the messages that these tests met; the cases that ran


class Wire:
    """Calls over the socket; an answer has the msgid of its request."""

    def __init__(self, engine):
        self.client = engine.client()

    def ask(self, method, args):
        pending = self.client.begin(method, args)
        return {**pending.wait(), "msgid": pending.msgid}

    def call(self, method, **args):
        answer = self.ask(method, args)
        assert answer.get("ok") is not False or answer["error_type"] not in ("validation", "limit", "isolation"), (method, args, answer)
        return answer

    def close(self):
        self.client.close()


class Mcp(Wire):
    """The same through `furca mcp`."""

    def __init__(self, engine):
        self.server = Server("--socket", engine.socket)
        self.server.initialize()

    def ask(self, method, args):
        result = self.server.tool(MCP[method], **args)
        answer = dict(result["structuredContent"])
        assert result["isError"] is (answer.get("ok") is False), result
        if answer.get("suggestion"):
            assert answer["suggestion"] in result["content"][0]["text"]
        return answer

    def close(self):
        assert self.server.close() == 0


def refused(answer):
    return answer.get("ok") is False and answer.get("error_type") in ("validation", "limit", "isolation")


def corrected(peer, method, args):
    """Asks, and applies suggestions until the call is accepted."""
    answer = peer.ask(method, args)
    assert refused(answer), answer
    for _ in range(ROUNDS):
        SEEN.add(answer["error"])
        assert answer["state"] == "unchanged" and isinstance(answer["received"], dict)
        args = suggestions.correct(peer.call, args, answer["suggestion"])
        assert args is not None, "no program can apply this: %r (%s)" % (answer["suggestion"], answer["error"])
        answer = peer.ask(method, args)
        if not refused(answer):
            return args, answer
    raise AssertionError("still refused: %r: %r" % (args, answer))


@pytest.fixture(params=["wire", "mcp"])
def way(request):
    return {"wire": Wire, "mcp": Mcp}[request.param]


def try_case(peer, wire, case):
    for step, arguments in case.before:
        (peer if step in MCP else wire).call(step, **arguments)
    corrected(peer, case.method, case.args)
    RAN.add((type(peer).__name__, case.id))
    wire.call("close_all_sessions")
    for function in wire.call("list_functions")["functions"]:
        wire.call("remove_function", name=function["name"])


def try_cases(peer, engine, cases):
    wire, failed = Wire(engine), []
    for case in cases:
        try:
            try_case(peer, wire, case)
        except AssertionError as e:
            failed.append("%s: %s" % (case.id, e))
            wire.call("close_all_sessions")
    peer.close()
    assert not failed, "\n".join(failed)


def cases_for(way, options):
    return [case for case in CASES if case.options == options and (case.mcp or way is Wire)]


def test_suggestions_do_what_they_say(engine, way):
    try_cases(way(engine), engine, cases_for(way, None))


def test_suggestions_at_the_limit_of_sessions(new_engine, way, tmp_path):
    (tmp_path / "config").write_text(json.dumps(FULL))
    engine = new_engine("--config", str(tmp_path / "config"))
    try_cases(way(engine), engine, cases_for(way, FULL))


SPECS = {
    "text": "this is no toml",
    "toml": "[project]\ndependencies = [1",
    "no-project": "[tool.uv]\n",
    "key": "[project]\nversoin = '1'\n",
    "list": "[project]\ndependencies = 'numpy'\n",
    "requirement": "[project]\ndependencies = ['numpy>>2']\n",
    "python": "[project]\nrequires-python = '>=4'\n",
    "python-form": "[project]\nrequires-python = 'new'\n",
    "group": "[project]\n[tool.furca]\ngroups = ['x']\n",
}


def test_a_specification_that_is_refused_is_shown_the_form(engine, way):
    """Through MCP one, and without building: what is built is test_envs.py's."""
    peer = way(engine)
    for spec in [*SPECS.values()][:1 if way is Mcp else None]:
        args, answer = corrected(peer, "create_env", {"spec": spec, **({"build": False} if way is Mcp else {})})
        assert answer["venv_id"], spec
    peer.close()
    Wire(engine).call("remove_env", venv_id=answer["venv_id"])


def test_operators_suggestions(new_engine, tmp_path):
    """What only who runs the engine can change, changed as the suggestion says; and what needs more than one client."""
    (tmp_path / "off").write_text('{"snapshots": "off"}')
    wire = Wire(new_engine("--config", str(tmp_path / "off")))
    wire.call("execute", **S)
    answer = wire.ask("undo", {"session_name": "s"})
    SEEN.add(answer["error"])
    assert refused(answer) and answer["suggestion"] == "Start the engine with snapshots on."
    (tmp_path / "on").write_text('{"snapshots": "always"}')
    engine = new_engine("--config", str(tmp_path / "on"))
    wire = Wire(engine)
    wire.call("execute", **{**S, "code": "x = 1"})
    assert wire.call("undo", session_name="s")["ok"]

    queue = [wire.client.start("execute", code="import time; time.sleep(2)", language="python", session_name="s")]
    queue += [wire.client.start("execute", **S) for _ in range(300)]
    corrected(wire, "execute", S)
    for call in queue:
        call.wait()


def test_a_session_that_waits_for_its_client(engine):
    wire = Wire(engine)
    answers = []
    wire.client.register({"ask": lambda: answers.append(corrected(wire, "execute", {**S, "state_mode": "stateful"})) or 5}, {"ask": "write"})
    assert wire.call("execute", **{**S, "code": "capabilities.ask()"})["result"] == 5
    assert answers[0][0]["state_mode"] == "read_only"


def test_an_environment_in_use(engine):
    wire = Wire(engine)
    venv = wire.call("create_env", spec=SPEC)["venv_id"]
    wire.call("execute", language="bash", code="true", state_mode="stateful", venv_id=venv)
    corrected(wire, "remove_env", {"venv_id": venv})
    venv = wire.call("create_env", spec=SPEC)["venv_id"]
    assert wire.call("add_function", name="stays", language="bash", source="echo 1", venv_id=venv)["ok"]
    corrected(wire, "remove_env", {"venv_id": venv})
    assert "stays" not in [f["name"] for f in wire.call("list_functions")["functions"]]


def test_a_process_that_cannot_be_cloned(engine, way):
    wire, peer = Wire(engine), way(engine)
    wire.call("execute", **{**S, "code": "import ctypes; libc = ctypes.CDLL(None); timer = ctypes.c_void_p(); libc.timer_create(0, None, ctypes.byref(timer))"})
    args, answer = corrected(peer, "execute", {**S, "state_mode": "read_only"})
    assert args["state_mode"] == "stateful" and answer["ok"]
    wire.call("execute", **{**S, "code": "libc.timer_delete(timer)"})
    peer.close()


def test_memory_that_is_shared_with_others(engine, way):
    wire, peer = Wire(engine), way(engine)
    wire.call("execute", **{**S, "code": "import mmap; shared = mmap.mmap(-1, 257 << 20); shared.write(bytes(257 << 20))"})
    args, answer = corrected(peer, "execute", {**S, "state_mode": "read_only"})
    assert args["isolation"] == {"memory": "allow"} and answer["ok"]
    peer.close()


def test_what_hinders_a_clone_leaves_the_same_way_out():
    """Each sentence of snapshot/ about a process that cannot be cloned, with what the engine puts behind it."""
    with open(os.path.join(TOP, "engine", "read.c"), encoding="utf-8") as f:
        behind = re.search(r'#define IN_THE_SESSION "(.*)"', f.read())[1]
    with open(os.path.join(TOP, "base", "err.def"), encoding="utf-8") as f:
        advices = {re.search(r'ERR\(CLONE, .*, "(.*)"\)', f.read())[1]}
    for path in glob.glob(os.path.join(TOP, "snapshot", "*.c")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        advices |= {match[1] for match in re.finditer(r'furca_fail_suggest\(err, FURCA_E_CLONE, [^"]*?"([^"]*\.)"', text)}
        advices |= {match[1] for match in re.finditer(r'^\t+.*"[^"]*", *\n?\s*"([A-Z][^"]*\.)"\}', text, re.M)}
    assert len(advices) > 15, advices
    for advice in advices:
        args = {**S, "state_mode": "read_only"}
        assert suggestions.correct(None, args, advice + " " + behind) == {**args, "state_mode": "stateful"}, advice


ONLY_THE_HOST = {  # arguments that only the session's own process can judge; no code has run then
    "cwd-missing": {"cwd": "/no/such/place"},
    "cwd-file": {"cwd": "/etc/passwd"},
    "cwd-relative": {"cwd": "no such place"},
    "bash-variable": {"language": "bash", "env_vars": {"it's A": "1", "FINE": "2"}},
    "bash-variable-quotes": {"language": "bash", "env_vars": {"it's \"odd\" \\ now": "1"}},
    "bash-readonly": {"language": "bash", "env_vars": {"UID": "5"}},
    "bash-cwd": {"language": "bash", "cwd": "/no/such/place"},
}


@pytest.mark.parametrize("mode", ["stateful", "stateless", "read_only"])
def test_what_only_the_host_can_judge(engine, way, mode):
    peer = way(engine)
    for language in ("python", "bash"):
        peer.call("execute", language=language, code="true" if language == "bash" else "1", session_name=language, state_mode="stateful")
    for id, wrong in ONLY_THE_HOST.items():
        language = wrong.get("language", "python")
        args = {"language": "python", "code": "ran=1; echo $ran" if language == "bash" else "print(1)", "state_mode": mode, **wrong}
        args.update({} if mode == "stateless" else {"session_name": language})
        answer = peer.ask("execute", args)
        assert refused(answer) and answer["stdout"] == "" and answer["exit_code"] is None and answer["received"], (id, answer)
        args = suggestions.correct(peer.call, args, answer["suggestion"])
        assert args is not None, (id, answer["suggestion"])
        answer = peer.ask("execute", args)
        assert answer["ok"] and answer["stdout"] == "1\n", (id, args, answer)
    peer.close()


def test_what_the_host_refuses_leaves_nothing(engine):
    """Neither a session that was made for it, nor a name, nor the part of it that could be had; what others have stays."""
    wire = Wire(engine)
    keep = {"language": "bash", "state_mode": "stateful", "session_name": "keep"}
    number = wire.call("execute", **keep, code="x=1")["session"]["session_id"]
    wire.call("close_session", language="bash", session_name="keep")
    for id, wrong in ONLY_THE_HOST.items():
        args = {"language": "python", "code": "1", "state_mode": "stateful", **wrong}
        answer = wire.ask("execute", {**args, "session_name": id})
        assert refused(answer) and answer["session"] is None and not answer["session_created"], answer
        assert wire.call("list_sessions")["sessions"] == [], id
        assert refused(wire.ask("execute", {**args, "on_error": "rollback"})) and wire.call("list_sessions")["sessions"] == [], id
    there = wire.call("execute", **keep, code="cd /usr; n=1")["session"]["session_id"]
    assert there == number + 1  # the numbers of those that were refused were never used
    wrong = {"cwd": "/tmp", "env_vars": {"FINE": "2", "UID": "5"}, "code": "true", "language": "bash", "state_mode": "stateful"}
    assert refused(wire.ask("execute", {**wrong, "session_id": there, "session_name": "second"}))
    assert [s["names"] for s in wire.call("list_sessions")["sessions"]] == [["keep"]]
    assert refused(wire.ask("execute", {**wrong, "session_name": "keep"}))
    assert wire.call("execute", **keep, code="pwd; echo $n ${FINE-unset}")["stdout"] == "/usr\n1 unset\n"
    assert [s["calls"] for s in wire.call("list_sessions")["sessions"]] == [2]
    assert wire.call("undo", session_name="keep")["ok"]
    # A call that comes while the first of its session is refused has the session.
    first = wire.client.start("execute", **{**wrong, "session_name": "shared"})
    second = wire.client.start("execute", **{**keep, "session_name": "shared", "code": "echo here"})
    assert refused(first.wait()) and second.wait()["stdout"] == "here\n"


def test_a_name_that_bash_has_no_argument_for(engine):
    wire = Wire(engine)
    wire.call("add_function", name="f", language="bash", source="echo $fine")
    args = {"name": "f", "kwargs": {"a-b": 1, "fine": 2}}
    answer = wire.ask("call_function", args)
    assert refused(answer), answer
    args = suggestions.correct(wire.call, args, answer["suggestion"])
    assert wire.call("call_function", **args)["stdout"] == "2\n"


def test_a_time_that_was_over_before_the_code_began(engine, way):
    peer, wire = way(engine), Wire(engine)
    wire.call("execute", **S)
    first = wire.client.start("execute", code="import time; time.sleep(1.5)", language="python", session_name="s")
    args = {**S, "timeout_s": 0.2}
    answer = peer.ask("execute", args)
    assert answer["error_type"] == "timeout" and answer["state"] == "unchanged" and "did not run" in answer["error"]
    assert peer.ask("execute", suggestions.correct(peer.call, args, answer["suggestion"]))["ok"]
    first.wait()
    peer.close()


def test_calls_of_an_object(engine):
    """With one that lives; of another a program cannot make up a handle."""
    wire, made = Wire(engine), []

    def use(thing):
        handle = thing.data.decode()
        for wrong in ({"args": 5}, {"kwargs": []}, {"arg": []}):
            made.append(corrected(wire, "call_object", {"handle": handle, "name": "twice", **wrong})[1]["value"])
        answer = wire.ask("call_object", {})
        assert refused(answer)
        SEEN.add(answer["error"])
        return len(made)

    wire.client.capabilities["use"] = use
    wire.call("register_capabilities", capabilities=[{"name": "use", "effect": "read", "objects": True}])
    code = "class Thing:\n    def twice(self): return 42\ncapabilities.use(Thing())"
    answer = wire.call("execute", language="python", code=code, state_mode="stateless")
    assert answer["result"] == 3 and made == [42] * 3, (answer['error'], made)
    answer = wire.ask("call_object", {"handle": "o0"})
    assert refused(answer) and answer["suggestion"] == "Get the object again from the code that gave it."
    SEEN.add(answer["error"])


class Attaching(Wire):
    """Sends a channel beside attach_session: each a new one, or what `channel` says."""

    def __init__(self, engine, channel=lambda: socket.socketpair()[1].detach()):
        super().__init__(engine)
        self.channel, self.other = channel, furca.Engine(engine.socket, frames=True, raise_errors=False)

    def ask(self, method, args):
        if method != "attach_session":
            return super().ask(method, args)
        args = {**args, "channel": furca._wire.Descriptor()}
        answer = dict(self.other._start(method, args, descriptor=self.channel())._future.result(20))
        answer.get("received", {}).pop("channel", None)  # an ext, which a client without arrays does not read
        return answer

    def close(self):
        super().close()
        self.other.close()


def test_a_process_that_attaches_itself(engine):
    answer = Wire(engine).ask("attach_session", {"session_name": "agent"})
    assert refused(answer) and "frames=true" in answer["suggestion"]
    SEEN.add(answer["error"])
    peer = Attaching(engine)
    corrected(peer, "attach_session", {"language": "bash"})
    with Waiting(engine):
        corrected(peer, "attach_session", {"session_name": "agent"})
        corrected(peer, "execute", {**X, "session_name": "agent", "on_error": "rollback"})
        answer = peer.ask("undo", {"session_name": "agent"})
        assert refused(answer)
        SEEN.add(answer["error"])
        peer.call("execute", **X, session_id=0, state_mode="stateful")
        corrected(peer, "attach_session", {})
    for channel in (lambda: -1, lambda: os.open("/dev/null", os.O_RDONLY)):  # the client is to be mended then
        wrong = Attaching(engine, channel)
        answer = wrong.ask("attach_session", {"session_name": "other"})
        assert refused(answer) and "socketpair" in answer["suggestion"]
        SEEN.add(answer["error"])
        wrong.close()
    peer.close()


@pytest.mark.skipif(not os.access(NO_SYSCALL, os.X_OK), reason="tests/no_syscall is not built (make check builds it)")
@pytest.mark.parametrize("waive", [{}, {"require": ["disk", "processes"]}])
def test_a_barrier_that_cannot_be_had(waive):
    engine = Engine(wrap=[NO_SYSCALL, "mount,landlock_create_ruleset:EPERM"])
    try:
        wire = Wire(engine)
        wire.call("execute", **S)
        args, answer = corrected(wire, "execute", {**S, "state_mode": "read_only", **({"isolation": waive} if waive else {})})
        assert answer["ok"] and answer["isolation"]["memory"] != "none" and answer["isolation"]["disk"] == "none", answer
    finally:
        assert engine.stop() == 0, engine.log()[-2000:]
        engine.clean()


# ---------------------------------------------------------------------------------------------------- what the sources can write


def test_every_refusal_was_met():
    if len(RAN) < len(CASES) + len([case for case in CASES if case.mcp]):
        pytest.skip("not all cases of this file were run")
    missing, messages = [], refusals_of_the_sources()
    gone = [known for known in NOT_HERE if not any(message.startswith(known) for message in messages)]
    assert not gone, "the sources write these no longer:\n" + "\n".join(gone)
    for message in sorted(messages):
        if any(message.startswith(known) for known in NOT_HERE):
            continue
        if not any(pattern_of(message).match(seen) for seen in SEEN):
            missing.append(message)
    assert not missing, "no test makes these refusals happen:\n" + "\n".join(missing)
