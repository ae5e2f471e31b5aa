"""The wire: what a client may send, what it gets, and what a hostile one cannot do to others."""
import os
import random
import socket
import stat
import subprocess
import threading
import time

import pytest

from furcalib import Client, Handle, ProtocolError, eventually, furca_program, pack, unpacker


class Raw:
    """A connection that sends bytes as they are."""

    def __init__(self, engine):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(engine.socket)
        self.unpack = unpacker()

    def send(self, data):
        self.sock.sendall(data)

    def message(self):
        """The next message, or None at the end."""
        while True:
            for message in self.unpack:
                return message
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.unpack.feed(data)

    def close(self):
        self.sock.close()


@pytest.fixture
def raw(engine):
    connection = Raw(engine)
    yield connection
    connection.close()


def test_the_socket_is_ours_alone(engine):
    assert stat.S_IMODE(os.stat(engine.socket).st_mode) == 0o600


def test_hello_may_be_skipped_and_tells_limits(client):
    answer = client.call("hello", client="test")
    assert answer["name"] == "furca" and answer["protocol"] == 1
    assert isinstance(answer["version"], str) and answer["limits"] and answer["guarantees"]


@pytest.mark.parametrize("method, args, unknown, nearest", [
    ("hello", {"cilent": 1}, "cilent", "client"),
    ("register_capabilities", {"capabilites": []}, "capabilites", "capabilities"),
    ("register_capabilities", {"capabilities": [{"name": "a", "efect": "read"}]}, "efect", "effect"),
    ("execute", {"code": "1", "language": "python", "state_mod": "stateful"}, "state_mod", "state_mode"),
])
def test_an_unknown_argument_is_named_with_the_nearest(client, method, args, unknown, nearest):
    answer = client.call(method, **args)
    assert answer["ok"] is False and answer["error_type"] == "validation" and answer["state"] == "unchanged"
    assert unknown in answer["error"]
    assert nearest in answer["error"] + answer["suggestion"]
    assert answer["received"] == args


@pytest.mark.parametrize("params", [[], [{}], None])
def test_params_of_a_method_without_arguments(client, params):
    pending = client.start("stats")
    pending.wait()
    with client._lock:
        other = type(pending)(client, next(client._ids))
        client._pending[other.msgid] = other
    client.send_message([0, other.msgid, "stats", params])
    assert "idle_pids" in other.wait()


@pytest.mark.parametrize("message, code", [
    ([0, 5, "exekute", [{}]], "unknown_method"),
    ([0, 5, "stats", ["x"]], "params"),
    ([0, 5, "stats", [{}, {}]], "params"),
    ([0, 5, "stats", {}], "params"),
])
def test_a_wrong_request_costs_only_itself(raw, message, code):
    raw.send(pack(message))
    kind, msgid, error, result = raw.message()
    assert (kind, msgid, result) == (1, 5, None) and error["code"] == code and isinstance(error["message"], str)
    raw.send(pack([0, 6, "stats", []]))
    assert raw.message()[2] is None


def test_an_unknown_method_names_the_nearest(client):
    with pytest.raises(ProtocolError) as e:
        client.call("exekute")
    assert "'execute'" in e.value.error["message"]


@pytest.mark.parametrize("data", [
    b"\xc1", b"\x01", b"\x90", pack([3, 1, "x", []]), pack([0, -1, "stats", []]), pack([0, "1", "stats", []]), pack([0, 1, 2, []]),
    pack({}), b"\x94\x00\x05\xa1a\xdb\xff\xff\xff\xff", b"\x94\x00\x05\xa1a\xdd\xff\xff\xff\xff", b"\x94\x00\x05\xa1a\xdf\xff\xff\xff\xff",
    b"\x91" * 4096, b"GET / HTTP/1.0\r\n\r\n",
])
def test_malformed_bytes_end_that_connection_alone(engine, client, data):
    before = engine.rss_kb()
    raw = Raw(engine)
    raw.send(data)
    answer = raw.message()
    if answer is not None:
        assert answer[0] == 1 and answer[2]["code"] in ("malformed", "limit")
        assert raw.message() is None
    raw.close()
    assert engine.rss_kb() - before < 4096
    assert "idle_pids" in client.call("stats")


def test_a_message_may_come_byte_by_byte(raw):
    for byte in pack([0, 9, "hello", [{}]]):
        raw.send(bytes([byte]))
    assert raw.message()[1] == 9


