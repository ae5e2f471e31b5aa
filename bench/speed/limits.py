"""What the machine itself allows, measured beside furca and its peers: series of the role `limit`."""
import ctypes
import os
import time


def available():
    """Bytes that new processes could have without anything being pushed out."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def page_tables_of(pid):
    """Bytes of the page tables of a process, which a fork has to copy in the main."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmPTE:"))


class Memcpy:
    """A copy of so many bytes, in memory that is there: what a fork costs at least whose page tables are that large."""

    def __init__(self, size):
        self.size, self.source, self.target = size, ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
        ctypes.memset(self.source, 1, size)
        self.run()

    def run(self):
        """Microseconds."""
        start = time.perf_counter()
        ctypes.memmove(self.target, self.source, self.size)
        return (time.perf_counter() - start) * 1e6

    def close(self):
        pass


def fork():
    """The smallest fork there is here: of this process, which ends at once."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


class Echo:
    """A byte to a process and back over two pipes: a request and its answer, with nothing in them."""

    def __init__(self):
        (there, self.to), (self.back, back) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.to)
            while os.read(there, 1):
                os.write(back, b"x")
            os._exit(0)
        os.close(there)
        os.close(back)

    def run(self):
        os.write(self.to, b"x")
        os.read(self.back, 1)

    def close(self):
        os.close(self.to)
        os.close(self.back)
        os.waitpid(self.pid, 0)
