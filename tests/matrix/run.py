#!/usr/bin/python3
"""The mutation matrix: tries to change something outside a read-only copy, in every way that attempts.toml lists.

Each attempt runs in a lab of its own (pid, mount, ipc, net and uts namespaces, private /tmp, /var/tmp and /dev/shm), so that one
that succeeds hits only the lab, in three ways: in a plain fork, where it must succeed (else it proves nothing), in a
copy in a cell, where it must not, and in a copy where no namespaces can be had. As root, and as an ordinary user.

    run.py [--who root,user] [--modes fork,cell,alone] [--only TEXT] [--json FILE] [--verbose]

Exit status: 0 no leaks and every attempt is real; 1 otherwise; 77 where labs cannot be made (needs root).
"""
import argparse
import itertools
import json
import multiprocessing
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "safety"))
from labs import USER, become, build_lab, check, libc, loop_device, probes, start_lab, wait_end, wants

LIMIT_S = 20  # for one attempt
ATTACK_S = 5  # for what runs in the copy


# ---- inside: the session ------------------------------------------------------------------------------------------------


def receive(fd, pidfd):
    """One line from the copy, or what became of it."""
    data = b""
    end = time.monotonic() + ATTACK_S
    while b"\n" not in data:
        ready = select.select([fd, pidfd], [], [], max(0, end - time.monotonic()))[0]
        if not ready:
            return "no answer in time"
        if fd not in ready:
            return "ended"
        part = os.read(fd, 65536)
        if not part:
            return "ended"
        data += part
    return data.split(b"\n")[0].decode(errors="replace")


def attack(code, names, out):
    """In the copy. Tells how it went, and ends."""
    try:
        exec(code, names)
        told = "done"
    except BaseException as e:
        told = f"{type(e).__name__}: {e}".split("\n")[0][:200]
    os.write(out, told.encode(errors="replace") + b"\n")
    os._exit(0)


def in_fork(code, names):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        attack(code, names, w)
    os.close(w)
    pidfd = os.pidfd_open(pid)
    told = receive(r, pidfd)
    if not wait_end(pidfd, 0.5):  # it may have stopped its parent's clock, or be stuck
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(r)
    return told, None


def in_copy(code, names, lab, cell):
    try:
        pid, fd, pidfd, held = lab.copy(cell)
    except OSError as e:
        return f"refused: {e}", None
    if pid == 0:
        attack(code, names, fd)
    told = receive(fd, pidfd)
    lab.end()
    if not wait_end(pidfd, 0.5):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(fd)
    os.close(pidfd)
    return told, held


def session(attempt, mode, lab, out):
    names = {"__name__": "__main__"}
    result = {}
    try:
        if mode != "fork":
            lab.start()
        exec(compile((HERE / "prelude.py").read_text(), "prelude.py", "exec"), names)
        exec(compile(attempt.get("setup", ""), "setup", "exec"), names)
    except BaseException as e:
        result["setup"] = f"{type(e).__name__}: {e}"
        os.write(out, json.dumps(result).encode())
        os._exit(0)
    code = compile(attempt["attack"], "attack", "exec")
    try:
        told, result["held"] = in_fork(code, names) if mode == "fork" else in_copy(code, names, lab, mode == "cell")
        result["told"] = told
        result["changed"] = told == "done" if attempt.get("told") else bool(eval(attempt["changed"].strip(), names))
        exec(attempt.get("after", ""), names)
    except BaseException as e:
        result["check"] = f"{type(e).__name__}: {e}"
    os.write(out, json.dumps(result).encode())
    os._exit(0)


# ---- inside: the lab ----------------------------------------------------------------------------------------------------


def engine(attempt, mode, who, lab, out, tty):
    """The session's parent: reaps copies. Passes on nothing, so that its death can be seen."""
    if who == "user":
        become(USER)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        terminal = os.open(tty, os.O_RDWR)
        libc.ioctl(terminal, 0x540E, 0)  # TIOCSCTTY
        os.close(terminal)
        session(attempt, mode, lab, out)
    os.close(out)
    while True:
        try:
            ended, status = os.waitpid(-1, os.WUNTRACED)
        except ChildProcessError:
            break
        if ended == pid and os.WIFSTOPPED(status):
            os._exit(3)  # the session was stopped
        if ended == pid:
            break
    os._exit(0 if status == 0 else 2)