def test_a_half_message_holds_nobody_up(engine, client):
    raw = Raw(engine)
    raw.send(pack([0, 9, "hello", [{}]])[:-1])
    assert "idle_pids" in client.call("stats", timeout=5)
    raw.close()
    assert "idle_pids" in client.call("stats", timeout=5)


def test_random_bytes(engine, client):
    """Seeded: whatever comes, the engine lives and answers others."""
    seed = 20260101
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        raw = Raw(engine)
        data = bytearray(pack([0, 1, "execute", [{"code": "x" * rng.randrange(50), "language": "python", "state_mode": "stateless"}]]))
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            raw.send(bytes(data))
        except OSError:
            pass
        raw.close()
    assert "idle_pids" in client.call("stats")


def test_a_msgid_in_flight_cannot_be_used_again(engine):
    raw = Raw(engine)
    request = pack([0, 1, "execute", [{"code": "import time; time.sleep(20)", "language": "python", "state_mode": "stateless"}]])
    raw.send(request)
    raw.send(request)
    answer = raw.message()
    assert answer[1] == 1 and answer[2]["code"] == "malformed"
    assert raw.message() is None
    raw.close()


def test_too_many_in_flight_are_refused(client):
    held = client.start("execute", code="import time; time.sleep(30)", language="python", session_name="flood")
    refused = 0
    many = [client.start("execute", code="1", language="python", session_name="flood") for _ in range(300)]
    time.sleep(0.5)
    for pending in many:
        if pending.done():
            answer = pending.wait()
            refused += answer["error_type"] == "limit"
            assert answer["suggestion"]
    assert refused >= 40  # at most 256 wait for one session
    held.cancel()
    held.wait()
    for pending in many:
        pending.wait()


def test_answers_come_in_any_order(client):
    slow = client.start("execute", code="import time; time.sleep(1)", language="python", session_name="slow")
    fast = client.start("execute", code="1", language="python", session_name="fast")
    assert fast.wait()["ok"] and not slow.done()
    assert slow.wait()["ok"]


def test_cancel_of_another_clients_call_finds_nothing(engine, client):
    slow = client.start("execute", code="import time; time.sleep(3)", language="python", session_name="mine")
    time.sleep(0.2)
    other = engine.client()
    assert other.call("cancel", msgid=slow.msgid)["cancelled"] is False
    assert slow.cancel()["cancelled"] is True
    assert slow.wait()["error_type"] == "interrupted"


def test_a_client_that_goes_ends_its_calls(engine, client):
    leaver = Client(engine.socket)
    leaver.start("execute", code="import time; time.sleep(60)", language="python", session_name="left")
    time.sleep(0.5)
    leaver.close()

    def idle():
        rows = [s for s in client.call("list_sessions")["sessions"] if s["session_name"] == "left"]
        return rows and not rows[0]["busy"]

    assert eventually(idle, 8)
    assert client.python("1", session_name="left", timeout=10)["ok"]


def test_a_client_that_does_not_read_harms_nobody(engine, client):
    stuck = Raw(engine)
    for i in range(40):
        stuck.send(pack([0, i, "execute", [{"code": "print('x' * 900000)", "language": "python", "session_name": "stuck"}]]))
    for _ in range(5):
        assert client.python("1", session_name="other", timeout=20)["ok"]
    for _ in range(40):
        assert stuck.message()[2] is None
    stuck.close()


def test_large_code_and_output(client):
    answer = client.python("x = %r\nprint(len(x))" % ("y" * 8_000_000), state_mode="stateless")
    assert answer["stdout"] == "8000000\n"


def test_clients_are_bounded(engine, client):
    crowd = []
    try:
        for _ in range(300):
            s = socket.socket(socket.AF_UNIX)
            s.connect(engine.socket)
            crowd.append(s)
        time.sleep(1)
        refused = 0
        for s in crowd:
            s.setblocking(False)
            try:
                refused += s.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                refused += 1
        assert refused >= 40
        assert "idle_pids" in client.call("stats")
    finally:
        for s in crowd:
            s.close()


# ----------------------------------------------------------------------------------------------------------- capabilities

def test_a_capability_is_called_and_its_errors_keep_their_type(engine):
    def boom():
        raise KeyError("nothing there")

    client = engine.client(capabilities={"contacts.lookup": lambda name, limit=1: [name] * limit, "contacts.boom": boom})
    answer = client.python("capabilities.contacts.lookup('Ada', limit=3)", state_mode="stateless")
    assert answer["result"] == ["Ada"] * 3, answer
    answer = client.python("try:\n    capabilities.contacts.boom()\nexcept KeyError as e:\n    print('KeyError', e)", state_mode="stateless")
    assert answer["stdout"].startswith("KeyError"), answer
    assert [r["name"] for r in client.capability_requests] == ["contacts.lookup", "contacts.boom"]


