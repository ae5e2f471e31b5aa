"""What the attempts of attempts.toml find: names of the lab, and short forms for system calls."""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

assert os.readlink("/proc/self/ns/pid") != os.environ["LAB_OUTSIDE"], "attempts run inside a lab only"

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = libc.shmat.restype = libc.sem_open.restype = ctypes.c_void_p

_NUMBERS = {
    "x86_64": dict(
        ioperm=173, iopl=172, futex=202, tgkill=234, tkill=200, rt_sigqueueinfo=129, rt_tgsigqueueinfo=297, add_key=248,
        request_key=249, keyctl=250, ioprio_set=251, ioprio_get=252, fallocate=285, fanotify_init=300, fanotify_mark=301,
        open_by_handle_at=304, perf_event_open=298, process_vm_writev=311, finit_module=313, bpf=321, userfaultfd=323,
        copy_file_range=326, pwritev2=328, io_uring_setup=425, io_uring_enter=426, pidfd_getfd=438, reboot=169, syslog=103,
        move_pages=279, migrate_pages=256, init_module=175, delete_module=176, kexec_load=246, open_tree=428, move_mount=429,
        fsopen=430, fsconfig=431, fsmount=432, mount_setattr=442, quotactl=179, vmsplice=278, sched_setattr=314,
        process_madvise=440, process_mrelease=448, renameat2=316, vhangup=153, kcmp=312, timer_settime=223, pivot_root=155),
    "aarch64": dict(
        futex=98, tgkill=131, tkill=130, rt_sigqueueinfo=138, rt_tgsigqueueinfo=240, add_key=217, request_key=218, keyctl=219,
        ioprio_set=30, ioprio_get=31, fallocate=47, fanotify_init=262, fanotify_mark=263, open_by_handle_at=265,
        perf_event_open=241, process_vm_writev=271, finit_module=273, bpf=280, userfaultfd=282, copy_file_range=285, pwritev2=287,
        io_uring_setup=425, io_uring_enter=426, pidfd_getfd=438, reboot=142, syslog=116, move_pages=239, migrate_pages=238,
        init_module=105, delete_module=106, kexec_load=104, open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432,
        mount_setattr=442, quotactl=60, vmsplice=75, sched_setattr=274, process_madvise=440, process_mrelease=448, renameat2=276,
        vhangup=58, kcmp=272, timer_settime=110, pivot_root=41),
}[os.uname().machine]


def sc(name, *args):
    """A system call by name; raises OSError."""
    if name not in _NUMBERS:
        raise OSError(errno.ENOSYS, "no such call on this machine")
    values = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    r = libc.syscall(ctypes.c_long(_NUMBERS[name]), *values)
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r


def lc(name, *args):
    """A function of libc that returns -1 on failure; raises OSError."""
    r = getattr(libc, name)(*args)
    if r == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r


def put(name, text="original"):
    path = os.path.join(W, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def get(name="f.txt"):
    with open(os.path.join(W, name)) as file:
        return file.read()


def address(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def soon(what, seconds=1.0):
    """Whether it becomes true within that time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def nothing(read, *args):
    """Whether a nonblocking read finds nothing."""
    try:
        read(*args)
        return False
    except (BlockingIOError, TimeoutError):
        return True


def sleeper(**kwargs):
    return subprocess.Popen(["sleep", "30"], **kwargs)


def dead(process):
    """Whether a child of ours has ended or stopped."""
    time.sleep(0.05)
    r = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    process.kill()
    process.wait()
    return r


def same(path):
    """Writes to a file of the kernel what is in it already."""
    with open(path) as file:
        value = file.read()
    if "[" in value:
        value = value.split("[")[1].split("]")[0]
    with open(path, "w") as file:
        file.write(value)


W = os.environ["LAB_W"]        # a directory, the session's cwd
OTHER = os.environ["LAB_OTHER"]  # one on another mount
LOOP = os.environ.get("LAB_LOOP", "/dev/loop-missing")  # a block device of the lab
IMAGE = os.environ.get("LAB_IMAGE", "")
SP = os.getpid()               # the session's number
EP = os.getppid()              # its engine's
os.chdir(W)
F = put("f.txt")