def lab_main(attempt, mode, who, lab, out, settings):
    """pid 1 of the lab. It ends with 0; 2: the session died; 3: it was stopped; 4: the engine died."""
    build_lab(who, settings.get("image"))
    master, slave = os.openpty()
    tty = os.ttyname(slave)
    if who == "user":
        os.chown(tty, USER, USER)
    os.environ.update(settings["env"], LAB_W="/tmp/lab/w", LAB_OTHER="/tmp/lab/other", LAB_TTY=tty, LAB_IMAGE="/tmp/lab/image",
                      LAB_OUTSIDE=settings["outside"], PYTHONDONTWRITEBYTECODE="1", HOME="/tmp/lab/other")
    os.chdir("/tmp/lab/w")
    pid = os.fork()
    if pid == 0:
        os.close(master)
        engine(attempt, mode, who, lab, out, tty)
    os.close(out)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            os._exit(4 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


# ---- outside ------------------------------------------------------------------------------------------------------------


def one(attempt, mode, who, lab, settings):
    outer, pidfd, r = start_lab(lambda w: lab_main(attempt, mode, who, lab, w, settings), lambda e: {"setup": f"lab: {e}"})
    if not wait_end(pidfd, LIMIT_S):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    status = os.waitpid(outer, 0)[1]
    os.close(pidfd)
    data = b"".join(iter(lambda: os.read(r, 65536), b"")) if not os.WIFSIGNALED(status) else b""
    os.close(r)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    if code in (2, 3, 4, 6):
        what = {2: "the session died", 3: "the session was stopped", 4: "the engine died", 6: "the lab ended"}[code]
        return {"changed": True, "told": what}
    try:
        return json.loads(data)
    except ValueError:
        return {"check": "no result: time is up" if code == -1 else f"no result ({code})"}


def work(job):
    attempt, mode, who = job
    return attempt["name"], mode, who, one(attempt, mode, who, LAB, SETTINGS)


def judge(attempt, row):
    """What is wrong with an attempt's results; none where all is well."""
    wrong = []
    plain = [r for (mode, who), r in row.items() if mode == "fork"]
    for (mode, who), r in row.items():
        if "setup" in r or "check" in r:
            wrong.append(f"{mode} as {who}: {r.get('setup') or r.get('check')}")
        elif mode == "cell" and r["changed"] and "known" not in attempt:
            wrong.append(f"LEAK in a cell as {who}: {r['told']}")
    if plain and not any(r.get("changed") for r in plain) and not attempt.get("control") and "elsewhere" not in attempt:
        wrong.append("not real: a plain fork does not let it through: " + ", ".join(r.get("told", "") for r in plain))
    if attempt.get("control") and any(r.get("changed") for r in plain):
        wrong.append("a control that a plain fork lets through")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--who", default="root,user")
    parser.add_argument("--modes", default="fork,cell")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--module", default=".libs", help="the folder of lab.so")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: labs are made as root")
        return 77
    sys.path.insert(0, args.module)
    import lab
    global LAB, SETTINGS
    attempts = [a for a in tomllib.loads((HERE / "attempts.toml").read_text())["attempt"] if args.only in a["name"]]
    there, env = probes()
    folder = tempfile.mkdtemp(dir=os.getcwd(), prefix="matrix-")
    image, loop = loop_device(folder)
    there["loop"] = bool(loop)
    LAB, SETTINGS = lab, {"image": image, "outside": os.readlink("/proc/self/ns/pid"), "env": {**env, "LAB_LOOP": loop or "/dev/none"}}
    jobs = [(a, mode, who) for a in attempts for who in args.who.split(",") for mode in args.modes.split(",") if wants(a, who, there)]
    alone = [job for job in jobs if "loop" in job[0].get("needs", "").split()]  # these share one device
    rows = {a["name"]: {} for a in attempts}
    start = time.time()
    try:
        with multiprocessing.Pool(min(4, len(os.sched_getaffinity(0)))) as pool:
            shared = pool.imap_unordered(work, [job for job in jobs if job not in alone])
            for name, mode, who, result in itertools.chain(shared, map(work, alone)):
                rows[name][mode, who] = result
                if args.verbose:
                    print(f"{name} | {mode} {who} | {result}", flush=True)
    finally:
        if loop:
            subprocess.run(["losetup", "-d", loop])
        shutil.rmtree(folder, ignore_errors=True)
    return report(args, attempts, rows, there, time.time() - start)


def report(args, attempts, rows, there, seconds):
    bad = 0
    for a in attempts:
        for text in judge(a, rows[a["name"]]):
            bad += 1
            print(f"{a['name']}: {text}")
    ran = [a for a in attempts if rows[a["name"]]]
    for mode in args.modes.split(","):
        for who in args.who.split(","):
            results = [rows[a["name"]].get((mode, who)) for a in ran]
            results = [r for r in results if r]
            print(f"{mode:6} as {who:5}: {sum(1 for r in results if r.get('changed'))} of {len(results)} attempts change something outside")
    missing = sorted(k for k, v in there.items() if not v)
    print(f"{len(ran)} of {len(attempts)} attempts ran, {bad} complaints, {seconds:.0f} s; not on this machine: {' '.join(missing) or 'nothing'}")
    if args.json:
        table = [{**a, "results": {f"{mode} {who}": r for (mode, who), r in rows[a["name"]].items()}} for a in attempts]
        pathlib.Path(args.json).write_text(json.dumps(table, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
