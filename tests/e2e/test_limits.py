"""Limits of sessions and calls: what exceeds one is an error that names it, how far it went and what to do, and costs nobody else."""
import json
import os
import re
import sys
import tempfile
import time

import pytest

from furcalib import eventually

MIB = 1 << 20
EAT = {"python": "b = []\nwhile True: b.append(bytearray(20_000_000))",
       "bash": "x=$(head -c 100000000 /dev/zero | tr '\\0' a); while :; do x=$x$x; done"}
KEEP = {"python": "x = 'keep'", "bash": "k=keep"}
KEPT = {"python": "print(x)", "bash": "echo $k"}
CHILD = "import time; b = bytearray(90_000_000); time.sleep(60)"
CHILDREN = {"python": "import subprocess, sys, time\n"
                      "a = [subprocess.Popen([sys.executable, '-c', %r]) for _ in range(4)]\ntime.sleep(5)\n[p.poll() for p in a]" % CHILD,
            "bash": "for i in 1 2 3 4; do %s -c '%s' & done; sleep 5" % (sys.executable, CHILD)}
LANGUAGES = ["python", "bash"]


def stateful(client, code, language="python", **args):
    return client.execute(code, language, state_mode="stateful", **args)


def limited(client, language, name="s", **limits):
    answer = stateful(client, KEEP[language], language, session_name=name, limits=limits)
    assert answer["ok"], answer


def kept(client, language, name="s"):
    """The session lives on with what it had."""
    answer = stateful(client, KEPT[language], language, session_name=name)
    assert answer["stdout"] == "keep\n", answer


def told(answer, kinds, limit, peak=True):
    """The error names the limit and how far it went; the suggestion says what to do."""
    assert not answer["ok"] and answer["error_type"] in kinds, answer
    assert limit in answer["error"], answer
    assert not peak or re.search(r"\(peak [0-9.]+", answer["error"]), answer
    assert limit in answer["suggestion"] or "Write less" in answer["suggestion"], answer


