"""Whose output it is, where calls follow one another with the same pipes: what an earlier call's process writes late is never a later
call's own, however that process was started and however it hides."""
import textwrap
import time

import pytest

pytestmark = pytest.mark.usefixtures("engine")

WRITES = "import os, time; time.sleep(%g); os.write(1, b'late\\n')"
STARTS = {
    "subprocess": "import subprocess, sys; subprocess.Popen([sys.executable, '-c', LATE])",
    "fork": "import os\nif os.fork() == 0:\n    exec(LATE); os._exit(0)",
    "fork twice": "import os\nif os.fork() == 0:\n    if os.fork() == 0:\n        exec(LATE)\n    os._exit(0)\nos.wait()",
    "fork twice, children ignored": "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif os.fork() == 0:\n"
                                    "    if os.fork() == 0:\n        exec(LATE)\n    os._exit(0)",
    "a copy of the descriptor": "import os, subprocess, sys\nfd = os.dup(1)\n"
                                "subprocess.Popen([sys.executable, '-c', LATE], stdout=fd)\nos.close(fd)",
    "a native library": "import ctypes, sys, shlex\nctypes.CDLL(None).system(('%s -c %s &' % (sys.executable, shlex.quote(LATE))).encode())",
    "a handler between calls": "import signal, subprocess, sys\n"
                               "signal.signal(signal.SIGALRM, lambda *a: subprocess.Popen([sys.executable, '-c', LATE]))\n"
                               "signal.setitimer(signal.ITIMER_REAL, 0.1)",
    "a thread between calls": "import subprocess, sys, threading\n"
                              "threading.Timer(0.1, lambda: subprocess.Popen([sys.executable, '-c', LATE])).start()",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_late_output_is_nobody_elses(client, start):
    def call(code):
        result = client.execute(code, "python", state_mode="stateful", session_name="late")
        assert result["ok"], result["error"]
        return result

    late = [""]

    def note(result):
        late[0] += result["background_output"]
        return result["stdout"]

    try:
        call("LATE = %r" % (WRITES % 0.5))
        assert note(call("print('warm')")) == "warm\n"
        assert note(call(textwrap.dedent(start))) == ""
        time.sleep(0.3)  # what runs between calls has begun, and nothing is written yet
        end = time.monotonic() + 10
        n = 0
        while not late[0] and time.monotonic() < end:
            n += 1
            assert note(call("print('call', %d)" % n)) == "call %d\n" % n
            if n > 200:
                time.sleep(0.05)
        assert late[0] == "late\n"
    finally:
        client.call("close_session", language="python", session_name="late")


def test_a_handler_writes_between_calls(client):
    """Output of the session's own process between two calls belongs to neither."""
    def call(code):
        return client.execute(code, "python", state_mode="stateful", session_name="handler")

    call("import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: os.write(1, b'alarm\\n'))")
    assert call("print('a')")["stdout"] == "a\n"
    call("signal.setitimer(signal.ITIMER_REAL, 0.1)")
    time.sleep(0.4)
    result = call("print('b')")
    assert (result["stdout"], result["background_output"]) == ("b\n", "alarm\n")
    result = call("print('c')")
    assert (result["stdout"], result["background_output"]) == ("c\n", "")
    client.call("close_session", language="python", session_name="handler")
