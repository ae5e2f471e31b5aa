#!/usr/bin/python3
"""Writes doc/read-only.md from the results of run.py --modes fork,cell,alone --json FILE.

    document.py FILE >doc/read-only.md
"""
import json
import sys

HEAD = """# What a read-only call cannot change

A read-only call runs in a copy of the session's process that is thrown away. This page says what keeps the copy from changing
anything outside it, and shows it: each attempt of `tests/matrix/attempts.toml` was run in a plain fork (to prove that
the attempt is real), in a copy in a cell, and in a copy on a machine that allows no namespaces. `tests/matrix/document.py` made this
page from the results; `make check` runs the matrix again.

## The barriers

| guarantee | in a cell | without namespaces |
|---|---|---|
| memory | the clone's own; shared mappings replaced by private ones at the same address | the same |
| descriptors | each made again in the state it had; what leads outside is cut | the same; files open for writing are copies |
| disk | overlayfs over every mount that holds files, upper layer in memory, bounded; new `/proc` (read-only), private `/dev`, read-only `/sys` | Landlock: writes fail with EACCES, and reading devices other than null, zero, full, random and urandom; a session that holds a FIFO with a name is refused, for reading would empty it |
| processes | pid namespace with the same numbers, new session | Landlock's signal scope, filter |
| ipc | ipc namespace | filter |
| network | net namespace with `lo` alone (unless the call asks for the network) | filter: no sockets |
| privileges | no capability in any set, empty bounding set, securebits locked, no_new_privs, filter | the same |

`isolation` in the answer names what held. By default memory, descriptors, disk and processes are required: a call that
cannot have them is refused.

## What comes through

{known}

Without namespaces also: {alone}. (The engine ends the processes that a call leaves behind.)

A process that the session gave a userfaultfd of its memory to, with events of forks (`UFFD_FEATURE_EVENT_FORK`), is told of each clone and serves its page
faults there; where it does not read, the clone waits until the call's time is over. A userfaultfd that the session itself holds refuses the call. Counters that
inherit (`perf stat -p`) count a copy as well.

Another process that holds a lease on a file (`F_SETLEASE`) is told when a call opens the file, as by any reader, and the open waits until it yields.

Not state, and not stopped: the time that a call takes, memory and processor that it uses, the page cache.

## What is different in a copy

* `/proc` and `/sys` are read-only, `/dev` holds null, zero, full, random, urandom, tty, pts, shm and mqueue alone; `getppid()` is 0.
* A file over 16 MiB that was open for reading and writing can be read, but a write to it fails with EBADF; opening it by name for
  writing copies it first. Private content is copied up to 256 MiB for files without a name.
* Shared mappings without a file on disk are copied, up to 256 MiB together; a call in a session with more is refused, or sees what the session writes
  later where `isolation.memory` is `allow`. A process with POSIX timers (`timer_create`)
  or with a write lease on a file (`F_SETLEASE`), or whose next children go to another pid namespace (`unshare`), is not cloned: the call is refused.
* Shared memory that the kernel lets nobody copy (`memfd_secret`), and memory that is kept from clones (`MADV_DONTFORK`), refuse the call. What is
  emptied in clones (`MADV_WIPEONFORK`) is emptied.
* A process that has left its mount, network, ipc, uts or user namespace (`unshare`) is not put into a cell, where it would find other files and addresses:
  its copies are guarded as where there are no namespaces.
* Who traces the session with all that it starts (`strace -f`) does not trace the copy.
* Directory streams start again at their beginning. Record locks of the session are not held in the copy's own files.
* Connections to other processes are dead: sending fails with EPIPE, receiving meets the end. Listening sockets listen in the cell.
* An ordinary user's overlays know no renamed lower directories: `rename` of a directory that was there before the call fails with EXDEV, since overlayfs in
  a user namespace cannot note where it came from. `mv` and `shutil.move` copy it instead; files, and directories made in the call, are renamed. Hard
  links of a file part when it is written.

## A session that was rolled back

The snapshot that takes a dead session's place has descriptors of its own, so that nothing stays alive that the session closed. So, after a
rollback: files stand at the offsets of the last commit, without the locks that were held on them; pipes and sockets within the process are
as they were; those that led to other processes are dead, and so is what the other side had of them; listening sockets are bound
again, but connections that waited for them are lost; shared mappings, which other processes may use, hold what was written last.

## The system call filter

Always refused: {always}.

Also refused: clone and unshare with flags of new namespaces or CLONE_IO (clone3 answers ENOSYS, so that libc uses clone), sockets of families
other than unix, inet, inet6 and netlink, TIOCSTI and TIOCLINUX, prlimit of process 1, and all calls in another architecture's numbers. Without a cell also: locks and leases, lifetime hints, those controls of file
systems (ioctl) that change something, and changing RLIMIT_RTTIME and RLIMIT_LOCKS, by which the engine finds what a call has left behind.

## All attempts

{count} attempts of Python code; those of bash, run in the same way, stand in `tests/e2e/test_matrix_bash.py`. A dash means that the attempt cannot be made there. *let through*: something outside changed.

| attempt | plain fork: root, user | in a cell: root, user | without namespaces: root, user |
|---|---|---|---|
"""


def short(result, attempt):
    if result is None:
        return "–"
    if result.get("changed"):
        return "**let through**"
    told = result.get("told", "")
    if told in ("done", "ended"):
        return "no effect"
    if told == "no answer in time":
        return "waits in vain"
    words = told.replace("|", "\\|")
    for name in ("PermissionError", "OSError", "FileNotFoundError", "AssertionError", "ProcessLookupError", "BrokenPipeError",
                 "ConnectionRefusedError"):
        words = words.removeprefix(name + ": ")
    if words.startswith("[Errno"):
        words = words.split("] ", 1)[1].split(":")[0]
    return words.split(": '")[0][:60] or "an error"


def filter_names():
    import pathlib
    import re
    source = (pathlib.Path(__file__).resolve().parents[2] / "snapshot/privileges.c").read_text()
    block = source.split("always[] = {", 1)[1].split("NULL}", 1)[0]
    return ", ".join(re.findall(r'"(\w+)"', block))


def main():
    table = json.load(open(sys.argv[1]))
    ran = [a for a in table if a["results"]]
    known = [f"* {a['name']}: {a['known']}." for a in ran if "known" in a]
    alone = [a["name"] for a in ran if "known" not in a and any(
        r.get("changed") for k, r in a["results"].items() if k.startswith("alone"))]
    out = HEAD.format(known="\n".join(known), alone=", ".join(alone) or "nothing", always=filter_names(), count=len(ran))
    group = None
    for a in ran:
        if a["group"] != group:
            group = a["group"]
            out += f"| **{group}** | | | |\n"
        cells = []
        for mode in ("fork", "cell", "alone"):
            pair = [short(a["results"].get(f"{mode} {who}"), a) for who in ("root", "user")]
            cells.append(pair[0] if pair[0] == pair[1] else f"{pair[0]}; {pair[1]}")
        name = a["name"].replace("|", "\\|")
        note = " (control)" if a.get("control") else ""
        out += f"| {name}{note} | {' | '.join(cells)} |\n"
    for a in table:
        if not a["results"]:
            out += f"| {a['name']} | – | – | – |\n"
    sys.stdout.write(out)


if __name__ == "__main__":
    main()
