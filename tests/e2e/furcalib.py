"""A small client for the tests: one connection, msgpack-rpc both ways, and an engine in a private directory.

It is written against doc/protocol.md, not against the client package, so that a mistake in one is seen by the other.
Needs python3-msgpack; Linux only.
"""
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import msgpack

MARK = "FURCA_TEST_MARK"  # an environment variable that finds every process an engine of ours started, orphans too


class ProtocolError(Exception):
    """The `error` of a response: the protocol's own, never a failed execution."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error
        self.code = error.get("code") if isinstance(error, dict) else None


class Closed(Exception):
    """The engine closed the connection."""


class Handle:
    """Ext 2: an object that stays in its session."""

    def __init__(self, data):
        self.data = data

    def __repr__(self):
        return "Handle(%r)" % (self.data,)


def _pack_other(value):
    if isinstance(value, int):
        return msgpack.ExtType(1, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
    if isinstance(value, Handle):
        return msgpack.ExtType(2, value.data)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError("no form on the wire: " + type(value).__name__)


def _unpack_ext(code, data):
    if code == 1:
        return int.from_bytes(data, "big", signed=True)
    if code == 2:
        return Handle(data)
    return msgpack.ExtType(code, data)


def pack(value):
    return msgpack.packb(value, default=_pack_other, use_bin_type=True)


def unpacker():
    return msgpack.Unpacker(raw=False, strict_map_key=False, ext_hook=_unpack_ext, max_buffer_size=1 << 30)


class Pending:
    """A request under way."""

    def __init__(self, client, msgid):
        self.client, self.msgid = client, msgid
        self._done = threading.Event()
        self._answer = None

    def done(self):
        return self._done.is_set()

    def wait(self, timeout=60):
        """The result; ProtocolError, Closed or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError("request %d was not answered within %g s" % (self.msgid, timeout))
        error, result = self._answer
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise ProtocolError(error)
        return result

    def cancel(self):
        return self.client.call("cancel", msgid=self.msgid)

    def _finish(self, error, result):
        self._answer = (error, result)
        self._done.set()


class Client:
    """One connection. Threads may share it. `capabilities` maps names to functions; `effects` names to "read" or "write"."""

    def __init__(self, path, capabilities=None, effects=None, connect_timeout=10):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(connect_timeout)
        self.sock.connect(path)
        self.sock.settimeout(None)
        self.notifications = []  # (method, params) in the order they came
        self.capability_requests = []  # the params of each
        self.capabilities = {}
        self._ids = itertools.count(1)
        self._pending = {}
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._closed = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if capabilities:
            self.register(capabilities, effects)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._reader.join(5)
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def send_message(self, message):
        data = pack(message)
        with self._write_lock:
            self.sock.sendall(data)

    def start(self, method, **args):
        """Sends a request and returns a Pending; None arguments are sent (null and omitted are the same)."""
        return self.begin(method, args)

    def begin(self, method, args):
        """The same with the arguments as a map, whatever its keys are."""
        with self._lock:
            if self._closed:
                raise self._closed
            pending = Pending(self, next(self._ids))
            self._pending[pending.msgid] = pending
        self.send_message([0, pending.msgid, method, [args]])
        return pending

    def call(self, method, timeout=60, **args):
        return self.start(method, **args).wait(timeout)

    def execute(self, code, language="python", timeout=60, **args):
        return self.call("execute", timeout, code=code, language=language, **args)

    def python(self, code, **args):
        return self.execute(code, "python", **args)

    def bash(self, code, **args):
        return self.execute(code, "bash", **args)

    def register(self, capabilities, effects=None):
        self.capabilities.update(capabilities)
        offered = [{"name": name, "effect": (effects or {}).get(name, "read")} for name in capabilities]
        return self.call("register_capabilities", capabilities=offered)

    def streamed(self, msgid, stream="stdout"):
        """What `output` notifications brought for an execute so far."""
        return b"".join(p["data"].encode() if isinstance(p["data"], str) else p["data"]
                        for m, p in list(self.notifications)
                        if m == "output" and p["execute_msgid"] == msgid and p["stream"] == stream)

    def _read(self):
        unpack = unpacker()
        reason = Closed("the engine closed the connection")
        try:
            while True:
                data = self.sock.recv(1 << 18)
                if not data:
                    break
                unpack.feed(data)
                for message in unpack:
                    self._take(message)
        except Exception as e:  # malformed messages too: whoever waits must see why
            reason = Closed("the connection failed: %r" % (e,))
        with self._lock:
            self._closed = reason
            left, self._pending = list(self._pending.values()), {}
        for pending in left:
            pending._finish(reason, None)

    def _take(self, message):
        kind = message[0]
        if kind == 1:
            with self._lock:
                pending = self._pending.pop(message[1], None)
            if pending is None:
                raise AssertionError("an answer to a request that is not under way: %r" % (message[:2],))
            pending._finish(message[2], message[3])
        elif kind == 2:
            params = message[2]
            self.notifications.append((message[1], params[0] if isinstance(params, list) else params))
        elif kind == 0:
            threading.Thread(target=self._serve, args=tuple(message[1:4]), daemon=True).start()
        else:
            raise AssertionError("not a message of msgpack-rpc: %r" % (message,))

    def _serve(self, msgid, method, params):
        params = params[0] if isinstance(params, list) else params
        self.capability_requests.append(params)
        try:
            if method != "capability":
                raise LookupError("unknown method " + method)
            value = self.capabilities[params["name"]](*params["args"], **params["kwargs"])
            answer = [1, msgid, None, value]
        except Exception as e:
            answer = [1, msgid, {"type": type(e).__name__, "message": str(e)}, None]
        try:
            self.send_message(answer)
        except OSError:
            pass
        except TypeError as e:
            self.send_message([1, msgid, {"type": "TypeError", "message": str(e)}, None])