def test_the_request_names_the_execute_or_nothing(engine):
    owner = engine.client(capabilities={"who": lambda: 1})
    pending = owner.start("execute", code="capabilities.who()", language="python", state_mode="stateless")
    assert pending.wait()["result"] == 1
    assert owner.capability_requests[-1]["execute_msgid"] == pending.msgid
    other = engine.client()
    assert other.python("capabilities.who()", state_mode="stateless")["result"] == 1
    assert owner.capability_requests[-1]["execute_msgid"] is None
    ids = [r["call_id"] for r in owner.capability_requests]
    assert len(set(ids)) == len(ids)


def test_a_write_is_refused_in_a_read_only_call_and_does_not_reach_the_client(engine):
    client = engine.client(capabilities={"mail.send": lambda: 1, "mail.count": lambda: 2}, effects={"mail.send": "write"})
    client.python("x = 1", session_name="ro")
    answer = client.python("try:\n    capabilities.mail.send()\nexcept PermissionError as e:\n    print(e)\nprint(capabilities.mail.count())",
                           state_mode="read_only", session_name="ro")
    assert "mail.send" in answer["stdout"] and answer["stdout"].endswith("2\n"), answer
    assert [r["name"] for r in client.capability_requests] == ["mail.count"]


def test_an_unknown_capability_names_the_nearest(engine):
    client = engine.client(capabilities={"contacts.lookup": lambda: 1})
    answer = client.python("capabilities.contacts.lokup()", state_mode="stateless")
    assert answer["error_type"] == "exception" and "contacts.lookup" in answer["error"] + (answer["suggestion"] or ""), answer


def test_a_client_that_disconnects_fails_its_open_calls_at_once(engine, client):
    gone = threading.Event()
    owner = Client(engine.socket, capabilities={"slow": lambda: gone.wait(30)})
    began = time.monotonic()
    pending = client.start("execute", code="try:\n    capabilities.slow()\nexcept Exception as e:\n    print(type(e).__name__, e)",
                           language="python", state_mode="stateless")
    assert eventually(lambda: owner.capability_requests, 10)
    owner.close()
    answer = pending.wait(10)
    gone.set()
    assert answer["stdout"].startswith("ConnectionError"), answer
    assert time.monotonic() - began < 15
    answer = client.python("capabilities.slow()", state_mode="stateless")
    assert answer["error_type"] == "exception", answer


def test_forged_and_repeated_answers_are_dropped(engine):
    """A client answers calls that are another's, or answers twice: nobody is harmed."""
    owner = engine.client(capabilities={"echo": lambda x: x})
    forger = Raw(engine)
    code = "print([capabilities.echo(i) == i for i in range(200)].count(True))"
    pending = owner.start("execute", code=code, language="python", state_mode="stateless")
    for i in range(400):
        forger.send(pack([1, i, None, "forged"]))
    assert pending.wait()["stdout"] == "200\n"
    forger.close()


def test_a_capability_may_itself_read_the_session_that_calls_it(engine):
    client = engine.client()
    client.register({"peek": lambda: client.python("x", state_mode="read_only", session_name="outer")["result"]})
    client.python("x = 5", session_name="outer")
    answer = client.python("x = 6\ncapabilities.peek()", session_name="outer")
    assert answer["result"] == 5, answer  # its last commit


def test_a_stateful_call_that_would_wait_for_itself_is_refused(engine):
    client = engine.client()
    client.register({"again": lambda: client.python("1", session_name="outer")})
    began = time.monotonic()
    answer = client.python("capabilities.again()", session_name="outer")
    inner = answer["result"]
    assert inner["error_type"] == "validation" and "read_only" in inner["suggestion"] and inner["state"] == "unchanged", answer
    assert time.monotonic() - began < 10
    # One that merely queues behind a call with capabilities is not.
    client.register({"pause": lambda s: time.sleep(s)})
    first = client.start("execute", code="for _ in range(20): capabilities.pause(0.1)", language="python", session_name="outer")
    time.sleep(0.3)
    assert client.python("2", session_name="outer")["result"] == 2
    assert first.wait()["ok"]


def test_thousands_of_calls_from_many_sessions(engine):
    client = engine.client(capabilities={"echo": lambda x: x})
    code = ("from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(16) as pool:\n"
            "    print(sum(a == b for a, b in zip(pool.map(capabilities.echo, range(300)), range(300))))")
    pending = [client.start("execute", code=code, language="python", session_name="s%d" % i, timeout_s=100) for i in range(8)]
    for p in pending:
        assert p.wait(100)["stdout"] == "300\n"


