"""Finding a running engine, or starting one that lives as long as its connection."""
from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import List, Optional, Sequence

from ._result import FurcaError


def default_socket() -> str:
    """Where `furca serve` listens unless told otherwise."""
    named, run = os.environ.get("FURCA_SOCKET"), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        return named
    return os.path.join(run, "furca.sock") if run else "/tmp/furca-%d/furca.sock" % os.geteuid()


def program(path: Optional[str] = None) -> str:
    """The furca program: the one given, $FURCA_PROGRAM, or the one on PATH."""
    for candidate in (path, os.environ.get("FURCA_PROGRAM"), shutil.which("furca")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise FurcaError("no furca program: install it so that it is on PATH, set FURCA_PROGRAM to it, or pass program=")


class PrivateEngine:
    """A `furca serve` of our own. It serves one connection, `sock`, and ends when that is closed, however this process ends."""

    def __init__(self, path: Optional[str] = None, options: Sequence[str] = ()) -> None:
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            command: List[str] = [program(path), "serve", "--inherit", str(theirs.fileno()), *options]
            # A session of its own: a terminal's Ctrl-C is for the program that talks to it.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            pass_fds=(theirs.fileno(),), start_new_session=True)

    def wait(self) -> None:
        """After the connection was closed."""
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
