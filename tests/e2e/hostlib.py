"""Drives one host (furca-python, or bash with furca-bash.so) over its own channels, as the engine does, without an engine.

Frames are those of bridge/wire/host.h and lane.h; their numbers are read from bridge/wire/messages.def.
"""
import array
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import msgpack

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INTERRUPT = 58
SESSION, STATELESS, COPY, SNAPSHOT, BRANCH = 1, 2, 3, 4, 5

with open(os.path.join(ROOT, "bridge/wire/messages.def")) as f:
    NUMBER = {m[1]: int(m[2]) for m in re.finditer(r"^(?:HOST|LANE|INIT)\((\w+), (\d+),", f.read(), re.M)}
NAME = {number: name for name, number in NUMBER.items()}


def libexec():
    """Where host programs lie: $FURCA_LIBEXEC, else the build folder beside the sources."""
    return os.environ.get("FURCA_LIBEXEC") or os.path.join(ROOT, "build")


class Lost(Exception):
    """The host ended or closed its channel."""


class Inline:
    """What a capability gives for a stored function whose place is the caller's own process."""

    def __init__(self, source):
        self.source = source


class Channel:
    """Frames on a stream socket."""

    def __init__(self, sock):
        self.sock = sock
        self.buf = b""
        self.fds = []

    def fileno(self):
        return self.sock.fileno()

    def send(self, name, call, body, fds=()):
        payload = msgpack.packb([NUMBER[name], call, body], use_bin_type=True, unicode_errors="surrogateescape")
        data = struct.pack("<IBBH", len(payload), len(fds), 1, 0) + payload
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([data], rights)
        if sent < len(data):
            self.sock.sendall(data[sent:])

    def _more(self):
        try:
            data, rights, _, _ = self.sock.recvmsg(1 << 20, socket.CMSG_SPACE(8 * 4), socket.MSG_CMSG_CLOEXEC)
        except (ConnectionResetError, BrokenPipeError):
            data, rights = b"", []
        for level, kind, value in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                got = array.array("i")
                got.frombytes(value[: len(value) - len(value) % 4])
                self.fds += got
        if not data:
            raise Lost("end of file")
        self.buf += data

    def whole(self):
        return len(self.buf) >= 8 and len(self.buf) >= 8 + struct.unpack_from("<I", self.buf)[0]

    def recv(self, timeout=10):
        """(name, call, body, fds) of the next frame."""
        end = time.monotonic() + timeout
        while not self.whole():
            if not select.select([self.sock], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("no frame within %g s" % timeout)
            self._more()
        n, n_fds, version, _ = struct.unpack_from("<IBBH", self.buf)
        assert version == 1
        number, call, body = msgpack.unpackb(self.buf[8 : 8 + n], raw=False, strict_map_key=False, unicode_errors="surrogateescape")
        self.buf = self.buf[8 + n :]
        fds, self.fds = self.fds[:n_fds], self.fds[n_fds:]
        return NAME[number], call, body, fds

    def close(self):
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


# What DONE leaves out where there is nothing to say.
OPTIONAL = {**dict.fromkeys(("error", "suggestion", "raised", "unsent", "result", "result_text", "display", "changes")), "result_text_cut": 0}


class Result:
    """How a call ended and what it wrote. `how` is "lost" where the host died."""

    def __init__(self, out, err, body, seconds):
        self.out, self.err, self.seconds = out, err, seconds
        self.body = {**OPTIONAL, **body} if body else body
        self.how = body["how"] if body else "lost"
        self.status = body["exit_code"] if body else None

    def __repr__(self):
        def short(b):
            return "%r%s" % (b[:80], "... %d" % len(b) if len(b) > 80 else "")

        return "<%s status=%s out=%s err=%s error=%r %.2fs>" % (
            self.how, self.status, short(self.out), short(self.err), (self.body or {}).get("error"), self.seconds)


# For code that may do anything: namespaces of its own, nothing writable but an empty /tmp.
CAGE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "sh", "-ec", """
mount --make-rprivate /
[ -z "$1" ] || exec 9<"$1"
mount -t tmpfs -o size=256m,mode=1777 furca-test /tmp
[ -z "$1" ] || { mkdir /tmp/kept; mount --bind /proc/self/fd/9 /tmp/kept; exec 9<&-; }
while read -r _ _ _ _ place options _; do
	case $place in /tmp|/tmp/kept) continue;; esac
	mount -o remount,bind,ro "$(printf "$place")" || true
done </proc/self/mountinfo 2>/dev/null
touch /etc/furca-test 2>/dev/null && exit 1
cd /tmp
shift
exec "$@"
""", "cage")