class Keeper(Client):
    """A client that keeps objects and gives handles of them."""

    def __init__(self, path):
        self.kept = {"book": ["a", "b"]}
        super().__init__(path)

    def _serve(self, msgid, method, params):
        params = params[0]
        self.capability_requests.append(params)
        if "handle" in params:
            kept = self.kept[params["handle"]]
            value = getattr(kept, params["name"])(*params["args"])
        elif params["name"] == "size":
            value = len(self.kept[params["args"][0].data.decode()])
        else:
            value = Handle(b"book")
        self.send_message([1, msgid, None, value])


def test_a_handle_is_an_object_that_stays_with_the_client(engine):
    keeper = Keeper(engine.socket)
    keeper.call("register_capabilities", capabilities=[{"name": "open", "effect": "read"}, {"name": "size", "effect": "read"}])
    answer = keeper.python("book = capabilities.open()\nbook.append('c')\n(book.index('c'), capabilities.size(book))", session_name="h")
    assert answer["result"] == [2, 3] or answer["result_text"] == "(2, 3)", answer
    assert keeper.kept["book"] == ["a", "b", "c"]
    assert [r["name"] for r in keeper.capability_requests] == ["open", "append", "index", "size"]
    assert keeper.python("book.index('a')", state_mode="read_only", session_name="h")["result"] == 0
    keeper.python("import gc\ndel book\ngc.collect()", session_name="h")
    keeper.python("1", session_name="h")
    assert eventually(lambda: ("release", {"handle": "book"}) in keeper.notifications, 5), keeper.notifications
    keeper.python("book = capabilities.open()", session_name="h")
    keeper.close()
    other = engine.client()
    answer = other.python("try:\n    book.index('a')\nexcept ReferenceError as e:\n    print('gone')", session_name="h")
    assert answer["stdout"] == "gone\n", answer


# -------------------------------------------------------------------------------------------------------- starting and ending

def test_a_second_engine_on_the_same_socket_is_refused(engine):
    p = subprocess.run([furca_program(), "serve", "--socket", engine.socket, "--state-dir", engine.dir + "/other"], capture_output=True,
                       timeout=20)
    assert p.returncode == 1 and b"already" in p.stderr
    assert "idle_pids" in engine.client().call("stats")


def test_a_crashed_engines_socket_is_replaced(new_engine):
    first = new_engine()
    path = first.socket
    first.process.kill()
    first.process.wait()
    assert os.path.exists(path)
    p = subprocess.Popen([furca_program(), "serve", "--socket", path, "--state-dir", first.state_dir], stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline().decode().strip() == "ready " + path
        with Client(path) as client:
            assert client.python("1", state_mode="stateless")["ok"]
    finally:
        p.terminate()
        assert p.wait(20) == 0
        p.stdout.close()
    assert not os.path.exists(path) and not os.path.exists(path + ".lock")


def test_a_configuration_with_an_unknown_key_is_refused(tmp_path):
    config = tmp_path / "c.json"
    config.write_text('{"max_sesions": 3}')
    p = subprocess.run([furca_program(), "serve", "--config", str(config)], capture_output=True, timeout=20)
    assert p.returncode == 2 and b"max_sessions" in p.stderr


def test_a_configuration_is_obeyed(new_engine, tmp_path):
    config = tmp_path / "c.json"
    config.write_text('{"max_sessions": 2, "timeout_s": 7.5, "grace_s": 1}')
    client = new_engine("--config", str(config)).client()
    limits = client.call("hello")["limits"]
    assert limits["timeout_s"] == 7.5 and limits["grace_s"] == 1, limits
    assert client.python("1", session_name="a")["ok"] and client.python("1", session_name="b")["ok"]
    assert client.python("1", session_name="c")["error_type"] == "validation"


def test_linger_ends_an_engine_without_clients(tmp_path):
    p = subprocess.Popen([furca_program(), "serve", "--socket", str(tmp_path / "s"), "--state-dir", str(tmp_path / "state"), "--linger", "0.5"],
                         stdout=subprocess.PIPE)
    assert p.stdout.readline().startswith(b"ready")
    with Client(str(tmp_path / "s")) as client:
        time.sleep(1)
        assert client.python("1", state_mode="stateless")["ok"]
    assert p.wait(20) == 0
    p.stdout.close()
