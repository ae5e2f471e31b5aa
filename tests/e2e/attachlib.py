"""Programs that attach themselves, for tests."""
import os
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge", "python")
sys.path.insert(0, PACKAGE)

from furcalib import furca_program  # noqa: E402

BEGIN = """
    import os, signal, sys, threading, time
    import furca
    rows = list(range(10))
"""


def environment(engine):
    return dict(os.environ, PYTHONPATH=PACKAGE, FURCA_PROGRAM=furca_program(), FURCA_SOCKET=engine.socket if engine else "/nowhere/furca.sock")


def agent(engine, program, timeout=60, status=0):
    """Runs a program that attaches itself; what it printed. `engine` None: it starts its own."""
    text = textwrap.dedent(BEGIN) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], env=environment(engine), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


class Waiting:
    """A program that has attached itself and serves."""

    def __init__(self, engine, program="", serve="agent.serve()"):
        text = textwrap.dedent(BEGIN) + textwrap.dedent(program) + "agent = furca.attach(name='agent')\nprint('ready', flush=True)\n" + serve + "\nprint('over')\n"
        self.process = subprocess.Popen([sys.executable, "-c", text], env=environment(engine), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()
        return self.process

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=20)
