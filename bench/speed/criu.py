"""CRIU as a peer: a process whose state is dumped after a call and restored where it died. Where `criu check`, a dump or a restore fails,
Unusable says why in CRIU's words.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# The session: one connection for each call, so that none is open when it is dumped.
SESSION = """
import os, socket, sys
names = {}
exec(sys.argv[2], names)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
while True:
    connection = server.accept()[0]
    code = connection.recv(65536).decode()
    try:
        answer = repr(eval(code, names))
    except BaseException as e:
        answer = "failed: %r" % e
    connection.sendall(answer.encode())
    connection.close()
"""
STEP_S, START_S = 60, 60


class Unusable(Exception):
    """CRIU cannot do it here; the text says why."""


def first_error(text, code):
    """CRIU's first line of error that says what failed: that something `exited` comes of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "exited, status" not in line]
    return (errors or lines or ["status %d, and nothing said" % code])[0][:200]


def criu(*args, log=None):
    """Runs one command of it. Unusable where it fails or does not end."""
    try:
        done = subprocess.run(["criu", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_S)
    except OSError:
        raise Unusable("criu is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unusable("`criu %s` did not end within %d s" % (args[0], STEP_S)) from None
    if done.returncode:
        told = done.stderr or done.stdout
        if log and os.path.exists(log):
            with open(log, errors="replace") as file:
                told = file.read() or told
        raise Unusable("`criu %s`: %s" % (args[0], first_error(told, done.returncode)))


class Session:
    """A process with the state that `fill` makes; died() kills it and brings it back from its dump."""

    def __init__(self, fill, python=sys.executable):
        criu("check")
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: a restored process becomes a child of this one
        self.folder = tempfile.mkdtemp(prefix="furca-bench-criu-")
        self.path, self.images = os.path.join(self.folder, "socket"), os.path.join(self.folder, "images")
        os.mkdir(self.images)
        self.pid = os.posix_spawn(python, [python, "-c", SESSION, self.path, fill], os.environ, setsid=True,
                                  file_actions=[(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(3)])
        self.pidfd = os.pidfd_open(self.pid)

    def ask(self, code):
        """The value's repr; waits for a session that has not begun to listen."""
        end = time.monotonic() + START_S
        while True:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(START_S)
                try:
                    connection.connect(self.path)
                    connection.sendall(code.encode())
                    if answer := connection.recv(65536):
                        return answer.decode()
                except (FileNotFoundError, ConnectionError):
                    pass
            if time.monotonic() > end:
                raise Unusable("the session does not answer within %d s" % START_S)
            time.sleep(0.001)

    def dump(self):
        shutil.rmtree(self.images)
        os.mkdir(self.images)
        criu("dump", "-t", str(self.pid), "-D", self.images, "-o", "dump.log", "--leave-running", log=os.path.join(self.images, "dump.log"))

    def kill(self):
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.waitpid(self.pid, 0)  # its number must be free for the restored one
        os.close(self.pidfd)
        self.pidfd = -1

    def restore(self):
        pid_file = os.path.join(self.folder, "pid")
        criu("restore", "-D", self.images, "-o", "restore.log", "-d", "--pidfile", pid_file, log=os.path.join(self.images, "restore.log"))
        with open(pid_file) as file:
            self.pid = int(file.read())
        os.unlink(pid_file)
        self.pidfd = os.pidfd_open(self.pid)

    def die(self, code, expected):
        """Microseconds from the death to the next answer. The dump before it is not in them: it would follow each call."""
        self.dump()
        start = time.perf_counter()
        self.kill()
        self.restore()
        answer = self.ask(code)
        if answer != expected:
            raise Unusable("the state is not back: %s" % answer)
        return (time.perf_counter() - start) * 1e6

    def close(self):
        if self.pidfd >= 0:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