def furca_program():
    """The program under test: $FURCA, else build/furca or furca in the tree."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in (os.environ.get("FURCA"), os.path.join(top, "build", "furca"), os.path.join(top, "furca")):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    return None


class Engine:
    """`furca serve` in a directory of its own."""

    def __init__(self, *options, env=None, program=None, wait=20, wrap=()):
        self.dir = tempfile.mkdtemp(prefix="furca-test-")
        self.socket = os.path.join(self.dir, "s")
        self.state_dir = os.path.join(self.dir, "state")
        self.workdir = os.path.join(self.dir, "work")
        self.log_path = os.path.join(self.dir, "log")
        self.mark = uuid.uuid4().hex
        os.mkdir(self.workdir)
        environ = dict(os.environ, **(env or {}))
        environ[MARK] = self.mark
        command = [*wrap, program or furca_program(), "serve", "--socket", self.socket, "--state-dir", self.state_dir, *options]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            cwd=self.workdir, env=environ)
        self._wait_ready(wait)
        self.pid = self.process.pid
        self._clients = []

    def _wait_ready(self, seconds):
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        line = self.process.stdout.readline().decode()
        timer.cancel()
        if line.strip() != "ready " + self.socket:
            self.process.kill()
            self.process.wait()
            log = self.log()
            self.clean()
            raise RuntimeError("the engine did not get ready: %r\n%s" % (line, log))

    def client(self, **options):
        client = Client(self.socket, **options)
        self._clients.append(client)
        return client

    def close_clients(self):
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def descriptors(self):
        """What the engine has open: [(number, target)]."""
        base = "/proc/%d/fd" % self.pid
        found = []
        for n in os.listdir(base):
            try:
                found.append((int(n), os.readlink(os.path.join(base, n))))
            except FileNotFoundError:
                pass
        return sorted(found)

    def processes(self):
        """Everything that the engine started and that lives, by pid: {pid: command line}. Zombies count."""
        return processes(self.pid, self.mark)

    def rss_kb(self):
        with open("/proc/%d/status" % self.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def stop(self, sig=signal.SIGTERM, timeout=20):
        """Ends the engine; returns its exit status."""
        self.close_clients()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self.process.stdout.close()
        return status

    def clean(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def processes(engine_pid, mark):
    """Descendants of `engine_pid`, and whatever carries the mark in its environment, without the engine itself."""
    needle = ("%s=%s" % (MARK, mark)).encode()
    parents, found = {}, set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            with open("/proc/%d/stat" % pid, "rb") as f:
                parents[pid] = int(f.read().rsplit(b")", 1)[1].split()[1])
            with open("/proc/%d/environ" % pid, "rb") as f:
                if needle in f.read():
                    found.add(pid)
        except (OSError, IndexError):
            continue
    for pid in parents:
        at = pid
        while at in parents and at != engine_pid:
            at = parents[at]
        if at == engine_pid:
            found.add(pid)
    found.discard(engine_pid)
    return {pid: _command(pid) for pid in found}


def _command(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            text = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        with open("/proc/%d/stat" % pid) as f:
            state = f.read().rsplit(")", 1)[1].split()[0]
        return "%s [%s]" % (text, state)
    except OSError:
        return "(gone)"


def eventually(check, timeout=5, step=0.02):
    """Calls `check` until it returns something true, or the time is up; returns the last value."""
    end = time.monotonic() + timeout
    while True:
        value = check()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)
