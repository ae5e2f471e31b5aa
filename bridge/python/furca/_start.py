"""Finding a running engine, or starting one that lives as long as this process."""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import weakref
from typing import List, Optional, Sequence

from ._result import FurcaError

# The shell ends the engine when this process closes the pipe, or ends in whatever way.
_KEEPER = '"$0" "$@" </dev/null & p=$!; trap "" TERM INT HUP; cat >/dev/null; kill -TERM $p 2>/dev/null; wait $p'


def default_socket() -> str:
    """Where `furca serve` listens unless told otherwise."""
    named = os.environ.get("FURCA_SOCKET")
    if named:
        return named
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid(), "furca.sock")


def program(path: Optional[str] = None) -> str:
    """The furca program: the one given, $FURCA, or the one on PATH."""
    for candidate in (path, os.environ.get("FURCA"), shutil.which("furca")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise FurcaError("no furca program: install it so that it is on PATH, set FURCA to it, or pass program=")


class PrivateEngine:
    """A `furca serve` of our own, in a temporary directory; ended by close() and with this process."""

    def __init__(self, path: Optional[str] = None, options: Sequence[str] = (), timeout_s: float = 20) -> None:
        self.directory = tempfile.mkdtemp(prefix="furca-")
        self.socket = os.path.join(self.directory, "s")
        self.log_path = os.path.join(self.directory, "log")
        command: List[str] = ["/bin/sh", "-c", _KEEPER, program(path), "serve", "--socket", self.socket,
                              "--state-dir", os.path.join(self.directory, "state"), *options]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.close = weakref.finalize(self, _end, self.process, self.directory)
        timer = threading.Timer(timeout_s, self.close)
        timer.daemon = True
        timer.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode(errors="replace").strip()
        timer.cancel()
        if line != "ready " + self.socket:
            said = self.log()
            self.close()
            raise FurcaError("furca serve did not get ready: %s" % (said.strip() or line or "it said nothing"))

    def log(self) -> str:
        try:
            with open(self.log_path, errors="replace") as f:
                return f.read()[-4000:]
        except OSError:
            return ""


def _end(process: "subprocess.Popen[bytes]", directory: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    shutil.rmtree(directory, ignore_errors=True)
