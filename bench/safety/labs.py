"""Labs: namespaces of their own (pid, mount, ipc, net, uts; private /tmp, /var/tmp and /dev/shm) in which code may destroy what it likes, and
what this machine has for code to try. Used by the safety benchmark and by the mutation matrix of the tests."""
import ctypes
import fcntl
import json
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import sys

USER = 65533  # nobody's
NEW = 0x20000 | 0x4000000 | 0x8000000 | 0x40000000 | 0x20000000  # mounts, uts, ipc, net, pids
libc = ctypes.CDLL(None, use_errno=True)


def check(r, what):
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")
    return r


def mount(source, target, kind, flags=0, data=None):
    check(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data and data.encode()), f"mount {target}")


def wait_end(pidfd, seconds):
    return bool(select.select([pidfd], [], [], seconds)[0])


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is ours again


def start_lab(body, failed):
    """Runs body(pipe's end) as pid 1 of new namespaces; what it raises is told through the pipe as JSON, failed(exception). Gives the
    process outside (pid and pidfd; it ends with status 6 where the lab was killed, else with the lab's) and the end to read from."""
    r, w = os.pipe()
    outer = os.fork()
    if outer == 0:
        os.setsid()
        libc.prctl(1, 9, 0, 0, 0)  # ends with the runner
        os.close(r)
        check(libc.unshare(NEW), "unshare")
        pid = os.fork()
        if pid == 0:
            libc.prctl(1, 9, 0, 0, 0)
            try:
                body(w)
            except BaseException as e:
                os.write(w, json.dumps(failed(e)).encode())
            os._exit(5)
        os.close(w)
        status = os.waitpid(pid, 0)[1]
        os._exit(6 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    os.close(w)
    return outer, os.pidfd_open(outer), r


def build_lab(who, image):
    mount("none", "/", None, 0x44000)  # MS_REC | MS_PRIVATE
    mount("proc", "/proc", "proc")
    held = os.open(image, os.O_PATH) if image else -1
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        mount("lab", place, "tmpfs", 0, "mode=1777,size=300m")
    owner = 0 if who == "root" else USER
    for place in ("/tmp/lab", "/tmp/lab/w", "/tmp/lab/other"):
        os.mkdir(place)
        os.chown(place, owner, owner)
    mount("lab", "/tmp/lab/other", "tmpfs", 0, f"mode=755,uid={owner},gid={owner},size=50m")
    if image:
        os.close(os.open("/tmp/lab/image", os.O_CREAT | os.O_WRONLY))
        mount(f"/proc/self/fd/{held}", "/tmp/lab/image", None, 4096)
        os.close(held)
    pathlib.Path("/var/tmp/foreign").write_text("x")
    os.chown("/var/tmp/foreign", 12, 12)
    os.utime("/var/tmp/foreign", (1, 1))
    shutil.copy(shutil.which("id"), "/tmp/lab/w/idp")
    os.chmod("/tmp/lab/w/idp", 0o4755)
    request = struct.pack("16sH14x", b"lo", 0x41)  # IFF_UP | IFF_RUNNING
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, request)


def probes():
    """Which features an attempt may need."""
    def works(code):
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0

    def call(number, *args, fine=()):
        pid = os.fork()
        if pid == 0:
            r = libc.syscall(number, *args)
            os._exit(0 if r >= 0 or ctypes.get_errno() in fine else 1)
        return os.waitpid(pid, 0)[1] == 0

    def text(path):
        try:
            return pathlib.Path(path).read_text()
        except OSError:
            return ""

    x86 = os.uname().machine == "x86_64"
    cgroup = next((p for p in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
                   if os.path.exists(p + "/cgroup.procs") and os.access(p, os.W_OK)), "")
    there = {
        "core": not text("/proc/sys/kernel/core_pattern").startswith(("|", "/")),
        "tiocsti": text("/proc/sys/dev/tty/legacy_tiocsti").strip() != "0",
        "uring": call(425, 4, ctypes.create_string_buffer(120)),
        "bpf": call(321 if x86 else 280, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128),
        "perf": os.path.exists("/proc/sys/kernel/perf_event_paranoid"),
        "modules": call(313 if x86 else 273, 0, b"", 0, fine=(8, 22, 9)),
        "acct": libc.acct(b"/nonexistent") < 0 and ctypes.get_errno() != 38,
        "ioperm": x86 and call(173, 0x80, 1, 1),
        "vsock": works("import socket; socket.socket(40, 1)"),
        "alg": works("import socket; socket.socket(38, 5).bind(('hash', 'sha256'))"),
        "ipv6": works("import socket; socket.socket(socket.AF_INET6).bind(('::1', 0))"),
        "tun": os.path.exists("/dev/net/tun"), "fuse": os.path.exists("/dev/fuse"), "kmsg": os.path.exists("/dev/kmsg"),
        "mem": works("import os; os.open('/dev/mem', os.O_RDWR)"), "latency": os.path.exists("/dev/cpu_dma_latency"),
        "loop-control": os.path.exists("/dev/loop-control"), "sysrq": os.path.exists("/proc/sysrq-trigger"),
        "sysfs": os.access("/sys/kernel/mm/transparent_hugepage/enabled", os.W_OK),
        "cgroup": bool(cgroup), "cpus": len(os.sched_getaffinity(0)) > 1, "pkill": bool(shutil.which("pkill")), "lonely": True,
        "swapfile": False, "quota": False,
    }
    disk = next((str(p).replace("/sys/block", "/dev") for p in pathlib.Path("/sys/block").glob("[vsn]*")), "/dev/none")
    there["disk"] = works(f"import os; os.open({disk!r}, os.O_WRONLY)")
    return there, {"LAB_CGROUP": cgroup, "LAB_DISK": disk}


def loop_device(folder):
    image = os.path.join(folder, "image")
    with open(image, "wb") as file:
        file.truncate(4 << 20)
    os.chmod(image, 0o644)
    r = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True) if shutil.which("losetup") else None
    return (image, r.stdout.strip()) if r and r.returncode == 0 else (image, None)


def wants(attempt, who, there):
    for need in attempt.get("needs", "").split():
        if need == "root" and who != "root":
            return False
        if need == "setuid" and who != "user":
            return False
        if need not in ("root", "setuid") and not there.get(need):
            return False
    return True
