"""The session's child processes as a clone of it sees them: another process's, for which it cannot wait. The subprocess module takes the error that says so for
an end with status 0, so that a program that failed, and one that still runs, had both succeeded."""

import errno
import os
import sys

_ended = {}  # process number -> wait status, of those that had ended, and were waited for by nobody yet, when the clone was made


def note():
    """In the session before a clone, where a child has ended. What it takes is left for the session to wait for."""
    _ended.clear()
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/children" % task) as file:
            for pid in map(int, file.read().split()):
                info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if info:
                    _ended[pid] = info.si_status << 8 if info.si_code == os.CLD_EXITED else info.si_status


def _is_ours(pid):
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def adopt():
    """In the clone: those that had not ended run on, as far as can be known."""
    module = sys.modules.get("subprocess")
    kind = getattr(module, "Popen", None)
    poll, try_wait = getattr(kind, "_internal_poll", None), getattr(kind, "_try_wait", None)
    if poll is None or try_wait is None or hasattr(poll, "of_session"):
        return

    def _internal_poll(self, *args, **kwargs):
        if self.returncode is not None or _is_ours(self.pid):
            return poll(self, *args, **kwargs)
        if self.pid in _ended:
            self._handle_exitstatus(_ended[self.pid])
        return self.returncode

    def _try_wait(self, flags):
        if self.returncode is not None or _is_ours(self.pid):
            return try_wait(self, flags)
        if self.pid in _ended:
            return self.pid, _ended[self.pid]
        if flags & os.WNOHANG:
            return 0, 0
        raise ChildProcessError(errno.ECHILD, "process %d is a child of the session, for which a clone of it cannot wait" % self.pid)

    _internal_poll.of_session = True
    kind._internal_poll, kind._try_wait = _internal_poll, _try_wait
