"""Attacks on a running engine that once succeeded: what broke it must not break it again."""
import threading

import pytest


def sleeping_reads(client, n, **session):
    """So many reads under way, each in a copy of its own."""
    running = []
    started = threading.Semaphore(0)
    client.register({"test.started": lambda: started.release()})
    for _ in range(n):
        running.append(client.start("execute", code="import time; capabilities.test.started(); time.sleep(60)", language="python",
                                    state_mode="read_only", **session))
    for _ in range(n):
        assert started.acquire(timeout=20)
    return running


@pytest.mark.parametrize("ended_by", ["stop", "close"])
def test_reads_of_a_promoted_session_end_while_their_changes_are_listed(new_engine, ended_by):
    """The cell's list came for a call that had been freed: the engine died by SIGSEGV or SIGABRT instead of ending."""
    for _ in range(3):
        engine = new_engine()
        client = engine.client()
        client.python("x = 1", session_name="s", state_mode="stateful")
        assert client.python("import os; os.abort()", session_name="s", state_mode="stateful")["state"] == "rolled_back"
        reads = sleeping_reads(client, 6, session_name="s")
        if ended_by == "close":
            for read in reads:
                read.client.start("cancel", msgid=read.msgid)
            client.call("close_session", session_name="s")
            for read in reads:
                assert read.wait(20)["error_type"] == "interrupted"
            assert client.python("1 + 1", state_mode="stateless")["result"] == 2
        assert engine.stop() == 0
