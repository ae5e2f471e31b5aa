"""One engine for each test module, and after every test the invariants that must hold of it.

A test that needs an engine of its own, with options or to kill it, takes `new_engine`. After every test: no new descriptor
in the engine, no process left, nothing in its log that a healthy engine does not write. They are checked for every engine that the
test used and that still lives; one that the test killed is checked for what it left behind.
"""
import re
import time

import pytest

from furcalib import Engine, eventually, furca_program
from localpkg import write_source

BAD_LINE = re.compile(r"^\S+Z alert |AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|Assertion .* failed", re.M)
SETTLE = 5  # seconds that processes and descriptors get to go away


def pytest_collection_modifyitems(items):
    if furca_program():
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason="furca is not built (set FURCA to the program)"))


class Watched:
    """An engine and what it held before the tests."""

    def __init__(self, *options, **keywords):
        self.engine = Engine(*options, **keywords)
        self.log_seen = 0
        self.warm_up()
        self.settled()
        time.sleep(0.1)  # a pool is filled up a little after its first cell, when nothing shows yet that it will be
        self.settled()
        self.before = len(self.engine.descriptors())

    def warm_up(self):
        """One call of each kind, so that what the engine keeps for good (zygotes, cells) is there."""
        client = self.engine.client()
        for language in ("python", "bash"):
            for mode in ("stateless", "stateful"):
                client.execute("true" if language == "bash" else "None", language, state_mode=mode)
            client.execute("true" if language == "bash" else "None", language, state_mode="read_only", session_id=0)
        client.call("close_all_sessions")
        self.engine.close_clients()

    def strangers(self, idle):
        left = self.engine.processes()
        init = {pid for pid, command in left.items() if self.is_surface_init(pid)}
        return {pid: command for pid, command in left.items() if pid not in idle and pid not in init}

    def is_surface_init(self, pid):
        try:
            with open("/proc/%d/stat" % pid) as f:
                return int(f.read().rsplit(")", 1)[1].split()[1]) == self.engine.pid
        except OSError:
            return False

    def settled(self):
        """Processes that should not be there, once they had time to go."""
        client = self.engine.client()
        left = {}

        def quiet():
            nonlocal left
            left = self.strangers(set(client.call("stats")["idle_pids"]))
            return not left

        try:
            eventually(quiet, SETTLE)
        finally:
            self.engine.close_clients()
        return left

    def new_log(self):
        text = self.engine.log()
        new, self.log_seen = text[self.log_seen:], len(text)
        return new

    def problems(self):
        engine, found = self.engine, []
        if engine.process.poll() is None:
            with engine.client() as client:
                client.call("close_all_sessions")
            engine.close_clients()
            left = self.settled()
            if left:
                found.append("processes left: %r" % (left,))
            if not eventually(lambda: len(engine.descriptors()) <= self.before, SETTLE):
                found.append("%d descriptors, %d before: %r" % (len(engine.descriptors()), self.before, engine.descriptors()))
        elif not eventually(lambda: not engine.processes(), SETTLE):
            found.append("processes outlived the engine: %r" % (engine.processes(),))
        bad = [line for line in self.new_log().splitlines() if BAD_LINE.search(line)]
        if bad:
            found.append("the log has: " + "\n".join(bad[:20]))
        return found

    def end(self):
        """Stops the engine by SIGTERM and says what was wrong with its end."""
        engine, found = self.engine, []
        alive = engine.process.poll() is None
        status = engine.stop()
        if alive and status != 0:
            found.append("the engine ended with status %d on SIGTERM\n%s" % (status, engine.log()[-4000:]))
        if not eventually(lambda: not engine.processes(), SETTLE):
            found.append("processes outlived the engine: %r" % (engine.processes(),))
        engine.clean()
        return found


@pytest.fixture(scope="module")
def _watched():
    watched = Watched()
    yield watched
    found = watched.end()
    assert not found, "\n".join(found)


@pytest.fixture
def engine(_watched):
    """The module's engine, checked after the test."""
    if _watched.engine.process.poll() is not None:
        pytest.fail("the engine has ended in an earlier test\n" + _watched.engine.log()[-4000:])
    yield _watched.engine
    found = _watched.problems()
    assert not found, "\n".join(found)


@pytest.fixture
def client(engine):
    """A connection to the module's engine."""
    return engine.client()


@pytest.fixture
def new_engine():
    """new_engine(*options, env={}) starts an engine of the test's own; its end is checked too."""
    made = []

    def make(*options, **keywords):
        made.append(Watched(*options, **keywords))
        return made[-1].engine

    yield make
    found = []
    for watched in made:
        found += watched.problems() + watched.end()
    assert not found, "\n".join(found)


@pytest.fixture
def package(tmp_path):
    """package(version, delay) makes a source tree that needs nothing to build; gives its requirement."""
    return lambda version="1.0", delay=0: write_source(tmp_path / ("src" + version), version, delay)
