"""The mutation matrix for bash: each attempt runs once in a subshell of the session, where it must change something (so that it is
real), and once in a read-only call, where it must not. The attempts stand in tests/matrix/bash.toml."""
import os
import pathlib
import shutil
import socket
import threading
import tomllib
import uuid

import pytest

with (pathlib.Path(__file__).resolve().parents[1] / "matrix" / "bash.toml").open("rb") as file:
    ROWS = tomllib.load(file)["attempt"]
ATTEMPTS = [row for row in ROWS if not row.get("control")]
CONTROLS = [row for row in ROWS if row.get("control")]


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    """A TCP port and a unix socket, and how many have connected to them."""
    hits = []
    path = str(tmp_path_factory.mktemp("l") / "s")
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen()

    def serve(s):
        while True:
            try:
                s.accept()
            except OSError:
                return
            hits.append(1)

    for s in (tcp, unix):
        threading.Thread(target=serve, args=(s,), daemon=True).start()
    yield tcp.getsockname()[1], path, hits
    tcp.close()
    unix.close()


def attempt(client, where, listener, row, read_only):
    """Whether something outside changed."""
    port, path, hits = listener
    setup, attack, test = row.get("setup", ""), row["attack"], row["changed"]
    os.mkdir(where)
    with open(os.path.join(where, "f"), "w") as f:
        f.write("original\n")
    name = uuid.uuid4().hex[:12]
    answer = client.bash("cd %s; PORT=%d; SOCK=%s; affinity=$(taskset -pc $$ 2>/dev/null)\n%s" % (where, port, path, setup),
                         state_mode="stateful", session_name=name)
    assert answer["ok"], answer["error"]
    before = len(hits)
    if read_only:
        answer = client.bash(attack, state_mode="read_only", session_name=name, timeout_s=10)
    else:
        answer = client.bash("(\n%s\n)" % attack, state_mode="stateful", session_name=name, timeout_s=10)
    told = answer["stderr"] or answer["error"] or ""
    if test == "HIT":
        threading.Event().wait(0.2)
        changed = len(hits) > before
    else:
        answer = client.bash("if %s; then echo changed; fi" % test, state_mode="stateful", session_name=name)
        changed = not answer["ok"] or "changed" in answer["stdout"]
    client.bash("kill $(jobs -p) 2>/dev/null; :", state_mode="stateful", session_name=name)
    client.call("close_session", session_name=name, language="bash")
    return changed, told


@pytest.mark.parametrize("row", ATTEMPTS, ids=[row["name"] for row in ATTEMPTS])
def test_attempt(client, tmp_path, listener, row):
    for need in row.get("needs", "").split():
        if not shutil.which(need):
            pytest.skip("needs " + need)
    changed, told = attempt(client, str(tmp_path / "plain"), listener, row, False)
    assert changed, "not real: a subshell does not get it through: " + told
    changed, told = attempt(client, str(tmp_path / "copy"), listener, row, True)
    assert not changed, "a read-only call let it through: " + told


@pytest.mark.parametrize("row", CONTROLS, ids=[row["name"] for row in CONTROLS])
def test_control(client, tmp_path, listener, row):
    changed, told = attempt(client, str(tmp_path / "copy"), listener, row, True)
    assert not changed, told