@pytest.fixture
def no_groups(new_engine):
    """An engine that finds no control group to write to."""
    if os.geteuid() != 0:
        pytest.skip("only root can hide /sys/fs/cgroup")
    return new_engine(wrap=("unshare", "-m", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_of_a_session(client, language):
    limited(client, language, memory_bytes=300 * MIB)
    told(stateful(client, EAT[language], language, session_name="s", timeout_s=50), ("oom", "exception"), "limits.memory_bytes")
    kept(client, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_of_what_a_session_starts(client, language):
    limited(client, language, memory_bytes=200 * MIB)
    told(stateful(client, CHILDREN[language], language, session_name="s", timeout_s=30), ("oom",), "limits.memory_bytes")
    kept(client, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_without_control_groups(no_groups, language):
    client = no_groups.client()
    limited(client, language, memory_bytes=200 * MIB)
    stateful(client, KEEP[language], language, session_name="other")
    told(stateful(client, EAT[language], language, session_name="s", timeout_s=50), ("oom", "exception"), "limits.memory_bytes")
    kept(client, language)
    answer = stateful(client, CHILDREN[language], language, session_name="s", timeout_s=30)
    told(answer, ("oom",), "limits.memory_bytes")
    assert answer["state"] == "rolled_back"
    kept(client, language)
    kept(client, language, "other")


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_of_a_stateless_call(client, language):
    answer = client.execute(EAT[language], language, state_mode="stateless", limits={"memory_bytes": 300 * MIB}, timeout_s=50)
    told(answer, ("oom", "exception"), "limits.memory_bytes")


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_of_a_read(client, language):
    stateful(client, KEEP[language], language, session_name="s")
    answer = client.execute(EAT[language], language, state_mode="read_only", session_name="s", limits={"memory_bytes": 300 * MIB}, timeout_s=50)
    told(answer, ("oom", "exception"), "limits.memory_bytes")
    kept(client, language)


def test_shared_pages_count_once(no_groups):
    """Forked children share their parent's memory: together they have hardly more than it."""
    client = no_groups.client()
    code = ("import os, time\nb = bytearray(90_000_000)\nkids = []\nfor _ in range(4):\n    p = os.fork()\n"
            "    if not p:\n        time.sleep(1)\n        os._exit(0)\n    kids.append(p)\n"
            "time.sleep(1)\n[os.waitpid(p, 0)[1] for p in kids]")
    answer = stateful(client, code, session_name="s", limits={"memory_bytes": 300 * MIB}, timeout_s=30)
    assert answer["result"] == [0, 0, 0, 0], answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_cpu_time(client, language):
    limited(client, language, cpu_s=1)
    answer = stateful(client, {"python": "x = 2\nwhile True: pass", "bash": "k=2; while :; do :; done"}[language], language, session_name="s",
                      timeout_s=30)
    told(answer, ("limit",), "limits.cpu_s", peak=language == "python")
    if language == "python":
        assert answer["state"] == "rolled_back"
        kept(client, language)


def test_cpu_time_of_a_child(client):
    limited(client, "bash", cpu_s=1)
    answer = stateful(client, "sh -c 'while :; do :; done'", "bash", session_name="s", timeout_s=30)
    told(answer, ("limit",), "limits.cpu_s", peak=False)
    kept(client, "bash")


def test_cpu_time_where_the_signal_is_ignored(client):
    limited(client, "python", cpu_s=1)
    answer = stateful(client, "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", session_name="s", timeout_s=30)
    told(answer, ("limit",), "limits.cpu_s")
    kept(client, "python")


@pytest.mark.parametrize("language", LANGUAGES)
def test_processes(client, language):
    code = {"python": "import subprocess\na = [subprocess.Popen(['sleep', '3']) for _ in range(30)]",
            "bash": "for i in {1..30}; do sleep 3 & done 2>/dev/null; wait"}[language]
    answer = stateful(client, KEEP[language], language, session_name="s", limits={"processes": 10})
    if answer["error_type"] == "limit":
        pytest.skip("no writable pids control group: " + answer["error"])
    answer = stateful(client, code, language, session_name="s", timeout_s=10)
    told(answer, ("limit", "timeout"), "limits.processes")
    kept(client, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_open_files(client, language):
    limited(client, language, open_files=100)
    code = {"python": "a = [open('/dev/null') for _ in range(2000)]",
            "bash": "for i in {1..2000}; do exec {fd}</dev/null || break; done; exec {fd}</dev/null"}[language]
    answer = stateful(client, code, language, session_name="s")
    told(answer, ("exception", "limit"), "limits.open_files")
    assert "Too many open files" in answer["error"] + answer["stderr"]
    kept(client, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_disk_of_a_read(new_engine, language):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"copy_disk_bytes": 4 * MIB}, config)
        config.flush()
        client = new_engine("--config", config.name).client()
    stateful(client, KEEP[language], language, session_name="s")
    code = {"python": "open('big', 'wb').write(bytes(20_000_000))", "bash": "head -c 20000000 /dev/zero >big"}[language]
    answer = client.execute(code, language, state_mode="read_only", session_name="s")
    told(answer, ("exception", "limit"), "copy_disk_bytes", peak=False)
    assert stateful(client, {"python": "import os; print(os.path.exists('big'))", "bash": "ls big 2>&1"}[language], language,
                    session_name="s")["stdout"].strip() != "True"
    kept(client, language)


def may_raise_limits():
    with open("/proc/self/status") as status:
        return int(re.search(r"CapEff:\s*(\w+)", status.read())[1], 16) >> 24 & 1  # CAP_SYS_RESOURCE


def test_a_read_has_more_than_its_session_or_is_refused(client):
    """Its own limits were cut to the session's, and then said to have been reached."""
    session = {"session_name": "s", "language": "python"}
    client.execute("x = 1", state_mode="stateful", limits={"memory_bytes": 150 * MIB, "open_files": 40}, **session)
    for code, limits, value in (("len(bytearray(200 << 20))", {"memory_bytes": 500 * MIB}, 200 << 20),
                                ("len([open('/dev/null') for _ in range(100)])", {"open_files": 200}, 100)):
        look = client.execute(code, state_mode="read_only", limits=limits, **session)
        if may_raise_limits():
            assert look["result"] == value, look
        else:
            assert (look["error_type"], look["state"]) == ("limit", "unchanged") and "more than its session" in look["error"], look
    for limits in ({"open_files": 40}, {"memory_bytes": 150 * MIB}, {"open_files": 30, "memory_bytes": 100 * MIB}):
        assert client.execute("x", state_mode="read_only", limits=limits, **session)["result"] == 1
    look = client.execute("len([open('/dev/null') for _ in range(100)])", state_mode="read_only", **session)
    assert "Too many open files" in look["error"], look


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_full_device_is_not_the_disk_of_a_read(client, language):
    """Its message is the same, and copy_disk_bytes was blamed."""
    stateful(client, KEEP[language], language, session_name="s")
    code = {"python": "with open('/dev/full', 'w') as f: f.write('x')", "bash": "echo x >/dev/full"}[language]
    answer = client.execute(code, language, state_mode="read_only", session_name="s")
    assert "No space left" in (answer["error"] or "") + answer["stderr"], answer
    assert answer["error_type"] != "limit" and "copy_disk_bytes" not in (answer["error"] or "") + (answer["suggestion"] or ""), answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_output(client, language):
    """What does not fit is told, kept, and can be had."""
    code = {"python": "print('a' * 3_000_000)", "bash": "head -c 3000000 /dev/zero | tr '\\0' a; echo"}[language]
    pending = client.start("execute", code=code, language=language, state_mode="stateful", session_name="s", max_output_bytes=1000)
    answer = pending.wait()
    assert answer["ok"] and answer["truncated"]["stdout"] > 2_900_000 and len(answer["stdout"]) < 1200, answer["truncated"]
    tail = client.call("read_output", msgid=pending.msgid, stream="stdout", offset=2_999_990, length=100)
    assert tail["data"] == b"a" * 10 + b"\n" and tail["end"]


def test_one_session_at_its_limit_harms_no_other(client):
    stateful(client, "y = 1", session_name="other")
    limited(client, "python", memory_bytes=200 * MIB)
    busy = client.start("execute", language="python", state_mode="stateful", session_name="s", timeout_s=30,
                        code="b = []\nwhile True: b.append(bytearray(1_000_000))")
    started = time.monotonic()
    for i in range(20):
        assert stateful(client, "y += 1; y", session_name="other")["result"] == i + 2
    assert time.monotonic() - started < 10
    assert not busy.wait(30)["ok"]


def test_descriptors_of_the_engine_and_of_sessions(new_engine):
    """The engine takes what it may have; sessions have the limit that it was started with."""
    engine = new_engine(wrap=("prlimit", "--nofile=1024:4096"))
    with open("/proc/%d/limits" % engine.pid) as f:
        assert re.search(r"^Max open files +4096 +4096", f.read(), re.M)
    client = engine.client()
    for language, code, seen in (("python", "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)", "(1024, 4096)"), ("bash", "ulimit -n", "1024")):
        for mode in ("stateful", "read_only", "stateless"):
            where = {} if mode == "stateless" else {"session_name": language}
            answer = client.execute(code, language, state_mode=mode, **where)
            assert seen in (answer["result_text"] or answer["stdout"]), (language, mode, answer)


@pytest.mark.parametrize("descriptors", [100, 130, 160, 256])
def test_an_engine_without_descriptors_left_lives_on(new_engine, descriptors):
    """What finds none is refused, or fails; what was there before is there after."""
    client = new_engine(wrap=("prlimit", "--nofile=%d:%d" % (descriptors, descriptors))).client()
    assert stateful(client, "x = 'keep'", session_name="s")["ok"]
    calls = [client.start("execute", code="x = %d" % i, language="python", session_name="n%d" % (i % 18), state_mode="stateful") for i in range(60)]
    calls += [client.start("execute", code="x", language="python", session_name="s", state_mode="read_only") for i in range(10)]
    answers = [call.wait(60) for call in calls]
    assert all(answer["ok"] or (answer["error"] and answer["error_type"]) for answer in answers)
    for i in range(18):
        client.call("close_session", session_name="n%d" % i)
    assert eventually(lambda: stateful(client, "print(x)", session_name="s")["stdout"] == "keep\n", 10)
    assert eventually(lambda: stateful(client, "y = 1", session_name="after")["ok"], 10)


def test_output_that_the_disk_did_not_take_ends(new_engine, tmp_path):
    """Reading to `end` comes to one, at what was kept."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    state = tmp_path / "state"
    state.mkdir()
    client = new_engine("--state-dir", str(state),
                        wrap=("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=3m none "%s" && exec "$@"' % state, "sh")).client()
    answer = client.execute("head -c 10000000 /dev/zero | tr '\\0' x", "bash", session_name="s", state_mode="stateful")
    assert answer["ok"], answer
    got = 0
    for _ in range(100):
        part = client.call("read_output", output_id=answer["output_id"], stream="stdout", offset=got, length=1 << 20)
        assert part["ok"] and part["total"] == 10_000_000 and set(part["data"]) <= {ord("x")}, part
        got += len(part["data"])
        if part["end"]:
            break
    assert part["end"] and 1_000_000 < got < 10_000_000, got


def test_a_session_without_descriptors_is_idle(client, engine):
    """It may have none at all: waiting for the next call takes no processor, and what cannot be had is said at once."""
    assert stateful(client, "import resource, time; resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
                    session_name="none")["ok"]
    spent = stateful(client, "before = time.process_time()", session_name="none")
    time.sleep(0.5)
    if spent["ok"]:
        assert stateful(client, "time.process_time() - before < 0.2", session_name="none")["result"] is True
    began = time.monotonic()
    client.call("inspect_session", 20, session_name="none")
    client.python("1", session_name="none", state_mode="read_only", timeout_s=10)
    assert time.monotonic() - began < 5
    assert client.call("close_session", session_name="none")["closed"]


def test_small_limits_of_memory_leave_room_for_what_is_used(client):
    """Address space that is reserved, as for the rest of an arena, is no memory."""
    assert stateful(client, "x = 'keep'", session_name="tight", limits={"memory_bytes": 60 * MIB})["ok"]
    assert stateful(client, "b = bytearray(20_000_000); len(b)", session_name="tight")["result"] == 20_000_000
    look = client.python("len(b), x", session_name="tight", state_mode="read_only")
    assert look["ok"] and look["result"] == [20_000_000, "keep"], look


def with_memory(new_engine, **config):
    """An engine whose sessions may have that much together; skips where nothing could hold them to it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        client = new_engine("--config", file.name).client()
    if not client.call("stats")["memory_limit_bytes"]:
        pytest.skip("no writable control group")
    return client


@pytest.mark.parametrize("policy", ["auto", "always"])
def test_snapshots_by_policy_when_memory_is_short(new_engine, policy):
    """`auto` weighs the state against what is free: earlier snapshots go, then none is made; `always` keeps to its word."""
    client = with_memory(new_engine, max_memory_bytes=700 * MIB, snapshots=policy)
    for n in range(3):
        assert stateful(client, f"x = {n}", session_name="s")["ok"]
    time.sleep(0.2)  # memory is looked at ten times a second
    assert stateful(client, "big = bytearray(b'x') * 580_000_000", session_name="s")["ok"]
    session, = client.call("list_sessions")["sessions"]
    if policy == "always":
        assert session["undo_depth"] == 4, session
        assert client.call("undo", session_name="s", steps=2)["ok"]
        assert stateful(client, "x, 'big' in globals()", session_name="s")["result"] == [1, False]
        return
    assert session["undo_depth"] <= 1, session
    refused = client.call("undo", session_name="s", steps=3)
    assert not refused["ok"] and "older states were dropped" in refused["error"], refused
    died = stateful(client, "import os; os.abort()", session_name="s")
    assert died["state"] == "rolled_back" and "later changes are lost" in died["error"], died
    # With the memory free again, the next change is kept as before.
    time.sleep(0.2)
    assert stateful(client, "x = 'kept'", session_name="s")["ok"]
    died = stateful(client, "import os; os.abort()", session_name="s")
    assert died["state"] == "rolled_back" and "what it was before the call" in died["error"], died
    assert stateful(client, "x", session_name="s")["result"] == "kept"


def test_all_together_are_bounded(new_engine):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"max_memory_bytes": 400 * MIB, "max_processes": 200}, config)
        config.flush()
        client = new_engine("--config", config.name).client()
    stats = client.call("stats")
    assert stats["engine_memory_bytes"] > 0 and stats["memory_bytes"] > 0 and stats["processes"] > 2, stats
    if not stats["memory_limit_bytes"] or not stats["processes_limit"]:
        pytest.skip("no writable control group")
    assert (stats["memory_limit_bytes"], stats["processes_limit"]) == (400 * MIB, 200)
    stateful(client, "x = 'keep'", session_name="small")
    stateful(client, "x = 'keep'", session_name="big")
    answer = stateful(client, EAT["python"], session_name="big", timeout_s=50)
    assert answer["error_type"] == "oom" and "all sessions" in answer["error"], answer
    kept(client, "python", "big")
    kept(client, "python", "small")
    answer = stateful(client, "import subprocess\na = []\nwhile True: a.append(subprocess.Popen(['sleep', '60']))", session_name="big", timeout_s=50)
    assert answer["error_type"] == "exception" and "Resource temporarily unavailable" in answer["error"], answer
    stateful(client, "[p.kill() or p.wait() for p in a] and None", session_name="big")
    kept(client, "python", "small")
