"""What an environment on disk is: its ready mark, the list of its files, whether they are still there, and how it is cleared away."""
import fcntl
import json
import os
import re
import shutil

MARK = "furca-env.json"    # Written last: a directory without it is no environment.
FILES = "furca-env.files"  # "size path" of each file, in order.


def key_of(digest):
    """The name of an environment's directory."""
    return digest[:20]


def scratch_of(digest):
    """The name of its scratch directory: as long as the final one, so that a path in a binary can be replaced in place."""
    return "." + digest[:19]


def walk(top):
    """(path below top, lstat) of each file that is no directory; our own two are left out. Sorted."""
    todo, out = [""], []
    while todo:
        folder = todo.pop()
        with os.scandir(os.path.join(top, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)
                elif path not in (MARK, FILES):
                    out.append((path, entry.stat(follow_symlinks=False)))
    return sorted(out, key=lambda one: one[0])


def write_list(top):
    """Writes the list of files; their number and the bytes they take on disk."""
    entries = walk(top)
    with open(os.path.join(top, FILES), "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for path, stat in entries:
            file.write("%d %s\0" % (stat.st_size, path))
        file.flush()
        os.fsync(file.fileno())
    return len(entries), sum(stat.st_blocks * 512 for _, stat in entries)


def read_mark(top):
    try:
        with open(os.path.join(top, MARK), encoding="utf-8") as file:
            mark = json.load(file)
        return mark if isinstance(mark, dict) else None
    except (OSError, ValueError):
        return None


def write_mark(top, mark):
    with open(os.path.join(top, MARK), "w", encoding="utf-8") as file:
        json.dump(mark, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())


def damage(top, digest):
    """None where the environment is whole, else what is wrong with it in a few words. Files that were added do not count."""
    mark = read_mark(top)
    if mark is None:
        return "it has no ready mark"
    if mark.get("digest") != digest:
        return "its ready mark is of another specification"
    if not os.access(os.path.join(top, "bin", "python"), os.X_OK):
        return "its interpreter is gone"
    try:
        with open(os.path.join(top, FILES), encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\0")[:-1]
    except OSError:
        return "its list of files is gone"
    if len(lines) != mark.get("files"):
        return "its list of files is cut"
    for line in lines:
        size, path = line.split(" ", 1)
        try:
            if os.lstat(os.path.join(top, path)).st_size != int(size):
                return "the file %s has changed" % path
        except OSError:
            return "the file %s is gone" % path
    return None


class Lock:
    """The lock of one environment's directory; also keeps engines that share a state directory apart."""

    def __init__(self, root, prefix):
        self.path = os.path.join(root, ".%s.lock" % prefix)
        self.fd = -1

    def take(self, wait):
        """True when it is held. A lock file that was removed meanwhile is no lock."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                if os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    self.fd = fd
                    return True
            except FileNotFoundError:
                pass
            except BlockingIOError:
                os.close(fd)
                return False
            os.close(fd)

    def drop(self):
        if self.fd >= 0:
            os.unlink(self.path)
            os.close(self.fd)
            self.fd = -1


def remove_tree(path):
    def again(function, where, _):
        os.chmod(os.path.dirname(where), 0o700)
        function(where)
    if os.path.lexists(path):
        shutil.rmtree(path, onerror=again)


def discard(root):
    """Removes what was thrown away (.trash-*) and what interrupted builds left; how many. What another holds is passed over."""
    removed = 0
    try:
        entries = os.listdir(root)
    except FileNotFoundError:
        return 0
    for name in entries:
        left = re.fullmatch(r"\.([0-9a-f]{19})(\.lock)?", name)
        if left:
            lock = Lock(root, left[1])
            if lock.take(wait=False):
                remove_tree(os.path.join(root, "." + left[1]))
                lock.drop()
                removed += 1
        elif name.startswith(".trash-"):
            remove_tree(os.path.join(root, name))
            removed += 1
    return removed
