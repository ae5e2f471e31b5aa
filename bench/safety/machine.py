"""What a result was measured on."""
import os
import pathlib
import platform
import subprocess
import time


def first(path, key):
    try:
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(key):
                return line[len(key):].strip(" :=\t\"")
    except OSError:
        pass
    return "unknown"


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]
    except OSError:
        return "unknown"


def describe(program):
    return {
        "date": time.strftime("%Y-%m-%d"), "cpu": first("/proc/cpuinfo", "model name"), "cpus": os.cpu_count(),
        "memory_gb": round(int(first("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)), "kernel": platform.release(),
        "system": first("/etc/os-release", "PRETTY_NAME"), "virtual": said("systemd-detect-virt") or "none",
        "python": platform.python_version(), "bash": said("bash", "-c", "echo $BASH_VERSION"),
        "furca": said(program, "--version") if program else "not found", "load": pathlib.Path("/proc/loadavg").read_text().split()[0],
    }