def cage(kept=""):
    """CAGE, with the directory `kept` in it as /tmp/kept."""
    return (*CAGE, kept)


def caged():
    """Whether CAGE works here."""
    return subprocess.run([*cage(), "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def surface_init():
    """The program that is a surface init and no more; only the build folder has it."""
    return os.path.join(libexec(), "tests", "surface_init")


class Surface:
    """A surface init: the parent of hosts, and the maker of cells. Needs tests/surface_init of the build folder."""

    def __init__(self, wrap=(), program=None):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([*wrap, program or surface_init()], pass_fds=(), close_fds=False, stdin=subprocess.DEVNULL,
                                        preexec_fn=lambda: (os.dup2(theirs.fileno(), 3), os.closerange(4, 1024)))
        theirs.close()
        self.link = ours
        _, rights, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        fds.frombytes(rights[0][2])
        sock = socket.socket(fileno=fds[0])
        sock.setblocking(True)
        self.control = Channel(sock)
        self.calls = 0
        self.exited = {}  # pid (as the init sees it): wait status

    def next(self, timeout=10):
        got = self.control.recv(timeout)
        if got[0] == "EXITED":
            self.exited[got[2]["pid"]] = got[2]["status"]
        return got

    def ask(self, name, answer, body, fds=()):
        self.calls += 1
        self.control.send(name, self.calls, body, fds)
        while True:
            got, call, body, fds = self.next()
            if got == answer and call == self.calls:
                if body.get("error"):
                    raise RuntimeError(body["error"])
                return body, fds

    def spawn(self, argv, env=None, cwd="/", capabilities=None):
        """Starts a host program as a zygote; READY has been received."""
        control, theirs = socket.socketpair()
        capability, lane = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = ["%s=%s" % item for item in (os.environ if env is None else env).items()]
        body, fds = self.ask("SPAWN", "SPAWNED", {"argv": argv, "env": env, "cwd": cwd}, [theirs.fileno(), lane.fileno(), 2])
        theirs.close()
        lane.close()
        host = Host(control, capability, body["pid"], fds[0], capabilities=capabilities)
        host.surface = self
        name, _, host.ready, _ = host.control.recv()
        assert name == "READY", name
        return host

    def cell(self, keep_pid=0, namespaces=0xFF, network=False, upper_bytes=1 << 28):
        """(pidfd of the cell's init, its control channel, what it holds)."""
        body, fds = self.ask("CELL", "CELL_READY", {"namespaces": namespaces, "network": network, "upper_bytes": upper_bytes,
                                                    "keep_pid": keep_pid})
        return fds[0], Channel(socket.socket(fileno=fds[1])), body

    def end(self):
        self.control.close()
        self.link.close()
        self.process.wait(10)


class Host:
    """One process image with its channels. `capabilities` maps names to functions; None: the engine takes no calls."""

    def __init__(self, control, capability, pid, pidfd, process=None, capabilities=None):
        self.control, self.capability = Channel(control), capability
        self.pid, self.pidfd, self.process = pid, pidfd, process
        self.calls = 0
        self.lanes = 0
        self.surface = None
        self.cell = None
        self.asked = []  # bodies of the calls that came on lanes
        self.late = {}
        self.capabilities = {} if capabilities is None else capabilities
        self.thread = threading.Thread(target=self._lanes, daemon=True)
        self.thread.start()

    @classmethod
    def start(cls, argv, env=None, cwd=None, capabilities=None, stderr=None, wait_ready=True):
        control, theirs = socket.socketpair()
        capability, lane = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        high = [os.dup(theirs.fileno()), os.dup(lane.fileno())]

        def arrange():
            os.dup2(high[0], 103)
            os.dup2(high[1], 104)
            os.dup2(103, 3)
            os.dup2(104, 4)
            os.closerange(5, 1024)

        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, close_fds=False,
                                   preexec_fn=arrange, env=env, cwd=cwd)
        for fd in high:
            os.close(fd)
        theirs.close()
        lane.close()
        host = cls(control, capability, process.pid, os.pidfd_open(process.pid), process, capabilities)
        if wait_ready:
            name, _, host.ready, _ = host.control.recv()
            assert name == "READY", name
        return host

    # -- calls

    def send_run(self, code, fds, **fields):
        self.calls += 1
        self.control.send("RUN", self.calls, dict({"code": code, "label": str(self.calls)}, **fields), fds)
        return self.calls

    def run(self, code, timeout=20, grace=4, merge=False, interrupt=True, keep=False, **fields):
        """One call. After `timeout` an interrupt is sent, after `grace` more the host is killed."""
        out, out_end = os.pipe()
        err, err_end = (out, out_end) if merge else os.pipe()
        call = self.send_run(code, [out_end, err_end], **fields)
        for fd in {out_end, err_end}:
            os.close(fd)
        got = {out: b"", err: b""}
        begin = time.monotonic()
        deadline, stage, body = begin + timeout, 0, None
        poll = select.poll()
        for fd in {out, err, self.control.fileno(), self.pidfd}:
            poll.register(fd, select.POLLIN)
        while body is None:
            for fd, _ in poll.poll(max(0, deadline - time.monotonic()) * 1000 + 1):
                if fd in got:
                    data = os.read(fd, 1 << 20)
                    got[fd] += data
                    if not data:
                        poll.unregister(fd)
                elif fd == self.control.fileno() or not self.alive():
                    try:
                        name, answered, body, _ = self.control.recv(0.5)
                        assert (name, answered) == ("DONE", call), (name, answered, call)
                    except (Lost, TimeoutError):
                        body = {}
            if body is None and time.monotonic() >= deadline:
                if stage == 0 and interrupt:
                    self.signal(signal.SIGCONT)
                    self.signal(INTERRUPT)
                else:
                    self.signal(signal.SIGKILL)
                stage += 1
                deadline = time.monotonic() + grace
        for fd in {out, err}:
            os.set_blocking(fd, False)
            try:
                while True:
                    data = os.read(fd, 1 << 20)
                    if not data:
                        break
                    got[fd] += data
            except BlockingIOError:
                pass
        if keep:
            self.late[call] = (out, err)
        else:
            for fd in {out, err}:
                os.close(fd)
        return Result(got[out], b"" if merge else got[err], body, time.monotonic() - begin)

    def clone(self, role, barriers=0, required=0, cell=None, label="clone"):
        """The clone as a Host, READY already received. RuntimeError where it was refused."""
        control, theirs = socket.socketpair()
        capability, lane = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.calls += 1
        fds = [theirs.fileno(), lane.fileno()] + ([cell] if cell is not None else [])
        self.control.send("CLONE", self.calls, {"role": role, "barriers": barriers, "required": required, "label": label}, fds)
        theirs.close()
        lane.close()
        name, _, body, got = self.control.recv()
        assert name == "CLONED", name
        if body.get("error"):
            control.close()
            capability.close()
            raise RuntimeError(body["error"])
        host = Host(control, capability, body["pid"], got[0], capabilities=self.capabilities)
        host.surface = self.surface
        host.cloned = body
        name, _, host.ready, _ = host.control.recv()
        assert name == "READY", name
        return host

    def copy(self):
        """A read-only copy in a cell of its own with all barriers; needs a host of a Surface. kill() ends the cell."""
        pidfd, control, _ = self.surface.cell(keep_pid=self.pid)
        try:
            copy = self.clone(COPY, barriers=0xFF, cell=pidfd)
        except RuntimeError:
            os.close(pidfd)
            control.close()
            raise
        copy.cell = pidfd, control
        return copy

    def promote(self):
        self.control.send("PROMOTE", 0, {})
        assert self.control.recv()[0] == "READY"

    def inspect(self, detail="names", name=None):
        self.calls += 1
        self.control.send("INSPECT", self.calls, {"detail": detail, "name": name})
        kind, call, body, _ = self.control.recv()
        assert (kind, call) == ("INSPECTED", self.calls)
        return body["state"]

    def end(self, timeout=5):
        """CLOSE; the exit status."""
        self.control.send("CLOSE", 0, {})
        if self.process:
            return self.process.wait(timeout)
        assert select.select([self.pidfd], [], [], timeout)[0], "the host does not end"
        return None

    # -- the process

    def signal(self, number):
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass

    def alive(self):
        if select.select([self.pidfd], [], [], 0)[0]:
            return False
        return True

    def exit_status(self, timeout=2):
        """The wait status of a host of a Surface that has ended, None where it is not told in time."""
        try:
            while self.surface and self.pid not in self.surface.exited:
                self.surface.next(timeout)
            return self.surface.exited[self.pid] if self.surface else None
        except (TimeoutError, Lost):
            return None

    def pid_here(self):
        """Its pid as we see it, which differs where it is in a pid namespace of its own."""
        with open("/proc/self/fdinfo/%d" % self.pidfd) as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Pid:"))

    def descriptors(self):
        return sorted(int(n) for n in os.listdir("/proc/%d/fd" % self.pid_here()))

    def resident_kb(self):
        with open("/proc/%d/statm" % self.pid_here()) as f:
            return int(f.read().split()[1]) * 4

    def kill(self):
        """Ends the process and waits for it; idempotent."""
        if self.control is None:
            return
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        else:
            select.select([self.pidfd], [], [], 5)
            try:
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
            except OSError:
                pass
        if self.cell:
            signal.pidfd_send_signal(self.cell[0], signal.SIGKILL)
            os.close(self.cell[0])
            self.cell[1].close()
        self.control.close()
        self.capability.shutdown(socket.SHUT_RDWR)
        self.capability.close()
        for pair in self.late.values():
            for fd in set(pair):
                os.close(fd)
        os.close(self.pidfd)
        self.control = None

    # -- capability calls

    def _lanes(self):
        while True:
            try:
                data, rights, _, _ = self.capability.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
            except OSError:
                return
            if not data:
                return
            got = array.array("i")
            for _, _, value in rights:
                got.frombytes(value)
            self.lanes += 1
            threading.Thread(target=self._serve, args=(Channel(socket.socket(fileno=got[0])),), daemon=True).start()

    def _serve(self, lane):
        try:
            while True:
                name, call, body, _ = lane.recv(3600)
                try:
                    if name == "DESCRIBE":
                        value = {"capabilities": [{"name": n, "effect": "read"} for n in sorted(self.capabilities)], "functions": []}
                    else:
                        function = self.capabilities[("fn " if name == "FUNCTION" else "") + body["name"]]
                        self.asked.append(body)
                        value = function(*body.get("args", []), **body.get("kwargs", {}))
                    if isinstance(value, Inline):
                        lane.send("INLINE", call, {"name": body["name"], "source": value.source})
                    else:
                        lane.send("VALUE", call, {"value": value})
                except Exception as e:
                    lane.send("FAILED", call, {"type": type(e).__name__, "message": str(e)})
        except (Lost, OSError):
            pass
        finally:
            lane.close()
